"""The checks of softmax_backward and log_softmax_backward for one instruction set. They run in their own
interpreter with ONSOFTMAX_ISA set.

python gradient_checks.py lengths places edges cancelling overflowing subnormal guard
"""

from __future__ import annotations

import sys

import numpy as np
import oracle
from isa_checks import AROUND, TILES, logits, require
from support import BFLOAT16, DTYPES, Guarded, lay_out, same_bits

import onsoftmax as ons

OPERATIONS = ("softmax_backward", "log_softmax_backward")
METHODS = ("auto", "online", "fused", "split")


def inputs(rng, operation, shape, dtype, axis=-1):
    forward = ons.softmax if operation == "softmax_backward" else ons.log_softmax
    output = forward(logits(rng, shape, dtype), axis)
    return (rng.standard_normal(shape) * 3).astype(dtype), output


def check(operation, grad, output, axis, facts, wanted=None, **options):
    """`auto` must be near the exact result, or have the wanted bits. All methods must have the bits of
    `auto`."""
    auto = getattr(ons, operation)(grad, output, axis, **options)
    if wanted is None:
        compute = oracle.compute_type(output.dtype, grad.dtype)
        far = oracle.far_from_gradient(
            auto, *oracle.gradient(operation, grad, output, axis, **options), compute
        )
        require(not far.any(), operation, auto.dtype, *facts, "wrong at", np.argwhere(far)[:5].tolist())
    else:
        require(same_bits(auto, wanted), operation, auto.dtype, *facts, "not the bits that are wanted")
    for method in METHODS:
        dx = getattr(ons, operation)(grad, output, axis, method=method, **options)
        require(same_bits(dx, auto), operation, method, dx.dtype, *facts, "bits")
    return auto


def lengths():
    """N from 1 to 35 and around every vector, block and tile, along the last axis and the first. The two
    operations take turns at the longer rows."""
    rng = np.random.default_rng(1)
    for o, operation in enumerate(OPERATIONS):
        for t, dtype in enumerate(DTYPES):
            for n, N in enumerate(sorted({*range(1, 36), *AROUND, *TILES})):
                if N > 35 and (o + t + n) % 2:
                    continue
                rows = 16 if N % 32 == 1 else 7  # columns that fill a cache line, and columns that do not
                grad, output = inputs(rng, operation, (rows, N), dtype)
                dx = check(operation, grad, output, -1, ("N =", N))
                columns = [np.ascontiguousarray(a.T) for a in (grad, output)]
                check(operation, *columns, 0, ("column", N), wanted=dx.T)
            for shape, axis in [((3, 70_000), -1), ((2000, 3), 0), ((20, 8, 33), 1), ((300, 140), 0)]:
                check(operation, *inputs(rng, operation, shape, dtype, axis), axis, (shape, axis))


def places():
    """Strides, alignment, masks, scales, several axes, mixed types, results in place."""
    rng = np.random.default_rng(2)
    for operation in OPERATIONS:
        f = getattr(ons, operation)
        for t, dtype in enumerate(DTYPES):
            for shape in [(5, 33), (40, 200), (3, 2100)]:
                grad, output = inputs(rng, operation, shape, dtype)
                where = rng.random(shape) < 0.7
                where[0] = False
                scales = rng.standard_normal((shape[0], 1))
                for options in ({}, {"where": where}, {"scale": 0.3}, {"scale": scales, "where": where}):
                    plain = check(operation, grad, output, -1, (shape, options.keys()), **options)
                    if "where" in options:
                        require(not plain[~where].any(), operation, dtype, shape, "excluded")
                    for lay in ((1, 0), None):
                        laid = [
                            lay_out(a, lay, (-1, 2) if lay is None else None, byte_offset=i)
                            for i, a in enumerate((grad, output))
                        ]
                        require(
                            same_bits(f(*laid, **options), plain), operation, dtype, shape, lay, "laid out"
                        )
                    swapped = [lay_out(a, swapped=dtype != BFLOAT16) for a in (grad, output)]
                    require(same_bits(f(*swapped, **options), plain), operation, dtype, shape, "swapped")
                    for method in METHODS:
                        for i in range(2):
                            pair = [grad.copy(), output.copy()]
                            got = f(*pair, method=method, out=pair[i], **options)
                            require(got is pair[i] and same_bits(got, plain), "in place", i, method, dtype)
            other = DTYPES[(t + 1) % len(DTYPES)]
            grad, output = inputs(rng, operation, (6, 50), dtype)
            mixed = check(operation, grad.astype(other), output, -1, ("mixed", other))
            wider = oracle.compute_type(dtype, other) if dtype != other else dtype
            require(mixed.dtype == wider, dtype, other, mixed.dtype)
            for result in DTYPES:
                require(f(grad, output, dtype=result).dtype == result, dtype, result)
            grad, output = inputs(rng, operation, (4, 5, 6), dtype)
            for axis in (None, (0, 2), (0, 1, 2), 1, ()):
                check(operation, grad, output, axis, ("axis", axis))


