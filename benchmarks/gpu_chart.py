"""Draws the charts of bench_cuda.py from its JSON document. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onsoftmax.bench.chart import plot_line


def draw(document: dict[str, Any], stem: Path) -> list[Path]:
    """Writes <stem>-bands.png (x copy by N) and <stem>-chart.png (GB/s of 2048 rows). A panel is a type."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    written = []
    for part, key, label in (("bands", "x_copy", "x copy"), ("chart", "gbps", "GB/s")):
        cases = [case for case in document["cases"] if case["part"] == part]
        dtypes = list(dict.fromkeys(case["dtype"] for case in cases))
        if not dtypes:
            continue
        figure, axes = pyplot.subplots(
            len(dtypes), 2, figsize=(15, 4.5 * len(dtypes)), squeeze=False, sharey="row"
        )
        for row, dtype in zip(axes, dtypes, strict=True):
            here = [case for case in cases if case["dtype"] == dtype]
            for panel, kind, title in zip(row, ("peer", "ours"), ("beside peers", "by method"), strict=True):
                panel.set(title=f"{dtype}, {title}", xlabel="N", ylabel=label)
                panel.set_xscale("log", base=2)
                panel.grid(alpha=0.3)
                for name, whose in document["kinds"].items():
                    if whose == kind or name == "auto" or (whose == "copy" and key == "gbps"):
                        plot_line(panel, name, here, key)
                panel.set_ylim(bottom=0)
                panel.legend(fontsize="x-small", ncols=2)
        figure.suptitle(f"softmax on {document['gpu']}, {document['date']}: {label}")
        figure.tight_layout()
        path = stem.with_name(f"{stem.name}-{part}.png")
        figure.savefig(path, dpi=100)
        pyplot.close(figure)
        written.append(path)
    return written
