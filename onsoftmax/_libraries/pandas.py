"""Columns of pandas."""

from __future__ import annotations

from typing import Any

import numpy as np


def of_pandas(array: Any, made: Any) -> Any:
    """Columns whose types have NA, as NumPy numbers with NaN for NA. pandas gives such columns as objects."""
    types: Any = getattr(array, "dtypes", None)
    types = list(types) if hasattr(types, "__iter__") else [types]
    numbers = [getattr(each, "numpy_dtype", each) for each in types]
    if not all(isinstance(each, np.dtype) and each.kind in "biuf" for each in numbers):
        return made
    wanted = np.result_type(*numbers)
    try:
        return array.to_numpy(dtype=wanted)
    except (TypeError, ValueError):  # NA, which only floats have
        if wanted.kind == "b":
            return made
        return array.to_numpy(dtype=wanted if wanted.kind == "f" else np.float64, na_value=np.nan)
