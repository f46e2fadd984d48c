"""explain(): every step that a method takes on one small row."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from .. import _core
from .._losses import check_terms
from .._sample_arguments import DEFAULTS, PARAMETERS
from .._types import ExplainedMethod, ExplainedOperation
from . import steps_gradient, steps_loss, steps_sample, steps_topk
from .sampling import take_sampling
from .steps import OF_CHOSEN, End, Row, fused, online, safe, split
from .steps_exact import exact
from .steps_naive import naive
from .textbook import Array, Chosen
from .trace import Trace

if TYPE_CHECKING:
    from .._types import ArrayLike, DType, FilterOrder

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


def _ending(end: End) -> dict[str, Callable[[Row], None]]:
    """The methods that find (m, d), for an operation with an end of its own."""
    return {
        "online": partial(online, end=end),
        "fused": partial(fused, end=end),
        "split": partial(split, end=end),
    }


OPERATIONS: dict[str, Mapping[str, Callable[[Row], None]]] = {
    "softmax": METHODS,
    "log_softmax": METHODS,
    "logsumexp": METHODS,
    "softmax_topk": {"online": steps_topk.online, "split": steps_topk.split},
    "softmax_backward": _OF_A_GRADIENT,
    "log_softmax_backward": _OF_A_GRADIENT,
    **dict.fromkeys(OF_CHOSEN, _ending(steps_loss.end)),
    "sample": _ending(steps_sample.end),
}
# For an argument, the operations that take it.
_TAKES = {
    "k": ("softmax_topk",),
    "grad": ("softmax_backward", "log_softmax_backward"),
    "target": tuple(OF_CHOSEN),
    **dict.fromkeys(("z_loss", "label_smoothing"), ("cross_entropy", "cross_entropy_with_grad")),
    "entropy": ("logprob",),
    **dict.fromkeys((*PARAMETERS, "filter_apply_order"), ("sample",)),
}
# An operation that takes one of these needs it.
_NEEDED = ("k", "grad", "target", "seed")
LONGEST = 4096  # elements of a row; each element has steps of its own


def _integer(name: str, value: Any, least: int, most: float, expected: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: expected {expected}") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}: expected {expected}")
    return number


def _positive(name: str, value: Any) -> int:
    return _integer(name, value, 1, math.inf, "an int of at least 1")


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


def _check_given(operation: str, **given: Any) -> None:
    """TypeError if an argument is missing, or given to an operation that does not take it."""
    for name, value in given.items():
        takes = operation in _TAKES[name]
        if value is None and takes and name in _NEEDED:
            raise TypeError(f"explain() of {operation} needs {name}")
        if value is not None and not takes:
            raise TypeError(f"explain() of {operation} takes no {name}: operation={_TAKES[name][0]!r} does")


def _take_grad(grad: Any, x: Array) -> Array:
    """The upstream gradient in the type of the row. Empty if there is none."""
    g = np.zeros(0, x.dtype) if grad is None else _take_row(grad, x.dtype, "grad")
    if grad is not None and g.shape != x.shape:
        raise ValueError(f"grad has length {len(g)}: expected {len(x)}, the length of the row")
    return g


def _take_chosen(target: Any, z_loss: float, label_smoothing: float, entropy: bool, N: int) -> Chosen:
    """The arguments of an operation that chooses one element. Other operations have no target."""
    if target is not None:
        target = _integer("target", target, 0, N - 1, f"the index of an element, 0 to {N - 1}")
    check_terms(label_smoothing, z_loss, "none")
    return Chosen(target or 0, float(z_loss), float(label_smoothing), bool(entropy))


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
    target: SupportsIndex | None = None,
    z_loss: float = 0.0,
    label_smoothing: float = 0.0,
    entropy: bool = False,
    temperature: float = 1.0,
    top_k: SupportsIndex = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: SupportsIndex | None = None,
    offset: SupportsIndex = 0,
    filter_apply_order: FilterOrder = "top_k_first",
) -> Trace:
    """Every step of a method on one row: what it reads and writes, m, d, and the rescales.

    Algorithms 1 to 3 of M. Milakov and N. Gimelshein, arXiv 1805.02867, are `naive`, `safe` and `online`.
    With tile=1 they go element by element. `fused` is `safe` with the row on the chip. `split` is `online` on
    several parts of the row, whose pairs then merge. Algorithm 4 of the paper is softmax_topk by `online`. It
    keeps the k largest so far beside (m, d). With `split` the k largest elements of the parts merge, as the
    pairs of the parts do. log_softmax and logsumexp have the same (m, d), and end with a logarithm. A
    gradient has a running sum s in the place of (m, d).

    cross_entropy has the same (m, d) too. With lse = m + log(d), the loss is lse - x[target]. Its gradient is
    softmax, and 1 less at the target. logprob is x[target] - lse.

    sample has (m, d) of the row divided by the temperature. Then it shows the tokens in their order, what
    each filter keeps, the random number u, and the token whose running sum passes u. The row counts as row 0.

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
        For softmax_topk "online" or "split". For a gradient, a loss, logprob and sample "online", "fused" or
        "split".
    parts : int
        Number of parts of the row, for `split`. Parts consist of whole tiles, so there are no more parts than
        tiles.
    dtype : dtype, optional
        float16, bfloat16, float32 or float64. The row is converted to it first. The default is the row's own
        type, or float64 for integers. `exact` takes no float64, and its default for a list is float32.
    operation : str
        "softmax", "log_softmax", "logsumexp", "softmax_topk", "softmax_backward", "log_softmax_backward",
        "cross_entropy", "cross_entropy_with_grad", "logprob" or "sample".
    k : int, optional
        The number of elements to select. softmax_topk needs k, other operations do not take it.
    grad : array of shape (N,), optional
        The upstream gradient g: the gradient of the loss with respect to y. The gradients need it, other
        operations do not take it. It is converted to the type of the row.
    target : int, optional
        The index of the target's class, or of the element that logprob takes: 0 to N - 1. The losses and
        logprob need it, other operations do not take it.
    z_loss : float
        For a loss: adds z_loss * lse ** 2.
    label_smoothing : float
        For a loss: the share, 0 to 1, of the target that all classes share equally.
    entropy : bool
        For logprob: whether to show the entropy of the row too.
    temperature, top_k, top_p, min_p, seed, offset, filter_apply_order
        For sample: its arguments, one number each. sample needs a seed.

    Returns
    -------
    Trace
        The steps and the result. The result has shape (N,). softmax_topk has k numbers. logsumexp,
        cross_entropy and logprob have one. For cross_entropy_with_grad, `result` is the gradient, and `loss`
        is the loss. With entropy, `entropy` is the entropy. For sample, `indices` has the token, and `result`
        has its log-probability in the whole row.

    Raises
    ------
    ValueError
        The row is empty, too long or not one-dimensional, tile or parts is below 1, the method or operation
        is unknown, k is below 1 or above N, target is not from 0 to N - 1, z_loss is not finite,
        label_smoothing is not from 0 to 1, grad is not as long as the row, an argument of sample is out of
        range, or `exact` gets float64.
    TypeError
        The row has no numbers, or a type that `softmax` does not take. Also if k, grad, target or seed is
        missing, or if an argument is given to an operation that does not take it.

    Examples
    --------
    >>> import onsoftmax as ons
    >>> trace = ons.explain([1, 2, 3, 6, 2, 1], operation="cross_entropy_with_grad", target=3)
    >>> [(step.m, round(step.d, 4)) for step in trace.steps[:2]]  # after the first and the second tile
    [(3.0, 1.5032), (6.0, 1.0999)]
    >>> round(trace.loss, 4), [round(dx, 4) for dx in trace.result]
    (0.0952, [0.0061, 0.0167, 0.0453, -0.0908, 0.0167, 0.0061])
    """
    if method == "exact" and dtype is None and isinstance(row, (list, tuple, range)):
        dtype = "float32"
    x = _take_row(row, dtype)
    _check_name("operation", operation, OPERATIONS)
    sampling = take_sampling(
        filter_apply_order,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=DEFAULTS["seed"] if seed is None else seed,
        offset=offset,
    )
    terms = {"z_loss": z_loss, "label_smoothing": label_smoothing, "entropy": entropy}
    optional = {name: value or None for name, value in terms.items()} | sampling.changed()
    _check_given(operation, k=k, grad=grad, target=target, seed=seed, **optional)
    chosen = _take_chosen(target, z_loss, label_smoothing, entropy, len(x))
    # by softmax_topk's own rules
    selected = 0 if k is None else int(_core.plan((len(x),), operation=operation, k=k)["k"])
    known = OPERATIONS[operation]
    _check_name("method" if known is METHODS else f"method of {operation}", method, known)
    if method == "exact":
        _core.softmax(x[:0], method=method)  # which refuses float64
    tile, parts = _positive("tile", tile), _positive("parts", parts)
    parts = parts if method == "split" else 1
    work = Row(operation, x, _take_grad(grad, x), selected, chosen, sampling, tile, parts)
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
        target=None if target is None else chosen.target,
        z_loss=chosen.z_loss,
        label_smoothing=chosen.label_smoothing,
        loss=work.loss,
        entropy=work.entropy,
        sampling=sampling if operation == "sample" else None,
    )
