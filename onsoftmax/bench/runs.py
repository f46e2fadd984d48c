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
from .figures import rounded
from .machine import driver, load, processor, versions
from .progress import progress

Shape = tuple[tuple[int, ...], int]
"""The lengths, and the axis that is reduced."""

# Rows of 1K to 262K: on the CPU 2^23 elements in all, on a GPU 2048 rows.
CPU_SHAPES: list[Shape] = [((2**23 // N, N), -1) for N in (2**10, 2**12, 2**14, 2**16, 2**18)]
GPU_SHAPES: list[Shape] = [((2048, 2**k), -1) for k in range(10, 19)]
ROUNDS = 5
EXACT_BYTES = 24  # bytes of an element of the exact result and its temporaries
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


def name_of(shape: Shape) -> str:
    lengths, axis = shape
    return "x".join(map(str, lengths)) + (f"@{axis}" if axis != -1 else "")


def _case(shape: Shape, dtype: str, device: str) -> dict[str, Any]:
    lengths, axis = shape
    made = plan(lengths, axis, dtype=dtype, device=device)
    return {"shape": list(lengths), "axis": axis, "label": name_of(shape), "N": made.N, "plan": made.method}


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
    from .answers import exact
    from .cpu_timing import make_buffers, run_case

    dtype = numpy_type(request.dtype)
    load_before = load()
    cases = []
    for shape in progress(_shapes_that_fit(request, dtype)):
        lengths, axis = shape
        buffers = make_buffers(lengths, dtype)
        expected = exact(buffers[0][0], axis)
        found = run_case(
            buffers, axis, expected, request.threads, request.rounds, request.peers, request.methods
        )
        moved = 2 * buffers[0][0].nbytes
        copies = [f["seconds"] for f in found.values() if f["kind"] == "copy" and f["seconds"]]
        figures = {name: _cpu_figure(figure, moved, min(copies)) for name, figure in found.items()}
        cases.append({**_case(shape, request.dtype, "cpu"), "bytes": moved, "figures": figures})
    return {
        "machine": f"{processor()}, {request.threads} threads",
        "threads": request.threads,
        "load_before": load_before,
    }, cases


def _cpu_figure(figure: dict[str, Any], moved: int, copy: float) -> dict[str, Any]:
    out = {"kind": figure["kind"], "error": figure["error_eps"]}
    seconds = figure["seconds"]
    if seconds is None:
        return {**out, "wrong": "wrong"}
    times = {
        name: rounded(1e3 * figure[key])
        for name, key in (("ms", "seconds"), ("low", "low"), ("high", "high"))
    }
    return {**out, **times, "gbps": rounded(moved / seconds / 1e9), "x_copy": rounded(copy / seconds)}


# ------- on a GPU


def _on_gpu(request: Request) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    import torch

    from .gpu_case import Case
    from .gpu_contestants import contestants, short
    from .gpu_timing import DeviceLostError, Settings, measure

    properties = torch.cuda.get_device_properties(0)
    settings = Settings(properties.L2_cache_size, request.rounds)
    cases = []
    for shape in progress(list(request.shapes) or GPU_SHAPES):
        lengths, axis = shape
        case = Case("bench", lengths, request.dtype, axis)
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
        cases.append({**_case(shape, request.dtype, "cuda"), "bytes": case.bytes, "figures": figures})
    if not cases:
        raise CommandError("the GPU's memory is too small for every shape")
    return {"machine": properties.name, "driver": driver(), "cuda": torch.version.cuda}, cases
