"""Compiles QuACK's kernels before a benchmark times them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

import torch

from onsoftmax.bench.case import Case
from onsoftmax.bench.gpu_contestants import quack_cannot


def in_quack(*dtypes: str) -> list[Any]:
    """QuACK's names of types."""
    from quack.cute_dsl_utils import torch2cute_dtype_map

    return [torch2cute_dtype_map[getattr(torch, name)] for name in dtypes]


def compile_softmax(N: int, dtype: str, out_dtype: str) -> None:
    """Runs in a process of its own, like compile_loss. Leaves the kernel in QuACK's cache on disk."""
    from quack.softmax import Softmax

    Softmax.compile(*in_quack(dtype, out_dtype), N)


def compile_loss(N: int, dtype: str, with_gradient: bool) -> None:
    from quack.cross_entropy import CrossEntropy

    CrossEntropy.compile(*in_quack(dtype, "int64"), None, N, False, with_gradient, None, None)


def warm_quack(cases: list[Case], processes: int, seconds: float) -> str:
    """Compiles the kernels of softmax for the cases."""
    kernels = {
        (case.N, case.dtype, case.out_dtype or case.dtype)
        for case in cases
        if case.plain and case.operation == "softmax" and not quack_cannot(case.N, case.dtype)
    }
    return warm(compile_softmax, kernels, processes, seconds)


def warm(
    build: Callable[..., None], kernels: Iterable[tuple[Any, ...]], processes: int, seconds: float
) -> str:
    """Compiles kernels, many at a time. Returns a sentence about how it went. A kernel that fails to compile
    here fails again, and is reported, when its case runs."""
    wanted = sorted(kernels)
    pool = ProcessPoolExecutor(min(processes, len(wanted) or 1), mp_context=get_context("spawn"))
    futures = [pool.submit(build, *kernel) for kernel in wanted]
    ended, late = wait(futures, timeout=seconds)
    pool.shutdown(wait=not late, cancel_futures=True)
    failed = sum(future.exception() is not None for future in ended)
    return f"QuACK: {len(ended) - failed} of {len(wanted)} kernels compiled ahead"
