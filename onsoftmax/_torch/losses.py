"""The losses, logprob, the divergences, route and sample: what their operators run. Also the step that writes
a gradient over the logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._divergences import BETA, divergence
from .._libraries.torch import in_mode, is_plain, is_watched
from .._losses import _prepared, _Terms
from .._route import routed
from .._sample import sampled
from .._sample_arguments import DEFAULTS, PARAMETERS

_DEFAULTS = {"ignore_index": -100, "label_smoothing": 0.0, "z_loss": 0.0, "reduction": "mean"}


def _of_plain(run: Callable[..., Any]) -> Callable[..., Any]:
    def of_plain(*given: Any, **terms: Any) -> Any:
        if in_mode():  # it must see the operator
            return NotImplemented
        for array in given:
            if isinstance(array, Tensor) and not is_plain(array):
                return NotImplemented
        return run(*given, **terms)

    return of_plain


def _terms(
    axis: int, weight: Tensor | None = None, *, num_threads: int | None = None, **terms: Any
) -> _Terms:
    return _Terms(axis, weight=weight, stream=None, num_threads=num_threads, **{**_DEFAULTS, **terms})


def _loss(logits: Tensor, target: Tensor, *given: Any, **terms: Any) -> tuple[Tensor, Tensor]:
    loss, _, lse = _terms(*given, **terms).call(logits, target, lse=True)
    return loss, lse


def _with_grad(logits: Tensor, target: Tensor, *given: Any, **terms: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _terms(*given, **terms).call(logits, target, lse=True, grad_out=True)


def _backward(grad: Tensor, logits: Tensor, target: Tensor, *given: Any, **terms: Any) -> Tensor:
    gradient: Tensor = _terms(*given, **terms).call(logits, target, grad_out=True, grad_loss=grad)[1]
    return gradient


def _logprob(
    logits: Tensor,
    index: Tensor,
    axis: int,
    *,
    entropy: bool = False,
    argmax: bool = False,
    rank: bool = False,
    num_threads: int | None = None,
) -> Any:
    """What is not wanted is an empty tensor."""
    index = _prepared("index", index, ("int64", "int32"))
    found = _core.logprob(logits, index, axis, entropy, True, argmax, rank, True, None, num_threads)
    if not isinstance(found, tuple):  # an operator
        return NotImplemented
    types = None, None, None, torch.int64, torch.int64, None
    nothing = found[0].new_empty
    return tuple(nothing(0, dtype=t) if x is None else x for x, t in zip(found, types, strict=True))


def _logprob_backward(
    logits: Tensor,
    index: Tensor,
    moments: Tensor,
    of_logprob: Tensor | None,
    of_entropy: Tensor | None,
    of_lse: Tensor | None,
    axis: int,
    *,
    num_threads: int | None = None,
) -> Tensor:
    def of_result(name: str, grad: Tensor | None) -> Tensor | None:
        real = "float64" if logits.dtype == torch.float64 else "float32"
        return None if grad is None else _prepared(name, grad, (real,))

    gradient: Tensor = _core.logprob_backward(
        logits,
        _prepared("index", index, ("int64", "int32")),
        axis,
        _prepared("moments", moments, ("float64",)),
        of_result("grad_logprob", of_logprob),
        of_result("grad_entropy", of_entropy),
        of_result("grad_lse", of_lse),
        None,
        num_threads,
    )
    return gradient


def factor(scale: Tensor | None, scale_by: float | None) -> Tensor | float:
    if scale is not None:
        return scale
    return 1.0 if scale_by is None else scale_by


def _divergence_with_grad(
    p_logits: Tensor,
    q_logits: Tensor,
    axis: int,
    where: Tensor | None = None,
    scale: Tensor | None = None,
    *,
    scale_by: float | None = None,
    grad_out: bool | None = True,
    **terms: Any,
) -> Any:
    of_logits = factor(scale, scale_by)
    found = divergence(p_logits, q_logits, axis, where=where, scale=of_logits, grad_out=grad_out, **terms)
    return found if isinstance(found, tuple) else NotImplemented


def _divergence(*given: Any, **terms: Any) -> Any:
    found = _divergence_with_grad(*given, grad_out=None, **terms)
    return found if found is NotImplemented else found[0]


def _divergence_backward(grad: Tensor, *given: Any, **terms: Any) -> Any:
    found = _divergence_with_grad(*given, grad_value=grad, **terms)
    return found if found is NotImplemented else found[1]


def _route(
    logits: Tensor, k: int, axis: int, bias: Tensor | None = None, where: Tensor | None = None, **terms: Any
) -> Any:
    found = routed(logits, k, axis, bias=bias, where=where, **terms)
    return found if isinstance(found, tuple) else NotImplemented


def _sample(
    logits: Tensor, axis: int, *given: Tensor | None, return_logprob: Any = None, **terms: Any
) -> Any:
    """What is not wanted is an empty tensor."""
    of_rows = (*given, *(None,) * len(PARAMETERS))[: len(PARAMETERS)]
    parameters: dict[str, Any] = {}
    for name, tensor in zip(PARAMETERS, of_rows, strict=True):
        number = terms.pop(f"{name}_of_all", DEFAULTS[name])
        parameters[name] = number if tensor is None else tensor
    terms["where"] = (*given[len(PARAMETERS) :], None)[0]
    found = sampled(logits, parameters, axis=axis, return_logprob=return_logprob or False, **terms)
    if not isinstance(found, tuple):
        return NotImplemented
    indices, logprob, valid = found
    return (
        indices,
        logits.new_empty(0, dtype=torch.float32) if logprob is None else logprob,
        logits.new_empty(0, dtype=torch.bool) if valid is None else valid,
    )


# The operators on plain tensors that need no gradient. NotImplemented for other tensors.
IMPLEMENTATIONS = {
    "cross_entropy": _of_plain(_loss),
    "cross_entropy_with_grad": _of_plain(_with_grad),
    "cross_entropy_backward": _of_plain(_backward),
    "logprob": _of_plain(_logprob),
    "logprob_backward": _of_plain(_logprob_backward),
    "kl_divergence": _of_plain(_divergence),
    "kl_divergence_with_grad": _of_plain(_divergence_with_grad),
    "kl_divergence_backward": _of_plain(_divergence_backward),
    "js_divergence": _of_plain(partial(_divergence, beta=BETA)),
    "js_divergence_with_grad": _of_plain(partial(_divergence_with_grad, beta=BETA)),
    "js_divergence_backward": _of_plain(partial(_divergence_backward, beta=BETA)),
    "route": _of_plain(_route),
    "sample": _of_plain(_sample),
}


def weights_of_rows(target: Tensor, weight: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Which rows count, and the weight of each row's class, which is 0 for an ignored row."""
    counts = target != ignore_index
    own = weight[target.long().clamp(0, weight.shape[0] - 1)]  # a target on a GPU may be no class
    return counts, own.masked_fill(~counts, 0)


