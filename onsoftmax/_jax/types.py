"""The types of JAX's arrays inside jax.shard_map: the axes of the mesh along which they vary."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

Array = Any
_type_of = getattr(jax, "typeof", None) or jax.core.get_aval  # from JAX 0.6 on, and before


def result(shape: tuple[int, ...], dtype: Any, like: Array) -> Any:
    """The type of an array of that shape, with the sharding and the varying axes of the array `like`."""
    kind = _type_of(like)
    sharding = getattr(kind, "sharding", None)
    if sharding is None or sharding.mesh.empty:  # no mesh is known
        return jax.ShapeDtypeStruct(shape, dtype)
    if shape != kind.shape:
        sharding = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*[None] * len(shape)))
    return kind.update(shape=shape, dtype=np.dtype(dtype), weak_type=False, sharding=sharding)


def aligned(*arrays: Array | None) -> list[Any]:
    """Makes each array vary along every axis along which one of them varies. If an array did not vary along
    an axis, its gradient is added up over this axis."""
    along = [frozenset() if array is None else _varying(array) for array in arrays]
    everywhere = frozenset().union(*along)
    return [
        array if array is None or own == everywhere else _vary(array, tuple(everywhere - own))
        for array, own in zip(arrays, along, strict=True)
    ]


def parted(array: Array, axis_name: Any) -> Array:
    """The array as a part, which varies along the axes of that name."""
    jax.lax.psum(1, axis_name)  # NameError if there is no such axis
    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    missing = tuple(name for name in names if name not in _varying(array))
    return _vary(array, missing) if missing else array


def _varying(array: Array) -> frozenset[str]:
    kind = _type_of(array)
    if hasattr(kind, "manual_axis_type"):  # from JAX 0.10 on
        varying: frozenset[str] = kind.manual_axis_type.varying
        return varying
    before: frozenset[str] = getattr(kind, "vma", frozenset())
    return before


def _vary(array: Array, axes: tuple[str, ...]) -> Array:
    if hasattr(jax.lax, "pcast"):  # from JAX 0.9 on
        return jax.lax.pcast(array, axes, to="varying")
    return jax.lax.pvary(array, axes) if hasattr(jax.lax, "pvary") else array
