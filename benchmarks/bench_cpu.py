"""Softmax on the CPU: every method of ours beside SciPy, NumPy, torch, ONNX Runtime and a copy, in one run.

    python benchmarks/bench_cpu.py --threads 1 2
    ONSOFTMAX_ISA=avx2 python benchmarks/bench_cpu.py --shapes 4096x1024 1024x4096@0 --quick

benchmarks/README.md says what this measures and how.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from pathlib import Path
from typing import Any

import onsoftmax as ons
from onsoftmax._cli.arguments import parse_shape
from onsoftmax._plan.copy_speed import last_level_cache
from onsoftmax._types import DTYPES
from onsoftmax.bench.case import Case
from onsoftmax.bench.cpu_timing import IN_CACHE, make_sets, run_case
from onsoftmax.bench.document import write
from onsoftmax.bench.machine import about_cpu
from onsoftmax.bench.progress import progress
from onsoftmax.bench.runs import name_of, numpy_type

TOTAL = 2**24
SHAPES = ["10", "64x1024", "8x4096", "1x10000", "4096x1024", "1024x4096@0", "32x1000x64@1"]
SHAPES += [f"1000000x{N}" for N in (3, 7, 10, 17)]
SHAPES += [f"{TOTAL // N}x{N}" for N in (64, 1000, 1024, 16384, 50257, 131072, TOTAL)]
QUICK_SHAPES = ["10", "64x1024", "4096x1024", "1024x4096@0", f"1x{TOTAL}"]


def fastest(figures: dict[str, Any], kind: str, into: bool = True) -> tuple[str, float]:
    """Name and seconds of the fastest of a kind. Without `into`, calls that take an output array do not
    count."""
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="T")
    parser.add_argument("--shapes", type=parse_shape, nargs="+", metavar="SHAPE", help="such as 1024x4096@0")
    parser.add_argument("--rounds", type=int, metavar="R", help="samples of each; 9, with --quick 3")
    parser.add_argument("--quick", action="store_true", help="few shapes and rounds, no file unless --json")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 9)
    shapes = args.shapes or list(map(parse_shape, QUICK_SHAPES if args.quick else SHAPES))
    dtype = numpy_type(args.dtype)

    ons.show_config()
    about = {
        **about_cpu(),
        "last_level_cache": last_level_cache(),
        "dtype": dtype.name,
        "rounds": args.rounds,
        "quick": args.quick,
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
        asked = Case("cpu", shape, dtype.name, axis)
        sets = make_sets(asked, dtype)
        for threads in args.threads:
            case = {
                "shape": name_of((shape, axis)),
                "threads": threads,
                "bytes": asked.bytes,
                "buffer_pairs": len(sets),
                "plan": ons.plan(sets[0]["x"], axis, num_threads=threads).method,
                "figures": run_case(asked, sets, threads, args.rounds),
            }
            cases.append(case)
    for threads in args.threads:
        print_tables(cases, threads)

    name = f"cpu-{about['isa']}-{about['date']}{'' if dtype.name == 'float32' else '-' + dtype.name}.json"
    path = args.json or (None if args.quick else Path(__file__).parent / "results" / name)
    if path:
        write({**about, "cases": cases}, path)
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
