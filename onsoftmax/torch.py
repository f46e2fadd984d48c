"""softmax and its relatives inside autograd, torch.func, torch.compile and torch.autocast.

You need not call anything here. onsoftmax.softmax and the other functions call this module if a tensor
requires grad, is inside a transform, or is of a subclass. They also call it under torch.compile and a
TorchDispatchMode. The operators are torch.ops.onsoftmax.*, for torch.export and for other front ends. Softmax
and LogSoftmax are modules, as in torch.nn.

>>> import torch, onsoftmax as ons
>>> x = torch.zeros(3, requires_grad=True)
>>> ons.softmax(x)[0].backward()
>>> x.grad
tensor([ 0.2222, -0.1111, -0.1111])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

try:
    import torch
except ImportError as error:
    raise ImportError("onsoftmax.torch needs torch 2.5 or later: pip install torch") from error

from . import _core
from ._topk import TopK

try:
    from ._torch.arguments import (
        ONE,
        as_tensor,
        call,
        check_tensor,
        into,
        symbolic_int,
        typed,
        typed_as,
    )
except (ImportError, AttributeError) as error:
    raise ImportError(f"onsoftmax.torch needs torch 2.5 or later: this is {torch.__version__}") from error

if TYPE_CHECKING:
    from ._types import ArrayLike, Axis, DType, MethodName

__all__ = ["LogSoftmax", "Softmax", "log_softmax", "log_softmax_backward", "logsumexp", "softmax"]
__all__ += ["softmax_backward", "softmax_topk"]


def _of_rows(
    name: str, array: torch.Tensor, axis: Axis, method: str, dtype: Any, out: Any, where: Any, scale: Any,
    stream: Any, num_threads: int | None,
) -> torch.Tensor:  # fmt: skip
    check_tensor(array)
    keywords = typed_as(out, dtype, array)
    return into(out, call(name, (array,), axis, where, scale, stream, method, num_threads, **keywords))


def _of_gradient(
    name: str, grad: Any, output: Any, axis: Axis, method: str, dtype: Any, out: Any, where: Any, scale: Any,
    stream: Any, num_threads: int | None,
) -> torch.Tensor:  # fmt: skip
    given = output if isinstance(output, torch.Tensor) else grad
    check_tensor(given)
    arrays = as_tensor("grad", grad, given), as_tensor("output", output, given)
    keywords = typed_as(out, dtype, arrays[1])
    return into(out, call(name, arrays, axis, where, scale, stream, method, num_threads, **keywords))


def softmax(
    array: torch.Tensor,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: torch.Tensor | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.softmax by the operator torch.ops.onsoftmax.softmax."""
    return _of_rows("softmax", array, axis, method, dtype, out, where, scale, stream, num_threads)


def log_softmax(
    array: torch.Tensor,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: torch.Tensor | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.log_softmax by the operator torch.ops.onsoftmax.log_softmax."""
    return _of_rows("log_softmax", array, axis, method, dtype, out, where, scale, stream, num_threads)


def logsumexp(
    array: torch.Tensor,
    /,
    axis: Axis = -1,
    *,
    keepdims: bool = False,
    method: MethodName = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.logsumexp by the operator torch.ops.onsoftmax.logsumexp."""
    check_tensor(array)
    result: torch.Tensor = call(
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
    method: MethodName = "auto",
    dtype: DType = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopK[torch.Tensor, torch.Tensor]:
    """onsoftmax.softmax_topk by the operator torch.ops.onsoftmax.softmax_topk: values, indices."""
    if return_normalizer:
        raise ValueError(
            "return_normalizer is given, and torch's operators do the work here (gradients, transforms, "
            "torch.compile): call softmax_topk without it, and logsumexp for the normalizer's logarithm"
        )
    check_tensor(array)
    if axis is None:
        raise TypeError("axis is None: expected one axis")
    if isinstance(k, bool):
        raise TypeError(f"k is {k}: expected an int of at least 1")
    arrays = array, symbolic_int(k)
    values, indices = call(
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
        **typed(dtype),
    )
    return TopK(values, indices)


def softmax_backward(
    grad: torch.Tensor,
    output: torch.Tensor,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: torch.Tensor | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.softmax_backward by the operator torch.ops.onsoftmax.softmax_backward."""
    return _of_gradient(
        "softmax_backward", grad, output, axis, method, dtype, out, where, scale, stream, num_threads
    )


def log_softmax_backward(
    grad: torch.Tensor,
    output: torch.Tensor,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: torch.Tensor | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = ONE,
    stream: Any = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """onsoftmax.log_softmax_backward by the operator torch.ops.onsoftmax.log_softmax_backward."""
    return _of_gradient(
        "log_softmax_backward", grad, output, axis, method, dtype, out, where, scale, stream, num_threads
    )


class Softmax(torch.nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A module like torch.nn.Softmax that calls onsoftmax.softmax. It takes any shape. dim is an int, a tuple
    of ints, or None (all)."""

    _function: Callable[..., torch.Tensor] = staticmethod(_core.softmax)

    def __init__(self, dim: Axis = -1) -> None:
        """A module along dim: an int, a tuple of ints, or None for all dimensions."""
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return type(self)._function(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """A module like torch.nn.LogSoftmax that calls onsoftmax.log_softmax."""

    _function = staticmethod(_core.log_softmax)


OPERATORS = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "softmax_topk": softmax_topk,
    "softmax_backward": softmax_backward,
    "log_softmax_backward": log_softmax_backward,
}
