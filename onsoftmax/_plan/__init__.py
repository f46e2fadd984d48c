"""A Plan: what a call would do, what each method would cost, and where the next method takes over."""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import _core
from . import copy_speed
from .table import Table, as_html, paragraphs

LONGEST = 2**30  # cliffs are looked for up to this length
_MAX_ELEMENTS = 2**_core.MAX_ELEMENTS_LOG2
UNITS = {1e12: "TB", 1e9: "GB", 1e6: "MB", 1e3: "kB"}
SECONDS = {1.0: "s", 1e-3: "ms", 1e-6: "us"}


@dataclass(frozen=True)
class Cost:
    """What one method would cost for the call of a plan."""

    method: str
    bytes_moved: int | None
    """Bytes moved through main memory. None if the method cannot run."""
    on_chip_bytes: int | None
    """Bytes held in fast memory for one row."""
    cannot: str = ""
    """Why the method cannot run."""
    measured_seconds: float | None = None
    """As in Plan."""
    most_x_copy: float = 1.0
    """The share of a copy's speed that the method's passes allow: the passes needed over its passes."""


@dataclass(frozen=True)
class Cliff:
    """A length of row at which another method takes over."""

    N: int
    """The last length of `method`."""
    method: str
    bytes_an_element: float
    """Bytes moved through main memory for each element, up to this length."""
    then: str
    """The method from N + 1 on."""
    bytes_an_element_then: float


