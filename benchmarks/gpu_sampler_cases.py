"""The cases of gpu_sampler.py."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onsoftmax.bench.case import Case, size_of

PART = "sampler"
DTYPES = ["float32", "bfloat16"]
CELLS = [(1, 151936), (16, 128256), (128, 131072), (512, 131072), (64, 50257), (256, 32000)]
TEMPERATURES = ["1", "0.7"]
K = 50
TOP_K_TOP_P = {"top_k": K, "top_p": 0.9}
# The filters of a setting, as arguments of sample.
SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "top_k": {"top_k": K},
    "top_k_top_p": TOP_K_TOP_P,
    "joint": {**TOP_K_TOP_P, "filter_apply_order": "joint"},
    "all": {**TOP_K_TOP_P, "min_p": 0.01},
    "top_p": {"top_p": 0.9},
    "min_p": {"min_p": 0.02},
    "wide": {"top_p": 0.999},
}
WIDE_SPREAD = 0.3  # nearly uniform logits. The nucleus has most of the row

# Most logits are normal numbers times SPREAD. As in a language model, HEAD tokens of each row stand above the
# others. Let x be the logit of the first of these tokens. Then the token of rank r has the logit
# x - POWER ln(r). So the probabilities of these tokens follow Zipf's law. They add up to HEAD_SHARE at
# temperature 1.
SPREAD = 2
HEAD, POWER, HEAD_SHARE = 40, 1.5, 0.95


@dataclass(frozen=True)
class SamplerCase(Case):
    """`out_dtype` is the type that errors of the yardstick's probabilities are counted in."""

    out_dtype: str = "float32"
    operation: str = "sample"
    setting: str = "none"
    temperature: float = 1.0

    @property
    def filters(self) -> dict[str, Any]:
        return SETTINGS[self.setting]

    @property
    def in_graph(self) -> bool:
        return True

    @property
    def bytes(self) -> int:
        return self.bytes_with(8)

    def bytes_with(self, of_index: int) -> int:
        """One read of the logits, one write of the tokens."""
        return self.elements * size_of(self.dtype) + self.M * of_index

    @property
    def copy_bytes(self) -> int:
        """The copy moves as many bytes as a call."""
        return self.bytes // 8 * 8

    @property
    def label(self) -> str:
        cold = f", temperature {self.temperature:g}" if self.temperature != 1 else ""
        return f"{self.M}x{self.N}, {self.setting}{cold}"

    @property
    def head(self) -> list[float]:
        """The logits of the tokens that stand above the others."""
        if self.spread == WIDE_SPREAD:
            return []
        apart = [-POWER * math.log(rank) for rank in range(1, HEAD + 1)]
        mass = math.log(self.N) + self.spread**2 / 2  # of the normal logits, as a logarithm
        first = mass + math.log(HEAD_SHARE / (1 - HEAD_SHARE)) - math.log(sum(map(math.exp, apart)))
        return [first + each for each in apart]


def name_of(cell: tuple[int, int]) -> str:
    return f"{cell[0]}x{cell[1]}"


def cases(options: argparse.Namespace) -> Iterator[SamplerCase]:
    for dtype in options.dtypes:
        for cell in CELLS:
            for setting in options.settings if name_of(cell) in options.cells else []:
                spread = WIDE_SPREAD if setting == "wide" else SPREAD
                for temperature in map(float, options.temperatures):
                    terms: Any = {"spread": spread, "setting": setting, "temperature": temperature}
                    yield SamplerCase(PART, cell, dtype, **terms)
