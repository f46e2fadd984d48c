"""kl_divergence and js_divergence: how far the softmax of each row is from the softmax of another row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

from . import _core
from ._libraries.values import check_number, int_of
from ._losses import _prepared, _real_type
from ._types import Reduction, Side

if TYPE_CHECKING:
    from ._types import ArrayLike, HasDLPack

    _Array = TypeVar("_Array", bound=HasDLPack)

_REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
_SIDES: tuple[Side, ...] = get_args(Side)
_OPERATIONS = ("kl_divergence", "reverse_kl_divergence", "js_divergence")
BETA = 0.5  # the default of js_divergence


def check_divergence(reduction: str, wrt: str = "p", beta: float | None = None) -> None:
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction is {reduction!r}: expected 'none', 'sum' or 'mean'")
    if wrt not in _SIDES:
        raise ValueError(f"wrt is {wrt!r}: expected 'p' or 'q'")
    if beta is not None:
        check_number("beta", beta, "a number between 0 and 1", lambda x: 0 < x < 1)


def operation_of(beta: float | None, wrt: str) -> tuple[str, float]:
    """The core's operation on the logits of the side `wrt` and the other logits, and the share of the first
    logits. beta: None for kl_divergence."""
    if beta is None:
        return _OPERATIONS[0 if wrt == "p" else 1], BETA
    return _OPERATIONS[2], float(beta) if wrt == "p" else 1 - float(beta)


def divergence(
    p_logits: Any,
    q_logits: Any,
    axis: int,
    *,
    beta: float | None = None,
    scale: Any = 1.0,
    where: Any = None,
    reduction: Reduction = "none",
    wrt: Side = "p",
    grad_value: Any = None,
    grad_out: Any = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """(value, gradient or None). beta: None for kl_divergence. grad_out: True for a new array.

    If an operator of torch or JAX must take the arrays, the result is this operator instead."""
    check_divergence(reduction, wrt, beta)
    operation, share = operation_of(beta, wrt)
    logits, other = (p_logits, q_logits) if wrt == "p" else (q_logits, p_logits)
    if grad_value is not None:
        grad_value = _prepared("grad_value", grad_value, _real_type(logits))
    return _core.divergence(
        _OPERATIONS.index(operation),
        logits,
        other,
        int_of("axis", axis),
        share,
        scale,
        where,
        grad_value,
        grad_out,
        _REDUCTIONS.index(reduction),
        stream,
        num_threads,
    )


def _of_arrays(p_logits: Any, q_logits: Any, axis: int, **keywords: Any) -> Any:
    """The value, by the core or by an operator of torch or JAX."""
    found = divergence(p_logits, q_logits, axis, **keywords)
    return found[0] if isinstance(found, tuple) else found(p_logits, q_logits, axis, **keywords)


def _with_grad(p_logits: Any, q_logits: Any, axis: int, grad_out: Any, **keywords: Any) -> Any:
    found = divergence(p_logits, q_logits, axis, grad_out=True if grad_out is None else grad_out, **keywords)
    if isinstance(found, tuple):
        return found
    return found(p_logits, q_logits, axis, grad_out=grad_out, **keywords)


@overload  # a value of NumPy may be a number
def kl_divergence(
    p_logits: _Array,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array | Any: ...
@overload
def kl_divergence(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any: ...
def kl_divergence(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """The Kullback-Leibler divergence of each row: sum(p * log(p / q)). p and q are the softmax of both rows.

    A GPU reads both arrays once. No array of their size is written. In distillation, the forward divergence
    is kl_divergence(teacher, student), and the reverse divergence is kl_divergence(student, teacher).
    torch.nn.functional.kl_div has the opposite order, and takes log-probabilities.

    torch's and JAX's gradients flow to both logits. torch has second derivatives too. No gradient flows to
    scale. A JAX tracer goes to onsoftmax.jax.kl_divergence.

    Parameters
    ----------
    p_logits, q_logits : array_like, of one shape and one dtype
        Dimensionless, as softmax takes them.
    axis : int
        The axis of the elements of a row.
    scale : number, or array that broadcasts to the rows
        Multiplies both logits: 1 / temperature.
    where : array of bool that broadcasts to the logits, optional
        The elements that count, in both rows. A row without such elements has the value 0 and the gradient 0.
    reduction : "none", "mean" or "sum"
        "none" gives a value for each row. "mean" gives the mean of the values of the rows, and "sum" their
        sum.
    stream, num_threads
        As softmax takes them.

    Returns
    -------
    array of the logits' kind, or a number
        In nats. It is float64 for float64 logits, and float32 for all other types. An element with p = 0 adds
        0. If an element has q = 0, because its logit is -inf, and p above 0, the value is inf. A row with a
        NaN or +inf, or with nothing but -inf, gives NaN. A row without elements gives 0. The mean over no
        rows is NaN.

    Raises
    ------
    ValueError
        The shapes differ, an argument is out of its range, or the arrays are on different devices.
    TypeError
        The types differ, or softmax does not take them.
    RuntimeError
        As softmax raises it. Also if scale requires grad.

    References
    ----------
    S. Kullback, R. A. Leibler, On information and sufficiency, Annals of Mathematical Statistics 22 (1951).

    Examples
    --------
    >>> import onsoftmax as ons
    >>> ons.kl_divergence([[1.0, 2.0, 3.0]], [[3.0, 2.0, 1.0]]).round(4)
    array([1.1504])
    """
    return _of_arrays(
        p_logits,
        q_logits,
        axis,
        scale=scale,
        where=where,
        reduction=reduction,
        stream=stream,
        num_threads=num_threads,
    )


@overload
def kl_divergence_with_grad(
    p_logits: _Array,
    q_logits: _Array,
    /,
    axis: int = -1,
    *,
    wrt: Side = "p",
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    grad_out: _Array | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> tuple[_Array | Any, _Array]: ...
@overload
def kl_divergence_with_grad(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    wrt: Side = "p",
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    grad_out: ArrayLike | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> tuple[Any, Any]: ...
def kl_divergence_with_grad(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    wrt: Side = "p",
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    grad_out: ArrayLike | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """The value of kl_divergence, and its gradient with respect to the logits of one side.

    The gradient is the gradient of the returned value. With reduction="none" it is the gradient of the sum
    of the values. With respect to p_logits it is scale * p * (log(p / q) - value), and with respect to
    q_logits it is scale * (q - p).

    Parameters
    ----------
    wrt : "p" or "q"
        The side: p_logits or q_logits.
    grad_out : array of the logits' shape and type, optional
        Receives the gradient and is returned. It may be the logits of the side.
    p_logits, q_logits, axis, scale, where, reduction, stream, num_threads
        As kl_divergence takes them.

    Returns
    -------
    (value, gradient)
        The gradient has the type of the logits. If the value of a row is NaN, its gradient is NaN. If the
        value is inf, the gradient with respect to p_logits is not finite, but the gradient with respect to
        q_logits is finite.

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As kl_divergence. Also ValueError if wrt is neither "p" nor "q", or grad_out has another shape or
        type than the logits, and RuntimeError if the logits require grad: use kl_divergence and backward().

    Examples
    --------
    >>> import onsoftmax as ons
    >>> value, gradient = ons.kl_divergence_with_grad([[1.0, 2.0]], [[2.0, 1.0]], wrt="q")
    >>> gradient.round(4)
    array([[ 0.4621, -0.4621]])
    """
    return _with_grad(
        p_logits,
        q_logits,
        axis,
        grad_out,
        scale=scale,
        where=where,
        reduction=reduction,
        wrt=wrt,
        stream=stream,
        num_threads=num_threads,
    )


@overload
def js_divergence(
    p_logits: _Array,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    beta: float = 0.5,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array | Any: ...
@overload
def js_divergence(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    beta: float = 0.5,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any: ...
def js_divergence(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    beta: float = 0.5,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """The Jensen-Shannon divergence of each row: beta * KL(p, r) + (1 - beta) * KL(q, r).

    p and q are the softmax of both rows, and r = beta * p + (1 - beta) * q. KL(p, r) is sum(p * log(p / r)).

    Parameters
    ----------
    beta : float
        The share of p, above 0 and below 1.
    p_logits, q_logits, axis, scale, where, reduction, stream, num_threads
        As kl_divergence takes them.

    Returns
    -------
    array of the logits' kind, or a number
        As kl_divergence returns it. The value is never above log(2). It is finite even if an element has
        q = 0.

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As kl_divergence. Also ValueError if beta is out of its range.

    References
    ----------
    J. Lin, Divergence measures based on the Shannon entropy, IEEE Transactions on Information Theory 37
    (1991).

    Examples
    --------
    >>> import onsoftmax as ons
    >>> ons.js_divergence([[1.0, 2.0, 3.0]], [[3.0, 2.0, 1.0]]).round(4)
    array([0.2476])
    """
    return _of_arrays(
        p_logits,
        q_logits,
        axis,
        beta=beta,
        scale=scale,
        where=where,
        reduction=reduction,
        stream=stream,
        num_threads=num_threads,
    )


@overload
def js_divergence_with_grad(
    p_logits: _Array,
    q_logits: _Array,
    /,
    axis: int = -1,
    *,
    wrt: Side = "p",
    beta: float = 0.5,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    grad_out: _Array | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> tuple[_Array | Any, _Array]: ...
@overload
def js_divergence_with_grad(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    wrt: Side = "p",
    beta: float = 0.5,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    grad_out: ArrayLike | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> tuple[Any, Any]: ...
def js_divergence_with_grad(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    wrt: Side = "p",
    beta: float = 0.5,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    grad_out: ArrayLike | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """The value of js_divergence, and its gradient with respect to the logits of one side.

    With respect to p_logits the gradient is scale * beta * p * (log(p / r) - KL(p, r)), and with respect to
    q_logits it is scale * (1 - beta) * q * (log(q / r) - KL(q, r)).

    Parameters
    ----------
    p_logits, q_logits, axis, beta, scale, where, reduction, stream, num_threads
        As js_divergence takes them.
    wrt, grad_out
        As kl_divergence_with_grad takes them.

    Returns
    -------
    (value, gradient)
        As kl_divergence_with_grad returns them.

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As js_divergence and kl_divergence_with_grad.

    Examples
    --------
    >>> import onsoftmax as ons
    >>> value, gradient = ons.js_divergence_with_grad([[1.0, 2.0]], [[2.0, 1.0]])
    >>> gradient.round(4)
    array([[-0.0983,  0.0983]])
    """
    return _with_grad(
        p_logits,
        q_logits,
        axis,
        grad_out,
        beta=beta,
        scale=scale,
        where=where,
        reduction=reduction,
        wrt=wrt,
        stream=stream,
        num_threads=num_threads,
    )
