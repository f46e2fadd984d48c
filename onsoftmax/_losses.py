"""cross_entropy: the loss of rows of logits whose classes are given, and its gradient."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, overload

import numpy as np

from . import _core
from ._libraries.jax import traced_operator
from ._libraries.kinds import dtype_name, library_of
from ._libraries.torch import operator_for
from ._libraries.values import check_number, int_of
from ._types import Reduction

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._types import ArrayLike, HasDLPack

    _Array = TypeVar("_Array", bound=HasDLPack)

_REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
_INDICES = {"target": "the indices of classes", "index": "the indices of elements"}
# Numbers that a module may hold as a Parameter.
_OFTEN_LEARNED = ("bias", "temperature")


def check_kind(name: str, kind: str, of_ints: bool) -> None:
    """Checks the type of an array besides the logits."""
    if of_ints and not kind.startswith(("int", "uint")):
        what = _INDICES.get(name, "integers")
        raise TypeError(f"{name} has dtype {kind}: expected {what}, int32 or int64")
    if not of_ints and not kind.startswith(("float", "bfloat", "int", "uint")):
        raise TypeError(f"{name} has dtype {kind}: expected real numbers")


def check_terms(label_smoothing: float, z_loss: float, reduction: str) -> None:
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction is {reduction!r}: expected 'none', 'sum' or 'mean'")
    check_number("label_smoothing", label_smoothing, "a number from 0 to 1", lambda x: 0 <= x <= 1)
    check_number("z_loss", z_loss, "a finite number", lambda x: abs(x) < float("inf"))


def _is_proxy(array: Any) -> bool:
    """Whether the array is a Proxy of torch.fx, which the core knows."""
    return library_of(array) == "torch" and not isinstance(array, sys.modules["torch"].Tensor)


def _real_type(logits: Any) -> tuple[str]:
    """The type of real numbers that belong to the rows or to the elements of a row."""
    wide = not _is_proxy(logits) and dtype_name(getattr(logits, "dtype", "float64")) == "float64"
    return ("float64",) if wide else ("float32",)


def _prepared(name: str, array: Any, wanted: tuple[str, ...]) -> Any:
    """The array without gaps, in a type of `wanted`; in the first one if it has none of them."""
    library = library_of(array)
    if _is_proxy(array):
        return array
    if not library:
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"{name} is a masked array: expected an array without a mask")
        if not (hasattr(array, "__dlpack__") or hasattr(array, "__cuda_array_interface__")):
            array = np.asarray(array)
        if not hasattr(array, "dtype"):  # by DLPack alone: the core checks it
            return array
    kind = dtype_name(array.dtype)
    if kind not in wanted:
        of_ints = wanted[0].startswith("int")
        check_kind(name, kind, of_ints)
    if library == "torch":
        if array.requires_grad:
            # A bias is often a Parameter. It does not need detach() where nothing needs a gradient.
            if name == "weight" or (name in _OFTEN_LEARNED and sys.modules["torch"].is_grad_enabled()):
                raise RuntimeError(f"{name} requires grad, and no gradient flows to it: pass {name}.detach()")
            array = array.detach()
        if kind not in wanted:
            array = array.to(getattr(sys.modules["torch"], wanted[0]))
        return array if array.is_contiguous() else array.contiguous()
    if isinstance(array, _core.DeviceArray):
        return array
    if kind not in wanted:
        array = array.astype(int if of_ints and library in ("jax", "jaxlib") else wanted[0])
    if isinstance(array, np.ndarray):
        return np.require(array, array.dtype.newbyteorder("="), ("C", "A")).view(np.ndarray)
    return array.copy() if library == "cupy" and not array.flags.c_contiguous else array


def _operator_for(name: str, logits: Any, *others: Any) -> Callable[..., Any] | None:
    """The operator of torch or JAX that a call on these arrays needs. None if the core takes them."""
    if library_of(logits) == "torch":
        return operator_for(name, logits, *others)
    return traced_operator(name, logits, *others)


class _Terms:
    """The arguments of a call, checked, besides logits and target."""

    def __init__(
        self,
        axis: int,
        ignore_index: int,
        label_smoothing: float,
        z_loss: float,
        weight: Any,
        reduction: Reduction,
        stream: Any,
        num_threads: int | None,
    ) -> None:
        check_terms(label_smoothing, z_loss, reduction)
        self.axis = int_of("axis", axis)
        self.ignore_index = int_of("ignore_index", ignore_index)
        check_number(
            "ignore_index", ignore_index, "an int from -2^63 to 2^63 - 1", lambda i: -(2**63) <= i < 2**63
        )
        self.label_smoothing, self.z_loss = float(label_smoothing), float(z_loss)
        self.weight, self.reduction = weight, reduction
        self.stream, self.num_threads = stream, num_threads

    def call(
        self, logits: Any, target: Any, *, lse: bool = False, grad_out: Any = None, grad_loss: Any = None
    ) -> tuple[Any, Any, Any]:
        """(loss, gradient or None, lse or None). grad_out: True for a new array."""
        weight, given = self.weight, grad_loss
        if weight is not None or given is not None:
            real = _real_type(logits)
            weight = None if weight is None else _prepared("weight", weight, real)
            given = None if given is None else _prepared("grad_loss", given, real)
        return _core.cross_entropy(
            logits,
            _prepared("target", target, ("int64", "int32")),
            self.axis,
            weight,
            given,
            grad_out,
            self.ignore_index,
            self.label_smoothing,
            self.z_loss,
            _REDUCTIONS.index(self.reduction),
            lse,
            self.stream,
            self.num_threads,
        )


@overload  # a loss of NumPy may be a number
def cross_entropy(
    logits: _Array,
    target: ArrayLike,
    /,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
    return_lse: Literal[False] = False,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array | Any: ...
@overload
def cross_entropy(
    logits: ArrayLike,
    target: ArrayLike,
    /,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
    return_lse: bool = False,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any: ...
def cross_entropy(
    logits: Any,
    target: ArrayLike,
    /,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
    return_lse: bool = False,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """The cross-entropy of each row of logits with its class: logsumexp(row) - row[target].

    Names and meaning are as in torch.nn.functional.cross_entropy with class indices. But the classes lie
    along `axis`, the last one by default, and z_loss is not in torch. The logits are read once, or twice with
    label_smoothing. No array as large as the logits is written.

    torch's and JAX's gradients flow to the logits. torch has second derivatives too. A JAX tracer goes to
    onsoftmax.jax.cross_entropy.

    Parameters
    ----------
    logits : array_like, of at least one dimension
        Dimensionless, as softmax takes them.
    target : array of integers, of the logits' shape without axis
        The class of each row, from 0 to N - 1. int32 and int64 are read as they are.
    axis : int
        The axis of the classes.
    ignore_index : int
        A row with this target counts as if it were not there. Its loss and its gradient are 0, whatever its
        logits are.
    label_smoothing : float
        The share a, from 0 to 1, of the target that is spread evenly over all classes. The loss is then
        (1 - a) * weight[target] * (lse - x[target]) + a / N * sum(weight * (lse - x)), with
        lse = logsumexp(x).
    z_loss : float
        Adds z_loss * lse ** 2 to each loss.
    weight : array of N numbers, optional
        The weight of each class. No gradient flows to it.
    reduction : "mean", "sum" or "none"
        "mean" divides the sum of the losses by the number of rows that count. With `weight`, it divides by
        the sum of the weights of the targets of these rows.
    return_lse : bool
        Whether to return (loss, lse), with the logsumexp of each row, also of ignored rows. No gradient flows
        through lse.
    stream, num_threads
        As softmax takes them.

    Returns
    -------
    array of the logits' kind, or a number
        One loss, or with "none" one for each row. It is float64 for float64 logits, and float32 for all
        other types. The mean over no rows is NaN. A row with a NaN or +inf, or with nothing but -inf, has the
        loss NaN. If the target's logit is -inf beside finite logits, the loss is inf.

    Raises
    ------
    IndexError
        A target on the CPU is no class and not ignore_index. On a GPU, the loss and the gradient of such a
        row are NaN, since an exception would have to wait for the GPU. They are NaN inside jax.jit too.
    ValueError
        The target does not have the shape of the rows, an argument is out of its range, or the arrays are on
        different devices.
    TypeError
        The target does not have an integer type, or an array has a type that softmax does not take.
    RuntimeError
        As softmax raises it. Also if weight requires grad.

    References
    ----------
    C. Szegedy et al., Rethinking the inception architecture for computer vision, arXiv:1512.00567 (2015),
    section 7: label smoothing. A. Chowdhery et al., PaLM, arXiv:2204.02311 (2022), section 5: z_loss.

    Examples
    --------
    >>> import onsoftmax as ons
    >>> float(ons.cross_entropy([[1.0, 2.0, 3.0, 6.0, 2.0, 1.0]], [3]).round(4))
    0.0952
    """
    if by := _operator_for("cross_entropy", logits, target, weight):
        return by(
            logits,
            target,
            axis,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            z_loss=z_loss,
            weight=weight,
            reduction=reduction,
            return_lse=return_lse,
            stream=stream,
            num_threads=num_threads,
        )
    terms = _Terms(axis, ignore_index, label_smoothing, z_loss, weight, reduction, stream, num_threads)
    loss, _, lse = terms.call(logits, target, lse=return_lse)
    return (loss, lse) if return_lse else loss


@overload
def cross_entropy_with_grad(
    logits: _Array,
    target: ArrayLike,
    /,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
    return_lse: Literal[False] = False,
    grad_out: _Array | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> tuple[_Array | Any, _Array]: ...
@overload
def cross_entropy_with_grad(
    logits: ArrayLike,
    target: ArrayLike,
    /,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
    return_lse: bool = False,
    grad_out: ArrayLike | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any: ...
def cross_entropy_with_grad(
    logits: ArrayLike,
    target: ArrayLike,
    /,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
    return_lse: bool = False,
    grad_out: ArrayLike | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """The loss of cross_entropy, and its gradient with respect to the logits.

    The gradient is the gradient of the returned loss. With reduction="none" it is the gradient of the sum
    of the losses.

    Parameters
    ----------
    grad_out : array of the logits' shape and type, optional
        Receives the gradient and is returned. It may be the logits themselves.
    logits, target, axis, ignore_index, label_smoothing, z_loss, weight, reduction, return_lse, stream, \
