"""What the planner's choices on the CPU gain, and what options cost.

    python benchmarks/cpu_choices.py           # writes results/cpu-choices-<instruction set>-<date>.json
    python benchmarks/cpu_choices.py --quick   # small arrays: to see that it works

Each line compares two ways to the same answer. (An option changes the answer.) The two ways take turns, on
arrays that together exceed the caches. A line has the median time of each way, and the first over the second.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import onsoftmax as ons
from onsoftmax.bench.cpu_timing import make_buffers
from onsoftmax.bench.document import write
from onsoftmax.bench.machine import about_cpu

BELOW_PAST_CACHES = (
    2**21
)  # result bytes of a call that stay in the caches: PAST_CACHES_BYTES of plan/cpu.c is more

Call = Callable[[int], object]


def in_parts(x: np.ndarray, y: np.ndarray) -> None:
    """Calls softmax on a few rows at a time, so that no result is large enough to go past the caches."""
    rows = max(1, BELOW_PAST_CACHES // (y.itemsize * y.shape[1]))
    for first in range(0, len(x), rows):
        ons.softmax(x[first : first + rows], out=y[first : first + rows])


def on_threads(threads: int, x: np.ndarray, y: np.ndarray) -> None:
    ons.softmax(x, out=y, num_threads=threads)


def pairs_of_calls(shape: tuple[int, int], processors: int) -> Iterator[tuple[str, str, Call, Call]]:
    """Yields (choice, both ways in words, the chosen call, the other call). A call takes a buffer's index."""
    buffers = make_buffers(shape, np.dtype(np.float32))
    rng = np.random.default_rng(0)
    where = rng.random(shape) < 0.8
    scale = (0.5 + rng.random((shape[0], 1))).astype(np.float32)
    half = [x.astype(np.float16) for x, _ in buffers]

    def plain(i: int) -> None:
        ons.softmax(buffers[i][0], out=buffers[i][1])

    def fresh(i: int) -> None:
        ons.softmax(buffers[i][0], out=np.empty(shape, np.float32))

    yield "past the caches", "one call / calls of 2 MiB", plain, lambda i: in_parts(*buffers[i])
    yield "memory of results", "without out= / out=np.empty(...)", lambda i: ons.softmax(buffers[i][0]), fresh
    if processors > 1:
        yield "threads", "2 / 1", lambda i: on_threads(2, *buffers[i]), lambda i: on_threads(1, *buffers[i])
    options: dict[str, Call] = {
        "where": lambda i: ons.softmax(buffers[i][0], out=buffers[i][1], where=where),
        "scale 0.5": lambda i: ons.softmax(buffers[i][0], out=buffers[i][1], scale=0.5),
        "scale 0.7": lambda i: ons.softmax(buffers[i][0], out=buffers[i][1], scale=0.7),
        "scale a row": lambda i: ons.softmax(buffers[i][0], out=buffers[i][1], scale=scale),
        "float16 to float32": lambda i: ons.softmax(half[i], dtype=np.float32, out=buffers[i][1]),
        "float32 to float16": lambda i: ons.softmax(buffers[i][0], out=half[i]),
    }
    for name, call in options.items():
        yield "option", f"{name} / without", call, plain


def medians(calls: tuple[Call, Call], buffers: int, rounds: int) -> list[float]:
    samples: list[list[float]] = [[], []]
    turns = itertools.cycle(range(buffers))
    for round_ in range(rounds + 1):
        for call, taken in zip(calls, samples, strict=True):
            i = next(turns)
            begin = time.perf_counter()
            call(i)
            if round_ > 0:  # round 0 touches the memory for the first time
                taken.append(time.perf_counter() - begin)
    return [statistics.median(taken) for taken in samples]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, metavar="R")
    parser.add_argument(
        "--quick", action="store_true", help="small arrays, three rounds, no file unless --json"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    total, rounds = (2**18, 3) if args.quick else (2**24, args.rounds)
    config = ons.show_config()
    about = {**about_cpu(), "rounds": rounds}
    ons.set_num_threads(1)
    lines = []
    print("| rows | choice | ways | ms | ms | ratio |\n| --- | --- | --- | ---: | ---: | ---: |")
    for N in (64, 1024, 16384, 32000):
        shape = (total // N, N)
        buffers = len(make_buffers(shape, np.dtype(np.float32)))
        for choice, ways, one, other in pairs_of_calls(shape, config["processors"]):
            seconds = medians((one, other), buffers, rounds)
            lines.append({"shape": list(shape), "choice": choice, "ways": ways, "seconds": seconds})
            ms = [1e3 * s for s in seconds]
            print(
                f"| {shape[0]}x{N} | {choice} | {ways} | {ms[0]:.2f} | {ms[1]:.2f} | {ms[0] / ms[1]:.2f} |",
                flush=True,
            )
    path = args.json
    if not path and not args.quick:
        path = Path(__file__).parent / "results" / f"cpu-choices-{about['isa']}-{about['date']}.json"
    if path:
        write({**about, "lines": lines}, path)
        print(f"written: {path.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
