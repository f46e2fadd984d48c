"""The operations as calls of XLA's foreign function interface (csrc/xla), and their gradients.

A gradient is a call of the same target and has a gradient of its own, so there are higher derivatives. Each
array has all dimensions of the first array. A dimension along which it does not change has length 1. Axes
count from the end. So vmap adds its dimension in front, and there is still one call.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np

from .. import _core
from .types import result

Array = Any
_TARGET = "onsoftmax"
for _platform in ("cpu", "CUDA"):
    jax.ffi.register_ffi_target(_TARGET, _core.xla_target(_platform), platform=_platform)


class Call(NamedTuple):
    """What is known about a call when it is traced, besides the arrays' shapes and types."""

    operation: str
    axes: tuple[int, ...]
    dtype: Any  # of the result
    given: Any  # the type of the array
    method: str = "auto"
    scale_by: float = 1.0
    num_threads: int = 1
    k: int = 0
    log: bool = False
    sorted: bool = True

    def again(self, operation: str, dtype: Any) -> Call:
        """The call of another operation on the same rows, which chooses its own method. invariant is a
        promise for the gradient too."""
        method = self.method if self.method == "invariant" else "auto"
        return self._replace(operation=operation, dtype=dtype, given=dtype, method=method)

    def shape(self, x: Array, along: int) -> tuple[int, ...]:
        """The array's shape, with another length along the axes."""
        return tuple(along if i - x.ndim in self.axes else n for i, n in enumerate(x.shape))

    def scaled(self, x: Array, scale: Array | None) -> Array:
        return x * (self.scale_by if scale is None else scale.astype(x.dtype))

    def total(self, x: Array) -> Array:
        return x.sum(self.axes, keepdims=True)


def run(
    call: Call, results: Any, arrays: dict[str, Array | None], flags: int = 0, **attributes: np.generic
) -> Any:
    """Calls the target. A letter says what each array is: csrc/xla/call.c."""
    given = {letter: array for letter, array in arrays.items() if array is not None}
    return jax.ffi.ffi_call(_TARGET, results, vmap_method="expand_dims")(
        *given.values(),
        operation=call.operation,
        operands="".join(given),
        axes=np.array(call.axes, np.int64),
        method=call.method,
        scale=np.float64(call.scale_by),
        num_threads=np.int32(call.num_threads),
        flags=np.int32(flags),
        **attributes,
    )


def _allowed(x: Array, where: Array | None) -> Array:
    """x with 0 at excluded elements."""
    return x if where is None else jnp.where(where, x, 0)


def _wide(*arrays: Array) -> list[Array]:
    """The arrays in a type that is wide enough for sums."""
    dtype = jnp.result_type(jnp.float32, *(array.dtype for array in arrays))
    return [array.astype(dtype) for array in arrays]


def _of_scale(scale: Array | None, x: Array, unscaled: Array) -> Array | None:
    """The gradient of a scale. `unscaled` is the gradient of scale * x."""
    if scale is None:
        return None
    x, unscaled = _wide(x, unscaled)
    shared = tuple(i for i, n in enumerate(scale.shape) if n == 1)
    return (x * unscaled).sum(shared, keepdims=True).astype(scale.dtype)


# ---------------------------------------------------------------- softmax, log_softmax


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def rows(call: Call, x: Array, where: Array | None, scale: Array | None) -> Array:
    """softmax and log_softmax."""
    return run(call, result(x.shape, call.dtype, x), {"x": x, "w": where, "s": scale})


def _rows_forward(call: Call, x: Array, where: Array | None, scale: Array | None) -> Any:
    y = rows(call, x, where, scale)
    return y, (None if scale is None else x, y, where, scale)


def _rows_backward(call: Call, kept: Any, grad: Array) -> Any:
    x, y, where, scale = kept
    step = call.again(f"{call.operation}_backward", call.given)
    for_x = gradient(step, grad, y, where, scale)
    if scale is None:
        return for_x, None, None
    return for_x, None, _of_scale(scale, x, gradient(step, grad, y, where, None))


rows.defvjp(_rows_forward, _rows_backward)


