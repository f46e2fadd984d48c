"""Statistics, the JSON document and the tables of bench_cuda.py, gpu_losses.py, gpu_routers.py and
gpu_sampler.py. Needs no GPU."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onsoftmax.bench import document as documents
from onsoftmax.bench.figures import figures_of, rounded

__all__ = ["figures_of", "rounded"]

TITLES = {
    "host": "host time of a call on a (4, 256) {dtype} array: microseconds",
    "accuracy": "{dtype}, rows of N, scale of the logits: largest (mean) error in eps",
    "other": "other axes, where, scale, types, alignments, {dtype}: x copy of the bytes moved",
    "small": "small work in a CUDA graph, {dtype}: microseconds a call",
    "chart": "2048 rows of N, {dtype}: GB/s",
    "operations": "{elements} elements in rows of N, {dtype}: x copy of the bytes moved",
    "gradients": "{elements} elements in rows of N, {dtype}: x copy of the bytes moved",
    "normalizer": "{elements} elements in rows of N, {dtype}: x copy of the bytes moved",
    "topk": "the k largest of each row, {dtype}: microseconds a call",
    "bands": "{elements} elements in rows of N, {dtype}: x copy",
    "routers": "routers of experts in a CUDA graph, {dtype}: microseconds a call",  # of gpu_routers.py
    "sampler": "samplers in a CUDA graph, {dtype}: microseconds a call",  # of gpu_sampler.py
    # of gpu_losses.py
    "loss_and_gradient": "cross-entropy and its gradient, {dtype}: x copy of the bytes moved",
    "loss": "cross-entropy alone, {dtype}: x copy of the bytes moved",
    "logprob": "log-probability and entropy, {dtype}: x copy of the bytes moved",
    "logprob_gradient": "log-probability and entropy with gradient, {dtype}: x copy of the bytes moved",
    "few": "log-probability and entropy of few rows in a CUDA graph, {dtype}: microseconds a call",
    "kl": "Kullback-Leibler divergence alone, {dtype}: x copy of the bytes moved",
    "kl_gradient": "Kullback-Leibler divergence and its gradient, {dtype}: x copy of the bytes moved",
    "js_gradient": "Jensen-Shannon divergence and its gradient, {dtype}: x copy of the bytes moved",
}
UNITS = {"chart": "GB/s", "small": "us", "topk": "us", "few": "us", "routers": "us", "sampler": "us"}
ABOUT = ["date", "gpu", "driver", "cuda", "cache_bytes", "versions", "options", "seconds", "kinds", "cases"]
CASE = ["part", "label", "shape", "dtype", "N", "figures"]
TOLD_ONCE = ("host", "accuracy")  # only the summary has these parts, with all of our methods
NOTHING = "\N{EN DASH}"


def check_document(document: dict[str, Any]) -> None:
    """Raises ValueError unless bench_cuda.py writes such a document."""
    missing = [key for key in ABOUT if key not in document]
    for case in document.get("cases", []):
        missing += [f"{key} of {case.get('label')}" for key in CASE if key not in case]
        for name, figure in case.get("figures", {}).items():
            if not {"ms", "mean", "cannot", "wrong", "failed"} & figure.keys():
                missing.append(f"figures of {name}, {case.get('label')}")
            if name not in document.get("kinds", {}):
                missing.append(f"kind of {name}")
    if missing:
        raise ValueError(f"the document lacks {', '.join(missing[:5])}")


def write(document: dict[str, Any], path: Path) -> None:
    check_document(document)
    documents.write(document, path)


def fastest(case: dict[str, Any], names: list[str]) -> str:
    """The fastest of the contestants that were timed. Empty if none was."""
    timed = {name: case["figures"][name]["ms"] for name in names if "ms" in case["figures"].get(name, {})}
    return min(timed, key=timed.__getitem__, default="")


def cell(figure: dict[str, Any] | None, part: str) -> str:
    if figure and ("wrong" in figure or "failed" in figure):
        return "wrong" if "wrong" in figure else "failed"
    if part == "accuracy":
        if not figure or "mean" not in figure:
            return NOTHING
        return f"{float(figure['error']):.2f} ({float(figure['mean']):.2f})"
    if not figure or "ms" not in figure:
        return NOTHING
    if part == "chart":
        return f"{figure['gbps']:.0f}"
    if part == "host" or UNITS.get(part) == "us":
        return f"{figure['ms'] * 1e3:.2f}"
    share = figure.get("x_copy", math.nan)
    return f"{share:.2f}" if not share < 0.1 else f"{share:.3f}"


def markdown(rows: list[list[str]]) -> str:
    """A Markdown table. The first row is the head. Only the first column is aligned left."""
    align = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], align, *rows[1:]])


def row_name(case: dict[str, Any]) -> str:
    if case["part"] == "accuracy":
        return f"{case['N']}, {case['spread']}"
    return str(case["N"]) if case["part"] in ("bands", "chart") else str(case["label"])


def by_method(cases: list[dict[str, Any]], ours: list[str], copy: str) -> str:
    part = cases[0]["part"]
    unit = part if part in UNITS else "chart"
    rows = [[head(part), f"{copy}, {UNITS[unit]}", *ours]]
    for case in cases:
        figures = case["figures"]
        cells = [cell(figures.get(copy), unit), *(cell(figures.get(name), part) for name in ours)]
        rows.append([row_name(case), *cells])
    return markdown(rows)


def beside_peers(cases: list[dict[str, Any]], ours: list[str], peers: list[str], copy: str) -> str:
    part = cases[0]["part"]
    if part in TOLD_ONCE:
        columns = ours + peers
        body = [[row_name(c), *(cell(c["figures"].get(name), part) for name in columns)] for c in cases]
        return markdown([[head(part), *columns], *body])
    unit = part if part in UNITS else "chart"
    methods = [name for name in ours if name != "auto"]
    rows = [[head(part), f"{copy}, {UNITS[unit]}", "auto", "best of ours", *peers, "auto x best peer"]]
    for case in cases:
        figures = case["figures"]
        mine, best, rival = figures.get("auto", {}).get("ms"), fastest(case, methods), fastest(case, peers)
        rows.append(
            [
                row_name(case),
                cell(figures.get(copy), unit),
                cell(figures.get("auto"), part),
                f"{cell(figures[best], part)} {best}" if best else NOTHING,
                *(cell(figures.get(name), part) for name in peers),
                f"{figures[rival]['ms'] / mine:.2f} {rival}" if rival and mine else NOTHING,
            ]
        )
    return markdown(rows)


def head(part: str) -> str:
    return {"bands": "N", "chart": "N", "accuracy": "N, scale", "host": ""}.get(part, "shape")


def tables(document: dict[str, Any]) -> Iterator[str]:
    """First the tables of our methods, beside our operations that are yardsticks. Last the summary: auto, the
    best of our methods, and the peers."""
    kinds = document["kinds"]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for part in TITLES:
        for case in document["cases"]:
            if case["part"] == part:
                groups.setdefault((part, case["dtype"]), []).append(case)
    for summary in (False, True):
        yield "\n# beside the peers\n" if summary else "\n# ours by method\n"
        for (part, dtype), cases in groups.items():
            present = [name for name in kinds if any(name in case["figures"] for case in cases)]
            yardsticks = [name for name in present if kinds[name] == "yardstick"]
            ours = [name for name in present if kinds[name] == "ours"]
            peers = [name for name in present if kinds[name] == "peer"]
            copy = next((name for name in present if kinds[name] == "copy"), "copy")
            title = TITLES[part].format(dtype=dtype, elements=math.prod(cases[0]["shape"]))
            if summary:
                yield f"## {title}\n\n{beside_peers(cases, ours, peers, copy)}\n"
            elif part not in TOLD_ONCE:
                yield f"## {title}\n\n{by_method(cases, yardsticks + ours, copy)}\n"


def cliffs(document: dict[str, Any], name: str = "auto", fewest: int = 20, deepest: int = 5) -> Iterator[str]:
    """Where a contestant falls farthest below its neighbours: the median of the two lengths on either side.
    Only for types that were measured at `fewest` lengths or more."""
    for dtype in dict.fromkeys(case["dtype"] for case in document["cases"]):
        found = [
            (case["N"], case["figures"].get(name, {}).get("x_copy"))
            for case in document["cases"]
            if case["part"] == "bands" and case["dtype"] == dtype
        ]
        points = sorted((N, share) for N, share in found if share is not None)
        falls = []
        for i in range(2, len(points) - 2):
            around = statistics.median(points[j][1] for j in (i - 2, i - 1, i + 1, i + 2))
            falls.append((points[i][1] / around, *points[i]))
        if len(points) >= fewest:
            worst = [f"{N}: {share:.2f} ({fall:.2f})" for fall, N, share in sorted(falls)[:deepest]]
            yield f"{name}, {dtype}, x copy (share of the lengths around), the least: {', '.join(worst)}"


def troubles(document: dict[str, Any]) -> list[str]:
    """Figures of ours that are wrong or failed. naive is left out because it overflows by design."""
    return [
        f"{name}, {case['label']} {case['dtype']}: {figure.get('failed') or figure['wrong']}"
        for case in document["cases"]
        for name, figure in case["figures"].items()
        if document["kinds"].get(name) == "ours" and name != "naive" and {"wrong", "failed"} & figure.keys()
    ]


class Clock:
    """Shares out the time among the parts. Time that a part leaves goes to later parts."""

    HURRY = 0.75  # after this share of a part's time, nothing is compiled any more

    def __init__(self, seconds: float, weights: dict[str, float], now: float) -> None:
        self.end, self.weights = now + seconds, dict(weights)
        self.begun, self.share = now, seconds

    def begin(self, part: str, now: float) -> None:
        self.begun = now
        self.share = max(0.0, self.end - now) * self.weights[part] / sum(self.weights.values())
        self.weights.pop(part)

    def hurry(self, now: float) -> bool:
        return now > self.begun + self.HURRY * self.share

    def over(self, now: float) -> bool:
        return now > self.begun + self.share
