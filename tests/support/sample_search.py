"""Random rows of sample against its definition in float64, on the CPU or on a GPU.

python tests/support/sample_search.py --rows 1000000 --device cuda

A case is a call with many rows: random logits, parameters, mask and type. The program prints the number of
rows, how many of them have a random number near a boundary, and each case that is wrong.
`--seed S --rows 1` repeats the case of seed S.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np
from sample_checks import check_sample, random_case

import onsoftmax as ons

ROWS_A_CASE = 100


def sampled(logits: Any, terms: dict[str, Any], device: str) -> Any:
    if device == "cpu":
        return ons.sample(logits, **terms)
    import torch

    def moved(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if value.dtype.name == "bfloat16":  # torch does not take NumPy's bfloat16
            return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16).to(device)
        return torch.from_numpy(value).to(device)

    terms = {name: moved(value) for name, value in terms.items() if name != "num_threads"}
    found = ons.sample(moved(logits), **terms)
    arrays = found if isinstance(found, tuple) else (found,)
    arrays = tuple(array.cpu().numpy() for array in arrays)
    return arrays if isinstance(found, tuple) else arrays[0]


def search(rows: int, seed: int, device: str) -> dict[str, Any]:
    begun, done, near, wrong, cases = time.monotonic(), 0, 0, [], 0
    while done < rows:
        logits, terms = random_case(seed + cases, ROWS_A_CASE)
        try:
            near += check_sample(logits, sampled(logits, terms, device), by_logits=device != "cpu", **terms)
        except AssertionError as error:
            wrong.append(f"seed {seed + cases}: {logits.dtype} {logits.shape} {terms}: {error}")
        done, cases = done + len(logits), cases + 1
    seconds = round(time.monotonic() - begun)
    return {"rows": done, "cases": cases, "seconds": seconds, "near": near, "wrong": wrong}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10**5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    found = search(**vars(parser.parse_args(arguments)))
    print(json.dumps(found, indent=1))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
