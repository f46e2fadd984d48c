"""What the C core asks of other array libraries. It imports none: an array's library is loaded already."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .._core import BY_OPERATOR, CUPY, JAX, NUMPY, SCALE, TORCH, UNKNOWN_GPU, X, Y
from .cupy import cuda_array_interface, cupy_array, cupy_result
from .dask import check_list, refuse_dask
from .jax import (
    check_jax_float64,
    check_jax_values,
    is_jax_tracer,
    jax_array,
    jax_has_64_bits,
    jax_operator,
    jax_result,
)
from .kinds import dtype_name, gpu_of, library_of
from .operators import ByOperator, operator_of
from .torch import (
    begin_row,
    find_symbolic,
    on_torch_stream,
    torch_array,
    torch_data,
    torch_empty,
    torch_knowledge,
    torch_stream,
)
from .values import array_of_lists, keeps_memory, numpy_of, overlaps_itself, refused_value

__all__ = [
    "array_of_lists",
    "as_numpy",
    "begin_row",
    "check_jax_float64",
    "check_list",
    "cupy_result",
    "dtype_name",
    "find_symbolic",
    "jax_has_64_bits",
    "jax_result",
    "memory",
    "on_host",
    "on_stream",
    "operator_of",
    "overlaps_itself",
    "prepare",
    "refused_value",
    "torch_empty",
    "torch_knowledge",
    "torch_stream",
]


def prepare(array: Any, role: int) -> tuple[int, Any]:
    """The library that the result goes back to, and an array of a type that `role` takes: a NumPy array, an
    object with __dlpack__, or a tuple for ons_view_described. If an operator must take the array: BY_OPERATOR
    and a ByOperator."""
    library = library_of(array)
    if library == "torch":
        return _prepared(TORCH, torch_array(array, role))
    if library in ("jax", "jaxlib"):
        return _prepared(JAX, jax_array(array, role))
    if library == "cupy":
        return CUPY, cupy_array(array, role)
    refuse_dask(array)
    if hasattr(array, "__dlpack__") and not (role == X and keeps_memory(array)):
        return NUMPY, array
    if hasattr(array, "__cuda_array_interface__"):
        return NUMPY, cuda_array_interface(array)
    if role == Y:
        raise TypeError(f"out is of type {type(array).__name__}: expected an array")
    made = numpy_of(array)
    if made.dtype == object and not hasattr(array, "__array__"):
        raise TypeError(f"got {refused_value(array)}")
    return NUMPY, made


def _prepared(library: int, made: Any) -> tuple[int, Any]:
    return BY_OPERATOR if isinstance(made, ByOperator) else library, made


def as_numpy(array: Any) -> Any:
    """A scale of any library as a NumPy array."""
    made = on_host(array, SCALE)
    if isinstance(made, ByOperator):
        made.refuse()
    return made


def on_host(array: Any, role: int) -> Any:
    """A mask or a scale of any library as a NumPy array, or a ByOperator."""
    if is_jax_tracer(array):
        return jax_operator()
    refuse_dask(array)
    check_jax_values(array)
    gpu = gpu_of(array)
    if gpu is not None:
        place = "a GPU" if gpu == UNKNOWN_GPU else f"cuda:{gpu}"
        raise ValueError(f"the array is on the CPU, but where or scale is on {place}: expected one device")
    if library_of(array) == "torch":
        torch = sys.modules["torch"]
        tensor = torch_data(array, role)
        if isinstance(tensor, ByOperator):
            return tensor
        return (tensor.double() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    return numpy_of(array)


def on_stream(
    call: Callable[..., Any], arrays: tuple[Any, ...], handle: int, keywords: dict[str, Any]
) -> Any:
    """Makes the call with `handle` as the current stream of the array's library. NotImplemented if it is
    already the current stream."""
    array = arrays[0]
    library = library_of(array)
    if library == "torch" and array.is_cuda:
        return on_torch_stream(call, arrays, handle, keywords)
    if library == "cupy":
        cupy = sys.modules["cupy"]
        with array.device:
            if cupy.cuda.get_current_stream().ptr != handle:
                with cupy.cuda.ExternalStream(handle) if handle else cupy.cuda.Stream.null:
                    return call(*arrays, **keywords)
    return NotImplemented


def memory(library: int, gpu: int, length: int) -> tuple[Any, int]:
    """`length` bytes of a library's memory on a GPU, in the order of its current stream: owner, address."""
    if library == TORCH:
        torch = sys.modules["torch"]
        tensor = torch.empty(length, dtype=torch.uint8, device=f"cuda:{gpu}")
        return tensor, tensor.data_ptr()
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(gpu):
        allocated = cupy.cuda.alloc(length)
    return allocated, allocated.ptr
