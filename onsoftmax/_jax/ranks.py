"""Rows that are cut over devices, inside jax.shard_map.

Each device reads its part of the rows and makes their states. All devices gather the states and merge them,
so every device has the same merged states. Then each device finishes its part. A state is added up without
rounding (csrc/api/digits.h), so the result does not depend on the cut. States are float64 and travel as
uint32, since JAX has float64 only with jax_enable_x64.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .._core import PACKED_VALUES, XLA_SUMS
from .operators import Call, run
from .types import result

Array = Any
AxisName = Any
_STATE, _PAIR = 2 * PACKED_VALUES, 4  # words of a state and of a pair: two for each float64


def _gather(words: Array, name: AxisName) -> Array:
    """The devices' words side by side, in a dimension before the last one."""
    return jax.lax.all_gather(words, name, axis=words.ndim - 1)


def _words(call: Call, x: Array, count: int) -> Any:
    """The type of an array with `count` words for each row."""
    return result((*call.shape(x, 1), count), jnp.uint32, x)


def _pairs(call: Call, name: AxisName, x: Array) -> Array:
    """The pairs of the whole rows."""
    states = run(call.again("normalizer", x.dtype), _words(call, x, _STATE), {"x": x}, XLA_SUMS)
    return run(call.again("merge", x.dtype), _words(call, x, _PAIR), {"x": _gather(states, name)})


def _total(words: Array) -> Array:
    """The sum of the devices' pairs of float64."""
    with _float64():
        pairs = words.reshape(*words.shape[:-1], 2, 2)
        total = jax.lax.bitcast_convert_type(pairs, jnp.float64).sum(-2)
        return jax.lax.bitcast_convert_type(total, jnp.uint32).reshape(*words.shape[:-2], _PAIR)


def _float64() -> contextlib.AbstractContextManager[Any]:
    if hasattr(jax, "enable_x64"):
        enabled: contextlib.AbstractContextManager[Any] = jax.enable_x64(True)
        return enabled
    from jax.experimental import enable_x64

    before: contextlib.AbstractContextManager[Any] = enable_x64()
    return before


# ---------------------------------------------------------------- softmax, log_softmax


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def rows(call: Call, name: AxisName, x: Array) -> Array:
    """softmax and log_softmax of a part of the rows."""
    return run(call, result(x.shape, call.dtype, x), {"x": x, "p": _pairs(call, name, x)})


def _rows_forward(call: Call, name: AxisName, x: Array) -> Any:
    y = rows(call, name, x)
    return y, y


def _rows_backward(call: Call, name: AxisName, y: Array, grad: Array) -> Any:
    step = call.again(f"{call.operation}_backward", call.given)
    given = {"g": grad, "x": y}
    total = _total(_gather(run(step, _words(call, y, _PAIR), given, XLA_SUMS), name))
    return (run(step, result(y.shape, step.dtype, y), {**given, "p": total}),)


rows.defvjp(_rows_forward, _rows_backward)


# ---------------------------------------------------------------- logsumexp


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def values(call: Call, name: AxisName, x: Array) -> Array:
    """logsumexp of the whole rows, with length 1 along the axis."""
    return _values_forward(call, name, x)[0]


def _values_forward(call: Call, name: AxisName, x: Array) -> Any:
    pairs = _pairs(call, name, x)
    none = jax.lax.slice_in_dim(x, 0, 0, axis=call.axes[0])  # only the pairs matter
    return run(call, result(call.shape(x, 1), call.dtype, x), {"x": none, "p": pairs}), (x, pairs)


def _values_backward(call: Call, name: AxisName, kept: Any, grad: Array) -> Any:
    """Each device's result depends on all parts."""
    x, pairs = kept
    y = run(call.again("softmax", x.dtype), result(x.shape, x.dtype, x), {"x": x, "p": pairs})
    return ((jax.lax.psum(grad, name) * y).astype(x.dtype),)


values.defvjp(_values_forward, _values_backward)
