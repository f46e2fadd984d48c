"""Compiles QuACK's kernels before bench_cuda.py times them."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing import get_context

import torch

from onsoftmax.bench.case import Case
from onsoftmax.bench.gpu_contestants import quack_cannot


def compile_quack(kernel: tuple[int, str, str]) -> None:
    """Runs in a process of its own. Leaves the kernel in QuACK's cache on disk."""
    from quack.cute_dsl_utils import torch2cute_dtype_map
    from quack.softmax import Softmax

    N, dtype, out_dtype = kernel
    Softmax.compile(*(torch2cute_dtype_map[getattr(torch, name)] for name in (dtype, out_dtype)), N)


def warm_quack(cases: list[Case], processes: int, seconds: float) -> str:
    """Compiles QuACK's kernels for the cases, many at a time. Returns a sentence about how it went. A kernel
    that fails to compile here fails again, and is reported, when its case runs."""
    kernels = {
        (case.N, case.dtype, case.out_dtype or case.dtype)
        for case in cases
        if case.plain and case.operation == "softmax" and not quack_cannot(case.N, case.dtype)
    }
    pool = ProcessPoolExecutor(min(processes, len(kernels) or 1), mp_context=get_context("spawn"))
    futures = [pool.submit(compile_quack, kernel) for kernel in sorted(kernels)]
    ended, late = wait(futures, timeout=seconds)
    pool.shutdown(wait=not late, cancel_futures=True)
    failed = sum(future.exception() is not None for future in ended)
    return f"QuACK: {len(ended) - failed} of {len(kernels)} kernels compiled ahead"
