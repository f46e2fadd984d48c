"""softmax and its relatives inside autograd, torch.func, torch.compile and torch.autocast.

You need not call anything here. onsoftmax.softmax and the other functions call this module if a tensor
requires grad, is inside a transform, or is of a subclass. They also call it under torch.compile and a
TorchDispatchMode. The operators are torch.ops.onsoftmax.*, for torch.export and for other front ends. Softmax
and LogSoftmax are modules, as in torch.nn. Only this module has linear_cross_entropy. It is the loss of a
linear layer, chunk by chunk.

>>> import torch, onsoftmax as ons
>>> x = torch.zeros(3, requires_grad=True)
>>> ons.softmax(x)[0].backward()
>>> x.grad
tensor([ 0.2222, -0.1111, -0.1111])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

try:
    import torch
except ImportError as error:
    raise ImportError("onsoftmax.torch needs torch 2.5 or later: pip install torch") from error

from . import _core, _losses
from ._libraries.values import check_topk
from ._logprob import LogProb
from ._route import Route
from ._sample_arguments import FILTERS, PARAMETERS, logprob_name, wanted
from ._topk import TopK

try:
    from ._torch.arguments import (
        ONE,
        as_tensor,
        axes_of,
        call,
        call_divergence,
        call_logprob,
        call_loss,
        call_on_tokens,
        call_route,
        check_tensor,
        index_typed,
        into,
        symbolic_int,
        typed,
        typed_as,
    )
    from ._torch.calls import CALLS
    from ._torch.linear import LinearCrossEntropyLoss, linear_cross_entropy
    from ._torch.losses import can_be_in_place, in_place
    from ._torch.samplers import top_k_top_p_sampling_from_logits, vllm_forward_native
except (ImportError, AttributeError) as error:
    raise ImportError(f"onsoftmax.torch needs torch 2.5 or later: this is {torch.__version__}") from error

if TYPE_CHECKING:
    from ._types import ArrayLike, Axis, DType, FilterOrder, MethodName, Reduction, SampleLogprob, Score, Side

__all__ = [
    "CrossEntropyLoss",
    "LinearCrossEntropyLoss",
    "LogSoftmax",
    "Softmax",
    "linear_cross_entropy",
    "log_softmax",
    "log_softmax_backward",
    "logprob",
    "logsumexp",
    "softmax",
]
__all__ += ["cross_entropy", "cross_entropy_with_grad", "softmax_backward", "softmax_topk"]
__all__ += ["js_divergence", "js_divergence_with_grad", "kl_divergence", "kl_divergence_with_grad", "route"]
__all__ += ["filtered_softmax", "sample", "top_k_top_p_sampling_from_logits", "vllm_forward_native"]


def _of_rows(
    name: str, array: torch.Tensor, axis: Axis, method: str, dtype: Any, out: Any, where: Any, scale: Any,
    stream: Any, num_threads: int | None,
) -> torch.Tensor:  # fmt: skip
    check_tensor(array)
    # an array alone: this saves a tenth of the time of a small call
    if method == "auto" and scale is ONE and where is dtype is out is stream is num_threads is None:
        return CALLS[name](array, axes_of(axis, array))
    keywords = typed_as(out, dtype, array)
    return into(out, call(name, (array,), axis, where, scale, stream, method, num_threads, **keywords))


def _of_gradient(
    name: str, grad: Any, output: Any, axis: Axis, method: str, dtype: Any, out: Any, where: Any, scale: Any,
    stream: Any, num_threads: int | None,
) -> torch.Tensor:  # fmt: skip
    given = output if isinstance(output, torch.Tensor) else grad
    check_tensor(given)
    arrays = as_tensor("grad", grad, given), as_tensor("output", output, given)
    keywords = typed_as(out, dtype, arrays[1])
    return into(out, call(name, arrays, axis, where, scale, stream, method, num_threads, **keywords))


def softmax(
    array: torch.Tensor,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: torch.Tensor | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.softmax by the operator torch.ops.onsoftmax.softmax."""
    return _of_rows("softmax", array, axis, method, dtype, out, where, scale, stream, num_threads)


