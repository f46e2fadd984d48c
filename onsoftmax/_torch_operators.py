"""The operators torch.ops.onsoftmax.*: what autograd, vmap, autocast and torch.compile need of each.

An operator's arguments are those of the function of its name, but for the axes, which are a list, and scale, which is
a tensor, `scale`, or a number, `scale_by`. Its gradient is an operator too, so that there are higher derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.library import Library, register_autocast, register_fake, register_vmap

from . import _core

Tensor = torch.Tensor
_LIBRARY = Library("onsoftmax", "DEF")
_TENSORS = "Tensor? where=None, Tensor? scale=None"
_CALL = "str method='auto', float scale_by=1.0, int? num_threads=None"
_OF_ROWS = f"ScalarType? dtype=None, {_CALL}"
_SCHEMAS = {
    "softmax": f"(Tensor x, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
    "log_softmax": f"(Tensor x, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
    "logsumexp": f"(Tensor x, int[] axes, {_TENSORS}, *, bool keepdims=False, {_CALL}) -> Tensor",
    "softmax_topk": f"(Tensor x, SymInt k, int[] axes, {_TENSORS}, *, bool log=False, bool sorted=True, {_OF_ROWS})"
    " -> (Tensor, Tensor)",
    "softmax_backward": f"(Tensor grad, Tensor output, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
    "log_softmax_backward": f"(Tensor grad, Tensor output, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
}
for _name, _schema in _SCHEMAS.items():
    _LIBRARY.define(_name + _schema)

_ops = torch.ops.onsoftmax


# ---------------------------------------------------------------- what runs


def _arrays(name: str) -> int:
    """How many arguments come before the axes: the arrays, and k."""
    return 2 if name.endswith(("_backward", "_topk")) else 1


def _implementation(name: str) -> Callable[..., Any]:
    function, first = getattr(_core, name), _arrays(name)

    def run(*given: Any, scale_by: float = 1.0, **keywords: Any) -> Any:
        # below autograd: nothing is lost
        arrays = [each.detach() if isinstance(each, Tensor) else each for each in given[:first]]
        axes, where, scale = (*given[first:], None, None)[:3]
        scale = scale_by if scale is None else scale.detach()
        return function(*arrays, tuple(axes), where=where, scale=scale, **keywords)

    return run


for _name in _SCHEMAS:
    for _device in ("CPU", "CUDA"):
        _LIBRARY.impl(_name, _implementation(_name), _device)


# ---------------------------------------------------------------- what the result will be


def _float_type(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (x.dtype if x.dtype.is_floating_point else torch.get_default_dtype())


def _of_rows(x: Tensor, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> Tensor:
    return x.new_empty(x.shape, dtype=_float_type(x, dtype))


def _of_gradient(grad: Tensor, output: Tensor, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> Tensor:
    if dtype is None:
        types = {_float_type(grad, None), _float_type(output, None)}
        dtype = types.pop() if len(types) == 1 else torch.float64 if torch.float64 in types else torch.float32
    return output.new_empty(output.shape, dtype=dtype)


def _of_values(x: Tensor, axes: Sequence[int], *_: Any, keepdims: bool = False, **__: Any) -> Tensor:
    reduced = {axis % x.ndim for axis in axes} if x.ndim else set()
    shape = [1 if i in reduced else n for i, n in enumerate(x.shape) if keepdims or i not in reduced]
    return x.new_empty(shape, dtype=_float_type(x, None))


def _of_topk(
    x: Tensor, k: int, axes: Sequence[int], *_: Any, dtype: torch.dtype | None = None, **__: Any
) -> tuple[Tensor, Tensor]:
    shape = list(x.shape)
    if shape:
        shape[axes[0]] = k
    return x.new_empty(shape, dtype=_float_type(x, dtype)), x.new_empty(shape, dtype=torch.int64)


_FAKES: dict[str, Callable[..., Any]] = {
    "softmax": _of_rows,
    "log_softmax": _of_rows,
    "logsumexp": _of_values,
    "softmax_topk": _of_topk,
    "softmax_backward": _of_gradient,
    "log_softmax_backward": _of_gradient,
}
for _name, _fake in _FAKES.items():
    register_fake(f"onsoftmax::{_name}", _fake, lib=_LIBRARY)


# ---------------------------------------------------------------- autograd



class _Call:
    """What a backward step needs of the call, beside tensors: it takes the same axes, mask and scale, and a method of
    its own."""

    def __init__(self, name: str, given: Sequence[Any], keywords: dict[str, Any]) -> None:
        first = _arrays(name)
        self.axes, self.where, self.scale = (*given[first:], None, None)[:3]
        if self.scale is not None and self.scale.requires_grad:
            raise RuntimeError(
                "scale requires grad, and no gradient flows to it: multiply the array by it first, without scale="
            )
        self.nones = (None,) * (len(given) - first)  # the gradients of what is no array
        self.scale_by, self.num_threads = keywords["scale_by"], keywords["num_threads"]

    def again(self, name: str, *arrays: Tensor, dtype: torch.dtype | None = None) -> Any:
        """An operator on such rows."""
        return CALLS[name](
            *arrays, self.axes, self.where, self.scale, dtype=dtype, scale_by=self.scale_by, num_threads=self.num_threads
        )

    def scaled(self, x: Tensor) -> Tensor:
        return x * (self.scale_by if self.scale is None else self.scale)

    def allowed(self, x: Tensor) -> Tensor:
        """With 0 at what the mask excludes."""
        return x if self.where is None else x.masked_fill(~self.where, 0)

    def total(self, x: Tensor) -> Tensor:
        return x.sum(self.axes, keepdim=True)


def _forward_of_rows(name: str) -> Callable[..., None]:
    def keep(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        ctx.call, ctx.dtype = _Call(name, inputs, keyword_only_inputs), inputs[0].dtype
        ctx.save_for_backward(output)

    return keep


def _backward_of_rows(name: str) -> Callable[..., Any]:
    def backward(ctx: Any, grad: Tensor) -> Any:
        return ctx.call.again(f"{name}_backward", grad, *ctx.saved_tensors, dtype=ctx.dtype), *ctx.call.nones

    return backward


def _forward_of_values(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.call, ctx.keepdims = _Call("logsumexp", inputs, keyword_only_inputs), keyword_only_inputs["keepdims"]
    ctx.save_for_backward(inputs[0])


def _backward_of_values(ctx: Any, grad: Tensor) -> Any:
    (x,), call = ctx.saved_tensors, ctx.call
    for axis in [] if ctx.keepdims or x.ndim == 0 else sorted(axis % x.ndim for axis in call.axes):
        grad = grad.unsqueeze(axis)
    return call.scaled(grad * call.again("softmax", x)).to(x.dtype), *call.nones


def _forward_of_topk(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.call, ctx.log = _Call("softmax_topk", inputs, keyword_only_inputs), keyword_only_inputs["log"]
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(inputs[0], output[1])


def _backward_of_topk(ctx: Any, grad: Tensor, _: Any) -> Any:
    """As of the whole row's, of which k elements were taken."""
    (x, indices), call = ctx.saved_tensors, ctx.call
    name = "log_softmax" if ctx.log else "softmax"
    y = call.again(name, x, dtype=grad.dtype)
    spread = torch.zeros_like(y).scatter(call.axes[0], indices, grad) if x.ndim else grad
    return call.again(f"{name}_backward", spread, y, dtype=x.dtype), None, *call.nones


