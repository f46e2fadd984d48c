"""The calls of the operators: by autograd, vmap, the transforms of torch.func, and torch.autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.library import register_vmap

from ._torch_gradients import GRADIENTS, Call, again
from ._torch_operators import LIBRARY, NAMES, arrays_of, implementation

# ---------------------------------------------------------------- vmap


def _vmap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The mapped dimension first, and the axes one further on."""
    first = arrays_of(name)

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


# ---------------------------------------------------------------- autocast


_WIDENED = ("softmax", "log_softmax", "logsumexp")


def _widened(name: str, x: Tensor, keywords: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """What torch.autocast makes of a call on a GPU, as of torch's own: a float32 result of 16-bit rows."""
    if not (x.is_cuda and x.dtype in (torch.float16, torch.bfloat16)) or keywords.get("dtype") is not None:
        return x, keywords
    return (x.float(), keywords) if name == "logsumexp" else (x, keywords | {"dtype": torch.float32})


# ---------------------------------------------------------------- autograd


_NO_CLASS_ASKS = Tensor.__torch_dispatch__
_transforms_active = torch._C._are_functorch_transforms_active
_modes = torch._C._len_torch_dispatch_stack


def _is_plain(x: Any) -> bool:
    """Whether the class of a tensor leaves what is done with it to others."""
    return type(x).__torch_dispatch__ is _NO_CLASS_ASKS


def _is_memory(x: Tensor) -> bool:
    """Whether nothing stands between a tensor and what is done with its memory."""
    return (
        type(x).__torch_dispatch__ is _NO_CLASS_ASKS
        and (x.is_cpu or x.is_cuda)
        and not _transforms_active()
        and _modes() == 0
    )


class _Differentiable:
    """An operator as a torch.autograd.Function: what torch.func can go through, unlike what
    torch.library.register_autograd makes."""

    def __init__(self, name: str) -> None:
        operator, run = getattr(torch.ops.onsoftmax, name).default, implementation(name)
        keep, backward = GRADIENTS[name]
        behind = 1 + arrays_of(name)  # the keywords and the arrays
        mapped = _vmap(name, self)

        class Steps:
            @staticmethod
            def forward(keywords: dict[str, Any], *given: Any) -> Any:
                return (run if _is_plain(given[0]) else operator)(*given, **keywords)

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                ctx.call = inputs[0], inputs[behind:]
                keep(ctx, inputs[1:behind], output)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                return None, *backward(ctx, Call(*ctx.call), *grads)

            @staticmethod
            def vmap(info: Any, in_dims: Any, keywords: dict[str, Any], *given: Any) -> Any:
                return mapped(info, in_dims[1:], *given, **keywords)

        # By the name that grad_fn shows.
        title = "".join(word.capitalize() for word in name.split("_"))
        function = type(torch.autograd.Function)(f"Onsoftmax{title}", (Steps, torch.autograd.Function), {})

        self.name, self.operator, self.run, self.scale = name, operator, run, arrays_of(name) + 2
        self.widens = name in _WIDENED
        self.transformed = function.apply
        # what it comes to outside of transforms, without inspecting forward's parameters: that takes longer
        # than all else
        base: Any = super(torch.autograd.Function, function)
        self.apply = base.apply

    def __call__(self, *given: Any, **keywords: Any) -> Any:
        """Of tensors, by the operator under torch.compile and of subclasses."""
        if torch.compiler.is_compiling() or not _is_plain(given[0]):
            return self.operator(*given, **keywords)
        if self.widens and torch.is_autocast_enabled("cuda"):
            x, keywords = _widened(self.name, given[0], keywords)
            given = (x, *given[1:])
        return self.with_gradient(given, keywords)

    def with_gradient(self, given: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if (
            len(given) > self.scale
            and isinstance(given[self.scale], Tensor)
            and given[self.scale].requires_grad
        ):
            raise RuntimeError(
                "scale requires grad, and no gradient flows to it: multiply the array by it first, without "
                "scale="
            )
        if _transforms_active():
            return self.transformed(keywords, *given)
        return self.apply(keywords, *given)

    def kernel(self) -> Callable[..., Any]:
        """What autograd does with the operator. Names are bound here, as each costs some of its time."""
        run, operator, with_gradient = self.run, self.operator, self.with_gradient
        enabled, any_requires_grad = torch.is_grad_enabled, torch._C._any_requires_grad

        def kernel(*given: Any, **keywords: Any) -> Any:
            if enabled() and any_requires_grad(*given):
                return with_gradient(given, keywords)
            if _is_memory(given[0]):
                return run(*given, **keywords)
            with torch._C._AutoDispatchBelowAutograd():
                return operator(*given, **keywords)

        return kernel


CALLS = {name: _Differentiable(name) for name in NAMES}
again |= CALLS
for _name, _call in CALLS.items():
    LIBRARY.impl(_name, _call.kernel(), "Autograd")
    register_vmap(f"onsoftmax::{_name}", _vmap(_name, _call.operator), lib=LIBRARY)


def _under_autocast(name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
    without = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)

    def run(x: Tensor, *given: Any, **keywords: Any) -> Any:
        x, keywords = _widened(name, x, keywords)
        with torch._C._ExcludeDispatchKeyGuard(without):
            return operator(x, *given, **keywords)

    return run


for _name in _WIDENED:
    LIBRARY.impl(_name, _under_autocast(_name, CALLS[_name].operator), "AutocastCUDA")
