"""What command lines share: types of arguments, such as shapes, and the texts of --help."""

from __future__ import annotations

import argparse
import itertools
import math
import re
import textwrap
from collections.abc import Iterable

from .._types import DTYPES


class HelpFormatter(argparse.HelpFormatter):
    """Wraps prose to the terminal's width. Examples begin with a space and keep their lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled: list[str] = []
        for is_prose, group in itertools.groupby(text.splitlines(), key=lambda line: line[:1].strip() != ""):
            lines = list(group)
            filled += textwrap.wrap(" ".join(lines), width) if is_prose else _examples(lines, width)
        return "\n".join(f"{indent}{line}".rstrip() for line in filled)


def _examples(lines: Iterable[str], width: int) -> list[str]:
    """The lines. If one is too long, the text about its command goes to lines of its own."""
    placed = []
    for line in lines:
        parts = [line] if len(line) <= width else re.split(r"(?<=\S)\s{3,}", line, maxsplit=1)
        placed.append(parts[0])
        for said in parts[1:]:
            placed += textwrap.wrap(said, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return placed


def add_dtype(parser: argparse.ArgumentParser, default: str) -> None:
    text = f"{', '.join(DTYPES)} (default: {default})"
    parser.add_argument("--dtype", choices=DTYPES, default=default, metavar="T", help=text)


def parse_shape(text: str) -> tuple[tuple[int, ...], int]:
    """ "1024x4096@0" is ((1024, 4096), axis 0). Without "@" it is the last axis."""
    match = re.fullmatch(r"(\d+(?:x\d+)*)(?:@(-?\d+))?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape: expected 4096x1024 or 1024x4096@0")
    lengths = tuple(map(int, match[1].split("x")))
    if max(lengths) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r}: expected lengths below 2^63")
    return lengths, int(match[2] or -1)


def parse_scale(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a scale: expected a finite number")
    return number
