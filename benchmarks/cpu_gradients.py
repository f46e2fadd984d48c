"""Gradients on the CPU: softmax_backward and log_softmax_backward with out=, beside torch's own.

    python benchmarks/cpu_gradients.py            # writes results/cpu-<instruction set>-<date>-gradients.json
    python benchmarks/cpu_gradients.py --quick    # two shapes, three rounds: to see that it works
    python benchmarks/cpu_gradients.py --threads 1 --shapes 64x1024 1000x333

Random data. A round has one sample of each, by turns; a sample is as many calls as fill about 5 ms, on the
same arrays, so that what fits into a cache lies there. Calls of 50 ms come before: meanwhile the other's
threads fall asleep, and the system finds a processor for each of one's own. The figures are medians over
the rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
import timeit
from pathlib import Path
from typing import Any

import numpy as np

import onsoftmax as ons
from onsoftmax._arguments import parse_shape
from onsoftmax.bench.contestants import installed
from onsoftmax.bench.machine import about_cpu

OPERATIONS = ("softmax_backward", "log_softmax_backward")
SHAPES = ["1x4096", "64x1024", "1000x333", "64x4096", "1x32768", "8x32768", "4096x4096"]
SHAPES += ["4096x128", "16384x64"]
SAMPLE_SECONDS, BEFORE_SECONDS = 0.005, 0.05


def lines(operation: str, shape: tuple[int, ...], axis: int, dtype: str) -> dict[str, timeit.Timer]:
    """Ours and torch's, whose answers agree."""
    torch = installed("torch")
    rng = np.random.default_rng(0)
    forward = getattr(ons, operation.removesuffix("_backward"))
    output = forward(rng.standard_normal(shape).astype(dtype), axis)
    grad = rng.standard_normal(shape).astype(dtype)
    results = [np.full_like(output, np.nan) for _ in range(2)]
    tensors = [torch.from_numpy(a) for a in (grad, output, results[1])]
    theirs = getattr(torch.ops.aten, f"_{operation}_data").out
    keyword = "grad_input" if operation == "softmax_backward" else "out"
    names = {"f": getattr(ons, operation), "grad": grad, "y": output, "dx": results[0], "axis": axis}
    of_torch = {"f": theirs, "grad": tensors[0], "y": tensors[1], "dx": tensors[2], "axis": axis}
    of_torch["type"] = tensors[1].dtype
    timers = {
        "onsoftmax": timeit.Timer("f(grad, y, axis, out=dx)", globals=names),
        "torch": timeit.Timer(f"f(grad, y, axis, type, {keyword}=dx)", globals=of_torch),
    }
    for timer in timers.values():
        timer.timeit(1)
    np.testing.assert_allclose(*results, rtol=1e-2, atol=1e-2)
    return timers


def measure(timers: dict[str, timeit.Timer], rounds: int) -> dict[str, list[float]]:
    """Median, lowest and highest seconds of a call."""
    calls = {name: math.ceil(SAMPLE_SECONDS / min(t.repeat(2, 1))) for name, t in timers.items()}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, timer in timers.items():
            end = time.perf_counter() + BEFORE_SECONDS
            while time.perf_counter() < end:
                timer.timeit(calls[name])
            samples[name].append(timer.timeit(calls[name]) / calls[name])
    return {name: [statistics.median(s), min(s), max(s)] for name, s in samples.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dtype", default="float32", choices=["float16", "float32", "float64"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="T")
    parser.add_argument("--shapes", type=parse_shape, nargs="+", metavar="SHAPE", help="such as 1024x4096@0")
    parser.add_argument("--rounds", type=int, metavar="R", help="21, with --quick 3")
    parser.add_argument("--quick", action="store_true", help="two shapes, no file unless --json")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    if installed("torch") is None:
        return 2
    rounds = args.rounds or (3 if args.quick else 21)
    shapes = args.shapes or [parse_shape(shape) for shape in (SHAPES[1:3] if args.quick else SHAPES)]
    about: dict[str, Any] = {**about_cpu(), "dtype": args.dtype, "rounds": rounds}
    about["load_before"] = round(os.getloadavg()[0], 2)
    cases = []
    print(
        "| operation | shape | threads | us | torch, us | x torch |\n"
        "| --- | --- | ---: | ---: | ---: | ---: |"
    )
    for operation in OPERATIONS:
        for threads in args.threads:
            ons.set_num_threads(threads)
            installed("torch").set_num_threads(threads)
            for shape, axis in shapes:
                seconds = measure(lines(operation, shape, axis, args.dtype), rounds)
                name = "x".join(map(str, shape)) + (f"@{axis}" if axis != -1 else "")
                cases.append({"operation": operation, "shape": name, "threads": threads, "seconds": seconds})
                ours, theirs = (seconds[who][0] for who in ("onsoftmax", "torch"))
                print(
                    f"| {operation} | {name} | {threads} | {1e6 * ours:.2f} | {1e6 * theirs:.2f} "
                    f"| {theirs / ours:.2f} |",
                    flush=True,
                )
    suffix = "" if args.dtype == "float32" else f"-{args.dtype}"
    name = f"cpu-{about['isa']}-{about['date']}-gradients{suffix}.json"
    path = args.json or (None if args.quick else Path(__file__).parent / "results" / name)
    if path:
        path.write_text(json.dumps({**about, "cases": cases}, indent=1) + "\n")
        print(f"written: {path.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
