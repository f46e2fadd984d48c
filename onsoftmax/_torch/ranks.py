"""The exchanges between the ranks of a group, for onsoftmax.distributed."""

from __future__ import annotations

import weakref
from typing import Any

import torch.distributed as dist

# The name from torch 2.13 on, and the name before.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def gather(values: Any, group: Any) -> Any:
    """The values of all ranks, stacked in front, by one collective."""
    ranks = group.size()  # takes a tenth of the time of dist.get_world_size
    everything = values.new_empty((ranks, *values.shape))
    if values.numel() > 0:
        _all_gather(everything.view(-1), values.view(-1), group=group)
    return everything


# For each group: what the ranks agreed on last, and how often they have compared.
_agreed: weakref.WeakKeyDictionary[Any, tuple[str, int]] = weakref.WeakKeyDictionary()


def agree(local: Any, axis: int, group: Any, method: str) -> None:
    """Makes sure that all ranks of a group have rows of one shape and type, and one method.

    If this rank's rows are like the rows of its last call, nothing is compared: the other ranks' rows are
    then as before too. If only one rank's rows have changed, it waits here for the others, and they wait for
    it in the collective, until the group's timeout. If all have changed, they compare over the group's store:
    in a collective, parts of different sizes would give wrong numbers.

    Raises
    ------
    ValueError
        The shapes or types differ. Every rank raises it.
    RuntimeError
        A rank did not come within the timeout of the group's store.
    """
    shape = ", ".join("*" if dim == axis else str(length) for dim, length in enumerate(local.shape))
    mine = f"({shape}) {str(local.dtype).removeprefix('torch.')}"
    if method != "auto":
        mine += f" by method {method!r}"
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
            f"ranks {missing} did not come within {store.timeout}, or came with other rows than rank {rank}, "
            f"in a group of {ranks} ranks: expected a call with rows of {mine} on each rank"
        ) from error
    theirs = [store.get(key).decode() for key in keys]
    _agreed[group] = "", count + 1
    if count > 0:  # all ranks have read the key before
        store.delete_key(f"onsoftmax/{count - 1}/{rank}")
    if any(each != mine for each in theirs):
        listed = "; ".join(f"rank {each} has {rows}" for each, rows in enumerate(theirs))
        raise ValueError(
            f"{listed}: expected one type and method on all ranks, and one shape except along the axis, *"
        )
    _agreed[group] = mine, count + 1
