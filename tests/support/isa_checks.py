"""Checks for one instruction set. They run in their own interpreter with ONSOFTMAX_ISA set.

python isa_checks.py lengths places guard large strips numerics narrow scales
"""

from __future__ import annotations

import itertools
import sys

import numpy as np
import oracle
from support import DTYPES, METHODS, NARROW_DTYPES, STABLE_METHODS, Guarded, bits, same_bits

import onsoftmax as ons

AROUND = [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 383, 384, 385]
TILES = [511, 512, 513, 1023, 1025, 2047, 2048, 2049, 2048 + 256, 4095, 4096, 4097, 2 * 4096 + 129]


def require(holds, *facts):
    if not holds:
        raise AssertionError(" ".join(map(str, facts)))


def check_result(y, x, axis, method, facts):
    """y is the softmax of x by this method. naive works in the array's own type and may lose what its sum
    loses."""
    if method != "naive":
        wrong = oracle.wrong_places(y, oracle.softmax(x, axis), oracle.compute_type(x.dtype))
        require(not wrong.any(), *facts, "wrong at", np.argwhere(wrong)[:5].tolist())
        return
    expected = oracle.naive(x, axis).astype(np.longdouble)
    with np.errstate(invalid="ignore"):
        far = np.abs(y.astype(np.longdouble) - expected) > 8 * oracle.ulp(expected, x.dtype)
    require(not far.any(), *facts, "wrong at", np.argwhere(far)[:5].tolist())


def check_methods(x, axis, facts):
    """`auto` has the bits of every method but naive, and is right. naive's result is checked too."""
    auto, naive = (ons.softmax(x, axis, method=method) for method in ("auto", "naive"))
    check_result(auto, x, axis, "auto", ("auto", x.dtype, *facts))
    check_result(naive, x, axis, "naive", ("naive", x.dtype, *facts))
    for method in STABLE_METHODS:
        y = ons.softmax(x, axis, method=method)
        require(same_bits(y, auto), method, x.dtype, *facts, "bits")
    return auto, naive


def logits(rng, shape, dtype, scale=2.0):
    return (scale * rng.standard_normal(shape)).clip(-8, 8).astype(np.float32).astype(dtype)


def lengths():
    """Every method and type, N from 1 to 200 and around every block and tile, along the last and other
    axes."""
    rng = np.random.default_rng(1)
    for dtype in DTYPES:
        for N in sorted({*range(1, 200), *AROUND, *TILES}):
            rows = logits(rng, (3, N), dtype)
            columns = np.ascontiguousarray(rows.T)
            auto, naive = check_methods(rows, -1, ("N =", N))
            for method in [*METHODS, "auto"]:
                y = ons.softmax(columns, 0, method=method).T.copy()
                wanted = naive if method == "naive" else auto
                require(same_bits(y, wanted), method, dtype, "N =", N, "column form")
    for N, width in [(5, 1), (300, 15), (257, 16), (40, 127), (40, 128), (33, 129), (12, 300), (515, 37)]:
        for dtype in DTYPES:
            check_methods(logits(rng, (2, N, width), dtype), 1, (N, width))


def places():
    """Rows longer than a block of split have the same bits at any place, with any number of threads."""
    rng = np.random.default_rng(2)
    for dtype in DTYPES:
        for N in (32767, 32768, 32769, 3 * 32768 + 5):
            row = logits(rng, N, dtype, 3.0)
            exact = oracle.softmax(row)
            results = [ons.softmax(row, method=m, num_threads=t) for m in STABLE_METHODS for t in (1, 2, 3)]
            wrong = oracle.wrong_places(results[0], exact, oracle.compute_type(dtype))
            require(not wrong.any(), "split", dtype, N)
            require(all(same_bits(y, results[0]) for y in results), "methods or threads differ", dtype, N)
            naive = [ons.softmax(row, method="naive", num_threads=t) for t in (1, 3)]
            require(same_bits(*naive), "naive: threads differ", dtype, N)


