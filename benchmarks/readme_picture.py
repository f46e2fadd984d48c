"""Draws README.md's picture, light and dark, from a document of bench_cuda.py. Needs matplotlib.

    python benchmarks/readme_picture.py benchmarks/results/cuda-h100-2026-11-28.json

It writes docs/pictures/x-copy-light.svg and x-copy-dark.svg.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onsoftmax.bench.chart import points_of

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
SHORTEST, LONGEST = 128, 2**20
CONTESTANTS = {  # name in the document -> name in the picture, colour on light, on dark
    "auto": ("onsoftmax", "#0b57d0", "#8ab4f8"),
    "QuACK": ("QuACK", "#b3261e", "#f2857d"),
    "Liger": ("Liger", "#3c7a1e", "#9ccc7a"),
    "Triton one-block": ("Triton, one block", "#8e5bb5", "#d0a7ef"),
    "Triton online": ("Triton, online", "#b06000", "#f0b35f"),
    "torch": ("torch", "#5f6368", "#b8bcc2"),
}
INK = {"light": "#1f2328", "dark": "#e6edf3"}


def draw(document: dict[str, Any], dark: bool) -> Path:
    """Draws a line through the powers of two, and a cross for each other length."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    mode = "dark" if dark else "light"
    ink = INK[mode]
    colours = dict.fromkeys(
        ["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], ink
    )
    with pyplot.rc_context({**colours, "svg.fonttype": "none", "svg.hashsalt": mode, "font.size": 11}):
        figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
        for panel, dtype in zip(panels, ("float32", "bfloat16"), strict=True):
            cases = [c for c in document["cases"] if c["part"] == "bands" and c["dtype"] == dtype]
            cases = [c for c in cases if SHORTEST <= c["N"] <= LONGEST]
            for name, (label, *shades) in CONTESTANTS.items():
                powers, others = points_of(name, cases, "x_copy")
                style = {"color": shades[dark], "zorder": 3 if name == "auto" else 2}
                panel.plot(
                    *zip(*powers, strict=True), label=label, linewidth=3 if name == "auto" else 1.4, **style
                )
                if others:
                    panel.plot(*zip(*others, strict=True), "x", markersize=6, **style)
            panel.axhline(1, color=ink, linewidth=0.8, linestyle=":")
            panel.set_xscale("log", base=2)
            panel.set(title=dtype, xlabel="N, elements of a row", ylim=(0, 1.09))
            panel.grid(alpha=0.2, color=ink)
            panel.set_facecolor("none")
        panels[0].set_ylabel("speed, as a share of a copy's")
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False
        )
        path = PICTURES / f"x-copy-{mode}.svg"
        figure.savefig(path, transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    return path


def main(draw: Callable[[dict[str, Any], bool], Path], help_text: str) -> int:
    """Draws both pictures from the document that the command line names."""
    if len(sys.argv) != 2:
        print(help_text, file=sys.stderr)
        return 2
    document = json.loads(Path(sys.argv[1]).read_text())
    for dark in (False, True):
        print(draw(document, dark))
    return 0


if __name__ == "__main__":
    sys.exit(main(draw, __doc__))
