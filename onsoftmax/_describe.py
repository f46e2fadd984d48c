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
    """Where it runs: "cpu", "cuda"."""
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

    device: str
    """ "cpu" or "cuda"."""
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
    """Scratch of all threads or blocks together, in bytes."""
    threads: int
    """On the CPU; on a GPU those of a block."""

    blocks_a_row: int | None = None
    """Blocks that share a row, 0 where a block has several rows. This and what follows on a GPU alone."""
    elements_a_thread: int | None = None
    """Of a row, held at once in a thread's registers."""
    warps: int | None = None
    """Of a block."""
    longest_row: int | None = None
    """That the method can hold; None where it takes any."""

    registers: int | None = None
    """Of a thread. This and what follows as the driver says, None without one."""
    spilled_bytes: int | None = None
    """Of a thread's registers, in local memory."""
    shared_bytes: int | None = None
    """Shared memory of a block."""
    blocks_a_multiprocessor: int | None = None
    """That run at once."""

    def __str__(self) -> str:
        if self.device == "cpu":
            work = f"{self.threads} threads"
            how = f"tiles of {self.tile} elements, {self.width} rows side by side"
        else:
            work = f"blocks of {self.threads} threads"
            how = self._blocks() + self._kernel()
        return (
            f"{self.method}: {self.reason}\n"
            f"  {self.rows} rows of N = {self.N}, {self.form} form, in {self.compute}, {work}\n"
            f"  {how}\n"
            f"  {self.bytes_moved} bytes through memory, {self.on_chip_bytes} on chip a row, "
            f"{self.workspace_bytes} of scratch"
        )

    def _blocks(self) -> str:
        share = "several rows a block"
        if self.blocks_a_row:
            share = "a block a row" if self.blocks_a_row == 1 else f"{self.blocks_a_row} blocks a row"
        longest = f", rows of at most {self.longest_row}" if self.longest_row else ""
        return f"{share}, {self.warps} warps a block, {self.elements_a_thread} elements a thread{longest}"

    def _kernel(self) -> str:
        if self.registers is None:
            return ""
        return (
            f"\n  {self.registers} registers a thread, {self.spilled_bytes} bytes spilled, "
            f"{self.shared_bytes} shared a block, {self.blocks_a_multiprocessor} blocks a multiprocessor"
        )


def methods(device: str | None = None) -> list[Method]:
    """The methods that there are.

    Parameters
    ----------
    device : "cpu", "cuda" or None
        Those of one device, whether or not this machine has it, or all.

    Raises
    ------
    ValueError
        A device of another name.
    """
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"device is {device!r}: expected 'cpu', 'cuda' or None")
    found = []
    for facts in _core.methods():
        devices = tuple(name for name in ("cpu", "cuda") if facts.pop(f"on_{name}"))
        if device is None or device in devices:
            found.append(Method(devices=devices, **facts))
    return found


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
    device : "cpu", "cuda" or None
        Where an array of that shape lies, the CPU by default. "cuda" is the first GPU; without one, what an
        H200 would do.

    Raises
    ------
    ValueError, TypeError, AxisError
        As softmax; a device of another name, or one that the array is not on.
    """
    axes = tuple(axis) if isinstance(axis, Sequence) else axis
    facts = _core.plan(
        array_or_shape, axes, dtype=dtype, device=device, method=method, num_threads=num_threads
    )
    facts["longest_row"] = facts.get("longest_row") or None
    return Plan(**facts)


def show_config() -> dict[str, Any]:
    """Prints the versions, the instruction sets, the threads and the GPUs found; returns it as a dict."""
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
