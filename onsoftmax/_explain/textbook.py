"""The textbook formulas in float64. explain() shows them beside what a method finds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def formula(x: Array, m: float) -> Array:
    """exp(x - m) in float64."""
    with np.errstate(all="ignore"):
        return np.asarray(np.exp(x - m))


def larger(x: Array) -> float:
    return float(np.max(x, initial=-math.inf))


def textbook(operation: str, x: Array, grad: Array) -> tuple[Array, Array]:
    """The result of an operation on a row in float64, and the size that an error is relative to."""
    with np.errstate(all="ignore"):
        if operation.endswith("_backward"):
            y = x if operation == "softmax_backward" else np.exp(x)
            terms = grad * y if operation == "softmax_backward" else grad
            total = terms.sum() * y
            return np.asarray(terms - total), np.maximum(np.abs(terms), np.abs(total))
        m = larger(x)
        e = formula(x, m)
        if operation in ("softmax", "softmax_topk"):
            return np.asarray(e / e.sum()), np.asarray(e / e.sum())
        log_d = np.log(e.sum())
        if operation == "log_softmax":
            logarithms = np.asarray(x - m - log_d)
        else:
            logarithms = np.array([m + log_d if math.isfinite(m) else m])
        return logarithms, np.maximum(np.abs(logarithms), 1)
