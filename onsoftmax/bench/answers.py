"""The exact result of an operation, and how far an answer is from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._explain.textbook import Array, textbook
from .case import Case

# Largest relative error that passes. For ours: the error that the library promises, in eps of the type. For
# peers: enough to see that it was a softmax. A plain float32 sum over a long row can err by thousands of eps.
LIMIT_OURS_EPS = 4
LIMIT_PEERS = 0.01
LIMIT_PEERS_EPS = 16  # if this is more than LIMIT_PEERS: for peers that round every step to a 16-bit type


def type_limits(dtype: str) -> tuple[float, float]:
    """eps and the smallest normal number of a type."""
    if dtype == "bfloat16":
        return 2.0**-7, 2.0**-126
    info = np.finfo(dtype)
    return float(info.eps), float(info.tiny)


def _wide(x: Array) -> Array:
    """The input as float64. A float64 input becomes long double."""
    return x.astype(np.longdouble if x.dtype == np.float64 else np.float64)


def exact(x: Array, axis: int) -> Array:
    """The softmax, wider than x."""
    return textbook("softmax", _wide(x), _wide(x[:0]), axis)[0]


def exact_of(case: Case, arrays: dict[str, Array]) -> tuple[Array, Array]:
    """The result of the case, wider than its arrays, and the sizes that errors are relative to."""
    x, grad = arrays["x"], arrays.get("grad", arrays["x"][:0])
    found, size = textbook(case.operation, _wide(x), _wide(grad), case.axis)
    if case.k:
        found = size = -np.sort(-found, case.axis).take(range(case.k), case.axis)
    return found, size


def errors_eps(result: Any, expected: Array, dtype: str, size: Array | None = None) -> tuple[float, float]:
    """Largest and mean error in eps of the type, relative to the size (the expected value unless it is given)
    or to the smallest normal number. NaN stays NaN."""
    eps, tiny = type_limits(dtype)
    if hasattr(result, "double"):  # a tensor
        result = result.double().cpu().numpy()
    if result.shape != expected.shape:
        return math.nan, math.nan
    error = np.abs(result - expected)
    error /= np.maximum(expected if size is None else size, tiny)
    return float(error.max() / eps), float(error.mean() / eps)


def error_eps(result: Any, expected: Array, dtype: str, size: Array | None = None) -> float:
    return errors_eps(result, expected, dtype, size)[0]


def good_enough(error: float, dtype: str, promised: bool) -> bool:
    """Whether an error in eps passes. `promised` is True for our own methods, except naive."""
    return error <= (
        LIMIT_OURS_EPS if promised else max(LIMIT_PEERS / type_limits(dtype)[0], LIMIT_PEERS_EPS)
    )
