"""Draws the picture of docs/log-probabilities.md, light and dark, from a document of gpu_losses.py. Needs
matplotlib.

    python benchmarks/memory_picture.py benchmarks/results/losses-h100-2026-11-28.json

It writes docs/pictures/memory-light.svg and memory-dark.svg.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from readme_picture import INK, PICTURES, main

PANELS = {
    "loss_and_gradient": "loss and gradient",
    "logprob_gradient": "log-probability, entropy and gradient",
}
CONTESTANTS = {  # name in the document -> name in the picture, colour on light, on dark
    "auto": ("onsoftmax", "#0b57d0", "#8ab4f8"),
    "torch.compile": ("torch.compile", "#8e5bb5", "#d0a7ef"),
    "torch": ("torch", "#5f6368", "#b8bcc2"),
}
SHAPE, DTYPE = [8192, 151936], "bfloat16"


def draw(document: dict[str, Any], dark: bool) -> Path:
    """Draws a bar for the peak memory of each contestant, beside the logits and their gradient."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    mode = "dark" if dark else "light"
    ink = INK[mode]
    colours = dict.fromkeys(["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color"], ink)
    with pyplot.rc_context(
        {**colours, "ytick.color": ink, "svg.fonttype": "none", "svg.hashsalt": mode, "font.size": 11}
    ):
        figure, panels = pyplot.subplots(1, 2, figsize=(9, 2.2), sharey=True, layout="constrained")
        for panel, (part, title) in zip(panels, PANELS.items(), strict=True):
            case = next(
                c for c in document["cases"] if (c["part"], c["shape"], c["dtype"]) == (part, SHAPE, DTYPE)
            )
            for place, (name, (_, *shades)) in enumerate(CONTESTANTS.items()):
                gigabytes = case["figures"][name]["peak_bytes"] / 1e9
                panel.barh(-place, gigabytes, color=shades[dark], height=0.6)
                shown = f"{gigabytes:.1f} GB" if gigabytes >= 0.1 else f"{1000 * gigabytes:.1f} MB"
                panel.text(gigabytes, -place, f" {shown}", va="center")
            panel.set(title=title, xlabel="GB beside logits and gradient", xlim=(0, 12.5))
            panel.set_yticks(range(0, -len(CONTESTANTS), -1), [label for label, *_ in CONTESTANTS.values()])
            panel.set_facecolor("none")
        path = PICTURES / f"memory-{mode}.svg"
        figure.savefig(path, transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    return path


if __name__ == "__main__":
    sys.exit(main(draw, __doc__))
