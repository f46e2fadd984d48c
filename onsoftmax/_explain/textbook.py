"""The textbook formulas. explain() shows them beside what a method finds, and benchmarks check answers."""

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


def textbook(operation: str, x: Array, grad: Array, axis: int = -1) -> tuple[Array, Array]:
    """The result of an operation on rows, in their own type, and the sizes that errors are relative to.
    For softmax_topk it is the whole softmax."""
    with np.errstate(all="ignore"):
        if operation.endswith("_backward"):
            y = x if operation == "softmax_backward" else np.exp(x)
            terms = grad * y if operation == "softmax_backward" else grad
            reach = np.abs(terms).sum(axis, keepdims=True) * y
            return np.asarray(terms - terms.sum(axis, keepdims=True) * y), np.maximum(np.abs(terms), reach)
        m = x.max(axis, keepdims=True, initial=-math.inf)
        if operation in ("softmax", "softmax_topk"):
            e = np.exp(x - m)
            e /= e.sum(axis, keepdims=True)
            return e, e
        log_d = np.log(np.exp(x - m).sum(axis, keepdims=True))
        if operation == "log_softmax":
            logarithms = np.asarray(x - m - log_d)
        else:
            logarithms = np.where(np.isfinite(m), m + log_d, m).squeeze(axis)
        return logarithms, np.maximum(np.abs(logarithms), 1)
