"""Types of arguments that command lines share, such as shapes."""

from __future__ import annotations

import argparse
import math
import re


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
