"""The arguments of sample, for one row."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .._sample_arguments import DEFAULTS, PARAMETERS, check_names, number_of

_GREEDY = 1e-30  # a temperature below this takes the first token


@dataclass(frozen=True)
class Sampling:
    """The arguments of `sample`, one number each."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    offset: int
    filter_apply_order: str

    @property
    def is_greedy(self) -> bool:
        return self.temperature < _GREEDY

    @property
    def has_scale(self) -> bool:
        return not self.is_greedy and self.temperature != 1

    def scale(self, compute: np.dtype[Any]) -> float:
        """The number by which the logits are multiplied, in the type of the arithmetic."""
        least = float(np.finfo(compute).smallest_subnormal)
        return float(compute.type(max(1 / self.temperature, least))) if self.has_scale else 1.0

    def changed(self) -> dict[str, Any]:
        """The arguments that have other values than the defaults. The seed has no default."""
        defaults = {**DEFAULTS, "filter_apply_order": "top_k_first", "seed": self.seed}
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}


def take_sampling(filter_apply_order: str, **numbers: Any) -> Sampling:
    """The arguments by sample's own rules."""
    check_names(filter_apply_order, "auto")
    taken = {name: number_of(name, numbers[name]) for name in PARAMETERS}
    for name, value in taken.items():
        if value is None:
            raise TypeError(f"{name} is {numbers[name]!r}: expected a number, since explain takes one row")
    return Sampling(**taken, filter_apply_order=filter_apply_order)
