"""Softmax on a CUDA GPU: every method of ours beside torch, torch.compile, Triton, Liger, QuACK and a copy.

    python benchmarks/bench_cuda.py                                   # all parts, about seven minutes
    python benchmarks/bench_cuda.py --quick
    python benchmarks/bench_cuda.py --parts bands --dtypes bfloat16 --lengths 4096,50257 --methods auto,split
    python benchmarks/bench_cuda.py --sweep 200 --peers torch --methods auto    # random lengths
    python benchmarks/bench_cuda.py --show benchmarks/results/FILE.json    # the tables and charts again

benchmarks/README.md says what this measures and how.
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path
from typing import Any

from onsoftmax._types import DTYPES

PEERS = ["torch", "unfused", "compile", "triton", "liger", "quack"]
SECONDS, QUICK_SECONDS = 390, 75
ROUNDS, QUICK_ROUNDS = 7, 3
SWEEP = 32, 2**22
# Parts in the order in which they run. Each part has this share of the time, plus time that earlier parts
# left.
WEIGHTS = {"host": 0.06, "accuracy": 0.08, "small": 0.14, "chart": 0.14, "other": 0.08}
WEIGHTS |= {"operations": 0.1, "gradients": 0.1, "normalizer": 0.06, "topk": 0.1, "bands": 0.24}


def listed(*known: str) -> Any:
    """A parser for argparse: names separated by commas, or numbers if no names are known."""

    def parse(text: str) -> list[Any]:
        items = [item for item in text.split(",") if item]
        strange = [item for item in items if (item not in known if known else not item.isdecimal())]
        if strange:
            raise argparse.ArgumentTypeError(f"{strange[0]!r} is none of: {', '.join(known) or 'lengths'}")
        return items if known else [int(item) for item in items]

    return parse


def add_run(add: Any, kind: str, peers: list[str], seconds: float, quick_seconds: float) -> None:
    """Adds the options of each script that measures as bench_cuda.py does."""
    add("--peers", type=listed(*peers), metavar="A,B", help=f"of {', '.join(peers)}; '' for none")
    add("--rounds", type=int, metavar="R", help=f"samples of each; {ROUNDS}, with --quick {QUICK_ROUNDS}")
    add("--seconds", type=float, metavar="S", help=f"to share out; {seconds}, with --quick {quick_seconds}")
    add("--quick", action="store_true", help="fewer cases, no torch.compile, no file unless --json")
    add("--json", type=Path, metavar="FILE", help=f"default: results/{kind}-<gpu>-<date>.json")
    add("--show", type=Path, metavar="FILE", help="measure nothing: what a JSON file says")


def fill_in(options: argparse.Namespace, peers: list[str], seconds: float, quick_seconds: float) -> None:
    """Sets the options of add_run that were not given."""
    quick = options.quick
    options.rounds = options.rounds or (QUICK_ROUNDS if quick else ROUNDS)
    options.seconds = options.seconds or (quick_seconds if quick else seconds)
    if options.peers is None:
        options.peers = [name for name in peers if not (quick and name == "compile")]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parts, add = list(WEIGHTS), parser.add_argument
    add("--parts", type=listed(*parts), default=parts, metavar="A,B", help=f"of {', '.join(parts)}")
    add("--methods", metavar="A,B", help="ours; all, unless given")
    add("--dtypes", type=listed(*DTYPES), metavar="A,B", help=f"of {', '.join(DTYPES)}")
    add("--lengths", type=listed(), metavar="N,N", help="of the bands")
    add("--sweep", type=int, metavar="K", help="bands of K random lengths, 32 to 4M, and no other part")
    add("--total", type=int, metavar="E", help="elements of each band; 2^28, with --quick 2^26")
    add_run(add, "cuda", PEERS, SECONDS, QUICK_SECONDS)
    add("--no-chart", action="store_true", help="no PNG beside the JSON file")
    options = parser.parse_args(arguments)
    if options.sweep:
        options.parts, options.lengths = ["bands"], random_lengths(options.sweep)
    return options


def random_lengths(count: int) -> list[int]:
    """Different log-uniform lengths, the same at every call."""
    draw = random.Random(0).uniform
    lengths: set[int] = set()
    while len(lengths) < count:
        lengths.add(round(2 ** draw(math.log2(SWEEP[0]), math.log2(SWEEP[1]))))
    return sorted(lengths)


def complete(options: argparse.Namespace) -> None:
    """Fills in options that were not given. Raises ValueError if a method does not exist."""
    from gpu_cases import QUICK_TOTAL, TOTAL

    from onsoftmax.bench.gpu_contestants import our_methods

    known = our_methods()
    options.total = options.total or (QUICK_TOTAL if options.quick else TOTAL)
    fill_in(options, PEERS, SECONDS, QUICK_SECONDS)
    options.methods = options.methods.split(",") if options.methods else known
    strange = [name for name in options.methods if name not in known]
    if strange:
        raise ValueError(f"no method {', '.join(strange)}: there are {', '.join(known)}")
