"""Softmax on the CPU: every method of ours beside SciPy, NumPy, torch, ONNX Runtime and a copy, in one run.

    python benchmarks/bench_cpu.py --threads 1 2
    ONSOFTMAX_ISA=avx2 python benchmarks/bench_cpu.py --shapes 4096x1024 1024x4096@0 --quick

benchmarks/README.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import math
import os
import random
import re
import statistics
import sys
import time
import timeit
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from answers import error_eps, exact, good_enough
from contestants import Contestant, contestants, installed

import onsoftmax as ons

TOTAL = 2**24
SHAPES = ["10", "64x1024", "8x4096", "1x10000", "4096x1024", "1024x4096@0", "32x1000x64@1"]
SHAPES += [f"1000000x{N}" for N in (3, 7, 10, 17)]
SHAPES += [f"{TOTAL // N}x{N}" for N in (64, 1000, 1024, 16384, 50257, 131072, TOTAL)]
QUICK_SHAPES = ["10", "64x1024", "4096x1024", "1024x4096@0", f"1x{TOTAL}"]
IN_CACHE = 2**20  # input and output of at most this many bytes are meant to stay in the caches
SAMPLE_SECONDS = 0.003  # a sample is as many calls as fill this
PAUSE_SECONDS = 0.01  # the last contestant's threads stop spinning meanwhile


def parse_shape(text: str) -> tuple[tuple[int, ...], int]:
    """ "1024x4096@0" is ((1024, 4096), axis 0); the last axis without "@"."""
    match = re.fullmatch(r"(\d+(?:x\d+)*)(?:@(-?\d+))?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape: expected 4096x1024 or 1024x4096@0")
    return tuple(map(int, match[1].split("x"))), int(match[2] or -1)


def last_level_cache() -> int:
    """In bytes; 32 MiB where the system does not tell."""
    sizes = [p.read_text().strip() for p in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    units = {"K": 2**10, "M": 2**20}
    return max((int(s[:-1]) * units[s[-1]] for s in sizes if s[-1:] in units), default=2**25)


class Entry:
    """A contestant at work on one shape: checked, then sampled."""

    def __init__(self, contestant: Contestant, buffers: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self.contestant = contestant
        self.samples: list[float] = []
        self.error: float | None = None
        names = [contestant.names(x, y) for x, y in buffers]
        self.timers = [timeit.Timer(contestant.line, globals=n) for n in names]
        self.first_names = names[0]
        self.calls = 1

    def check(self, x: np.ndarray, y: np.ndarray, expected: np.ndarray) -> bool:
        """Whether the answer is right; `y` is full of NaN before."""
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
        else:  # each call on the pair of buffers that was touched the longest ago
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
    buffers: list[tuple[np.ndarray, np.ndarray]],
    axis: int,
    expected: np.ndarray,
    threads: int,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """All contestants on one shape with one number of threads: name -> figures."""
    x, y = buffers[0]
    in_cache = x.nbytes + y.nbytes <= IN_CACHE
    entries, out = [], {}
    for contestant in contestants(axis, threads):
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
    for _ in range(args.rounds):
        random.shuffle(entries)
        for entry in entries:
            time.sleep(PAUSE_SECONDS)
            entry.sample(in_cache, turns)
    return {name: entry.figures() for name, entry in out.items()}


def make_buffers(shape: tuple[int, ...], dtype: np.dtype) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of random input and output, so many that together they are four times the last-level cache."""
    rng = np.random.default_rng(0)
    x = (3 * rng.standard_normal(shape, dtype=np.float32)).astype(dtype)
    pair = 2 * x.nbytes
    count = 1 if pair <= IN_CACHE else math.ceil(4 * last_level_cache() / pair)
    return [(x if i == 0 else x.copy(), np.full_like(x, np.nan)) for i in range(count)]


def fastest(figures: dict[str, Any], kind: str, into: bool = True) -> tuple[str, float]:
    """Name and seconds of the fastest of a kind; without `into` of those alone that choose their memory."""
    fits = {
        name: f["seconds"]
        for name, f in figures.items()
        if f["kind"] == kind and f["seconds"] and (into or not f["into"])
    }
    return min(fits.items(), key=lambda item: item[1], default=("-", math.nan))


