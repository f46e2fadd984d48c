"""One case on a GPU: its tensors, and the exact result of a sample of its rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from .. import Normalizer
from .case import Case

DEVICE = "cuda"
ALLOWED_SHARE = 0.75  # the share of elements that `where` includes
SETS_LIMIT = 100  # the most sets of rotating tensors


def random_values(count: int, dtype: str, spread: float) -> torch.Tensor:
    return torch.randn(count, device=DEVICE).mul_(spread).to(getattr(torch, dtype))


def arrange(memory: torch.Tensor, case: Case, shifted: bool) -> torch.Tensor:
    """The case's array within memory that holds M more elements than the array."""
    if case.extra == "row stride N + 1":
        return memory.view(case.M, case.N + 1)[:, : case.N]
    return memory[shifted : shifted + case.elements].view(case.shape)


def make_tensors(case: Case) -> dict[str, torch.Tensor]:
    """x, y, the tensors that the case's `extra` needs, and for the copy `source` and `target`, which are
    contiguous and aligned."""
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
    if case.backward:
        forward = getattr(torch, case.operation.removesuffix("_backward"))
        tensors["grad"] = random_values(case.elements, case.dtype, 1).view(case.shape)
        tensors["x"] = forward(tensors["x"], case.axis)
    if case.extra.startswith("where"):
        shape = case.shape if case.extra == "where" else (case.N,)
        tensors["mask"] = (torch.rand(shape, device=DEVICE) < ALLOWED_SHARE).expand(case.shape)
    if case.extra == "scale per row":
        tensors["scale"] = torch.rand((case.M, 1), device=DEVICE) * 1.5 + 0.5
    return tensors


def make_sets(case: Case, cache_bytes: int, make: Any = make_tensors) -> list[dict[str, torch.Tensor]]:
    """Sets of tensors. Together they are four times the cache, but they are a hundred at most."""
    count = min(SETS_LIMIT, math.ceil(4 * cache_bytes / case.bytes))
    return [make(case) for _ in range(count)]


class Reference:
    """The exact result of a sample of rows, to the precision of float64, and how far an answer is from it."""

    SAMPLE = 2**22  # elements

    def __init__(self, case: Case, tensors: dict[str, torch.Tensor]) -> None:
        self.case = case
        rows = min(case.M, max(2, self.SAMPLE // case.N))
        self.picked = torch.randperm(case.M, device=tensors["x"].device)[:rows]
        self.picked[0], self.picked[-1] = 0, case.M - 1
        self.expect(tensors)

    def expect(self, tensors: dict[str, torch.Tensor]) -> None:
        case = self.case
        x = self.rows(tensors["x"])
        if "scale" in tensors:  # the product is rounded once
            x = x.float() * tensors["scale"][self.picked]
        x = x.double()
        if case.extra == "scale 0.7":
            product = x.cpu().numpy().astype(np.longdouble) * 0.7
            x = torch.from_numpy(product.astype(np.float32)).to(DEVICE).double()
        if "mask" in tensors:
            x = x.masked_fill(~self.rows(tensors["mask"]), -math.inf)
        if case.backward:
            terms, weight = self.rows(tensors["grad"]).double(), x.exp()
            if case.operation == "softmax_backward":
                terms, weight = terms * x, x
            total = weight * terms.sum(-1, keepdim=True)
            self.expected, self.size = terms - total, torch.maximum(terms.abs(), total.abs())
        else:
            operation = case.operation.removesuffix("_topk").replace("normalizer", "logsumexp")
            self.expected = getattr(torch, operation)(x, -1)
            if case.k:
                self.expected = torch.topk(self.expected, case.k).values
            self.size = self.expected.abs()

    def rows(self, array: torch.Tensor) -> torch.Tensor:
        if array.dim() < len(self.case.shape):  # one value for each row
            return array.flatten()[self.picked]
        if self.case.M == 1:
            return array.reshape(1, -1)
        array = array.movedim(self.case.axis, -1)
        if array.dim() == 2:
            return array[self.picked]
        return array.flatten(0, -2)[self.picked]

    def error_eps(self, result: torch.Tensor | Normalizer) -> float:
        """Largest error of the sample in eps, relative to the value or to the smallest normal number. For a
        logarithm it is relative to max(1, its size), for a gradient to the larger of its two terms. NaN if
        any element is NaN."""
        if isinstance(result, Normalizer):
            result = result.logsumexp()
        limits = torch.finfo(result.dtype)
        least = 1 if self.case.operation in ("log_softmax", "logsumexp", "normalizer") else limits.tiny
        if result.shape != self.case.out_shape or bool(result.sum(dtype=torch.float32).isnan()):
            return math.nan
        error = self.rows(result).double().sub_(self.expected).abs_()
        return float((error / self.size.clamp_min(least)).max()) / float(limits.eps)
