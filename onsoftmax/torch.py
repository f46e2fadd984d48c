"""softmax and its relatives inside autograd, torch.func, torch.compile and torch.autocast.

Nothing here needs to be called: onsoftmax.softmax and the others come here by themselves with a tensor that requires
grad, one inside a transform, or one of a subclass, and under torch.compile. The operators are torch.ops.onsoftmax.*,
for export and for other front ends. Softmax and LogSoftmax are modules as torch.nn has them.

>>> import torch, onsoftmax as ons
>>> x = torch.zeros(3, requires_grad=True)
>>> ons.softmax(x)[0].backward()
>>> x.grad
tensor([ 0.2222, -0.1111, -0.1111])
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from . import _core
from ._libraries import dtype_name
from ._torch_operators import CALLS

__all__ = ["LogSoftmax", "Softmax", "log_softmax", "log_softmax_backward", "logsumexp", "softmax"]
__all__ += ["softmax_backward", "softmax_topk"]

_Axes = int | Sequence[int] | None


def _axes(axis: _Axes, array: torch.Tensor) -> list[int]:
    if axis is None:
        return list(range(array.ndim))
    return [operator.index(axis)] if not isinstance(axis, Sequence) else [operator.index(a) for a in axis]


def _given(where: Any, scale: Any, stream: Any, **others: Any) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """The mask and the scale where they are tensors, and what else an operator takes by name."""
    if stream is not None:
        raise ValueError(
            "stream= is not taken where the call goes by torch's operators (gradients, transforms, torch.compile): the "
            "work is on the current stream, which `with torch.cuda.stream(...)` sets"
        )
    by_name = {name: value for name, value in others.items() if value is not None}
    if isinstance(scale, (int, float)):
        if scale != 1:
            by_name["scale_by"] = float(scale)
        return (where, None), by_name
    return (where, torch.as_tensor(scale)), by_name


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
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> torch.Tensor:
        tensors, given = _given(where, scale, stream, method=method, dtype=_type(dtype, out), num_threads=num_threads)
        result: torch.Tensor = CALLS[name](array, _axes(axis, array), *tensors, **given)
        return result if out is None else out.copy_(result)

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
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> torch.Tensor:
        tensors, given = _given(where, scale, stream, method=method, dtype=_type(dtype, out), num_threads=num_threads)
        result: torch.Tensor = CALLS[name](grad, output, _axes(axis, output), *tensors, **given)
        return result if out is None else out.copy_(result)

    return _named(function, name)


def _type(dtype: Any, out: torch.Tensor | None) -> torch.dtype | None:
    """The result's type as torch has it."""
    if dtype is None:
        return None if out is None else out.dtype
    if isinstance(dtype, torch.dtype):
        return dtype
    named = getattr(torch, dtype_name(dtype), None)
    if not isinstance(named, torch.dtype):
        raise TypeError(f"dtype is {dtype!r}: expected float16, bfloat16, float32 or float64")
    return named


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
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.logsumexp by the operator torch.ops.onsoftmax.logsumexp."""
    tensors, given = _given(where, scale, stream, method=method, num_threads=num_threads)
    result: torch.Tensor = CALLS["logsumexp"](array, _axes(axis, array), *tensors, keepdims=keepdims, **given)
    return result


def softmax_topk(
    array: torch.Tensor,
    k: int,
    /,
    axis: int = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: bool = False,
    method: str = "auto",
    dtype: Any = None,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
    dtypes: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """onsoftmax.softmax_topk by the operator torch.ops.onsoftmax.softmax_topk, as a plain tuple."""
    if return_normalizer:
        raise ValueError("return_normalizer is not taken where gradients flow: use logsumexp for its logarithm")
    tensors, given = _given(where, scale, stream, method=method, dtype=_type(dtype, None), num_threads=num_threads)
    if log:
        given["log"] = True
    if not sorted:
        given["sorted"] = False
    values, indices = CALLS["softmax_topk"](array, k, _axes(axis, array), *tensors, **given)
    return values, indices


class Softmax(torch.nn.Module):
    """torch.nn.Softmax by onsoftmax.softmax: of any shape, along dim, an int, a tuple of ints, or None for all."""

    function = staticmethod(_core.softmax)

    def __init__(self, dim: _Axes = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = type(self).function(x, self.dim)
        return result

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """torch.nn.LogSoftmax by onsoftmax.log_softmax."""

    function = staticmethod(_core.log_softmax)


OPERATORS = {
    name: globals()[name]
    for name in ("softmax", "log_softmax", "logsumexp", "softmax_topk", "softmax_backward", "log_softmax_backward")
}
