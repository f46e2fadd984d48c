"""softmax and its relatives inside autograd, torch.func, torch.compile and torch.autocast.

You need not call anything here. onsoftmax.softmax and the other functions come here by themselves if a tensor
requires grad, is inside a transform, or is of a subclass. They also come here under torch.compile and a
TorchDispatchMode. The operators are torch.ops.onsoftmax.*, for torch.export and for other front ends. Softmax
and LogSoftmax are modules, as in torch.nn.

>>> import torch, onsoftmax as ons
>>> x = torch.zeros(3, requires_grad=True)
>>> ons.softmax(x)[0].backward()
>>> x.grad
tensor([ 0.2222, -0.1111, -0.1111])
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError("onsoftmax.torch needs torch 2.5 or later: pip install torch") from error

from . import _core
from ._libraries.kinds import dtype_name
from ._libraries.torch import refuse_nested
from ._libraries.values import plain_axes
from ._topk import TopK

try:
    from ._torch.calls import CALLS
except (ImportError, AttributeError) as error:
    raise ImportError(f"onsoftmax.torch needs torch 2.5 or later: this is {torch.__version__}") from error

__all__ = ["LogSoftmax", "Softmax", "log_softmax", "log_softmax_backward", "logsumexp", "softmax"]
__all__ += ["softmax_backward", "softmax_topk"]

_Axes = int | tuple[int, ...] | None
# The scale if the caller gives none. It is known by identity, since torch.compile may not have its value.
_ONE = 1.0
# More threads than the core starts. Callers may give an int of any size, and an operator's int has 64 bits.
_MANY = 2**31


def _symbolic_int(value: Any) -> int:
    """An int. In torch.compile a symbolic int stays symbolic: operator.index would fix its value."""
    return value if isinstance(value, (int, torch.SymInt)) else operator.index(value)


def _axes(axis: _Axes, array: torch.Tensor) -> list[int]:
    if isinstance(axis, int) and not isinstance(axis, bool):
        return [axis]
    if axis is None:
        return list(range(array.ndim))
    return list(plain_axes(axis if isinstance(axis, tuple) else (axis,)))


_EXPECTED = {"where": "a mask of bool", "scale": "a real number, or an array of them"}


def _tensor(name: str, value: Any, array: torch.Tensor) -> torch.Tensor:
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


def _check_tensor(array: Any) -> None:
    if not isinstance(array, torch.Tensor):
        raise TypeError(
            f"got an array of type {type(array).__name__} beside a tensor that requires grad or is inside a "
            "transform: expected tensors alone"
        )


def _call(
    name: str,
    arrays: tuple[Any, ...],
    axis: _Axes,
    where: Any,
    scale: Any,
    stream: Any,
    method: str,
    num_threads: int | None,
    **keywords: Any,
) -> Any:
    """Calls the operator. Arguments that differ from their defaults are passed by name."""
    x: torch.Tensor = arrays[0]
    if stream is not None:
        raise ValueError(
            "stream is given, and torch's operators do the work here (gradients, transforms, torch.compile), "
            "on the current stream: expected the call inside `with torch.cuda.stream(...)`"
        )
    if method != "auto":
        keywords["method"] = method
    if num_threads is not None:
        threads = _symbolic_int(num_threads)
        keywords["num_threads"] = threads if threads < _MANY else _MANY
    axes = _axes(axis, x)
    tensors = [] if where is None else [_tensor("where", where, x)]
    if not isinstance(scale, (int, float)):
        tensors = [tensors[0] if tensors else None, _tensor("scale", scale, x)]
    elif scale is not _ONE:
        keywords["scale_by"] = _number(scale)
    return CALLS[name](*arrays, axes, *tensors, **keywords)


def _typed(dtype: Any) -> dict[str, torch.dtype]:
    """The type of the result as a torch.dtype, if the caller gives one."""
    if dtype is None:
        return {}
    if isinstance(dtype, torch.dtype):
        return {"dtype": dtype}
    named = getattr(torch, dtype_name(dtype), None)
    if not isinstance(named, torch.dtype):
        raise TypeError(f"dtype is {dtype!r}: expected float16, bfloat16, float32 or float64")
    return {"dtype": named}


def _typed_as(out: Any, dtype: Any, array: torch.Tensor) -> dict[str, torch.dtype]:
    """The type of the result, and a check that out fits this type and the array."""
    typed = _typed(dtype)
    if out is None:
        return typed
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
    if typed.get("dtype", out.dtype) != out.dtype:
        theirs, wanted = dtype_name(out.dtype), dtype_name(dtype)
        raise ValueError(f"out has dtype {theirs}, and dtype is {wanted}: expected the same, or one of them")
    return {"dtype": out.dtype}


def _into(out: torch.Tensor | None, result: torch.Tensor) -> torch.Tensor:
    return result if out is None else out.copy_(result)


def _of_rows(name: str) -> Any:
    def function(
        array: torch.Tensor,
        /,
        axis: _Axes = -1,
        *,
        method: str = "auto",
        dtype: Any = None,
        out: torch.Tensor | None = None,
        where: Any = None,
        scale: Any = _ONE,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> torch.Tensor:
        _check_tensor(array)
        typed = _typed_as(out, dtype, array)
        return _into(out, _call(name, (array,), axis, where, scale, stream, method, num_threads, **typed))

    return _named(function, name)


def _of_gradient(name: str) -> Any:
    def function(
        grad: torch.Tensor,
        output: torch.Tensor,
        /,
        axis: _Axes = -1,
        *,
        method: str = "auto",
        dtype: Any = None,
        out: torch.Tensor | None = None,
        where: Any = None,
        scale: Any = _ONE,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> torch.Tensor:
        given = output if isinstance(output, torch.Tensor) else grad
        _check_tensor(given)
        arrays = _tensor("grad", grad, given), _tensor("output", output, given)
        typed = _typed_as(out, dtype, arrays[1])
        return _into(out, _call(name, arrays, axis, where, scale, stream, method, num_threads, **typed))

    return _named(function, name)


def _named(function: Any, name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"onsoftmax.{name} by the operator torch.ops.onsoftmax.{name}."
    return function


softmax = _of_rows("softmax")
log_softmax = _of_rows("log_softmax")
softmax_backward = _of_gradient("softmax_backward")
log_softmax_backward = _of_gradient("log_softmax_backward")


def logsumexp(
    array: torch.Tensor,
    /,
    axis: _Axes = -1,
    *,
    keepdims: bool = False,
    method: str = "auto",
    where: Any = None,
    scale: Any = _ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.logsumexp by the operator torch.ops.onsoftmax.logsumexp."""
    _check_tensor(array)
    result: torch.Tensor = _call(
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
    method: str = "auto",
    dtype: Any = None,
    where: Any = None,
    scale: Any = _ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopK:
    """onsoftmax.softmax_topk by the operator torch.ops.onsoftmax.softmax_topk: values, indices."""
    if return_normalizer:
        raise ValueError(
            "return_normalizer is given, and torch's operators do the work here (gradients, transforms, "
            "torch.compile): expected softmax_topk without it, and logsumexp beside it"
        )
    _check_tensor(array)
    if axis is None:
        raise TypeError("axis is None: expected one axis")
    if isinstance(k, bool):
        raise TypeError(f"k is {k}: expected an int of at least 1")
    arrays, typed = (array, _symbolic_int(k)), _typed(dtype)
    values, indices = _call(
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
        **typed,
    )
    return TopK(values, indices)


class Softmax(torch.nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """torch.nn.Softmax by onsoftmax.softmax, for any shape. dim is an int, a tuple of ints, or None (all)."""

    function: Callable[..., torch.Tensor] = staticmethod(_core.softmax)

    def __init__(self, dim: _Axes = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return type(self).function(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """torch.nn.LogSoftmax by onsoftmax.log_softmax."""

    function = staticmethod(_core.log_softmax)


OPERATORS = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "softmax_topk": softmax_topk,
    "softmax_backward": softmax_backward,
    "log_softmax_backward": log_softmax_backward,
}
