"""The derivatives of the operators: what each keeps of a call, and its gradient, of operators again.

So there are higher derivatives. The formulas are those of csrc/op/*_backward.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# The calls that a gradient is made of, by name: _torch_calls.py has them.
again: dict[str, Callable[..., Any]] = {}


class Call:
    """What a backward step has of the call, beside tensors: it takes the same axes, mask and scale, and a
    method of its own."""

    def __init__(self, keywords: dict[str, Any], by_place: Sequence[Any]) -> None:
        self.axes, self.where, self.scale = (*by_place, None, None)[:3]
        self.nones = (None,) * len(by_place)  # the gradients of what is no array
        self.keywords = keywords
        self.scale_by = keywords.get("scale_by", 1.0)

    def again(self, name: str, *arrays: Tensor, dtype: torch.dtype | None = None) -> Any:
        """An operator on such rows."""
        same = {key: self.keywords[key] for key in ("scale_by", "num_threads") if key in self.keywords}
        return again[name](*arrays, self.axes, self.where, self.scale, dtype=dtype, **same)

    def scaled(self, x: Tensor) -> Tensor:
        return x * (self.scale_by if self.scale is None else self.scale)

    def allowed(self, x: Tensor) -> Tensor:
        """With 0 at what the mask excludes."""
        return x if self.where is None else x.masked_fill(~self.where, 0)

    def total(self, x: Tensor) -> Tensor:
        return x.sum(self.axes, keepdim=True)


def _keep_result(ctx: Any, arrays: Any, result: Any) -> None:
    ctx.dtype = arrays[0].dtype
    ctx.save_for_backward(result)


def _keep_array(ctx: Any, arrays: Any, result: Any) -> None:
    ctx.save_for_backward(arrays[0])


def _keep_array_and_indices(ctx: Any, arrays: Any, result: Any) -> None:
    ctx.mark_non_differentiable(result[1])
    ctx.save_for_backward(arrays[0], result[1])


def _keep_both_arrays(ctx: Any, arrays: Any, result: Any) -> None:
    ctx.save_for_backward(*arrays)


def _of_rows(name: str) -> Callable[..., Any]:
    def backward(ctx: Any, call: Call, grad: Tensor) -> Any:
        return call.again(name, grad, *ctx.saved_tensors, dtype=ctx.dtype), *call.nones

    return backward


def _of_values(ctx: Any, call: Call, grad: Tensor) -> Any:
    (x,) = ctx.saved_tensors
    if not call.keywords.get("keepdims", False) and x.ndim > 0:
        for axis in sorted(axis % x.ndim for axis in call.axes):
            grad = grad.unsqueeze(axis)
    return call.scaled(grad * call.again("softmax", x)).to(x.dtype), *call.nones


def _of_topk(ctx: Any, call: Call, grad: Tensor, _: Any) -> Any:
    """As of the whole row's, of which k elements were taken."""
    x, indices = ctx.saved_tensors
    name = "log_softmax" if call.keywords.get("log", False) else "softmax"
    y = call.again(name, x, dtype=grad.dtype)
    spread = torch.zeros_like(y).scatter(call.axes[0], indices, grad) if x.ndim else grad
    return call.again(f"{name}_backward", spread, y, dtype=x.dtype), None, *call.nones


def _of_softmax_gradient(ctx: Any, call: Call, change: Tensor) -> Any:
    """Of s y (g - sum(g y)), with the change v of it: s y (v - sum(v y)) for g, and for y
    s (v (g - sum(g y)) - g sum(v y))."""
    grad, output = ctx.saved_tensors
    g, v, y = (call.allowed(each.to(change.dtype)) for each in (grad, change, output))
    for_y = call.scaled(v * (g - call.total(g * y)) - g * call.total(v * y))
    for_grad = call.again("softmax_backward", change, output, dtype=grad.dtype)
    return for_grad, call.allowed(for_y).to(output.dtype), *call.nones


def _of_log_softmax_gradient(ctx: Any, call: Call, change: Tensor) -> Any:
    """Of s (g - e^y sum(g)), with the change v of it: s (v - sum(v e^y)) for g, -s v e^y sum(g) for y."""
    grad, output = ctx.saved_tensors
    g, v, p = (call.allowed(each.to(change.dtype)) for each in (grad, change, output.exp()))
    for_grad, for_y = call.scaled(v - call.total(v * p)), call.scaled(-v * p * call.total(g))
    return call.allowed(for_grad).to(grad.dtype), for_y.to(output.dtype), *call.nones


GRADIENTS: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    "softmax": (_keep_result, _of_rows("softmax_backward")),
    "log_softmax": (_keep_result, _of_rows("log_softmax_backward")),
    "logsumexp": (_keep_array, _of_values),
    "softmax_topk": (_keep_array_and_indices, _of_topk),
    "softmax_backward": (_keep_both_arrays, _of_softmax_gradient),
    "log_softmax_backward": (_keep_both_arrays, _of_log_softmax_gradient),
}
