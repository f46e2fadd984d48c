"""Tensors: what the C core knows of torch, and which tensors it refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .. import _core
from .._core import INDICES, SCALE, WHERE, X, Y
from .._types import DTYPES
from .kinds import COUNTS, dtype_name, library_of, library_of_type, refused_dtype
from .operators import ByOperator, operator_of

FOR_GRADIENT = ByOperator(
    "onsoftmax.torch",
    RuntimeError,
    "got a tensor that requires grad, and no gradient flows through this function: pass tensor.detach(), or "
    "call it under torch.no_grad()",
)


def torch_knowledge() -> tuple[Any, ...]:
    """The values that ons_torch in csrc/python/views.h holds."""
    torch = sys.modules["torch"]
    shortcuts = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return (
        torch.Tensor,
        torch.nn.Parameter,
        torch.Tensor.requires_grad,
        torch.Tensor.layout,
        torch.Tensor.is_neg,
        torch.empty_like,
        torch.is_grad_enabled,
        _increment_version(torch),
        torch.strided,
        torch.contiguous_format,
        tuple(getattr(torch, name) for name in _core.DTYPES),
        getattr(shortcuts, "_empty_strided_cpu", None),
        getattr(shortcuts, "_empty_strided_cuda", None),
        vars(torch.autograd.forward_ad),
        vars(torch.utils._python_dispatch),
        in_mode,
        torch.is_autocast_enabled,
        torch._C._is_tracing,
        vars(torch.autograd.profiler),
        FOR_GRADIENT,
        getattr(torch.Tensor, "__dlpack_c_exchange_api__", None),
    )


def _increment_version(torch: Any) -> Callable[[tuple[Any, ...]], None]:
    """The function that tells autograd that tensors were written to. torch.autograd.graph.increment_version
    only calls a C function, and takes twice as long. Both take tuples only in later versions of torch."""
    try:
        inner: Callable[[tuple[Any, ...]], None] = torch._C._increment_version
        inner(())
    except (AttributeError, TypeError, RuntimeError):
        return lambda tensors: torch.autograd.graph.increment_version(*tensors)
    return inner


def find_symbolic(array: Any, number: Any) -> ByOperator | None:
    """A ByOperator for a symbolic int. Using it as a number would fix its value. An operator keeps it."""
    if library_of(array) != "torch" or type(number).__name__ != "SymInt":
        return None
    message = f"got {number!r}, a symbolic int of torch: expected an int"
    return ByOperator("onsoftmax.torch", TypeError, message)


def in_mode() -> bool:
    """Whether this thread has a TorchDispatchMode, which must see all work on tensors."""
    torch = sys.modules["torch"]
    below_autograd = getattr(torch._C, "_len_torch_dispatch_stack", int)
    above_autograd = getattr(torch._ops, "_len_torch_dispatch_stack_pre_dispatch", int)
    return bool(below_autograd() or above_autograd())


def begin_row(name: str) -> Any:
    """A row of torch's profiler, which has begun. Its __exit__ ends it."""
    row = sys.modules["torch"].autograd.profiler.record_function(name)
    row.__enter__()
    return row


def torch_stream(gpu: int) -> int:
    """The handle of torch's current stream."""
    handle: int = sys.modules["torch"].cuda.current_stream(gpu).cuda_stream
    return handle


