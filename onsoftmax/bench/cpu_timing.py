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

from .._plan.copy_speed import last_level_cache
from .answers import error_eps, good_enough
from .contestants import PEERS, Array, Contestant, contestants

IN_CACHE = 2**20  # input and output of at most this many bytes are meant to stay in the caches
SAMPLE_SECONDS = 0.003  # a sample is as many calls as fill this time
PAUSE_SECONDS = 0.01  # meanwhile the last contestant's threads stop spinning


class Entry:
    """A contestant at work on one shape. It is checked, then sampled."""

    def __init__(self, contestant: Contestant, buffers: list[tuple[Array, np.ndarray]]) -> None:
        self.contestant = contestant
        self.samples: list[float] = []
        self.error: float | None = None
        names = [contestant.names(x, y) for x, y in buffers]
        self.timers = [timeit.Timer(contestant.line, globals=n) for n in names]
        self.first_names = names[0]
        self.calls = 1

    def check(self, x: Array, y: Array, expected: Array) -> bool:
        """Whether the answer is right. `y` is filled with NaN before."""
        y.fill(np.nan)
        result = eval(self.contestant.line, dict(self.first_names))
        written = y if self.contestant.into else result
        if self.contestant.kind == "copy":
            return np.array_equal(written, x)
        self.error = error_eps(written, expected, x.dtype.name)
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
    buffers: list[tuple[Array, np.ndarray]],
    axis: int,
    expected: Array,
    threads: int,
    rounds: int,
    wanted: Sequence[str] = PEERS,
    methods: Sequence[str] | None = None,
) -> dict[str, Any]:
    """All contestants on one shape with one number of threads: name -> figures."""
    x, y = buffers[0]
    in_cache = x.nbytes + y.nbytes <= IN_CACHE
    entries, out = [], {}
    for contestant in contestants(axis, threads, wanted, methods):
        try:
            entry = Entry(contestant, buffers)
            right = entry.check(x, y, expected)
        except Exception as e:  # a peer without this type
            if contestant.kind == "ours":
                raise
            print(f"{contestant.name}, {x.dtype}: left out: {str(e).splitlines()[0][:100]}", file=sys.stderr)
            continue
        out[contestant.name] = entry
        if right:
            entries.append(entry)
        else:
            print(f"{contestant.name} {x.shape}: wrong by {entry.error} eps: not timed", file=sys.stderr)
    turns = itertools.cycle(range(len(buffers)))
    for entry in entries:
        entry.calibrate()
    for _ in range(rounds):
        random.shuffle(entries)
        for entry in entries:
            time.sleep(PAUSE_SECONDS)
            entry.sample(in_cache, turns)
    return {name: entry.figures() for name, entry in out.items()}


def make_buffers(shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[tuple[Array, np.ndarray]]:
    """Pairs of random input and output. Together they are four times the last-level cache."""
    rng = np.random.default_rng(0)
    x = (3 * rng.standard_normal(shape, dtype=np.float32)).astype(dtype)
    pair = 2 * x.nbytes
    count = 1 if pair <= IN_CACHE else math.ceil(4 * last_level_cache() / pair)
    return [(x if i == 0 else x.copy(), np.full_like(x, np.nan)) for i in range(count)]
