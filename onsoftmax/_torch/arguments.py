"""The arguments of onsoftmax.torch's functions, and the call of an operator with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .._libraries.kinds import dtype_name, index_dtype_name
from .._libraries.torch import refuse_nested
from .._libraries.values import int_of, plain_axes
from .._sample_arguments import number_of
from .calls import CALLS

if TYPE_CHECKING:
    from .._types import Axis

# The scale if the caller gives none. It is known by identity, since torch.compile may not have its value.
ONE = 1.0
# More threads than the core starts. Callers may give an int of any size, and an operator's int has 64 bits.
_MANY = 2**31


def symbolic_int(name: str, value: Any) -> int:
    """The value of the argument `name` as an int. In torch.compile a symbolic int stays symbolic."""
    return value if isinstance(value, (int, torch.SymInt)) else int_of(name, value)


def axes_of(axis: Axis, array: torch.Tensor) -> list[int]:
    if isinstance(axis, int) and not isinstance(axis, bool):
        return [axis]
    if axis is None:
        return list(range(array.ndim))
    return list(plain_axes(axis if isinstance(axis, tuple) else (axis,)))


_EXPECTED = {
    "bias": "a real number for each expert",
    "index": "the indices of elements",
    "target": "the indices of classes",
    "where": "a mask of bool",
    "scale": "a real number, or an array of them",
}


def as_tensor(name: str, value: Any, array: torch.Tensor) -> torch.Tensor:
    """An argument as a tensor. It has its own memory, since a backward step may need its present value."""
    if isinstance(value, torch.Tensor):
        return value
    try:
        return torch.as_tensor(value, device=array.device).clone()
    except (TypeError, ValueError, RuntimeError):
        expected = _EXPECTED.get(name, "a tensor")
        raise TypeError(f"{name} is of type {type(value).__name__}: expected {expected}") from None


def _number(scale: float) -> float:
    try:
        return float(scale)
    except OverflowError:
        raise ValueError(
            "scale is an int that is too large for a float64: expected at most 1.8e308 in size"
        ) from None


def check_tensor(array: Any) -> None:
    if not isinstance(array, torch.Tensor):
        raise TypeError(
            f"the array is of type {type(array).__name__}, and torch's operators do the work here "
            "(gradients, transforms, torch.compile, onsoftmax.torch): expected a tensor"
        )


def _shared(stream: Any, num_threads: int | None) -> dict[str, Any]:
    """Checks the arguments that each function takes. Returns the keywords of the operator."""
    if stream is not None:
        raise ValueError(
            "stream is given, and torch's operators do the work here (gradients, transforms, torch.compile). "
            "They use the current stream: expected the call inside `with torch.cuda.stream(...)`"
        )
    if num_threads is None:
        return {}
    threads = symbolic_int("num_threads", num_threads)
    return {"num_threads": threads if threads < _MANY else _MANY}


def call_loss(
    name: str,
    logits: Any,
    target: Any,
    axis: int,
    weight: Any,
    stream: Any,
    num_threads: int | None,
    **terms: Any,
) -> Any:
    """Calls the operator of a loss."""
    check_tensor(logits)
    terms |= _shared(stream, num_threads)
    given = [logits, as_tensor("target", target, logits), int_of("axis", axis)]
    if weight is not None:
        given.append(as_tensor("weight", weight, logits))
    if name == "cross_entropy_with_grad":  # it has no gradient, and its operator finds out if one is wanted
        return CALLS[name].operator(*given, **terms)
    return CALLS[name](*given, **terms)


def call_logprob(
    logits: Any, index: Any, axis: int, stream: Any, num_threads: int | None, **wanted: bool
) -> Any:
    """Calls the operator logprob."""
    check_tensor(logits)
    given = logits, as_tensor("index", index, logits), int_of("axis", axis)
    return CALLS["logprob"](*given, **_shared(stream, num_threads), **wanted)


def call(
    name: str,
    arrays: tuple[Any, ...],
    axis: Axis,
    where: Any,
    scale: Any,
    stream: Any,
    method: str,
    num_threads: int | None,
    **keywords: Any,
) -> Any:
    """Calls the operator. Arguments that differ from their defaults are passed by name."""
    x: torch.Tensor = arrays[0]
    keywords |= _shared(stream, num_threads)
    if method != "auto":
        keywords["method"] = method
    axes = axes_of(axis, x)
    tensors, by = _where_and_scale(where, scale, x)
    return CALLS[name](*arrays, axes, *tensors, **keywords, **by)


def _where_and_scale(
    where: Any, scale: Any, x: torch.Tensor
) -> tuple[list[torch.Tensor | None], dict[str, float]]:
    """The tensors that follow the axes, and the keyword for a scale that is a number."""
    tensors = [] if where is None else [as_tensor("where", where, x)]
    if not isinstance(scale, (int, float)):
        return [tensors[0] if tensors else None, as_tensor("scale", scale, x)], {}
    return tensors, {} if scale is ONE else {"scale_by": _number(scale)}


def call_divergence(
    name: str,
    p_logits: Any,
    q_logits: Any,
    axis: int,
    where: Any,
    scale: Any,
    stream: Any,
    num_threads: int | None,
    **terms: Any,
) -> Any:
    """Calls the operator of a divergence. One of the logits is a tensor."""
    x = p_logits if isinstance(p_logits, torch.Tensor) else q_logits
    check_tensor(x)
    sides = as_tensor("p_logits", p_logits, x), as_tensor("q_logits", q_logits, x)
    tensors, by = _where_and_scale(where, scale, x)
    given = *sides, int_of("axis", axis), *tensors
    terms |= _shared(stream, num_threads) | by
    if name.endswith("_with_grad"):  # as in call_loss
        return CALLS[name].operator(*given, **terms)
    return CALLS[name](*given, **terms)


def call_route(
    logits: Any, k: int, axis: int, bias: Any, where: Any, stream: Any, num_threads: int | None, **terms: Any
) -> Any:
    """Calls the operator route."""
    check_tensor(logits)
    given = [
        None if each is None else as_tensor(name, each, logits)
        for name, each in (("bias", bias), ("where", where))
    ]
    terms |= _shared(stream, num_threads)
    return CALLS["route"](logits, symbolic_int("k", k), int_of("axis", axis), *given, **terms)


def call_on_tokens(
    name: str,
    logits: Any,
    parameters: dict[str, Any],
    axis: int,
    where: Any,
    stream: Any,
    num_threads: int | None,
    **terms: Any,
) -> Any:
    """Calls the operator sample or filtered_softmax."""
    check_tensor(logits)
    given: list[torch.Tensor | None] = []
    for parameter, value in parameters.items():
        number = number_of(parameter, value)
        if number is None:
            given.append(as_tensor(parameter, value, logits))
        else:
            given.append(None)
            terms[f"{parameter}_of_all"] = number
    given.append(None if where is None else as_tensor("where", where, logits))
    terms |= _shared(stream, num_threads)
    return CALLS[name](logits, int_of("axis", axis), *given, **terms)


def typed(dtype: Any) -> dict[str, torch.dtype]:
    """The type of the result as a torch.dtype, if the caller gives one."""
    if dtype is None:
        return {}
    if isinstance(dtype, torch.dtype):
        return {"dtype": dtype}
    named = getattr(torch, dtype_name(dtype), None)
    if not isinstance(named, torch.dtype):
        raise TypeError(f"dtype is {dtype!r}: expected float16, bfloat16, float32 or float64")
    return {"dtype": named}


def index_typed(index_dtype: Any) -> dict[str, torch.dtype]:
    """The type of indices as a torch.dtype, if the caller gives one."""
    return {} if index_dtype is None else {"index_dtype": getattr(torch, index_dtype_name(index_dtype))}


def typed_as(out: Any, dtype: Any, array: torch.Tensor) -> dict[str, torch.dtype]:
    """The type of the result, and a check that out fits this type and the array."""
    keywords = typed(dtype)
    if out is None:
        return keywords
    if not isinstance(out, torch.Tensor):
        raise TypeError(
            f"out is of type {type(out).__name__}, and torch's operators do the work here (gradients, "
            "transforms, torch.compile): expected a tensor"
        )
    refuse_nested(out)
    if out.shape != array.shape:
        raise ValueError(f"out has shape {tuple(out.shape)}: expected {tuple(array.shape)}")
    if out.device != array.device:
        raise ValueError(f"out is on {out.device}, but the array is on {array.device}: expected one device")
    if keywords.get("dtype", out.dtype) != out.dtype:
        theirs, wanted = dtype_name(out.dtype), dtype_name(dtype)
        raise ValueError(
            f"out has dtype {theirs}, and dtype is {wanted}: expected the same type, or only one of the two "
            "arguments"
        )
    return {"dtype": out.dtype}


def into(out: torch.Tensor | None, result: torch.Tensor) -> torch.Tensor:
    return result if out is None else out.copy_(result)
