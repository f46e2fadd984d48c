"""Which library an array is from, where it lies, and which types a call takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import SCALE, UNKNOWN_GPU, WHERE, Y

# The types that softmax converts to its default float. torch and JAX use these names.
COUNTS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_EXPECTED = "expected float16, bfloat16, float32 or float64"


def library_of(array: object) -> str:
    """The top-level package of the first class in the array's ancestry that belongs to a library we know."""
    return library_of_type(type(array))


def library_of_type(kind: type) -> str:
    for cls in kind.__mro__:
        package = cls.__module__.partition(".")[0]
        if package in ("torch", "jax", "jaxlib", "dask", "cupy"):
            return package
    return ""


def dtype_name(dtype: Any) -> str:
    """The name of a type given as a NumPy, ml_dtypes, torch or JAX dtype, or as a string."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        return dtype
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        raise TypeError(f"dtype is {dtype!r}: expected float16, bfloat16, float32 or float64") from None


def index_dtype_name(dtype: Any) -> str:
    """The name of a type of indices."""
    try:
        name = dtype_name(dtype)
    except TypeError:
        name = ""
    if name not in ("int32", "int64"):
        raise TypeError(f"index_dtype is {dtype!r}: expected int32 or int64")
    return name


def refused_dtype(name: str, role: int) -> str:
    """The error text for an array of a type that no call takes."""
    if role == WHERE:
        return f"where has dtype {name}: expected a mask of bool"
    if role == SCALE:
        return f"scale has dtype {name}: expected a real number, or an array of them"
    return (
        f"out has dtype {name}: {_EXPECTED}" if role == Y else f"dtype {name} is not supported: {_EXPECTED}"
    )


def gpu_of(array: Any) -> int | None:
    """The number of the GPU that the array is on, or None on the CPU."""
    if library_of(array) == "torch":
        return array.device.index if array.is_cuda else None
    if hasattr(array, "__dlpack_device__"):
        try:
            kind, number = array.__dlpack_device__()
        except BufferError:  # on several devices, or on one that DLPack does not know: its library can tell
            return None
        return int(number) if kind in (2, 13) else None
    if hasattr(array, "__cuda_array_interface__"):
        return UNKNOWN_GPU  # the interface does not tell the number
    return None