def _forward_of_gradient(name: str) -> Callable[..., None]:
    def keep(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        ctx.call = _Call(name, inputs, keyword_only_inputs)
        ctx.save_for_backward(*inputs[:2])

    return keep


def _backward_of_softmax_gradient(ctx: Any, change: Tensor) -> Any:
    """Of s y (g - sum(g y)), with the change v of it: s y (v - sum(v y)) for g, and for y
    s (v (g - sum(g y)) - g sum(v y))."""
    (grad, output), call = ctx.saved_tensors, ctx.call
    g, v, y = (call.allowed(each.to(change.dtype)) for each in (grad, change, output))
    for_y = call.scaled(v * (g - call.total(g * y)) - g * call.total(v * y))
    for_grad = call.again("softmax_backward", change, output, dtype=grad.dtype)
    return for_grad, call.allowed(for_y).to(output.dtype), *call.nones


def _backward_of_log_softmax_gradient(ctx: Any, change: Tensor) -> Any:
    """Of s (g - e^y sum(g)), with the change v of it: s (v - sum(v e^y)) for g, -s v e^y sum(g) for y."""
    (grad, output), call = ctx.saved_tensors, ctx.call
    g, v, p = (call.allowed(each.to(change.dtype)) for each in (grad, change, output.exp()))
    for_grad, for_y = call.scaled(v - call.total(v * p)), call.scaled(-v * p * call.total(g))
    return call.allowed(for_grad).to(grad.dtype), for_y.to(output.dtype), *call.nones


_AUTOGRAD: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    "softmax": (_forward_of_rows("softmax"), _backward_of_rows("softmax")),
    "log_softmax": (_forward_of_rows("log_softmax"), _backward_of_rows("log_softmax")),
    "logsumexp": (_forward_of_values, _backward_of_values),
    "softmax_topk": (_forward_of_topk, _backward_of_topk),
    "softmax_backward": (_forward_of_gradient("softmax_backward"), _backward_of_softmax_gradient),
    "log_softmax_backward": (_forward_of_gradient("log_softmax_backward"), _backward_of_log_softmax_gradient),
}


