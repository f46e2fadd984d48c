"""Charts: lines over N, or bars for a few shapes. They need matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

OURS_COLOUR = "black"


def formats() -> Sequence[str]:
    """The endings of files that a chart can be saved to.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as error:
        raise ImportError("a plot needs matplotlib: pip install matplotlib") from error
    return sorted(FigureCanvasAgg.get_supported_filetypes())


# With fewer lengths than this, a line says little.
LENGTHS_OF_A_LINE = 4


def draw(document: dict[str, Any]) -> Any:
    """A figure of everyone's GB/s in a document of `onsoftmax bench`: lines over N, or bars if there are few
    lengths."""
    from matplotlib.figure import Figure

    cases, kinds = document["cases"], document["kinds"]
    lines = len({case["N"] for case in cases}) >= LENGTHS_OF_A_LINE
    height = 5.5 if lines else 1.5 + 0.3 * len(kinds) * len(cases)
    figure = Figure(figsize=(10, height), layout="constrained")
    if lines:
        panel = figure.subplots()
        panel.set_xscale("log", base=2)
        for name in kinds:
            plot_line(panel, name, cases, "gbps")
        panel.set(xlabel="N, elements of a row", ylabel="GB/s, each input and result once")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        for panel, case in zip(figure.subplots(len(cases), squeeze=False)[:, 0], cases, strict=True):
            _bars(panel, case, kinds)
        panel.set_xlabel("GB/s, each input and result once")
    figure.suptitle(", ".join(document[key] for key in ("operation", "dtype", "machine", "date")))
    return figure


def _bars(panel: Any, case: dict[str, Any], kinds: Sequence[str]) -> None:
    """The bars of one shape. Each bar has its name in front and its figure behind."""
    names = [name for name in kinds if case["figures"].get(name, {}).get("gbps") is not None][::-1]
    bars = panel.barh(names, [case["figures"][name]["gbps"] for name in names])
    for name, bar in zip(names, bars, strict=True):
        colour = _look(name).get("color", "tab:blue")
        bar.set(facecolor=colour, hatch="//" if name.startswith("copy") else "", edgecolor="white")
    panel.bar_label(bars, fmt="%.3g", padding=3)
    panel.margins(x=0.1)
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_title(case["label"], loc="left", fontsize="medium")


def _look(name: str) -> dict[str, Any]:
    """How a contestant is drawn: ours stands out, and the copy stays in the background."""
    if name.startswith("auto"):
        return {
            "color": OURS_COLOUR,
            "linewidth": 2.5,
            "zorder": 3,
            "linestyle": "-" if name == "auto" else "--",
        }
    return {"color": "gray", "linestyle": ":"} if name.startswith("copy") else {"linewidth": 1.2}


Points = list[tuple[int, float]]


def points_of(name: str, cases: list[dict[str, Any]], key: str) -> tuple[Points, Points]:
    """The points (N, figure) of a contestant: those with N a power of two, and the other points."""
    found = [(case["N"], case["figures"].get(name, {}).get(key)) for case in cases]
    points = [(N, value) for N, value in found if value is not None]
    return [p for p in points if p[0] & (p[0] - 1) == 0], [p for p in points if p[0] & (p[0] - 1)]


def plot_line(panel: Any, name: str, cases: list[dict[str, Any]], key: str) -> None:
    """A line through the powers of two, and crosses for the other lengths."""
    powers, others = points_of(name, cases, key)
    if not powers and not others:
        return
    look = _look(name)
    (line,) = panel.plot(*zip(*powers, strict=True) if powers else ([], []), marker=".", label=name, **look)
    if others:
        panel.plot(*zip(*others, strict=True), linestyle="", marker="x", color=line.get_color())
