"""The tensors of gpu_losses.py, and the exact results of a sample of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from gpu_loss_cases import LossCase

from onsoftmax.bench.case import Case
from onsoftmax.bench.contestants import Contestant
from onsoftmax.bench.gpu_case import Reference, make_sets

CHUNK = 2**26  # elements that are taken to float64 at a time
Tensors = dict[str, torch.Tensor]


def loss_sets(case: LossCase, cache_bytes: int) -> list[Tensors]:
    """Besides the tensors of every case: `leaf`, the logits with a gradient of their own, `classes`, and the
    gradients that arrive at the log-probabilities and the entropies."""
    sets: list[Tensors] = make_sets(case, cache_bytes)
    for tensors in sets:
        x = tensors["x"]
        tensors["leaf"] = x.detach().requires_grad_()
        tensors["classes"] = torch.randint(0, case.N, (case.M,), device=x.device)
        for name in ("of_logprob", "of_entropy"):
            tensors[name] = torch.randn(case.M, device=x.device)
    return sets


class LossReference(Reference):
    """The exact parts of a result, each with the sizes that errors are relative to. A result is a dictionary
    of parts by name."""

    parts: dict[str, tuple[torch.Tensor, torch.Tensor | int]]

    def expect(self, tensors: Tensors) -> None:
        x, classes = self.rows(tensors["x"]).double(), self.rows(tensors["classes"])
        m, lse = x.amax(-1), x.logsumexp(-1)
        p, apart = (x - lse[:, None]).exp(), x - m[:, None]
        chosen = x.gather(-1, classes[:, None])
        mean = (p * apart).sum(-1)
        entropy = lse - m - mean
        hot = torch.zeros_like(x).scatter_(-1, classes[:, None], 1)
        of_sum = (p - hot, torch.maximum(p, hot))
        loss = lse - chosen[:, 0]
        rows = 1
        if self.case.part in ("loss_and_gradient", "loss") and getattr(self.case, "reduction", "") == "mean":
            loss, rows = exact_mean(tensors["x"], tensors["classes"]), self.case.M
        of_logprob, of_entropy = (self.rows(tensors[name])[:, None] for name in ("of_logprob", "of_entropy"))
        around = apart - mean[:, None]
        self.parts = {
            "softmax": (p, p),
            "logsumexp": (lse, lse.abs().clamp_min(1)),
            "loss": (loss, loss.abs().clamp_min(1)),
            "gradient of the sum": of_sum,
            "gradient": (of_sum[0] / rows, of_sum[1] / rows),
            "logprob": (-(lse - chosen[:, 0]), (lse - chosen[:, 0]).abs().clamp_min(1)),
            "entropy": (entropy, entropy.clamp_min(1)),
            "argmax": (x.argmax(-1), 1),
            "rank": ((x > chosen).sum(-1), 1),
            "gradient of both": (
                of_logprob * (hot - p) - of_entropy * p * around,
                of_logprob.abs() * (hot + p) + of_entropy.abs() * p * (apart.abs() + mean.abs()[:, None]),
            ),
        }

    def error_eps(self, result: Any) -> float:
        """Largest error of any part, in eps of the logits' type. NaN if any element is NaN."""
        limits = torch.finfo(getattr(torch, self.case.dtype))
        largest = 0.0
        for name, array in result.items():
            expected, size = self.parts[name]
            found = self.rows(array.detach()) if expected.dim() else array.detach()
            if found.shape != expected.shape or bool(array.detach().sum(dtype=torch.float32).isnan()):
                return math.nan
            error = (found.double() - expected).abs_() / torch.as_tensor(size).clamp_min(limits.tiny)
            largest = max(largest, float(error.max()) / limits.eps)
        return largest


def in_pieces(x: torch.Tensor, classes: torch.Tensor, rows: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """So many rows after another, with their classes."""
    return zip(x.split(rows), classes.split(rows), strict=True)


def exact_mean(x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """The mean loss of all rows."""
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    for rows, of_rows in zip(
        *(each.split(max(1, CHUNK // x.shape[1])) for each in (x, classes)), strict=True
    ):
        wide = rows.double()
        total += (wide.logsumexp(-1) - wide.gather(-1, of_rows[:, None])[:, 0]).sum()
    return total / len(x)


def peak_bytes(contestant: Contestant, tensors: Tensors, case: Case) -> int:
    """The most memory of torch's that a call takes, besides the logits and the gradient."""
    cuda = torch.cuda
    call = eval(f"lambda: {contestant.line}", contestant.names(tensors))
    call()
    cuda.synchronize()
    before = cuda.memory_allocated()
    cuda.reset_peak_memory_stats()
    result = call()
    cuda.synchronize()
    held, most = cuda.memory_allocated() - before, cuda.max_memory_allocated() - before
    del result
    gradient = case.copy_bytes // 2
    return most - gradient if held >= gradient else most
