"""The textbook formulas. explain() shows them beside what a method finds, and benchmarks check answers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def formula(x: Array, m: float) -> Array:
    """exp(x - m) in float64."""
    with np.errstate(all="ignore"):
        return np.asarray(np.exp(x - m))


def larger(x: Array) -> float:
    return float(np.max(x, initial=-math.inf))


class Chosen(NamedTuple):
    """The arguments of an operation that chooses one element of the row, and what else it computes."""

    target: int
    z_loss: float = 0.0
    label_smoothing: float = 0.0
    entropy: bool = False


def textbook(operation: str, x: Array, grad: Array, axis: int = -1) -> tuple[Array, Array]:
    """The result of an operation on rows, in their own type, and the sizes that errors are relative to.
    For softmax_topk it is the whole softmax, and for sample the whole log_softmax."""
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
        if operation in ("log_softmax", "sample"):
            logarithms = np.asarray(x - m - log_d)
        else:
            logarithms = np.where(np.isfinite(m), m + log_d, m).squeeze(axis)
        return logarithms, np.maximum(np.abs(logarithms), 1)


def products(p: Array, x: Array) -> Array:
    """p * x, and 0 where p is 0, even if x is -inf."""
    return np.where(p == 0, 0, p * x)


def textbook_of_chosen(kind: str, x: Array, chosen: Chosen) -> tuple[Array, Array]:
    """The logprob, entropy or loss of a row with a chosen element, or the gradient of the loss, and the sizes
    that errors are relative to."""
    p, log_p, lse = (
        np.atleast_1d(textbook(operation, x, x[:0])[0])
        for operation in ("softmax", "log_softmax", "logsumexp")
    )
    with np.errstate(all="ignore"):
        logprob, of_lse = log_p[[chosen.target]], chosen.z_loss * lse * lse
        a = chosen.label_smoothing
        if kind == "gradient":
            one = (1 - a) * (np.arange(len(x)) == chosen.target) + a / len(x)
            more = 2 * chosen.z_loss * lse
            return p * (1 + more) - one, np.maximum(p * (1 + np.abs(more)), one)
        if kind == "loss":
            loss, size = of_lse - (1 - a) * logprob, np.abs(of_lse) + (1 - a) * np.abs(logprob)
            if a:
                loss = loss - a * log_p.mean()
                size = size + a * (np.abs(lse) + np.abs(x).mean())
            return loss, np.maximum(size, 1)
        y = logprob if kind == "logprob" else -products(p, log_p).sum(keepdims=True)
        return y, np.maximum(np.abs(y), 1)
