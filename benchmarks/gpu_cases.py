"""What bench_cuda.py measures: the cases of each part, and the tensors of a case."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

DEVICE = "cuda"
TOTAL, QUICK_TOTAL = 2**28, 2**26
POWERS = [128, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288]
HUGE = [2**20, 2**22, 2**24, 2**28]
ODD = [1000, 4097, 32000, 50257, 128256, 151936, 262145]  # odd, and of vocabularies
LENGTHS = sorted(POWERS + HUGE + ODD)
QUICK_LENGTHS = [256, 1000, 1024, 4096, 32768, 50257, 131072, 2**20]
THREE_TYPES = ["float32", "bfloat16", "float16"]
CHART_ROWS = 2048
CHART_LENGTHS = [2**i for i in range(10, 19)]
SMALL = [(1, 1024), (64, 1024), (1, 32000), (1, 128256), (8, 128256), (64, 128256), (256, 128256)]
SMALL += [(1, 2**20), (1, 2**24), (4096, 1024), (2048, 4096)]
ACCURACY = [(1024, 3), (4096, 10), (65536, 10), (2**20, 3)]  # N, and the scale of the logits
OTHER_AXES = [((4096, 4096), 0), ((64, 1000, 512), 1)]
OTHER_ROWS, QUICK_OTHER_ROWS = (2**15, 4096), (2**12, 4096)  # M and N, and with M / 16 and 16 N
SPREAD = 3  # of the logits, elsewhere
ALLOWED_SHARE = 0.75  # of the elements that `where` lets in
GRAPH_BYTES = 2**28  # with less to move, calls are timed inside a CUDA graph
SETS_LIMIT = 100  # of rotating tensors


@dataclass(frozen=True)
class Case:
    part: str
    shape: tuple[int, ...]
    dtype: str
    axis: int = -1
    out_dtype: str = ""
    """Of the result; that of the input unless said."""
    extra: str = ""
    """One of EXTRAS."""
    spread: float = SPREAD

    @property
    def N(self) -> int:
        return self.shape[self.axis]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def M(self) -> int:
        return self.elements // self.N

    @property
    def label(self) -> str:
        axis = f" axis {self.axis}" if self.axis != -1 else ""
        out = f" to {self.out_dtype}" if self.out_dtype else ""
        return "x".join(map(str, self.shape)) + axis + out + (f", {self.extra}" if self.extra else "")

    @property
    def copy_bytes(self) -> int:
        """What the copy moves that a case is measured by."""
        return 2 * self.elements * size_of(self.dtype)

    @property
    def bytes(self) -> int:
        """What a call must move: each input once, the result once."""
        read = self.elements * (size_of(self.dtype) + (self.extra == "where"))
        written = self.elements * size_of(self.out_dtype or self.dtype)
        return read + written + (4 * self.M if self.extra == "scale per row" else 0)

    @property
    def in_graph(self) -> bool:
        return self.bytes < GRAPH_BYTES

    @property
    def plain(self) -> bool:
        """Rows of a contiguous matrix: what every peer can do."""
        return len(self.shape) == 2 and self.axis == -1 and not self.extra


EXTRAS = ["", "where", "scale per row", "input off by one", "both off by one", "row stride N + 1"]


def size_of(dtype: str) -> int:
    return getattr(torch, dtype).itemsize


def cases(part: str, options: Any) -> Iterator[Case]:
    """Of one part; `options` are bench_cuda.py's."""
    if part == "bands":
        for dtype in options.dtypes or (options.quick and ["float32", "bfloat16"]) or THREE_TYPES:
            for N in options.lengths or (QUICK_LENGTHS if options.quick else LENGTHS):
                yield Case(part, (max(1, options.total // N), N), dtype)
    for dtype in options.dtypes or (THREE_TYPES if part == "accuracy" else ["float32", "bfloat16"]):
        if part == "chart":
            for N in CHART_LENGTHS[:: 3 if options.quick else 1]:
                yield Case(part, (CHART_ROWS, N), dtype)
        elif part == "small":
            for shape in SMALL:
                yield Case(part, shape, dtype)
        elif part == "accuracy":
            for N, spread in ACCURACY:
                yield Case(part, (max(1, 2**20 // N), N), dtype, spread=spread)
        elif part == "other":
            yield from other_cases(dtype, options.quick)


def other_cases(dtype: str, quick: bool) -> Iterator[Case]:
    for shape, axis in OTHER_AXES:
        yield Case("other", shape, dtype, axis=axis)
    rows, N = QUICK_OTHER_ROWS if quick else OTHER_ROWS
    for extra in EXTRAS[1:]:
        yield Case("other", (rows, N), dtype, extra=extra)
    for extra in EXTRAS[3:]:
        yield Case("other", (rows // 16, 16 * N), dtype, extra=extra)
    if dtype in ("bfloat16", "float16"):
        yield Case("other", (rows, N), dtype, out_dtype="float32")


def random_values(count: int, dtype: str, spread: float) -> torch.Tensor:
    return torch.randn(count, device=DEVICE).mul_(spread).to(getattr(torch, dtype))


def arrange(memory: torch.Tensor, case: Case, shifted: bool) -> torch.Tensor:
    """The case's array within memory that holds M more elements than it."""
    if case.extra == "row stride N + 1":
        return memory.view(case.M, case.N + 1)[:, : case.N]
    return memory[shifted : shifted + case.elements].view(case.shape)


def make_tensors(case: Case) -> dict[str, torch.Tensor]:
    """x, y, what the case's `extra` needs, and `source` and `target`: contiguous, aligned, for the copy."""
    count = case.elements + (case.M if "off by one" in case.extra or "stride" in case.extra else 0)
    values = random_values(count, case.dtype, case.spread)
    results = torch.empty(count, device=DEVICE, dtype=getattr(torch, case.out_dtype or case.dtype))
    tensors = {
        "x": arrange(values, case, "off by one" in case.extra),
        "y": arrange(results, case, case.extra == "both off by one"),
        "source": values[: case.elements].view(case.shape),
        "target": results[: case.elements].view(case.shape),
    }
    if case.out_dtype:
        tensors["target"] = torch.empty_like(tensors["source"])
    if case.extra == "where":
        tensors["mask"] = torch.rand(case.shape, device=DEVICE) < ALLOWED_SHARE
    if case.extra == "scale per row":
        tensors["scale"] = torch.rand((case.M, 1), device=DEVICE) * 1.5 + 0.5
    return tensors


def make_sets(case: Case, cache_bytes: int) -> list[dict[str, torch.Tensor]]:
    """So many that together they are four times the cache, and a hundred at most."""
    count = min(SETS_LIMIT, math.ceil(4 * cache_bytes / case.bytes))
    return [make_tensors(case) for _ in range(count)]


class Reference:
    """The exact result of a sample of rows, to the precision of float64, and how far an answer is from it."""

    SAMPLE = 2**22  # elements

    def __init__(self, case: Case, tensors: dict[str, torch.Tensor]) -> None:
        self.case = case
        rows = min(case.M, max(2, self.SAMPLE // case.N))
        picked = torch.randperm(case.M, device=tensors["x"].device)[:rows]
        picked[0], picked[-1] = 0, case.M - 1
        self.picked = picked
        x = self.rows(tensors["x"])
        if "scale" in tensors:  # the product is rounded once
            x = x.float() * tensors["scale"][picked]
        x = x.double()
        if "mask" in tensors:
            x = x.masked_fill(~self.rows(tensors["mask"]), -math.inf)
        x = torch.exp(x - x.amax(-1, keepdim=True))
        self.expected = x / x.sum(-1, keepdim=True)

    def rows(self, array: torch.Tensor) -> torch.Tensor:
        if self.case.M == 1:
            return array.reshape(1, self.case.N)
        array = array.movedim(self.case.axis, -1)
        if array.dim() == 2:
            return array[self.picked]
        return array.flatten(0, -2)[self.picked]

    def error_eps(self, result: torch.Tensor) -> float:
        """Largest error of the sample, relative to the value or to the smallest normal number, in eps; NaN if
        an element anywhere is NaN."""
        limits = torch.finfo(result.dtype)
        if result.shape != self.case.shape or bool(result.sum(dtype=torch.float32).isnan()):
            return math.nan
        error = self.rows(result).double().sub_(self.expected).abs_()
        return float((error / self.expected.clamp_min(limits.tiny)).max()) / limits.eps