def edges():
    """NaN and infinities, empty rows, one element."""
    inf, nan = np.inf, np.nan
    for dtype in DTYPES:
        for N in (1, 2, 5, 40, 300, 3000):
            x = np.zeros((7, N))
            x[:] = np.linspace(-3, 3, N)
            x[0], x[1, 0], x[2, -1] = -inf, nan, -inf
            grad = np.ones((7, N))
            grad[3, 0], grad[4, -1], grad[5, 0], grad[5, -1] = inf, nan, inf, -inf
            for operation in OPERATIONS:
                forward = ons.softmax if operation == "softmax_backward" else ons.log_softmax
                output = forward(x.astype(dtype))
                for axis in (-1, 0):
                    pair = [grad.astype(dtype), output]
                    if axis == 0:
                        pair = [np.ascontiguousarray(a.T) for a in pair]
                    dx = check(operation, *pair, axis, ("edges", N, axis))
                    rows = dx if axis == -1 else dx.T
                    require(np.isnan(rows[:2]).all(), operation, dtype, N, "a row of NaN")
        for shape in ((0, 3), (3, 0), (0, 0)):
            empty = np.zeros(shape, dtype)
            for operation in OPERATIONS:
                for method in METHODS:
                    require(getattr(ons, operation)(empty, empty, method=method).shape == shape, "empty")


def cancelling():
    """The terms of a row's sum cancel. A large output makes the rest large beside the single terms."""
    rng = np.random.default_rng(3)
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        for N in (64, 1000, 5000, 100_000):
            output = np.full((1, N), 0.5 / N, dtype)
            output[0, 0] = 0.5
            grad = rng.standard_normal((1, N)).astype(dtype)
            grad[0, 1::2] = -grad[0, : N - 1 : 2]
            grad[0, 0] = grad[0, 1] = 0
            check("softmax_backward", grad, output, -1, ("cancelling", N))
            check("softmax_backward", grad.T.copy(), output.T.copy(), 0, ("cancelling", N))
            check("log_softmax_backward", grad, np.log(output), -1, ("cancelling", N))


