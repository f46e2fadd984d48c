"""One short run of `onsoftmax bench` on the CPU or on a GPU: a document of cases and their figures."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import __version__, plan
from .._cli.files import CommandError
from .._plan.copy_speed import last_level_cache
from .._plan.memory import free_memory
from .case import Case
from .figures import rounded
from .machine import driver, load, processor, versions
from .progress import progress

Shape = tuple[tuple[int, ...], int]
"""The lengths, and the axis that is reduced."""

# Rows of 1K to 262K: on the CPU 2^23 elements in all, on a GPU 2048 rows.
CPU_SHAPES: list[Shape] = [((2**23 // N, N), -1) for N in (2**10, 2**12, 2**14, 2**16, 2**18)]
GPU_SHAPES: list[Shape] = [((2048, 2**k), -1) for k in range(10, 19)]
ROUNDS = 5
EXACT_BYTES = 56  # bytes of an element of the exact result and its temporaries, at most
QUICK_PEERS = ("torch", "triton", "liger", "quack")  # peers that do not take minutes to compile


@dataclass(frozen=True)
class Request:
    """What to run. `methods` are ours, beside auto. Without shapes the usual shapes run."""

    device: str
    shapes: Sequence[Shape]
    dtype: str
    peers: Sequence[str]
    methods: Sequence[str]
    threads: int
    rounds: int
    operation: str = "softmax"
    k: int = 0


def name_of(shape: Shape) -> str:
    lengths, axis = shape
    return "x".join(map(str, lengths)) + (f"@{axis}" if axis != -1 else "")


def _about(case: Case, device: str) -> dict[str, Any]:
    how: dict[str, Any] = {"operation": case.operation, "k": case.k or None}
    method = plan(case.shape, case.axis, dtype=case.dtype, device=device, **how).method
    label = name_of((case.shape, case.axis))
    facts = {"shape": list(case.shape), "axis": case.axis, "label": label, "N": case.N}
    return {**facts, "bytes": case.bytes, "plan": method}


def _case(request: Request, shape: Shape) -> Case:
    return Case("bench", shape[0], request.dtype, shape[1], operation=request.operation, k=request.k)


def run(request: Request) -> dict[str, Any]:
    """Runs every contestant on every shape. The answers are checked before anything is timed.

    Raises
    ------
    CommandError
        Memory is too small for a shape, or the GPU stopped answering.
    """
    random.seed(0)
    machine, cases = (_on_cpu if request.device == "cpu" else _on_gpu)(request)
    kinds = {name: figure.pop("kind") for case in cases for name, figure in case["figures"].items()}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": request.device,
        "operation": request.operation + (f" k={request.k}" if request.k else ""),
        **machine,
        "dtype": request.dtype,
        "rounds": request.rounds,
        "versions": {"onsoftmax": __version__, **versions()},
        "kinds": kinds,
        "cases": cases,
    }


# ------- on the CPU


def numpy_type(name: str) -> np.dtype[Any]:
    """CommandError for bfloat16 without the package ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise CommandError("bfloat16 on the CPU needs ml_dtypes: pip install ml_dtypes") from None
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def needed_bytes(shape: Shape, dtype: np.dtype[Any]) -> int:
    """About how many bytes of memory a shape's buffers and its exact result need."""
    elements = math.prod(shape[0])
    return max(4 * last_level_cache(), 4 * elements * dtype.itemsize) + EXACT_BYTES * elements


def _shapes_that_fit(request: Request, dtype: np.dtype[Any]) -> list[Shape]:
    free = free_memory()
    for shape in request.shapes:
        needed = needed_bytes(shape, dtype)
        if needed > free:
            raise CommandError(
                f"{name_of(shape)} needs about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} are free"
            )
    if request.shapes:
        return list(request.shapes)
    fitting = [shape for shape in CPU_SHAPES if needed_bytes(shape, dtype) <= free]
    if not fitting:
        raise CommandError(f"too little memory is free: {free / 1e9:.1f} GB")
    return fitting


def _on_cpu(request: Request) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    from .cpu_timing import make_sets, run_case

    dtype = numpy_type(request.dtype)
    load_before = load()
    cases = []
    for shape in progress(_shapes_that_fit(request, dtype)):
        case = _case(request, shape)
        sets = make_sets(case, dtype)
        found = run_case(case, sets, request.threads, request.rounds, request.peers, request.methods)
        copies = [f["seconds"] for f in found.values() if f["kind"] == "copy" and f["seconds"]]
        figures = {name: _cpu_figure(figure, case, min(copies)) for name, figure in found.items()}
        cases.append({**_about(case, "cpu"), "figures": figures})
    return {
        "machine": f"{processor()}, {request.threads} threads",
        "threads": request.threads,
        "load_before": load_before,
    }, cases


def _cpu_figure(figure: dict[str, Any], case: Case, copy: float) -> dict[str, Any]:
    out = {"kind": figure["kind"], "error": figure["error_eps"]}
    seconds = figure["seconds"]
    if seconds is None:
        return {**out, "wrong": "wrong"}
    times = {
        name: rounded(1e3 * figure[key])
        for name, key in (("ms", "seconds"), ("low", "low"), ("high", "high"))
    }
    moved = case.copy_bytes if figure["kind"] == "copy" else case.bytes
    copy *= moved / case.copy_bytes  # the time of a copy of as many bytes
    return {**out, **times, "gbps": rounded(moved / seconds / 1e9), "x_copy": rounded(copy / seconds)}


# ------- on a GPU


def _on_gpu(request: Request) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    import torch

    from .gpu_contestants import contestants, short
    from .gpu_timing import DeviceLostError, Settings, measure

    properties = torch.cuda.get_device_properties(0)
    settings = Settings(properties.L2_cache_size, request.rounds)
    cases = []
    for shape in progress(list(request.shapes) or GPU_SHAPES):
        case = _case(request, shape)
        roster = list(contestants(case, ["auto", *request.methods], list(request.peers)))
        try:
            found = measure(case, roster, settings)
        except DeviceLostError as error:
            raise CommandError(f"the GPU was lost: {error}") from error
        except Exception as error:  # such as too little memory for the tensors
            if request.shapes:
                raise CommandError(f"{name_of(shape)}: {short(error)}") from error
            continue
        figures = {c.name: {"kind": c.kind, **found[c.name]} for c in roster}
        cases.append({**_about(case, "cuda"), "figures": figures})
    if not cases:
        raise CommandError("the GPU's memory is too small for every shape")
    return {"machine": properties.name, "driver": driver(), "cuda": torch.version.cuda}, cases
