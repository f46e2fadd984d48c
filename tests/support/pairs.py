"""Pairs (m, d) as in csrc/api/state.h, merged in float64 with NumPy."""

import numpy as np

FAR = 16384.0
LN2 = np.longdouble("0.693147180559945309417232121458176568")


def reference(m):
    """The logarithm of the reference of d: of 2^c, or of e^m if m is far from 0."""
    m = np.asarray(m, np.longdouble)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(m) > FAR, m, np.ceil(m.astype(np.float64) * 1.4426950408889634) * LN2)


def merge(*pairs):
    m = np.max([pair[..., 0] for pair in pairs], axis=0)
    d = np.zeros(m.shape, np.longdouble)
    for pair in pairs:
        empty = pair[..., 0] == -np.inf
        with np.errstate(invalid="ignore"):
            factor = np.exp(reference(np.where(empty, 0, pair[..., 0])) - reference(np.where(empty, 0, m)))
        d += pair[..., 1] * np.where(empty, 0, factor)
    return np.stack([m, d.astype(np.float64)], -1)


def exact(x, where=True):
    x = np.where(where, x.astype(np.longdouble), -np.inf)
    m = x.max(-1, initial=-np.inf, keepdims=True)
    with np.errstate(invalid="ignore"):
        d = np.exp(x - np.where(m == -np.inf, 0, reference(m))).sum(-1)
    return np.stack([m[..., 0].astype(np.float64), d.astype(np.float64)], -1)
