"""A slow and exact softmax for the tests. It is independent of onsoftmax."""

from __future__ import annotations

import numpy as np


def axes_of(axis, ndim):
    """axis as a tuple of dimensions."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return tuple(sorted(a % max(ndim, 1) for a in axes)) if ndim else ()


def compute_type(x_dtype, y_dtype=None):
    """The arithmetic's type for an input and a result: the wider of the two, and at least float32."""
    types = [np.dtype(x_dtype), np.dtype(x_dtype if y_dtype is None else y_dtype)]
    return np.dtype(np.float64 if any(t == np.float64 for t in types) else np.float32)


def product(x, scale, compute):
    """x * scale rounded once to the compute type."""
    x, scale = np.asarray(x).astype(compute), np.asarray(scale, np.float64)
    with np.errstate(all="ignore"):
        if np.dtype(compute) == np.float64:
            return x * scale
        return (x.astype(np.longdouble) * scale).astype(compute)


def softmax(x, axis=-1, where=None, scale=1.0, compute=None):
    """softmax(scale * x) in longdouble. `compute` is the type that scale * x is rounded to."""
    x = np.asarray(x)
    compute = compute_type(x.dtype) if compute is None else compute
    x = x.astype(compute) if np.ndim(scale) == 0 and scale == 1.0 else product(x, scale, compute)
    allowed = np.broadcast_to(True if where is None else where, x.shape)
    axes = axes_of(axis, x.ndim)
    with np.errstate(all="ignore"):
        y = np.array(x, np.longdouble)
        y[~allowed] = -np.inf
        y -= y.max(axis=axes, keepdims=True, initial=-np.inf)
        np.exp(y, out=y)
        y /= y.sum(axis=axes, keepdims=True)
    y[~allowed] = 0
    return y


def _shifted(x, axis, where, scale, compute):
    """scale * x in longdouble minus its largest in each row, and this largest. Excluded elements are -inf."""
    x = np.asarray(x)
    compute = compute_type(x.dtype) if compute is None else compute
    x = x.astype(compute) if np.ndim(scale) == 0 and scale == 1.0 else product(x, scale, compute)
    with np.errstate(all="ignore"):
        y = np.array(x, np.longdouble)
        y[~np.broadcast_to(True if where is None else where, x.shape)] = -np.inf
        m = y.max(axis=axes_of(axis, x.ndim), keepdims=True, initial=-np.inf)
        return y - m, m


def log_softmax(x, axis=-1, where=None, scale=1.0, compute=None):
    """log(softmax(scale * x)) in longdouble."""
    with np.errstate(all="ignore"):
        y, _ = _shifted(x, axis, where, scale, compute)
        y = np.asarray(y - np.log(np.exp(y).sum(axis=axes_of(axis, y.ndim), keepdims=True)))
    y[~np.broadcast_to(True if where is None else where, y.shape)] = -np.inf
    return y


def logsumexp(x, axis=-1, where=None, scale=1.0, compute=None, keepdims=False):
    """log(sum(exp(scale * x))) in longdouble."""
    with np.errstate(all="ignore"):
        y, m = _shifted(x, axis, where, scale, compute)
        total = m + np.log(np.exp(y).sum(axis=axes_of(axis, y.ndim), keepdims=True))
        total = np.where(np.isinf(m), m, total)
    return total if keepdims else total.squeeze(axes_of(axis, y.ndim))


def far_from(y, exact, compute, largest=2):
    """Where y is further from an exact logarithm than the contract allows. It allows 2 eps of max(1, its
    size), with the eps of the compute type, and half a place of y's own type if that is coarser. NaN must
    meet NaN, and inf the same inf."""
    mantissa, _ = _finfo(compute)
    exact, ours = np.asarray(exact, np.longdouble), np.asarray(y).astype(np.longdouble)
    known = np.where(np.isfinite(exact), exact, 0)
    bound = largest * np.maximum(1, np.abs(known)) * np.longdouble(2) ** -mantissa
    if np.asarray(y).dtype != np.dtype(compute):
        bound = bound + ulp(known, np.asarray(y).dtype) / 2
    with np.errstate(invalid="ignore"):
        far = ~(np.abs(ours - known) <= bound)
    far = np.where(np.isinf(exact), ours != exact, far)
    return np.where(np.isnan(exact), ~np.isnan(ours), far)


def topk(x, k, axis=-1, where=None, scale=1.0, compute=None):
    """The places of the k largest of scale * x, rounded to the compute type. NaN comes first, and excluded
    elements last. Of equal elements the first comes first. The code sorts the reversed row, in a stable
    way."""
    x = np.asarray(x)
    compute = compute_type(x.dtype) if compute is None else compute
    allowed = np.broadcast_to(True if where is None else where, x.shape)
    logits = np.where(allowed, product(x, scale, compute), -np.inf)
    allowed, rows = (np.moveaxis(each, axis, -1)[..., ::-1] for each in (allowed, logits))
    order = np.lexsort((rows, allowed))[..., ::-1][..., :k]
    return np.moveaxis(rows.shape[-1] - 1 - order, -1, axis)


