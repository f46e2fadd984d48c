"""The steps of a method on one row, as data."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

Floats = tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """One step on elements `start` to `stop`. What a step has nothing to do with is None, or empty."""

    kind: str
    """What is done: "maximum", "sum", "statistics" (both at once), "merge" or "divide"; of softmax_topk
    "statistics", "merge" or "select"."""
    part: int
    """Which part of the row, of those that `split` has; 0 elsewhere."""
    start: int
    stop: int
    passes: int
    """Over the row in memory, begun so far."""
    bytes_read: int
    """So far."""
    bytes_written: int
    read: Floats = ()
    """From memory; empty where the elements are on the chip already."""
    written: Floats = ()
    """To memory."""
    own_m: float | None = None
    """The maximum of these elements alone; in a merge that of the part that comes in."""
    own_d: float | None = None
    """d of these elements alone, relative to own_m."""
    m_before: float | None = None
    d_before: float | None = None
    m: float | None = None
    """The maximum so far."""
    d: float | None = None
    """The normalizer so far, relative to m: sum(exp(x - m)); of `naive` sum(exp(x))."""
    rescale: float | None = None
    """exp(m_before - m), by which d_before is multiplied."""
    own_rescale: float | None = None
    """exp(own_m - m), by which own_d is."""
    exponent: int | None = None
    """c: inside, d is kept relative to 2^c, so that a rescale is exact."""
    exponentials: Floats = ()
    """exp(x - m), of `naive` exp(x), in the arithmetic's type."""
    added: float | None = None
    """What comes to the rescaled d_before: the sum of the exponentials, or own_d * own_rescale."""
    exact_m: float | None = None
    """The textbook formula in float64, for comparison."""
    exact_d: float | None = None
    exact: Floats = ()
    """Of the exponentials, or of what is written."""
    bound: float | None = None
    """Of softmax_topk: the k-th largest before this tile, None where there are fewer. An element that is not
    above it costs one comparison."""
    passed: int | None = None
    """How many elements of the tile are above the bound."""
    kept: Floats = ()
    """The k largest so far, in descending order."""
    kept_at: tuple[int, ...] = ()
    """Their indices in the row."""
    note: str = ""
    """What is remarkable, in words."""

    @property
    def rescaled(self) -> bool:
        """Whether a larger maximum came, and d_before was moved to it."""
        return self.rescale is not None and self.d_before != 0 and self.m_before != self.m


@dataclass(frozen=True)
class Record:
    """All steps of one method on one row."""

    operation: str
    """softmax or softmax_topk."""
    method: str
    dtype: str
    """Of the row and of the result."""
    compute: str
    """The arithmetic's type."""
    tile: int
    parts: int
    """That the row is split in; 1 but by `split`."""
    row: Floats
    steps: tuple[Step, ...]
    result: Floats
    exact: Floats
    """exp(x - m) / sum(exp(x - m)) in float64, of the elements that the result has."""
    indices: tuple[int, ...] = ()
    """Of softmax_topk: the places of its k values in the row."""

    @property
    def passes(self) -> int:
        """Over the row in memory."""
        return self.steps[-1].passes

    @property
    def bytes_read(self) -> int:
        return self.steps[-1].bytes_read

    @property
    def bytes_written(self) -> int:
        return self.steps[-1].bytes_written

    @property
    def error(self) -> float:
        """The largest relative error of the result; NaN where the result has one and the formula not."""
        both = zip(self.result, self.exact, strict=True)
        errors = [0.0 if _alike(y, e) else abs(y - e) / e if e else math.inf for y, e in both]
        return math.nan if any(map(math.isnan, errors)) else max(errors)

    def to_dict(self) -> dict[str, Any]:
        """As plain data: dicts, lists, numbers, text."""
        return asdict(self)

    def to_json(self, indent: int | None = 1) -> str:
        """As JSON, which has no number for infinity and NaN: they are "inf", "-inf" and "nan"."""
        return json.dumps(for_json(self.to_dict()), indent=indent, allow_nan=False)


def _alike(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def for_json(value: Any) -> Any:
    """The same with text for infinities and NaN."""
    if isinstance(value, dict):
        return {key: for_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_json(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
