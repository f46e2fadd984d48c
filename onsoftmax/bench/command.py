"""The command line of `onsoftmax bench`."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from typing import Any

from .. import _core, get_num_threads, methods, plan
from .._cli.arguments import HelpFormatter, add_dtype, parse_shape
from .._cli.files import CommandError, written
from .._cli.targets import check_plot, check_target, save_plot
from .._plan.table import Table, show
from . import chart, contestants
from .contestants import importable
from .document import as_text
from .machine import obstacle
from .runs import QUICK_PEERS, ROUNDS, Request, Shape, name_of, run

# The modules that a peer needs, and the packages to install.
MODULES = {
    "scipy": (("scipy",), "scipy"),
    "numpy": (("numpy",), "numpy"),
    "onnxruntime": (("onnxruntime", "onnx"), "onnxruntime onnx"),
    "torch": (("torch",), "torch"),
    "unfused": (("torch",), "torch"),
    "compile": (("torch",), "torch"),
    "triton": (("triton",), "triton"),
    "liger": (("liger_kernel",), "liger-kernel"),
    "quack": (("quack",), "quack-kernels"),
    "jax": (("jax",), "jax"),
}
CPU_PEERS = (*contestants.PEERS, "jax")
GPU_PEERS = ("torch", "unfused", "compile", "triton", "liger", "quack")
BUSY = 0.7  # a load of the last minute (processes that run or wait) above which figures are in doubt
OPERATIONS = (*contestants.FORWARD, "softmax_topk", "softmax_backward", "log_softmax_backward")
USUAL_K = 8
DESCRIPTION = """Times softmax, or another operation, beside the peers that are installed, in one short run.
Every answer is checked before it is timed. GB/s counts each input and the result once. x copy is
the speed relative to a copy: the time of a copy of as many bytes, divided by the time of the call."""
EPILOG = """examples:
  onsoftmax bench                                      all peers installed, on the GPU if there is one
  onsoftmax bench --device cpu --shape 4096x1024 1024x4096@0 --against scipy,torch
  onsoftmax bench --device cuda --dtype bfloat16 --plot chart.png --json run.json
  onsoftmax bench --methods all --against none         every method of ours, beside a copy
  onsoftmax bench --operation softmax_backward --shape 1024x1024
