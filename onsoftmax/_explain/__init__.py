"""explain(): every step that a method takes on one small row, for a softmax or its k largest."""

from __future__ import annotations

import difflib
import operator
from typing import Any, SupportsIndex

import numpy as np

from .. import _core
from .._types import ExplainedMethod, ExplainedOperation
from . import steps_topk
from .steps import Array, Row, fused, online, safe, split, textbook
from .steps_naive import naive
from .trace import Trace

METHODS = {"naive": naive, "safe": safe, "online": online, "fused": fused, "split": split}
METHODS_OF_TOPK = {"online": steps_topk.online, "split": steps_topk.split}
LONGEST = 4096  # elements of a row; each element has steps of its own


def _positive(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: expected an int of at least 1") from None
    if number < 1:
        raise ValueError(f"{name} is {number}: expected an int of at least 1")
    return number


def _take_row(row: Any, dtype: Any) -> Array:
    """The row in the type of softmax's result, by softmax's own rules."""
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
        raise ValueError(
            f"the row has {len(x)} elements: explain shows each step, and takes {LONGEST} at most"
        )
    with np.errstate(over="ignore"):
        return np.asarray(x.astype(own))


def _take_k(operation: Any, k: Any, n: int) -> int:
    """How many elements the operation selects. 0 for softmax."""
    if operation not in ("softmax", "softmax_topk"):
        raise ValueError(f"operation is {operation!r}: explain knows softmax and softmax_topk")
    if (operation == "softmax_topk") != (k is not None):
        raise TypeError(f"explain() of {operation} {'takes no' if k is not None else 'needs'} k")
    if k is None:
        return 0
    return int(_core.plan((n,), operation=operation, k=k)["k"])  # by softmax_topk's own rules


def explain(
    row: Any,
    /,
    *,
    tile: int = 3,
    method: ExplainedMethod = "online",
    parts: int = 2,
    dtype: Any = None,
    operation: ExplainedOperation = "softmax",
    k: SupportsIndex | None = None,
) -> Trace:
    """Every step of a method on one row: what it reads and writes, m, d, and the rescales.

    Algorithms 1 to 3 of M. Milakov and N. Gimelshein, arXiv 1805.02867, are `naive`, `safe` and `online`.
    With tile=1 they go element by element. `fused` is `safe` with the row on the chip. `split` is `online` on
    several parts of the row, whose pairs then merge. Algorithm 4 of the paper is softmax_topk by `online`. It
    keeps the k largest so far beside (m, d). With `split` the k largest of the parts merge as their pairs do.

    Parameters
    ----------
    row : array of shape (N,)
        1 to 4096 numbers of a type that softmax takes, on the CPU. bfloat16 needs the package ml_dtypes.
    tile : int
        Number of elements to read at a time.
    method : "naive", "safe", "online", "fused" or "split"
        For softmax_topk "online" or "split".
    parts : int
        Number of parts of the row, for `split`. Parts consist of whole tiles, so there are no more parts than
        tiles.
    dtype : dtype, optional
        float16, bfloat16, float32 or float64. The row is converted to it first. The default is the row's own
        type, or float64 for integers.
    operation : "softmax" or "softmax_topk"
    k : int, optional
        For softmax_topk, which needs it: the number of elements to select.

    Raises
    ------
    ValueError
        The row is empty, too long or not one-dimensional, tile or parts is below 1, the method or operation
        is unknown, or k is below 1 or above N.
    TypeError
        The row has no numbers, or a type that softmax does not take. Also for softmax_topk without k, and for
        softmax with k.
    """
    x = _take_row(row, dtype)
    selected = _take_k(operation, k, len(x))
    known = METHODS_OF_TOPK if selected else METHODS
    if not isinstance(method, str) or method not in known:
        of = " of softmax_topk" if selected else ""
        near = difflib.get_close_matches(str(method), known, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"method is {method!r}: explain knows{of} {', '.join(known)}{meant}")
    tile, parts = _positive("tile", tile), _positive("parts", parts)
    compute = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    work = Row(x, compute, tile, parts if method == "split" else 1)
    exact = textbook(work.wide)
    if selected:
        METHODS_OF_TOPK[method](work, selected)
        exact = exact[list(work.places)]
    else:
        METHODS[method](work)
    return Trace(
        operation=operation,
        method=method,
        dtype=x.dtype.name,
        compute=compute.name,
        tile=tile,
        parts=work.parts,
        row=tuple(map(float, x)),
        steps=tuple(work.steps),
        result=tuple(map(float, work.result)),
        exact=tuple(exact.tolist()),
        indices=work.places,
    )
