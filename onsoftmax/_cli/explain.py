"""The command line of `onsoftmax explain`."""

from __future__ import annotations

import argparse
from typing import Any

from .._explain import METHODS, OPERATIONS, explain, trace_text
from .._explain.trace import Trace
from .._plan.table import show, terminal_width
from .._sample_arguments import PARAMETERS
from ..demo import ROW
from .arguments import HelpFormatter, add_dtype
from .files import CommandError, written
from .targets import check_plot, check_target, save_plot

DESCRIPTION = """Shows every step of a method on one row: what it reads and writes, m, d and the
rescales, beside the textbook formula in float64."""
EPILOG = """examples:
  onsoftmax explain                                       1 2 3 6 2 1, online, in tiles of 3
  onsoftmax explain --tile 1                              the same, element by element
  onsoftmax explain 1 2 3 6 2 1 --method split --parts 2
  onsoftmax explain -k 2                                  softmax_topk: the 2 largest of the row
  onsoftmax explain --operation log_softmax               the same (m, d), with a logarithm at the end
  onsoftmax explain 1 2 3 --operation softmax_backward --grad 0 0 1
  onsoftmax explain --operation cross_entropy_with_grad --target 3
  onsoftmax explain --operation sample --temperature 2 --top-k 4 --top-p 0.9 --seed 7
  onsoftmax explain 2 4 12 --method naive --dtype float16
  onsoftmax explain --method exact                        intervals that have the exact results
  onsoftmax explain 1 2 3 6 2 1 --html row.html --plot row.png
"""


def add(commands: Any) -> None:
    """The subcommand's parser."""
    parser = commands.add_parser(
        "explain",
        help="a softmax by hand, step by step",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    option = parser.add_argument
    worked = " ".join(format(x, "g") for x in ROW)
    option(
        "row",
        metavar="X",
        nargs="*",
        type=_number,
        default=ROW,
        help=f"the row's numbers (default: {worked})",
    )
    option("--tile", type=int, default=3, metavar="T", help="elements read at a time (default: 3)")
    option("--method", default="online", help=f"one of {', '.join(METHODS)} (default: online)")
    option("--parts", type=int, default=2, metavar="P", help="parts of the row, for split (default: 2)")
    option(
        "--operation",
        metavar="O",
        help=f"one of {', '.join(OPERATIONS)} (default: softmax, or softmax_topk with -k); "
        "for the operations that end in _backward, explain first computes the softmax or log_softmax of the "
        "row. These operations, the losses, logprob and sample have the methods online, fused and split",
    )
    option("-k", type=int, metavar="K", help="shows softmax_topk with the K largest, by online or split")
    option(
        "--grad",
        type=_number,
        nargs="+",
        metavar="G",
        help="the upstream gradient, a number for each X (default: 1 for the first, 0 for the others)",
    )
    option("--target", type=int, metavar="J", help="the element that a loss or logprob takes, counted from 0")
    option("--z-loss", type=_number, default=0.0, metavar="Z", help="for a loss: adds Z * logsumexp(X)^2")
    option(
        "--label-smoothing",
        type=_number,
        default=0.0,
        metavar="A",
        help="for a loss: the share of the target that all classes share equally",
    )
    option("--entropy", action="store_true", help="for logprob: shows the entropy of the row too")
    option("--temperature", type=_number, default=1.0, metavar="T", help="for sample: X is divided by T")
    option("--top-k", type=int, default=0, metavar="K", help="for sample: keeps K tokens")
    option(
        "--top-p",
        type=_number,
        default=1.0,
        metavar="P",
        help="for sample: keeps the fewest with P of the mass",
    )
    option("--min-p", type=_number, default=0.0, metavar="P", help="for sample: keeps p >= P * the largest p")
    option("--seed", type=int, metavar="S", help="for sample: the seed of its random number")
    option("--offset", type=int, default=0, metavar="O", help="for sample: its offset (default: 0)")
    option(
        "--joint",
        dest="filter_apply_order",
        action="store_const",
        const="joint",
        default="top_k_first",
        help="for sample: top_p is a share of the whole row, not of what top_k keeps",
    )
    add_dtype(parser, "float64, or float32 with exact")
    option("--html", metavar="FILE", help="writes a page: the row on its way between memory and registers")
    option("--plot", metavar="FILE", help="draws m and d over the steps, and the result: .png, .svg, .pdf")
    option("--json", action="store_true", help="prints every number of every step, instead of the tables")
    parser.set_defaults(run=run, dtype=None)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _trace(options: argparse.Namespace) -> Trace:
    """The trace. For a gradient the row's softmax or log_softmax is taken first, by the same method."""
    operation: Any = options.operation or ("softmax" if options.k is None else "softmax_topk")
    row, grad = options.row, options.grad
    forward = operation.removesuffix("_backward")
    how = {name: getattr(options, name) for name in ("tile", "method", "parts", "dtype")}
    if operation in OPERATIONS and forward != operation:
        row = explain(row, operation=forward, **how).result
        grad = grad or [1.0] + [0.0] * (len(row) - 1)
    arguments = ("k", "target", "z_loss", "label_smoothing", "entropy", *PARAMETERS, "filter_apply_order")
    given = {name: getattr(options, name) for name in arguments}
    return explain(row, operation=operation, grad=grad, **given, **how)


def run(options: argparse.Namespace) -> int:
    """Shows the trace on stdout, and writes the files that were asked for."""
    try:
        trace = _trace(options)
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
    check_target(options.html)
    check_plot(options.plot)
    if options.html is not None:
        with written(options.html) as file:
            file.write(trace.to_html().encode())
    if options.plot is not None:
        save_plot(trace.plot(), options.plot)
    if options.json:
        print(trace.to_json())
    else:
        show(trace_text.parts(trace, terminal_width()))
    return 0
