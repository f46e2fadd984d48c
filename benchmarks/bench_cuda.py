"""Softmax on a CUDA GPU beside its peers. gpu_options.py has the options, README.md says what is measured."""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gpu_report as report
from gpu_options import WEIGHTS, complete, parse

from onsoftmax.bench.machine import about_gpu, obstacle

RESULTS = Path(__file__).parent / "results"
NOT_TOLD = ("json", "show", "library", "flashinfer")  # options that are paths of this machine
WARM_SHARE = 0.2  # share of the time that compiling QuACK's kernels ahead may take


def about(options: argparse.Namespace) -> dict[str, Any]:
    chosen = {key: value for key, value in vars(options).items() if key not in NOT_TOLD}
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
    measure_one = partial(measure_case, options=options, settings=settings)
    yield from measure_cases(cases(part, options), describe, measure_one, clock)


def measure_cases(cases: Iterable[Any], describe: Any, measure_one: Any, clock: report.Clock) -> Any:
    """Yields (contestants, case with its figures) for each case, as long as there is time.
    measure_one(case, hurry) is measure_case or the like."""
    for case in cases:
        began = time.monotonic()
        out = {**describe(case), "figures": {}}
        roster: list[Any] = []
        if clock.over(began):
            out["skipped"] = "out of time"
        else:
            roster, found = measure_one(case, clock.hurry(began))
            out |= found
        yield roster, {**out, "took": round(time.monotonic() - began, 2)}


def measure_case(case: Any, hurry: bool, options: argparse.Namespace, settings: Any) -> Any:
    """The contestants, and the figures or the reason why there are none."""
    from gpu_parts import accuracy

    from onsoftmax.bench.gpu_contestants import contestants
    from onsoftmax.bench.gpu_timing import measure

    roster = list(contestants(case, options.methods, options.peers))
    if case.part == "accuracy":
        return figures_or_why(roster, hurry, partial(accuracy, case))
    return figures_or_why(roster, hurry, lambda roster: measure(case, roster, settings))


def figures_or_why(roster: list[Any], hurry: bool, measure: Any) -> Any:
    """The contestants, and {"figures": measure(contestants)} or {"skipped": the reason}."""
    from onsoftmax.bench.gpu_contestants import short
    from onsoftmax.bench.gpu_timing import DeviceLostError

    if hurry:
        roster = [replace(c, cannot=c.cannot or "out of time") if c.compiles else c for c in roster]
    try:
        return roster, {"figures": measure(roster)}
    except DeviceLostError:
        raise
    except Exception as e:  # for example, too little memory for the case itself
        return roster, {"skipped": f"{type(e).__name__}: {short(e)}"}


def run(options: argparse.Namespace, machine: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """Measures. Returns the document, which ends early if the GPU was lost."""
    from gpu_cases import cases
    from gpu_quack import warm_quack

    from onsoftmax.bench.gpu_contestants import COPY, quack_softmax
    from onsoftmax.bench.gpu_timing import Settings

    document = {**machine, "kinds": {COPY: "copy"}, "cases": []}
    begun = begin(document)
    parts = {part: WEIGHTS[part] for part in WEIGHTS if part in options.parts}
    if "quack" in options.peers and quack_softmax():
        wanted = [case for part in parts for case in cases(part, options)]
        print(warm_quack(wanted, (os.cpu_count() or 2) // 2, WARM_SHARE * options.seconds), file=sys.stderr)
    settings = Settings(document["cache_bytes"], options.rounds)
    run_parts(
        document,
        parts,
        lambda part, clock: measure_part(part, options, settings, clock),
        begun,
        options.seconds,
        path,
    )
    return document


def run_one_part(
    part: str,
    cases: Iterable[Any],
    describe: Any,
    measure_one: Any,
    options: argparse.Namespace,
    machine: dict[str, Any],
    path: Path | None,
) -> dict[str, Any]:
    """The function `run` of a script with one part. measure_one(case, hurry, options, cache_bytes) is like
    measure_case."""
    document = {**machine, "kinds": {}, "cases": []}
    begun = begin(document)
    measure = partial(measure_one, options=options, cache_bytes=document["cache_bytes"])

    def measure_part(part: str, clock: report.Clock) -> Any:
        return measure_cases(cases, describe, measure, clock)

    run_parts(document, {part: 1}, measure_part, begun, options.seconds, path)
    return document


def begin(document: dict[str, Any]) -> float:
    """Prints where it runs, and sets the seeds. Returns the time."""
    import torch

    print(f"{document['gpu']}, driver {document['driver']}, CUDA {document['cuda']}, {document['versions']}")
    random.seed(0)
    torch.manual_seed(0)
    return time.monotonic()


def run_parts(
    document: dict[str, Any],
    parts: dict[str, float],
    measure_part: Any,
    begun: float,
    seconds: float,
    path: Path | None,
) -> None:
    """Measures the parts, each within its share of the seconds. Writes the document after each case."""
    from onsoftmax.bench.gpu_timing import DeviceLostError

    gc.freeze()  # keeps loaded modules out of garbage collection, which runs before each graph
    now = time.monotonic()
    clock = report.Clock(begun + seconds - now, parts, now)
    try:
        for part in parts:
            clock.begin(part, time.monotonic())
            for roster, case in measure_part(part, clock):
                document["kinds"] |= {contestant.name: contestant.kind for contestant in roster}
                document["cases"].append(case)
                spent = time.monotonic() - begun
                print(f"{spent:4.0f} s  {part}: {case['label']} {case['dtype']}", file=sys.stderr, flush=True)
                save(document, begun, path)
    except DeviceLostError as e:
        document["lost"] = str(e)
    save(document, begun, path)


def save(document: dict[str, Any], begun: float, path: Path | None) -> None:
    document["seconds"] = round(time.monotonic() - begun)
    if path:
        report.write(document, path)


def show(document: dict[str, Any], tables: Any = report.tables) -> None:
    for text in tables(document):
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


def result_path(kind: str, machine: dict[str, Any], sweep: bool = False) -> Path:
    gpu = machine["gpu"].lower().removeprefix("nvidia ").replace(" ", "-")
    return RESULTS / f"{kind}-{gpu}-{machine['date']}{'-sweep' if sweep else ''}.json"


def main_of(kind: str, options: argparse.Namespace, run: Any, tables: Any) -> int:
    """The main function of gpu_losses.py, gpu_routers.py or gpu_sampler.py. `kind` begins the name of the
    results."""
    if options.show:
        document = json.loads(options.show.read_text())
        report.check_document(document)
        show(document, tables)
        return 0
    why = obstacle()
    if why:
        print(f"gpu_{kind}.py: {why}", file=sys.stderr)
        return 2
    machine = about(options)
    path = options.json or (None if options.quick else result_path(kind, machine))
    document = run(options, machine, path)
    show(document, tables)
    if path:
        print(f"\nwritten: {path}", file=sys.stderr)
    return 1 if "lost" in document or report.troubles(document) else 0


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
    path = options.json or (None if options.quick else result_path("cuda", machine, options.sweep))
    document = run(options, machine, path)
    if path and not options.no_chart:
        charts(document, path)
    show(document)
    if path:
        print(f"\nwritten: {path}", file=sys.stderr)
    return 1 if "lost" in document or report.troubles(document) else 0


if __name__ == "__main__":
    sys.exit(main())
