"""Numbers as a plan writes them."""

from __future__ import annotations

UNITS = {1e12: "TB", 1e9: "GB", 1e6: "MB", 1e3: "kB"}
SECONDS = {1.0: "s", 1e-3: "ms", 1e-6: "us"}


def size(count: float) -> str:
    """A size of memory as text, in units of powers of 1000, as bandwidths have."""
    unit = next((unit for unit in UNITS if count >= unit), None)
    return f"{count:.0f} B" if unit is None else f"{count / unit:.3g} {UNITS[unit]}"


def duration(seconds: float) -> str:
    unit = next((unit for unit in SECONDS if seconds >= unit), 1e-6)
    return f"{seconds / unit:.3g} {SECONDS[unit]}"


def share(part: float) -> str:
    """Two significant digits, and two decimals near 1: 0.0027, 0.66, 1.00."""
    return f"{part:.2f}" if part >= 0.095 else f"{part:.2g}"


def counted(count: int, noun: str) -> str:
    """ "1 row", "2 rows"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def listed(words: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
