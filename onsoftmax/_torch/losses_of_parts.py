"""cross_entropy and logprob of rows that are cut over the ranks of a group, for onsoftmax.distributed.

For each row, a rank sends the state of its part and the chosen logits that are in its part. It also sends a
sum for label_smoothing, or a mean and an index for entropy and argmax. After one all_gather, each rank
computes the results of the whole rows. The backward step exchanges nothing. It reads this rank's part of the
logits once and writes its gradient once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._logprob import LogProb
from .._losses import _prepared, _Terms
from .losses import weights_of_rows
from .parts import REAL, Part, Rows, check_tensor, real


def _refuse_second_derivative(name: str) -> None:
    if torch.is_grad_enabled():
        raise RuntimeError(
            f"create_graph is given, and {name} has no second derivative: expected log_softmax of "
            "onsoftmax.distributed"
        )


# ---------------------------------------------------------------- cross_entropy


def cross_entropy(
    local: Any, target: Any, group: Any, axis: int, weight: Any, return_lse: bool, **given: Any
) -> Any:
    rows = Rows(local, target, group, axis, "target")
    terms = _Terms(rows.axis, weight=weight, stream=None, num_threads=None, **given)
    whole_rows = rows.on is None or rows.on.has_whole_batch()
    if terms.reduction != "none" and not whole_rows:
        raise ValueError(
            f"reduction is {terms.reduction!r}, and local is also sharded along another axis: expected 'none'"
        )
    part = rows.agreed(" for cross_entropy" + (" with label_smoothing" if terms.label_smoothing else ""))
    if weight is not None:
        check_tensor("weight", weight, False)
        rows.check_device("weight", weight)
        if weight.shape != (part.N,):
            raise ValueError(f"weight has shape {tuple(weight.shape)}: expected ({part.N},)")
        weight = _prepared("weight", weight, (str(REAL[rows.x.dtype]).removeprefix("torch."),))
    rows.check(part, "class", terms.ignore_index)
    loss, lse = _Loss.apply(rows.x, rows.index, weight, part, terms)
    if rows.on is not None:
        loss = rows.given_back(loss) if terms.reduction == "none" else rows.on.of_all(loss)
    return (loss, rows.given_back(lse)) if return_lse else loss


def _own(target: Tensor, weight: Tensor | None, part: Part, terms: _Terms) -> tuple[Tensor, Tensor]:
    """Whether each row has a class, and the weight of its class. The weight is 0 if the row has no class."""
    known = part.known(target) & (target != terms.ignore_index)
    if weight is None or part.N == 0:
        return known, known.double()
    return known, weights_of_rows(target, weight, terms.ignore_index)[1].double().masked_fill(~known, 0)


def _sum_of_products(x: Tensor, weight: Tensor | None, part: Part) -> Tensor:
    """sum(weight * x) over this rank's part of each row."""
    by, operation = x, "log_softmax_backward"  # this operation adds up x alone, without a product
    if weight is not None:
        shape = [-1 if dim == part.axis else 1 for dim in range(x.ndim)]
        by = weight[part.start : part.end].view(shape).expand(x.shape)
        operation = "softmax_backward"
    total, rest = _core.gradient_sums(x, by, part.axis, operation=operation).unbind(-1)
    return torch.where(total.isfinite(), total + rest, total)


