"""The command line of `onsoftmax topk`: the k largest probabilities of each row of a .npy file."""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._core import softmax_topk
from .._explain.record import for_json
from .._plan.table import Table, number, numbers, show
from .._topk import TopK
from ..apply import box_lengths, boxes, check_type, is_run
from .arguments import HelpFormatter, parse_scale
from .files import Array, Box, CommandError, NpyFile, open_input, read_stdin, written
from .targets import check_apart, check_target

ROWS_SHOWN = 20

DESCRIPTION = """Prints the k largest softmax probabilities of each row of the array in FILE,
and their indices."""
EPILOG = """examples:
  onsoftmax topk logits.npy -k 5
  onsoftmax topk logits.npy -k 5 --log --scale 0.7
  onsoftmax topk logits.npy -k 64 --output top.npz      values and indices of all rows
  onsoftmax topk - -k 5 <logits.npy                     in a pipe; the whole array is in memory
"""


def add(commands: Any) -> None:
    """The subcommand's parser."""
    parser = commands.add_parser(
        "topk",
        help="the k largest probabilities of each row of a .npy file",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    option = parser.add_argument
    option("input", metavar="FILE", help="a .npy file of floats, integers or bools; - for stdin")
    option("-k", type=int, required=True, metavar="K", help="elements to return per row")
    option("--axis", type=int, default=-1, metavar="A", help="the axis that forms a row (default: -1)")
    option("--log", action="store_true", help="prints the logarithms of the probabilities")
    option(
        "--method",
        default="auto",
        help="auto (the default), invariant, online, split or exact (not for float64)",
    )
    option(
        "--scale", type=parse_scale, default=1.0, metavar="S", help="multiplies the input first (default: 1)"
    )
    option("--output", metavar="FILE", help="writes a .npz file: values and indices of all rows")
    option("--json", action="store_true", help="prints all rows as JSON, instead of the table")
    parser.set_defaults(run=run)


def _pieces(x: NpyFile | Array, axis: int) -> Iterator[tuple[Box, Array]]:
    """Boxes of whole rows: a few MB at a time if they follow each other in a file, otherwise all at once."""
    if not isinstance(x, NpyFile):
        yield tuple(map(slice, x.shape)), x
        return
    lengths = box_lengths(x.shape, {axis}, x.dtype.itemsize, x.fortran)
    if not is_run(x.shape, lengths, x.fortran):
        lengths = [max(length, 1) for length in x.shape]
    for box in boxes(x.shape, lengths):
        yield box, x.read(box)


def select(path: str, x: NpyFile | Array, k: int, axis: int, **options: Any) -> TopK:
    """softmax_topk of the array in a file, or from standard input. The options are softmax_topk's.

    Raises
    ------
    CommandError
        softmax_topk refuses the arguments, or the file became shorter.
    """
    ndim = len(x.shape)
    if ndim == 0:
        raise CommandError(f"{path}: has no dimension: expected rows")
    check_type(path, x.dtype)
    try:
        sample = np.zeros([1 if d != axis % ndim else n for d, n in enumerate(x.shape)], x.dtype)
        found = softmax_topk(sample, k, axis, **options)
    except (TypeError, ValueError) as error:  # AxisError is a ValueError
        raise CommandError(str(error)) from error
    place = axis % ndim
    shape = [k if d == place else n for d, n in enumerate(x.shape)]
    values, indices = np.empty(shape, found.values.dtype), np.empty(shape, np.int64)
    if math.prod(shape) == 0:
        return TopK(values, indices)
    for box, piece in _pieces(x, place):
        where = tuple(slice(0, k) if d == place else part for d, part in enumerate(box))
        values[where], indices[where] = softmax_topk(piece, k, axis, **options)
    return TopK(values, indices)


def _table(path: str, found: TopK, axis: int, log: bool) -> list[Table | str]:
    """The first rows. A single row has a line for each of its k elements. Several rows have one line each."""
    values, indices = (np.moveaxis(array, axis, -1) for array in found)
    k, places = values.shape[-1], values.shape[:-1]
    rows, what = math.prod(places), "log_softmax" if log else "softmax"
    title = f"{path}: the {k} largest of {'the row' if rows == 1 else f'each of {rows} rows'}"
    if rows == 1:
        pairs = zip(indices.reshape(-1).tolist(), values.reshape(-1).tolist(), strict=True)
        return [Table(title, ("at", what), [(str(at), number(value)) for at, value in pairs], frozenset())]
    lines = []
    for place in itertools.islice(np.ndindex(*places), ROWS_SHOWN):
        at = " ".join(map(str, indices[place].tolist()))
        lines.append((",".join(map(str, place)), at, numbers(values[place].tolist())))
    table = Table(title, ("row", "at", what), lines)
    more = rows - len(lines)
    return [table, f"and {more} rows more: --output FILE or --json has them"] if more > 0 else [table]


def run(options: argparse.Namespace) -> int:
    """Shows the rows on stdout, or writes them."""
    check_target(options.output)
    if options.input == "-":
        path = "standard input"
        x: NpyFile | Array = read_stdin()
    else:
        path, x = options.input, open_input(options.input)
        check_apart(path, options.output)
    found = select(
        path,
        x,
        options.k,
        options.axis,
        log=options.log,
        method=options.method,
        scale=options.scale,
    )
    if options.output is not None:
        with written(options.output) as file:
            np.savez(file, values=found.values, indices=found.indices)
    if options.json:
        plain = {"values": found.values.tolist(), "indices": found.indices.tolist()}
        print(json.dumps(for_json(plain), allow_nan=False))
    elif options.output is None:
        show(_table(path, found, options.axis, options.log))
    return 0
