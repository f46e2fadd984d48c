"""`onsoftmax apply`: the softmax of a .npy file into another, box by box through mapped memory.

The array is cut along the dimensions that softmax does not reduce. What a step holds in memory of its own is
bounded: native floats are read and written in the mapped files themselves; integers and foreign byte orders
are converted a box at a time or, where one box would be too large, into a scratch file first.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import EllipsisType
from typing import Any

import numpy as np

from . import plan, softmax
from ._files import Array, CommandError, open_input, output, scratch
from ._interrupt import run_beside
from ._progress import Progress

Axis = int | tuple[int, ...] | None
Box = tuple[slice | EllipsisType, ...]

# Bytes of the array in one box: some ten milliseconds of work, and much less than any memory.
BOX_BYTES = 64 << 20

# Bytes of what lies side by side that a box takes at least: no page of the file is read for a part of it.
RUN_BYTES = 4096


def _reduced(axis: Axis, ndim: int) -> set[int]:
    if axis is None or ndim == 0:
        return set(range(ndim))
    return {a % ndim for a in (axis if isinstance(axis, tuple) else (axis,))}


def box_lengths(shape: tuple[int, ...], reduced: set[int], itemsize: int, fortran: bool) -> list[int]:
    """The extents of a box: all of the reduced dimensions, then as much as fits, nearest in memory first."""
    lengths = list(shape)
    size = itemsize * math.prod(shape[dim] for dim in reduced)
    nearest_first = range(len(shape)) if fortran else range(len(shape) - 1, -1, -1)
    for place, dim in enumerate(nearest_first):
        if dim not in reduced:
            least = RUN_BYTES // itemsize if place == 0 else 1
            lengths[dim] = min(shape[dim], max(BOX_BYTES // size, least))
            size *= lengths[dim]
    return lengths


def boxes(shape: tuple[int, ...], lengths: list[int]) -> Iterator[Box]:
    """Every box of those lengths that an array of that shape has, in the array's order."""
    starts = [range(0, extent, length) for extent, length in zip(shape, lengths, strict=True)]
    for corner in itertools.product(*starts):
        ends = map(operator.add, corner, lengths)
        yield (*map(slice, corner, ends), ...)  # ... so that a box of a 0-d array is an array too


def _check(x: Array, source: str, axis: Axis, method: str, dtype: str | None) -> np.dtype[Any]:
    """The type of the result, by softmax's own rules; CommandError where they do not allow the arguments."""
    if dtype == "bfloat16":
        raise CommandError(
            "--dtype bfloat16: a .npy file cannot say that it holds bfloat16; use float32 or float16"
        )
    sample = np.empty((0,), x.dtype)
    try:
        softmax(sample)
    except TypeError as error:
        raise CommandError(f"{source}: {error}") from error
    try:
        plan(x.shape, axis, method=method)
        return np.dtype(softmax(sample, dtype=dtype).dtype)
    except (TypeError, ValueError) as error:  # AxisError is a ValueError
        raise CommandError(str(error)) from error


def _is_native_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and dtype.isnative


def _each_box(step: Callable[[Box], None], of: Array, lengths: list[int], progress: Progress) -> None:
    """step(box) for every box of an array, beside the main thread, which sees to signals and progress."""
    if of.size == 0:
        return

    def work() -> None:
        for box in boxes(of.shape, lengths):
            if progress.closed:  # interrupted meanwhile
                return
            step(box)
            progress.done += of[box].size

    run_beside(work, progress.tick)


def _convert(x: Array, into: Array, progress: Progress) -> None:
    def step(box: Box) -> None:
        into[box] = x[box]

    _each_box(step, x, box_lengths(x.shape, set(), into.itemsize, _is_fortran(x)), progress)


def _is_fortran(x: Array) -> bool:
    return x.flags.f_contiguous and not x.flags.c_contiguous


def apply(
    source: str,
    target: str,
    *,
    axis: Axis = -1,
    method: str = "auto",
    dtype: str | None = None,
    scale: float = 1.0,
) -> None:
    """Writes softmax(scale * array) of the .npy file `source` to `target`, another .npy file or the same.

    The arguments are those of softmax. `target` is replaced at the very end; until then, and when anything
    fails or a signal interrupts, it stays as it is.

    Raises
    ------
    CommandError
        A file that cannot be read, mapped or written; arguments that softmax refuses.
    OSError, MemoryError
        From the system.
    """
    x = open_input(source)
    result = _check(x, source, axis, method, dtype)
    fortran = _is_fortran(x)
    reduced = _reduced(axis, x.ndim)
    native = np.dtype(x.dtype.type) if x.dtype.kind == "f" else np.dtype(np.float64)
    lengths = box_lengths(x.shape, reduced, native.itemsize, fortran) if x.size else []
    staged = not _is_native_float(x.dtype) and math.prod(lengths) * native.itemsize > 2 * BOX_BYTES

    with ExitStack() as stack:
        y = stack.enter_context(output(target, result, x.shape, fortran))
        progress = stack.enter_context(
            Progress(x.size * (2 if staged else 1), x.nbytes * (2 if staged else 1))
        )
        if staged:
            into = y if native == result else stack.enter_context(scratch(target, native, x.shape, fortran))
            _convert(x, into, progress)
            x = into

        def step(box: Box) -> None:
            softmax(x[box], axis, method=method, scale=scale, out=y[box])

        _each_box(step, x, lengths, progress)
