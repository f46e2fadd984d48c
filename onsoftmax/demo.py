"""The demo: one small row by every method, the running (m, d) by hand, and a large array against NumPy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _core, explain, get_num_threads, methods, plan, softmax
from ._plan.memory import free_memory

Array = np.ndarray[Any, np.dtype[Any]]

ROW, TILE = (1.0, 2.0, 3.0, 6.0, 2.0, 1.0), 3
ROWS, N = 4096, 32000
ARRAYS = 5  # arrays in memory at once: the input, the result, the formula's temporaries, and some room


def _text(values: Any, form: str = ".4f") -> str:
    return "[" + " ".join(format(float(value), form) for value in values) + "]"


def show_row() -> None:
    """The worked row by every method, then tile by tile."""
    print(f"softmax of {_text(ROW, 'g')}, by every method")
    row = np.array(ROW, np.float32)
    for method in methods("cpu"):
        print(f"  {method.name:8}{_text(softmax(row, method=method.name))}   {method.summary}")

    print(f"\nThe same online, in tiles of {TILE}: each has its (m, d), and two pairs merge")
    trace = explain(ROW, tile=TILE, method="online")
    *statistics, last = (step for step in trace.steps if step.kind == "statistics")
    for step in (*statistics, last):
        print(
            f"  tile {_text(step.read, 'g')}   m = {step.own_m:g}, d = {step.own_d:.4f}"
            f"   so far: m = {step.m:g}, d = {step.d:.4f}"
        )
    print(f"  y = exp(x - {last.m:g}) / {last.d:.4f} = {_text(trace.result)}")
    print("  every step: onsoftmax explain")


def show_overflow() -> None:
    """float16 [2, 4, 12]. The plain formula cannot compute it."""
    row = np.array([2, 4, 12], np.float16)
    note = explain(row, method="naive").steps[0].note
    print(f"\nfloat16 {_text(row, 'g')}: {note}")
    for method in methods("cpu"):
        print(f"  {method.name:8}{_text(softmax(row, method=method.name), '.3g')}")


def by_formula(x: Array) -> Array:
    """Softmax along the last axis in NumPy."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def seconds_of(calls: Sequence[Callable[[], object]], repeats: int = 3) -> list[float]:
    """The shortest time of each call. The calls take turns."""
    best = [math.inf] * len(calls)
    for _ in range(repeats):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def largest_error(x: Array, y: Array) -> float:
    """The largest relative error of y against float64, over all rows, a few rows at a time."""
    worst = 0.0
    for start in range(0, len(x), 64):
        exact = by_formula(x[start : start + 64].astype(np.float64))
        worst = max(worst, float(np.max(np.abs(y[start : start + 64] / exact - 1))))
    return worst


def rows_that_fit(free: float, rows: int = ROWS, n: int = N) -> int:
    """The number of rows of n float32, at most `rows`, that leave room for the formula's temporaries."""
    while rows > 1 and ARRAYS * rows * n * 4 > free:
        rows //= 2
    return rows


def show_large(rows: int = ROWS, n: int = N) -> None:
    """A large float32 array timed against NumPy's formula, and the answer checked against float64."""
    fitting = rows_that_fit(free_memory(), rows, n)
    size = fitting * n * 4 / 1e6
    print(f"\nfloat32 array of shape ({fitting}, {n}), {size:.0f} MB, {get_num_threads()} threads")
    if fitting < rows:
        print(f"  ({rows} rows would need {ARRAYS * rows * n * 4 / 1e9:.1f} GB of memory, and less is free)")
    x = 3 * np.random.default_rng(0).standard_normal((fitting, n), dtype=np.float32)
    y = np.empty_like(x)
    names = ["NumPy's formula", "onsoftmax.softmax", "the same with out="]
    times = seconds_of([lambda: by_formula(x), lambda: softmax(x), lambda: softmax(x, out=y)])
    for name, seconds in zip(names, times, strict=True):
        speed = 2 * x.nbytes / seconds / 1e9
        print(f"  {name:20}{1e3 * seconds:8.1f} ms  {times[0] / seconds:6.1f} x  {speed:6.1f} GB/s")
    print(f"  method {plan(x).method}: {plan(x).reason}")
    error = largest_error(x, y)
    if not error < 1e-6:
        raise RuntimeError(f"the answer is wrong: a relative error of {error:g}")
    print(f"  largest relative error against float64: {error:.2g}")


def demo() -> None:
    """The whole demo, on stdout."""
    show_row()
    show_overflow()
    show_large()
    print(f"\nGPUs: {_core.config()['cuda']}")