class _Loss(torch.autograd.Function):  # type: ignore[misc]  # mypy does not look into torch
    """The reduced loss, and the logsumexp of each row."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, part: Part, terms: _Terms
    ) -> tuple[Tensor, Tensor]:
        x, a = logits.detach(), terms.label_smoothing
        columns = [part.chosen(x, target.unsqueeze(-1))]
        if a:
            columns.append(_sum_of_products(x, weight, part).unsqueeze(-1))
        whole = part.exchange(x, *columns)
        known, own = _own(target, weight, part, terms)
        sums = whole.of_ranks.sum(0)
        chosen = sums[..., 0].masked_fill(~known, torch.nan)
        loss = (1 - a) * own * ((whole.m - chosen) + whole.log_d)
        if a:
            total = part.N if weight is None else weight.double().sum()
            loss = loss + a / max(part.N, 1) * ((total * whole.m - sums[..., 1]) + total * whole.log_d)
        if terms.z_loss:
            loss = loss + terms.z_loss * whole.lse**2
        loss = loss.masked_fill(target == terms.ignore_index, 0)
        if terms.reduction != "none":
            loss = loss.sum()
        if terms.reduction == "mean":
            loss = loss / own.sum()
        ctx.save_for_backward(logits, target, weight, whole.pairs, whole.lse if terms.z_loss else None)
        ctx.call = part, terms
        lse = real(x, whole.lse)
        ctx.mark_non_differentiable(lse)
        return real(x, loss), lse

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
        _refuse_second_derivative("cross_entropy")
        (logits, target, weight, pairs, lse), (part, terms) = ctx.saved_tensors, ctx.call
        x, a = logits.detach(), terms.label_smoothing
        if x.numel() == 0:
            return torch.zeros_like(x), None, None, None, None
        known, own = _own(target, weight, part, terms)
        by = grad.double()
        if terms.reduction == "mean":
            by = by / own.sum()
        own = by * (1 - a) * own
        each = torch.zeros_like(own) + by * a / max(part.N, 1)
        total = part.N if weight is None else weight.double().sum()
        every = own + each * total if a else own
        if terms.z_loss:
            every = every + 2 * terms.z_loss * by * lse
        here, place = part.place(target)
        place = place.masked_fill(~known, -2).masked_fill(target == terms.ignore_index, -1)
        gradient = _core.loss_gradient(
            x,
            place,
            part.axis,
            pairs,
            torch.stack([every, each, own.masked_fill(~here, 0)], -1),
            weight[part.start : part.end] if weight is not None and a else None,
        )
        return gradient, None, None, None, None


# ---------------------------------------------------------------- logprob


def logprob(local: Any, index: Any, group: Any, axis: int, *, entropy: bool, lse: bool, argmax: bool) -> Any:
    rows = Rows(local, index, group, axis, "index")
    chosen = rows.index if rows.several else rows.index.unsqueeze(-1)
    if chosen.shape[-1] == 0:
        raise ValueError("index has 0 elements of each row: expected at least one")
    how = f" for logprob of {chosen.shape[-1]}" + " with entropy" * entropy + " with argmax" * argmax
    part = rows.agreed(how)
    rows.check(part, "element")
    of_chosen, *more = _LogProb.apply(rows.x, chosen, part, entropy, argmax)
    found = [of_chosen if rows.several else of_chosen.squeeze(-1), *more]
    if not (entropy or lse or argmax):
        return rows.given_back(found[0])
    wanted = True, entropy, lse, argmax
    return LogProb(*(rows.given_back(x) if wants else None for x, wants in zip(found, wanted, strict=True)))


def _mean_and_first(x: Tensor, part: Part, entropy: bool, argmax: bool) -> Tensor:
    """The mean of x - m under the softmax of this rank's part, and the index of the first largest element of
    the part, for each row. Both are inf if the part is empty."""
    rows = x.shape[: part.axis] + x.shape[part.axis + 1 :]
    found = x.new_full((*rows, 2), torch.inf, dtype=torch.float64)
    if part.start == part.end or x.numel() == 0:
        return found
    anything = torch.zeros(rows, dtype=torch.int64, device=x.device)
    of_part = _core.logprob(x, anything, part.axis, entropy, False, argmax, False, entropy, None, None)
    if entropy:
        found[..., 0] = of_part[5][2 * anything.numel() :].view(rows)
    if argmax:
        found[..., 1] = of_part[3] + part.start
    return found


class _LogProb(torch.autograd.Function):  # type: ignore[misc]
    """The log-probabilities, and the entropy, the logsumexp and the argmax of each row."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, index: Tensor, part: Part, entropy: bool, argmax: bool
    ) -> tuple[Tensor | None, ...]:
        x, k = logits.detach(), index.shape[-1]
        columns = [part.chosen(x, index)]
        if entropy or argmax:
            columns.append(_mean_and_first(x, part, entropy, argmax))
        whole = part.exchange(x, *columns)
        m, m_of_ranks = whole.m, whole.states[..., 0]
        chosen = whole.of_ranks[..., :k].sum(0).masked_fill(~part.known(index), torch.nan)
        of_chosen = (chosen - m.unsqueeze(-1)) - whole.log_d.unsqueeze(-1)
        mean = torch.zeros_like(m)
        of_row = first = None
        if entropy:
            d_of_ranks = _core.merge(whole.states, gives="d", dtype=REAL[x.dtype])
            share = d_of_ranks / whole.d * (m_of_ranks - m).exp()
            apart = whole.of_ranks[..., k] + (m_of_ranks - m)
            mean = torch.where(share > 0, share * apart, 0).sum(0)  # a part may be empty
            of_row = real(x, whole.log_d - mean)
        if argmax:
            largest = (m_of_ranks == m) | (m_of_ranks.isnan() & m.isnan())
            first = whole.of_ranks[..., k + 1].masked_fill(~largest, torch.inf).amin(0).long()
            ctx.mark_non_differentiable(first)
        ctx.save_for_backward(logits, index, whole.pairs, mean)
        ctx.part = part
        ctx.set_materialize_grads(False)
        return real(x, of_chosen), of_row, real(x, whole.lse), first

    @staticmethod
    def backward(
        ctx: Any, of_chosen: Tensor | None, of_entropy: Tensor | None, of_lse: Tensor | None, _: Any
    ) -> tuple[Any, ...]:
        _refuse_second_derivative("logprob")
        (logits, index, pairs, mean), part = ctx.saved_tensors, ctx.part
        x = logits.detach()
        if x.numel() == 0:
            return torch.zeros_like(x), None, None, None, None
        here, place = part.place(index)
        if of_chosen is not None:  # a chosen element of another part changes only the factor of softmax
            elsewhere = of_chosen.double().masked_fill(here, 0).sum(-1)
            of_lse = -elsewhere if of_lse is None else of_lse.double() - elsewhere
            of_chosen = of_chosen.masked_fill(~here, 0).contiguous()
        gradient = _core.logprob_backward(
            x,
            place.masked_fill(~part.known(index), -1),
            part.axis,
            torch.cat([pairs.flatten(), mean.flatten()]),
            of_chosen,
            None if of_entropy is None else of_entropy.contiguous(),
            None if of_lse is None else real(x, of_lse).contiguous(),
            None,
            None,
        )
        return gradient, None, None, None, None
