"""A Plan: what a call would do, what each method would cost, and where the next method takes over."""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from numbers import Real
from types import NoneType
from typing import Any

from .. import _core
from . import copy_speed, reasons
from .cost import Cliff as Cliff
from .cost import Cost as Cost
from .cost import PlanStep as PlanStep
from .table import Table, as_html, paragraphs
from .terms import defaults_of, facts_of, terms_of
from .text import counted, duration, size
from .text import share as share_text

LONGEST = 2**30  # cliffs are looked for up to this length
# What a copy's time leaves out for a call on the CPU.
CPU_TIMES = {
    reasons.PAST_CACHES: ("A copy reads what it overwrites", "This call does not, and may take less"),
    reasons.FITS_CACHES: ("The array fits the caches and may take less", "The call itself comes on top"),
}
_MAX_ELEMENTS = 2**_core.MAX_ELEMENTS_LOG2


@dataclass(frozen=True, repr=False)
class Plan:
    """What a call would do. `print(plan)` shows it, with the cost of the other methods and the cliffs. A
    notebook shows the same."""

    operation: str
    """The operation that the plan was asked for."""
    device: str
    """ "cpu", "cuda", or the name of the GPU that the plan was asked for."""
    method: str
    """The name of the method that would run."""
    reason: str
    """Why this method. For softmax on an H100 it says which methods tie, and whether the time is mostly the
    launch's."""
    measured: str
    """What a run measured at the row length where the choice changes. First comes the file and the device,
    then the speed of the methods there, as a multiple of the speed of a copy. Empty if no run measured that
    length, or if the call names the method."""
    dtype: str
    """The array's type."""
    form: str
    """ "row": one row at a time, along its elements. "column": neighbouring rows side by side."""
    compute: str
    """The arithmetic's type."""
    rows: int
    """The number of rows."""
    N: int
    """Elements of a row."""
    tile: int
    """Elements of a row in one tile."""
    width: int
    """Rows worked on side by side."""
    bytes_moved: int
    """Bytes moved through main memory, by reads and writes, if no read finds its elements in a cache. If the
    number depends on the elements, it is the smallest possible number."""
    on_chip_bytes: int
    """Bytes held in fast memory for one row."""
    workspace_bytes: int
    """Scratch of all threads or blocks together, in bytes. A sampler on the CPU takes memory as its rows need
    it. There the number is 0."""
    threads: int
    """The threads of the call on the CPU, or of a block on a GPU."""
    others: tuple[Cost, ...]
    """The cost of every method of the device, the plan's own method among them. If a call takes no method by
    name, it is the cost of the call alone."""
    k: int | None = None
    """The number of elements to select per row. None if the operation selects none."""
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)
    """The arguments of the operation that change its plan, such as label_smoothing. An array is True if the
    call may leave it out, and None if the call may also take a number in its place."""
    steps: tuple[PlanStep, ...] = ()
    """What the call runs in turn. Empty if the method tells all: for the operations of `methods`."""
    num_threads: int | None = field(default=None, repr=False, compare=False)
    """The argument num_threads of the call. None if the call does not give it."""

    # From here on: only for a GPU.
    blocks_a_row: int | None = None
    """Blocks that share a row. 0 if a block has several rows."""
    elements_a_thread: int | None = None
    """Elements of a row that a thread holds in its registers at once."""
    warps: int | None = None
    """Warps of a block."""
    longest_row: int | None = None
    """The longest row that the method can hold. None if it takes any."""
    copy_speed: float | None = None
    """The speed of a copy, in bytes a second. It is 0.88 of the bandwidth of the GPU's memory. Copies reach
    this share on an H200. The bandwidth comes from the driver, or from the data sheet if no driver is asked.
    None if the driver does not give the bandwidth."""

    measured_seconds: float | None = None
    """The time on the GPU, without the launch from the host. It is interpolated between times measured on an
    H100. None for another GPU, for another operation than softmax, and for rows with gaps."""
    measured_copy_seconds: float | None = None
    """The time of a copy of the array, measured in the same way."""
    launch_seconds: float | None = None
    """The time of a launch of the method with almost no work. It was measured on an H100, also for a plan for
    another GPU."""

    # From here on: from the driver. None without a driver, and for a call with steps.
    registers: int | None = None
    """Registers of a thread."""
    spilled_bytes: int | None = None
    """Bytes of a thread's registers that are in local memory."""
    shared_bytes: int | None = None
    """Shared memory of a block, in bytes."""
    blocks_a_multiprocessor: int | None = None
    """Blocks that run at once on a multiprocessor."""

    def seconds(self, bandwidth: float | None = None) -> float | None:
        """The time to expect: `measured_seconds`, or else the time of the bytes at the speed of a copy.

        On a GPU the result is the least that a call can take. It is the largest of three times: the time of
        the bytes without the reads that the L2 cache may serve, the time of a launch, and for `exact` the
        time of its arithmetic in double. On the CPU a call can take less, if it writes past the caches or
        finds the array in them.

        Parameters
        ----------
        bandwidth : float, optional
            The speed of a copy, in bytes a second. If it is given, the result is the time of the bytes at
            this speed. If not, the speed of a copy is measured once on the CPU, and is `copy_speed` on a GPU.
            The result is None if `copy_speed` is None.

        Raises
        ------
        ValueError
            The bandwidth is not above 0.
        """
        if not isinstance(bandwidth, (Real, NoneType)):
            raise TypeError(f"bandwidth is {bandwidth!r}: expected bytes a second, a number above 0")
        if bandwidth is not None and not bandwidth > 0:
            raise ValueError(f"bandwidth is {bandwidth}: expected bytes a second, a number above 0")
        return self._seconds_of(self._own(), bandwidth)

    def _own(self) -> Cost:
        """The cost of the plan's own method."""
        return next(cost for cost in self.others if cost.method == self.method)

    def _seconds_of(self, cost: Cost, bandwidth: float | None) -> float | None:
        """The time of a method, as `seconds` gives it."""
        if cost.least_bytes is None:
            return None
        if bandwidth:
            return cost.least_bytes / bandwidth
        if cost.measured_seconds:
            return cost.measured_seconds
        speed = self._speed()
        if not speed:
            return None
        return max(cost.least_bytes / speed, cost.launch_seconds or 0, cost.arithmetic_seconds or 0)

    def _speed(self) -> float | None:
        return copy_speed.of_memory(self.threads) if self.device == "cpu" else self.copy_speed

    def cliffs(self) -> tuple[Cliff, ...]:
        """The row lengths at which `auto` changes its method. The number of rows, their type and their form
        are as in this plan."""
        lengths = [self._unit() * 2**i for i in range(LONGEST.bit_length())]
        lengths = [N for N in lengths if self._least() <= N <= LONGEST and N * self.rows <= _MAX_ELEMENTS]
        found: list[Cliff] = []
        for low, high in itertools.pairwise(lengths):
            found += self._between(low, high)
        return tuple(found)

    def _unit(self) -> int:
        """The lengths of rows are multiples of this number."""
        return int(self.arguments.get("groups", 1))

    def _least(self) -> int:
        """The shortest row."""
        unit, top = self._unit(), int(self.arguments.get("top_groups") or self._unit())
        return max(unit * -(-(self.k or 1) // top), int(self.arguments.get("topk", 0)))

    def _between(self, low: int, high: int) -> list[Cliff]:
        """The cliffs between two lengths, by halving."""
        one, other = self._at(low), self._at(high)
        if one["method"] == other["method"]:
            return []
        if high - low > self._unit():
            middle = (low + high) // self._unit() // 2 * self._unit()
            return self._between(low, middle) + self._between(middle, high)
        each = [facts["bytes_moved"] / max(facts["rows"] * facts["N"], 1) for facts in (one, other)]
        return [Cliff(low, one["method"], each[0], other["method"], each[1])]

    def _at(self, N: int) -> dict[str, Any]:
        """The plan of `auto` for rows of another length, in the same form and without gaps."""
        shape, axis = ((self.rows, N), -1) if self.form == "row" else ((N, self.rows), 0)
        return facts_of(
            shape,
            axis,
            self.operation,
            terms_of(self.operation, self.arguments),
            dtype=self.dtype,
            device=self.device,
            num_threads=self.num_threads,
            k=self.k,
        )

    def parts(self, bandwidth: float | None = None) -> list[Table | str]:
        """The paragraphs and tables that show the plan."""
        cliffs = self.cliffs()
        table = self._table_of_steps() if self.steps else self._table_of_others(bandwidth)
        return [self._summary(bandwidth, cliffs), table, self._table_of_cliffs(cliffs)]

    def _lengths(self, cliffs: Sequence[Cliff]) -> list[str]:
        """The lengths around N at which auto takes this method."""
        below = [cliff.N for cliff in cliffs if cliff.N < self.N]
        low = max(below) + self._unit() if below else self._least()
        high = next((cliff.N for cliff in cliffs if cliff.N >= self.N), None)
        if self._at(self.N)["method"] != self.method:
            return []
        return [f"  auto takes it for rows of {low} {f'to {high}' if high else 'and more'}"]

    def _summary(self, bandwidth: float | None, cliffs: Sequence[Cliff]) -> str:
        lines = [
            f"{self.method}: {self.reason}",
            *self._lengths(cliffs),
            f"  {counted(self.rows, 'row')} of N = {self.N}, {self.dtype} on {self._place()}",
            *self._source(),
            f"  {self._what()} in the {self.form} form, arithmetic in {self.compute}",
            f"  {self._work()}",
            *self._kernel(),
            f"  {size(self.bytes_moved)} through memory, {size(self.on_chip_bytes)} on chip a row, "
            f"{size(self.workspace_bytes)} of scratch",
            f"  {self._time(bandwidth)}",
        ]
        if self.measured:
            file, _, rows = self.measured.partition(": ")
            file, _, device = file.partition(" on ")
            lines.append(f"  measured on {device} where the choice changes, x copy ({file}):")
            lines += [f"    {row}" for row in rows.split("; ")]
        return "\n".join(lines)

    def _time(self, bandwidth: float | None) -> str:
        seconds, own = self.seconds(bandwidth), self._own()
        if seconds is None:
            return "no bandwidth is known of this GPU: give a bandwidth for the time to expect"
        if self.measured_seconds and self.measured_copy_seconds and not bandwidth:
            share = share_text(self.measured_copy_seconds / seconds)
            return f"{duration(seconds)}, measured on an H100: {share} x copy"
        if own.note == reasons.LAUNCH_BOUND and not bandwidth:
            return f"at least {duration(seconds)}: a launch alone, as measured on an H100"
        if own.note == reasons.SLOW_DOUBLES and not bandwidth:
            return f"at least {duration(seconds)}: this GPU is slow with doubles"
        speed = bandwidth or self._speed() or 0
        if self.device == "cpu":
            copy = "a copy" if bandwidth else "np.copyto"
            source = "as given" if bandwidth else "measured here"
            time = f"{duration(seconds)} at the speed of {copy}, {size(speed)}/s, {source}"
            return ". ".join([time, *CPU_TIMES.get(own.note, ())])
        source = "as given" if bandwidth else "0.88 of the bandwidth"
        return f"at least {duration(seconds)} at the speed of a copy, {size(speed)}/s, {source}"

    def _what(self) -> str:
        usual = defaults_of(self.operation)
        named = {"k": self.k} if self.k else {}
        named |= {name: value for name, value in self.arguments.items() if value != usual[name]}
        return self.operation + (" of " if named else "") + ", ".join(f"{n} = {v}" for n, v in named.items())

    def _place(self) -> str:
        known = self.registers is not None or (self.steps and "cuda:0" in _core.config()["cuda"])
        assumed = self.device == "cuda" and not known
        return "a GPU (none here: an H100 is assumed)" if assumed else self.device

    def _source(self) -> list[str]:
        if self.device in ("cpu", "cuda"):
            return []
        return [f"  the {self.device} is as its data sheet says: no driver was asked"]

    def _work(self) -> str:
        if self.device == "cpu":
            return (
                f"{counted(self.threads, 'thread')}, tiles of {counted(self.tile, 'element')}, "
                f"{counted(self.width, 'row')} side by side"
            )
        share = "several rows a block"
        if self.blocks_a_row:
            share = "a block a row" if self.blocks_a_row == 1 else f"{self.blocks_a_row} blocks a row"
        longest = f", rows of at most {self.longest_row}" if self.longest_row else ""
        return (
            f"{share}, {counted(self.warps or 0, 'warp')} a block, "
            f"{counted(self.elements_a_thread or 0, 'element')} a thread\n"
            f"  tiles of {self.tile}{longest}"
        )

    def _kernel(self) -> list[str]:
        if self.registers is None:
            return []
        return [
            f"  {counted(self.registers, 'register')} a thread, "
            f"{counted(self.spilled_bytes or 0, 'byte')} spilled",
            f"  {counted(self.shared_bytes or 0, 'byte')} shared a block, "
            f"{counted(self.blocks_a_multiprocessor or 0, 'block')} a multiprocessor",
        ]

    def _table_of_others(self, bandwidth: float | None) -> Table:
        on_cpu = self.device == "cpu"
        rows: list[tuple[str, ...]] = []
        for cost in self.others:
            mark = "*" if cost.method == self.method else ""
            if cost.bytes_moved is None:
                only = "only " if cost.cannot.startswith("rows of") else ""
                rows.append((cost.method + mark, "", "", "", "", f"{only}{cost.cannot}"))
                continue
            bound = None if cost.note == reasons.LAUNCH_BOUND else cost.most_x_copy
            share = f"at most {share_text(bound)}" if bound else ""
            seconds = self._seconds_of(cost, bandwidth)
            time = "" if seconds is None else f"{'' if on_cpu else '>= '}{duration(seconds)}"
            if cost.measured_seconds and self.measured_copy_seconds and not bandwidth:
                time = duration(cost.measured_seconds)
                share = f"{share_text(self.measured_copy_seconds / cost.measured_seconds)} measured"
            moved, kept = size(cost.bytes_moved), size(cost.on_chip_bytes or 0)
            rows.append((cost.method + mark, moved, time, share, kept, cost.note))
        title = "What each method would cost (* the plan's)"
        head: tuple[str, ...] = ("method", "moved", "time", "x copy", "on chip a row", "note")
        if on_cpu:
            title += ", with the time that a copy of the bytes moved takes"
            head, rows = (*head[:3], *head[4:]), [(*row[:3], *row[4:]) for row in rows]
        return Table(title, head, rows, frozenset({0, len(head) - 1}))

    def _table_of_steps(self) -> Table:
        """What the call runs in turn."""
        rows: list[tuple[str, ...]] = [
            (
                step.what,
                step.method or "",
                str(step.reads),
                str(step.writes),
                str(step.threads or ""),
                str(step.blocks_a_row or ""),
            )
            for step in self.steps
        ]
        head: tuple[str, ...] = ("what runs in turn", "method", "reads", "writes", "threads", "blocks a row")
        title = "Reads and writes are of an array of the logits' shape, through memory"
        if self.device == "cpu":
            head, rows = head[:-1], [row[:-1] for row in rows]
        return Table(title, head, rows, frozenset({0, 1}))

    def _table_of_cliffs(self, cliffs: Sequence[Cliff]) -> Table | str:
        if not cliffs:
            return f"{counted(self.rows, 'row')}: auto takes the same method for every length"
        rows = [
            (str(c.N), c.method, f"{c.bytes_an_element:g}", c.then, f"{c.bytes_an_element_then:g}")
            for c in cliffs
        ]
        head = ("up to N", "method", "bytes an element", "then", "bytes an element")
        return Table(
            f"Where auto changes, for {counted(self.rows, 'row')} in {self.dtype}",
            head,
            rows,
            frozenset({1, 3}),
        )

    def to_dict(self, bandwidth: float | None = None) -> dict[str, Any]:
        """The plan as plain data, which json.dumps takes.

        The keys are the plan's attributes and two more. "seconds" is the result of `seconds` for the
        bandwidth, in bytes a second. "cliffs" and "others" are lists of dicts.

        Raises
        ------
        ValueError
            The bandwidth is not above 0.
        """
        facts = asdict(self)
        facts["others"] = list(facts["others"])
        facts["steps"] = list(facts["steps"])
        cliffs = [asdict(cliff) for cliff in self.cliffs()]
        return {**facts, "seconds": self.seconds(bandwidth), "cliffs": cliffs}

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
