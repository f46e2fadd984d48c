"""Random rows of sample against its definition in float64, on the CPU or on a GPU.

python tests/support/sample_search.py --rows 1000000 --device cuda

A case is a call with many rows: random logits, parameters, mask and type. The program prints the number of
rows, how many of them have a random number near a boundary, and each case that is wrong.
`--seed S --rows 1` repeats the case of seed S.
"""

from __future__ import annotations

import sys
from typing import Any

import random_search
from sample_checks import check_sample, random_case

import onsoftmax as ons

ROWS_A_CASE = 100


def search(rows: int, seed: int, device: str) -> dict[str, Any]:
    def check(seed: int) -> tuple[int, int, str]:
        logits, terms = random_case(seed, ROWS_A_CASE)
        found = random_search.called(ons.sample, device, (logits,), terms)
        try:
            return len(logits), check_sample(logits, found, by_logits=device != "cpu", **terms), ""
        except AssertionError as error:
            return len(logits), 0, f"seed {seed}: {logits.dtype} {logits.shape} {terms}: {error}"

    return random_search.search(check, rows, seed)


if __name__ == "__main__":
    sys.exit(random_search.main(__doc__, search, 10**5))
