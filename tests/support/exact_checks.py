"""Checks of method="exact" for one instruction set, against mpmath. They run in their own interpreter with
ONSOFTMAX_ISA set.

python exact_checks.py random near ties layouts
"""

from __future__ import annotations

import sys

import mpmath
import numpy as np
import oracle
from isa_checks import require
from mpmath import mpf
from support import BFLOAT16, DTYPES, NARROW_DTYPES, lay_out, same_bits

import onsoftmax as ons

mpmath.mp.prec = 1500
TYPES = [t for t in DTYPES if t != np.float64]
BITS = {"float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}  # and the least exponent

# x of rows [0, x] whose softmax, log_softmax and logsumexp lie within 2^-53 to 2^-48 of the middle of two
# floats, relative to it. One float of 2^24 does.
NEAR = {
    "softmax": "-0x1.2082ep-3 -0x1.32c9ap-1 -0x1.46c7e8p-4 -0x1.c9bb96p+3 -0x1.caa048p-5 -0x1.acf776p-5",
    "log_softmax": "-0x1.47f11p+2 -0x1.afed68p+0 -0x1.da3da2p+1 -0x1.a0420ep-3 -0x1.8a1536p-7 -0x1.ab282p-4",
    "logsumexp": "-0x1.c4490ap-2 -0x1.c0c966p-3 -0x1.53441p-1 -0x1.2ab37ep+3 -0x1.605a5ap-2 -0x1.ab282p-4",
}


def rounded(value, dtype):
    """An mpf rounded to nearest, ties to even."""
    bits, least = BITS[np.dtype(dtype).name]
    if value == 0 or mpmath.isinf(value):
        return float(value)
    unit = max(mpmath.frexp(abs(value))[1] - bits, least)
    number = mpmath.nint(value / mpf(2) ** unit)  # halves to even
    overflow = 2 ** (16 if dtype == np.float16 else 128)
    return (
        float(number * mpf(2) ** unit) if abs(number) * mpf(2) ** unit < overflow else float(value) * np.inf
    )


def exact(row, dtype):
    """The results of one row, rounded once: softmax, log_softmax, logsumexp."""
    x = [mpf(float(v)) for v in row]
    m = max(x)
    e = [mpmath.exp(v - m) if v - m > -800 else mpf(0) for v in x]
    log = mpmath.log(mpmath.fsum(e))
    return (
        [rounded(v / mpmath.fsum(e), dtype) for v in e],
        [rounded(v - m - log, dtype) for v in x],
        rounded(m + log, dtype),
    )


def check_row(row, dtype):
    softmax, log_softmax, _ = exact(row, dtype)
    facts = (row.dtype, dtype, len(row), row[:6].tolist())
    y = ons.softmax(row, method="exact", dtype=dtype)
    require(y.dtype == dtype and y.astype(float).tolist() == softmax, "softmax", *facts, y[:6].tolist())
    logs = ons.log_softmax(row, method="exact", dtype=dtype)
    require(logs.astype(float).tolist() == log_softmax, "log_softmax", *facts, logs[:6].tolist())
    require(not np.signbit(logs[logs == 0]).any(), "-0", *facts)
    value = ons.logsumexp(row, method="exact")
    require(float(value) == exact(row, row.dtype)[2], "logsumexp", *facts, value)


def row_of(kind, n, rng):
    spread, offset = 10 ** rng.uniform(-4, 1.5), rng.choice([0, 0, 1, -3, 100, 1e4, -1e6, 3e9])
    if kind == "normal":
        return offset + spread * rng.standard_normal(n)
    if kind == "integers":
        return offset + rng.integers(-4, 4, n)
    if kind == "equal":
        return np.full(n, offset)
    if kind == "one far above":
        return np.r_[offset, offset - rng.uniform(20, 100, n - 1)]
    if kind == "odd":
        return np.r_[1, rng.choice([0, -40, -100, -104, 1e-40, -3.5, -np.inf], n - 1)]
    if kind == "powers":
        return offset + 2.0 ** rng.uniform(-30, 6, n) * rng.choice([-1, 1], n)
    return offset - rng.choice([0, 30, 200], n) + rng.choice([0, 2.0**-10], n)


def random():
    rng = np.random.default_rng(5)
    kinds = ["normal", "integers", "equal", "one far above", "odd", "powers", "steps"]
    for turn in range(252):
        n = int(rng.choice([1, 2, 3, 5, 8, 15, 16, 17, 33, 70]))
        row, dtype = row_of(kinds[turn % len(kinds)], n, rng), TYPES[turn % len(TYPES)]
        x = np.clip(row, -6e4, 6e4).astype(dtype) if dtype == np.float16 else row.astype(dtype)
        check_row(x, TYPES[int(rng.integers(len(TYPES)))])


def near():
    """Results that one double cannot decide, also in long rows, in place and by top-k."""
    for function, places in NEAR.items():
        for place in places.split():
            row = np.array([0, float.fromhex(place)], np.float32)
            check_row(row, np.float32)
            for n in (100, 2048, 2049, 70000):
                for at in (0, 1, n - 2) if n < 70000 else (n - 2,):
                    x = np.full((3, n), -np.inf, np.float32)
                    x[1, at : at + 2], x[::2] = row, 0
                    wanted = getattr(ons, function)(row, method="exact")
                    y = getattr(ons, function)(x, method="exact")
                    require(
                        same_bits(y[1] if function == "logsumexp" else y[1, at : at + 2], wanted), place, n
                    )
                    if function == "logsumexp":
                        continue
                    values = ons.softmax_topk(x, 2, log=function == "log_softmax", method="exact").values[1]
                    require(same_bits(values, wanted), "top-k", place, n)
                    getattr(ons, function)(x, method="exact", out=x)
                    require(same_bits(x, y), "in place", place, n)
    # numbers below the normal ones, which a float rounds to the middle of two
    first, last = (int(np.float32(x).view(np.uint32)) for x in (-91, -92.5))
    x = np.arange(first, last, dtype=np.uint32).view(np.float32)
    e = np.exp(x.astype(np.longdouble))
    y = ons.softmax(np.stack([np.zeros_like(x), x], 1), method="exact", dtype=BFLOAT16)[:, 1]
    require((y.astype(float) == np.rint(e / (1 + e) * 2.0**133) * 2.0**-133).all(), "subnormal")
    for dtype in NARROW_DTYPES:
        x = np.arange(2**15, dtype=np.uint16).view(dtype)
        x = x[np.isfinite(x.astype(float))][::97]
        for other in x[x.astype(float) < 700]:
            check_row(np.array([0, -other], dtype), dtype)


def ties():
    """x - m lies in the middle of two results. Others decide, however small their exponentials are."""
    for m, x, others, dtype, wanted in (
        (0, -4970, (), np.float16, -4972),
        (0, -4966, (), np.float16, -4968),
        (0, -4966, (-3e38,), np.float16, -4968),
        (2000, 2000 - 4970, (-np.inf,), np.float16, -4972),
        (0, -257, (), BFLOAT16, -258),
        (0, -2049, (), np.float16, -2050),
        (0, -2053, (-70, -2000), np.float16, -2054),
    ):
        if dtype is not None:
            row = np.array([x, m, *others], np.float32)
            require(ons.log_softmax(row, method="exact", dtype=dtype)[0] == wanted, m, x, others, dtype)
    # without others it is a tie, to even
    row = np.array([-np.inf, 2053], np.float32)
    require(ons.log_softmax(row, method="exact", dtype=np.float16)[1] == 0, "alone")


def layouts():
    """The bits of a row do not show the array around it, nor threads, nor the place of the result."""
    rng = np.random.default_rng(6)
    for dtype in TYPES:
        for n in (1, 7, 64, 300, 2048, 2049, 5000):
            x = (3 * rng.standard_normal((4, n))).astype(dtype)
            mask = rng.random((4, n)) < 0.7
            mask[:, 0] = True
            for function in (ons.softmax, ons.log_softmax, ons.logsumexp):
                shape = np.shape(function(x))
                alone = np.stack([function(row, method="exact") for row in x])
                for options in ({}, {"permutation": (1, 0)}, {"steps": (-1, 2)}, {"byte_offset": 1}):
                    y = function(lay_out(x, **options), method="exact", num_threads=2)
                    require(same_bits(y, alone), function, dtype, n, options)
                y = function(x.T.copy(), 0, method="exact")
                require(same_bits(y.T, alone), function, dtype, n, "axis 0")
                y = function(x.reshape(2, 2, n).transpose(2, 0, 1), 0, method="exact")
                require(same_bits(y.reshape(*shape[::-1]).T, alone), function, dtype, n, "axis 0 of 3")
                masked = np.where(mask, x, -np.inf).astype(dtype)
                y, expected = function(x, where=mask, method="exact"), function(masked, method="exact")
                require(same_bits(y, expected), function, dtype, n, "where")
                product = oracle.product(x, 0.7, np.float32)
                y = function(x.astype(np.float32), scale=0.7, method="exact")
                require(same_bits(y, function(product, method="exact")), function, dtype, n, "scale")


if __name__ == "__main__":
    for check in sys.argv[1:]:
        globals()[check]()
