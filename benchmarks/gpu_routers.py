"""Routers of experts on a CUDA GPU: route beside softmax_topk, a copy, torch, torch.compile, QuACK and
kernels of other libraries.

    python benchmarks/gpu_routers.py                               # all cells, about four minutes
    python benchmarks/gpu_routers.py --quick                       # a minute
    python benchmarks/gpu_routers.py --cells 64x256,65536x64 --peers torch,quack
    python benchmarks/gpu_routers.py --library vLLM=vllm.so --library FlashInfer=flashinfer.so
    python benchmarks/gpu_routers.py --show benchmarks/results/FILE.json    # the tables again

It measures as bench_cuda.py does, in a CUDA graph. benchmarks/README.md says what a library must have.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from typing import Any

import bench_cuda
import gpu_report as report
from gpu_options import add_run, fill_in, listed
from gpu_router_cases import CELLS, DTYPES, PART, RouterCase, cases, name_of

PEERS = ["torch", "compile", "quack"]
SECONDS, QUICK_SECONDS = 240, 60


def library(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not name or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH with the path of a file")
    return name, Path(path).resolve()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names, add = [name_of(cell) for cell in CELLS], parser.add_argument
    add("--cells", type=listed(*names), metavar="A,B", help=f"of {', '.join(names)}")
    add("--dtypes", type=listed(*DTYPES), default=DTYPES, metavar="A,B", help=f"of {', '.join(DTYPES)}")
    add("--library", type=library, action="append", default=[], metavar="NAME=PATH", help="one more peer")
    add_run(add, PART, PEERS, SECONDS, QUICK_SECONDS)
    options = parser.parse_args(arguments)
    options.cells = options.cells or names[:: 3 if options.quick else 1]
    fill_in(options, PEERS, SECONDS, QUICK_SECONDS)
    return options


def describe(case: RouterCase) -> dict[str, Any]:
    names = ("part", "label", "dtype", "N", "k", "bytes", "in_graph")
    return {"shape": list(case.shape), **{name: getattr(case, name) for name in names}}


def measure_case(case: RouterCase, hurry: bool, options: argparse.Namespace, cache_bytes: int) -> Any:
    from gpu_router_contestants import RouterReference, contestants, router_sets

    from onsoftmax.bench.gpu_timing import race

    def measure(roster: list[Any]) -> dict[str, Any]:
        sets = router_sets(case, cache_bytes)
        return race(case, roster, sets, RouterReference(case, sets[0]), options.rounds)

    gc.collect()
    return bench_cuda.figures_or_why(list(contestants(case, options.peers, options.library)), hurry, measure)


def run(options: argparse.Namespace, machine: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """Measures. Returns the document, which ends early if the GPU was lost."""
    from onsoftmax.bench.gpu_contestants import loads

    if "quack" in options.peers and not loads("quack.topk"):
        print("QuACK is not installed: left out", file=sys.stderr)
    return bench_cuda.run_one_part(PART, cases(options), describe, measure_case, options, machine, path)


def main(arguments: list[str] | None = None) -> int:
    return bench_cuda.main_of(PART, parse(arguments), run, report.tables)


if __name__ == "__main__":
    sys.exit(main())