# ---------------------------------------------------------------- in place


def times(gradient: Tensor, grad_loss: Tensor) -> Tensor:
    """The gradient of the loss times the loss's own gradient, in the gradient's memory. A factor of exactly 1
    costs nothing."""
    if grad_loss.ndim == 0:
        if gradient.is_cuda:
            if _core.multiply(gradient, grad_loss.detach()):
                return gradient
        elif grad_loss == 1:
            return gradient
    return gradient.mul_(grad_loss)


class _InPlace(torch.autograd.Function):  # type: ignore[misc]  # mypy does not look into torch
    """The logits become their gradient. Autograd knows by their version if they change once more."""

    @staticmethod
    def forward(ctx: Any, terms: _Terms, logits: Tensor, target: Tensor) -> Tensor:
        data = logits.detach()
        loss, gradient, _ = terms.call(data, target, grad_out=data)
        ctx.save_for_backward(gradient)
        ctx.axis = terms.axis if terms.reduction == "none" else None
        return loss

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[None, Tensor, None]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph is given, and in_place=True leaves no logits for a second derivative: expected "
                "in_place=False"
            )
        (gradient,) = ctx.saved_tensors
        return None, times(gradient, grad_loss if ctx.axis is None else grad_loss.unsqueeze(ctx.axis)), None


def can_be_in_place(logits: Any) -> bool:
    """Whether autograd wants a gradient of the logits, and nothing else sees the call."""
    return (
        isinstance(logits, Tensor)
        and logits.requires_grad
        and torch.is_grad_enabled()
        and not (torch.compiler.is_compiling() or is_watched())
        and is_plain(logits)
    )


def in_place(logits: Tensor, target: Any, **arguments: Any) -> Tensor:
    """The loss of logits that require grad. The logits then hold their gradient."""
    whole = logits if logits._base is None else logits._base
    if whole.is_leaf and whole.requires_grad:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation: expected "
            "in_place=False, or logits that a model computes"
        )
    loss: Tensor = _InPlace.apply(_terms(**arguments), logits, target)
    return loss
