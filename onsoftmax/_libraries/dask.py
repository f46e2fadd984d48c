"""Dask arrays, which onsoftmax.dask takes."""

from __future__ import annotations

from typing import Any

from .kinds import library_of, library_of_type


def refuse_dask(array: Any) -> None:
    """TypeError for a Dask array, also as the data of an array of xarray: NumPy would compute it."""
    library = library_of(array) or library_of(getattr(array, "data", None))
    if library == "dask":
        _refuse()


def _refuse() -> None:
    raise TypeError(
        "got a Dask array: call softmax, log_softmax or logsumexp of onsoftmax.dask, which take it lazily, "
        "or pass array.compute() to the other functions"
    )


def check_list(values: Any) -> None:
    """TypeError if lists contain a Dask array, which NumPy would compute."""
    if _any_dask(values):
        _refuse()


def _any_dask(values: Any) -> bool:
    kinds = set(map(type, values))
    if any(library_of_type(kind) == "dask" for kind in kinds):
        return True
    nested = any(issubclass(kind, (list, tuple)) for kind in kinds)
    return nested and any(_any_dask(each) for each in values if isinstance(each, (list, tuple)))
