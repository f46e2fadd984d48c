"""`onsoftmax apply`: writes the softmax of a .npy file into another file, box by box.

The array is cut along the dimensions that softmax does not reduce. Each thread reads a box of IN, takes its
softmax and writes it to OUT. Boxes that are too large for memory, or do not lie in one piece, stay on disk.
IN is then copied first, to OUT, or to a scratch file if OUT has another type. Softmax works there in mapped
memory.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from . import get_num_threads, plan, softmax
from ._cli.files import (
    Array,
    Box,
    CommandError,
    NpyFile,
    open_input,
    output,
    read_stdin,
    scratch,
    write_stdout,
)
from ._cli.interrupt import run_beside
from ._cli.progress import Progress
from ._types import MethodName

Axis = int | tuple[int, ...] | None
Compute = Callable[[Array, Array, int], None]  # (values, result, threads); both arrays may be the same

# Bytes of the array in one box. This is some milliseconds of work, and much less than any memory.
BOX_BYTES = 8 << 20

# Bytes that all boxes in work may take at a time: their input, its converted copy, and the result.
MEMORY_BYTES = 128 << 20

# The least number of neighbouring bytes in a box: one page, so that no page of the file is read only in part.
RUN_BYTES = 4096


def _reduced(axis: Axis, ndim: int) -> set[int]:
    if axis is None or ndim == 0:
        return set(range(ndim))
    return {a % ndim for a in (axis if isinstance(axis, tuple) else (axis,))}


def box_lengths(shape: tuple[int, ...], reduced: set[int], itemsize: int, fortran: bool) -> list[int]:
    """The extents of a box: the whole reduced dimensions, then as much as fits, nearest in memory first."""
    lengths = list(shape)
    size = itemsize * math.prod(shape[dim] for dim in reduced)
    nearest_first = range(len(shape)) if fortran else range(len(shape) - 1, -1, -1)
    for place, dim in enumerate(nearest_first):
        if dim not in reduced:
            least = RUN_BYTES // itemsize if place == 0 else 1
            lengths[dim] = min(shape[dim], max(BOX_BYTES // size, least))
            size *= lengths[dim]
    return lengths


def is_run(shape: tuple[int, ...], lengths: list[int], fortran: bool) -> bool:
    """Whether the elements of each box of those lengths follow each other in the file."""
    dims = list(zip(shape, lengths, strict=True))
    whole = True  # whether all dimensions so far are whole, from the nearest dimension on
    for extent, length in dims if fortran else reversed(dims):
        if not whole and length > 1:
            return False
        whole = whole and length == extent
    return True


def boxes(shape: tuple[int, ...], lengths: list[int]) -> Iterator[Box]:
    """Every box of those lengths in an array of that shape, in the array's order."""
    starts = [range(0, extent, length) for extent, length in zip(shape, lengths, strict=True)]
    for corner in itertools.product(*starts):
        ends = map(min, map(operator.add, corner, lengths), shape)
        yield tuple(map(slice, corner, ends))


def check_type(path: str, dtype: np.dtype[Any]) -> None:
    """CommandError if softmax does not take that type."""
    try:
        softmax(np.empty((0,), dtype))
    except TypeError as error:
        raise CommandError(f"{path}: {error}") from error


def _check(
    path: str, of: np.dtype[Any], shape: tuple[int, ...], axis: Axis, method: MethodName, dtype: str | None
) -> np.dtype[Any]:
    """The type of the result, by softmax's own rules. CommandError if they do not allow the arguments."""
    if dtype == "bfloat16":
        raise CommandError(
            "--dtype bfloat16: a .npy file cannot say that it holds bfloat16; use float32 or float16"
        )
    check_type(path, of)
    try:
        plan(shape, axis, method=method)
        return np.dtype(softmax(np.empty((0,), of), method=method, dtype=dtype).dtype)
    except (TypeError, ValueError) as error:  # AxisError is a ValueError
        raise CommandError(str(error)) from error


