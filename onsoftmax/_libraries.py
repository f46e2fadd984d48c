"""What the C core asks of other array libraries. Imports none: an array's own library is there already."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

NUMPY, TORCH, JAX = 0, 1, 2  # ons_library in csrc/python/views.h


def _library_of(array: object) -> str:
    """The top-level package of the first class in the array's ancestry that belongs to a library we know."""
    for cls in type(array).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in ("torch", "jax", "jaxlib", "dask", "cupy"):
            return package
    return ""


def _torch_data(tensor: Any) -> Any:
    """The tensor without autograd and without the lazy views that DLPack cannot show."""
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        raise TypeError(
            f"got a tensor of layout {tensor.layout}: expected torch.strided; pass tensor.to_dense()"
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            "got a tensor that requires grad, and no gradient flows through this function: "
            "pass tensor.detach(), or call it under torch.no_grad()"
        )
    if tensor.dtype.is_complex:
        raise TypeError(
            f"dtype {tensor.dtype} is not supported: expected float16, bfloat16, float32 or float64"
        )
    return tensor.detach().resolve_neg()


def prepare(array: Any) -> tuple[int, Any]:
    """The library that the result goes back to, and an array of a floating type to look at."""
    library = _library_of(array)
    if library == "torch":
        torch = sys.modules["torch"]
        tensor = _torch_data(array)
        if not tensor.dtype.is_floating_point:
            tensor = tensor.to(torch.get_default_dtype())
        return TORCH, tensor
    if library in ("jax", "jaxlib"):
        jax = sys.modules["jax"]
        if isinstance(array, jax.core.Tracer):
            raise TypeError(
                "got a JAX tracer: onsoftmax works on concrete arrays, outside jax.jit, jax.grad and "
                "jax.vmap; use jax.nn.softmax inside them, or jax.pure_callback"
            )
        if not jax.numpy.issubdtype(array.dtype, jax.numpy.floating):
            if jax.numpy.issubdtype(array.dtype, jax.numpy.complexfloating):
                raise TypeError(f"dtype {array.dtype} is not supported: expected real numbers")
            array = array.astype(float)
        return JAX, array
    if library == "dask":
        raise TypeError("got a Dask array: use onsoftmax.dask.softmax, which works chunk by chunk")
    if hasattr(array, "__dlpack__"):
        return NUMPY, array
    if hasattr(array, "__cuda_array_interface__"):
        raise RuntimeError(
            "got a CUDA array, but this build of onsoftmax has no CUDA: move the array to the CPU"
        )
    return NUMPY, np.asarray(array)


def prepare_out(array: Any) -> Any:
    """What DLPack can show of `out`, whose memory will be written."""
    library = _library_of(array)
    if library == "torch":
        if array.is_neg() or array.is_conj():
            raise ValueError("out is a negated or conjugated view: expected a tensor that can be written to")
        return _torch_data(array)
    if library in ("jax", "jaxlib"):
        raise TypeError("out is a JAX array, which is immutable: leave out= away, and take the result")
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"out is of type {type(array).__name__}: expected an array")
    return array


def as_numpy(array: Any) -> Any:
    """A mask or a scale of any library as a NumPy array."""
    if _library_of(array) == "torch":
        torch = sys.modules["torch"]
        tensor = _torch_data(array)
        if tensor.device.type != "cpu":
            raise ValueError(f"the array is on the CPU, but where or scale is on {tensor.device}")
        return (tensor.double() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    return np.asarray(array)


def torch_result(request: tuple[Any, str]) -> Any:
    """An empty tensor for the softmax of a tensor: contiguous, as torch.softmax gives it."""
    torch = sys.modules["torch"]
    tensor, dtype = request
    return torch.empty_like(tensor, dtype=getattr(torch, dtype), memory_format=torch.contiguous_format)


def jax_result(array: np.ndarray[Any, Any]) -> Any:
    """The memory of a NumPy array as a JAX array."""
    return sys.modules["jax"].numpy.asarray(array)


def dtype_name(dtype: Any) -> str:
    """The name of a type given as a NumPy, ml_dtypes, torch or JAX dtype, or as a string."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        return dtype
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    return str(np.dtype(dtype).name)
