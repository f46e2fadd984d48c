"""Times contestants on arrays on the CPU, after it has found their answers right."""

from __future__ import annotations

import itertools
import math
import random
import statistics
import sys
import time
import timeit
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import onsoftmax

from .._explain.textbook import Array
from .._plan.copy_speed import last_level_cache
from .answers import error_eps, exact_of, good_enough
from .case import SPREAD, Case
from .contestants import PEERS, Contestant, contestants

IN_CACHE = 2**20  # input and output of at most this many bytes are meant to stay in the caches
SAMPLE_SECONDS = 0.003  # a sample is as many calls as fill this time
PAUSE_SECONDS = 0.01  # meanwhile the last contestant's threads stop spinning


class Entry:
    """A contestant at work on one shape. It is checked, then sampled."""

    def __init__(self, contestant: Contestant, sets: list[dict[str, Array]]) -> None:
        self.contestant = contestant
        self.samples: list[float] = []
        self.error: float | None = None
        names = [contestant.names(arrays) for arrays in sets]
        self.timers = [timeit.Timer(contestant.line, globals=n) for n in names]
        self.first_names = names[0]
        self.calls = 1

    def check(self, arrays: dict[str, Array], expected: Array, size: Array) -> bool:
        """Whether the answer is right. `y` is filled with NaN before."""
        x, y = arrays["x"], arrays["y"]
        y.fill(np.nan)
        result = eval(self.contestant.line, dict(self.first_names))
        if self.contestant.kind == "copy":
            return np.array_equal(arrays["target"], x)
        written = y if self.contestant.into else result
        if self.contestant.name == "JAX":
            written = np.asarray(written)
        self.error = error_eps(written, expected, x.dtype.name, size)
        promised = self.contestant.kind == "ours" and not self.contestant.name.startswith("naive")
        return good_enough(self.error, x.dtype.name, promised)

    def calibrate(self) -> None:
        seconds = min(self.timers[0].timeit(1) for _ in range(2))
        if seconds < SAMPLE_SECONDS / 10:
            seconds = self.timers[0].timeit(10) / 10
        self.calls = max(1, math.ceil(SAMPLE_SECONDS / seconds))

    def sample(self, in_cache: bool, turns: Iterator[int]) -> None:
        if in_cache:
            self.timers[0].timeit(1)
            self.samples.append(self.timers[0].timeit(self.calls) / self.calls)
        else:  # each call takes the pair of buffers that was touched the longest ago
            picks = [self.timers[next(turns)] for _ in range(self.calls)]
            self.samples.append(sum(timer.timeit(1) for timer in picks) / self.calls)

    def figures(self) -> dict[str, Any]:
        return {
            "kind": self.contestant.kind,
            "into": self.contestant.into,
            "seconds": statistics.median(self.samples) if self.samples else None,
            "low": min(self.samples, default=None),
            "high": max(self.samples, default=None),
            "calls": self.calls,
            "error_eps": self.error if self.error is None or math.isfinite(self.error) else str(self.error),
        }


def run_case(
    case: Case,
    sets: list[dict[str, Array]],
    threads: int,
    rounds: int,
    wanted: Sequence[str] = PEERS,
    methods: Sequence[str] | None = None,
) -> dict[str, Any]:
    """All contestants on one case with one number of threads: name -> figures."""
    expected, size = exact_of(case, sets[0])
    entries, out = [], {}
    for contestant in contestants(case, threads, wanted, methods):
        try:
            entry = Entry(contestant, sets)
            right = entry.check(sets[0], expected, size)
        except Exception as e:  # a peer without this type
            if contestant.kind == "ours":
                raise
            print(
                f"{contestant.name}, {case.dtype}: left out: {str(e).splitlines()[0][:100]}", file=sys.stderr
            )
            continue
        out[contestant.name] = entry
        if right:
            entries.append(entry)
        else:
            print(f"{contestant.name} {case.label}: wrong by {entry.error} eps: not timed", file=sys.stderr)
    turns = itertools.cycle(range(len(sets)))
    for entry in entries:
        entry.calibrate()
    for _ in range(rounds):
        random.shuffle(entries)
        for entry in entries:
            time.sleep(PAUSE_SECONDS)
            entry.sample(case.bytes <= IN_CACHE, turns)
    return {name: entry.figures() for name, entry in out.items()}


def make_sets(case: Case, dtype: np.dtype[Any]) -> list[dict[str, Array]]:
    """Sets of random arrays: x, y, the copy's `target`, and for a gradient `grad`. Together they are four
    times the last-level cache."""
    rng = np.random.default_rng(0)
    x = (SPREAD * rng.standard_normal(case.shape, dtype=np.float32)).astype(dtype)
    if case.backward:
        x = getattr(onsoftmax, case.operation.removesuffix("_backward"))(x, case.axis)
    given = {"x": x}
    if case.backward:
        given["grad"] = rng.standard_normal(case.shape, dtype=np.float32).astype(dtype)
    count = 1 if case.bytes <= IN_CACHE else math.ceil(4 * last_level_cache() / case.bytes)
    sets = []
    for i in range(count):
        arrays = {name: array if i == 0 else array.copy() for name, array in given.items()}
        y = np.full(case.out_shape, np.nan, dtype)
        sets.append({**arrays, "y": y, "target": y if y.shape == x.shape else np.empty_like(x)})
    return sets
