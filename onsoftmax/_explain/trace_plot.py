"""A Trace as a figure: m and d over the steps, and the result. Needs matplotlib."""

from __future__ import annotations

import io
import math

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError("a plot needs matplotlib: pip install matplotlib") from error

from .._plan.table import short
from .record import Record
from .trace_text import result_name

RUNNING = ("maximum", "sum", "statistics", "merge", "total")  # the steps before the results
NAMED = 24  # elements or steps; if there are more, numbers name them


class _Drawing(Figure):
    """Draws itself in a notebook. Notebooks draw only figures of pyplot by themselves."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def _running(trace: Record, panels: dict[str, Axes]) -> None:
    """m and d, or s, after each step that changes them. A dashed line shows where d moved to a larger m."""
    steps = [(i, step) for i, step in enumerate(trace.steps, 1) if step.kind in RUNNING]
    for name, panel in panels.items():
        values = [(i, getattr(step, name)) for i, step in steps]
        points = [(i, value) for i, value in values if value is not None and math.isfinite(value)]
        if points:
            panel.plot(*zip(*points, strict=True), marker="o", drawstyle="steps-post", label=name)
        panel.set_ylabel(name)
        panel.grid(alpha=0.3)
    last = list(panels.values())[-1]
    for i, step in steps:
        if step.rescaled and step.rescale is not None:
            for panel in panels.values():
                panel.axvline(i, color="gray", linestyle="--", linewidth=1)
            last.annotate(
                f"d_old * {step.rescale:.4g}",
                (i, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -12),
                textcoords="offset points",
                fontsize="small",
            )
        if step.note:
            last.annotate(step.note, (0.5, 0.5), xycoords="axes fraction", ha="center", fontsize="small")
    last.set_xlabel("step")
    last.set_xlim(0.5, len(steps) + 0.5)
    if len(steps) <= NAMED:
        last.set_xticks([i for i, _ in steps])


def _results(trace: Record, bars: Axes) -> None:
    places = trace.indices or range(len(trace.result))
    heights = [y if math.isfinite(y) else 0 for y in trace.result]
    bars.bar(places, heights, label=f"{result_name(trace)} of {trace.method}")
    bars.plot(places, trace.exact, "k_", markersize=12, label="textbook formula in float64")
    lost = [j for j, y in zip(places, trace.result, strict=True) if math.isnan(y)]
    bars.plot(lost, [0.02] * len(lost), "rx", label="NaN" if lost else None)


def _tokens(trace: Record, bars: Axes) -> None:
    """The probabilities of all tokens, those of the kept tokens, and the drawn token."""
    found: dict[str, dict[int, float]] = {"order": {}, "renormalize": {}}
    for step in trace.steps:
        if step.kind in found:
            found[step.kind].update(zip(step.tokens, step.p, strict=True))
    p, kept = found.values()
    bars.bar(list(p), list(p.values()), width=0.8, alpha=0.4, label="p")
    if kept:
        bars.bar(list(kept), list(kept.values()), width=0.4, label="p of the kept tokens over their sum")
    drawn = [token for token in trace.indices if token >= 0]
    bars.plot(drawn, [(kept or p)[token] for token in drawn], "kv", markersize=10, label="the drawn token")


def figure(trace: Record) -> Figure:
    """m and d, or a gradient's s, above the result. The caller shows or saves the figure."""
    drawing = _Drawing(figsize=(8, 7), layout="constrained")
    names = "s" if trace.grad else "md"
    *running, bars = drawing.subplots(len(names) + 1, 1, height_ratios=[*[2] * len(names), 3])
    running[0].sharex(running[-1])
    _running(trace, dict(zip(names, running, strict=True)))
    (_tokens if trace.sampling else _results)(trace, bars)
    if len(trace.result) == 1 < len(trace.row) and not trace.sampling:
        bars.set_xticks([])
    elif len(trace.row) <= NAMED:
        bars.set_xticks(range(len(trace.row)), [short(x) for x in trace.row])
    bars.set_xlabel("y" if trace.grad else "x")
    bars.set_ylabel(trace.operation)
    bars.legend(fontsize="small")
    tile = "element by element" if trace.tile == 1 else f"tiles of {trace.tile}"
    drawing.suptitle(
        f"{trace.operation} by {trace.method}, {trace.dtype}, {tile}: {trace.passes} passes, "
        f"{trace.bytes_read} bytes read, {trace.bytes_written} written"
    )
    return drawing
