"""Writes csrc/plan/measured_times.def, the times that `ons.plan` quotes, from a file of plan_times.py.

python benchmarks/plan_table.py benchmarks/results/plan-times-h100-2026-11-25.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "csrc" / "plan" / "measured_times.def"
NEAR = 0.03  # relative error that a time may get along the rows, and again along the lengths

Row = dict[int, float]  # {number of rows: microseconds}


def at_rows(row: Row, rows: int) -> float:
    """The time for this number of rows. csrc/plan/times.c computes it in the same way. A number between two
    measured ones has a time between theirs. Beyond the last one, twice the rows take twice the time."""
    known = sorted(row)
    if rows >= known[-1]:
        return row[known[-1]] * rows / known[-1]
    high = next(at for at in known if at > rows)
    low = max((at for at in known if at <= rows), default=high)
    return row[low] + (rows - low) / max(high - low, 1) * (row[high] - row[low])


def without_needless(row: Row) -> Row:
    """Leaves out times that the remaining ones give, within NEAR."""
    kept = dict(row)
    for rows in sorted(row)[:0:-1]:
        fewer = {at: us for at, us in kept.items() if at != rows}
        if all(abs(at_rows(fewer, at) / us - 1) <= NEAR for at, us in row.items()):
            kept = fewer
    return kept


def without_needless_lengths(series: dict[int, Row]) -> dict[int, Row]:
    """Leaves out lengths whose times their neighbours give, within NEAR."""
    kept = sorted(series)
    for N in kept[1:-1]:
        low, high = kept[kept.index(N) - 1], kept[kept.index(N) + 1]

        def near(at: int, low: int = low, high: int = high) -> bool:
            share = (at - low) / (high - low)
            pairs = [(at_rows(series[low], M), at_rows(series[high], M), us) for M, us in series[at].items()]
            return all(abs((a + share * (b - a)) / us - 1) <= NEAR for a, b, us in pairs)

        if all(near(at) for at in series if low < at < high):
            kept.remove(N)
    return {N: series[N] for N in kept}


def table(document: dict[str, Any]) -> str:

    def times(row: Row) -> str:
        thin = sorted(without_needless(row).items())
        return " ".join(f"TIME({rows.bit_length() - 1}, {us * 100:.0f})" for rows, us in thin)

    def numbers(mapping: dict[str, Any]) -> dict[int, Any]:
        return {int(key): value for key, value in mapping.items()}

    dates = sorted({document["date"], *(one["date"] for one in document["times"] if "date" in one)})
    lines = [
        "/* plan/measured_times.def - by benchmarks/plan_table.py. "
        f"{document['gpu']}, {' and '.join(dates)}.",
        " * TIME(n, t): 2^n rows take t * 10 ns. A copy that reads 2^n bytes takes t * 10 ns. */",
        "#ifdef ONS_COPY_TIMES",
        times(numbers(document["copy"])),
        "#endif",
        "#ifdef ONS_METHOD_TIMES",
    ]
    for one in document["times"]:
        series = {N: numbers(row) for N, row in numbers(one["us"]).items() if N < 2**27}
        packs = "true" if one["packs"] else "false"
        lines.append(f"SERIES({one['dtype'].upper()}, {packs}, {one['method']})")
        lines += [f"LENGTH({N}) {times(row)}" for N, row in without_needless_lengths(series).items()]
    return "\n".join([*lines, "#endif", ""])


if __name__ == "__main__":
    TABLE.write_text(table(json.loads(Path(sys.argv[1]).read_text())))
