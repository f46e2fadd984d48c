"""How autograd, vmap, the transforms of torch.func and torch.autocast call the operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.library import register_vmap

from .._libraries.torch import refuse_nested
from .gradients import GRADIENTS, Call, again
from .operators import LIBRARY, NAMES, arrays_of, axes_from_end, implementation

# ---------------------------------------------------------------- vmap


def _vmap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call for vmap: the mapped dimension comes first, and axes count from the end."""
    first = arrays_of(name)

    def run(info: Any, in_dims: Any, *given: Any, **keywords: Any) -> Any:
        values = list(given)
        for place, dim in enumerate(in_dims):
            if isinstance(values[place], Tensor):
                values[place] = _mapped_first(values[place], dim, info.batch_size)
        ndim = values[0].ndim - 1
        values[first] = axes_from_end(values[first], ndim)
        if ndim == 0:  # each row is one element
            values[first] = [-1]
            values[:first] = [x.unsqueeze(-1) if isinstance(x, Tensor) else x for x in values[:first]]
        # to match the first array, a mapped value gets its missing axes after the mapped axis
        for place in range(first + 1, len(values)):
            if isinstance(values[place], Tensor):
                lacking = values[0].ndim - values[place].ndim
                values[place] = values[place][(slice(None), *(None,) * lacking)]
        results = call(*values, **keywords)
        if ndim == 0:
            several = isinstance(results, tuple)
            flat = [each.reshape(info.batch_size) for each in (results if several else (results,))]
            results = tuple(flat) if several else flat[0]
        return results, (0, 0) if name == "softmax_topk" else 0

    return run


def _mapped_first(array: Tensor, dim: int | None, size: int) -> Tensor:
    return array.expand(size, *array.shape) if dim is None else array.movedim(dim, 0)


# ---------------------------------------------------------------- autocast


_WIDENED = ("softmax", "log_softmax", "logsumexp")


def _widened(name: str, x: Tensor, keywords: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """The arguments that torch.autocast makes of a call on a GPU: 16-bit rows give a float32 result, as with
    torch's own functions."""
    if not (x.is_cuda and x.dtype in (torch.float16, torch.bfloat16)) or keywords.get("dtype") is not None:
        return x, keywords
    return (x.float(), keywords) if name == "logsumexp" else (x, keywords | {"dtype": torch.float32})


# ---------------------------------------------------------------- autograd


_transforms_active = torch._C._are_functorch_transforms_active
_modes = vars(torch.utils._python_dispatch)
_ANY_MODE = "_is_in_torch_dispatch_mode"  # whether any thread is in a mode; an older torch lacks it


def _watched() -> bool:
    """Whether something besides autograd must see the calls of operators."""
    return bool(torch.compiler.is_compiling() or _transforms_active() or torch._C._is_tracing())


class _Differentiable:
    """An operator as a torch.autograd.Function."""

    def __init__(self, name: str) -> None:
        self.name, self.operator = name, getattr(torch.ops.onsoftmax, name).default
        self.scale, self.widens = arrays_of(name) + 2, name in _WIDENED
        self.run, on_memory, below = self._runner(), implementation(name), self.below
        needs, backward = GRADIENTS[name]
        behind = 1 + arrays_of(name)  # the axes' place, behind the keywords and the arrays

        class Steps:
            @staticmethod
            def forward(keywords: dict[str, Any], *given: Any) -> Any:
                result = on_memory(*given, **keywords)
                if result is not NotImplemented:
                    return result
                with torch.enable_grad():  # as before the call: the code below may record the call for itself
                    return below(given, keywords)

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                """Saves tensors so that autograd sees if they are written to before the backward step."""
                needed = needs(inputs[1:behind], output)
                ctx.call = inputs[0], inputs[behind], inputs[1].dtype, len(needed)
                ctx.save_for_backward(*needed, *inputs[behind + 1 :])
                if isinstance(output, tuple):
                    ctx.mark_non_differentiable(output[1])

            @staticmethod
            def jvp(ctx: Any, *tangents: Any) -> Any:
                raise RuntimeError(
                    f"{name}() has no forward-mode derivative (jvp, jacfwd): expected reverse mode "
                    "(torch.func.vjp, grad or jacrev), or torch.softmax and its relatives"
                )

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                return None, *backward(Call(ctx), *grads)

        # grad_fn shows this name.
        title = "".join(word.capitalize() for word in name.split("_"))
        function = type(torch.autograd.Function)(f"Onsoftmax{title}", (Steps, torch.autograd.Function), {})
        # Function.apply would inspect forward's parameters, which takes longer than all else. It would also
        # start the transforms of torch.func, which are done by now.
        base: Any = super(torch.autograd.Function, function)
        self.apply = base.apply

    def _runner(self) -> Callable[..., Any]:
        """The operator without its gradient. Plain tensors go straight to the core."""
        on_memory, below = implementation(self.name), self.below

        def run(*given: Any, **keywords: Any) -> Any:
            result = on_memory(*given, **keywords)
            return below(given, keywords) if result is NotImplemented else result

        return run

    def below(self, given: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Calls the implementation that torch's dispatcher finds below autograd."""
        with torch._C._AutoDispatchBelowAutograd():
            return self.operator(*given, **keywords)

    def __call__(self, *given: Any, **keywords: Any) -> Any:
        """A call on tensors. It goes through the operator if more than autograd must see it."""
        if _watched() or _modes.get(_ANY_MODE, True):
            for tensor in given:
                if isinstance(tensor, Tensor):
                    refuse_nested(tensor)
            return self.operator(*given, **keywords)
        if self.widens and torch.is_autocast_enabled("cuda"):
            x, keywords = _widened(self.name, given[0], keywords)
            given = (x, *given[1:])
        return self.with_gradient(given, keywords)

    def again(self, *given: Any, **keywords: Any) -> Any:
        """A call in a backward step. It is recorded if there will be another derivative."""
        seen = torch.is_grad_enabled() or _watched()
        return (self.operator if seen else self.run)(*given, **keywords)

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
        return self.apply(keywords, *given)

    def kernel(self) -> Callable[..., Any]:
        """The operator's kernel for autograd. Names are bound here, since each lookup takes time."""
        run, with_gradient, tangents = self.run, self.with_gradient, vars(torch.autograd.forward_ad)
        enabled, any_requires_grad = torch.is_grad_enabled, torch._C._any_requires_grad

        def kernel(*given: Any, **keywords: Any) -> Any:
            if (enabled() and any_requires_grad(*given)) or tangents["_current_level"] >= 0:
                if not _transforms_active():
                    return with_gradient(given, keywords)
                with enable_single_level_autograd_function():  # other levels come here by themselves
                    return with_gradient(given, keywords)
            return run(*given, **keywords)

        return kernel


CALLS = {name: _Differentiable(name) for name in NAMES}
again |= {name: call.again for name, call in CALLS.items()}
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