def guard():
    """Nothing beyond the arrays is touched. Both ends of rows and columns lie at pages that fault, aligned
    and unaligned. The pages of the input and the mask are read-only."""
    rng = np.random.default_rng(3)
    inputs, masks, outputs = Guarded(1 << 16), Guarded(1 << 14), Guarded(1 << 16)
    shapes = [((1, N), -1) for N in (*range(1, 70), 127, 128, 129, 255, 256, 257, 300, 2048, 2049)]
    shapes += [((3, N), -1) for N in (5, 17, 33)]
    shapes += [((N, width), 0) for N in (1, 3, 65) for width in (1, 5, 16, 17, 33)]
    for dtype in DTYPES:
        for shape, axis in shapes:
            values, mask = logits(rng, shape, dtype), rng.random(shape) < 0.7
            expected = {m: ons.softmax(values, axis, method=m) for m in METHODS}
            masked = {m: ons.softmax(values, axis, method=m, where=mask) for m in METHODS}
            for at_end, gap in ((True, 0), (True, 1), (False, 0), (False, 1), (False, dtype.itemsize)):
                for guarded in (inputs, masks):
                    guarded.set_readonly(False)
                x = inputs.place(shape, dtype, at_end, gap)
                where = masks.place(shape, bool, at_end)
                x[...], where[...] = values, mask
                for guarded in (inputs, masks):
                    guarded.set_readonly(True)
                y = outputs.place(shape, dtype, at_end, gap)
                for method in METHODS:
                    for given, wanted in ((None, expected), (where, masked)):
                        outputs.memory[:] = 0xA5
                        ons.softmax(x, axis, method=method, out=y, where=given)
                        facts = (method, dtype, shape, axis, "at end" if at_end else "at start", gap)
                        require(same_bits(y, wanted[method]), *facts)
                        y.view(np.uint8)[...] = 0xA5
                        require((outputs.memory == 0xA5).all(), *facts, "wrote beyond out")


LINES = [(False, 16), (False, 32), (False, 56)]  # other places of a cache line


