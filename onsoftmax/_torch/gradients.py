"""The derivatives of the operators: what each operator keeps of a call, and its gradient.

A gradient consists of operators again, so there are higher derivatives. The formulas are the same as in
csrc/op/*_backward.h.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from .._divergences import BETA
from .._libraries.torch import FOR_GRADIENT
from .._sample_arguments import GREEDY_BELOW
from .losses import weights_of_rows

_TERMS = ("label_smoothing", 0.0), ("z_loss", 0.0), ("reduction", "mean")
# The calls that a gradient consists of, by name. calls.py fills this.
again: dict[str, Callable[..., Any]] = {}


class Call:
    """What a call keeps for its backward step: the arrays that the step needs, and the call's axes, mask and
    scale. The operators that the step calls take them too."""

    def __init__(self, ctx: Any) -> None:
        self.keywords, self.axes, self.dtype, arrays = ctx.call
        saved = ctx.saved_tensors
        self.arrays, self.others = saved[:arrays], saved[arrays:]
        self.where, self.scale = (*self.others, None, None)[:2]
        self.needs = ctx.needs_input_grad[1:]  # of the arrays, first
        self.nones = (None,) * (1 + len(saved) - arrays)  # the gradients of axes, mask and scale

    def again(self, name: str, *arrays: Tensor, dtype: torch.dtype | None = None) -> Any:
        """Calls an operator on rows like the call's. A named method counts for the call alone, but invariant
        is a promise for the gradient too."""
        same = {key: self.keywords[key] for key in ("scale_by", "num_threads") if key in self.keywords}
        if self.keywords.get("method") == "invariant":
            same["method"] = "invariant"
        return again[name](*arrays, self.axes, self.where, self.scale, dtype=dtype, **same)

    def of_loss(self, name: str, *arrays: Tensor, **terms: Any) -> Any:
        """Calls an operator of a loss or a divergence with the call's terms and `terms`. `others` has the
        weights of the classes, or the mask and the scale."""
        return again[name](*arrays, self.axes, *self.others, **self.keywords | terms)

    def scaled(self, x: Tensor) -> Tensor:
        factor = self.keywords.get("scale_by") if self.scale is None else self.scale
        return x if factor is None else x * factor

    def allowed(self, x: Tensor) -> Tensor:
        """x with 0 at excluded elements."""
        return x if self.where is None else x.masked_fill(~self.where, 0)

    def total(self, x: Tensor) -> Tensor:
        return x.sum(self.axes, keepdim=True) if self.axes else x  # without axes torch would add up all


def _result(arrays: Any, result: Any) -> Any:
    return (result,)


def _array(arrays: Any, result: Any) -> Any:
    return (arrays[0],)


def _array_and_indices(arrays: Any, result: Any) -> Any:
    return arrays[0], result[1]


def _arrays(arrays: Any, result: Any) -> Any:
    return arrays


def _arrays_and_moments(arrays: Any, result: Any) -> Any:
    return *arrays, result[-1]


def _none(arrays: Any, result: Any) -> Any:
    FOR_GRADIENT.refuse()


def _nothing(arrays: Any, result: Any) -> Any:
    return ()


def _of_rows(name: str) -> Callable[..., Any]:
    def backward(call: Call, grad: Tensor) -> Any:
        return call.again(name, grad, *call.arrays, dtype=call.dtype), *call.nones

    return backward


def _of_values(call: Call, grad: Tensor) -> Any:
    (x,) = call.arrays
    if not call.keywords.get("keepdims", False) and x.ndim > 0:
        for axis in sorted(axis % x.ndim for axis in call.axes):
            grad = grad.unsqueeze(axis)
    return call.scaled(grad * call.again("softmax", x)).to(x.dtype), *call.nones


def _of_topk(call: Call, grad: Tensor, _: Any) -> Any:
    """The gradient of the whole row, from which k elements were taken."""
    x, indices = call.arrays
    name = "log_softmax" if call.keywords.get("log", False) else "softmax"
    y = call.again(name, x, dtype=grad.dtype)
    spread = torch.zeros_like(y).scatter(call.axes[0], indices, grad) if x.ndim else grad
    return call.again(f"{name}_backward", spread, y, dtype=x.dtype), None, *call.nones


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type of arithmetic."""
    return torch.promote_types(dtype, torch.float32)


