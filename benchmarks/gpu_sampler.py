"""The sampler of a language model on a CUDA GPU: sample beside softmax_topk, a copy, torch, torch.compile and
FlashInfer.

    python benchmarks/gpu_sampler.py                               # all cells, about nine minutes
    python benchmarks/gpu_sampler.py --quick                       # a minute and a half
    python benchmarks/gpu_sampler.py --cells 1x151936,128x131072 --settings none,all --peers torch
    python benchmarks/gpu_sampler.py --flashinfer flashinfer.so    # its kernels by a library of C
    python benchmarks/gpu_sampler.py --show benchmarks/results/FILE.json    # the tables again

It measures as bench_cuda.py does, in a CUDA graph. benchmarks/README.md says what the settings are and what a
library must have.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench_cuda
import gpu_report as report
from gpu_options import add_run, fill_in, listed
from gpu_sampler_cases import CELLS, DTYPES, PART, SETTINGS, TEMPERATURES, SamplerCase, cases, name_of

PEERS = ["torch", "compile", "flashinfer"]
SECONDS, QUICK_SECONDS = 540, 90
QUICK_SETTINGS = ["none", "top_k", "all", "top_p"]


def existing(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not the path of a file")
    return Path(text).resolve()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    quick_cells = [name_of(cell) for cell in CELLS[::2]]
    choices = {
        "cells": ([name_of(cell) for cell in CELLS], quick_cells),
        "dtypes": (DTYPES, DTYPES[:1]),
        "settings": (list(SETTINGS), QUICK_SETTINGS),
        "temperatures": (TEMPERATURES, TEMPERATURES[:1]),
    }
    for name, (known, _) in choices.items():
        parser.add_argument(f"--{name}", type=listed(*known), metavar="A,B", help=f"of {', '.join(known)}")
    parser.add_argument(
        "--flashinfer", type=existing, metavar="PATH", help="a library, in place of the module"
    )
    add_run(parser.add_argument, PART, PEERS, SECONDS, QUICK_SECONDS)
    options = parser.parse_args(arguments)
    for name, (known, few) in choices.items():
        setattr(options, name, getattr(options, name) or (few if options.quick else known))
    fill_in(options, PEERS, SECONDS, QUICK_SECONDS)
    return options


def describe(case: SamplerCase) -> dict[str, Any]:
    names = ("part", "label", "dtype", "N", "setting", "temperature", "spread", "bytes", "in_graph")
    return {"shape": list(case.shape), **{name: getattr(case, name) for name in names}}


def measure_case(case: SamplerCase, hurry: bool, options: argparse.Namespace, cache_bytes: int) -> Any:
    import torch
    from gpu_sampler_contestants import SamplerReference, contestants, sampler_sets

    from onsoftmax.bench.gpu_timing import race

    gc.collect()
    torch.cuda.empty_cache()

    def measure(roster: list[Any]) -> dict[str, Any]:
        sets = sampler_sets(case, cache_bytes)
        return race(case, roster, sets, SamplerReference(case, sets[0]), options.rounds)

    roster = list(contestants(case, options.peers, options.flashinfer))
    return bench_cuda.figures_or_why(roster, hurry, measure)


def run(options: argparse.Namespace, machine: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """Measures. Returns the document, which ends early if the GPU was lost."""
    return bench_cuda.run_one_part(PART, cases(options), describe, measure_case, options, machine, path)


def tables(document: dict[str, Any]) -> Iterator[str]:
    """First the tables of all contestants. Then a table of auto alone, with a column for each setting."""
    yield from report.tables(document)
    groups = dict.fromkeys((case["dtype"], case["temperature"]) for case in document["cases"])
    for dtype, temperature in groups:
        chosen = [c for c in document["cases"] if (c["dtype"], c["temperature"]) == (dtype, temperature)]
        title = f"{dtype}, temperature {temperature:g}: microseconds of auto / x softmax_topk / x best peer"
        yield f"## {title}\n\n{by_setting(chosen, document['kinds'])}\n"


def by_setting(cases: list[dict[str, Any]], kinds: dict[str, str]) -> str:
    """x softmax_topk is the time of auto divided by the time of softmax_topk. x best peer is the time of the
    fastest peer divided by the time of auto."""
    settings = list(dict.fromkeys(case["setting"] for case in cases))
    rows: dict[str, dict[str, str]] = {}
    peers = [name for name, kind in kinds.items() if kind == "peer"]
    for case in cases:
        found = {name: figure["ms"] for name, figure in case["figures"].items() if "ms" in figure}
        auto, topk = found.get("auto"), found.get("softmax_topk")
        rival = found.get(report.fastest(case, peers))
        row = rows.setdefault(name_of(tuple(case["shape"])), {})
        if auto:
            parts = [
                f"{1e3 * auto:.2f}",
                *(f"{a / b:.2f}" if a and b else "" for a, b in ((auto, topk), (rival, auto))),
            ]
            row[case["setting"]] = " / ".join(part or report.NOTHING for part in parts)
    body = [[shape, *(row.get(name, report.NOTHING) for name in settings)] for shape, row in rows.items()]
    return report.markdown([["shape", *settings], *body])


def main(arguments: list[str] | None = None) -> int:
    return bench_cuda.main_of(PART, parse(arguments), run, tables)


if __name__ == "__main__":
    sys.exit(main())
