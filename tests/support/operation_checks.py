"""The checks of log_softmax and logsumexp for one instruction set. They run in their own interpreter with
ONSOFTMAX_ISA set.

python operation_checks.py lengths many_lengths places edges guard
"""

from __future__ import annotations

import sys

import numpy as np
import oracle
from isa_checks import AROUND, TILES, logits, require
from support import BFLOAT16, DTYPES, METHODS, STABLE_METHODS, Guarded, lay_out, same_bits

import onsoftmax as ons


def is_near_zero(operation, exact, axis):
    """Where `safe` adds up the row once more: at logarithms from -0.5 to 0.5. For log_softmax that is the
    largest one of the row."""
    if operation == "log_softmax":
        exact = np.max(exact, axis=axis, keepdims=True, initial=-np.inf)
    return abs(exact) < 0.51


def check(operation, x, axis, facts, wanted=None, **options):
    """`auto` must be near the exact result, or have the wanted bits. Every method must have the bits of
    `auto`. One exception: near 0, logarithms of `safe` must only be near the exact ones, because `safe` keeps
    more digits there."""
    auto = getattr(ons, operation)(x, axis, **options)
    exact = getattr(oracle, operation)(x, axis, **options)
    if wanted is None:
        far = oracle.far_from(auto, exact, oracle.compute_type(x.dtype))
        require(not far.any(), operation, x.dtype, *facts, "wrong at", np.argwhere(far)[:5].tolist())
    else:
        require(same_bits(auto, wanted), operation, x.dtype, *facts, "not the bits that are wanted")
    for method in STABLE_METHODS:
        y = getattr(ons, operation)(x, axis, method=method, **options)
        if method == "safe" and operation != "softmax":
            far = oracle.far_from(y, exact, oracle.compute_type(x.dtype))
            require(not far.any(), operation, method, x.dtype, *facts, "far from the exact logarithms")
            y = np.where(is_near_zero(operation, exact, axis), auto, y)
        require(same_bits(np.asarray(y), np.asarray(auto)), operation, method, x.dtype, *facts, "bits")
    return auto


def lengths():
    """N from 1 to 35 and around every block and tile, with offsets far from 0, along the last and the first
    axis."""
    rng = np.random.default_rng(1)
    for dtype in DTYPES:
        for N in sorted({*range(1, 36), *AROUND, *TILES}):
            rows = logits(rng, (7, N), dtype)
            rows[1] += dtype.type(20)
            columns = np.ascontiguousarray(rows.T)
            y = check("log_softmax", rows, -1, ("N =", N))
            check("log_softmax", columns, 0, ("column", N), wanted=y.T)
            y = check("logsumexp", rows, -1, ("N =", N))
            check("logsumexp", columns, 0, ("column", N), wanted=y)
    for s, shape in enumerate([(6, 70_000), (300, 20), (1000, 64), (20_000, 3), (33, 1500), (100, 8, 33)]):
        for t, dtype in enumerate(DTYPES):
            axis = (s + t) % len(shape)
            x = logits(rng, shape, dtype)
            check("log_softmax", x, axis, (shape, axis))
            check("logsumexp", x, axis, (shape, axis))


def many_lengths():
    """More elements than the caches hold, for every type and axis."""
    rng = np.random.default_rng(1)
    for shape in [(40, 70_000), (300, 20), (1000, 64), (70_000, 3), (33, 1500), (100, 8, 33)]:
        for dtype in DTYPES:
            x = logits(rng, shape, dtype)
            for axis in range(len(shape)):
                check("log_softmax", x, axis, (shape, axis))
                check("logsumexp", x, axis, (shape, axis))