# ---------------------------------------------------------------- vmap


def _vmap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The mapped dimension first, and the axes one further on."""
    first = _arrays(name)

    def run(info: Any, in_dims: Any, *given: Any, **keywords: Any) -> Any:
        values = list(given)
        for place, dim in enumerate(in_dims):
            if isinstance(values[place], Tensor):
                values[place] = _mapped_first(values[place], dim, info.batch_size)
        ndim = values[0].ndim - 1
        # a value that is mapped has the axes of the first array that it lacks behind the mapped one
        for place in range(first + 1, len(values)):
            if isinstance(values[place], Tensor):
                lacking = ndim + 1 - values[place].ndim
                values[place] = values[place][(slice(None), *(None,) * lacking)]
        values[first] = [axis % ndim + 1 if ndim else axis for axis in values[first]]
        result = call(*values, **keywords)
        return result, (0, 0) if name == "softmax_topk" else 0

    return run


def _mapped_first(array: Tensor, dim: int | None, size: int) -> Tensor:
    return array.expand(size, *array.shape) if dim is None else array.movedim(dim, 0)


def _is_plain(x: Any) -> bool:
    """Whether the class of a tensor leaves what is done with it to others."""
    return type(x).__torch_dispatch__ is Tensor.__torch_dispatch__


class _Differentiable:
    """An operator as a torch.autograd.Function: what torch.func can go through, unlike what register_autograd
    makes."""

    def __init__(self, name: str) -> None:
        operator, run = getattr(_ops, name).default, _implementation(name)
        keep, backward = _AUTOGRAD[name]
        defaults = {a.name: a.default_value for a in operator._schema.arguments if a.kwarg_only}
        mapped = _vmap(name, self)

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(keywords: dict[str, Any], *given: Any) -> Any:
                return (run if _is_plain(given[0]) else operator)(*given, **keywords)

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                keep(ctx, inputs[1:], defaults | inputs[0], output)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                return None, *backward(ctx, *grads)

            @staticmethod
            def vmap(info: Any, in_dims: Any, keywords: dict[str, Any], *given: Any) -> Any:
                return mapped(info, in_dims[1:], *given, **keywords)

        self.operator, self.apply = operator, Function.apply

    def __call__(self, *given: Any, **keywords: Any) -> Any:
        """Of tensors, by the operator under torch.compile and of subclasses."""
        if torch.compiler.is_compiling() or not _is_plain(given[0]):
            return self.operator(*given, **keywords)
        return self.apply(keywords, *given)

    def kernel(self, *given: Any, **keywords: Any) -> Any:
        """What autograd does with the operator."""
        if torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in given):
            return self.apply(keywords, *given)
        with torch._C._AutoDispatchBelowAutograd():
            return self.operator(*given, **keywords)


CALLS = {name: _Differentiable(name) for name in _SCHEMAS}
for _name, _call in CALLS.items():
    _LIBRARY.impl(_name, _call.kernel, "Autograd")
    register_vmap(f"onsoftmax::{_name}", _vmap(_name, _call.operator), lib=_LIBRARY)
for _name in ("softmax", "log_softmax", "logsumexp"):
    register_autocast(f"onsoftmax::{_name}", "cuda", torch.float32, lib=_LIBRARY)
