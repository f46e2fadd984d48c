"""Tensors without values (on meta, or fake): what a plan needs to know about them."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from .kinds import dtype_name, library_of


def has_no_values(array: Any) -> bool:
    """Whether the array is a tensor on meta or a fake tensor."""
    return library_of(array) == "torch" and (array.is_meta or type(array).__name__ == "FakeTensor")


def as_planned(tensor: Any, dtype: Any, device: Any) -> tuple[Any, Any, Any]:
    """What a plan takes instead of the tensor: an array without memory or only the shape, then a type
    and a device."""
    torch = sys.modules["torch"]
    shape = tuple(map(int, tensor.shape))
    own = tensor.dtype if tensor.dtype.is_floating_point else torch.get_default_dtype()
    name = dtype_name(tensor.dtype if tensor.dtype.is_complex else own)
    if device is None and tensor.device.type != "cuda":
        try:
            element = np.empty(
                (), name if name != "bfloat16" else importlib.import_module("ml_dtypes").bfloat16
            )
        except ImportError:
            return shape, name if dtype is None else dtype, None
        strides = tuple(int(stride) * element.itemsize for stride in tensor.stride())
        return np.lib.stride_tricks.as_strided(element, shape, strides), dtype, None
    return shape, name if dtype is None else dtype, device or "cuda"