def _each_box(
    step: Callable[[Box], None], of: NpyFile, lengths: list[int], threads: int, progress: Progress
) -> None:
    """step(box) for every box of an array, on other threads. The main thread handles signals and progress."""

    def work(box: Box) -> None:
        step(box)
        progress.advance(math.prod(part.stop - part.start for part in box))

    run_beside(work, boxes(of.shape, lengths), threads, progress.tick)


def _in_memory(compute: Compute, x: NpyFile, y: NpyFile, lengths: list[int], threads: int) -> None:
    """Reads, computes and writes box after box."""

    def step(box: Box) -> None:
        values = x.read(box)
        result = values if values.dtype == y.dtype else np.empty_like(values, y.dtype)
        compute(values, result, get_num_threads() // threads)
        y.write(box, result)

    with Progress(x.size, x.nbytes) as progress:
        _each_box(step, x, lengths, threads, progress)


def _on_disk(compute: Compute, x: NpyFile, y: NpyFile, lengths: list[int], native: np.dtype[Any]) -> None:
    """Copies x as native floats, to y itself if y has that type. Computes from the copy, box after box."""

    def bring(box: Box) -> None:
        copy.write(box, x.read(box).astype(native, copy=False))

    def step(box: Box) -> None:
        compute(values[box], result[box], get_num_threads())

    with (
        nullcontext(y) if native == y.dtype else scratch(y, native) as copy,
        Progress(2 * x.size, 2 * x.nbytes) as progress,
    ):
        _each_box(bring, x, box_lengths(x.shape, set(), native.itemsize, x.fortran), 2, progress)
        values = copy.mapped()
        result = values if copy is y else y.mapped()
        _each_box(step, x, lengths, 1, progress)


def _through_memory(
    source: str, target: str, axis: Axis, method: MethodName, dtype: str | None, scale: float
) -> None:
    """apply() if one of the two is a stream: it holds the whole array in memory."""
    if source == "-":
        values = read_stdin()
    else:
        x = open_input(source)
        values = x.read(tuple(slice(0, length) for length in x.shape))
    result = _check(source, values.dtype, values.shape, axis, method, dtype)
    y = softmax(values, axis, method=method, scale=scale, dtype=result)
    if target == "-":
        write_stdout(y)
        return
    fortran = not y.flags.c_contiguous
    with output(target, result, y.shape, fortran) as file:
        file.write(tuple(slice(0, length) for length in y.shape), y)


def apply(
    source: str,
    target: str,
    *,
    axis: Axis = -1,
    method: MethodName = "auto",
    dtype: str | None = None,
    scale: float = 1.0,
) -> None:
    """Writes softmax(scale * array) of the .npy file `source` to `target`, another .npy file or the same.

    The arguments are as in softmax. "-" is standard input or output. Its array is held in memory. `target` is
    replaced at the very end. Until then, and if anything fails or a signal interrupts, it stays as it is.
    Once it is replaced, nothing fails any more.

    Raises
    ------
    CommandError
        A file cannot be read or written, or softmax refuses the arguments.
    OSError, MemoryError
        From the system.
    """
    if "-" in (source, target):
        _through_memory(source, target, axis, method, dtype, scale)
        return
    x = open_input(source)
    result = _check(x.path, x.dtype, x.shape, axis, method, dtype)
    native = np.dtype(x.dtype.type) if x.dtype.kind == "f" else np.dtype(np.float64)

    def compute(values: Array, out: Array, threads: int) -> None:
        softmax(values, axis, method=method, scale=scale, out=out, num_threads=threads)

    with output(target, result, x.shape, x.fortran) as y:
        if x.size == 0:
            return
        lengths = box_lengths(x.shape, _reduced(axis, len(x.shape)), native.itemsize, x.fortran)
        box_bytes = math.prod(lengths) * (x.dtype.itemsize + native.itemsize + result.itemsize)
        if box_bytes <= MEMORY_BYTES and is_run(x.shape, lengths, x.fortran):
            _in_memory(compute, x, y, lengths, min(get_num_threads(), MEMORY_BYTES // box_bytes))
        else:
            _on_disk(compute, x, y, lengths, native)
