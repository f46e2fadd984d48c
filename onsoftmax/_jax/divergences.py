"""kl_divergence and js_divergence as calls of XLA's foreign function interface (csrc/xla). A call gives a
value for each row, and JAX reduces the values.

Arrays with an entry for each row have all dimensions of the logits, and length 1 along the axis.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._divergences import check_divergence, operation_of
from .._libraries.jax import jax_floating
from .arguments import check_shape, refuse, take_logits
from .mapping import in_one_call
from .operators import Call, run
from .types import aligned, result

Array = Any


class Divergence(NamedTuple):
    """What is known about a divergence when it is traced, besides the arrays' shapes and types."""

    call: Call  # its dtype is the type of the values
    beta: float | None  # None for kl_divergence


def _run(of: Divergence, wrt: str | None, *arrays: Array | None) -> tuple[Array, ...]:
    """The values of the rows. With `wrt`, the gradient of this side comes first.

    The arrays are p_logits, q_logits, the mask, the scale, and the gradients of the values."""
    operation, beta = operation_of(of.beta, wrt or "p")

    def call(logits: Array, other: Array, *more: Array | None) -> tuple[Array, ...]:
        results = [result(of.call.shape(other, 1), of.call.dtype, logits)]
        if wrt is not None:
            results.insert(0, result(other.shape, logits.dtype, logits))
        arrays = dict(zip("xgwsl", (logits, other, *more), strict=True))
        found = run(of.call._replace(operation=operation), results, arrays, beta=np.float64(beta))
        return tuple(found)

    p_logits, q_logits, *more = arrays
    sides = (q_logits, p_logits) if wrt == "q" else (p_logits, q_logits)
    return in_one_call(call, *sides, *more)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rows(of: Divergence, *given: Array | None) -> Array:
    return _run(of, None, *given, None)[0]


def _rows_forward(of: Divergence, *given: Array | None) -> Any:
    return _rows(of, *given), given


def _rows_backward(of: Divergence, kept: Any, grad: Array) -> Any:
    """A call for each side, which reads both logits again. XLA leaves out a call that nothing uses."""
    return *(_run(of, wrt, *kept, grad)[0] for wrt in "pq"), None, None


_rows.defvjp(_rows_forward, _rows_backward)


def _take(
    p_logits: Any,
    q_logits: Any,
    axis: int,
    beta: float | None,
    scale: Any,
    where: Any,
    num_threads: int | None,
) -> tuple[Divergence, list[Array | None]]:
    """The arguments as the calls take them."""
    x, where, scale, call = take_logits(p_logits, axis, num_threads, where, scale)
    other = jax_floating(jnp.asarray(q_logits))
    check_shape("the other array of logits", other, x.shape)
    if other.dtype != x.dtype:
        raise TypeError(
            f"one array of logits has dtype {x.dtype}, the other has {other.dtype}: expected the same dtype"
        )
    of = Divergence(call, None if beta is None else float(beta))
    return of, aligned(x, other, where, None if scale is None else jax.lax.stop_gradient(scale))


def value(
    p_logits: Any,
    q_logits: Any,
    axis: int,
    *,
    beta: float | None = None,
    scale: Any,
    where: Any,
    reduction: str,
    stream: Any,
    num_threads: int | None,
) -> Array:
    check_divergence(reduction, beta=beta)
    refuse(None, stream)
    of, given = _take(p_logits, q_logits, axis, beta, scale, where, num_threads)
    return _reduced(of, reduction, _rows(of, *given))


def _reduced(of: Divergence, reduction: str, values: Array) -> Array:
    if reduction == "none":
        return values.squeeze(of.call.axes)
    return values.mean() if reduction == "mean" else values.sum()


def with_grad(
    p_logits: Any,
    q_logits: Any,
    axis: int,
    *,
    wrt: str,
    beta: float | None = None,
    scale: Any,
    where: Any,
    reduction: str,
    grad_out: Any,
    stream: Any,
    num_threads: int | None,
) -> tuple[Array, Array]:
    check_divergence(reduction, wrt, beta)
    refuse(grad_out, stream, "grad_out")
    of, given = _take(p_logits, q_logits, axis, beta, scale, where, num_threads)
    grad = None
    if reduction == "mean":
        shape = of.call.shape(given[0], 1)
        grad = jnp.full(shape, 1 / max(math.prod(shape), 1), of.call.dtype)
    gradient, values = _run(of, wrt, *aligned(*given, grad))
    return _reduced(of, reduction, values), gradient
