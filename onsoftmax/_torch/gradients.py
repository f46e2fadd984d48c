"""The derivatives of the operators: what each keeps of a call, and its gradient, of operators again.

So there are higher derivatives. The formulas are those of csrc/op/*_backward.h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# The calls that a gradient is made of, by name: calls.py has them.
again: dict[str, Callable[..., Any]] = {}


class Call:
    """What a backward step has of the call: the arrays that it needs; and the axes, mask and scale of the
    call, which its own calls take too."""

    def __init__(self, ctx: Any) -> None:
        self.keywords, self.axes, self.dtype, arrays = ctx.call
        saved = ctx.saved_tensors
        self.arrays, (self.where, self.scale) = saved[:arrays], (*saved[arrays:], None, None)[:2]
        self.nones = (None,) * (1 + len(saved) - arrays)  # the gradients of what is no array

    def again(self, name: str, *arrays: Tensor, dtype: torch.dtype | None = None) -> Any:
        """An operator on such rows."""
        same = {key: self.keywords[key] for key in ("scale_by", "num_threads") if key in self.keywords}
        return again[name](*arrays, self.axes, self.where, self.scale, dtype=dtype, **same)

    def scaled(self, x: Tensor) -> Tensor:
        factor = self.keywords.get("scale_by") if self.scale is None else self.scale
        return x if factor is None else x * factor

    def allowed(self, x: Tensor) -> Tensor:
        """With 0 at what the mask excludes."""
        return x if self.where is None else x.masked_fill(~self.where, 0)

    def total(self, x: Tensor) -> Tensor:
        return x.sum(self.axes, keepdim=True) if self.axes else x  # torch adds up all where axes are none


def _result(arrays: Any, result: Any) -> Any:
    return (result,)


def _array(arrays: Any, result: Any) -> Any:
    return (arrays[0],)


def _array_and_indices(arrays: Any, result: Any) -> Any:
    return arrays[0], result[1]


def _arrays(arrays: Any, result: Any) -> Any:
    return arrays


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
    """As of the whole row's, of which k elements were taken."""
    x, indices = call.arrays
    name = "log_softmax" if call.keywords.get("log", False) else "softmax"
    y = call.again(name, x, dtype=grad.dtype)
    spread = torch.zeros_like(y).scatter(call.axes[0], indices, grad) if x.ndim else grad
    return call.again(f"{name}_backward", spread, y, dtype=x.dtype), None, *call.nones


def _of_softmax_gradient(call: Call, change: Tensor) -> Any:
    """Of s y (g - sum(g y)), with the change v of it: s y (v - sum(v y)) for g, and for y
    s (v (g - sum(g y)) - g sum(v y))."""
    grad, output = call.arrays
    g, v, y = (call.allowed(each.to(change.dtype)) for each in (grad, change, output))
    for_y = call.scaled(v * (g - call.total(g * y)) - g * call.total(v * y))
    for_grad = call.again("softmax_backward", change, output, dtype=grad.dtype)
    return for_grad, call.allowed(for_y).to(output.dtype), *call.nones


def _of_log_softmax_gradient(call: Call, change: Tensor) -> Any:
    """Of s (g - e^y sum(g)), with the change v of it: s (v - sum(v e^y)) for g, -s v e^y sum(g) for y."""
    grad, output = call.arrays
    g, v, p = (call.allowed(each.to(change.dtype)) for each in (grad, change, output.exp()))
    for_grad, for_y = call.scaled(v - call.total(v * p)), call.scaled(-v * p * call.total(g))
    return call.allowed(for_grad).to(grad.dtype), for_y.to(output.dtype), *call.nones


GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "softmax": (_result, _of_rows("softmax_backward")),
    "log_softmax": (_result, _of_rows("log_softmax_backward")),
    "logsumexp": (_array, _of_values),
    "softmax_topk": (_array_and_indices, _of_topk),
    "softmax_backward": (_arrays, _of_softmax_gradient),
    "log_softmax_backward": (_arrays, _of_log_softmax_gradient),
}