def large():
    """Results that are large enough to go past the caches have the bits of small results, wherever out
    begins, some in place. No byte beyond out is written."""
    rng = np.random.default_rng(6)
    outputs, turn = Guarded(10 << 20), itertools.count()
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        for N in (1000, 64, 37, 128, 320, 344, 5000):
            block = logits(rng, (8, N), dtype, 3.0)
            x = np.tile(block, ((9 << 20) // block.nbytes + 1, 1))
            expected = ons.softmax(block, method="fused")
            for at_end, gap in ((True, 0), (True, 1), (False, dtype.itemsize), (False, 3), *LINES):
                y = outputs.place(x.shape, dtype, at_end, gap)
                outputs.memory[:4096] = outputs.memory[-4096:] = 0xA5
                in_place = next(turn) % 2 == 1
                if in_place:
                    y[...] = x
                ons.softmax(y if in_place else x, method="fused", out=y, num_threads=2)
                right = bits(y).reshape(-1, *block.shape) == bits(expected)
                require(right.all(), dtype, N, at_end, gap, in_place, "large result")
                if gap:
                    rest = outputs.memory[-gap:] if at_end else outputs.memory[:gap]
                    require((rest == 0xA5).all(), dtype, N, at_end, gap, in_place, "wrote beyond out")


def strips():
    """Columns in strips, in the caches and past them. Each has the bits that it has as a row: wherever out
    begins, on several threads, in place, and beside columns that are NaN, far or empty. No byte beyond out is
    written."""
    rng = np.random.default_rng(7)
    outputs, turn = Guarded(24 << 20), itertools.count()
    shapes = [(1, 3, 7), (5, 70, 300), (3, 300, 64), (2, 257, 1040), (1, 2100, 100)]
    shapes += [(1, 700, 2048), (9, 1000, 128), (130, 130, 80), (2, 1000, 601), (1, 40, 30000)]
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        for shape in shapes:
            x = logits(rng, shape, dtype, 3.0)
            for column, value in ((1, np.nan), (3, np.inf), (4, -np.inf)):
                x[0, shape[1] // 2, column] = value
            x[0, :, 2], x[-1, :, 5], x[-1, :, 6] = -np.inf, x[-1, :, 5] + dtype.type(1e6), -3e5
            rows = np.ascontiguousarray(x.swapaxes(1, 2))
            expected = ons.softmax(rows, method="online").swapaxes(1, 2).copy()
            for at_end, gap in ((True, 0), (False, 0), (True, 1), (False, dtype.itemsize), (False, 16)):
                y = outputs.place(shape, dtype, at_end, gap)
                outputs.memory[:4096] = outputs.memory[-4096:] = 0xA5
                threads, in_place = ((1, False), (3, False), (1, True), (3, True))[next(turn) % 4]
                y[...] = x if in_place else 7
                ons.softmax(y if in_place else x, 1, method="fused", out=y, num_threads=threads)
                facts = (dtype, shape, at_end, gap, threads, in_place)
                require(same_bits(y.copy(), expected), *facts, "strips")
                if gap:
                    rest = outputs.memory[-gap:] if at_end else outputs.memory[:gap]
                    require((rest == 0xA5).all(), *facts, "wrote beyond out")


def numerics():
    """The contract's largest and mean error, by every method but naive."""
    rng = np.random.default_rng(4)
    for dtype in (np.float32, np.float64):
        for N in (6, 1000, 4097, 50257, 1 << 20):
            # one large row has the errors of a thousand small rows
            rows = max(1, min(2000, 20000 // N))
            several = [(10, 0), (1, 1000), (30, -333.3), (1, 0), (3, -1000), (10, 777.7), (30, 1000)]
            for scale, offset in several[:1] if N == 1 << 20 else several:
                x = (scale * rng.standard_normal((rows, N)) + offset).astype(dtype)
                exact = oracle.softmax(x)
                first = None
                for method in STABLE_METHODS:
                    y = ons.softmax(x, method=method)
                    facts = (method, np.dtype(dtype), "N =", N, "scale", scale, "offset", offset)
                    if first is not None:
                        require(same_bits(y, first), *facts, "another method has other bits")
                        continue
                    first, error = y, oracle.errors(y, exact)
                    require(error.max() <= 4, *facts, "largest error", error.max(), "eps")
                    require(error.mean() <= 1, *facts, "mean error", error.mean(), "eps")
                    wrong = oracle.wrong_places(y, exact, dtype)
                    require(not wrong.any(), *facts, "wrong at", np.argwhere(wrong)[:5].tolist())


def narrow():
    """16-bit results are the float32 results rounded to nearest even, in every layout."""
    rng = np.random.default_rng(5)
    for dtype in NARROW_DTYPES:
        every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
        finite = every[np.isfinite(every.astype(np.float32))]
        ordinary, mixed = logits(rng, (50, 700), dtype, 5.0), rng.permutation(finite)[:8000]
        for x in (finite, finite.reshape(-1, 2), ordinary, mixed):
            for layout in (x, x.reshape(x.shape[::-1]).T, np.repeat(x, 2, axis=-1)[..., ::2]):
                wide = ons.softmax(layout.astype(np.float32), method="safe")
                for method in STABLE_METHODS:
                    y = ons.softmax(layout, method=method)
                    require(same_bits(y, wide.astype(dtype)), method, dtype, layout.shape, layout.strides)
                    wide_out = ons.softmax(layout, method=method, dtype=np.float32)
                    require(same_bits(wide_out, wide), method, dtype, "dtype=float32")
                wrong = oracle.wrong_places(y, oracle.softmax(layout), np.float32)
                require(not wrong.any(), dtype, layout.shape, "wrong at", np.argwhere(wrong)[:5].tolist())


def scales():
    """A scale gives the bits of products that were rounded once before. Some scales are decimals, whose
    products lie near the middle of two floats. Others have 25 or 26 bits, or are too large or too small for
    float32. The elements include zeros, inf and NaN."""
    rng = np.random.default_rng(7)
    odd = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3e-39, 1e38, 5, -40], np.float32)
    halves = (10 * np.arange(1, 400)).astype(np.float32)
    ordinary = logits(rng, 4000, np.float32, 3.0)
    values = np.concatenate([rng.permutation(np.concatenate([ordinary, halves, odd])), odd])
    scales = [
        0.7,
        -0.7,
        1 / 3,
        0.1,
        1e-3,
        1 + 2**-24,
        1 + 2**-25,
        1 + 2**-26,
        3 * (1 + 2**-40),
        2.0**-140,
        0.7e-40,
    ]
    scales += [0.7e-300, 0.7e37, 0.7e39, 1e300, 5e-324, np.inf, np.nan, 0.5, 1e-45]
    for N in (1, 3, 10, 17, 32, 48, 64, 100, 333, 1000, 4419):
        for dtype in (np.float32, *NARROW_DTYPES):
            x = values[: len(values) // N * N].reshape(-1, N)
            with np.errstate(over="ignore"):
                x = x.astype(dtype)
            where = rng.random(x.shape) < 0.8
            for scale in scales:
                before = oracle.product(x, scale, np.float32)
                for masked in (None, where):
                    y = ons.softmax(x, scale=scale, where=masked, dtype=np.float32)
                    expected = ons.softmax(before, where=masked)
                    require(same_bits(y, expected), dtype, "N =", N, "scale", scale, masked is not None)


CHECKS = {
    check.__name__: check for check in (lengths, places, guard, large, strips, numerics, narrow, scales)
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        CHECKS[name]()
        print(ons._core.config()["isa"], name, "passed")
