"""Calls that vmap turns into one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

Array = Any


def in_one_call(
    function: Callable[..., tuple[Array, ...]], *arrays: Array | None, shared: int | None = None
) -> tuple[Array, ...]:
    """function(*arrays), whose first array has rows.

    vmap adds a dimension in front of all arrays. If it does not map the first array, this array has length 1
    there. The array number `shared` serves for all rows and gets no dimension. If vmap maps it, there is a
    call for each mapped element."""

    @custom_vmap  # type: ignore[untyped-decorator]
    def call(*arrays: Array) -> tuple[Array, ...]:
        return function(*arrays)

    @call.def_vmap  # type: ignore[untyped-decorator]
    def map_all(size: int, mapped: list[bool | None], *arrays: Array) -> Any:
        whole = [
            each if each is None or is_mapped else jnp.broadcast_to(each, (size, *each.shape))
            for each, is_mapped in zip(arrays, mapped, strict=True)
        ]
        if shared is not None and mapped[shared]:
            found = jax.lax.map(lambda each: in_one_call(function, *each, shared=shared), whole)
        else:
            whole[0] = arrays[0] if mapped[0] else arrays[0][None]
            if shared is not None:
                whole[shared] = arrays[shared]
            found = in_one_call(function, *whole, shared=shared)
        return found, (True,) * len(found)

    found: tuple[Array, ...] = call(*arrays)
    return found
