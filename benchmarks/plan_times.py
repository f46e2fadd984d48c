"""Times every method on this GPU over a grid of rows and lengths. `ons.plan` calls these times measured.

    python benchmarks/plan_times.py --json FILE             # measures; four minutes on an H100
    python benchmarks/plan_times.py --check 40              # plans beside measurements, random shapes

A time is the time of one call in a CUDA graph. The calls take turns on arrays that together have four times
the size of the cache. The program checks the answers. plan_table.py makes csrc/plan/measured_times.def from
the file.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onsoftmax.bench.document import write

DTYPES = ["float32", "bfloat16", "float64"]
METHODS = ["naive", "safe", "online", "split", "exact"]
METHODS += ["fused_warp", "fused_block", "online_block", "cluster", "grid"]
ELEMENTS = 2**28  # most elements of an array of several rows
LONGEST = 2**28
# In elements: powers of 2, and the middle between two of them.
PACKED = sorted({2**i for i in range(3, 29)} | {3 * 2**i for i in range(3, 25)})
BETWEEN = [1, 2, 3, 5, 7] + [N + 1 for N in PACKED]
ROWS = [2**i for i in range(11)] + [2**i for i in range(12, 27, 2)]
SATURATED = 4  # times the cache: beyond this, a series ends once twice the rows take twice the time
ENDLESS = 5e-3  # seconds: a series ends after such a call; longer rows are left out if one row takes as long
SAMPLE, SAMPLES = 400e-6, 5  # seconds
SHORTEST = 100  # calls in a graph of the shortest calls
LONGEST_GRAPH = 2e-3  # seconds
NEAR = 0.02


def packs(dtype: str, N: int) -> bool:
    """Whether all rows begin at a pack of 16 bytes."""
    size = {"float64": 8, "float32": 4}.get(dtype, 2)
    return N * size % 16 == 0


class Bench:
    """Arrays to cut cases from, and the timing of a case."""

    def __init__(self, dtype: str) -> None:
        import torch

        self.torch = torch
        self.dtype = getattr(torch, dtype)
        self.cache = torch.cuda.get_device_properties(0).L2_cache_size
        generator = torch.Generator("cuda").manual_seed(1)
        self.x = torch.empty(LONGEST, device="cuda", dtype=self.dtype)
        for part in self.x.split(2**24):
            part.copy_(torch.randn(len(part), device="cuda", generator=generator) * 3)
        self.y = torch.empty_like(self.x)

    def sets(self, rows: int, N: int) -> list[tuple[Any, Any]]:
        """Pairs (x, y) of a case: at most 100, and together four times the cache."""
        size = self.dtype.itemsize
        step = (rows * N * size + 255) // 256 * 256 // size
        count = min(100, math.ceil(4 * self.cache / (2 * rows * N * size)), LONGEST // step)
        places = [(i * step, i * step + rows * N) for i in range(max(1, count))]
        return [(self.x[a:b].view(rows, N), self.y[a:b].view(rows, N)) for a, b in places]

    def seconds(self, call: Callable[[Any, Any], Any], rows: int, N: int, check: bool = True) -> float:
        """Seconds of one call: the median of five samples. A sample replays a graph of calls."""
        from onsoftmax.bench.gpu_timing import captured, elapsed

        sets = self.sets(rows, N)
        calls = [lambda x=x, y=y: call(x, y) for x, y in sets]
        calls[0]()
        alone = elapsed(calls[:1]) / 1e3
        length = max(
            1, min(max(len(sets), SHORTEST if rows * N < 2**16 else 1), math.ceil(LONGEST_GRAPH / alone))
        )
        replay = captured(list(itertools.islice(itertools.cycle(calls), length)))
        sets[0][1].fill_(math.nan)
        once = elapsed([replay]) / 1e3
        if check:
            self.check(*sets[0])
        repeat = max(1, min(100, math.ceil(SAMPLE / once)))
        samples = [elapsed([replay] * repeat) / 1e3 for _ in range(SAMPLES if once < ENDLESS else 1)]
        return statistics.median(samples) / (repeat * length)

    def check(self, x: Any, y: Any) -> None:
        """Raises ArithmeticError for a wrong answer in the first or the last rows."""
        rows = max(1, min(len(x), 2**20 // x.shape[1]))
        for part in (slice(0, rows), slice(len(x) - rows, None)):
            wanted = self.wanted(x[part])
            limit = 0.02 * float(wanted.max())
            if not bool(((y[part] - wanted).abs() <= limit).all()):
                raise ArithmeticError(f"a wrong answer: {tuple(x.shape)}, {self.dtype}")

    def wanted(self, x: Any) -> Any:
        return self.torch.softmax(x, -1)


class CopyBench(Bench):
    def wanted(self, x: Any) -> Any:
        return x


def method_call(method: str) -> Callable[[Any, Any], Any]:
    import onsoftmax as ons

    return lambda x, y: ons.softmax(x, out=y, method=method)


def copy(x: Any, y: Any) -> None:
    y.copy_(x)


def longest(dtype: str, method: str) -> int:
    import onsoftmax as ons

    for N in (1, LONGEST):
        try:
            found = ons.plan((1, N), dtype=dtype, device="cuda", method=method).longest_row
        except ValueError:
            continue
        return found or LONGEST
    return 0


def measure_method(
    bench: Bench, dtype: str, method: str, lengths: list[int], until: float
) -> dict[int, dict[int, float]]:
    """{N: {rows: seconds}}"""
    call, limit = method_call(method), longest(dtype, method)
    found: dict[int, dict[int, float]] = {}
    mine = [N for N in lengths if limit >= N]
    if mine and limit < LONGEST and mine[-1] != limit and packs(dtype, limit) == packs(dtype, lengths[-1]):
        mine.append(limit)
    for N in mine:
        row = found[N] = {}
        for rows in ROWS:
            if rows * N > (LONGEST if rows == 1 else ELEMENTS) or time.monotonic() > until:
                break
            row[rows] = bench.seconds(call, rows, N, check=method != "naive")
            if row[rows] > ENDLESS:
                break
            before = row.get(rows // 2)
            if (
                before
                and rows // 2 in row
                and 2 * rows * N * bench.dtype.itemsize > SATURATED * bench.cache
                and abs(row[rows] / (2 * before) - 1) < NEAR
            ):
                break
        if not row:
            del found[N]
        elif row[1] > ENDLESS:
            break
    return found


def check(count: int) -> None:
    """Compares plans with measurements, for random types, methods and shapes."""
    import onsoftmax as ons

    draw = random.Random(time.time_ns())
    methods = ["auto"] * 8 + METHODS
    benches = {dtype: Bench(dtype) for dtype in DTYPES}
    off = []
    print("| shape | type | method | planned, us | measured, us | ratio |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    while len(off) < count:
        N = round(2 ** draw.uniform(3, 22))
        N = N // 8 * 8 if draw.random() < 0.5 else N
        rows = max(1, round(2 ** draw.uniform(-1, min(20, 26 - math.log2(N)))))
        dtype, method = draw.choice(DTYPES), draw.choice(methods)
        try:
            planned = ons.plan((rows, N), dtype=dtype, device="cuda", method=method)
        except ValueError:
            continue
        if not planned.measured_seconds or planned.measured_seconds > 0.05:
            continue
        took = benches[dtype].seconds(method_call(planned.method), rows, N, check=method != "naive")
        off.append(planned.measured_seconds / took)
        name = f"auto: {planned.method}" if method == "auto" else method
        both = f"{planned.measured_seconds * 1e6:.3g} | {took * 1e6:.3g}"
        print(f"| {rows}x{N} | {dtype} | {name} | {both} | {off[-1]:.2f} |")
    ranked = sorted(abs(math.log(ratio)) for ratio in off)
    print(
        f"of {count}: median {math.exp(ranked[len(ranked) // 2]):.2f}, worst {math.exp(ranked[-1]):.2f}, "
        f"beyond 1.3: {sum(1 for r in ranked if r > math.log(1.3))}"
    )


def measure(dtypes: list[str], methods: list[str], seconds: float) -> dict[str, Any]:
    import torch

    from onsoftmax.bench.machine import about_gpu

    start = time.monotonic()
    jobs = [(dtype, packed, method) for dtype in dtypes for method in methods for packed in (True, False)]
    document: dict[str, Any] = {**about_gpu(), "copy": {}, "times": []}
    bench = CopyBench("float32")
    for _ in range(300):  # until the GPU's clock has risen
        bench.y.copy_(bench.x)
    document["copy"] = {2**i: bench.seconds(copy, 1, 2**i // 4) for i in range(8, 29)}
    bench = None
    for place, (dtype, packed, method) in enumerate(jobs):
        if bench is None or str(bench.dtype) != f"torch.{dtype}":
            bench = None
            torch.cuda.empty_cache()
            bench = Bench(dtype)
        lengths = [N for N in (PACKED if packed else BETWEEN) if packs(dtype, N) == packed]
        now = time.monotonic()
        until = now + (start + seconds - now) / (len(jobs) - place) * 3
        times = measure_method(bench, dtype, method, lengths, min(until, start + seconds))
        document["times"].append({"dtype": dtype, "packs": packed, "method": method, "us": times})
        count = sum(map(len, times.values()))
        print(f"{dtype} {method} packs={packed}: {count} in {time.monotonic() - now:.1f} s", flush=True)
    return document


def compact(document: dict[str, Any]) -> dict[str, Any]:
    """The document with times in microseconds, of four digits."""

    def short(times: dict[int, float]) -> dict[int, float]:
        return {rows: float(f"{seconds * 1e6:.4g}") for rows, seconds in times.items()}

    series = [s | {"us": {N: short(row) for N, row in s["us"].items()}} for s in document["times"]]
    return document | {"copy": short(document["copy"]), "times": series}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the times go")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="of these; by default all")
    parser.add_argument("--methods", default=",".join(METHODS), help="likewise")
    parser.add_argument("--seconds", type=float, default=400, help="to stop after; 400")
    parser.add_argument("--check", type=int, metavar="K", help="plan and measure K random shapes")
    options = parser.parse_args()
    if options.check:
        check(options.check)
        raise SystemExit
    if not options.json:
        parser.error("--json FILE is missing")
    document = measure(options.dtypes.split(","), options.methods.split(","), options.seconds)
    write(compact(document), options.json)
