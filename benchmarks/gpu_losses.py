"""Losses, log-probabilities and divergences on a CUDA GPU beside a copy, torch, torch.compile, TRL, QuACK and
Liger.

    python benchmarks/gpu_losses.py                                  # all parts, about eight minutes
    python benchmarks/gpu_losses.py --quick                          # a minute and a half
    python benchmarks/gpu_losses.py --parts loss,logprob --peers torch,quack
    python benchmarks/gpu_losses.py --parts kl,kl_gradient,js_gradient --seconds 300
    python benchmarks/gpu_losses.py --show benchmarks/results/FILE.json    # the tables again

It measures as bench_cuda.py does. A figure "x copy" is the time of a copy of as many bytes as the call must
move, divided by the time of the call. benchmarks/README.md says what the parts are.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import bench_cuda
import gpu_report as report
from gpu_loss_cases import INVARIANT, SIDES, WEIGHTS, LossCase, cases
from gpu_options import add_run, fill_in, listed

PEERS = ["torch", "trl", "compile", "quack", "liger"]
SECONDS, QUICK_SECONDS = 480, 85
OPERATIONS = ["softmax", "logsumexp", "loss and gradient", "logprob"]  # of the part "invariant"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parts, add = list(WEIGHTS), parser.add_argument
    add("--parts", type=listed(*parts), default=parts, metavar="A,B", help=f"of {', '.join(parts)}")
    add_run(add, "losses", PEERS, SECONDS, QUICK_SECONDS)
    options = parser.parse_args(arguments)
    fill_in(options, PEERS, SECONDS, QUICK_SECONDS)
    return options


def describe(case: LossCase) -> dict[str, Any]:
    return {
        "part": case.part,
        "label": case.label,
        "shape": list(case.shape),
        "dtype": case.dtype,
        "N": case.N,
        "reduction": case.reduction,
        "wrt": case.wrt,
        "bytes": case.bytes,
        "in_graph": case.in_graph,
    }


def measure_case(case: LossCase, hurry: bool, options: argparse.Namespace, cache_bytes: int) -> Any:
    import torch
    from gpu_divergence_contestants import divergences
    from gpu_loss_contestants import contestants

    gc.collect()
    torch.cuda.empty_cache()  # the memory of the case before, in pieces of other sizes
    roster = list((divergences if case.part in SIDES else contestants)(case, options.peers))
    measure = partial(figures, case, cache_bytes=cache_bytes, rounds=options.rounds)
    return bench_cuda.figures_or_why(roster, hurry, measure)


def figures(case: LossCase, roster: list[Any], cache_bytes: int, rounds: int) -> dict[str, Any]:
    """{name: figures} with the peak of the memory of each call on many rows."""
    from gpu_loss_answers import loss_sets, peak_bytes, reference

    from onsoftmax.bench.gpu_timing import race

    sets = loss_sets(case, cache_bytes)
    found = race(case, roster, sets, reference(case, sets[0]), rounds)
    for contestant in roster:
        if "ms" in found[contestant.name] and not case.in_graph and case.part != "invariant":
            found[contestant.name]["peak_bytes"] = peak_bytes(contestant, sets[0], case)
    return found


def warm_quack(options: argparse.Namespace) -> str:
    from gpu_quack import compile_loss, warm

    from onsoftmax.bench.gpu_contestants import quack_cannot

    kernels = {
        (case.N, case.dtype, part == "loss_and_gradient")
        for part in options.parts
        if part in ("loss_and_gradient", "loss")
        for case in cases(part, options.quick)
        if not quack_cannot(case.N, case.dtype)
    }
    seconds = bench_cuda.WARM_SHARE * options.seconds
    return warm(compile_loss, kernels, (os.cpu_count() or 2) // 2, seconds)


def run(options: argparse.Namespace, machine: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """Measures. Returns the document, which ends early if the GPU was lost."""
    from gpu_loss_contestants import quack_loss

    document = {**machine, "kinds": {}, "cases": []}
    begun = bench_cuda.begin(document)
    if "quack" in options.peers and quack_loss():
        print(warm_quack(options), file=sys.stderr)
    measure_one = partial(measure_case, options=options, cache_bytes=document["cache_bytes"])

    def measure_part(part: str, clock: report.Clock) -> Any:
        return bench_cuda.measure_cases(cases(part, options.quick), describe, measure_one, clock)

    parts = {part: WEIGHTS[part] for part in WEIGHTS if part in options.parts}
    bench_cuda.run_parts(document, parts, measure_part, begun, options.seconds, path)
    return document


def tables(document: dict[str, Any]) -> Iterator[str]:
    yield from report.tables(document)
    large = [case for case in document["cases"] if any("peak_bytes" in f for f in case["figures"].values())]
    for part in dict.fromkeys(case["part"] for case in large):
        of_part = [case for case in large if case["part"] == part]
        title = "peak memory beside the logits and their gradient, bytes a row"
        peaks = by_name(of_part, "peak_bytes", lambda peak, case: f"{peak / case['shape'][0]:.0f}")
        yield f"## {part}: {title}\n\n{peaks}\n"
        of_part = [case for case in document["cases"] if case["part"] == part]
        times = by_name(of_part, "ms", lambda ms, case: f"{1e3 * ms:.0f}")
        yield f"## {part}: microseconds a call\n\n{times}\n"
    changed = [case for case in document["cases"] if case["part"] == "invariant"]
    if changed:
        yield f"## the time by invariant, divided by the time by auto\n\n{ratios(changed)}\n"


def names_of(cases: list[dict[str, Any]], key: str) -> list[str]:
    """The contestants of which any case has this figure."""
    return list(dict.fromkeys(name for case in cases for name, f in case["figures"].items() if key in f))


def by_name(cases: list[dict[str, Any]], key: str, text: Callable[[float, dict[str, Any]], str]) -> str:
    """A figure of each contestant, by the name of the contestant."""
    names = names_of(cases, key)
    rows = [["shape", *names]]
    for case in cases:
        found = [case["figures"].get(name, {}).get(key) for name in names]
        cells = [report.NOTHING if figure is None else text(figure, case) for figure in found]
        rows.append([f"{case['label']} {case['dtype']}", *cells])
    return report.markdown(rows)


def ratios(cases: list[dict[str, Any]]) -> str:
    rows = [["shape", *OPERATIONS]]
    for case in cases:
        cells = []
        for name in OPERATIONS:
            auto, other = (case["figures"].get(each, {}).get("ms", 0) for each in (name, name + INVARIANT))
            cells.append(f"{other / auto:.2f}" if auto and other else report.NOTHING)
        rows.append([f"{case['label']} {case['dtype']}", *cells])
    return report.markdown(rows)


def main(arguments: list[str] | None = None) -> int:
    return bench_cuda.main_of("losses", parse(arguments), run, tables)


if __name__ == "__main__":
    sys.exit(main())