def places():
    """Strides, alignment, masks, scales, several axes, results in place and of another type."""
    rng = np.random.default_rng(2)
    for dtype in DTYPES:
        for shape in [(5, 33), (40, 200), (3, 1000), (9, 2100)]:
            x = logits(rng, shape, dtype)
            where = rng.random(shape) < 0.7
            where[0] = False
            for options in ({}, {"where": where}, {"scale": 0.3}, {"scale": -2.0, "where": where}):
                for operation in ("log_softmax", "logsumexp"):
                    plain = check(operation, x, -1, (shape, options.keys()), **options)
                    for laid in (
                        lay_out(x, (1, 0)),
                        lay_out(x, steps=(-1, 2)),
                        lay_out(x, byte_offset=1),
                        lay_out(x, swapped=dtype != BFLOAT16),
                    ):
                        y = getattr(ons, operation)(laid, **options)
                        far = oracle.far_from(y, plain, oracle.compute_type(dtype), 4)
                        require(not far.any(), operation, dtype, shape, options.keys(), "laid out")
                for method in ("auto", *STABLE_METHODS):
                    in_place = x.copy()
                    got = ons.log_softmax(in_place, method=method, out=in_place, **options)
                    wanted = ons.log_softmax(x, method=method, **options)
                    require(got is in_place and same_bits(got, wanted), "in place", method, dtype, shape)
            for out in DTYPES:
                y = ons.log_softmax(x, dtype=out)
                exact = oracle.log_softmax(x, compute=oracle.compute_type(dtype, out))
                require(not oracle.far_from(y, exact, oracle.compute_type(dtype, out)).any(), dtype, out)
        x = logits(rng, (4, 5, 6), dtype)
        for axis in (None, (0, 2), (0, 1, 2), 1, ()):
            exact = oracle.logsumexp(x, axis)
            for keepdims in (False, True):
                y = ons.logsumexp(x, axis, keepdims=keepdims)
                require(np.shape(y) == np.sum(x, axis, keepdims=keepdims).shape, axis, keepdims)
                require(
                    not oracle.far_from(np.reshape(y, exact.shape), exact, oracle.compute_type(dtype)).any(),
                    axis,
                )


def edges():
    """NaN, infinities, empty rows, one element, numbers far from 0, in rows of any length."""
    inf, nan = np.inf, np.nan
    for dtype in DTYPES:
        far = 3e4 if dtype == np.float16 else 1e30
        for N in (2, 5, 40, 300, 3000):
            rows = np.zeros((11, N))
            rows[:] = np.linspace(-3, 3, N)
            rows[0, 1], rows[1, 0], rows[2, -1], rows[3] = nan, inf, -inf, -inf
            rows[4, 0], rows[4, -1] = inf, nan
            rows[5], rows[6], rows[7, 1] = far, -far, far
            rows[8], rows[9, 0] = 1e4, -far
            where = np.ones_like(rows, bool)
            where[10], where[0, 1], where[1, 0], where[2:5, N // 2] = False, False, False, False
            rows[8, 0] = nan
            where[8, -1] = False
            x = rows.astype(dtype)
            for axis in (-1, 0):
                a = x if axis == -1 else np.ascontiguousarray(x.T)
                mask = where if axis == -1 else np.ascontiguousarray(where.T)
                for options in ({}, {"where": mask}):
                    for operation in ("log_softmax", "logsumexp"):
                        check(operation, a, axis, (N, axis, options.keys()), **options)
                for method in ("auto", *STABLE_METHODS):
                    in_place = a.copy()
                    ons.log_softmax(in_place, axis, method=method, out=in_place)
                    require(
                        same_bits(in_place, ons.log_softmax(a, axis, method=method)), "in place", method, N
                    )
        one = np.array([[3.0], [-inf], [inf], [nan]], dtype)
        require(same_bits(ons.log_softmax(one), np.array([[0], [nan], [nan], [nan]], dtype)), "one element")
        require(same_bits(ons.logsumexp(one), one[:, 0]), "one element")
        for shape in ((0, 3), (3, 0), (0, 0)):
            empty = np.zeros(shape, dtype)
            for method in ("auto", *METHODS):
                y = ons.logsumexp(empty, method=method)
                require(same_bits(y, np.full(shape[:1], -inf, dtype)), "empty", shape, method)
                require(ons.log_softmax(empty, method=method).shape == shape, "empty", shape, method)


def guard():
    """Nothing is read or written beyond the arrays."""
    memory, results = Guarded(1 << 16), Guarded(1 << 16)
    for dtype in DTYPES:
        for N in (1, 3, 5, 9, 17, 31, 33, 65, 130, 257, 700, 3001):
            for rows in (1, 2, 3, 7, 20):
                if rows * N * dtype.itemsize > memory.bytes:
                    continue
                for at_end in (False, True):
                    for gap in (0, 1):
                        for axis, shape in ((-1, (rows, N)), (0, (N, rows))):
                            x = memory.place(shape, dtype, at_end, gap)
                            x[...] = np.linspace(-4, 4, rows * N).reshape(shape)
                            out = results.place(shape, dtype, at_end, gap)
                            for method in ("auto", "fused", "online"):
                                ons.log_softmax(x, axis, method=method, out=out)
                                ons.logsumexp(x, axis, method=method)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
