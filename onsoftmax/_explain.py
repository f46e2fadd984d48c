"""explain(): a softmax by hand, every step that a method takes on one small row."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from . import _core
from ._steps import Array, Row, fused, online, safe, split, textbook
from ._steps_naive import naive
from ._trace import Trace

METHODS = {"naive": naive, "safe": safe, "online": online, "fused": fused, "split": split}
LONGEST = 4096  # elements of a row: each has steps of its own


def _positive(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: expected an int of at least 1") from None
    if number < 1:
        raise ValueError(f"{name} is {number}: expected an int of at least 1")
    return number


def _take_row(row: Any, dtype: Any) -> Array:
    """The row in the type that softmax would give, by softmax's own rules."""
    try:
        x = _core.as_numpy(row)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"the row is not one row of numbers: {error}") from None
    own = _core.softmax(x.reshape(-1)[:0], dtype=dtype).dtype
    if x.ndim != 1:
        raise ValueError(f"the row has shape {x.shape}: expected one dimension")
    if len(x) == 0:
        raise ValueError("the row is empty: expected at least one number")
    if len(x) > LONGEST:
        raise ValueError(f"the row has {len(x)} elements: explain shows every step, of at most {LONGEST}")
    with np.errstate(over="ignore"):
        return np.asarray(x.astype(own))


def explain(
    row: Any, /, *, tile: int = 3, method: str = "online", parts: int = 2, dtype: Any = None
) -> Trace:
    """Every step of a method on one row: what is read and written, m, d, and the rescales.

    Algorithms 1 to 3 of M. Milakov and N. Gimelshein, arXiv 1805.02867, are `naive`, `safe` and `online`,
    element by element with tile=1. `fused` is `safe` with the row on the chip; `split` is `online` by several
    that share the row, and their pairs merged.

    Parameters
    ----------
    row : array of shape (N,)
        1 to 4096 numbers, of a type that softmax takes, on the CPU; bfloat16 needs the package ml_dtypes.
    tile : int
        Elements that are read at a time.
    method : "naive", "safe", "online", "fused" or "split"
    parts : int
        That `split` shares the row out in, each of whole tiles; no more than there are tiles.
    dtype : dtype, optional
        float16, bfloat16, float32 or float64, which the row is converted to first; else its own, float64 for
        integers.

    Raises
    ------
    ValueError
        A row that is empty, too long or not one-dimensional; tile or parts below 1; another method.
    TypeError
        A row that is not of numbers, a type that softmax does not take.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"method is {method!r}: explain knows {', '.join(METHODS)}")
    tile, parts = _positive("tile", tile), _positive("parts", parts)
    x = _take_row(row, dtype)
    compute = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    work = Row(x, compute, tile, parts if method == "split" else 1)
    METHODS[method](work)
    return Trace(
        method=method,
        dtype=x.dtype.name,
        compute=compute.name,
        tile=tile,
        parts=work.parts,
        row=tuple(map(float, x)),
        steps=tuple(work.steps),
        result=tuple(map(float, work.result)),
        exact=tuple(textbook(work.wide).tolist()),
    )
