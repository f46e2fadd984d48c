"""The figures of one contestant's samples."""

from __future__ import annotations

import math
import statistics
from typing import Any


def rounded(value: float | None) -> float | str | None:
    """The value to four digits. Infinities and NaN, for which JSON has no number, as text."""
    if value is None or math.isfinite(value):
        return None if value is None else float(f"{value:.4g}")
    return str(value)


def median_and_range(samples: list[float], digits: int | None = None) -> list[float]:
    """Median, lowest and highest. They are rounded if digits are given."""
    found = [statistics.median(samples), min(samples), max(samples)]
    return found if digits is None else [round(each, digits) for each in found]


def figures_of(
    samples: list[float], error: float | None, moved: int, copy_moved: int, copy_samples: list[float]
) -> dict[str, Any]:
    """The figures of samples in milliseconds: median, range, spread (half the range over the median), GB/s,
    and the time of a copy of as many bytes over the median."""
    ms = statistics.median(samples)
    out = {
        "ms": rounded(ms),
        "low": rounded(min(samples)),
        "high": rounded(max(samples)),
        "spread": rounded((max(samples) - min(samples)) / 2 / ms),
        "samples": len(samples),
    }
    if moved:
        out["gbps"] = rounded(moved / ms / 1e6)
    if copy_samples:
        out["x_copy"] = rounded(statistics.median(copy_samples) * moved / copy_moved / ms)
    if error is not None:
        out["error"] = rounded(error)
    return out
