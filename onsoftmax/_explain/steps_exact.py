"""The steps of exact: results in double and Ziv's test. A result that is not decided then takes two
doubles.

csrc/api/rounding.h has the same steps. It calculates with two doubles, this file with decimal numbers.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np

from .record import Floats
from .steps import Row, maximum
from .textbook import larger

ERROR = 2.0**-48  # largest relative error of a result in double. docs/how-it-works.md adds it up
FAR_BELOW = 2.0**-1000  # rounds to 0 in every type
# The bits of a significand, the exponent of the least number, the exponent of the least infinite power of 2.
TYPES = {"float32": (24, -149, 128), "float16": (11, -24, 16), "bfloat16": (8, -133, 128)}
# log(1 + s) needs 100 digits for an s of 1e-46. ROUND_05UP never rounds to the middle of two results.
DIGITS = decimal.Context(prec=100, rounding=decimal.ROUND_05UP)


def rounded(value: float | Decimal, to: str) -> float:
    """The nearest number of a type, ties to even. 0 is +0."""
    if not math.isfinite(value):
        return float(value)
    bits, least, infinite = TYPES[to]
    unit = Fraction(2) ** max(math.frexp(value)[1] - bits, least)
    y = float(round(Fraction(value) / unit) * unit)
    return y if abs(y) < 2.0**infinite else math.copysign(math.inf, y)


def _exponential(x: float, m: float) -> float:
    """e^(x - m) in double. What rounding took from x - m is a factor of its own."""
    if not (math.isfinite(x) and math.isfinite(m)):
        return 0.0 if math.isfinite(m) else math.nan
    u = x - m
    return math.exp(u) * (1 + math.fsum((x, -m, -u)))


def _sum(row: Row, m: float) -> tuple[float, float]:
    """d and log(d). Elements that are m are counted, so log(d) has all its digits if d is near 1."""
    count, d, log_d = 0, 0.0, -math.inf
    terms: list[float] = []
    for where in row.tiles():
        read, tile, before = row.read(where, first=where.start == 0), row.wide[where].tolist(), d
        e = tuple(_exponential(x, m) for x in tile)
        count += tile.count(m)
        terms += [each for each, x in zip(e, tile, strict=True) if x != m]
        others = math.fsum(terms)
        d = count + others
        if d != 0:
            log_d = math.log1p(count - 1 + others) if count else math.log(d)
        sums = {"m": m, "d_before": before, "d": d, "log_d": log_d}
        row.add("sum", where, read=read, exponentials=e, added=math.fsum(e), **sums)
    return d, log_d


def _in_double(operation: str, x: float, m: float, d: float, log_d: float) -> tuple[float, float]:
    """A result in double, and its largest error."""
    if operation == "softmax":
        size = y = _exponential(x, m) / d
    elif operation == "log_softmax":
        u = x - m
        y = u - log_d + (math.fsum((x, -m, -u)) if math.isfinite(u) else 0.0)
        size = abs(y)
    else:
        y = m + log_d if math.isfinite(m) else m
        size = abs(y) + log_d
    return y, max(ERROR * size, FAR_BELOW)


def _write(row: Row, where: slice, y: float) -> Floats:
    return row.write(where if len(row.result) > 1 else slice(0, 1), np.array([y]).astype(row.x.dtype))


def _decide(row: Row, m: float, undecided: list[slice]) -> None:
    """Adds the row up in two doubles, and finds the results that a double does not decide."""

    def as_two(value: Decimal) -> Floats:
        return float(value), float(value - Decimal(float(value)))

    with decimal.localcontext(DIGITS):
        whole, least = slice(0, len(row.x)), Decimal(FAR_BELOW)
        read = row.read(whole, first=True)
        # a tiny term only shows on which side a sum lies, and 2^-1000 shows it too
        terms = (max((Decimal(x) - Decimal(m)).exp(), least) for x in read if math.isfinite(x))
        d = sum(terms, Decimal(0))
        row.add("two_sum", whole, read=read, m=m, d=float(d), two_doubles=as_two(d))
        for where in undecided:
            x = Decimal(float(row.wide[where.start])) - Decimal(m)
            if row.operation == "softmax":
                y = x.exp() / d
            else:
                y = Decimal(m) + d.ln() if row.operation == "logsumexp" else x - d.ln()
            written = _write(row, where, rounded(y, row.x.dtype.name))
            row.add("two_doubles", where, written=written, two_doubles=as_two(y))


def exact(row: Row) -> None:
    row.compute = np.dtype(np.float64)
    maximum(row)
    m = larger(row.wide)
    d, log_d = _sum(row, m)
    kind = {"softmax": "divide", "log_softmax": "subtract", "logsumexp": "value"}[row.operation]
    undecided = []
    for j in range(len(row.result)):
        where = slice(0, len(row.x)) if kind == "value" else slice(j, j + 1)
        read = () if kind == "value" else row.read(where, first=j == 0)
        y, error = _in_double(row.operation, float(row.wide[j]), m, d, log_d)
        interval = (y - error, y + error) if math.isfinite(y) else (y, y)
        ends = tuple(rounded(end, row.x.dtype.name) for end in interval)
        decided = ends[0] == ends[1] or math.isnan(y)
        if not decided:
            undecided.append(where)
        row.add(
            kind,
            where,
            read=read,
            written=_write(row, where, ends[0]) if decided else (),
            m=m,
            d=d,
            log_d=None if kind == "divide" else log_d,
            exponentials=(_exponential(float(row.wide[j]), m),) if kind == "divide" else (),
            exact=(float(row.exact[j]),),
            in_double=y,
            interval=interval,
            ends=ends,
        )
    if undecided:
        _decide(row, m, undecided)
