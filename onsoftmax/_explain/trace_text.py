"""A Trace as tables: one table for each pass and each merge, with the columns that it needs."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Sequence

from .._plan.table import Table, number, numbers, short
from .record import Record, Step

Column = tuple[str, Callable[[Step], str]]


def _list(values: Sequence[float]) -> str:
    return " ".join(map(short, values))


def _elements(trace: Record) -> Column:
    return "x", lambda step: _list(trace.row[step.start : step.stop])


def _columns(trace: Record) -> dict[str, list[Column]]:
    """The columns of each kind of step."""
    plain = trace.method == "naive"
    e = "exp(x)" if plain else "exp(x - m)"
    x = _elements(trace)
    m: Column = ("m", lambda step: maximum(step.m))
    exponentials: Column = (e, lambda step: numbers(step.exponentials))
    total: Column = ("sum", lambda step: number(step.added))
    rescale: Column = ("rescale", lambda step: number(step.rescale))
    rescaled: Column = ("rescaled d", lambda step: number(rescaled_d(step)))
    d: list[Column] = [("d", lambda step: number(step.d)), ("exact d", lambda step: number(step.exact_d))]
    exact: list[Column] = [(f"exact {e}", lambda step: numbers(step.exact))]
    own_m: Column = ("their m", lambda step: maximum(step.own_m))
    if trace.operation == "softmax_topk":
        kept: list[Column] = [
            ("largest", lambda step: _list(step.kept)),
            ("at", lambda step: " ".join(map(str, step.kept_at))),
        ]
        above: list[Column] = [
            ("bound", lambda step: maximum(step.bound)),
            ("above", lambda step: "" if step.passed is None else str(step.passed)),
        ]
        written: list[Column] = [
            ("y", lambda step: numbers(step.written)),
            ("exact y", lambda step: numbers(step.exact)),
        ]
        part: Column = ("part", lambda step: str(step.part + 1))
        own: list[Column] = [("its m", own_m[1]), ("its d", lambda step: number(step.own_d))]
        return {
            "statistics": [x, m, total, rescale, d[0], *above, *kept],
            "merge": [part, *own, m, d[0], *kept],
            "select": [*kept, exponentials, *written],
        }
    return {
        "maximum": [x, own_m, m],
        "sum": [x, exponentials, *(exact if plain else []), total, *d],
        "statistics": [x, m, exponentials, total, rescale, rescaled, *d],
        "merge": [
            ("part", lambda step: str(step.part + 1)),
            ("its m", own_m[1]),
            ("its d", lambda step: number(step.own_d)),
            ("its rescale", lambda step: number(step.own_rescale)),
            m,
            rescale,
            rescaled,
            *d,
        ],
        "divide": [
            x,
            exponentials,
            ("y", lambda step: numbers(step.written)),
            ("exact y", lambda step: numbers(step.exact)),
        ],
    }


def rescaled_d(step: Step) -> float | None:
    """The d before, moved to this step's m."""
    if step.rescale is None or step.d_before is None:
        return None
    return step.d_before * step.rescale


def maximum(value: float | None) -> str:
    """A maximum as it stands in the row."""
    return "" if value is None else short(value)


WHAT = {
    "maximum": "the maximum",
    "sum": "the sum of exp(x - m)",
    "statistics": "the running (m, d)",
    "merge": "the parts' pairs, one after the other",
    "divide": "y = exp(x - m) / d",
    "select": "y = exp(x - m) / d of the k largest",
}

# How the columns of a step of this kind go together.
FORMULA = {
    "statistics": "d = rescaled d + sum, rescaled d = d before x rescale,\nrescale = exp(m before - m)",
    "merge": "of two pairs: d = rescaled d + its d x its rescale, its rescale = exp(its m - m)",
}

# For softmax_topk, whose tables have fewer columns.
FORMULA_OF_TOPK = {
    "statistics": "d = d before x rescale + sum, rescale = exp(m before - m)",
    "merge": "of two pairs: d = d before x exp(m before - m) + its d x exp(its m - m)",
}


def title_of(trace: Record, step: Step) -> str:
    """The title of the steps of this kind."""
    what = WHAT[step.kind]
    if step.kept and step.kind != "select":
        what = what.replace("(m, d)", "(m, d) and k largest").replace("pairs", "pairs and k largest")
    if trace.method == "naive":
        what = what.replace("exp(x - m)", "exp(x)")
    if step.kind == "merge":
        return f"Merge: {what}"
    if not step.read:
        return f"On the chip: {what}"
    part = f", part {step.part + 1} of {trace.parts}" if trace.parts > 1 and step.kind == "statistics" else ""
    return f"Pass {step.passes} of {trace.passes}{part}: {what}"


def sections(trace: Record) -> list[tuple[str, list[Step]]]:
    """The steps of each pass or merge, under its title."""
    groups = itertools.groupby(trace.steps, key=lambda step: title_of(trace, step))
    return [(title, list(steps)) for title, steps in groups]


def heading(trace: Record) -> str:
    split = f" in {trace.parts} parts" if trace.parts > 1 else ""
    what = "element by element" if trace.tile == 1 else f"in tiles of {trace.tile}"
    passes = f"{trace.passes} pass{'es' * (trace.passes > 1)}"
    of = f"the {len(trace.indices)} largest of " if trace.indices else ""
    lines = [
        f"{trace.method}: {trace.operation} of {of}{len(trace.row)} {trace.dtype} numbers{split}, {what}",
        f"{passes} over the row in memory: {trace.bytes_read} bytes read, {trace.bytes_written} written",
    ]
    kinds = {step.kind for step in trace.steps}
    formulas = FORMULA_OF_TOPK if trace.indices else FORMULA
    return "\n".join(lines + [formula for kind, formula in formulas.items() if kind in kinds])


def _wrapped(name: str, text: str, width: int) -> str:
    indent = " " * 8
    return textwrap.fill(name.ljust(8) + text, width, subsequent_indent=indent, break_on_hyphens=False)


def ending(trace: Record, width: int) -> str:
    error = "the result has NaN" if math.isnan(trace.error) else f"{trace.error:.2g}"
    return "\n".join(
        [
            _wrapped("y", numbers(trace.result), width),
            *([_wrapped("at", " ".join(map(str, trace.indices)), width)] if trace.indices else []),
            _wrapped("exact", numbers(trace.exact), width),
            f"largest relative error: {error} (exact: the textbook formula in float64)",
        ]
    )


def parts(trace: Record, width: int = 80) -> list[Table | str]:
    """The whole trace as paragraphs and tables. "bytes" are the bytes read and written so far."""
    columns, numbering = _columns(trace), itertools.count(1)
    out: list[Table | str] = [heading(trace)]
    for title, steps in sections(trace):
        chosen = columns[steps[0].kind]
        counts = steps[0].kind != "merge"  # a merge moves nothing through memory
        head = ("#", *(name for name, _ in chosen), *["bytes"] * counts)
        rows, notes = [], []
        for step in steps:
            index, moved = str(next(numbering)), step.bytes_read + step.bytes_written
            rows.append((index, *(cell(step) for _, cell in chosen), *[str(moved)] * counts))
            if step.note:
                notes.append(f"Step {index}: {step.note}")
        out.append(Table(title, head, rows, frozenset({1})))
        out += notes
    return [*out, ending(trace, width)]
