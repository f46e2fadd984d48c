"""The steps of the gradients: a running sum s in the place of (m, d), and its merge of parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from .steps import Row, floats
from .textbook import Array


def _terms(row: Row, where: slice) -> Array:
    """What the elements add to s: g * y, and for log_softmax_backward g."""
    g = row.wide_grad[where]
    return np.asarray(g * row.wide[where] if row.operation == "softmax_backward" else g)


def _sum(row: Row, part: int = 0) -> float:
    """The running sum of a part of the row, tile by tile."""
    span, s = row.part(part), 0.0
    for where in row.tiles(span.start, span.stop):
        read, terms = row.read(where, first=where.start == 0), _terms(row, where)
        before, added = s, float(terms.sum())
        s += added
        row.add(
            "total",
            where,
            part,
            read=read,
            grad=floats(row.grad[where]),
            products=floats(terms) if row.operation == "softmax_backward" else (),
            added=added,
            s_before=before,
            s=s,
            exact_s=float(_terms(row, slice(span.start, where.stop)).sum()),
        )
    return s


def _merge(row: Row, sums: list[float]) -> float:
    """The parts' sums, added in their order."""
    s = 0.0
    for part, own in enumerate(sums):
        span, before = row.part(part), s
        s += own
        where = slice(span.start, span.stop)
        exact_s = float(_terms(row, slice(0, span.stop)).sum())
        row.add("merge", where, part, own_s=own, s_before=before, s=s, exact_s=exact_s)
    return s


def _finish(row: Row, s: float, from_memory: bool) -> None:
    """dx = (g - s) * y, and for log_softmax_backward dx = g - exp(y) * s."""
    for where in row.tiles():
        read = row.read(where, first=where.start == 0) if from_memory else ()
        g, y = row.wide_grad[where], row.wide[where]
        facts: dict[str, Any] = {}
        if row.operation == "softmax_backward":
            dx = (g - s) * y
        else:
            facts["exponentials"] = floats(np.exp(y))
            dx = g - np.exp(y) * s
        row.add(
            "gradient",
            where,
            int(where.start // row.part_length),
            read=read,
            grad=floats(row.grad[where]),
            written=row.write(where, row.rounded(dx)),
            s=s,
            exact=floats(row.exact[where]),
            **facts,
        )


def online(row: Row) -> None:
    with np.errstate(all="ignore"):
        _finish(row, _sum(row), from_memory=True)


def fused(row: Row) -> None:
    with np.errstate(all="ignore"):
        _finish(row, _sum(row), from_memory=False)


def split(row: Row) -> None:
    with np.errstate(all="ignore"):
        _finish(row, _merge(row, [_sum(row, part) for part in range(row.parts)]), from_memory=True)
