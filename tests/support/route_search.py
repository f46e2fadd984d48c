"""Random rows of route against the formulas in longdouble, on the CPU or on a GPU.

python tests/support/route_search.py --rows 1000000 --device cuda

A case is a call with many rows: random logits, score, bias, groups, k, mask and type. The program prints the
number of rows, how many of them exchanged experts with nearly equal keys, and each case that is wrong.
`--seed S --rows 1` repeats the case of seed S.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np
from route_checks import check_route, random_case

import onsoftmax as ons

ROWS_A_CASE = 500


def routed(logits: Any, k: int, terms: dict[str, Any], device: str) -> Any:
    if device == "cpu":
        return ons.route(logits, k, **terms)
    import torch

    def moved(value: Any) -> Any:
        return torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value

    found = ons.route(moved(logits), k, **{name: moved(value) for name, value in terms.items()})
    return tuple(array.cpu().numpy() for array in found)


def search(rows: int, seed: int, device: str) -> dict[str, Any]:
    begun, done, swapped, wrong, cases = time.monotonic(), 0, 0, [], 0
    while done < rows:
        logits, k, terms = random_case(seed + cases, ROWS_A_CASE)
        try:
            swapped += check_route(
                logits, k, routed(logits, k, terms, device), flushes=device != "cpu", **terms
            )
        except AssertionError as error:
            wrong.append(f"seed {seed + cases}: {logits.dtype} {logits.shape} k={k} {terms}: {error}")
        done, cases = done + len(logits), cases + 1
    seconds = round(time.monotonic() - begun)
    return {"rows": done, "cases": cases, "seconds": seconds, "swapped": swapped, "wrong": wrong}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    found = search(**vars(parser.parse_args(arguments)))
    print(json.dumps(found, indent=1))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
