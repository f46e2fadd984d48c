"""The steps of the losses and of logprob, after the pair (m, d) of the row.

The formulas are from csrc/api/loss.h and csrc/api/logprob.h.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _core
from .steps import Row, State, floats
from .textbook import Array, larger, products, textbook_of_chosen


def end(row: Row, state: State, from_memory: bool) -> None:
    """The results, from the final (m, d)."""
    m, d = row.m_of(state, 0, len(row.x)), _core.pair_d(state)
    log_d = math.log(d) if d else -math.inf
    lse = m + log_d if math.isfinite(m) else m
    # x - m comes first: a large number that all elements share then does not round log(d) away
    logprob = float(row.wide[row.chosen.target]) - (m if math.isfinite(m) else math.nan) - log_d
    facts: dict[str, Any] = {"m": m, "d": d, "exponent": int(state[1]), "log_d": log_d, "lse": lse}
    with np.errstate(all="ignore"):
        if row.operation == "logprob":
            row.result = _write(row, "logprob", logprob, facts)
            if row.chosen.entropy:
                s = _sum(row, state, m, from_memory)
                entropy = log_d - float(np.divide(s, d))
                row.entropy = float(_write(row, "entropy", entropy, {**facts, "s": s})[0])
            return
        a, N = row.chosen.label_smoothing, len(row.x)
        value = -(1 - a) * logprob
        if a:
            s = _sum_of_logits(row, from_memory)
            value += a / N * ((N * m - s) + N * log_d)
            facts["s"] = s
        loss = _write(row, "loss", value + row.chosen.z_loss * lse * lse, facts)
        if row.operation == "cross_entropy":
            row.result = loss
        else:
            row.loss = float(loss[0])
            _gradient(row, state, from_memory, facts)


def _write(row: Row, kind: str, value: float, facts: dict[str, Any]) -> Array:
    """Writes one number of the row, in the arithmetic's type."""
    y = np.array([value]).astype(row.compute)
    row.bytes_written += y.nbytes
    exact = floats(textbook_of_chosen(kind, row.wide, row.chosen)[0])
    row.add(kind, slice(0, len(row.x)), written=floats(y), exact=exact, **facts)
    return y


def _sum(row: Row, state: State, m: float, from_memory: bool) -> float:
    """The sum of exp(x - m) * (x - m). An element that is -inf adds 0."""
    s = 0.0
    for where in row.tiles():
        read = row.read(where, first=where.start == 0) if from_memory else ()
        e = row.exponentials(where, state)
        terms = products(np.array(e), row.wide[where] - m)
        before, added = s, float(terms.sum())
        s += added
        seen = row.wide[: where.stop] - larger(row.wide)
        row.add(
            "second_sum",
            where,
            read=read,
            m=m,
            exponentials=e,
            products=floats(terms),
            added=added,
            s_before=before,
            s=s,
            exact_s=float(products(np.exp(seen), seen).sum()),
        )
    return s


def _exact_sum(x: Array) -> float:
    """The sum rounded once, so that the order of the numbers does not matter."""
    try:
        return math.fsum(x)
    except (OverflowError, ValueError):  # inf - inf
        return float(x.sum())


def _sum_of_logits(row: Row, from_memory: bool) -> float:
    """The sum of x, which label_smoothing needs. The code adds it up in two doubles."""
    s = 0.0
    for where in row.tiles():
        read = row.read(where, first=where.start == 0) if from_memory else ()
        before, s = s, _exact_sum(row.wide[: where.stop])
        added = _exact_sum(row.wide[where])
        row.add("sum_of_logits", where, read=read, added=added, s_before=before, s=s)
    return s


def _gradient(row: Row, state: State, from_memory: bool, facts: dict[str, Any]) -> None:
    """The gradient: softmax, times 1 + 2 z_loss lse, and 1 less at the target. label_smoothing moves a part
    of this 1 to all elements."""
    a, N = row.chosen.label_smoothing, len(row.x)
    factor = (1 - a) + a / N * N + 2 * row.chosen.z_loss * facts["lse"]
    for where in row.tiles():
        read = row.read(where, first=where.start == 0) if from_memory else ()
        dx = factor * row.quotients(where, state) - a / N
        if where.start <= row.chosen.target < where.stop:
            dx[row.chosen.target - where.start] -= 1 - a
        row.add(
            "gradient",
            where,
            where.start // row.part_length,
            read=read,
            written=row.write(where, row.rounded(dx)),
            exponentials=row.exponentials(where, state),
            exact=floats(row.exact[where]),
            **facts,
        )
