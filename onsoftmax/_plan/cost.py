"""What one method would cost for the call of a plan, and where the next method takes over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What one method would cost for the call of a plan."""

    method: str
    """The method's name."""
    bytes_moved: int | None
    """Bytes moved through main memory, if no read finds its elements in a cache. None if the method cannot
    run."""
    on_chip_bytes: int | None
    """Bytes held in fast memory for one row."""
    cannot: str = ""
    """Why the method cannot run."""
    measured_seconds: float | None = None
    """As in Plan."""
    most_x_copy: float | None = None
    """On a GPU, the largest share of a copy's speed that the bytes through memory and the arithmetic allow.
    None on the CPU. There a copy also reads the memory that it overwrites, but a method that writes past the
    caches does not."""
    least_bytes: int | None = None
    """The bytes that must pass through main memory: bytes_moved without the reads that a GPU's L2 serves."""
    launch_seconds: float | None = None
    """As in Plan."""
    arithmetic_seconds: float | None = None
    """Seconds that the arithmetic takes at least, for `exact` on a GPU. None if they are not known."""
    note: str = ""
    """What decides the time beside the bytes moved: "launch-bound", "slow doubles", "reads again from L2",
    "writes past the caches" or "the array fits the caches". Empty if nothing does."""


@dataclass(frozen=True)
class PlanStep:
    """What a call runs in turn: a kernel, or a pass of it over all rows."""

    what: str
    """What the step gives."""
    method: str | None
    """The method of the step. None if it has none."""
    reads: int
    """How often the step reads an array of the logits' shape. If this depends on the elements, it is the
    smallest possible number."""
    writes: int
    """How often the step writes an array of that shape."""
    threads: int | None = None
    """As in Plan. None for a step without a method."""
    blocks_a_row: int | None = None
    """As in Plan."""


@dataclass(frozen=True)
class Cliff:
    """A row length at which another method takes over."""

    N: int
    """The longest row for which auto takes `method`."""
    method: str
    """The method up to N."""
    bytes_an_element: float
    """Bytes moved through main memory for each element, up to this length."""
    then: str
    """The method from N + 1 on."""
    bytes_an_element_then: float
    """Bytes moved through main memory for each element, from N + 1 on."""
