"""Why a method: the core's reason, and what the costs of the plan add to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .cost import Cost
from .text import counted, duration, listed

TIE = 1.065  # measured times are interpolated: two times that differ by less than this factor may be the same

LAUNCH_BOUND = "launch-bound"
SLOW_DOUBLES = "slow doubles"
READS_CACHE = "reads again from L2"
PAST_CACHES = "writes past the caches"
FITS_CACHES = "the array fits the caches"

MOST_ROWS, MOST_ELEMENTS = 2**20, 2**31  # the largest plans that are compared to explain a tie

Facts = dict[str, Any]


def bytes_once(facts: Facts) -> int:
    """The bytes moved if the array is read once."""
    again: int = facts["reads_again"] * facts["read_bytes"]
    return int(facts["bytes_moved"]) - again


def is_launch_bound(launch: float | None, seconds: float | None) -> bool:
    """Whether the launch alone is most of a time."""
    return bool(launch and seconds is not None and launch > seconds / 2)


def note(facts: Facts, seconds: float | None) -> str:
    """What decides the time of a method beside the bytes that it moves. Empty if nothing does.

    `seconds` is the method's time, if it is known.
    """
    if facts["device"] == "cpu":
        if bytes_once(facts) <= facts["last_cache"]:
            return FITS_CACHES
        return PAST_CACHES if facts["past_caches"] else ""
    if is_launch_bound(facts["launch_seconds"], seconds):
        return LAUNCH_BOUND
    if seconds is not None and facts["arithmetic_seconds"] >= seconds:
        return SLOW_DOUBLES
    return READS_CACHE if facts["reads_again"] > 0 and facts["least_bytes"] == bytes_once(facts) else ""


def cost(name: str, facts: Facts, needed: int) -> Cost:
    """The cost of a method that can run. `needed` is the least that any method moves, in bytes."""
    measured, launch = facts.get("measured_seconds") or None, facts.get("launch_seconds") or None
    least, speed = facts["least_bytes"], facts.get("copy_speed")
    arithmetic = facts.get("arithmetic_seconds") or None
    seconds = measured or (max(least / speed, arithmetic or 0) if speed else None)
    bound = needed / least if facts["device"] != "cpu" and least else None
    if bound and arithmetic and speed:
        bound = min(bound, needed / speed / arithmetic)
    return Cost(
        name,
        facts["bytes_moved"],
        facts["on_chip_bytes"],
        measured_seconds=measured,
        most_x_copy=bound,
        least_bytes=least,
        launch_seconds=launch,
        arithmetic_seconds=arithmetic,
        note=note(facts, seconds),
    )


def explained(reason: str, own: Cost, rivals: Sequence[Cost], N: int, at: Callable[[str, int], Facts]) -> str:
    """The reason of `auto`, with what the costs add to it.

    `rivals` are the other methods that can run. `at` makes the plan of a method for another number of rows.
    """
    sentences = [reason, *_launch(own)]
    if own.measured_seconds:
        sentences += _rivals(own, rivals, N, at)
    elif own.note != LAUNCH_BOUND and own.note != READS_CACHE:
        again = [cost for cost in rivals if cost.note == READS_CACHE]
        if again:
            fewest = min(cost.bytes_moved or 0 for cost in again)
            name = [cost.method for cost in again if cost.bytes_moved == fewest][-1]
            sentences.append(
                f"The rows in work fit the L2 cache: a second read, as in {name}, comes from there"
            )
    return ". ".join(sentences)


def _launch(own: Cost) -> list[str]:
    if own.note != LAUNCH_BOUND or not own.launch_seconds:
        return []
    alone = f"Launch-bound: a launch alone takes {duration(own.launch_seconds)}"
    if own.measured_seconds:
        return [f"{alone} of the {duration(own.measured_seconds)}"]
    return [f"{alone}, as measured on an H100, and the memory needs less"]


def _times(costs: Sequence[Cost]) -> str:
    return listed([f"{cost.method} ({duration(cost.measured_seconds or 0)})" for cost in costs])


def _rivals(own: Cost, rivals: Sequence[Cost], N: int, at: Callable[[str, int], Facts]) -> list[str]:
    """The methods that are as fast here, or faster."""
    time = own.measured_seconds or 0
    measured = sorted(
        (cost for cost in rivals if cost.measured_seconds), key=lambda cost: cost.measured_seconds or 0
    )
    faster = [cost for cost in measured if (cost.measured_seconds or 0) * TIE < time]
    tied = [cost for cost in measured if time / TIE <= (cost.measured_seconds or 0) <= time * TIE]
    sentences = [f"{own.method} takes {duration(time)} here"] if faster or tied else []
    if faster:
        sentences += [
            f"{_times(faster)} {'is' if len(faster) == 1 else 'are'} faster",
            "auto goes by the type, the length and the number of rows, not by these times",
        ]
    if tied:
        sentences.append(f"{_times(tied)} {'ties' if len(tied) == 1 else 'tie'} with it")
        sentences += _ends_of_tie(own, tied, N, at)
    return sentences


def _ends_of_tie(own: Cost, tied: Sequence[Cost], N: int, at: Callable[[str, int], Facts]) -> list[str]:
    """Why methods tie, and where they do not."""
    sentences = []
    cached = [cost.method for cost in tied if cost.note == READS_CACHE]
    if cached:
        verb = "reads" if len(cached) == 1 else "read"
        sentences.append(f"{listed(cached)} {verb} the array again, but from the L2 cache")
    worst = {cost.method: _farthest_behind(own, cost.method, N, at) for cost in tied}
    behind = [
        f"{name} {ratio:.3g} times as long ({counted(rows, 'row')})"
        for name, (ratio, rows) in worst.items()
        if ratio > TIE
    ]
    level = [name for name, (ratio, _) in worst.items() if ratio <= TIE]
    if behind:
        sentences.append(
            f"auto takes {own.method}, because with other numbers of rows other methods take longer: "
            f"{listed(behind)}"
        )
    if level:
        sentences.append(f"{listed(level)} would do as well for every number of rows")
    return sentences


def _farthest_behind(own: Cost, rival: str, N: int, at: Callable[[str, int], Facts]) -> tuple[float, int]:
    """The largest time of a rival, as a multiple of this method's, and its number of rows, while auto takes
    this method."""
    worst = (0.0, 0)
    rows = 1
    while rows <= MOST_ROWS and rows * N <= MOST_ELEMENTS:
        chosen = at("auto", rows)
        other = at(rival, rows)
        if chosen["method"] == own.method and chosen["measured_seconds"]:
            worst = max(worst, (other["measured_seconds"] / chosen["measured_seconds"], rows))
        rows *= 2
    return worst
