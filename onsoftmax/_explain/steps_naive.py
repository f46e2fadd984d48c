"""The steps of naive, which has no pair. It overflows where the row's own type overflows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .steps import Row, floats
from .textbook import Array


def _largest(dtype: np.dtype[Any]) -> float:
    """The largest number of a type. bfloat16 is no NumPy type."""
    return float(np.finfo(dtype).max) if dtype.kind == "f" else (2 - 2.0**-7) * 2.0**127


def _overflow(row: Row, where: slice, e: Array, d: float, before: float) -> str:
    """Says which number left the row's type first, if one did in this step."""
    limit = f"{_largest(row.x.dtype):.5g}, the largest {row.x.dtype.name}"
    for x, value in zip(row.wide[where], e, strict=True):
        if math.isinf(float(value)) and math.isfinite(x):
            with np.errstate(over="ignore"):
                return f"exp({x:g}) = {float(np.exp(x)):.2f} is above {limit}: inf"
    if math.isinf(d) and math.isfinite(before) and not np.isinf(e).any():
        return f"the sum is above {limit}: inf"
    return ""


def naive(row: Row) -> None:
    """Algorithm 1: exp, sum, divide or subtract a logarithm, each rounded to the row's own type. It has no
    pair."""
    own = row.x.dtype
    total = 0.0

    def exp(where: slice) -> Array:
        return np.asarray(np.exp(row.x[where].astype(row.compute)).astype(own))

    with np.errstate(all="ignore"):
        for where in row.tiles():
            read = row.read(where, first=where.start == 0)
            e, before = exp(where), float(own.type(total))
            added = float(e.astype(np.float64).sum())
            total += added
            exact, d = np.exp(row.wide[where]), float(own.type(total))
            row.add(
                "sum",
                where,
                read=read,
                d_before=before,
                d=d,
                exponentials=floats(e),
                added=added,
                exact_d=float(np.exp(row.wide[: where.stop]).sum()),
                exact=floats(exact),
                note=_overflow(row, where, e, d, before),
            )
        d = own.type(total)
        log_d = own.type(np.log(row.compute.type(d)))
        if row.operation == "logsumexp":
            written = row.write(slice(0, 1), np.array([log_d]))
            sums: dict[str, Any] = {"d": float(d), "log_d": float(log_d)}
            row.add("value", slice(0, len(row.x)), written=written, exact=floats(row.exact), **sums)
            return
        for where in row.tiles():
            read = row.read(where, first=where.start == 0)
            if row.operation == "softmax":
                kind, e = "divide", exp(where)
                y = (e.astype(row.compute) / row.compute.type(d)).astype(own)
                facts: dict[str, Any] = {"exponentials": floats(e)}
            else:
                kind, facts = "subtract", {"log_d": float(log_d)}
                y = (row.x[where].astype(row.compute) - row.compute.type(log_d)).astype(own)
            written = row.write(where, y)
            lost = "inf / inf is NaN" if np.isnan(y).any() and math.isinf(float(d)) else ""
            facts |= {"d": float(d), "exact": floats(row.exact[where]), "note": lost}
            row.add(kind, where, read=read, written=written, **facts)
