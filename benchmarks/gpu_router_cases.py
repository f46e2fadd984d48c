"""The cases of gpu_routers.py."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from onsoftmax.bench.case import Case, size_of

PART = "routers"
DTYPES = ["float32", "bfloat16"]
GROUPED = (4096, 256)  # this cell has the router of DeepSeek-V3
CELLS = [(1, 256, 8), (64, 256, 8), (*GROUPED, 8), (16384, 384, 8), (8192, 896, 16), (4096, 128, 4)]
CELLS += [(65536, 64, 8), (65536, 256, 8), (16384, 128, 8)]


@dataclass(frozen=True)
class RouterCase(Case):
    """Weights are float32, indices int64."""

    out_dtype: str = "float32"
    operation: str = "route"

    @property
    def is_grouped(self) -> bool:
        """Whether scores are sigmoids with a bias, and groups of experts compete."""
        return self.shape == GROUPED

    @property
    def leeway(self) -> int:
        return 4 if self.is_grouped else 2

    @property
    def bytes(self) -> int:
        return self.bytes_with("int64")

    def bytes_with(self, indices: str) -> int:
        """One read of the logits, one write of the results. SIZES has no integers."""
        of_index = 4 if indices == "int32" else 8
        return self.elements * size_of(self.dtype) + self.M * self.k * (4 + of_index)

    @property
    def copy_bytes(self) -> int:
        """The copy moves as many bytes as a call."""
        return self.bytes // 8 * 8

    @property
    def label(self) -> str:
        return f"{self.M}x{self.N}, k={self.k}" + (", DeepSeek-V3" if self.is_grouped else "")


def name_of(cell: tuple[int, int, int]) -> str:
    return f"{cell[0]}x{cell[1]}"


def cases(options: argparse.Namespace) -> Iterator[RouterCase]:
    for dtype in options.dtypes:
        for rows, N, k in CELLS:
            if name_of((rows, N, k)) in options.cells:
                yield RouterCase(PART, (rows, N), dtype, k=k)