def torch_empty(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return like.new_empty(shape, dtype=dtype)


def _is_in_a_transform(torch: Any, tensor: Any) -> bool:
    """Whether the tensor is in or from a transform of torch.func, or of the vmap of torch.autograd."""
    try:
        functorch = torch._C._functorch
        wrapped = functorch.is_functorch_wrapped_tensor(tensor)
        return bool(wrapped or functorch.is_legacy_batchedtensor(tensor))
    except AttributeError:  # an older or a newer torch
        return False


def is_plain(tensor: Any) -> bool:
    """Whether the tensor has memory whose values are its own, and torch.func sees no more in it."""
    torch = sys.modules["torch"]
    passes = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return passes and not tensor.is_meta and not _is_in_a_transform(torch, tensor)


def is_watched() -> bool:
    """Whether a transform of torch.func, a trace or a mode must see the calls of operators."""
    torch = sys.modules["torch"]
    return bool(
        torch._C._are_functorch_transforms_active()
        or torch._C._is_tracing()
        or (vars(torch.utils._python_dispatch).get("_is_in_torch_dispatch_mode", True) and in_mode())
    )


def operator_for(name: str, logits: Any, *others: Any) -> Callable[..., Any] | None:
    """The operator that a call on these arrays needs. None if the core takes them."""
    torch = sys.modules["torch"]
    for array in (logits, *others):
        kind = type(array)
        if array is None or (kind is torch.Tensor and not array.is_meta) or library_of_type(kind) != "torch":
            continue
        found = torch_data(array, X)
        if isinstance(found, ByOperator):
            return operator_of(found, name) or found.refuse()
    if (logits.requires_grad and torch.is_grad_enabled()) or is_watched():
        return operator_of(FOR_GRADIENT, name)
    return None


def refuse_nested(tensor: Any) -> None:
    if tensor.is_nested:
        raise TypeError(
            "got a nested tensor, which is not supported: expected a plain tensor. Pass each tensor of "
            "nested.unbind(), or torch.nested.to_padded_tensor(nested, -math.inf)"
        )


def torch_data(tensor: Any, role: int) -> Any:
    """The tensor without autograd and without the lazy views that DLPack cannot show, or a ByOperator."""
    torch = sys.modules["torch"]
    kind = type(tensor).__name__
    if not isinstance(tensor, torch.Tensor):
        return ByOperator("onsoftmax._torch.fx", TypeError, f"got a {kind}: expected a tensor")
    refuse_nested(tensor)
    if _is_in_a_transform(torch, tensor):
        return ByOperator(
            "onsoftmax.torch",
            RuntimeError,
            "got a tensor inside vmap, grad or another transform of torch.func, which this function does not "
            "support: expected a plain tensor",
        )
    if kind == "DTensor":
        return ByOperator(
            None,
            TypeError,
            "got a DTensor: expected a plain tensor, or softmax, log_softmax and logsumexp of "
            "onsoftmax.distributed, which take it",
        )
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return ByOperator(
            "onsoftmax.torch",
            TypeError,
            f"got a {kind}, whose values its class alone knows: expected a plain tensor",
        )
    if tensor.is_meta:
        return ByOperator(
            "onsoftmax.torch", TypeError, "got a tensor on meta, which has no values: expected a plain tensor"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(
            f"got a tensor of layout {tensor.layout}: expected torch.strided; pass tensor.to_dense()"
        )
    if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
        raise RuntimeError(
            "got a dual tensor of forward-mode differentiation, and no tangent flows through this function: "
            "pass tensor.detach()"
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        return FOR_GRADIENT
    if dtype_name(tensor.dtype) not in DTYPES + COUNTS:
        raise TypeError(refused_dtype(dtype_name(tensor.dtype), role))
    return tensor.detach().resolve_neg()


def torch_array(tensor: Any, role: int) -> Any:
    if role == Y and (tensor.is_neg() or tensor.is_conj()):
        raise ValueError("out is a negated or conjugated view: expected a tensor that can be written to")
    data = torch_data(tensor, role)
    if isinstance(data, ByOperator) or role in (WHERE, Y, INDICES) or data.dtype.is_floating_point:
        return data
    return data.double() if role == SCALE else data.to(sys.modules["torch"].get_default_dtype())


def on_torch_stream(
    call: Callable[..., Any], arrays: tuple[Any, ...], handle: int, keywords: dict[str, Any]
) -> Any:
    torch = sys.modules["torch"]
    array = arrays[0]
    before = torch.cuda.current_stream(array.device)
    if before.cuda_stream == handle:
        return NotImplemented
    stream = (
        torch.cuda.ExternalStream(handle, array.device) if handle else torch.cuda.default_stream(array.device)
    )
    with torch.cuda.stream(stream):
        result = call(*arrays, **keywords)
    # Memory is reused in the order of the stream that it was allocated on. The result was allocated on
    # `stream`, and will be used on the stream before. For the other tensors it is the other way round.
    for tensor in (*arrays, *keywords.values()):
        if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
            tensor.record_stream(stream)
    if "out" not in keywords:
        for tensor in result if isinstance(result, tuple) else (result,):
            tensor.record_stream(before)
    return result
