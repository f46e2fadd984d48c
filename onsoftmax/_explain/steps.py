"""The steps of the methods of explain() that have the pair (m, d), on one row.

The pairs (m, d), their merges and rescales come from csrc/api/state.h, as in the kernels, by _core.pair_of
and _core.pair_merge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import _core
from .record import Floats, Step

Array = np.ndarray[Any, np.dtype[Any]]
State = tuple[float, float, float, float]

EMPTY: State = (-math.inf, 0.0, 0.0, 0.0)


def floats(values: Array) -> Floats:
    return tuple(float(value) for value in values)


def formula(x: Array, m: float) -> Array:
    """exp(x - m) in float64."""
    with np.errstate(all="ignore"):
        return np.asarray(np.exp(x - m))


def larger(x: Array) -> float:
    return float(np.max(x, initial=-math.inf))


def textbook(x: Array) -> Array:
    """exp(x - m) / sum(exp(x - m)) in float64, of a row in float64."""
    e = formula(x, larger(x))
    with np.errstate(all="ignore"):
        return np.asarray(e / e.sum())


class Row:
    """A row on its way: which tiles it has, what has been read and written, and the steps so far."""

    def __init__(self, x: Array, compute: np.dtype[Any], tile: int, parts: int) -> None:
        self.x, self.compute, self.tile = x, compute, tile
        self.wide = x.astype(np.float64)
        tiles = -(-len(x) // tile)
        self.part_length = -(-tiles // parts) * tile
        self.parts = -(-len(x) // self.part_length)
        # like the kernels: if |m| is large, the anchor is subtracted from the row before anything else
        self.anchor = _core.pair_anchor(larger(self.wide))
        with np.errstate(all="ignore"):
            self.shifted = floats(x.astype(compute) - compute.type(self.anchor)) if self.anchor else ()
        self.steps: list[Step] = []
        self.result: Array = np.zeros_like(x)
        self.places: tuple[int, ...] = ()
        self.passes = self.bytes_read = self.bytes_written = 0

    def tiles(self, start: int = 0, stop: int | None = None) -> Iterator[slice]:
        end = len(self.x) if stop is None else min(stop, len(self.x))
        for begin in range(start, end, self.tile):
            yield slice(begin, min(begin + self.tile, end))

    def part(self, index: int) -> range:
        start = index * self.part_length
        return range(start, min(start + self.part_length, len(self.x)))

    def elements(self, where: slice) -> Floats:
        """The elements as the arithmetic sees them."""
        return self.shifted[where] if self.anchor else floats(self.x[where])

    def pair_of(self, where: slice) -> State:
        return _core.pair_of(self.elements(where), self.compute == np.float32)

    def m_of(self, state: State, start: int, stop: int) -> float:
        """The public m of a pair of these elements, with the digits that an anchor has rounded away."""
        return larger(self.wide[start:stop]) if self.anchor else state[0]

    def exponentials(self, where: slice, state: State) -> Floats:
        """exp(x - m) of each element: its pair, moved to the maximum of `state`."""
        each = [self.pair_of(slice(j, j + 1)) for j in range(where.start, where.stop)]
        return tuple(_core.pair_d(_core.pair_merge(pair, _at(state))) for pair in each)

    def quotients(self, where: slice, state: State) -> Array:
        """exp(x) / d, both relative to 2^c, rounded to the arithmetic's type and then to the row's own."""
        d = state[2] + state[3]
        each = [self.pair_of(slice(j, j + 1)) for j in range(where.start, where.stop)]
        with np.errstate(all="ignore"):
            y = np.array([_core.pair_merge(pair, _at(state))[2] for pair in each]) / np.float64(d)
            y = y if math.isfinite(state[0]) else np.full_like(y, math.nan)
            return np.asarray(y.astype(self.compute).astype(self.x.dtype))

    def read(self, where: slice, first: bool) -> Floats:
        self.passes += first
        self.bytes_read += self.x[where].nbytes
        return floats(self.x[where])

    def write(self, where: slice, y: Array) -> Floats:
        self.result[where] = y
        self.bytes_written += self.x[where].nbytes
        return floats(y)

    def select(self, values: Floats, places: tuple[int, ...]) -> None:
        """Writes the values of an operation that selects, and their indices as int64."""
        self.result, self.places = np.array(values, np.float64), places
        self.bytes_written += len(places) * (self.x.itemsize + 8)

    def add(self, kind: str, where: slice, part: int = 0, **facts: Any) -> None:
        self.steps.append(
            Step(
                kind=kind,
                part=part,
                start=where.start,
                stop=where.stop,
                passes=self.passes,
                bytes_read=self.bytes_read,
                bytes_written=self.bytes_written,
                **facts,
            )
        )


def _at(state: State) -> State:
    """The maximum of a pair, with an empty sum. A pair that merges with it moves to this maximum."""
    return state[0], 0.0, 0.0, 0.0


def _rescale(before: State, after: State) -> float:
    """exp(m before - m after): a d of 1 becomes this."""
    return _core.pair_d(_core.pair_merge(_core.pair_of((before[0],), False), _at(after)))


def statistics(row: Row, part: int = 0) -> State:
    """The running (m, d) of a part of the row, tile by tile: algorithm 3."""
    span, state = row.part(part), EMPTY
    for where in row.tiles(span.start, span.stop):
        read = row.read(where, first=where.start == 0)
        own, before = row.pair_of(where), state
        state = _core.pair_merge(before, own)
        own_m = row.m_of(own, where.start, where.stop)
        m_before, m = row.m_of(before, span.start, where.start), row.m_of(state, span.start, where.stop)
        seen = row.wide[span.start : where.stop]
        row.add(
            "statistics",
            where,
            part,
            read=read,
            own_m=own_m,
            own_d=_core.pair_d(own),
            m_before=m_before,
            d_before=_core.pair_d(before),
            m=m,
            d=_core.pair_d(state),
            rescale=_rescale(before, state),
            own_rescale=_rescale(own, state),
            exponent=int(state[1]),
            exponentials=row.exponentials(where, state),
            added=_core.pair_d(_core.pair_merge(own, _at(state))),
            exact_m=larger(seen),
            exact_d=float(formula(seen, larger(seen)).sum()),
            exact=floats(formula(row.wide[where], larger(seen))),
        )
    return state


def _maximum(row: Row) -> State:
    """The maximum alone: a pair with an empty sum."""
    state = EMPTY
    for where in row.tiles():
        read = row.read(where, first=where.start == 0)
        own = row.pair_of(where)
        m_before = row.m_of(state, 0, where.start)
        state = _core.pair_merge(state, _at(own))
        row.add(
            "maximum",
            where,
            read=read,
            own_m=row.m_of(own, where.start, where.stop),
            m_before=m_before,
            m=row.m_of(state, 0, where.stop),
            exact_m=larger(row.wide[: where.stop]),
        )
    return state


def _sum(row: Row, state: State, from_memory: bool) -> State:
    """The sum of exp(x - m), with the final m."""
    m = row.m_of(state, 0, len(row.x))
    for where in row.tiles():
        read = row.read(where, first=where.start == 0) if from_memory else ()
        before, own = state, _core.pair_merge(row.pair_of(where), _at(state))
        state = _core.pair_merge(before, own)
        row.add(
            "sum",
            where,
            read=read,
            d_before=_core.pair_d(before),
            m=m,
            d=_core.pair_d(state),
            exponent=int(state[1]),
            exponentials=row.exponentials(where, state),
            added=_core.pair_d(own),
            exact_m=larger(row.wide),
            exact_d=float(formula(row.wide[: where.stop], larger(row.wide)).sum()),
            exact=floats(formula(row.wide[where], larger(row.wide))),
        )
    return state


def merge(row: Row, states: list[State]) -> State:
    """The parts' pairs, merged in their order."""
    state = EMPTY
    for part, own in enumerate(states):
        span = row.part(part)
        before, state = state, _core.pair_merge(state, own)
        own_m, m = row.m_of(own, span.start, span.stop), row.m_of(state, 0, span.stop)
        m_before, seen = row.m_of(before, 0, span.start), row.wide[: span.stop]
        row.add(
            "merge",
            slice(span.start, span.stop),
            part,
            own_m=own_m,
            own_d=_core.pair_d(own),
            m_before=m_before,
            d_before=_core.pair_d(before),
            m=m,
            d=_core.pair_d(state),
            rescale=_rescale(before, state),
            own_rescale=_rescale(own, state),
            exponent=int(state[1]),
            added=_core.pair_d(_core.pair_merge(own, _at(state))),
            exact_m=larger(seen),
            exact_d=float(formula(seen, larger(seen)).sum()),
        )
    return state


def _divide(row: Row, state: State, from_memory: bool) -> None:
    """y = exp(x - m) / d."""
    exact = textbook(row.wide)
    for where in row.tiles():
        read = row.read(where, first=where.start == 0) if from_memory else ()
        written = row.write(where, row.quotients(where, state))
        row.add(
            "divide",
            where,
            int(where.start // row.part_length),
            read=read,
            written=written,
            m=row.m_of(state, 0, len(row.x)),
            d=_core.pair_d(state),
            exponent=int(state[1]),
            exponentials=row.exponentials(where, state),
            exact=floats(exact[where]),
        )


def safe(row: Row) -> None:
    _divide(row, _sum(row, _maximum(row), from_memory=True), from_memory=True)


def online(row: Row) -> None:
    _divide(row, statistics(row), from_memory=True)


def fused(row: Row) -> None:
    _divide(row, _sum(row, _maximum(row), from_memory=False), from_memory=False)


def split(row: Row) -> None:
    states = [statistics(row, part) for part in range(row.parts)]
    _divide(row, merge(row, states), from_memory=True)
