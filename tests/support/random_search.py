"""Random calls with many rows, on the CPU or on a GPU: shared by route_search.py and sample_search.py."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def on_device(value: Any, device: str) -> Any:
    """A NumPy array as a tensor on the device. Other values stay as they are."""
    import torch

    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.name == "bfloat16":  # torch does not take NumPy's bfloat16
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(value).to(device)


def called(function: Any, device: str, arguments: tuple[Any, ...], terms: dict[str, Any]) -> Any:
    """The result of a call, as NumPy arrays."""
    if device == "cpu":
        return function(*arguments, **terms)
    found = function(
        *(on_device(value, device) for value in arguments),
        **{name: on_device(value, device) for name, value in terms.items() if name != "num_threads"},
    )
    if isinstance(found, tuple):
        return tuple(array.cpu().numpy() for array in found)
    return found.cpu().numpy()


def search(check: Callable[[int], tuple[int, int, str]], rows: int, seed: int) -> dict[str, Any]:
    """Checks cases until they have so many rows. check(seed) gives the rows of a case, the number of rows
    that rounding decides, and what is wrong, or nothing."""
    begun, done, near, wrong, cases = time.monotonic(), 0, 0, [], 0
    while done < rows:
        checked, near_here, said = check(seed + cases)
        done, near, cases = done + checked, near + near_here, cases + 1
        wrong += [said] if said else []
    seconds = round(time.monotonic() - begun)
    return {"rows": done, "cases": cases, "seconds": seconds, "near": near, "wrong": wrong}


def main(doc: str, run: Callable[..., dict[str, Any]], rows: int, arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=rows)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    found = run(**vars(parser.parse_args(arguments)))
    print(json.dumps(found, indent=1))
    return 1 if found["wrong"] else 0
