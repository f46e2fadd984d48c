"""What the ranks of a group exchange for onsoftmax.distributed."""

from __future__ import annotations

import weakref
from typing import Any

import torch.distributed as dist

# Its name from torch 2.13 on, and the one before.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def gather(values: Any, group: Any) -> Any:
    """Those of all ranks, stacked in front: one collective."""
    ranks = group.size()  # a tenth of what dist.get_world_size takes
    everything = values.new_empty((ranks, *values.shape))
    if values.numel() > 0:
        _all_gather(everything.view(-1), values.view(-1), group=group)
    return everything


# Of each group: what the ranks agreed on last, and how often they have compared.
_agreed: weakref.WeakKeyDictionary[Any, tuple[str, int]] = weakref.WeakKeyDictionary()


def agree(local: Any, axis: int, group: Any) -> None:
    """Makes sure that all ranks of a group have rows of one shape and type.

    Where this rank's are those of its call before, so are the others': a rank that has changed waits for the
    others here, and these wait for it in the collective, until the group's timeout. Else all compare, over
    the group's store: in a collective, parts of different sizes would give wrong numbers.

    Raises
    ------
    ValueError
        They have not, which is raised on every rank.
    RuntimeError
        A rank did not come within the timeout of the group's store.
    """
    shape = ", ".join("*" if dim == axis else str(length) for dim, length in enumerate(local.shape))
    mine = f"({shape}) {str(local.dtype).removeprefix('torch.')}"
    before, count = _agreed.get(group, ("", 0))
    if mine == before:
        return
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    store = group.get_group_store()
    keys = [f"onsoftmax/{count}/{each}" for each in range(ranks)]
    store.set(keys[rank], mine)
    try:
        store.wait(keys)
    except RuntimeError as error:
        missing = [each for each in range(ranks) if not store.check([keys[each]])]
        raise RuntimeError(
            f"of the group's {ranks} ranks {missing} did not come within {store.timeout}, or came with other "
            f"rows than rank {rank}: expected a call with rows of {mine} on each"
        ) from error
    theirs = [store.get(key).decode() for key in keys]
    _agreed[group] = "", count + 1
    if count > 0:  # which all have read
        store.delete_key(f"onsoftmax/{count - 1}/{rank}")
    if any(each != mine for each in theirs):
        listed = "; ".join(f"rank {each} has {rows}" for each, rows in enumerate(theirs))
        raise ValueError(f"{listed}: expected one shape but for the axis, *, and one type")
    _agreed[group] = mine, count + 1
