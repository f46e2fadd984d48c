"""The tensors of gpu_losses.py, and the exact results of a sample of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from gpu_loss_cases import SIDES, LossCase

from onsoftmax.bench.case import Case
from onsoftmax.bench.contestants import Contestant
from onsoftmax.bench.gpu_case import Reference, make_sets, random_values

CHUNK = 2**26  # elements that are taken to float64 at a time
Tensors = dict[str, torch.Tensor]


def loss_sets(case: LossCase, cache_bytes: int) -> list[Tensors]:
    """Besides the tensors of every case: `leaf`, the logits with a gradient of their own, `classes`, and the
    gradients that arrive at the log-probabilities and the entropies. A divergence has the logits x and q
    instead, and `leaf` is one of them."""
    sets: list[Tensors] = make_sets(case, cache_bytes)
    for tensors in sets:
        x = tensors["x"]
        if case.part in SIDES:
            tensors["q"] = random_values(case.elements, case.dtype, case.spread).view(case.shape)
            tensors["leaf"] = tensors["q" if case.wrt == "q" else "x"].detach().requires_grad_()
            continue
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


class DivergenceReference(LossReference):
    """The exact value over all rows, and the exact gradient of the sampled rows. Errors are relative to the
    sizes that tests/support/divergence_checks.py defines."""

    def expect(self, tensors: Tensors) -> None:
        sides = tensors["x"], tensors["q"]
        pieces = zip(*(each.split(max(1, CHUNK // self.case.N)) for each in sides), strict=True)
        total = torch.zeros(2, dtype=torch.float64, device=sides[0].device)
        for piece in pieces:
            of_piece = exact_divergence(self.case, *piece)
            total += torch.stack((of_piece.value.sum(), of_piece.value_size.sum()))
        rows = self.case.M if self.case.reduction == "mean" else 1
        value, value_size = total / rows
        sample = exact_divergence(self.case, *(self.rows(each) for each in sides))
        self.parts = {
            "value": (value, value_size),
            "gradient": (sample.gradient / rows, sample.gradient_size / rows),
        }


class Divergence(NamedTuple):
    """The value of each row, the gradient of each value, and the sizes that errors are relative to."""

    value: torch.Tensor
    value_size: torch.Tensor
    gradient: torch.Tensor
    gradient_size: torch.Tensor


def exact_divergence(case: LossCase, x: torch.Tensor, y: torch.Tensor) -> Divergence:
    """KL, or JS with beta = 0.5."""
    log_p, log_q = (each.double().log_softmax(-1) for each in (x, y))
    p, q = log_p.exp(), log_q.exp()
    size = log_p.abs().clamp_min(1) + log_q.abs().clamp_min(1)

    def rows_of(weight: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        return (weight * terms).sum(-1, keepdim=True)

    if case.part == "js_gradient":
        log_r = ((p + q) / 2).log()
        of_p, of_q = rows_of(p, log_p - log_r), rows_of(q, log_q - log_r)
        p_size, q_size = rows_of(p, size), rows_of(q, size)
        gradient, gradient_size = q / 2 * (log_q - log_r - of_q), q / 2 * (size + q_size)
        return Divergence((of_p + of_q) / 2, (p_size + q_size) / 2, gradient, gradient_size)
    value, value_size = rows_of(p, log_p - log_q), rows_of(p, size)
    if case.wrt == "q":
        return Divergence(value, value_size, q - p, q + p)
    return Divergence(value, value_size, p * (log_p - log_q - value), p * (size + value_size))


def reference(case: LossCase, tensors: Tensors) -> LossReference:
    return (DivergenceReference if case.part in SIDES else LossReference)(case, tensors)


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