"""


def add(commands: Any) -> None:
    """The subcommand's parser."""
    parser = commands.add_parser(
        "bench",
        help="softmax beside its peers on this machine",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    option = parser.add_argument
    option(
        "--operation",
        choices=OPERATIONS,
        default="softmax",
        metavar="O",
        help=f"one of {', '.join(OPERATIONS)} (default: softmax)",
    )
    option("-k", type=_count, metavar="K", help=f"for softmax_topk: elements per row (default: {USUAL_K})")
    option("--device", choices=["cpu", "cuda"], help="default: cuda if there is a GPU and torch, else cpu")
    option(
        "--shape",
        type=parse_shape,
        nargs="+",
        default=[],
        metavar="SHAPE",
        help="such as 4096x1024, or 1024x4096@0 along axis 0",
    )
    add_dtype(parser, "float32")
    option(
        "--against",
        metavar="A,B",
        help=f"peers: on the CPU from {','.join(CPU_PEERS)}; on a GPU from {','.join(GPU_PEERS)}; "
        "or none (default: the peers that are installed and have the operation, without "
        "jax, unfused and compile)",
    )
    option("--methods", default="", metavar="A,B", help="our methods to time beside auto, or all")
    option(
        "--threads",
        type=_count,
        metavar="T",
        help="largest number of CPU threads (default: as many as softmax uses)",
    )
    option("--rounds", type=_count, default=ROUNDS, metavar="R", help=f"samples per case (default: {ROUNDS})")
    option("--plot", metavar="FILE", help="draws GB/s against N: .png, .svg, .pdf")
    option("--json", metavar="FILE", help="writes all figures")
    parser.set_defaults(run=bench)


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return number


def is_here(peer: str) -> bool:
    """Whether the modules that a peer needs are installed."""
    return all(map(importable, MODULES[peer][0]))


def _peers(text: str | None, device: str, operation: str) -> tuple[list[str], list[str]]:
    """The peers that take part, and the peers that are left out because they are not installed."""

    def have_it(names: Sequence[str]) -> list[str]:
        return [name for name in names if operation in contestants.HAVE.get(name, OPERATIONS)]

    known = have_it(CPU_PEERS if device == "cpu" else GPU_PEERS)
    if text is None:
        usual = have_it(contestants.PEERS if device == "cpu" else QUICK_PEERS)
        here = [name for name in usual if is_here(name)]
        return here, [name for name in usual if name not in here]
    wanted = [name for name in text.split(",") if name and name != "none"]
    for name in wanted:
        if name not in known:
            other = " (on another device)" if name in MODULES else ""
            if name in (CPU_PEERS if device == "cpu" else GPU_PEERS):
                other = f" (it has no {operation})"
            raise CommandError(f"--against {name}{other}: on {device} there are {', '.join(known)}")
        if not is_here(name):
            raise CommandError(f"--against {name}: it is not installed: pip install {MODULES[name][1]}")
    return wanted, []


def _methods(text: str, device: str, operation: Any) -> list[str]:
    known: list[str] = [method.name for method in methods(device, operation=operation)]
    wanted = known if text == "all" else [name for name in text.split(",") if name and name != "auto"]
    for name in wanted:
        if name not in ("invariant", *known):
            raise CommandError(f"--methods {name}: {operation} on {device} has invariant, {', '.join(known)}")
    return wanted


def _device(wanted: str | None) -> str:
    if wanted == "cpu" or (wanted is None and "cuda:0" not in _core.config()["cuda"]):
        return "cpu"
    why = obstacle()
    if why and wanted:
        raise CommandError(f"--device cuda: {why}")
    return "cpu" if why else "cuda"


def _check_shapes(shapes: Sequence[Shape], dtype: str, device: str, **how: Any) -> None:
    for lengths, axis in shapes:
        if 0 in lengths:
            raise CommandError(f"--shape {name_of((lengths, axis))}: expected lengths of at least 1")
        try:
            plan(lengths, axis, dtype=None if dtype == "bfloat16" else dtype, device=device, **how)
        except ValueError as error:
            raise CommandError(f"--shape {name_of((lengths, axis))}: {error}") from error


def bench(options: argparse.Namespace) -> int:
    """Runs the benchmark, shows it and writes files. Returns 1 if an answer of ours was wrong."""
    device = _device(options.device)
    operation = options.operation
    if options.k and operation != "softmax_topk":
        raise CommandError(f"-k {options.k}: {operation} takes no k, --operation softmax_topk does")
    k = USUAL_K if operation == "softmax_topk" and not options.k else options.k
    _check_shapes(options.shape, options.dtype, device, operation=operation, k=k)
    peers, missing = _peers(options.against, device, operation)
    request = Request(
        device=device,
        shapes=options.shape,
        dtype=options.dtype,
        peers=peers,
        methods=_methods(options.methods, device, operation),
        threads=options.threads or get_num_threads(),
        rounds=options.rounds,
        operation=operation,
        k=k or 0,
    )
    check_target(options.json)
    check_plot(options.plot)
    document = run(request)
    show(tables(document, missing))
    if options.json is not None:
        with written(options.json) as file:
            file.write(as_text(document).encode())
    if options.plot is not None:
        save_plot(chart.draw(document), options.plot)
    return 1 if wrong_ones(document) else 0


def wrong_ones(document: dict[str, Any]) -> list[str]:
    """The cases in which an answer of ours was wrong. naive's answers may be wrong."""
    return [
        f"{name}, {case['label']}"
        for case in document["cases"]
        for name, figure in case["figures"].items()
        if document["kinds"][name] == "ours"
        and not name.startswith("naive")
        and {"wrong", "failed"} & figure.keys()
    ]


def _cell(figure: dict[str, Any] | None, key: str) -> str:
    if figure is None or "cannot" in figure:
        return "-"
    if key not in figure:
        return "wrong" if "wrong" in figure else "failed"
    value = float(figure[key])
    if key == "gbps":
        return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _labels(cases: Sequence[dict[str, Any]]) -> tuple[str, list[str]]:
    """What the cases have in common, and the names of the columns. If all have as many rows, N alone names
    them."""
    rows = {case["shape"][0] if len(case["shape"]) == 2 and case["axis"] == -1 else None for case in cases}
    if len(rows) > 1 or None in rows:
        return "", [case["label"] for case in cases]
    lengths = [case["N"] for case in cases]
    return f", {rows.pop()} rows of N", [f"{N // 1024}K" if N % 1024 == 0 else str(N) for N in lengths]


def tables(document: dict[str, Any], missing: Sequence[str] = ()) -> list[Table | str]:
    """GB/s and x copy: a row for each contestant, a column for each shape."""
    cases = document["cases"]
    title = ", ".join(document[key] for key in ("operation", "dtype", "machine", "date"))
    out: list[Table | str] = [title]
    of_rows, labels = _labels(cases)
    head = ("", *labels)
    for name, key in ((f"GB/s{of_rows}", "gbps"), (f"x copy{of_rows}", "x_copy")):
        rows = [(who, *(_cell(case["figures"].get(who), key) for case in cases)) for who in document["kinds"]]
        out.append(Table(name, head, rows))
    took = "auto took: " + ", ".join(f"{case['plan']} for {case['label']}" for case in cases)
    out.append(textwrap.fill(took, 80))
    errors = [case["figures"]["auto"].get("error") for case in cases]
    largest = max((error for error in errors if isinstance(error, float)), default=None)
    if largest is not None:
        out.append(f"Answers were checked before they were timed: auto is within {largest:.2f} eps.")
    out += [f"WRONG: {where}" for where in wrong_ones(document)]
    if document.get("load_before", 0) > BUSY:
        out.append(
            f"The machine was busy: a load of {document['load_before']:.1f} before the run. Figures of a\n"
            "busy machine are slower than its own, and those of several threads most."
        )
    if missing:
        out.append(f"not installed, left out: {', '.join(missing)}")
    return out
