"""Random rows of route against the formulas in longdouble, on the CPU or on a GPU.

python tests/support/route_search.py --rows 1000000 --device cuda

A case is a call with many rows: random logits, score, bias, groups, k, mask and type. The program prints the
number of rows, how many of them exchanged experts with nearly equal keys, and each case that is wrong.
`--seed S --rows 1` repeats the case of seed S.
"""

from __future__ import annotations

import sys
from typing import Any

import random_search
from route_checks import check_route, random_case

import onsoftmax as ons

ROWS_A_CASE = 500


def search(rows: int, seed: int, device: str) -> dict[str, Any]:
    def check(seed: int) -> tuple[int, int, str]:
        logits, k, terms = random_case(seed, ROWS_A_CASE)
        found = random_search.called(ons.route, device, (logits, k), terms)
        try:
            return len(logits), check_route(logits, k, found, flushes=device != "cpu", **terms), ""
        except AssertionError as error:
            return len(logits), 0, f"seed {seed}: {logits.dtype} {logits.shape} k={k} {terms}: {error}"

    return random_search.search(check, rows, seed)


if __name__ == "__main__":
    sys.exit(random_search.main(__doc__, search, 10**6))
