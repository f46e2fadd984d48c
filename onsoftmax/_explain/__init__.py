"""explain(): every step that a method takes on one small row."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from .. import _core
from .._types import ExplainedMethod, ExplainedOperation
from . import steps_gradient, steps_topk
from .steps import Row, fused, online, safe, split
from .steps_exact import exact
from .steps_naive import naive
from .textbook import Array
from .trace import Trace

if TYPE_CHECKING:
    from .._types import ArrayLike, DType

METHODS = {
    "naive": naive,
    "safe": safe,
    "online": online,
    "fused": fused,
    "split": split,
    "exact": exact,
}
_OF_A_GRADIENT = {
    "online": steps_gradient.online,
    "fused": steps_gradient.fused,
    "split": steps_gradient.split,
}
OPERATIONS = {
    "softmax": METHODS,
    "log_softmax": METHODS,
    "logsumexp": METHODS,
    "softmax_topk": {"online": steps_topk.online, "split": steps_topk.split},
    "softmax_backward": _OF_A_GRADIENT,
    "log_softmax_backward": _OF_A_GRADIENT,
}
# For an argument, an operation that takes it.
_TAKES = {"k": "softmax_topk", "grad": "softmax_backward"}
LONGEST = 4096  # elements of a row; each element has steps of its own


def _positive(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: expected an int of at least 1") from None
    if number < 1:
        raise ValueError(f"{name} is {number}: expected an int of at least 1")
    return number


def _take_row(row: Any, dtype: Any, name: str = "the row") -> Array:
    """The row in the type of softmax's result, by softmax's own rules."""
    try:
        x = _core.as_numpy(row)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{name} is not one row of numbers: {error}") from None
    own = _core.softmax(x.reshape(-1)[:0], dtype=dtype).dtype
    if x.ndim != 1:
        raise ValueError(f"{name} has shape {x.shape}: expected one dimension")
    if len(x) == 0:
        raise ValueError(f"{name} is empty: expected at least one number")
    if len(x) > LONGEST:
        raise ValueError(
            f"{name} has {len(x)} elements: explain shows each step, and takes {LONGEST} at most"
        )
    with np.errstate(over="ignore"):
        return np.asarray(x.astype(own))


def _check_name(what: str, name: Any, known: Iterable[str]) -> None:
    """ValueError if the name is not known. `what` says which argument it is."""
    if isinstance(name, str) and name in known:
        return
    near = difflib.get_close_matches(str(name), known, 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"{what} is {name!r}: expected one of {', '.join(known)}{meant}")


def _check_given(operation: str, name: str, value: Any, needed: bool) -> None:
    if needed != (value is not None):
        text = f"needs {name}" if needed else f"takes no {name}: operation={_TAKES[name]!r} does"
        raise TypeError(f"explain() of {operation} {text}")


def _take_grad(grad: Any, x: Array) -> Array:
    """The upstream gradient in the type of the row. Empty if there is none."""
    g = np.zeros(0, x.dtype) if grad is None else _take_row(grad, x.dtype, "grad")
    if grad is not None and g.shape != x.shape:
        raise ValueError(f"grad has length {len(g)}: expected {len(x)}, the length of the row")
    return g


def explain(
    row: ArrayLike,
    /,
    *,
    tile: int = 3,
    method: ExplainedMethod = "online",
    parts: int = 2,
    dtype: DType = None,
    operation: ExplainedOperation = "softmax",
    k: SupportsIndex | None = None,
    grad: ArrayLike | None = None,
) -> Trace:
    """Every step of a method on one row: what it reads and writes, m, d, and the rescales.

    Algorithms 1 to 3 of M. Milakov and N. Gimelshein, arXiv 1805.02867, are `naive`, `safe` and `online`.
    With tile=1 they go element by element. `fused` is `safe` with the row on the chip. `split` is `online` on
    several parts of the row, whose pairs then merge. Algorithm 4 of the paper is softmax_topk by `online`. It
    keeps the k largest so far beside (m, d). With `split` the k largest elements of the parts merge, as the
    pairs of the parts do. log_softmax and logsumexp have the same (m, d), and end with a logarithm. A
    gradient has a running sum s in the place of (m, d).

    `exact` finds each result in double, and an interval that has the exact result. If both ends of the
    interval round to the same number of the result's type, that is the result. Otherwise two doubles decide.

    Parameters
    ----------
    row : array of shape (N,)
        1 to 4096 numbers of a type that `softmax` takes, on the CPU. bfloat16 needs the package ml_dtypes.
        For a gradient, the result y of softmax or log_softmax.
    tile : int
        Number of elements to read at a time.
    method : "naive", "safe", "online", "fused", "split" or "exact"
        For softmax_topk "online" or "split", for a gradient "online", "fused" or "split".
    parts : int
        Number of parts of the row, for `split`. Parts consist of whole tiles, so there are no more parts than
        tiles.
    dtype : dtype, optional
        float16, bfloat16, float32 or float64. The row is converted to it first. The default is the row's own
        type, or float64 for integers. `exact` takes no float64, and its default for a list is float32.
    operation : str
        "softmax", "log_softmax", "logsumexp", "softmax_topk", "softmax_backward" or "log_softmax_backward".
    k : int, optional
        The number of elements to select. softmax_topk needs k, other operations do not take it.
    grad : array of shape (N,), optional
        The upstream gradient g: the gradient of the loss with respect to y. The gradients need it, other
        operations do not take it. It is converted to the type of the row.

    Raises
    ------
    ValueError
        The row is empty, too long or not one-dimensional, tile or parts is below 1, the method or operation
        is unknown, k is below 1 or above N, grad is not as long as the row, or `exact` gets float64.
    TypeError
        The row has no numbers, or a type that `softmax` does not take. Also if k or grad is missing, or given
        to an operation that does not take it.
    """
    if method == "exact" and dtype is None and isinstance(row, (list, tuple, range)):
        dtype = "float32"
    x = _take_row(row, dtype)
    _check_name("operation", operation, OPERATIONS)
    _check_given(operation, "k", k, operation == "softmax_topk")
    _check_given(operation, "grad", grad, operation.endswith("_backward"))
    # by softmax_topk's own rules
    selected = 0 if k is None else int(_core.plan((len(x),), operation=operation, k=k)["k"])
    known = OPERATIONS[operation]
    _check_name("method" if known is METHODS else f"method of {operation}", method, known)
    if method == "exact":
        _core.softmax(x[:0], method=method)  # which refuses float64
    tile, parts = _positive("tile", tile), _positive("parts", parts)
    work = Row(operation, x, _take_grad(grad, x), selected, tile, parts if method == "split" else 1)
    known[method](work)
    return Trace(
        operation=operation,
        method=method,
        dtype=x.dtype.name,
        compute=work.compute.name,
        tile=tile,
        parts=work.parts,
        row=tuple(map(float, x)),
        steps=tuple(work.steps),
        result=tuple(map(float, work.result)),
        exact=tuple(work.exact.tolist()),
        size=tuple(work.size.tolist()),
        indices=work.places,
        grad=tuple(map(float, work.grad)),
    )
