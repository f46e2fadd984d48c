"""The arguments of onsoftmax.distributed, also as a DTensor, and the exchanges between the ranks."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# The name from torch 2.13 on, and the name before.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def gather(values: Any, group: Any) -> Any:
    """The values of all ranks, by one collective. The result has a first dimension for the ranks."""
    ranks = group.size()  # takes a tenth of the time of dist.get_world_size
    everything = values.new_empty((ranks, *values.shape))
    if values.numel() > 0:
        _all_gather(everything.view(-1), values.view(-1), group=group)
    return everything


# For each group: the last call that the ranks agreed on, the number of comparisons, and the lengths of parts.
_agreed: weakref.WeakKeyDictionary[Any, tuple[str, int, list[int]]] = weakref.WeakKeyDictionary()


def agree(local: Any, axis: int, group: Any, how: str, length: int = 0) -> list[int]:
    """Makes sure that the ranks of a group make the same call: with rows of one shape and type, and with one
    `how`, which names the method or the function and its options. Returns the lengths of all ranks. Pass 0 as
    the length if the call needs no lengths.

    If this rank's call is like the last call in the group, the rank compares nothing. Usually the calls of
    the other ranks are like their last call too. If all calls have changed, the ranks compare them over the
    group's store. They cannot compare in a collective: parts of different sizes would give wrong numbers
    there. If only some calls have changed, these ranks wait here and the other ranks wait in the collective,
    until the group's timeout.

    Raises
    ------
    ValueError
        The calls differ. Every rank raises it.
    RuntimeError
        A rank did not come within the timeout of the group's store.
    """
    shape = ", ".join("*" if dim == axis else str(size) for dim, size in enumerate(local.shape))
    mine = f"({shape}) {str(local.dtype).removeprefix('torch.')}{how}"
    before, count, lengths = _agreed.get(group, ("", 0, []))
    rank, ranks = group.rank(), group.size()
    if mine == before and lengths[rank] == length:
        return lengths
    store = group.get_group_store()
    keys = [f"onsoftmax/{count}/{each}" for each in range(ranks)]
    store.set(keys[rank], f"{length} {mine}")
    try:
        store.wait(keys)
    except RuntimeError as error:
        missing = [each for each in range(ranks) if not store.check([keys[each]])]
        raise RuntimeError(
            f"ranks {missing} did not come within {store.timeout}, or came with other rows than rank {rank}, "
            f"in a group of {ranks} ranks: expected a call with rows of {mine} on each rank"
        ) from error
    theirs = [store.get(key).decode().split(" ", 1) for key in keys]
    _agreed[group] = "", count + 1, []
    if count > 0:  # all ranks have read the previous key
        store.delete_key(f"onsoftmax/{count - 1}/{rank}")
    if any(rows != mine for _, rows in theirs):
        listed = "; ".join(f"rank {each} has {rows}" for each, (_, rows) in enumerate(theirs))
        raise ValueError(f"{listed}: expected the same on all ranks, except for the length along the axis, *")
    _agreed[group] = mine, count + 1, [int(each) for each, _ in theirs]
    return _agreed[group][2]


# ---------------------------------------------------------------- the arguments of a call


def checked_axis(local: Any, axis: Any) -> int:
    if not isinstance(local, Tensor):
        raise TypeError(f"local is of type {type(local).__name__}: expected a torch.Tensor")
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise TypeError(f"axis is {axis!r}: expected an int, one axis")
    if not -local.ndim <= axis < local.ndim:
        raise IndexError(f"axis {axis} is out of bounds for a tensor of {local.ndim} dimensions")
    return int(axis % local.ndim)


def checked_group(group: Any) -> ProcessGroup:
    if group is None and not dist.is_initialized():
        raise ValueError("group is None, and there is no default group: call torch's init_process_group")
    group = dist.group.WORLD if group is None else group
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("this process is not in the group: expected one of its ranks")
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"group is of type {type(group).__name__}: expected a ProcessGroup")
    return group


# ---------------------------------------------------------------- DTensor: its own steps differentiate once


class OnMesh:
    """A DTensor, the groups that share its rows along an axis, and the placements of results."""

    def __init__(self, x: Any, group: Any, axis: int) -> None:
        from torch.distributed.tensor import Replicate, Shard

        if group is not None:
            raise ValueError("group is given beside a DTensor: expected None, as its mesh has the groups")
        for p in x.placements:
            if hasattr(p, "split_factor"):  # its parts are not in order
                raise ValueError(f"a placement is {p}: expected Shard, Replicate or Partial")
        if any(p.is_partial() for p in x.placements):
            x = x.redistribute(placements=[Replicate() if p.is_partial() else p for p in x.placements])
        cut = [dim for dim, p in enumerate(x.placements) if p.is_shard(axis)]
        self.x, self.mesh = x, x.device_mesh
        self.groups = tuple(self.mesh.get_group(dim) for dim in cut)
        self.rows = tuple(x.shape[:axis] + x.shape[axis + 1 :])
        self.placements = tuple(
            Replicate() if dim in cut else Shard(p.dim - (p.dim > axis)) if p.is_shard() else p
            for dim, p in enumerate(x.placements)
        )

    def local(self) -> Tensor:
        part: Tensor = Local.apply(self.x)
        return part

    def of_elements(self, y: Tensor) -> Tensor:
        """A result with one number for each element of x, from this rank's part."""
        x = self.x
        whole: Tensor = Distributed.apply(y, self.mesh, x.placements, x.shape, x.stride())
        return whole

    def has_whole_batch(self) -> bool:
        """Whether each rank has a part of every row."""
        return all(p.is_replicate() for p in self.placements)

    def rows_of(self, indices: Tensor) -> Tensor:
        """The indices of this rank's rows. `indices` has the indices of all rows, also as a DTensor."""
        from torch.distributed.tensor import DTensor, Replicate

        if not isinstance(indices, DTensor):
            everywhere = [Replicate()] * len(self.placements)
            indices = DTensor.from_local(indices, self.mesh, everywhere, run_check=False)
        mine: Tensor = indices.redistribute(placements=self.placements).to_local()
        return mine

    def of_all(self, y: Tensor) -> Tensor:
        """A result of all rows together, such as a mean. Each rank has it."""
        from torch.distributed.tensor import Replicate

        whole: Tensor = Distributed.apply(y, self.mesh, (Replicate(),) * len(self.placements), y.shape, ())
        return whole

    def of_rows(self, y: Tensor, *more: int) -> Tensor:
        """A result with numbers for each row, from this rank's rows. `more`: the lengths of further
        dimensions at the end."""
        shape = (*self.rows, *more)
        stride = torch.empty(shape, device="meta").stride()
        whole: Tensor = Distributed.apply(y, self.mesh, self.placements, torch.Size(shape), stride)
        return whole


class Local(torch.autograd.Function):  # type: ignore[misc]
    """From a DTensor to this rank's part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.of = x.device_mesh, x.placements, x.shape, x.stride()
        return x.to_local().detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return Distributed.apply(grad, *ctx.of)


class Distributed(torch.autograd.Function):  # type: ignore[misc]
    """From this rank's part to a DTensor."""

    @staticmethod
    def forward(
        ctx: Any, local: Tensor, mesh: Any, placements: tuple[Any, ...], shape: Any, stride: Any
    ) -> Tensor:
        from torch.distributed.tensor import DTensor

        ctx.placements = placements
        return DTensor.from_local(local.detach(), mesh, placements, shape=shape, stride=stride)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        grad = grad.redistribute(placements=ctx.placements)
        return Local.apply(grad), None, None, None, None
