"""The steps of the methods of explain() that have the pair (m, d), on one row.

The pairs (m, d), their merges and rescales come from csrc/api/state.h, as in the kernels, by _core.pair_of
and _core.pair_merge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import _core
from .record import Floats, Step
from .sampling import Sampling
from .textbook import Array, Chosen, formula, larger, textbook, textbook_of_chosen

State = tuple[float, float, float, float]

EMPTY: State = (-math.inf, 0.0, 0.0, 0.0)

# For each operation that chooses one element, the kind of step that writes its result.
OF_CHOSEN = {"cross_entropy": "loss", "cross_entropy_with_grad": "gradient", "logprob": "logprob"}


def floats(values: Array) -> Floats:
    return tuple(float(value) for value in values)


class Row:
    """A row on its way: which tiles it has, what has been read and written, and the steps so far.

    `k` is softmax_topk's argument. `grad` is the second row if the operation takes a gradient, else empty.
    `chosen` is for the operations that choose one element. `sampling` has the arguments of sample.
    The arithmetic multiplies the row by its scale, which is 1 for other operations.
    """

    def __init__(
        self,
        operation: str,
        x: Array,
        grad: Array,
        k: int,
        chosen: Chosen,
        sampling: Sampling,
        tile: int,
        parts: int,
    ) -> None:
        self.operation, self.x, self.grad, self.k, self.tile = operation, x, grad, k, tile
        self.chosen, self.sampling = chosen, sampling
        self.compute = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
        logits = _product(x, sampling.scale(self.compute), self.compute) if sampling.has_scale else x
        self.wide, self.wide_grad = logits.astype(np.float64), grad.astype(np.float64)
        if kind := OF_CHOSEN.get(operation):
            self.exact, self.size = textbook_of_chosen(kind, self.wide, chosen)
        else:
            self.exact, self.size = map(np.atleast_1d, textbook(operation, self.wide, self.wide_grad))
        tiles = -(-len(x) // tile)
        self.part_length = -(-tiles // parts) * tile
        self.parts = -(-len(x) // self.part_length)
        # like the kernels: if |m| is large, the anchor is subtracted from the row before anything else
        self.anchor = _core.pair_anchor(larger(self.wide))
        with np.errstate(all="ignore"):
            self.shifted = (
                floats(logits.astype(self.compute) - self.compute.type(self.anchor)) if self.anchor else ()
            )
        self.steps: list[Step] = []
        self.result: Array = np.zeros(len(self.exact), x.dtype)
        self.places: tuple[int, ...] = ()
        self.loss: float | None = None
        self.entropy: float | None = None
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
        return self.shifted[where] if self.anchor else floats(self.wide[where])

    def scaled(self, where: slice) -> Floats:
        """The elements multiplied by the scale. Empty if it is 1."""
        return floats(self.wide[where]) if self.sampling.has_scale else ()

    def pair_of(self, where: slice) -> State:
        return _core.pair_of(self.elements(where), self.compute == np.float32)

    def m_of(self, state: State, start: int, stop: int) -> float:
        """The public m of a pair of these elements, with the digits that an anchor has rounded away."""
        return larger(self.wide[start:stop]) if self.anchor else state[0]

    def exponentials(self, where: slice, state: State) -> Floats:
        """exp(x - m) of each element: the d of its pair after the pair is moved to the maximum of `state`."""
        each = [self.pair_of(slice(j, j + 1)) for j in range(where.start, where.stop)]
        return tuple(_core.pair_d(_core.pair_merge(pair, _at(state))) for pair in each)

    def quotients(self, where: slice, state: State) -> Array:
        """exp(x) / d, both relative to 2^c."""
        d = state[2] + state[3]
        each = [self.pair_of(slice(j, j + 1)) for j in range(where.start, where.stop)]
        with np.errstate(all="ignore"):
            y = np.array([_core.pair_merge(pair, _at(state))[2] for pair in each]) / np.float64(d)
            return np.asarray(y if math.isfinite(state[0]) else np.full_like(y, math.nan))

    def rounded(self, values: Array) -> Array:
        """The values in the arithmetic's type, and then in the row's own."""
        with np.errstate(all="ignore"):
            return np.asarray(values.astype(self.compute).astype(self.x.dtype))

    def read(self, where: slice, first: bool) -> Floats:
        self.passes += first
        self.bytes_read += self.x[where].nbytes + self.grad[where].nbytes
        return floats(self.x[where])

    def write(self, where: slice, y: Array) -> Floats:
        self.result[where] = y
        self.bytes_written += y.nbytes
        return floats(y)

    def select(self, values: Floats, places: tuple[int, ...]) -> None:
        """Writes the values of an operation that selects, and their indices as int64."""
        self.result, self.places = np.array(values, np.float64), places
        self.exact, self.size = self.exact[list(places)], self.size[list(places)]
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


def _product(x: Array, scale: float, compute: np.dtype[Any]) -> Array:
    """x * scale, rounded once to the arithmetic's type as the kernels do it."""
    exact = compute if compute == np.float64 else np.dtype(np.longdouble)
    with np.errstate(all="ignore"):
        return np.asarray((x.astype(exact) * scale).astype(compute))


def _at(state: State) -> State:
    """The maximum of a pair, with an empty sum. A pair that merges with it moves to this maximum."""
    return state[0], 0.0, 0.0, 0.0


def _rescale(before: State, after: State) -> float:
    """exp(m before - m after): d is multiplied by it."""
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
            scaled=row.scaled(where),
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


def maximum(row: Row) -> State:
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
            scaled=row.scaled(where),
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
            scaled=row.scaled(where),
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


def _end(row: Row, state: State, from_memory: bool) -> None:
    """The results, from the final (m, d)."""
    m, d = row.m_of(state, 0, len(row.x)), _core.pair_d(state)
    pair: dict[str, Any] = {"m": m, "d": d, "exponent": int(state[1])}
    log_d = math.log(d) if d else -math.inf
    if row.operation == "logsumexp":
        value = np.array([m + log_d if math.isfinite(m) else m])
        written = row.write(slice(0, 1), row.rounded(value))
        row.add("value", slice(0, len(row.x)), written=written, exact=floats(row.exact), log_d=log_d, **pair)
        return
    for where in row.tiles():
        read = row.read(where, first=where.start == 0) if from_memory else ()
        if row.operation == "softmax":
            kind, y = "divide", row.rounded(row.quotients(where, state))
            facts: dict[str, Any] = {"exponentials": row.exponentials(where, state)}
        else:
            with np.errstate(all="ignore"):
                y = row.rounded(row.wide[where] - (m if math.isfinite(m) else math.nan) - log_d)
            kind, facts = "subtract", {"log_d": log_d}
        written = row.write(where, y)
        part, exact = where.start // row.part_length, floats(row.exact[where])
        row.add(kind, where, part, read=read, written=written, exact=exact, **facts, **pair)


End = Callable[[Row, State, bool], None]


def safe(row: Row) -> None:
    _end(row, _sum(row, maximum(row), from_memory=True), from_memory=True)


def online(row: Row, end: End = _end) -> None:
    end(row, statistics(row), True)


def fused(row: Row, end: End = _end) -> None:
    end(row, _sum(row, maximum(row), from_memory=False), False)


def split(row: Row, end: End = _end) -> None:
    states = [statistics(row, part) for part in range(row.parts)]
    end(row, merge(row, states), True)
