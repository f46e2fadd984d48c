"""The checks of softmax_topk for one instruction set. They run in their own interpreter with
ONSOFTMAX_ISA set.

python topk_checks.py lengths many rows places masks edges guard
"""

from __future__ import annotations

import itertools
import sys

import numpy as np
import oracle
from isa_checks import logits, require
from support import BFLOAT16, DTYPES, Guarded, bits, lay_out, same_bits

import onsoftmax as ons

METHODS = [cost.method for cost in ons.plan((9, 9), operation="softmax_topk", k=1).others if not cost.cannot]


def check(x, k, axis, facts, log=False, dtype=None, **options):
    """Every method gives exactly the k largest, in order, with the bits of softmax by method online, or
    by exact for exact."""
    compute = oracle.compute_type(x.dtype, x.dtype if dtype is None else dtype)
    places = oracle.topk(x, k, axis, compute=compute, **options)
    for method in METHODS:
        if method == "exact" and compute == np.float64:
            continue
        like = method if method == "exact" else "online"
        whole = (ons.log_softmax if log else ons.softmax)(x, axis, method=like, dtype=dtype, **options)
        values = np.take_along_axis(whole, places, axis)
        got = ons.softmax_topk(x, k, axis, log=log, dtype=dtype, method=method, **options)
        facts = (*facts, x.dtype, x.shape, axis, "k =", k, method, log, list(options))
        require(got.indices.dtype == np.int64, *facts, got.indices.dtype)
        wrong = np.argwhere(got.indices != places)
        require(wrong.size == 0, *facts, "places wrong at", wrong[:5].tolist())
        require(same_bits(got.values, values), *facts, "values")
        some = ons.softmax_topk(x, k, axis, log=log, dtype=dtype, method=method, sorted=False, **options)
        order = np.argsort(some.indices, axis)
        sorted_places = np.sort(places, axis)
        require((np.take_along_axis(some.indices, order, axis) == sorted_places).all(), *facts, "unsorted")
        values_there = np.take_along_axis(whole, sorted_places, axis)
        require(same_bits(np.take_along_axis(some.values, order, axis), values_there), *facts, "unsorted")


