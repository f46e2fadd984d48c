"""The parts of rows that are cut over the ranks of a group, and the exchange between the ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core
from .._libraries.kinds import refused_dtype
from .._losses import _prepared
from .ranks import OnMesh, agree, checked_axis, checked_group, gather

# For each type of logits: the type of the real results.
REAL = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}
_STATE = 5  # the number of float64 in the state of a row, from _core.sums


class Whole(NamedTuple):
    """Facts of the whole rows, which each rank knows after the exchange. The first dimension of `states` and
    `of_ranks` is the rank."""

    states: Tensor
    of_ranks: Tensor  # the columns that the ranks sent beside their states
    pairs: Tensor
    m: Tensor
    d: Tensor
    log_d: Tensor  # NaN if m is infinite or NaN
    lse: Tensor


class Part(NamedTuple):
    """This rank's part of the rows: elements `start` to `end` of N, along `axis`."""

    axis: int
    groups: tuple[Any, ...]
    start: int
    end: int
    N: int

    @classmethod
    def agreed(cls, x: Tensor, axis: int, groups: tuple[Any, ...], how: str) -> Part:
        """Finds this rank's part from the lengths of all parts, after the ranks have agreed on the call. If
        several groups cut the rows, the last group has parts that are next to each other."""
        start, N = 0, x.shape[axis]
        for group in reversed(groups):
            lengths = agree(x, axis, group, how, N)
            start, N = start + sum(lengths[: group.rank()]), sum(lengths)
        return cls(axis, groups, start, start + x.shape[axis], N)

    def known(self, index: Tensor) -> Tensor:
        """Whether each index is in range."""
        return (index >= 0) & (index < self.N)

    def place(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each index is in this part, and its place there. The place is 0 if the index is not."""
        here = (index >= self.start) & (index < self.end)
        return here, (index - self.start).masked_fill(~here, 0)

    def chosen(self, x: Tensor, index: Tensor) -> Tensor:
        """The chosen elements in float64. An element of another part is 0, so the ranks can add them up."""
        if self.start == self.end:
            return x.new_zeros(index.shape, dtype=torch.float64)
        here, place = self.place(index)
        return x.movedim(self.axis, -1).gather(-1, place).double().masked_fill(~here, 0)

    def exchange(self, x: Tensor, *columns: Tensor) -> Whole:
        """Sends the states and the columns of this rank, by one all_gather for each group that cuts rows."""
        sent = torch.cat([_core.sums(x, self.axis), *columns], -1).unsqueeze(0)
        for group in self.groups:
            sent = gather(sent, group).flatten(0, 1)
        states, of_ranks = sent[..., :_STATE].contiguous(), sent[..., _STATE:]
        pairs = _core.merge(states, 0, gives="pair")
        d = _core.merge(states, 0, gives="d", dtype=REAL[x.dtype])
        m = pairs[..., 0]
        log_d = d.log().masked_fill(m.isinf(), torch.nan)
        return Whole(states, of_ranks, pairs, m, d, log_d, torch.where(m.isinf(), m, m + log_d))


def check_tensor(name: str, array: Any, may_be_dtensor: bool) -> None:
    if not isinstance(array, Tensor):
        raise TypeError(f"{name} is of type {type(array).__name__}: expected a torch.Tensor")
    if hasattr(array, "device_mesh") and not may_be_dtensor:
        raise ValueError(f"{name} is a DTensor: expected {name}.full_tensor()")


class Rows:
    """The logits and the indices of a call, as this rank has them. given_back makes DTensors of results."""

    def __init__(self, local: Any, index: Any, group: Any, axis: int, name: str) -> None:
        self.axis, self.name = checked_axis(local, axis), name
        if local.dtype not in REAL:
            raise TypeError(refused_dtype(str(local.dtype).removeprefix("torch."), 0))
        is_dtensor = hasattr(local, "device_mesh")
        check_tensor(name, index, is_dtensor)
        rows = local.shape[: self.axis] + local.shape[self.axis + 1 :]
        self.several = name == "index" and index.ndim == len(rows) + 1
        if index.shape[: len(rows)] != rows or index.ndim != len(rows) + self.several:
            more = ", or one more dimension" if name == "index" else ""
            raise ValueError(f"{name} has shape {tuple(index.shape)}: expected {tuple(rows)}{more}")
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

    def agreed(self, how: str) -> Part:
        if self.on is not None:  # then all ranks see it if the length of the whole rows changes
            how += f" of {self.on.x.shape[self.axis]} elements"
        return Part.agreed(self.x, self.axis, self.groups, how)

    def check(self, part: Part, what: str, ignored: int | None = None) -> None:
        """Raises IndexError for the first wrong index on the CPU. A check on a GPU would wait for the GPU."""
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


def real(x: Tensor, value: Tensor) -> Tensor:
    return value.to(REAL[x.dtype])
