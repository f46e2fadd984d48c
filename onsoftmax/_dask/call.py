"""A call of onsoftmax.dask: its arguments, and the tasks that compute it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from itertools import chain
from numbers import Number
from typing import Any, TypeAlias

import dask.array as da
import numpy as np

from .. import _core
from . import chunks
from .again import read_again

_Array: TypeAlias = Any
_Axis: TypeAlias = int | tuple[int, ...] | None


class Call:
    """Its constructor raises the errors, as the functions of onsoftmax do. It computes nothing."""

    def __init__(
        self,
        operation: str,
        array: Any,
        axis: _Axis,
        method: str,
        where: Any,
        scale: Any,
        num_threads: int | None,
        dtype: Any = None,
    ) -> None:
        self.operation, self.method = operation, method
        self.x = x = _taken("array", array)
        if hasattr(x, "expr"):
            raise RuntimeError("Dask's option array.query-planning is on: onsoftmax.dask expects it off")
        if num_threads is None and isinstance(x._meta, np.ndarray):
            num_threads = 1
        kind = {"keepdims": True} if operation == "logsumexp" else {"dtype": dtype}
        on_meta = partial(
            getattr(_core, operation), x._meta, axis, method=method, num_threads=num_threads, **kind
        )
        self.meta = on_meta()  # the result's meta
        self.dims, self.axis = tuple(range(x.ndim)), _dims_of(axis, x.ndim)
        given = {name: value for name, value in (("where", where), ("scale", scale)) if value is not None}
        numbers = {name: value for name, value in given.items() if isinstance(value, Number)}
        self.arrays = {
            name: _aligned(name, value, x, self.axis) for name, value in given.items() if name not in numbers
        }
        ones = {name: np.ones_like(array._meta, shape=(1,) * x.ndim) for name, array in self.arrays.items()}
        on_meta(**numbers, **ones)
        self.dtype = None if dtype is None else self.meta.dtype
        self.keywords = {"axis": self.axis, "num_threads": num_threads, **numbers}
        self.cut = [dim for dim in self.axis if x.numblocks[dim] > 1]
        if self.cut and method not in ("auto", "invariant", "exact"):
            raise ValueError(
                f"method is {method!r}, and the rows lie in {x.numblocks[self.cut[0]]} chunks along axis "
                f"{self.cut[0]}: expected 'auto', 'invariant' or 'exact', or an array that is rechunked to "
                "one chunk there"
            )

    def rows(self) -> _Array:
        """softmax or log_softmax."""
        if not self.cut:
            return self._of_whole_rows(dtype=self.dtype)
        states = self._states()
        in_blocks = [name for name, array in self.arrays.items() if array.numblocks == self.x.numblocks]
        x, *again = read_again([self.x, *(self.arrays[name] for name in in_blocks)], states, self.axis)
        arrays = self.arrays | dict(zip(in_blocks, again, strict=True))
        function = self._bound(chunks.finished, operation=self.operation, dtype=self.dtype)
        return self._blockwise(function, [x, states, *arrays.values()])

    def values(self, keepdims: bool) -> _Array:
        """logsumexp."""
        if self.cut:
            function = partial(chunks.values, axis=self.axis, dtype=self.meta.dtype.name)
            values = self._blockwise(function, [self._states()])
        else:
            values = self._of_whole_rows(keepdims=True)
        return values if keepdims else da.squeeze(values, self.axis)

    def _of_whole_rows(self, **keywords: Any) -> _Array:
        function = self._bound(chunks.whole_rows, operation=self.operation, method=self.method, **keywords)
        return self._blockwise(function, [self.x, *self.arrays.values()])

    def _states(self) -> _Array:
        """The states of the whole rows: length 1 along axis, and a last dimension of 5, or of 4 for exact."""
        exact = self.method == "exact"
        wide = self.x.dtype.kind in "biu" or "float64" in (self.x.dtype.name, self.meta.dtype.name)
        function = (
            self._bound(chunks.exact_states)
            if exact
            else self._bound(chunks.states, arithmetic="float64" if wide else "float32")
        )
        meta = _core.empty(self.x._meta, (0,) * (self.x.ndim + 1), dtype="float64")
        parts = da.blockwise(
            function,
            (*self.dims, self.x.ndim),
            *chain.from_iterable((array, self.dims) for array in (self.x, *self.arrays.values())),
            token="states",
            new_axes={self.x.ndim: 4 if exact else 5},
            adjust_chunks=dict.fromkeys(self.axis, lambda length: 1),
            align_arrays=False,
            dtype=meta.dtype,
            meta=meta,
        )
        return da.reduction(
            parts,
            chunks.as_it_is,
            chunks.merged,
            self.axis,
            keepdims=True,
            dtype=meta.dtype,
            meta=meta,
        )

    def _bound(self, function: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
        return partial(function, names=tuple(self.arrays), **self.keywords, **keywords)

    def _blockwise(self, function: Callable[..., Any], arrays: list[_Array]) -> _Array:
        """The result, block by block, from arrays of the same dimensions and from states."""
        one = dict.fromkeys(self.axis, lambda length: 1) if self.operation == "logsumexp" else None
        return da.blockwise(
            function,
            self.dims,
            *chain.from_iterable((array, range(array.ndim)) for array in arrays),
            token=self.operation,
            adjust_chunks=one,
            align_arrays=False,
            concatenate=True,
            dtype=self.meta.dtype,
            meta=self.meta,
        )


def _taken(name: str, given: Any) -> _Array:
    try:
        return given if isinstance(given, da.Array) else da.asarray(given)
    except (TypeError, AttributeError) as error:  # Dask cannot read its type
        raise TypeError(
            f"{name} is of type {type(given).__name__}: expected a Dask array, or an object that da.asarray "
            "takes"
        ) from error


def _dims_of(axis: _Axis, ndim: int) -> tuple[int, ...]:
    """The dimensions of an axis that the core has accepted."""
    if axis is None or ndim == 0:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return tuple(sorted(operator.index(one) % ndim for one in axes))


def _aligned(name: str, given: Any, x: _Array, axis: tuple[int, ...]) -> _Array:
    """where or scale with as many dimensions as x, and with x's chunks along dimensions longer than 1."""
    array = _taken(name, given)
    shape = array.shape
    fits = array.ndim <= x.ndim
    if fits:
        array = array[(None,) * (x.ndim - array.ndim)]
        of_rows = [dim for dim in range(x.ndim) if array.shape[dim] != 1]
        fits = all(_same_length(array, x, dim) and not (name == "scale" and dim in axis) for dim in of_rows)
    if not fits:
        one_along = axis if name == "scale" else ()
        wanted = tuple(1 if dim in one_along else length for dim, length in enumerate(x.shape))
        along = ", with length 1 along axis" if one_along else ""
        unknown = any(map(math.isnan, (*shape, *x.shape)))
        hint = "; compute_chunk_sizes() of an array finds what is unknown" if unknown else ""
        raise ValueError(
            f"{name} has shape {shape}, and the array has {x.shape}: expected a shape that broadcasts "
            f"to {wanted}{along}{hint}"
        )
    known = [dim for dim in range(x.ndim) if not math.isnan(array.shape[dim])]
    return array.rechunk({dim: x.chunks[dim] if dim in of_rows else (1,) for dim in known})


def _same_length(array: _Array, x: _Array, dim: int) -> bool:
    """Two unknown lengths count as equal if they have the same number of chunks. Dask does so too."""
    if math.isnan(array.shape[dim]):
        return math.isnan(x.shape[dim]) and array.numblocks[dim] == x.numblocks[dim]
    return bool(array.shape[dim] == x.shape[dim])