def lengths():
    """Rows around vectors, groups and tiles, and k around the limits for sorting, counting and merging. Two
    of the types take turns."""
    rng, turn = np.random.default_rng(1), itertools.count()
    for dtype in DTYPES:
        for N in (1, 2, 3, 7, 16, 31, 33, 64, 65, 127, 129, 255, 257, 300, 512, 513, 2047, 2049, 5000):
            for k in sorted({1, 2, 8, 9, 16, 17, 31, 64, 65, 128, 129, N // 2, N - 33, N - 1, N}):
                if not 1 <= k <= N or next(turn) % 2:
                    continue
                x = logits(rng, (3, N), dtype)
                check(x, k, -1, ("row",))
                if k < 66 or N < 300:
                    check(np.ascontiguousarray(np.repeat(x, 3, 0).T), k, 0, ("column",))
    for dtype in (np.float32, np.float64):
        check(logits(rng, (1, 70_000), dtype), 50, -1, ("long",))
        check(logits(rng, (1, 70_000), dtype), 3000, -1, ("long",))
        check(logits(rng, (3000, 2), dtype), 20, 0, ("two columns",))
        check(logits(rng, (700, 140), dtype), 9, 0, ("columns",))
        check(logits(rng, (20, 8, 33), dtype), 3, 1, ("middle",))


def many():
    """Rows of different kinds that are worked on side by side."""
    rng = np.random.default_rng(5)
    for dtype in DTYPES:
        for N in (20, 33, 64, 128, 200, 600):
            x = logits(rng, (37, N), dtype)
            x[3, 5], x[4, 6], x[5], x[6, 3:], x[7] = np.nan, np.inf, -np.inf, -np.inf, 1
            x[8:12] = np.round(x[8:12].astype(np.float64)).astype(dtype)
            x[12], x[13] = np.sort(x[12]), np.sort(x[13])[::-1]
            x[14], x[15, : N // 2] = np.nan, np.nan
            x[16] = np.where(rng.random(N) < 0.5, 0.0, -0.0)
            for k in (1, 7, 8, 9, 16, 17, 20):
                check(x, k, -1, ("many",))
            check(x, 8, -1, ("masked",), where=rng.random(x.shape) < 0.3)


def rows():
    """Rows with many candidates: rising, falling, equal, with few values, or with few finite values."""
    rng = np.random.default_rng(2)
    for dtype in DTYPES:
        long = [(70_000, 60)] if dtype in (np.float32, np.float64) else []  # two blocks and a part of one
        for N, k in ((100, 7), (5000, 1), (5000, 60), (5000, 600), (9000, 2100), *long):
            x = logits(rng, (2, N), dtype).astype(np.float64)
            steps = np.arange(N) // 1000
            with_infinity = np.where(rng.random((2, N)) < 0.97, -np.inf, x)
            kinds = {
                "rising": np.sort(x),
                "falling": -np.sort(-x),
                "equal": np.ones((2, N)),
                "few values": np.round(x),
                "zeros": np.where(rng.random((2, N)) < 0.5, 0.0, -0.0),
                "steps": steps + x / 100,
                "few finite": with_infinity,
                "late": np.where(np.arange(N) < N - k // 2, -np.inf, x),
                "nothing": np.full((2, N), -np.inf),
                "NaN": np.where(rng.random((2, N)) < 0.5, np.nan, x),
                "few NaN": np.where(np.arange(N) % 997 == 3, np.nan, x),
                "inf": np.where(np.arange(N) % 997 == 3, np.inf, x),
                "all NaN": np.full((2, N), np.nan),
            }
            for name, row in kinds.items():
                check(row.astype(dtype), k, -1, (name,))
            check(
                np.ascontiguousarray(kinds["rising"].astype(dtype).T).repeat(5, 1), k, 0, ("rising columns",)
            )
        if dtype in (np.float32, np.float64):
            for far in (30_000, -30_000, 3e37):  # the library anchors such rows at their largest element
                check(logits(rng, (3, 3000), dtype) * dtype.type(10) + dtype.type(far), 40, -1, ("far", far))
            apart = logits(rng, (2, 300), dtype)
            apart[:, 0] = 3e38
            apart[:, 1] = -3e38
            check(apart, 300, -1, ("far apart",), log=True)


def places():
    """Strides, alignment, byte order, masks, scales, axes, mixed types."""
    rng = np.random.default_rng(3)
    for t, dtype in enumerate(DTYPES):
        for shape in ((5, 33), (9, 300), (3, 2100)):
            x = logits(rng, shape, dtype)
            where = rng.random(shape) < 0.5
            where[0], where[1, 3:] = False, False
            scales = rng.standard_normal((shape[0], 1))
            for options in ({}, {"where": where}, {"scale": -0.3}, {"scale": scales, "where": where}):
                for log in (False, True):
                    check(x, 6, -1, ("plain",), log=log, **options)
                plain = ons.softmax_topk(x, 6, **options)
                excluded = ~np.take_along_axis(
                    np.broadcast_to(options.get("where", True), shape), plain[1], 1
                )
                require((plain.values[excluded] == 0).all(), dtype, shape, "excluded")
                columns = {name: np.transpose(v) if np.ndim(v) else v for name, v in options.items()}
                check(np.ascontiguousarray(x.T), 6, 0, ("columns",), **columns)
                for laid in (
                    lay_out(x, (1, 0), byte_offset=1),
                    lay_out(x, None, (-1, 2), byte_offset=3),
                    lay_out(x, swapped=dtype != BFLOAT16),
                ):
                    got = ons.softmax_topk(laid, 6, **options)
                    require(same_bits(got.values, plain.values), dtype, shape, "laid out")
                    require((got.indices == plain.indices).all(), dtype, shape, "laid out")
        check(logits(rng, (4, 50), dtype), 7, -1, ("mixed",), dtype=DTYPES[(t + 1) % len(DTYPES)])
        for axis in range(3):
            check(logits(rng, (4, 5, 6), dtype), 2, axis, ("axis",))


def masks():
    """Allowed elements come first even if they are -inf, whatever is at excluded places."""
    rng = np.random.default_rng(6)
    for dtype in DTYPES:
        each_k = {1: [1], 7: [3, 7], 40: [1, 20, 40], 300: [9, 300], 9000: [60, 9000]}
        if dtype in (np.float32, np.float64):
            each_k[70_000] = [1, 300]  # two blocks and a part of one
        for N, all_k in each_k.items():
            x = logits(rng, (6, N), dtype)
            where = rng.random(x.shape) < 0.5
            x[rng.random(x.shape) < 0.6] = -np.inf
            x[0, 1:], where[1], x[2] = -np.inf, False, -np.inf
            where[3, : N - N // 3] = False  # allowed elements are far from the first elements
            x[3, N // 2 :] = -np.inf
            x[4, where[4]] = np.where(rng.random(where[4].sum()) < 0.3, np.nan, -np.inf)
            if dtype in (np.float32, np.float64):
                x[5] += 40_000
            x[~where & (rng.random(x.shape) < 0.5)] = np.nan
            x[~where & (rng.random(x.shape) < 0.3)] = np.inf
            for k in all_k:
                check(x, k, -1, ("masked",), where=where)
                check(x, k, -1, ("masked",), where=where[:1], log=True, scale=0.5)
                columns = np.ascontiguousarray(x.T), np.ascontiguousarray(where.T)
                check(columns[0], k, 0, ("masked columns",), where=columns[1])
                check(x[::2, ::-1], k, -1, ("masked backwards",), where=where[::2, ::-1])
                check(x, k, -1, ("a mask a row",), where=where[:, :1])


def edges():
    """The pairs are normalizer's pairs. A row depends neither on other rows nor on the threads."""
    rng = np.random.default_rng(4)
    for dtype in DTYPES:
        x = logits(rng, (7, 3000), dtype)
        x[1, 5], x[2], x[3, 7] = np.nan, -np.inf, np.inf
        if dtype in (np.float32, np.float64):
            x[4] += 40_000
        for axis, array in ((-1, x), (0, np.ascontiguousarray(x.T))):
            got = ons.softmax_topk(array, 4, axis, return_normalizer=True)
            whole = ons.normalizer(array, axis)
            require(same_bits(got.normalizer.packed, whole.packed), dtype, axis, "pairs")
        for threads in (1, 2, 3, 8):
            again = ons.softmax_topk(x, 4, num_threads=threads)
            require((again.indices == ons.softmax_topk(x, 4).indices).all(), dtype, threads, "threads")
        for i in range(7):
            alone, all_rows = ons.softmax_topk(x[i], 40), ons.softmax_topk(x, 40)
            require((alone.indices == all_rows.indices[i]).all(), dtype, "alone")
            require(same_bits(alone.values, all_rows.values[i]), dtype, "alone")
        for shape, axis in (((0, 3), 1), ((3, 0, 4), 2)):
            values, indices = ons.softmax_topk(np.zeros(shape, dtype), 2, axis)
            require(values.shape == indices.shape == (*shape[:-1], 2) and values.dtype == dtype, "empty")


def guard():
    """Nothing is read beyond the array."""
    memory = Guarded(1 << 16)
    for dtype in DTYPES:
        for N in (1, 3, 9, 17, 31, 33, 65, 130, 257, 700, 3001):
            for count in (1, 2, 7, 20):
                if count * N * dtype.itemsize > memory.bytes:
                    continue
                for at_end in (False, True):
                    for axis, shape in ((-1, (count, N)), (0, (N, count))):
                        x = memory.place(shape, dtype, at_end)
                        bits(x)[...] = 0
                        ons.softmax_topk(x, min(N, 9), axis)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