# ---------------------------------------------------------------- logsumexp


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def values(call: Call, x: Array, where: Array | None, scale: Array | None) -> Array:
    """logsumexp, whose result has length 1 along the axes."""
    return run(call, result(call.shape(x, 1), call.dtype, x), {"x": x, "w": where, "s": scale})


def _values_forward(call: Call, x: Array, where: Array | None, scale: Array | None) -> Any:
    return values(call, x, where, scale), (x, where, scale)


def _values_backward(call: Call, kept: Any, grad: Array) -> Any:
    x, where, scale = kept
    unscaled = _allowed(grad * rows(call.again("softmax", x.dtype), x, where, scale), where)
    return call.scaled(unscaled, scale).astype(x.dtype), None, _of_scale(scale, x, unscaled)


values.defvjp(_values_forward, _values_backward)


# ---------------------------------------------------------------- softmax_topk


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def selected(call: Call, x: Array, where: Array | None, scale: Array | None) -> tuple[Array, Array]:
    """softmax_topk: values and indices."""
    shape = call.shape(x, call.k)
    indices = jax.dtypes.canonicalize_dtype(np.int64)
    results = (result(shape, call.dtype, x), result(shape, indices, x))
    flags = _core.XLA_LOG * call.log | _core.XLA_SORTED * call.sorted
    found: tuple[Array, Array] = run(call, results, {"x": x, "w": where, "s": scale}, flags)
    return found


def _selected_forward(call: Call, x: Array, where: Array | None, scale: Array | None) -> Any:
    found = selected(call, x, where, scale)
    return found, (x, where, scale, found[1])


def _selected_backward(call: Call, kept: Any, grads: tuple[Array, Array]) -> Any:
    """The gradient of the whole row, from which k elements were taken."""
    x, where, scale, indices = kept
    whole = call.again("log_softmax" if call.log else "softmax", call.dtype)
    _, back = jax.vjp(lambda x, scale: rows(whole._replace(given=x.dtype), x, where, scale), x, scale)
    spread = jnp.put_along_axis(
        jnp.zeros(x.shape, call.dtype), indices, grads[0], call.axes[0], inplace=False
    )
    for_x, for_scale = back(spread)
    return for_x, None, for_scale


selected.defvjp(_selected_forward, _selected_backward)


# ---------------------------------------------------------------- the gradients, which also have gradients


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def gradient(call: Call, grad: Array, output: Array, where: Array | None, scale: Array | None) -> Array:
    """softmax_backward and log_softmax_backward."""
    made = result(output.shape, call.dtype, output)
    return run(call, made, {"g": grad, "x": output, "w": where, "s": scale})


def _gradient_forward(call: Call, *given: Array | None) -> Any:
    return gradient(call, *given), given


def _gradient_backward(call: Call, kept: Any, change: Array) -> Any:
    """The gradient of a gradient, with a change v of it.

    The gradient s y (g - sum(g y)) of softmax gives s y (v - sum(v y)) for g, and for y
    s (v (g - sum(g y)) - g sum(v y)). The gradient s (g - e^y sum(g)) of log_softmax gives
    s (v - sum(v e^y)) for g, and -s v e^y sum(g) for y."""
    grad, output, where, scale = kept
    g, y, v = (_allowed(each, where) for each in _wide(grad, output, change))
    if call.operation == "softmax_backward":
        unscaled = y * (g - call.total(g * y))
        for_grad = y * (v - call.total(v * y))
        for_output = v * (g - call.total(g * y)) - g * call.total(v * y)
    else:
        p = _allowed(jnp.exp(output.astype(y.dtype)), where)
        unscaled = g - p * call.total(g)
        for_grad = v - call.total(v * p)
        for_output = -v * p * call.total(g)
    by_scale = _of_scale(scale, v, _allowed(unscaled, where))
    for_grad, for_output = (_allowed(call.scaled(each, scale), where) for each in (for_grad, for_output))
    return for_grad.astype(grad.dtype), for_output.astype(output.dtype), None, by_scale


gradient.defvjp(_gradient_forward, _gradient_backward)
