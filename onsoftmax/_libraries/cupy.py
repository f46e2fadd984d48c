"""CuPy arrays, and the CUDA Array Interface."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .._core import SCALE, UNKNOWN_GPU, X, Y

_Description = tuple[Any, int, tuple[int, ...], Any, str, bool, int, "int | None", Any]


def cupy_array(array: Any, role: int) -> _Description:
    """The array as ons_view_described takes it. DLPack would cost more and need a stream."""
    cupy = sys.modules["cupy"]
    if role in (X, SCALE) and array.dtype.kind in "iub":
        with array.device:
            array = array.astype(float)
    gpu = array.device.id
    stream = cupy.cuda.get_current_stream(gpu)
    return array, array.data.ptr, array.shape, array.strides, array.dtype.name, False, gpu, stream.ptr, stream


def cupy_result(array: Any, dtype: str, shape: tuple[int, ...] | None) -> _Description:
    """A CuPy array for a result. If `shape` is None, it has the given array's shape and memory order."""
    cupy = sys.modules["cupy"]
    if array.dtype.name != dtype and dtype == "bfloat16":
        import ml_dtypes

        kind = np.dtype(ml_dtypes.bfloat16)
    else:
        kind = array.dtype if array.dtype.name == dtype else np.dtype(dtype)
    with array.device:
        made = cupy.empty_like(array, dtype=kind) if shape is None else cupy.empty(shape, dtype=kind)
        return cupy_array(made, Y)


def cuda_array_interface(array: Any) -> _Description:
    """The array as ons_view_described takes it."""
    shown = array.__cuda_array_interface__
    if shown.get("mask") is not None:
        raise TypeError(
            "masked arrays are not supported: pass the array without its mask, and its inverse as where="
        )
    dtype = np.dtype(shown["typestr"])
    if not dtype.isnative:
        raise TypeError(f"dtype {dtype} is not supported on a GPU: expected native byte order")
    address, readonly = shown["data"]
    # From version 3 on, None means that nothing is pending. Before version 3 it means the default stream.
    stream = shown.get("stream", 0 if shown.get("version", 0) < 3 else None)
    keeper = getattr(array, "stream", None)
    return (
        array,
        address or 0,
        tuple(shown["shape"]),
        shown.get("strides"),
        dtype.name,
        readonly,
        UNKNOWN_GPU,
        stream,
        keeper,
    )
