"""The contestants of the divergences in gpu_losses.py. Each line gives a dictionary of the parts of a result
by name. The logits of p are x."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from gpu_loss_answers import Tensors
from gpu_loss_cases import LossCase
from gpu_loss_contestants import NOT_THERE, Result, compiled, one

import onsoftmax as ons
from onsoftmax.bench.contestants import Contestant
from onsoftmax.bench.gpu_contestants import COPY, loads

BETA = 0.5
Value = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def kl_in_torch(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return F.kl_div(q.log_softmax(-1), x.log_softmax(-1), log_target=True, reduction="sum")


def js_in_torch(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    log_p, log_q = x.log_softmax(-1), q.log_softmax(-1)
    log_r = torch.logaddexp(log_p, log_q) - math.log(2)
    of_p, of_q = (F.kl_div(log_r, each, log_target=True, reduction="batchmean") for each in (log_p, log_q))
    return BETA * of_p + (1 - BETA) * of_q


@cache
def liger_kl() -> Any:
    """The module. None if it is not installed or does not load."""
    return loads("liger_kernel.transformers.kl_div")


@cache
def liger_js() -> Any:
    return loads("liger_kernel.transformers.jsd")


def in_liger(case: LossCase) -> Value | None:
    """Liger's function, which takes log-probabilities. None if Liger is not there."""
    if case.part == "js_gradient":
        value = liger_js() and liger_js().LigerJSD(beta=BETA)
    else:
        value = liger_kl() and liger_kl().LigerKLDIVLoss(reduction=case.reduction, log_target=True)
    return value and (lambda x, q: value(q.log_softmax(-1), x.log_softmax(-1)))


def called(value: Value, case: LossCase) -> Callable[[Tensors], Result]:
    """The value, and its gradient by autograd if the case has one."""

    def alone(t: Tensors) -> Result:
        return {"value": value(t["x"], t["q"])}

    def step(t: Tensors) -> Result:
        found = value(t["x"], t["leaf"]) if case.wrt == "q" else value(t["leaf"], t["q"])
        return {"value": found, "gradient": torch.autograd.grad(found, t["leaf"])[0]}

    return step if case.wrt else alone


def ours(case: LossCase) -> Iterator[Contestant]:
    """`auto` is the call that a user writes."""
    name = "js_divergence" if case.part == "js_gradient" else "kl_divergence"
    value, both = getattr(ons, name), getattr(ons, f"{name}_with_grad")

    def by_value(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = value(x, q, reduction=case.reduction)
        return found

    def with_grad(t: Tensors, grad_out: torch.Tensor | None = None) -> Result:
        found, gradient = both(t["x"], t["q"], wrt=case.wrt, reduction=case.reduction, grad_out=grad_out)
        return {"value": found, "gradient": gradient}

    if not case.wrt:
        yield one("auto", "ours", called(by_value, case))
        return
    yield one("auto", "ours", with_grad)
    yield one("grad_out=", "ours", lambda t: with_grad(t, t["y"]))
    yield one("autograd", "ours", called(by_value, case))


def peers(case: LossCase, wanted: list[str]) -> Iterator[Contestant]:
    in_torch = js_in_torch if case.part == "js_gradient" else kl_in_torch
    if "torch" in wanted:
        yield one("torch", "peer", called(in_torch, case))
    if "compile" in wanted:
        yield one("torch.compile", "peer", called(compiled(in_torch), case), compiles=True)
    if "liger" in wanted:
        value = in_liger(case)
        cannot = "" if value else NOT_THERE
        if case.wrt == "p":
            cannot = "its gradient is of q alone"
        yield one("Liger", "peer", called(value or in_torch, case), cannot=cannot)


def divergences(case: LossCase, wanted: list[str]) -> Iterator[Contestant]:
    yield Contestant(COPY, "copy", "target.copy_(source)", lambda t: dict(t), True)
    yield from ours(case)
    yield from peers(case, wanted)