def overflowing():
    """Products near the largest float. Some partial sums overflow. A result is finite if the whole row's sum
    is finite, otherwise inf. The neighbouring rows keep their bits."""
    largest = float(np.finfo(np.float32).max)
    for N in sorted({*range(1, 36), 47, 48, 49, 63, 64, 65, 96, 127, 128, 129, 200, 2048, 2085, 5000}):
        rng = np.random.default_rng(N)
        output = np.full((19, N), 0.75, np.float32)
        grad = rng.choice(np.float32([3e38, -3e38]), output.shape)
        grad[0], grad[1] = 3e38, -3e38
        grad[2, : N // 2], grad[2, N // 2 :] = 3e38, -3e38
        beside = np.arange(19) % 4 == 3
        grad[beside] = rng.standard_normal(grad[beside].shape)
        exact, size = oracle.gradient("softmax_backward", grad, output)
        total = (grad.astype(np.float64) * output).sum(1)
        for axis in (-1, 0):
            pair = [np.ascontiguousarray(a.T) if axis == 0 else a for a in (grad, output)]
            plain = [np.ascontiguousarray(a.T) if axis == 0 else a for a in (grad[beside], output[beside])]
            for method in METHODS:
                facts = (N, axis, method)
                dx = ons.softmax_backward(*pair, axis, method=method)
                alone = ons.softmax_backward(*plain, axis, method=method)
                dx, alone = (dx.T, alone.T) if axis == 0 else (dx, alone)
                far = oracle.far_from_gradient(dx, exact, size, np.dtype(np.float32))
                for row in range(len(total)):
                    if abs(total[row]) > largest * 1.0001:
                        require((dx[row] == -np.sign(total[row]) * np.inf).all(), *facts, row, "not inf")
                    elif abs(total[row]) < largest / 2:
                        require(not far[row].any(), *facts, row, dx[row][:5])
                require(same_bits(dx[beside], alone), *facts, "bits beside others")


def subnormal():
    """Factors and products below the normal numbers. Their rounding errors must not be multiplied later."""
    f32, rng = np.float32, np.random.default_rng(4)
    cases = [
        ("softmax_backward", f32([0, 1 / 3]), f32([1, 1e-43]), 1e10),
        ("softmax_backward", np.array([0, 1 / 3, 1]), np.array([0.5, 1e-320, 0.5]), 1e10),
        ("log_softmax_backward", f32([1e30, 0]), f32([0, -104]), 1.0),
        ("log_softmax_backward", f32([1e38, 0]), f32([0, -140]), 1.0),
        ("log_softmax_backward", np.array([1e300, 0]), np.array([0, -746.0]), 1.0),
    ]
    for i in range(600):
        dtype, least, most = ((np.float32, -44, 15), (np.float64, -322, 100))[i % 2]
        N = int(rng.choice([1, 2, 5, 8, 17, 33, 70]))
        grad = rng.choice([-1, 1, 0], N) * 10.0 ** rng.uniform(least, rng.choice([least + 10, 0, most]), N)
        scale = float(rng.choice([1.0, -1.0, 0.3, 3.7, 1e3, -1e10, 1e20]))
        if i % 4 < 2:
            output = 10.0 ** rng.uniform(least, 0, N) / N
            if dtype == np.float64:  # below the normal numbers, a float64 sum has only their digits
                grad[0], output[0] = 1e-30, 0.5
            cases.append(("softmax_backward", grad.astype(dtype), output.astype(dtype), scale))
        else:
            output = -rng.choice([1, 100, -2 * least]) * rng.random(N)
            cases.append(("log_softmax_backward", grad.astype(dtype), output.astype(dtype), scale))
    for operation, grad, output, scale in cases:
        dy, y, info = grad.astype(np.longdouble), output.astype(np.longdouble), np.finfo(grad.dtype)
        weight, terms = (y, dy * y) if operation == "softmax_backward" else (np.exp(y), dy)
        exact = scale * (terms - weight * terms.sum())
        size = abs(scale) * np.maximum(abs(terms), weight * abs(terms).sum())
        bound = 5 * info.eps * size + 2 * np.longdouble(info.smallest_subnormal)
        for columns in (False, True):
            pair = [np.tile(a[:, None], 3) if columns else a for a in (grad, output)]
            dx = getattr(ons, operation)(*pair, 0, scale=scale)
            far = abs((dx[:, 1] if columns else dx) - exact) > bound
            far &= abs(exact) < info.max / 2
            require(not far.any(), operation, columns, scale, grad[far], output[far], exact[far])


def guard():
    """Nothing is read or written beyond the arrays."""
    memories = [Guarded(1 << 16) for _ in range(3)]
    for dtype in DTYPES:
        for N in (1, 3, 5, 9, 17, 31, 33, 65, 130, 257, 700, 3001):
            for rows in (1, 2, 3, 7, 20):
                if rows * N * dtype.itemsize > memories[0].bytes:
                    continue
                for at_end in (False, True):
                    for gap in (0, 1):
                        for axis, shape in ((-1, (rows, N)), (0, (N, rows))):
                            grad, output, out = (m.place(shape, dtype, at_end, gap) for m in memories)
                            grad[...] = 1
                            output[...] = 0.5
                            for operation in OPERATIONS:
                                getattr(ons, operation)(grad, output, axis, out=out)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
