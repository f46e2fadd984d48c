"""The arguments of onsoftmax.jax's functions. The core checks them, in its words, when a call is traced."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _core
from .._libraries import as_numpy
from .._libraries.jax import check_jax_float64, jax_floating
from .._libraries.kinds import dtype_name, gpu_of
from .._libraries.values import int_of
from .operators import Call
from .types import aligned

Array = Any


def refuse(out: Any, stream: Any, name: str = "out") -> None:
    if out is not None:
        raise TypeError(
            f"{name} is given, and JAX's arrays are immutable: call without {name}=, and use the result"
        )
    if stream is not None:
        raise ValueError("stream is given, and JAX's programs have their own stream: expected None")


def check_parts(array: Array, call: Call, where: Any, scale: Any) -> None:
    """Checks a call on rows that are cut over devices."""
    if len(call.axes) != 1 or np.ndim(array) == 0:
        raise ValueError(
            f"axis_name is given, and the rows of an array of {np.ndim(array)} dimensions run along "
            f"{len(call.axes)} axes: expected one axis, along which the rows are cut"
        )
    named = call.method not in ("auto", "invariant")
    if where is not None or scale is not None or call.scale_by != 1 or named:
        raise ValueError(
            "axis_name is given together with where, scale or a method's name: expected only axis, dtype, "
            "num_threads and the methods 'auto' and 'invariant' beside it"
        )


def _shown(array: Array) -> Any:
    """An array of the same shape and type that takes no memory, for checks."""
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def _array(value: Any) -> Array:
    """A mask or a scale of any library as a JAX array."""
    known = isinstance(value, (jax.Array, np.ndarray)) or gpu_of(value) is not None
    return jnp.asarray(value if known else as_numpy(value))


def take(
    operation: str,
    array: Array,
    axis: Any,
    method: str,
    dtype: Any,
    where: Any,
    scale: Any,
    num_threads: int | None,
    *,
    other: Any = None,
    k: Any = None,
) -> tuple[Array, Array | None, Array | None, Call]:
    """The arguments as the operators take them. An array of no dimension gets one dimension."""
    x = jax_floating(jnp.asarray(array))
    where = None if where is None or where is True else _array(where)
    if hasattr(scale, "__dlpack__") and not hasattr(scale, "__array__"):
        scale = as_numpy(scale)
    number = scale is None or (np.ndim(scale) == 0 and not isinstance(scale, jax.Array))
    scale = scale if number else _array(scale)
    axes = _core.check_call(
        _shown(x),
        axis,
        operation=operation,
        other=None if other is None else _shown(other),
        k=k,
        method=method,
        dtype=dtype,
        where=None if where is None else _shown(where),
        scale=scale if number else _shown(scale),
        num_threads=num_threads,
        device="cuda" if jax.default_backend() == "gpu" else None,
    )
    kind = jnp.dtype(x.dtype if dtype is None else dtype_name(dtype))
    if kind == np.float64:
        check_jax_float64()
    if x.ndim == 0:
        x, axes = x.reshape(1), (-1,)
    call = Call(
        operation,
        axes,
        kind,
        x.dtype,
        method,
        float(scale) if number else 1.0,
        _core.get_num_threads() if num_threads is None else min(int(num_threads), 2**31 - 1),
    )
    scale = None if number else _as_scale(scale)
    return *aligned(x, _of_all_dimensions(where, x), _of_all_dimensions(scale, x)), call


def take_logits(
    logits: Array,
    axis: int,
    num_threads: int | None,
    where: Any = None,
    scale: Any = 1.0,
    operation: str = "logsumexp",
    method: str = "auto",
    k: Any = None,
) -> tuple[Array, Array | None, Array | None, Call]:
    """Logits, a mask and a scale as the operators take them. `operation` checks them. The call's dtype is the
    type of real numbers for each row."""
    if np.ndim(logits) == 0:
        raise ValueError("logits has shape (): expected at least one dimension")
    *arrays, call = take(
        operation, logits, int_of("axis", axis), method, None, where, scale, num_threads, k=k
    )
    real = jnp.dtype("float64" if call.given == np.float64 else "float32")
    return *arrays, call._replace(dtype=real)


def check_shape(name: str, array: Array, expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise ValueError(f"{name} has shape {array.shape}: expected {expected}")


def _as_scale(scale: Array) -> Array:
    """The scale in a type that can hold it and that csrc/xla takes."""
    scale = jax_floating(scale)
    return scale.astype(jnp.result_type(jnp.float32, scale.dtype))


def _of_all_dimensions(array: Array | None, x: Array) -> Array | None:
    return None if array is None else array.reshape((1,) * (x.ndim - array.ndim) + array.shape)