def log_softmax(
    array: torch.Tensor,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: torch.Tensor | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.log_softmax by the operator torch.ops.onsoftmax.log_softmax."""
    return _of_rows("log_softmax", array, axis, method, dtype, out, where, scale, stream, num_threads)


def logsumexp(
    array: torch.Tensor,
    /,
    axis: Axis = -1,
    *,
    keepdims: bool = False,
    method: MethodName = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.logsumexp by the operator torch.ops.onsoftmax.logsumexp."""
    check_tensor(array)
    result: torch.Tensor = call(
        "logsumexp", (array,), axis, where, scale, stream, method, num_threads, keepdims=keepdims
    )
    return result


def softmax_topk(
    array: torch.Tensor,
    /,
    k: int,
    axis: int = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: bool = False,
    method: MethodName = "auto",
    dtype: DType = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopK[torch.Tensor, torch.Tensor]:
    """onsoftmax.softmax_topk by the operator torch.ops.onsoftmax.softmax_topk: values, indices."""
    if return_normalizer:
        raise ValueError(
            "return_normalizer is given, and torch's operators do the work here (gradients, transforms, "
            "torch.compile): call softmax_topk without it, and logsumexp for the normalizer's logarithm"
        )
    check_tensor(array)
    if axis is None:
        raise TypeError("axis is None: expected one axis")
    if isinstance(k, bool):
        raise TypeError(f"k is {k}: expected an int of at least 1")
    arrays = array, symbolic_int("k", k)
    values, indices = call(
        "softmax_topk",
        arrays,
        axis,
        where,
        scale,
        stream,
        method,
        num_threads,
        log=log,
        sorted=sorted,
        **typed(dtype),
    )
    return TopK(values, indices)


def softmax_backward(
    grad: torch.Tensor,
    output: torch.Tensor,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: torch.Tensor | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.softmax_backward by the operator torch.ops.onsoftmax.softmax_backward."""
    return _of_gradient(
        "softmax_backward", grad, output, axis, method, dtype, out, where, scale, stream, num_threads
    )


def log_softmax_backward(
    grad: torch.Tensor,
    output: torch.Tensor,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: torch.Tensor | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.log_softmax_backward by the operator torch.ops.onsoftmax.log_softmax_backward."""
    return _of_gradient(
        "log_softmax_backward", grad, output, axis, method, dtype, out, where, scale, stream, num_threads
    )


def _terms(ignore_index: int, label_smoothing: float, z_loss: float, reduction: Reduction) -> dict[str, Any]:
    """The keywords of a loss's operator."""
    return {
        "ignore_index": symbolic_int("ignore_index", ignore_index),
        "label_smoothing": label_smoothing,
        "z_loss": z_loss,
        "reduction": reduction,
    }


def cross_entropy(
    logits: torch.Tensor,
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
    """onsoftmax.cross_entropy by the operator torch.ops.onsoftmax.cross_entropy."""
    terms = _terms(ignore_index, label_smoothing, z_loss, reduction)
    loss, lse = call_loss("cross_entropy", logits, target, axis, weight, stream, num_threads, **terms)
    return (loss, lse) if return_lse else loss


def cross_entropy_with_grad(
    logits: torch.Tensor,
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
    grad_out: torch.Tensor | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """onsoftmax.cross_entropy_with_grad by the operator torch.ops.onsoftmax.cross_entropy_with_grad."""
    terms = _terms(ignore_index, label_smoothing, z_loss, reduction)
    loss, gradient, lse = call_loss(
        "cross_entropy_with_grad", logits, target, axis, weight, stream, num_threads, **terms
    )
    gradient = _into_grad_out(grad_out, gradient)
    return (loss, gradient, lse) if return_lse else (loss, gradient)


def _into_grad_out(grad_out: torch.Tensor | None, gradient: torch.Tensor) -> torch.Tensor:
    if grad_out is not None and (grad_out.shape, grad_out.dtype) != (gradient.shape, gradient.dtype):
        raise ValueError(
            f"grad_out has shape {tuple(grad_out.shape)} and dtype {grad_out.dtype}: expected "
            f"{tuple(gradient.shape)} and {gradient.dtype}, as the logits have"
        )
    return into(grad_out, gradient)


def logprob(
    logits: torch.Tensor,
    index: ArrayLike,
    /,
    axis: int = -1,
    *,
    entropy: bool = False,
    lse: bool = False,
    argmax: bool = False,
    rank: bool = False,
    topk: int = 0,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """onsoftmax.logprob by the operator torch.ops.onsoftmax.logprob."""
    wanted = {"entropy": bool(entropy), "argmax": bool(argmax), "rank": bool(rank)}
    found = call_logprob(logits, index, axis, stream, num_threads, **wanted)
    if not (lse or topk or any(wanted.values())):
        return found[0]
    largest = None
    if symbolic_int("topk", topk):
        check_topk(topk, logits, axis)
        largest = softmax_topk(
            logits, topk, axis, log=True, dtype=found[0].dtype, stream=stream, num_threads=num_threads
        )
    asked = entropy, lse, argmax, rank
    others = [array if is_asked else None for array, is_asked in zip(found[1:5], asked, strict=True)]
    return LogProb(*(found[0], *others, largest))


def kl_divergence(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    scale: ArrayLike = ONE,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.kl_divergence by the operator torch.ops.onsoftmax.kl_divergence."""
    value: torch.Tensor = call_divergence(
        "kl_divergence", p_logits, q_logits, axis, where, scale, stream, num_threads, reduction=reduction
    )
    return value


def kl_divergence_with_grad(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    wrt: Side = "p",
    scale: ArrayLike = ONE,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    grad_out: torch.Tensor | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """onsoftmax.kl_divergence_with_grad by the operator torch.ops.onsoftmax.kl_divergence_with_grad."""
    terms = {"wrt": wrt, "reduction": reduction}
    value, gradient = call_divergence(
        "kl_divergence_with_grad", p_logits, q_logits, axis, where, scale, stream, num_threads, **terms
    )
    return value, _into_grad_out(grad_out, gradient)


def js_divergence(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    beta: float = 0.5,
    scale: ArrayLike = ONE,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.js_divergence by the operator torch.ops.onsoftmax.js_divergence."""
    terms = {"beta": beta, "reduction": reduction}
    value: torch.Tensor = call_divergence(
        "js_divergence", p_logits, q_logits, axis, where, scale, stream, num_threads, **terms
    )
    return value


def js_divergence_with_grad(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    wrt: Side = "p",
    beta: float = 0.5,
    scale: ArrayLike = ONE,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    grad_out: torch.Tensor | None = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """onsoftmax.js_divergence_with_grad by the operator torch.ops.onsoftmax.js_divergence_with_grad."""
    terms = {"wrt": wrt, "beta": beta, "reduction": reduction}
    value, gradient = call_divergence(
        "js_divergence_with_grad", p_logits, q_logits, axis, where, scale, stream, num_threads, **terms
    )
    return value, _into_grad_out(grad_out, gradient)


def route(
    logits: torch.Tensor,
    /,
    k: int,
    axis: int = -1,
    *,
    score: Score = "softmax",
    bias: ArrayLike | None = None,
    groups: int = 1,
    top_groups: int | None = None,
    renormalize: bool = True,
    scale: float = 1.0,
    index_dtype: Any = None,
    where: ArrayLike | None = None,
    method: str = "auto",
    stream: Any = None,
    num_threads: int | None = None,
) -> Route:
    """onsoftmax.route by the operator torch.ops.onsoftmax.route."""
    terms: dict[str, Any] = index_typed(index_dtype)
    if top_groups is not None:
        terms["top_groups"] = symbolic_int("top_groups", top_groups)
    found = call_route(
        logits,
        k,
        axis,
        bias,
        where,
        stream,
        num_threads,
        score=score,
        groups=symbolic_int("groups", groups),
        renormalize=bool(renormalize),
        scale=scale,
        method=method,
        **terms,
    )
    return Route(*found)


def sample(
    logits: torch.Tensor,
    /,
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    seed: ArrayLike,
    offset: ArrayLike = 0,
    filter_apply_order: FilterOrder = "top_k_first",
    return_logprob: bool | SampleLogprob = False,
    return_valid: bool = False,
    axis: int = -1,
    where: ArrayLike | None = None,
    method: str = "auto",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """onsoftmax.sample by the operator torch.ops.onsoftmax.sample."""
    check_tensor(logits)
    if return_logprob and logits.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            "logits requires grad, and no gradient flows through the log-probability of sample: pass "
            "logits.detach(), and take the log-probability of the indices by logprob"
        )
    parameters = dict(zip(PARAMETERS, (temperature, top_k, top_p, min_p, seed, offset), strict=True))
    found = call_on_tokens(
        "sample",
        logits,
        parameters,
        axis,
        where,
        stream,
        num_threads,
        filter_apply_order=filter_apply_order,
        return_logprob=logprob_name(return_logprob),
        return_valid=bool(return_valid),
        method=method,
    )
    return wanted(found, return_logprob, return_valid)


def filtered_softmax(
    logits: torch.Tensor,
    /,
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    filter_apply_order: FilterOrder = "top_k_first",
    axis: int = -1,
    where: ArrayLike | None = None,
    method: str = "auto",
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.filtered_softmax by the operator torch.ops.onsoftmax.filtered_softmax."""
    parameters = dict(zip(FILTERS, (temperature, top_k, top_p, min_p), strict=True))
    probabilities: torch.Tensor = call_on_tokens(
        "filtered_softmax",
        logits,
        parameters,
        axis,
        where,
        stream,
        num_threads,
        filter_apply_order=filter_apply_order,
        method=method,
    )
    return probabilities


class Softmax(torch.nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A module like torch.nn.Softmax that calls onsoftmax.softmax. It takes any shape. dim is an int, a tuple
    of ints, or None (all)."""

    _function: Callable[..., torch.Tensor] = staticmethod(_core.softmax)

    def __init__(self, dim: Axis = -1) -> None:
        """A module along dim: an int, a tuple of ints, or None for all dimensions."""
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return type(self)._function(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """A module like torch.nn.LogSoftmax that calls onsoftmax.log_softmax."""

    _function = staticmethod(_core.log_softmax)


class CrossEntropyLoss(torch.nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A module like torch.nn.CrossEntropyLoss for targets that are indices of classes. It calls
    onsoftmax.cross_entropy, which reads the logits once and keeps nothing else of their size.

    As in torch, the classes lie along dimension 1 of the logits, or along dimension 0 of a single row. If
    they lie last, as in (batch, tokens, classes), pass logits.transpose(1, 2). It copies nothing.

    >>> import torch
    >>> from onsoftmax.torch import CrossEntropyLoss
    >>> CrossEntropyLoss()(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]))
    tensor(0.4076)
    """

    weight: torch.Tensor | None

    def __init__(
        self,
        weight: torch.Tensor | None = None,
        *,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
        z_loss: float = 0.0,
        in_place: bool = False,
    ) -> None:
        """A module with the terms of onsoftmax.cross_entropy.

        With in_place=True, the forward step writes the gradient over logits that require grad. The backward
        step multiplies the gradient by the gradient of the loss. Do not use the logits after the forward
        step, and call backward once. If autograd keeps the logits for another step, that step raises an
        error. In torch.compile, inside a transform of torch.func and under a TorchDispatchMode, in_place has
        no effect. Leave it out for float16 logits with a GradScaler: small gradients would become 0 before
        the scale multiplies them.
        """
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing, self.z_loss = ignore_index, label_smoothing, z_loss
        self.reduction, self.in_place = reduction, in_place

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        arguments: dict[str, Any] = {
            "axis": 0 if isinstance(logits, torch.Tensor) and logits.ndim == 1 else 1,
            "ignore_index": self.ignore_index,
            "label_smoothing": self.label_smoothing,
            "z_loss": self.z_loss,
            "weight": self.weight,
            "reduction": self.reduction,
        }
        call = in_place if self.in_place and can_be_in_place(logits) else _losses.cross_entropy
        loss: torch.Tensor = call(logits, target, **arguments)
        return loss

    def extra_repr(self) -> str:
        names = ("ignore_index", "label_smoothing", "reduction", "z_loss", "in_place")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


OPERATORS = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "softmax_topk": softmax_topk,
    "softmax_backward": softmax_backward,
    "log_softmax_backward": log_softmax_backward,
    "cross_entropy": cross_entropy,
    "cross_entropy_with_grad": cross_entropy_with_grad,
    "logprob": logprob,
    "kl_divergence": kl_divergence,
    "kl_divergence_with_grad": kl_divergence_with_grad,
    "js_divergence": js_divergence,
    "js_divergence_with_grad": js_divergence_with_grad,
    "route": route,
    "sample": sample,
    "filtered_softmax": filtered_softmax,
}
