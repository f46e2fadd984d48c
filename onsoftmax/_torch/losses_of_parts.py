"""cross_entropy and logprob of rows whose parts the ranks of a group have, for onsoftmax.distributed.

Each rank sends the states of its part, the logits that are wanted if its part has them, and what else the
results need. After one all_gather each rank computes the results of the whole rows. The backward step
exchanges nothing. It reads this rank's part of the logits once and writes its gradient once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core
from .._libraries.kinds import refused_dtype
from .._logprob import LogProb
from .._losses import _prepared, _Terms
from .losses import weights_of_rows
from .ranks import OnMesh, agree, checked_axis, checked_group, gather

# The types of logits, and of the real results.
_REAL = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}
_STATE = 5  # float64 of a row, from _core.sums


class _Whole(NamedTuple):
    """What is known of the whole rows after the exchange. of_ranks: what each rank has sent beside its
    states, stacked in front."""

    states: Tensor
    of_ranks: Tensor
    pairs: Tensor
    m: Tensor
    d: Tensor
    log_d: Tensor  # NaN if m is infinite or NaN
    lse: Tensor


class _Part(NamedTuple):
    """This rank's part of the rows: elements `start` to `end` of N, along `axis`."""

    axis: int
    groups: tuple[Any, ...]
    start: int
    end: int
    N: int

    @classmethod
    def agreed(cls, x: Tensor, axis: int, groups: tuple[Any, ...], how: str) -> _Part:
        """The part, if all ranks have like rows and call alike. The last group's parts are neighbours."""
        start, N = 0, x.shape[axis]
        for group in reversed(groups):
            lengths = agree(x, axis, group, how, N)
            start, N = start + sum(lengths[: group.rank()]), sum(lengths)
        return cls(axis, groups, start, start + x.shape[axis], N)

    def known(self, index: Tensor) -> Tensor:
        return (index >= 0) & (index < self.N)

    def place(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Which elements are in this part, and their places there: 0 for all others."""
        here = (index >= self.start) & (index < self.end)
        return here, (index - self.start).masked_fill(~here, 0)

    def chosen(self, x: Tensor, index: Tensor) -> Tensor:
        """The chosen elements of this part in float64. The elements of other parts are 0 here."""
        if self.start == self.end:
            return x.new_zeros(index.shape, dtype=torch.float64)
        here, place = self.place(index)
        return x.movedim(self.axis, -1).gather(-1, place).double().masked_fill(~here, 0)

    def exchange(self, x: Tensor, *columns: Tensor) -> _Whole:
        """One all_gather, or one for each group if several groups cut the rows."""
        sent = torch.cat([_core.sums(x, self.axis), *columns], -1).unsqueeze(0)
        for group in self.groups:
            sent = gather(sent, group).flatten(0, 1)
        states, of_ranks = sent[..., :_STATE].contiguous(), sent[..., _STATE:]
        pairs = _core.merge(states, 0, gives="pair")
        d = _core.merge(states, 0, gives="d", dtype=_REAL[x.dtype])
        m = pairs[..., 0]
        log_d = d.log().masked_fill(m.isinf(), torch.nan)
        return _Whole(states, of_ranks, pairs, m, d, log_d, torch.where(m.isinf(), m, m + log_d))


def _check_tensor(name: str, array: Any, may_be_dtensor: bool) -> None:
    if not isinstance(array, Tensor):
        raise TypeError(f"{name} is of type {type(array).__name__}: expected a torch.Tensor")
    if hasattr(array, "device_mesh") and not may_be_dtensor:
        raise ValueError(f"{name} is a DTensor: expected {name}.full_tensor()")


class _Rows:
    """The logits and the indices of a call, both local, and how a result goes back to the caller."""

    def __init__(self, local: Any, index: Any, group: Any, axis: int, name: str) -> None:
        self.axis, self.name = checked_axis(local, axis), name
        if local.dtype not in _REAL:
            raise TypeError(refused_dtype(str(local.dtype).removeprefix("torch."), 0))
        is_dtensor = hasattr(local, "device_mesh")
        _check_tensor(name, index, is_dtensor)
        rows = local.shape[: self.axis] + local.shape[self.axis + 1 :]
        self.several = name == "index" and index.ndim == len(rows) + 1
        if index.shape[: len(rows)] != rows or index.ndim != len(rows) + self.several:
            raise ValueError(f"{name} has shape {tuple(index.shape)}: expected {tuple(rows)}")
        self.on = OnMesh(local, group, self.axis) if is_dtensor else None
        if self.on is not None:
            index = self.on.rows_of(index)
        self.x = self.on.local() if self.on else local
        self.groups = self.on.groups if self.on else (checked_group(group),)
        self.check_device(name, index)
        self.index = _prepared(name, index, ("int64", "int32")).long()

    def check_device(self, name: str, array: Tensor) -> None:
        if array.device != self.x.device:
            raise ValueError(f"{name} is on {array.device}: expected {self.x.device}, as local is")

    def agreed(self, how: str) -> _Part:
        if self.on is not None:  # each rank sees if the whole rows change
            how += f" of {self.on.x.shape[self.axis]} elements"
        return _Part.agreed(self.x, self.axis, self.groups, how)

    def check(self, part: _Part, what: str, ignored: int | None = None) -> None:
        """IndexError for the first wrong index on the CPU. A check on a GPU would wait for it."""
        if self.index.is_cuda:
            return
        wrong = ~part.known(self.index)
        if ignored is not None:
            wrong &= self.index != ignored
        if not wrong.any():
            return
        place = int(wrong.flatten().nonzero()[0])
        number, row = int(self.index.flatten()[place]), place // (wrong.shape[-1] if self.several else 1)
        otherwise = "" if ignored is None else f", or ignore_index, which is {ignored}"
        raise IndexError(
            f"{self.name} {number} of row {row} is no {what}: expected 0 to {part.N - 1}{otherwise}"
        )

    def given_back(self, result: Tensor) -> Tensor:
        if self.on is None:
            return result
        return self.on.of_rows(result, *result.shape[self.x.ndim - 1 :])


def _refuse_second_derivative(name: str) -> None:
    if torch.is_grad_enabled():
        raise RuntimeError(
            f"create_graph is given, and {name} has no second derivative: expected log_softmax of "
            "onsoftmax.distributed"
        )


def _real(x: Tensor, value: Tensor) -> Tensor:
    return value.to(_REAL[x.dtype])


# ---------------------------------------------------------------- cross_entropy


def cross_entropy(
    local: Any, target: Any, group: Any, axis: int, weight: Any, return_lse: bool, **given: Any
) -> Any:
    rows = _Rows(local, target, group, axis, "target")
    terms = _Terms(rows.axis, weight=weight, stream=None, num_threads=None, **given)
    whole_rows = rows.on is None or rows.on.has_whole_batch()
    if terms.reduction != "none" and not whole_rows:
        raise ValueError(
            f"reduction is {terms.reduction!r}, and local is also sharded along another axis: expected 'none'"
        )
    part = rows.agreed(" for cross_entropy" + (" with label_smoothing" if terms.label_smoothing else ""))
    if weight is not None:
        _check_tensor("weight", weight, False)
        rows.check_device("weight", weight)
        if weight.shape != (part.N,):
            raise ValueError(f"weight has shape {tuple(weight.shape)}: expected ({part.N},)")
        weight = _prepared("weight", weight, (str(_REAL[rows.x.dtype]).removeprefix("torch."),))
    rows.check(part, "class", terms.ignore_index)
    loss, lse = _Loss.apply(rows.x, rows.index, weight, part, terms)
    if rows.on is not None:
        loss = rows.given_back(loss) if terms.reduction == "none" else rows.on.of_all(loss)
    return (loss, rows.given_back(lse)) if return_lse else loss


def _own(target: Tensor, weight: Tensor | None, part: _Part, terms: _Terms) -> tuple[Tensor, Tensor]:
    """Which rows have a class, and the weight of each row's class: 0 if the row has none."""
    known = part.known(target) & (target != terms.ignore_index)
    if weight is None or part.N == 0:
        return known, known.double()
    return known, weights_of_rows(target, weight, terms.ignore_index)[1].double().masked_fill(~known, 0)


def _sum_of_products(x: Tensor, weight: Tensor | None, part: _Part) -> Tensor:
    """sum(weight * x) over the part of each row."""
    by, operation = x, "log_softmax_backward"  # this operation adds up its gradient alone
    if weight is not None:
        shape = [-1 if dim == part.axis else 1 for dim in range(x.ndim)]
        by = weight[part.start : part.end].view(shape).expand(x.shape)
        operation = "softmax_backward"
    total, rest = _core.gradient_sums(x, by, part.axis, operation=operation).unbind(-1)
    return torch.where(total.isfinite(), total + rest, total)


class _Loss(torch.autograd.Function):  # type: ignore[misc]  # mypy does not look into torch
    """The loss, reduced, and the logsumexp of each row."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, part: _Part, terms: _Terms
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
        lse = _real(x, whole.lse)
        ctx.mark_non_differentiable(lse)
        return _real(x, loss), lse

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
    rows = _Rows(local, index, group, axis, "index")
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


def _mean_and_first(x: Tensor, part: _Part, entropy: bool, argmax: bool) -> Tensor:
    """Of each row's part: the mean of x - m under its softmax, and the index of its first largest element.
    inf if the part is empty."""
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
        ctx: Any, logits: Tensor, index: Tensor, part: _Part, entropy: bool, argmax: bool
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
            d_of_ranks = _core.merge(whole.states, gives="d", dtype=_REAL[x.dtype])
            share = d_of_ranks / whole.d * (m_of_ranks - m).exp()
            apart = whole.of_ranks[..., k] + (m_of_ranks - m)
            mean = torch.where(share > 0, share * apart, 0).sum(0)  # the part of a row may be empty
            of_row = _real(x, whole.log_d - mean)
        if argmax:
            largest = (m_of_ranks == m) | (m_of_ranks.isnan() & m.isnan())
            first = whole.of_ranks[..., k + 1].masked_fill(~largest, torch.inf).amin(0).long()
            ctx.mark_non_differentiable(first)
        ctx.save_for_backward(logits, index, whole.pairs, mean)
        ctx.part = part
        ctx.set_materialize_grads(False)
        return _real(x, of_chosen), of_row, _real(x, whole.lse), first

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
        if of_chosen is not None:  # elements elsewhere change the factor of softmax alone
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
            None if of_lse is None else _real(x, of_lse).contiguous(),
            None,
            None,
        )
        return gradient, None, None, None, None
