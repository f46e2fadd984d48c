"""The steps of softmax_topk: algorithm 4 of Milakov and Gimelshein, tile by tile, and its merge of parts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from .. import _core
from .steps import Row, State, floats, merge, statistics

Places = tuple[int, ...]


def largest(row: Row, places: Places, k: int) -> Places:
    """The places of the k largest elements among these places. NaN comes first, and the lower place among
    equal elements."""
    return tuple(sorted(places, key=lambda j: (not math.isnan(row.wide[j]), -row.wide[j], j))[:k])


def _passes(x: float, bound: float | None) -> bool:
    """Whether an element is above the k-th largest element before it. The bound is None if there are fewer
    than k."""
    return bound is None or x > bound or (math.isnan(x) and not math.isnan(bound))


def _part(row: Row, part: int, k: int) -> tuple[State, Places]:
    """(m, d) and the k largest of a part. Each step of the statistics gets the k largest after its tile."""
    first = len(row.steps)
    state = statistics(row, part)
    kept: Places = ()
    for i in range(first, len(row.steps)):
        step, bound = row.steps[i], float(row.wide[kept[-1]]) if len(kept) == k else None
        tile = tuple(range(step.start, step.stop))
        kept = largest(row, kept + tile, k)
        passed = sum(_passes(float(row.wide[j]), bound) for j in tile)
        row.steps[i] = replace(step, bound=bound, passed=passed, **_kept(row, kept))
    return state, kept


def _kept(row: Row, kept: Places) -> dict[str, Any]:
    return {"kept": floats(row.x[list(kept)]), "kept_at": kept}


def _merge(row: Row, parts: list[tuple[State, Places]], k: int) -> tuple[State, Places]:
    """Merges the parts' pairs and their k largest, in their order."""
    first = len(row.steps)
    state = merge(row, [state for state, _ in parts])
    kept: Places = ()
    for i, (_, own) in enumerate(parts, first):
        kept = largest(row, kept + own, k)
        row.steps[i] = replace(row.steps[i], **_kept(row, kept))
    return state, kept


def _select(row: Row, state: State, kept: Places) -> None:
    """y = exp(x - m) / d of the k kept elements, and their indices."""
    each = [slice(j, j + 1) for j in kept]
    values = tuple(float(row.rounded(row.quotients(where, state))[0]) for where in each)
    row.select(values, kept)
    row.add(
        "select",
        slice(0, len(row.x)),
        written=values,
        m=row.m_of(state, 0, len(row.x)),
        d=_core.pair_d(state),
        exponent=int(state[1]),
        exponentials=tuple(row.exponentials(where, state)[0] for where in each),
        exact=floats(row.exact),
        **_kept(row, kept),
    )


def online(row: Row) -> None:
    _select(row, *_part(row, 0, row.k))


def split(row: Row) -> None:
    parts = [_part(row, part, row.k) for part in range(row.parts)]
    _select(row, *_merge(row, parts, row.k))
