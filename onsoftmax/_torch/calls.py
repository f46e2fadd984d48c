"""How autograd, vmap, the transforms of torch.func and torch.autocast call the operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.library import register_vmap

from .._libraries.torch import refuse_nested
from .fakes import axes_from_end, axis_of_rows
from .gradients import DIFFERENTIABLE, GRADIENTS, Call, again
from .losses import IMPLEMENTATIONS, weights_of_rows
from .operators import LIBRARY, NAMES, arrays_of, implementation, takes_scale

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
        for place in range(first + 1, len(values)):
            if isinstance(values[place], Tensor):
                values[place] = _with_axes(values[place], values[0].ndim)
        results = call(*values, **keywords)
        if ndim == 0:
            several = isinstance(results, tuple)
            flat = [each.reshape(info.batch_size) for each in (results if several else (results,))]
            results = tuple(flat) if several else flat[0]
        return results, (0, 0) if name == "softmax_topk" else 0

    return run


def _one_by_one(call: Callable[..., Any], info: Any, in_dims: Any, *given: Any, **keywords: Any) -> Any:
    results = []
    for i in range(info.batch_size):
        pairs = zip(given, in_dims, strict=True)
        mine = (value if dim is None else value.select(dim, i) for value, dim in pairs)
        results.append(call(*mine, **keywords))
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    stacked = tuple(map(torch.stack, zip(*results, strict=True)))
    return stacked, (0,) * len(stacked)


def _vmap_of_loss(name: str) -> Callable[..., Any]:
    """The rule for vmap. One call computes the losses of all rows. Each mapped element then reduces its own
    losses."""
    first, call = arrays_of(name), getattr(torch.ops.onsoftmax, name).default

    def run(info: Any, in_dims: Any, *given: Any, **keywords: Any) -> Any:
        weight = given[first + 1] if len(given) > first + 1 else None
        if weight is not None and in_dims[first + 1] is not None:  # one call has one weight for each class
            return _one_by_one(call, info, in_dims, *given, **keywords)
        if name == "cross_entropy_with_grad":
            (loss, lse), _ = _RULES["cross_entropy"](info, in_dims, *given, **keywords)
            of_loss = torch.ones_like(loss), *given
            gradient, _ = _RULES["cross_entropy_backward"](info, (0, *in_dims), *of_loss, **keywords)
            return (loss, gradient, lse), (0, 0, 0)
        size, reduction = info.batch_size, keywords.get("reduction", "mean")
        arrays = [_mapped_first(x, dim, size) for x, dim in zip(given[:first], in_dims, strict=False)]
        logits, target = arrays[-2:]
        axis, divisor = axis_of_rows(given[first], logits.ndim - 1), None
        if reduction == "mean":
            every = logits.new_ones(logits.shape[axis], dtype=torch.float32) if weight is None else weight
            _, own = weights_of_rows(target, every, keywords.get("ignore_index", -100))
            divisor = _total(own, size)
        if name == "cross_entropy_backward" and reduction != "none":
            grad = arrays[0] if divisor is None else arrays[0] / divisor
            arrays[0] = grad[(..., *(None,) * (target.ndim - 1))].expand(target.shape)
        result = call(*arrays, axis, weight, **keywords | {"reduction": "none"})
        if name == "cross_entropy_backward":
            return result, 0
        loss, lse = result
        if reduction != "none":
            total = _total(loss, size)
            loss = (total if divisor is None else total / divisor).to(loss.dtype)
        return (loss, lse), (0, 0)

    return run


def _vmap_of_logprob(info: Any, in_dims: Any, *given: Any, **keywords: Any) -> Any:
    """The call for vmap. The moments have the pairs of all rows, then the means of all rows."""
    size = info.batch_size
    logits, index = (_mapped_first(x, dim, size) for x, dim in zip(given[:2], in_dims, strict=False))
    axis = axis_of_rows(given[2], logits.ndim - 1)
    *results, moments = torch.ops.onsoftmax.logprob(logits, index, axis, **keywords)
    count = prod(results[2].shape[1:])
    pairs, means = moments.split([2 * size * count, size * count])
    apart = torch.cat([pairs.reshape(size, 2 * count), means.reshape(size, count)], 1)
    wanted = True, *(keywords.get(name, name == "lse") for name in ("entropy", "lse", "argmax", "rank"))
    return (*results, apart), (*(0 if each else None for each in wanted), 0)


def _vmap_of_logprob_backward(info: Any, in_dims: Any, *given: Any, **keywords: Any) -> Any:
    *arrays, axis = given
    mapped: list[Any] = [
        None if x is None else _mapped_first(x, dim, info.batch_size)
        for x, dim in zip(arrays, in_dims, strict=False)
    ]
    logits, index, moments, *grads = mapped
    count = moments.shape[1] // 3
    together = torch.cat([moments[:, : 2 * count].reshape(-1), moments[:, 2 * count :].reshape(-1)])
    axis = axis_of_rows(axis, logits.ndim - 1)
    return torch.ops.onsoftmax.logprob_backward(logits, index, together, *grads, axis, **keywords), 0


def _vmap_of_divergence(name: str) -> Callable[..., Any]:
    """The rule for vmap. One call computes the values of all rows. Each mapped element then reduces its own
    values."""
    kind = name[:2]
    first, call = arrays_of(name), getattr(torch.ops.onsoftmax, name).default

    def run(info: Any, in_dims: Any, *given: Any, **keywords: Any) -> Any:
        size, reduction = info.batch_size, keywords.get("reduction", "none")
        if name == f"{kind}_divergence_with_grad":
            terms = {key: value for key, value in keywords.items() if key != "wrt"}
            value, _ = _RULES[f"{kind}_divergence"](info, in_dims, *given, **terms)
            of_value = torch.ones_like(value), *given
            gradient, _ = _RULES[f"{kind}_divergence_backward"](info, (0, *in_dims), *of_value, **keywords)
            return (value, gradient), (0, 0)
        mapped = [
            _mapped_first(x, dim, size) if isinstance(x, Tensor) else x
            for x, dim in zip(given, in_dims, strict=True)
        ]
        arrays, others, logits = mapped[:first], mapped[first + 1 :], mapped[first - 1]
        axis = axis_of_rows(given[first], logits.ndim - 1)
        others = [None if x is None else _with_axes(x, logits.ndim) for x in others]
        rows = [n for i, n in enumerate(logits.shape, -logits.ndim) if i != axis]
        divisor = prod(rows[1:]) if reduction == "mean" else 1
        if first == 3 and reduction != "none":
            grad = arrays[0] / divisor if divisor > 1 else arrays[0]
            arrays[0] = grad[(..., *(None,) * (len(rows) - 1))].expand(rows)
        result = call(*arrays, axis, *others, **keywords | {"reduction": "none"})
        if first == 2 and reduction != "none":
            result = (_total(result, size) / divisor).to(result.dtype)
        return result, 0

    return run


def _vmap_of_route(info: Any, in_dims: Any, *given: Any, **keywords: Any) -> Any:
    call = torch.ops.onsoftmax.route.default
    logits, k, axis, bias, where = (*given, None, None)[:5]
    if bias is not None and in_dims[3] is not None:  # one call has one bias for each expert
        return _one_by_one(call, info, in_dims, *given, **keywords)
    if where is not None:
        where = _mapped_first(where, in_dims[4], info.batch_size)
    logits = _mapped_first(logits, in_dims[0], info.batch_size)
    axis = axis_of_rows(axis, logits.ndim - 1)
    where = None if where is None else _with_axes(where, logits.ndim)
    return call(logits, k, axis, bias, where, **keywords), (0, 0)


_RULES = {name: _vmap_of_loss(name) for name in IMPLEMENTATIONS if name.startswith("cross_entropy")}
_RULES |= {
    "logprob": _vmap_of_logprob,
    "logprob_backward": _vmap_of_logprob_backward,
    "route": _vmap_of_route,
    "sample": partial(_one_by_one, torch.ops.onsoftmax.sample.default),  # each call counts its own rows
    "filtered_softmax": partial(_one_by_one, torch.ops.onsoftmax.filtered_softmax.default),
}
_RULES |= {name: _vmap_of_divergence(name) for name in IMPLEMENTATIONS if takes_scale(name)}


def _total(rows: Tensor, size: int) -> Tensor:
    return rows.reshape(size, prod(rows.shape[1:])).sum(1, dtype=torch.float64)


def _mapped_first(array: Tensor, dim: int | None, size: int) -> Tensor:
    return array.expand(size, *array.shape) if dim is None else array.movedim(dim, 0)


def _with_axes(mapped: Tensor, ndim: int) -> Tensor:
    """A mask or a scale with `ndim` axes. Its missing axes follow the mapped axis."""
    return mapped[(slice(None), *(None,) * (ndim - mapped.ndim))]


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


_tangents = vars(torch.autograd.forward_ad)
_grad_is_enabled, _any_requires_grad = torch.is_grad_enabled, torch._C._any_requires_grad


def _is_recorded(given: tuple[Any, ...]) -> bool:
    """Whether autograd records a call, or a forward-mode derivative sees it."""
    recorded = _grad_is_enabled() and _any_requires_grad(*given)
    return bool(recorded or _tangents["_current_level"] >= 0)


_NO_GRADIENT = {
    "scale": "multiply the array by it first, without scale=",
    "weight": "pass weight.detach()",
    "bias": "pass bias.detach()",
    "temperature": "pass temperature.detach()",
}
_FACTORS = {"route": "bias", "sample": "temperature", "filtered_softmax": "temperature"}


class _Differentiable:
    """An operator as a torch.autograd.Function."""

    def __init__(self, name: str) -> None:
        self.name, self.operator = name, getattr(torch.ops.onsoftmax, name).default
        self.factor = "scale" if takes_scale(name) else _FACTORS.get(name, "weight")
        self.place = arrays_of(name) + (2 if self.factor == "scale" else 1)
        self.widens = name in _WIDENED
        self.run, on_memory, below = self._runner(), implementation(name), self.below
        needs, backward = GRADIENTS[name]
        arrays = arrays_of(name)  # the axes' place, behind the arrays
        differentiable = DIFFERENTIABLE.get(name, 1)

        class Steps:
            @staticmethod
            def forward(ctx: Any, keywords: dict[str, Any], *given: Any) -> Any:
                """Saves tensors so that autograd sees if they are written to before the backward step."""
                output = on_memory(*given, **keywords)
                if output is NotImplemented:
                    with torch.enable_grad():  # as before the call: this may record the call for itself
                        output = below(given, keywords)
                needed = needs(given[:arrays], output)
                ctx.call = keywords, given[arrays], given[0].dtype, len(needed)
                ctx.save_for_backward(*needed, *given[arrays + 1 :])
                if isinstance(output, tuple):
                    ctx.mark_non_differentiable(*output[differentiable:])
                    ctx.set_materialize_grads(differentiable == 1)
                return output

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
        return self.with_gradient(given, keywords) if _is_recorded(given) else self.run(*given, **keywords)

    def again(self, *given: Any, **keywords: Any) -> Any:
        """A call in a backward step. It is recorded if there will be another derivative."""
        seen = torch.is_grad_enabled() or _watched()
        return (self.operator if seen else self.run)(*given, **keywords)

    def with_gradient(self, given: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if len(given) > self.place:
            factor = given[self.place]
            if isinstance(factor, Tensor) and factor.requires_grad:
                instead = _NO_GRADIENT[self.factor]
                raise RuntimeError(f"{self.factor} requires grad, and no gradient flows to it: {instead}")
        return self.apply(keywords, *given)

    def kernel(self) -> Callable[..., Any]:
        """The operator's kernel for autograd."""
        run, with_gradient = self.run, self.with_gradient

        def kernel(*given: Any, **keywords: Any) -> Any:
            if _is_recorded(given):
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
    _rule = _RULES.get(_name) or _vmap(_name, _call.operator)
    register_vmap(f"onsoftmax::{_name}", _rule, lib=LIBRARY)


def _under_autocast(name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
    without = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)

    def run(x: Tensor, *given: Any, **keywords: Any) -> Any:
        x, keywords = _widened(name, x, keywords)
        with torch._C._ExcludeDispatchKeyGuard(without):
            return operator(x, *given, **keywords)

    return run


for _name in _WIDENED:
    LIBRARY.impl(_name, _under_autocast(_name, CALLS[_name].operator), "AutocastCUDA")