num_threads
        As cross_entropy takes them.

    Returns
    -------
    (loss, gradient), or (loss, gradient, lse) with return_lse
        The gradient has the type of the logits.

    Raises
    ------
    IndexError, ValueError, TypeError
        As cross_entropy. Also ValueError if grad_out has another shape or type than the logits, and
        RuntimeError if the logits require grad: use cross_entropy and backward().

    Examples
    --------
    >>> import onsoftmax as ons
    >>> loss, gradient = ons.cross_entropy_with_grad([[1.0, 2.0, 3.0]], [2])
    >>> gradient.round(4)
    array([[ 0.09  ,  0.2447, -0.3348]])
    """
    if by := _operator_for("cross_entropy_with_grad", logits, target, weight):
        return by(
            logits,
            target,
            axis,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            z_loss=z_loss,
            weight=weight,
            reduction=reduction,
            return_lse=return_lse,
            grad_out=grad_out,
            stream=stream,
            num_threads=num_threads,
        )
    terms = _Terms(axis, ignore_index, label_smoothing, z_loss, weight, reduction, stream, num_threads)
    wanted = True if grad_out is None else grad_out
    loss, gradient, lse = terms.call(logits, target, lse=return_lse, grad_out=wanted)
    return (loss, gradient, lse) if return_lse else (loss, gradient)