def print_tables(cases: list[dict[str, Any]], threads: int) -> None:
    cases = [case for case in cases if case["threads"] == threads]
    print(f"\n## auto, {threads} thread{'s' * (threads > 1)}: how many times as fast\n")
    print("| shape | call | us | GB/s | x copy | x best peer | x SciPy | error (eps) | fastest of ours |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for case in cases:
        figures = case["figures"]
        _, copy = fastest(figures, "copy")
        scipy = figures.get("SciPy", {}).get("seconds") or math.nan
        for call in ("auto", "auto out="):
            into = call != "auto"
            mine = figures[call]["seconds"] or math.nan
            best_name, best = fastest(figures, "peer", into)
            rate = case["bytes"] / mine / 1e9
            print(
                f"| {case['shape']} | {call} | {mine * 1e6:.2f} | {rate:.1f} | {copy / mine:.2f} "
                f"| {best / mine:.2f} ({best_name}) | {scipy / mine:.1f} "
                f"| {figures[call]['error_eps']:.2f} | {fastest(figures, 'ours', into)[0]} |"
            )
    print(f"\n## everyone, {threads} thread{'s' * (threads > 1)}: x copy, in-cache shapes in us\n")
    print("| |", " | ".join(case["shape"] for case in cases), "|")
    print("| --- |", " | ".join("---:" for _ in cases), "|")
    for name in dict.fromkeys(itertools.chain.from_iterable(case["figures"] for case in cases)):
        cells = []
        for case in cases:
            seconds = case["figures"].get(name, {}).get("seconds")
            if seconds is None:
                cells.append("-")
            elif case["bytes"] <= IN_CACHE:
                cells.append(f"{seconds * 1e6:.2f}")
            else:
                cells.append(f"{fastest(case['figures'], 'copy')[1] / seconds:.2f}")
        print(f"| {name} |", " | ".join(cells), "|")


def progress(items: list[Any]) -> Any:
    tqdm = installed("tqdm")
    if tqdm:
        return tqdm.tqdm(items, file=sys.stderr)
    return (print(f"{i + 1} of {len(items)}", file=sys.stderr) or item for i, item in enumerate(items))


def versions() -> dict[str, str]:
    names = ["numpy", "scipy", "torch", "onnx", "onnxruntime", "ml_dtypes"]
    present = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    return {name: present[name] for name in names if name in present}


def processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.*)", info.read_text()) if info.exists() else None
    return found[1] if found else "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dtype", default="float32", choices=["float16", "bfloat16", "float32", "float64"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="T")
    parser.add_argument("--shapes", type=parse_shape, nargs="+", metavar="SHAPE", help="such as 1024x4096@0")
    parser.add_argument("--rounds", type=int, metavar="R", help="samples of each; 9, with --quick 3")
    parser.add_argument("--quick", action="store_true", help="few shapes and rounds, no file unless --json")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 9)
    shapes = args.shapes or list(map(parse_shape, QUICK_SHAPES if args.quick else SHAPES))
    dtype = np.dtype(installed("ml_dtypes").bfloat16 if args.dtype == "bfloat16" else args.dtype)

    config = ons.show_config()
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor(),
        "processors": config["processors"],
        "last_level_cache": last_level_cache(),
        "isa": config["isa"],
        "compiler": config["compiler"],
        "versions": {"onsoftmax": ons.__version__, "python": config["python"], **versions()},
        "dtype": dtype.name,
        "rounds": args.rounds,
        "quick": args.quick,
        "load_before": round(os.getloadavg()[0], 2),
    }
    print(f"processor      {about['processor']}\ndtype          {dtype.name}")
    if about["load_before"] > 0.3:
        print(
            f"others are at work here (load {about['load_before']}): do not trust the figures",
            file=sys.stderr,
        )
    random.seed(0)
    cases = []
    for shape, axis in progress(shapes):
        buffers = make_buffers(shape, dtype)
        expected = exact(buffers[0][0], axis)
        for threads in args.threads:
            case = {
                "shape": "x".join(map(str, shape)) + (f"@{axis}" if axis != -1 else ""),
                "threads": threads,
                "bytes": 2 * buffers[0][0].nbytes,
                "buffer_pairs": len(buffers),
                "plan": ons.plan(buffers[0][0], axis, num_threads=threads).method,
                "figures": run_case(buffers, axis, expected, threads, args),
            }
            cases.append(case)
    for threads in args.threads:
        print_tables(cases, threads)

    name = f"cpu-{about['isa']}-{about['date']}{'' if dtype.name == 'float32' else '-' + dtype.name}.json"
    path = args.json or (None if args.quick else Path(__file__).parent / "results" / name)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**about, "cases": cases}, indent=1) + "\n")
        print(f"\nwritten: {path.name}", file=sys.stderr)
    wrong = [
        f"{name} {case['shape']}"
        for case in cases
        for name, f in case["figures"].items()
        if f["kind"] == "ours" and f["seconds"] is None and not name.startswith("naive")
    ]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
