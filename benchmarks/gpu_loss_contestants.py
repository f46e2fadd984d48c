"""The contestants of gpu_losses.py. Each line gives a dictionary of the parts of a result by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from gpu_loss_answers import Tensors, in_pieces
from gpu_loss_cases import INVARIANT, WITH_GRADIENT, LossCase

import onsoftmax as ons
from onsoftmax import _core
from onsoftmax.bench.contestants import Contestant
from onsoftmax.bench.gpu_contestants import COPY, loads, quack_cannot

NOT_THERE = "it is not installed, or does not load"
SEQUENCES, ENTROPY_ROWS = 8, 128  # how TRL takes the rows
Result = dict[str, torch.Tensor]
Parts = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def softmax(t: Tensors) -> Result:
    return {"softmax": ons.softmax(t["x"], out=t["y"])}


def logsumexp(t: Tensors) -> Result:
    return {"logsumexp": ons.logsumexp(t["x"])}


def with_grad(t: Tensors, reduction: str, grad_out: torch.Tensor | None = None) -> Result:
    options: Any = {"reduction": reduction, "grad_out": grad_out}
    loss, gradient = ons.cross_entropy_with_grad(t["x"], t["classes"], **options)
    return {"loss": loss, "gradient": gradient}


def logprob(t: Tensors, more: bool = False) -> Result:
    found = ons.logprob(t["x"], t["classes"], entropy=True, lse=more, argmax=more, rank=more)
    names = {
        "logprob": "logprob",
        "entropy": "entropy",
        "lse": "logsumexp",
        "argmax": "argmax",
        "rank": "rank",
    }
    return {part: getattr(found, name) for name, part in names.items() if getattr(found, name) is not None}


def of_both(found: tuple[torch.Tensor, ...]) -> Result:
    return {"logprob": found[0], "entropy": found[1]}


def with_moments(t: Tensors) -> tuple[torch.Tensor, ...]:
    found: Any = _core.logprob(t["x"], t["classes"], -1, True, False, False, False, True, None, None)
    return found[0], found[1], found[5]


def both_forward(t: Tensors) -> Result:
    return of_both(with_moments(t)[:2])


def both_backward(t: Tensors, moments: torch.Tensor) -> Result:
    given = t["of_logprob"], t["of_entropy"], None
    return {"gradient of both": _core.logprob_backward(t["x"], t["classes"], -1, moments, *given, None, None)}


def both_ways(t: Tensors) -> Result:
    return both_backward(t, with_moments(t)[2])


def invariantly(call: Callable[[Tensors], Result], t: Tensors) -> Result:
    before = ons.set_batch_invariant(True)
    try:
        return call(t)
    finally:
        ons.set_batch_invariant(before)


def loss_step(loss: Callable[..., torch.Tensor], leaf: torch.Tensor, classes: torch.Tensor) -> Result:
    """Forward and backward by autograd. The gradient of several losses is that of their sum."""
    found = loss(leaf, classes)
    (gradient,) = torch.autograd.grad(found.sum() if found.dim() else found, leaf)
    return {"loss": found, "gradient": gradient}


def both_step(both: Parts, t: Tensors) -> Result:
    found = both(t["leaf"], t["classes"])
    given = t["of_logprob"].to(found[0].dtype), t["of_entropy"].to(found[1].dtype)
    return {"gradient of both": torch.autograd.grad(found, t["leaf"], given)[0]}


def in_torch(x: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    log_p = torch.log_softmax(x, -1)
    return log_p.gather(-1, classes[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


def in_trl(x: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As in TRL's selective_log_softmax and entropy_from_logits: the log-probabilities of one sequence after
    another, and the entropies of 128 rows after another."""
    chosen = []
    for rows, at in in_pieces(x, classes, -(-len(x) // SEQUENCES)):
        if x.dtype == torch.float32:
            chosen.append(rows.gather(-1, at[:, None])[:, 0] - rows.logsumexp(-1))
        else:
            chosen.append(torch.log_softmax(rows, -1).gather(-1, at[:, None])[:, 0])
    entropies = [in_torch(rows, at)[1] for rows, at in in_pieces(x, classes, ENTROPY_ROWS)]
    return torch.cat(chosen), torch.cat(entropies)


@cache
def quack_loss() -> Any:
    """The module. None if it is not installed or does not load."""
    return loads("quack.cross_entropy")


@cache
def liger_loss() -> Any:
    return loads("liger_kernel.transformers.cross_entropy")


def called(call: Callable[..., Result], *more: Any) -> Any:
    """The names of a line that calls with the tensors."""
    return lambda t: {"call": call, "t": t, "more": more}


def one(name: str, kind: str, call: Callable[..., Result], *more: Any, **options: Any) -> Contestant:
    return Contestant(name, kind, "call(t, *more)", called(call, *more), False, **options)


def ours(case: LossCase) -> Iterator[Contestant]:
    """`auto` is the call that a user writes."""
    yield one("softmax", "yardstick", softmax, bytes=case.passes(2))
    if case.part not in ("loss_and_gradient", "logprob_gradient"):
        yield one("logsumexp", "yardstick", logsumexp, bytes=case.passes(1))
    reduction = case.reduction
    if case.part == "loss_and_gradient":
        yield one("auto", "ours", with_grad, reduction)
        names = lambda t: {"call": with_grad, "t": t, "reduction": reduction}  # noqa: E731
        yield Contestant("grad_out=", "ours", "call(t, reduction, t['y'])", names, False)
        names = lambda t: {"call": with_grad, "t": {**t, "x": t["x"].clone()}, "reduction": reduction}  # noqa: E731
        yield Contestant("in place", "ours", "call(t, reduction, t['x'])", names, False)
        loss = lambda leaf, classes: ons.cross_entropy(leaf, classes, reduction=reduction)  # noqa: E731
        yield one("autograd", "ours", lambda t: loss_step(loss, t["leaf"], t["classes"]))
    elif case.part == "loss":
        loss = lambda t: {"loss": ons.cross_entropy(t["x"], t["classes"], reduction=reduction)}  # noqa: E731
        yield one("auto", "ours", loss)
    elif case.part == "logprob_gradient":
        yield one("auto", "ours", both_ways)
        yield one("forward", "yardstick", both_forward, bytes=case.passes(1))
        names = lambda t: {"call": both_backward, "t": t, "moments": with_moments(t)[2]}  # noqa: E731
        line = "call(t, moments)"
        yield Contestant("backward", "yardstick", line, names, False, bytes=case.passes(2))
    elif case.part == "invariant":
        calls: list[tuple[str, Callable[[Tensors], Result], int]]
        calls = [("loss and gradient", lambda t: with_grad(t, reduction, t["y"]), 2), ("logprob", logprob, 1)]
        for name, call, passes in calls:
            yield one(name, "ours", call, bytes=case.passes(passes))
        for name, call, passes in [("softmax", softmax, 2), ("logsumexp", logsumexp, 1), *calls]:
            same = lambda t, call=call: invariantly(call, t)  # noqa: E731
            yield one(name + INVARIANT, "ours", same, bytes=case.passes(passes))
    else:
        yield one("auto", "ours", logprob)
        yield one("with lse, argmax, rank", "ours", logprob, True)


def peers(case: LossCase, wanted: list[str]) -> Iterator[Contestant]:
    if case.part in ("loss_and_gradient", "loss"):
        yield from peers_of_losses(case, wanted)
    elif case.part != "invariant":
        forms: dict[str, Parts] = {"torch": in_torch, "TRL": in_trl}
        for name, form in forms.items():
            if name.lower() in wanted:
                yield one(name, "peer", both_of(form, case))
        if "compile" in wanted:
            cannot = "compiled for many rows alone" if case.part == "few" else ""
            yield one(
                "torch.compile", "peer", both_of(compiled(in_torch), case), compiles=True, cannot=cannot
            )


def both_of(form: Parts, case: LossCase) -> Callable[[Tensors], Result]:
    if case.part == "logprob_gradient":
        return lambda t: both_step(form, t)
    return lambda t: of_both(form(t["x"], t["classes"]))


def compiled(function: Callable[..., Any]) -> Any:
    torch.compiler.reset()  # each shape gets its own kernel, as for a user of one shape
    return torch.compile(function, dynamic=False, fullgraph=True)


def peers_of_losses(case: LossCase, wanted: list[str]) -> Iterator[Contestant]:
    reduction, stepping = case.reduction, case.part == "loss_and_gradient"

    def in_torch(x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, classes, reduction=reduction)

    def of(loss: Callable[..., torch.Tensor]) -> Callable[[Tensors], Result]:
        if stepping:
            return lambda t: loss_step(loss, t["leaf"], t["classes"])
        return lambda t: {"loss": loss(t["x"], t["classes"])}

    if "torch" in wanted:
        yield one("torch", "peer", of(in_torch))
    if "compile" in wanted:
        once = reduction == "mean" or (case.dtype, case.shape) == WITH_GRADIENT[0]
        cannot = "" if once else "compiled for the mean alone"
        yield one("torch.compile", "peer", of(compiled(in_torch)), compiles=True, cannot=cannot)
    if "quack" in wanted:
        there = quack_loss() is not None
        cannot = quack_cannot(case.N, case.dtype) if there else NOT_THERE
        # gpu_losses.py compiles its kernels ahead
        yield one("QuACK", "peer", of_quack(case) if there else of, cannot=cannot)
    if "liger" in wanted:
        there = liger_loss() is not None
        cannot = ("the host waits for the GPU in each call" if case.in_graph else "") if there else NOT_THERE
        loss = liger_loss().LigerCrossEntropyLoss(reduction=reduction) if there else in_torch
        if stepping:  # its gradient lies where its logits lay
            names = lambda t: {"step": loss_step, "loss": loss, "z": separate(t["x"]), **t}  # noqa: E731
            yield Contestant("Liger", "peer", "step(loss, z, classes)", names, False, cannot=cannot)
        else:
            yield one("Liger", "peer", of(loss), cannot=cannot)


def separate(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_()


def of_quack(case: LossCase) -> Callable[[Tensors], Result]:
    """QuACK's kernel. It has no mean: with "mean" its gradient is that of the losses' sum."""
    forward, mean = quack_loss().cross_entropy_fwd, case.reduction == "mean"

    def alone(t: Tensors) -> Result:
        losses = forward(t["x"], t["classes"])
        return {"loss": losses.mean() if mean else losses}

    def with_gradient(t: Tensors) -> Result:
        losses, gradient = forward(t["x"], t["classes"], return_dx=True)
        of_sum = {"gradient of the sum" if mean else "gradient": gradient}
        return {"loss": losses.mean() if mean else losses, **of_sum}

    return with_gradient if case.part == "loss_and_gradient" else alone


def contestants(case: LossCase, wanted: list[str]) -> Iterator[Contestant]:
    yield Contestant(COPY, "copy", "target.copy_(source)", lambda t: dict(t), True)
    yield from ours(case)
    yield from peers(case, wanted)
