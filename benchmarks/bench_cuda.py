"""Softmax on a CUDA GPU beside its peers. gpu_options.py has the options, README.md says what is measured."""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpu_report as report
from gpu_options import WEIGHTS, complete, parse

from onsoftmax.bench.machine import about_gpu, obstacle

RESULTS = Path(__file__).parent / "results"
WARM_SHARE = 0.2  # share of the time that compiling QuACK's kernels ahead may take


def about(options: argparse.Namespace) -> dict[str, Any]:
    chosen = {key: value for key, value in vars(options).items() if key not in ("json", "show")}
    return about_gpu() | {"options": chosen}


def describe(case: Any) -> dict[str, Any]:
    import torch

    import onsoftmax as ons
    from onsoftmax.bench.gpu_case import DEVICE

    out = {
        "part": case.part,
        "operation": case.operation,
        "label": case.label,
        "shape": list(case.shape),
        "axis": case.axis,
        "dtype": case.dtype,
        "N": case.N,
        "bytes": case.bytes,
        "spread": case.spread,
        "in_graph": case.in_graph,
    }
    try:
        x = torch.empty(case.shape, dtype=getattr(torch, case.dtype), device=DEVICE)
        out["plan"] = ons.plan(
            x, case.axis, operation=case.operation, **({"k": case.k} if case.k else {})
        ).method
    except Exception as e:  # the case is measured all the same
        out["plan"] = f"none: {e}"
    return out


def measure_part(part: str, options: argparse.Namespace, settings: Any, clock: report.Clock) -> Any:
    """Yields (contestants, case with its figures) for each case."""
    import gpu_parts
    from gpu_cases import cases

    if part == "host":
        for label, roster, figures in gpu_parts.host(options.peers, options.quick):
            case = {"part": part, "label": label, "dtype": "float32", "shape": [4, 256], "N": 256}
            yield roster, {**case, "figures": figures}
        return
    for case in cases(part, options):
        began = time.monotonic()
        out = {**describe(case), "figures": {}}
        roster: list[Any] = []
        if clock.over(began):
            out["skipped"] = "out of time"
        else:
            roster, found = measure_case(case, options, settings, clock.hurry(began))
            out |= found
        yield roster, {**out, "took": round(time.monotonic() - began, 2)}


def measure_case(case: Any, options: argparse.Namespace, settings: Any, hurry: bool) -> Any:
    """The contestants, and the figures or the reason why there are none."""
    from gpu_parts import accuracy

    from onsoftmax.bench.gpu_contestants import contestants, short
    from onsoftmax.bench.gpu_timing import DeviceLostError, measure

    roster = list(contestants(case, options.methods, options.peers))
    if hurry:
        roster = [replace(c, cannot=c.cannot or "out of time") if c.compiles else c for c in roster]
    try:
        figures = accuracy(case, roster) if case.part == "accuracy" else measure(case, roster, settings)
    except DeviceLostError:
        raise
    except Exception as e:  # for example, too little memory for the case itself
        return roster, {"skipped": f"{type(e).__name__}: {short(e)}"}
    return roster, {"figures": figures}


def run(options: argparse.Namespace, machine: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """Measures. Returns the document, which ends early if the GPU was lost. Writes it after each case."""
    import torch
    from gpu_cases import cases
    from gpu_quack import warm_quack

    from onsoftmax.bench.gpu_contestants import COPY, quack_softmax
    from onsoftmax.bench.gpu_timing import DeviceLostError, Settings

    document = {**machine, "kinds": {COPY: "copy"}, "cases": []}
    print(f"{document['gpu']}, driver {document['driver']}, CUDA {document['cuda']}, {document['versions']}")
    begun = time.monotonic()
    random.seed(0)
    torch.manual_seed(0)
    parts = [part for part in WEIGHTS if part in options.parts]
    if "quack" in options.peers and quack_softmax():
        wanted = [case for part in parts for case in cases(part, options)]
        print(warm_quack(wanted, (os.cpu_count() or 2) // 2, WARM_SHARE * options.seconds), file=sys.stderr)
    gc.freeze()  # keeps loaded modules out of garbage collection, which runs before each graph
    now = time.monotonic()
    clock = report.Clock(begun + options.seconds - now, {part: WEIGHTS[part] for part in parts}, now)
    settings = Settings(document["cache_bytes"], options.rounds)
    try:
        for part in parts:
            clock.begin(part, time.monotonic())
            for roster, case in measure_part(part, options, settings, clock):
                document["kinds"] |= {contestant.name: contestant.kind for contestant in roster}
                document["cases"].append(case)
                spent = time.monotonic() - begun
                print(f"{spent:4.0f} s  {part}: {case['label']} {case['dtype']}", file=sys.stderr, flush=True)
                save(document, begun, path)
    except DeviceLostError as e:
        document["lost"] = str(e)
    save(document, begun, path)
    return document


def save(document: dict[str, Any], begun: float, path: Path | None) -> None:
    document["seconds"] = round(time.monotonic() - begun)
    if path:
        report.write(document, path)


def show(document: dict[str, Any]) -> None:
    for text in report.tables(document):
        print(text)
    skipped = [f"{c['label']} {c['dtype']}: {c['skipped']}" for c in document["cases"] if "skipped" in c]
    if skipped:
        print(f"{len(skipped)} cases skipped, the first: {'; '.join(skipped[:5])}")
    if "lost" in document:
        print(f"the GPU was lost: {document['lost']}")
    for line in report.cliffs(document):
        print(line)
    for line in report.troubles(document):
        print(f"NOT RIGHT: {line}")


def charts(document: dict[str, Any], path: Path) -> None:
    from gpu_chart import draw

    try:
        for picture in draw(document, path.with_suffix("")):
            print(f"written: {picture}", file=sys.stderr)
    except ImportError as e:
        print(f"no charts: {e}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.show:
        document = json.loads(options.show.read_text())
        report.check_document(document)
        show(document)
        if not options.no_chart:
            charts(document, options.show)
        return 0
    why = obstacle()
    if why:
        print(f"bench_cuda.py: {why}", file=sys.stderr)
        return 2
    try:
        complete(options)
    except ValueError as e:
        print(f"bench_cuda.py: {e}", file=sys.stderr)
        return 2
    machine = about(options)
    gpu = machine["gpu"].lower().removeprefix("nvidia ").replace(" ", "-")
    name = f"cuda-{gpu}-{machine['date']}{'-sweep' if options.sweep else ''}.json"
    path = options.json or (None if options.quick else RESULTS / name)
    document = run(options, machine, path)
    if path and not options.no_chart:
        charts(document, path)
    show(document)
    if path:
        print(f"\nwritten: {path}", file=sys.stderr)
    return 1 if "lost" in document or report.troubles(document) else 0


if __name__ == "__main__":
    sys.exit(main())
