"""Times contestants on a case by CUDA events, after it has found their answers right."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .answers import good_enough, type_limits
from .case import Case
from .contestants import Contestant
from .figures import figures_of, rounded
from .gpu_case import Reference, make_sets
from .gpu_contestants import short

SAMPLE_MS = 2.0  # a sample is as many calls as fill this time
CALLS_LIMIT = 100  # the most calls in a CUDA graph
SLOW_MS, ENDLESS_MS = 100, 1000  # calls above the first are timed twice, calls above the second once
# The GPU idles for this many cycles while the host puts the calls of a sample in its queue.
AHEAD_CYCLES = 1_000_000


class DeviceLostError(RuntimeError):
    """The GPU no longer answers in this process."""


@dataclass
class Settings:
    cache_bytes: int
    rounds: int


def elapsed(calls: list[Callable[[], Any]]) -> float:
    """Milliseconds of the calls on the GPU. They are queued while it is held up, so it never waits for the
    host."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(AHEAD_CYCLES)
    first.record()
    for call in calls:
        call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last))


def how_many(milliseconds: float, limit: int = CALLS_LIMIT) -> int:
    """The number of calls of this duration that fill a sample."""
    return max(1, min(limit, math.ceil(SAMPLE_MS / max(milliseconds, 1e-3))))


class EventTimer:
    """Calls one by one, each on the next of the rotating tensors."""

    def __init__(self, calls: list[Callable[[], Any]]) -> None:
        self.turns: Iterator[Callable[[], Any]] = itertools.cycle(calls)
        self.repeats = 1
        self.first = self.sample()
        self.repeats = how_many(self.first)

    def sample(self) -> float:
        """Milliseconds a call."""
        return elapsed(list(itertools.islice(self.turns, self.repeats))) / self.repeats


def captured(calls: list[Callable[[], Any]]) -> Callable[[], None]:
    """Captures the calls in a CUDA graph. Returns the function that replays it."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            for call in calls:
                call()
    finally:
        torch.cuda.set_stream(stream)  # a failed capture leaves its own stream behind
    replay: Callable[[], None] = graph.replay
    return replay


class GraphTimer:
    """Replays of a CUDA graph of many calls, each on the next of the rotating tensors."""

    REPLAYS_LIMIT = 20

    def __init__(self, calls: list[Callable[[], Any]]) -> None:
        self.length = max(len(calls), how_many(2 * EventTimer(calls).sample()))
        self.replay = captured(list(itertools.islice(itertools.cycle(calls), self.length)))
        self.repeats = 1
        self.first = self.sample()
        self.repeats = how_many(self.first * self.length, self.REPLAYS_LIMIT)

    def sample(self) -> float:
        """Milliseconds a call."""
        return elapsed([self.replay] * self.repeats) / (self.repeats * self.length)


class Entry:
    """A contestant at work on one case. It is checked, then sampled."""

    def __init__(self, contestant: Contestant, case: Case, sets: list[dict[str, Any]]) -> None:
        self.contestant = contestant
        self.case = case
        self.tensors = sets[0]
        code = compile(f"lambda: {contestant.line}", contestant.name, "eval")
        self.calls = [eval(code, contestant.names(tensors)) for tensors in sets]
        self.samples: list[float] = []
        self.error: float | None = None
        self.timer: EventTimer | GraphTimer | None = None

    def check(self, reference: Reference, call: Callable[[], Any]) -> bool:
        """Whether the answer is right. The output is filled with NaN before."""
        if self.contestant.kind == "copy":
            self.tensors["target"].fill_(math.nan)
            call()
            return bool(torch.equal(self.tensors["source"], self.tensors["target"]))
        y = self.tensors["y"].fill_(math.nan)
        result = call()
        self.error = reference.error_eps(y if self.contestant.into else result)
        # the reference itself is float64, and wrong by a few eps of float64
        promised = self.contestant.kind == "ours" and self.case.dtype != "float64"
        error, dtype = self.error / self.case.leeway, self.case.out_dtype or self.case.dtype
        if self.contestant.name == "naive":  # it works in the input's type, whatever the result's type
            promised = False
            error *= type_limits(dtype)[0] / type_limits(self.case.dtype)[0]
            dtype = self.case.dtype
        return good_enough(error, dtype, promised)

    def prepare(self, reference: Reference) -> bool:
        """Makes it ready to be sampled. Returns whether the answer is right after a replay, too."""
        in_graph = self.case.in_graph and not self.contestant.waits
        timer = self.timer = (GraphTimer if in_graph else EventTimer)(self.calls)
        if isinstance(timer, GraphTimer) and self.contestant.into:
            return self.check(reference, timer.replay)
        return True

    def sample(self) -> None:
        if self.timer:
            slow = not self.samples and self.timer.first > SLOW_MS  # the timer's first call is a sample, too
            self.samples.append(self.timer.first if slow else self.timer.sample())

    def rounds_left(self, rounds: int) -> int:
        """How often to sample after the first sample."""
        if self.samples[0] > ENDLESS_MS:
            return 0
        return 1 if self.samples[0] > SLOW_MS else rounds - 1


def what_failed(contestant: Contestant, error: Exception) -> dict[str, str]:
    """The failure as figures. Raises DeviceLostError if the GPU cannot go on."""
    try:
        torch.cuda.synchronize()
    except RuntimeError as e:
        raise DeviceLostError(f"{contestant.name}: {short(e)}") from e
    expected = contestant.kind == "peer" or isinstance(error, ValueError)  # ours refuses shapes by ValueError
    return {"cannot" if expected else "failed": short(error)}


def enter(contestant: Contestant, case: Case, sets: list[dict[str, Any]], reference: Reference) -> Any:
    """An Entry that was sampled once, or the figures of a contestant that must not be timed."""
    if contestant.cannot:
        return {"cannot": contestant.cannot}
    try:
        entry = Entry(contestant, case, sets)
        right = entry.check(reference, entry.calls[0])
        if right:
            right = entry.prepare(reference)
            entry.sample()
    except Exception as e:
        return what_failed(contestant, e)
    if not right:
        how = "wrong" if entry.timer is None else "wrong in a graph"
        print(f"{contestant.name}, {case.label} {case.dtype}: {how}: {entry.error} eps", file=sys.stderr)
        return {"wrong": how, "error": rounded(entry.error)}
    return entry


def measure(case: Case, roster: list[Contestant], settings: Settings) -> dict[str, Any]:
    """All contestants on one case: name -> figures."""
    sets = make_sets(case, settings.cache_bytes)
    return race(case, roster, sets, Reference(case, sets[0]), settings.rounds)


def race(
    case: Case, roster: list[Contestant], sets: list[dict[str, Any]], reference: Reference, rounds: int
) -> dict[str, Any]:
    """Checks and times all contestants on the sets of tensors: name -> figures."""
    entries = {contestant: enter(contestant, case, sets, reference) for contestant in roster}
    racing = [entry for entry in entries.values() if isinstance(entry, Entry) and entry.samples]
    left = {id(entry): entry.rounds_left(rounds) for entry in racing}
    for round_number in range(rounds - 1):
        random.shuffle(racing)
        for entry in racing:
            if round_number < left[id(entry)]:
                entry.sample()
    copy = [e.samples for c, e in entries.items() if c.kind == "copy" and isinstance(e, Entry)]
    return {
        contestant.name: figures_of(
            entry.samples,
            entry.error,
            contestant.bytes or (case.copy_bytes if contestant.kind == "copy" else case.bytes),
            case.copy_bytes,
            copy[0] if copy else [],
        )
        if isinstance(entry, Entry)
        else entry
        for contestant, entry in entries.items()
    }
