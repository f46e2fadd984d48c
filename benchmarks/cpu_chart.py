"""Draws a run of bench_cpu.py, time against N, from its JSON document. Needs matplotlib.

python benchmarks/cpu_chart.py benchmarks/results/cpu-avx512-2026-11-23-16-cores.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

IN_MEMORY = 2**24  # with more bytes than this, input and output do not fit the caches

LINES = {
    "auto out=": {"color": "black", "linewidth": 2.5, "zorder": 3},
    "auto": {"color": "black", "linestyle": "--", "zorder": 3},
    "torch out=": {},
    "torch": {"linestyle": "--"},
    "ONNX Runtime out=": {},
    "SciPy": {},
    "copy: np.copyto": {"color": "grey", "linestyle": ":"},
}


def row_cases(document: dict[str, Any], threads: int) -> list[tuple[int, dict[str, Any]]]:
    """(N, case) of the shapes M x N that do not fit the caches, shortest rows first."""
    rows = [
        (int(case["shape"].split("x")[-1]), case)
        for case in document["cases"]
        if case["threads"] == threads and "@" not in case["shape"] and case["bytes"] > IN_MEMORY
    ]
    return sorted(rows, key=lambda item: item[0])


def draw(document: dict[str, Any], path: Path) -> None:
    """Nanoseconds per element against N, with a panel for each number of threads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    counts = sorted({case["threads"] for case in document["cases"]})
    figure, axes = pyplot.subplots(1, len(counts), figsize=(7.5 * len(counts), 5), squeeze=False, sharey=True)
    for panel, threads in zip(axes[0], counts, strict=True):
        cases = row_cases(document, threads)
        size = {"float64": 8, "float32": 4}.get(document["dtype"], 2)
        for name, look in LINES.items():
            points = [
                (N, 1e9 * seconds * 2 * size / case["bytes"])
                for N, case in cases
                if (seconds := case["figures"].get(name, {}).get("seconds"))
            ]
            if points:
                panel.plot(*zip(*points, strict=True), marker=".", label=name, **look)
        panel.set(title=f"{threads} thread{'s' * (threads > 1)}", xlabel="N", ylabel="ns an element")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.grid(alpha=0.3, which="both")
        panel.legend(fontsize="small")
    figure.suptitle(f"{document['dtype']}, {document['processor']}, {document['isa']}, {document['date']}")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", metavar="FILE")
    for file in parser.parse_args().results:
        draw(json.loads(file.read_text()), file.with_suffix(".png"))
        print(f"written: {file.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
