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

NAMED = 24  # elements or steps; if there are more, numbers name them


class _Drawing(Figure):
    """Draws itself in a notebook. Notebooks draw only figures of pyplot by themselves."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def _running(trace: Record, m_panel: Axes, d_panel: Axes) -> None:
    """m and d after each step that changes them. A dashed line shows where d moved to a larger m."""
    steps = [(i, step) for i, step in enumerate(trace.steps, 1) if step.kind not in ("divide", "select")]
    ms = [(i, step.m) for i, step in steps if step.m is not None and math.isfinite(step.m)]
    ds = [(i, step.d) for i, step in steps if step.d is not None and math.isfinite(step.d)]
    for panel, points, name in ((m_panel, ms, "m"), (d_panel, ds, "d")):
        if points:
            panel.plot(*zip(*points, strict=True), marker="o", drawstyle="steps-post", label=name)
        panel.set_ylabel(name)
        panel.grid(alpha=0.3)
    for i, step in steps:
        if step.rescaled and step.rescale is not None:
            m_panel.axvline(i, color="gray", linestyle="--", linewidth=1)
            d_panel.axvline(i, color="gray", linestyle="--", linewidth=1)
            d_panel.annotate(
                f"d before x {step.rescale:.4g}",
                (i, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -12),
                textcoords="offset points",
                fontsize="small",
            )
        if step.note:
            d_panel.annotate(step.note, (0.5, 0.5), xycoords="axes fraction", ha="center", fontsize="small")
    d_panel.set_xlabel("step")
    d_panel.set_xlim(0.5, len(steps) + 0.5)
    if len(steps) <= NAMED:
        d_panel.set_xticks([i for i, _ in steps])


def figure(trace: Record) -> Figure:
    """m, d and the result, one below the other. The caller shows or saves the figure."""
    drawing = _Drawing(figsize=(8, 7), layout="constrained")
    m_panel, d_panel, bars = drawing.subplots(3, 1, height_ratios=[2, 2, 3])
    m_panel.sharex(d_panel)
    _running(trace, m_panel, d_panel)
    places = trace.indices or range(len(trace.row))
    bars.bar(places, [0 if math.isnan(y) else y for y in trace.result], label=f"y of {trace.method}")
    bars.plot(places, trace.exact, "k_", markersize=12, label="textbook formula in float64")
    lost = [j for j, y in zip(places, trace.result, strict=True) if math.isnan(y)]
    bars.plot(lost, [0.02] * len(lost), "rx", label="NaN" if lost else None)
    if len(trace.row) <= NAMED:
        bars.set_xticks(range(len(trace.row)), [short(x) for x in trace.row])
    bars.set_xlabel("x")
    bars.set_ylabel(trace.operation)
    bars.legend(fontsize="small")
    tile = "element by element" if trace.tile == 1 else f"tiles of {trace.tile}"
    drawing.suptitle(
        f"{trace.operation} by {trace.method}, {trace.dtype}, {tile}: {trace.passes} passes, "
        f"{trace.bytes_read} bytes read, {trace.bytes_written} written"
    )
    return drawing
