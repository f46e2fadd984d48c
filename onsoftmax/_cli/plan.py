"""The command line of `onsoftmax plan`."""

from __future__ import annotations

import argparse
import ast
import json
import math
from typing import Any

from .._describe import plan
from .._plan.table import page, show
from .._plan.text import counted
from .arguments import HelpFormatter, add_dtype, parse_shape
from .files import CommandError, written
from .targets import check_target

DESCRIPTION = """Says which method an operation takes for an array of a shape, and why. It also says
what the method moves, how long that takes at the speed of a copy, what the
other methods would cost, and at which lengths the method changes."""
EPILOG = """examples:
  onsoftmax plan 4096x32000
  onsoftmax plan 2048x131072 --dtype float32 --device cuda    without a GPU, an H100 is assumed
  onsoftmax plan 2048x131072 --dtype bfloat16 --device A100   by the data sheet of the A100
  onsoftmax plan 1024x128256 --operation softmax_topk -k 64 --device cuda
  onsoftmax plan 4096x256 --operation route -k 8 --with groups=8 top_groups=4 --device H100
  onsoftmax plan 1024x4096@0 --method online --bandwidth 20e9
  onsoftmax plan 4096x4096 --device cuda --json                        every figure, for a program
"""


def add(commands: Any) -> None:
    """The subcommand's parser."""
    parser = commands.add_parser(
        "plan",
        help="which method runs on a shape, why, and what it costs",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    option = parser.add_argument
    example = "such as 4096x1024, or 1024x4096@0 along axis 0"
    option("shape", nargs="?", type=parse_shape, metavar="SHAPE", help=example)
    option("--shape", dest="named_shape", type=parse_shape, metavar="SHAPE", help="the same, as an option")
    add_dtype(parser, "float32")
    option("--device", default="cpu", help="cpu (the default), cuda, or the name of a GPU, such as A100")
    option("--method", default="auto", help="default: auto")
    option("--operation", default="softmax", metavar="O", help="such as log_softmax (default: softmax)")
    option("-k", type=int, metavar="K", help="elements to return per row, for softmax_topk and route")
    option(
        "--with",
        dest="arguments",
        nargs="+",
        action="extend",
        default=[],
        type=_argument,
        metavar="TERM",
        help="an argument of the operation that changes its plan, as label_smoothing=0.1",
    )
    option(
        "--threads",
        type=int,
        metavar="T",
        help="largest number of CPU threads (default: as many as softmax uses)",
    )
    option("--bandwidth", type=_bandwidth, metavar="B", help="speed of a copy in bytes a second, as 3.35e12")
    option("--html", metavar="FILE", help="writes the plan as a page")
    option("--json", action="store_true", help="prints the plan as JSON, instead of the tables")
    parser.set_defaults(run=run)


def _bandwidth(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a bandwidth: expected bytes a second, as 3.35e12")
    return number


def _argument(text: str) -> tuple[str, Any]:
    """ "groups=8" is ("groups", 8). A value that is no Python literal is a string."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is no argument: expected a name and a value, as groups=8")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def run(options: argparse.Namespace) -> int:
    """Shows the plan on stdout, and writes it to a file if one was asked for."""
    given = [shape for shape in (options.shape, options.named_shape) if shape is not None]
    if len(given) != 1:
        raise CommandError(f"plan got {counted(len(given), 'shape')}: expected one, such as 4096x1024")
    shape, axis = given[0]
    try:
        made = plan(
            shape,
            axis,
            dtype=options.dtype,
            device=options.device,
            method=options.method,
            num_threads=options.threads,
            operation=options.operation,
            k=options.k,
            **dict(options.arguments),
        )
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
    check_target(options.html)
    if options.html is not None:
        with written(options.html) as file:
            file.write(page(f"plan for {made.rows} x {made.N}", made.to_html(options.bandwidth)).encode())
    if options.json:
        print(json.dumps(made.to_dict(options.bandwidth), indent=2))
    else:
        show(made.parts(options.bandwidth))
    return 0