# The gradient of softmax is y (g - sum(g y)). The gradient of log_softmax is g - e^y sum(g). A second
# derivative has a change v of the gradient. p is the probabilities. The rows may be whole, or parts of rows
# of which other ranks have the other parts.


def in_step(name: str, grad: Tensor, change: Tensor, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """g, v and p."""
    g, v, y = (each.to(wide(change.dtype)) for each in (grad, change, output))
    return g, v, y.exp() if name == "log_softmax_backward" else y


def terms(name: str, g: Tensor, v: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """The terms of two sums over each row: of_g and of_v."""
    return g if name == "log_softmax_backward" else g * p, v * p


def for_gradient(name: str, v: Tensor, p: Tensor, of_v: Tensor) -> Tensor:
    """The gradient for g."""
    return v - of_v if name == "log_softmax_backward" else p * (v - of_v)


def for_output(name: str, g: Tensor, v: Tensor, p: Tensor, of_g: Tensor, of_v: Tensor) -> Tensor:
    """The gradient for y."""
    return -v * p * of_g if name == "log_softmax_backward" else v * (g - of_g) - g * of_v


def _of_gradient(name: str) -> Callable[..., Any]:
    def backward(call: Call, change: Tensor) -> Any:
        grad, output = call.arrays
        g, v, p = map(call.allowed, in_step(name, grad, change, output))
        sums = [call.total(term) for term in terms(name, g, v, p)]
        for_y = call.allowed(call.scaled(for_output(name, g, v, p, *sums))).to(output.dtype)
        if name == "softmax_backward":  # this operator is its own gradient for g, and adds up in double
            return call.again(name, change, output, dtype=grad.dtype), for_y, *call.nones
        return call.allowed(call.scaled(for_gradient(name, v, p, sums[1]))).to(grad.dtype), for_y, *call.nones

    return backward


def _of_loss(call: Call, grad: Tensor, _: Any) -> Any:
    return call.of_loss("cross_entropy_backward", grad, *call.arrays), None, *call.nones


def _of_loss_gradient(call: Call, change: Tensor) -> Any:
    """A row's gradient is g (f p - a / N w), and g (1 - a) w[t] less at the target t. f has the term 2 z lse.
    docs/contract.md has these names."""
    grad, logits, target = call.arrays
    axis, terms, dtype = call.axes, call.keywords, wide(logits.dtype)
    given = (*call.others, None)[0]
    weight = logits.new_ones(logits.shape[axis]) if given is None else given
    counts, own = weights_of_rows(target, weight.to(dtype), terms.get("ignore_index", -100))
    a, z, reduction = (terms.get(*each) for each in _TERMS)
    g = grad.to(dtype) / (own.sum() if reduction == "mean" else 1)
    v = change.to(dtype)
    # for g: the sum of v times the gradient of each loss
    ones = torch.ones_like(own)
    of_rows = call.of_loss("cross_entropy_backward", ones, logits, target, reduction="none").to(dtype)
    for_g = (of_rows * v).sum(axis)
    if reduction != "none":
        for_g = for_g.sum() / (own.sum() if reduction == "mean" else 1)
    # for the logits
    p = again["softmax"](logits, [axis], dtype=dtype)
    f = (1 - a) * own + a * weight.to(dtype).mean()
    if z:
        f = f + 2 * z * again["logsumexp"](logits, [axis]).to(dtype)
    of_z = 2 * z * g * (p * v).sum(axis)
    for_logits = (g * f).unsqueeze(axis) * again["softmax_backward"](v, p, [axis]) + of_z.unsqueeze(axis) * p
    for_logits = for_logits.masked_fill(~counts.unsqueeze(axis), 0)
    return for_g.to(grad.dtype), for_logits.to(logits.dtype), None, *call.nones


def _of_logprob(call: Call, grad: Any, of_entropy: Any, of_lse: Any, *_: Any) -> Any:
    grads = grad, of_entropy if call.keywords.get("entropy", False) else None, of_lse
    same = {key: value for key, value in call.keywords.items() if key == "num_threads"}
    return again["logprob_backward"](*call.arrays, *grads, call.axes, **same), None, *call.nones


def _of_logprob_gradient(call: Call, change: Tensor) -> Any:
    """A row's gradient is p (s - h u), and g more at each index, with s = l - sum(g) and u = log p + entropy.
    csrc/api/logprob.h has these names."""
    logits, index, _, *given = call.arrays
    dtype, axis = wide(logits.dtype), call.axes
    x, v = logits.movedim(axis, -1), change.movedim(axis, -1).to(dtype)

    def columns(array: Tensor) -> Tensor:
        return array if array.ndim == x.ndim else array.unsqueeze(-1)

    g, h, of_lse = (None if each is None else columns(each.to(dtype)) for each in given)
    at = columns(index.long()).clamp(0, x.shape[-1] - 1)  # an index on a GPU may be out of range
    log_p = again["log_softmax"](x, [-1], dtype=dtype)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0)  # it may be -inf, and adds 0 to the entropy
    u = log_p - (p * log_p).sum(-1, keepdim=True)
    of_v = (p * v).sum(-1, keepdim=True)
    s = (0 if of_lse is None else of_lse) - (0 if g is None else g.sum(-1, keepdim=True))
    slope = 0 if h is None else h
    for_x = again["softmax_backward"](v * (s - slope * u), p, [-1]) - slope * p * (v - of_v - of_v * u)
    found = v.gather(-1, at) - of_v, -(p * v * u).sum(-1, keepdim=True), of_v
    for_given = (
        None if each is None else one.reshape(each.shape).to(each.dtype)
        for each, one in zip(given, found, strict=True)
    )
    return for_x.movedim(-1, axis).to(logits.dtype), None, None, *for_given, *call.nones


def _of_divergence(kind: str) -> Callable[..., Any]:
    def backward(call: Call, grad: Tensor) -> Any:
        sides = (
            call.of_loss(f"{kind}_divergence_backward", grad, *call.arrays, wrt=side) if needed else None
            for side, needed in zip("pq", call.needs, strict=False)
        )
        return *sides, *call.nones

    return backward


def _of_divergence_gradient(kind: str) -> Callable[..., Any]:
    """Let m be the softmax of one side, n the softmax of the other side, and a = log(m / r). The gradient of
    a row of the first side is g s share m (a - sum(m a)). For KL, share is 1 and r is n. For JS, share is
    beta or 1 - beta, and r is share m + (1 - share) n. The gradient of KL for q is g s (q - p)."""

    def backward(call: Call, change: Tensor) -> Any:
        grad, *logits = call.arrays
        axis, dtype, terms = call.axes, wide(change.dtype), call.keywords
        wrt, reduction = terms.get("wrt", "p"), terms.get("reduction", "none")
        rows = list(change.shape)
        del rows[axis]
        divisor = prod(rows) if reduction == "mean" else 1
        v = call.allowed(change.to(dtype))
        # for g: the sum of v times the gradient of each value
        of_rows = call.of_loss(
            f"{kind}_divergence_backward", grad.new_ones(rows), *logits, reduction="none"
        ).to(dtype)
        for_g = (of_rows * v).sum(axis)
        g = grad.to(dtype)
        if reduction == "none":
            g = g.unsqueeze(axis)
        else:
            for_g, g = for_g.sum() / divisor, g / divisor
        # for the logits, in the order of this side and the other side
        call.axes = [axis]
        logs = [
            call.allowed(call.again("log_softmax", x, dtype=dtype))
            for x in (logits if wrt == "p" else logits[::-1])
        ]
        m, n = (call.allowed(log.exp()) for log in logs)

        def of_softmax(p: Tensor, k: Tensor) -> Tensor:
            return p * (k - call.total(p * k))

        if kind == "kl" and wrt == "q":
            sides = of_softmax(m, v), -of_softmax(n, v)
        else:
            beta = terms.get("beta", BETA)
            share = 1 if kind == "kl" else beta if wrt == "p" else 1 - beta
            log_r = logs[1] if kind == "kl" else (share * m + (1 - share) * n).log()
            a = (logs[0] - log_r).masked_fill(m == 0, 0)
            u = v - call.total(m * v)
            c = m * u
            own = m * (u * (a - call.total(m * a)) - call.total(c * a)) + c
            if kind == "kl":
                sides = own, -c
            else:
                k = (m / log_r.exp()).masked_fill(m == 0, 0) * u
                sides = share * (own - share * of_softmax(m, k)), -share * (1 - share) * of_softmax(n, k)
        own, other = (call.scaled(call.scaled(g * side)).to(change.dtype) for side in sides)
        return for_g.to(grad.dtype), *((own, other) if wrt == "p" else (other, own)), *call.nones

    return backward


def _log_of_score(score: str, x: Tensor) -> tuple[Tensor, Tensor | float]:
    """The logarithm of an expert's score, up to a constant for its row, and its derivative."""
    if score == "sigmoid":
        return torch.nn.functional.logsigmoid(x), torch.sigmoid(-x)
    if score == "sqrtsoftplus":  # the root of softplus is exp(x / 2) below -60
        near, below = x.clamp(min=-60), x.clamp(max=-60) + 60
        softplus = torch.logaddexp(near, torch.zeros_like(near))
        return (softplus.log() + below) / 2, torch.sigmoid(near) / (2 * softplus)
    return x, 1.0


def _of_route(call: Call, grad: Tensor, _: Any) -> Any:
    """The chosen experts are constant. Renormalized weights are the softmax of the logarithms of k scores."""
    logits, indices = call.arrays
    axis, terms, dtype = call.axes, call.keywords, wide(logits.dtype)
    score, renormalize = terms.get("score", "softmax"), terms.get("renormalize", True)
    mask, at, g = (*call.others, None, None)[1], indices.long(), grad * terms.get("scale", 1.0)
    call.axes, call.where, call.scale = [axis], mask, None
    if score == "softmax" and not renormalize:
        y = call.again("softmax", logits, dtype=dtype)
        spread = torch.zeros_like(y).scatter(axis, at, g)
        return call.again("softmax_backward", spread, y, dtype=logits.dtype), None, *call.nones
    if mask is not None:
        call.where = mask.expand(logits.shape).gather(axis, at)
    x = call.allowed(logits.gather(axis, at).to(dtype))
    log_s, slope = _log_of_score(score, x)
    if renormalize:
        if score in ("sigmoid", "sqrtsoftplus"):  # a row in which all scores are 0 has the weights 0
            some = log_s > -torch.inf
            call.where = some if call.where is None else call.where & some
        of_k = slope * call.again("softmax_backward", g, call.again("softmax", log_s))
    else:
        of_k = call.allowed(g if score == "none" else g * slope * log_s.exp())
    return of_k.new_zeros(logits.shape).scatter(axis, at, of_k).to(logits.dtype), None, *call.nones


def _of_filtered_softmax(call: Call, grad: Tensor, *_: Any) -> Any:
    """The kept tokens are constant, so this is the gradient of a softmax of their logits."""
    (y,), axis, temperature = call.arrays, call.axes, (*call.others, None)[0]
    call.axes, call.where, call.scale = [axis], (*call.others, *5 * [None])[4], None
    of_scaled = call.again("softmax_backward", grad, y)
    if temperature is None:
        number = call.keywords.get("temperature_of_all", 1.0)
        of_logits = of_scaled / (1.0 if number < GREEDY_BELOW else number)
    else:
        of_rows = temperature.masked_fill(temperature < GREEDY_BELOW, 1)
        one = of_rows.numel() == 1
        of_logits = of_scaled / (of_rows.reshape(()) if one else of_rows.unsqueeze(axis))
    return of_logits.to(call.dtype), *call.nones


GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "softmax": (_result, _of_rows("softmax_backward")),
    "log_softmax": (_result, _of_rows("log_softmax_backward")),
    "logsumexp": (_array, _of_values),
    "softmax_topk": (_array_and_indices, _of_topk),
    "softmax_backward": (_arrays, _of_gradient("softmax_backward")),
    "log_softmax_backward": (_arrays, _of_gradient("log_softmax_backward")),
    "cross_entropy": (_arrays, _of_loss),
    "cross_entropy_with_grad": (_none, _none),
    "cross_entropy_backward": (_arrays, _of_loss_gradient),
    "logprob": (_arrays_and_moments, _of_logprob),
    "logprob_backward": (_arrays, _of_logprob_gradient),
    "route": (_array_and_indices, _of_route),
    "sample": (_nothing, _none),
    "filtered_softmax": (_result, _of_filtered_softmax),
}
for _kind in ("kl", "js"):
    GRADIENTS |= {
        f"{_kind}_divergence": (_arrays, _of_divergence(_kind)),
        f"{_kind}_divergence_with_grad": (_none, _none),
        f"{_kind}_divergence_backward": (_arrays, _of_divergence_gradient(_kind)),
    }
# The number of results that gradients flow through: the first ones. 1 for all other operators.
DIFFERENTIABLE = {"logprob": 3, "sample": 0}
