"""How long a small call takes on several threads, back to back and after pauses in which the threads sleep.

    python benchmarks/cpu_threads.py --threads 1 2 4 8 --json FILE
    python benchmarks/cpu_threads.py --quick   # two sizes: to see that it works

The planner gives a small array fewer threads than you ask for. To see what more threads would do, change
ELEMENTS_SHARED and ELEMENTS_A_THREAD in csrc/plan/cpu.c and build again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import onsoftmax as ons
from onsoftmax.bench.document import write
from onsoftmax.bench.machine import about_cpu

N = 1024
ROWS = (8, 16, 32, 64, 128, 256, 1024)
PAUSES = (0.0, 30e-6, 1e-3)
WARM_UP = 5


def wait(seconds: float) -> None:
    """Spins for a short pause, like a program that does something else. Sleeps for a long one."""
    if seconds >= 1e-3:
        time.sleep(seconds)
        return
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def microseconds(x: np.ndarray, y: np.ndarray, threads: int, pause: float, calls: int) -> tuple[float, float]:
    """Median and 90th percentile of a call's time."""
    taken = []
    for _ in range(calls + WARM_UP):
        wait(pause)
        begin = time.perf_counter()
        ons.softmax(x, out=y, num_threads=threads)
        taken.append(1e6 * (time.perf_counter() - begin))
    ordered = sorted(taken[WARM_UP:])
    return statistics.median(ordered), ordered[int(0.9 * len(ordered))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", metavar="T")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    config = ons.show_config()
    threads = args.threads or sorted({1, 2, min(4, config["processors"]), config["processors"]})
    lines = []
    print("| rows of 1024 | pause (us) |", *(f"{t} |" for t in threads))
    print("| ---: | ---: |", *("---: |" for _ in threads))
    rng = np.random.default_rng(0)
    for rows in ROWS[2:4] if args.quick else ROWS:
        x = rng.standard_normal((rows, N), dtype=np.float32)
        y = np.empty_like(x)
        for pause in PAUSES:
            cells = {t: microseconds(x, y, t, pause, args.calls) for t in threads}
            assert np.allclose(y.sum(axis=1), 1, atol=1e-5)
            lines.append({"rows": rows, "pause": pause, "microseconds": cells})
            print(f"| {rows} | {1e6 * pause:.0f} |", *(f"{median:.1f} |" for median, _ in cells.values()))
    if args.json:
        about = {
            **about_cpu(),
            "microseconds": "median and 90th percentile of a call, for each number of threads asked for",
        }
        write({**about, "lines": lines}, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