@dataclass(frozen=True, repr=False)
class Plan:
    """What a call would do. `print(plan)` shows it, with the cost of the other methods and the cliffs. A
    notebook shows the same."""

    operation: str
    """softmax, log_softmax, logsumexp, softmax_topk, softmax_backward or log_softmax_backward."""
    device: str
    """ "cpu", "cuda", or the name of the GPU that the plan was asked for."""
    method: str
    reason: str
    """Why this method."""
    measured: str
    """What a run measured at the length where the choice changes: the file, then x copy of the methods there.
    Empty if no run measured it, or if the call names the method."""
    dtype: str
    """The array's type."""
    form: str
    """ "row": one row at a time, along its elements. "column": neighbouring rows side by side."""
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
    """Bytes moved through main memory, by reads and writes. The least, if it depends on the elements."""
    on_chip_bytes: int
    """Bytes held in fast memory for one row."""
    workspace_bytes: int
    """Scratch of all threads or blocks together, in bytes."""
    threads: int
    """The threads of the call on the CPU, or of a block on a GPU."""
    others: tuple[Cost, ...]
    """The cost of every method of the device, the plan's own method among them."""
    k: int | None = None
    """The number of elements that softmax_topk selects per row. None for another operation."""
    num_threads: int | None = field(default=None, repr=False, compare=False)
    """The largest number of threads to use on the CPU, if the call gives it."""

    # From here on: for a GPU alone.
    blocks_a_row: int | None = None
    """Blocks that share a row. 0 if a block has several rows."""
    elements_a_thread: int | None = None
    """Elements of a row that a thread holds in its registers at once."""
    warps: int | None = None
    """Warps of a block."""
    longest_row: int | None = None
    """The longest row that the method can hold. None if it takes any."""
    copy_speed: float | None = None
    """Bytes a second of a copy: 0.88 of the bandwidth of the GPU's memory, which copies reach on an H200. The
    bandwidth comes from the driver, or from the data sheet if no driver is asked. None if the driver does not
    tell it."""

    measured_seconds: float | None = None
    """The time on the GPU, without the launch from the host. It is interpolated between times measured on an
    H100. None for another GPU, for another operation than softmax, and for rows with gaps."""
    measured_copy_seconds: float | None = None
    """The same time for a copy of the array."""

    # From here on: as the driver says. None without a driver.
    registers: int | None = None
    """Registers of a thread."""
    spilled_bytes: int | None = None
    """Bytes of a thread's registers that are in local memory."""
    shared_bytes: int | None = None
    """Shared memory of a block, in bytes."""
    blocks_a_multiprocessor: int | None = None
    """Blocks that run at once on a multiprocessor."""

    def seconds(self, bandwidth: float | None = None) -> float | None:
        """The time to expect: `measured_seconds`, or else the least time: a copy's, for `bytes_moved`.

        Parameters
        ----------
        bandwidth : float, optional
            Bytes a second of a copy. If it is given, the result is the least time at this bandwidth. If not,
            the CPU's copy speed is measured once, and on a GPU `copy_speed` is used. The result is None if
            that is not known.

        Raises
        ------
        ValueError
            The bandwidth is not above 0.
        """
        if bandwidth is not None and not bandwidth > 0:
            raise ValueError(f"bandwidth is {bandwidth}: expected bytes a second, above 0")
        if self.measured_seconds and not bandwidth:
            return self.measured_seconds
        speed = bandwidth or self._speed()
        return self.bytes_moved / speed if speed else None

    def _speed(self) -> float | None:
        return copy_speed.of_memory(self.threads) if self.device == "cpu" else self.copy_speed

    def cliffs(self) -> tuple[Cliff, ...]:
        """The lengths of row at which `auto` changes its method, for as many rows of this type and form."""
        lengths = [2**i for i in range(LONGEST.bit_length()) if 2**i * self.rows <= _MAX_ELEMENTS]
        lengths = [N for N in lengths if (self.k or 1) <= N]
        found: list[Cliff] = []
        for low, high in itertools.pairwise(lengths):
            found += self._between(low, high)
        return tuple(found)

    def _between(self, low: int, high: int) -> list[Cliff]:
        """The cliffs between two lengths, by halving."""
        one, other = self._at(low), self._at(high)
        if one["method"] == other["method"]:
            return []
        if high - low > 1:
            middle = (low + high) // 2
            return self._between(low, middle) + self._between(middle, high)
        each = [facts["bytes_moved"] / max(facts["rows"] * facts["N"], 1) for facts in (one, other)]
        return [Cliff(low, one["method"], each[0], other["method"], each[1])]

    def _at(self, N: int) -> dict[str, Any]:
        """The plan of `auto` for rows of another length, in the same form and without gaps."""
        shape, axis = ((self.rows, N), -1) if self.form == "row" else ((N, self.rows), 0)
        return _core.plan(
            shape,
            axis,
            dtype=self.dtype,
            device=self.device,
            num_threads=self.num_threads,
            operation=self.operation,
            k=self.k,
        )

    def parts(self, bandwidth: float | None = None) -> list[Table | str]:
        """The paragraphs and tables that show the plan."""
        speed, cliffs = bandwidth or self._speed(), self.cliffs()
        return [
            self._summary(bandwidth, speed, cliffs),
            self._table_of_others(bandwidth, speed),
            self._table_of_cliffs(cliffs),
        ]

    def _lengths(self, cliffs: Sequence[Cliff]) -> list[str]:
        """The lengths around N at which auto takes this method."""
        low = max((cliff.N + 1 for cliff in cliffs if cliff.N < self.N), default=1)
        high = next((cliff.N for cliff in cliffs if cliff.N >= self.N), None)
        if self._at(self.N)["method"] != self.method:
            return []
        return [f"  auto takes it for rows of {low} {f'to {high}' if high else 'and more'}"]

    def _summary(self, bandwidth: float | None, speed: float | None, cliffs: Sequence[Cliff]) -> str:
        lines = [
            f"{self.method}: {self.reason}",
            *self._lengths(cliffs),
            f"  {self.rows} rows of N = {self.N}, {self.dtype} on {self._place()}",
            *self._source(),
            f"  {self._what()} in the {self.form} form, arithmetic in {self.compute}",
            f"  {self._work()}",
            *self._kernel(),
            f"  {size(self.bytes_moved)} through memory, {size(self.on_chip_bytes)} on chip a row, "
            f"{size(self.workspace_bytes)} of scratch",
            f"  {self._time(bandwidth, speed)}",
        ]
        if self.measured:
            file, _, rows = self.measured.partition(": ")
            lines += [f"  measured, x copy ({file}):", *(f"    {row}" for row in rows.split("; "))]
        return "\n".join(lines)

    def _time(self, bandwidth: float | None, speed: float | None) -> str:
        if self.measured_seconds and self.measured_copy_seconds and not bandwidth:
            share = self.measured_copy_seconds / self.measured_seconds
            return f"{duration(self.measured_seconds)}, measured on an H100: {_share(share)} x copy"
        if not speed:
            return "no bandwidth is known of this GPU: give a bandwidth for the time to expect"
        known = "measured here" if self.device == "cpu" else "0.88 of the bandwidth"
        source = "as given" if bandwidth else known
        time = duration(self.bytes_moved / speed)
        return f"at least {time} at the speed of a copy, {size(speed)}/s, {source}"

    def _what(self) -> str:
        return f"{self.operation} of k = {self.k}" if self.k else self.operation

    def _place(self) -> str:
        assumed = self.device == "cuda" and self.registers is None
        return "a GPU (none here: an H100 is assumed)" if assumed else self.device

    def _source(self) -> list[str]:
        if self.device in ("cpu", "cuda"):
            return []
        return [f"  the {self.device} is as its data sheet says: no driver was asked"]

    def _work(self) -> str:
        if self.device == "cpu":
            threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
            return f"{threads}, tiles of {self.tile} elements, {self.width} rows side by side"
        share = "several rows a block"
        if self.blocks_a_row:
            share = "a block a row" if self.blocks_a_row == 1 else f"{self.blocks_a_row} blocks a row"
        longest = f", rows of at most {self.longest_row}" if self.longest_row else ""
        return (
            f"{share}, {self.warps} warps a block, {self.elements_a_thread} elements a thread\n"
            f"  tiles of {self.tile}{longest}"
        )

    def _kernel(self) -> list[str]:
        if self.registers is None:
            return []
        return [
            f"  {self.registers} registers a thread, {self.spilled_bytes} bytes spilled",
            f"  {self.shared_bytes} bytes shared a block, {self.blocks_a_multiprocessor} blocks a "
            "multiprocessor",
        ]

    def _table_of_others(self, bandwidth: float | None, speed: float | None) -> Table:
        rows = []
        for cost in self.others:
            mark = "*" if cost.method == self.method else ""
            if cost.bytes_moved is None:
                rows.append((cost.method + mark, "", "", "", "", cost.cannot))
                continue
            time, share = "", f"at most {_share(cost.most_x_copy)}"
            if cost.measured_seconds and self.measured_copy_seconds and not bandwidth:
                time = duration(cost.measured_seconds)
                share = f"{_share(self.measured_copy_seconds / cost.measured_seconds)} measured"
            elif speed:
                time = f">= {duration(cost.bytes_moved / speed)}"
            moved, kept = size(cost.bytes_moved), size(cost.on_chip_bytes or 0)
            rows.append((cost.method + mark, moved, time, share, kept, ""))
        head = ("method", "moved", "time", "x copy", "on chip a row", "holds only")
        return Table("What each method would cost (* the plan's)", head, rows, frozenset({0, 5}))

    def _table_of_cliffs(self, cliffs: Sequence[Cliff]) -> Table | str:
        if not cliffs:
            return f"{self.rows} rows: auto takes the same method whatever their length"
        rows = [
            (str(c.N), c.method, f"{c.bytes_an_element:g}", c.then, f"{c.bytes_an_element_then:g}")
            for c in cliffs
        ]
        head = ("up to N", "method", "bytes an element", "then", "bytes an element")
        return Table(
            f"Where auto changes, for {self.rows} rows in {self.dtype}", head, rows, frozenset({1, 3})
        )

    def to_text(self, bandwidth: float | None = None, width: int = 80) -> str:
        """The text that print shows, with times for a bandwidth in bytes a second."""
        return paragraphs(self.parts(bandwidth), width)

    def to_html(self, bandwidth: float | None = None) -> str:
        """The same text as a fragment of HTML."""
        parts = [
            as_html(part) if isinstance(part, Table) else f"<pre>{html.escape(part)}</pre>"
            for part in self.parts(bandwidth)
        ]
        return f"<div>{''.join(parts)}</div>"

    def __str__(self) -> str:
        return self.to_text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.to_html()


def _share(share: float) -> str:
    """Two significant digits, and two decimals near 1: 0.0027, 0.66, 1.00."""
    return f"{share:.2f}" if share >= 0.095 else f"{share:.2g}"


def size(count: float) -> str:
    """A size of memory as text, in units of powers of 1000, as bandwidths have."""
    unit = next((unit for unit in UNITS if count >= unit), None)
    return f"{count:.0f} B" if unit is None else f"{count / unit:.3g} {UNITS[unit]}"


def duration(seconds: float) -> str:
    unit = next((unit for unit in SECONDS if seconds >= unit), 1e-6)
    return f"{seconds / unit:.3g} {SECONDS[unit]}"
