"""What there is and what would run: methods(), plan(), show_config(). The facts come from the C core."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core


@dataclass(frozen=True)
class Method:
    """One method: its name, what it costs and where it runs."""

    name: str
    summary: str
    devices: tuple[str, ...]
    """Where this build runs it: "cpu"."""
    reads: int
    """How often the whole array is read from memory."""
    writes: int
    """How often the whole array is written to memory."""
    keeps: str
    """What of a row stays in fast memory meanwhile: "nothing", "tile" or "row"."""

    @property
    def passes(self) -> int:
        """How often the row is gone over in memory: its reads."""
        return self.reads


@dataclass(frozen=True)
class Plan:
    """What a call would do. `print(plan)` tells it in words."""

    method: str
    reason: str
    """Why this method."""
    form: str
    """ "row": one row at a time along its elements; "column": neighbouring rows side by side."""
    compute: str
    """The arithmetic's type."""
    rows: int
    N: int
    """Elements of a row."""
    tile: int
    """Elements of a row in one tile."""
    width: int
    """Rows worked on side by side."""
    bytes_moved: int
    """Through main memory, reads and writes together, in bytes."""
    on_chip_bytes: int
    """Held in fast memory for one row, in bytes."""
    workspace_bytes: int
    """Scratch of all threads together, in bytes."""
    threads: int

    def __str__(self) -> str:
        return (
            f"{self.method}: {self.reason}\n"
            f"  {self.rows} rows of N = {self.N}, {self.form} form, "
            f"in {self.compute}, {self.threads} threads\n"
            f"  tiles of {self.tile} elements, {self.width} rows side by side\n"
            f"  {self.bytes_moved} bytes through memory, {self.on_chip_bytes} on chip a row, "
            f"{self.workspace_bytes} of scratch"
        )


def methods(device: str | None = None) -> list[Method]:
    """The methods that this build has.

    Parameters
    ----------
    device : "cpu" or None
        Those of one device, or of all.

    Raises
    ------
    ValueError
        A device of another name.
    RuntimeError
        "cuda", which this build does not have.
    """
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"device is {device!r}: expected 'cpu', 'cuda' or None")
    if device == "cuda":
        raise RuntimeError("this build of onsoftmax has no CUDA")
    return [Method(devices=("cpu",), **fields) for fields in _core.methods()]


def plan(
    array_or_shape: Any,
    /,
    axis: int | Sequence[int] | None = -1,
    *,
    dtype: Any = None,
    device: str | None = None,
    method: str = "auto",
    num_threads: int | None = None,
) -> Plan:
    """Which method softmax would take for an array, and why, without running it.

    Parameters
    ----------
    array_or_shape : array, or tuple of ints
        An array as softmax takes it, or the shape of a C-ordered one.
    axis, method, num_threads
        As softmax takes them.
    dtype : dtype, optional
        With an array the result's type; with a shape the type of both, float32 by default.
    device : "cpu" or None
        Where the array of that shape lies.

    Raises
    ------
    ValueError, TypeError, AxisError
        As softmax.
    RuntimeError
        device="cuda", which this build does not have.
    """
    methods(device)
    axes = tuple(axis) if isinstance(axis, Sequence) else axis
    return Plan(**_core.plan(array_or_shape, axes, dtype=dtype, method=method, num_threads=num_threads))


def show_config() -> dict[str, Any]:
    """Prints the versions, the instruction sets, the threads and what was built; returns it as a dict."""
    from . import __version__

    config = {
        "onsoftmax": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        **_core.config(),
    }
    width = max(map(len, config))
    for name, value in config.items():
        print(f"{name:{width}}  {', '.join(value) if isinstance(value, list) else value}")
    return config