def gradient(operation, grad, output, axis=-1, where=None, scale=1.0):
    """softmax_backward or log_softmax_backward in longdouble, and a size. An error may be 4 eps of this size.
    It is the size of the larger of the gradient's two terms. For softmax_backward of floats, the sizes of the
    sum's terms count instead of the sum's size, and a quarter more with a scale. No size is below the
    smallest normal number."""
    compute = compute_type(np.asarray(output).dtype, np.asarray(grad).dtype)
    _, smallest = _finfo(compute)
    dy, y = np.asarray(grad).astype(np.longdouble), np.asarray(output).astype(np.longdouble)
    allowed = np.broadcast_to(True if where is None else where, y.shape)
    dy, y = np.where(allowed, dy, 0), np.where(allowed, y, 0)
    axes = axes_of(axis, y.ndim)
    with np.errstate(all="ignore"):
        weight = y if operation == "softmax_backward" else np.exp(y)
        terms = dy * y if operation == "softmax_backward" else dy
        total = terms.sum(axis=axes, keepdims=True)
        scale = np.asarray(scale, np.longdouble)
        least = np.ldexp(np.longdouble(1), smallest)
        in_blocks = operation == "softmax_backward" and compute == np.float32
        added = np.maximum(np.abs(terms), least).sum(axis=axes, keepdims=True) if in_blocks else np.abs(total)
        size = np.maximum(np.maximum(np.abs(weight), least) * added, np.abs(terms))
        size = size * 1.25 if in_blocks and np.any(scale != 1) else size
        return np.where(allowed, scale * (terms - weight * total), 0), np.abs(scale) * np.maximum(size, least)


def far_from_gradient(dx, exact, size, compute, largest=4):
    """Where dx is further from an exact gradient than its size allows: 4 eps of the compute type, and half a
    place of dx's own type if that is coarser, subnormals included."""
    mantissa, _ = _finfo(compute)
    exact, ours = np.asarray(exact, np.longdouble), np.asarray(dx).astype(np.longdouble)
    known, size = np.where(np.isfinite(exact), exact, 0), np.where(np.isfinite(size), size, 0)
    bound = largest * size * np.longdouble(2) ** -mantissa
    if np.asarray(dx).dtype != np.dtype(compute):
        bound = bound + ulp(known, np.asarray(dx).dtype) / 2
    with np.errstate(invalid="ignore"):
        far = ~(np.abs(ours - known) <= bound)
    far = np.where(np.isinf(exact), ours != exact, far)
    return np.where(np.isnan(exact), ~np.isnan(ours), far)


def softmax_mpmath(row, digits=60):
    import mpmath

    with mpmath.workdps(digits):
        x = [mpmath.mpf(float(v)) for v in row]
        m = max(x)
        e = [mpmath.exp(v - m) for v in x]
        d = mpmath.fsum(e)
        return [v / d for v in e]


def naive(x, axis=-1):
    """exp, sum, divide. Every step is rounded to x's own type."""
    own = x.dtype
    with np.errstate(all="ignore"):
        e = np.exp(x.astype(np.longdouble)).astype(own)
        d = e.astype(np.longdouble).sum(axis=axis, keepdims=True).astype(own)
        return (e.astype(np.longdouble) / d.astype(np.longdouble)).astype(own)


def _finfo(dtype):
    """(stored mantissa bits, exponent of the smallest normal number)"""
    return {"float16": (10, -14), "bfloat16": (7, -126), "float32": (23, -126), "float64": (52, -1022)}[
        np.dtype(dtype).name
    ]


def ulp(value, dtype):
    """The distance of the dtype's numbers around a value, subnormals included."""
    mantissa, smallest = _finfo(dtype)
    _, exponent = np.frexp(np.abs(np.asarray(value, np.longdouble)))
    exponent = np.maximum(exponent - 1, smallest)
    return np.ldexp(np.longdouble(1), exponent - mantissa)


def errors(y, exact, dtype=None):
    """Relative errors in units of the dtype's eps, at places where the exact result is a normal number."""
    mantissa, smallest = _finfo(y.dtype if dtype is None else dtype)
    normal = exact >= np.ldexp(np.longdouble(1), smallest)
    y, exact = y.astype(np.longdouble)[normal], exact[normal]
    return np.abs(y - exact) / exact * 2.0**mantissa


def wrong_places(y, exact, compute, largest=4):
    """Where y is further from the exact result than the contract allows. It allows 4 eps of the compute type,
    half a place of the compute type if the result is subnormal there, and half a place of y's own type if
    that is another type. NaN must meet NaN."""
    out = y.dtype
    mantissa, _ = _finfo(compute)
    exact = np.asarray(exact, np.longdouble)
    nan = np.isnan(exact)
    known = np.where(nan, 0, exact)
    bound = largest * known * np.longdouble(2) ** -mantissa
    for rounded_to in {np.dtype(compute), np.dtype(out)}:
        subnormal = known < np.ldexp(np.longdouble(1), _finfo(rounded_to)[1])
        bound += np.where(subnormal | (rounded_to != np.dtype(compute)), ulp(known, rounded_to) / 2, 0)
    ours = np.asarray(y).astype(np.longdouble)
    with np.errstate(invalid="ignore"):
        far = ~(np.abs(ours - known) <= bound) | (ours < 0)
    return np.where(nan, ~np.isnan(ours), far)
