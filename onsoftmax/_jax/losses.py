"""cross_entropy as a call of XLA's foreign function interface (csrc/xla). The call gives a loss for each row,
and JAX reduces the losses.

Arrays with an entry for each row have all dimensions of the logits, and length 1 along the axis.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._losses import _prepared, _Terms
from .arguments import check_shape, refuse, take_logits
from .mapping import in_one_call
from .operators import Call, run
from .types import aligned, result

Array = Any


class Loss(NamedTuple):
    """What is known about a loss when it is traced, besides the arrays' shapes and types."""

    call: Call  # its dtype is the type of the losses
    ignore_index: int
    label_smoothing: float
    z_loss: float


def _run(loss: Loss, gradient: bool, *arrays: Array) -> tuple[Array, ...]:
    """The losses and the logsumexp of the rows. With `gradient`, the gradient comes first.

    The arrays are the logits, the targets, the weights of the classes, and the gradients of the losses."""

    def call(*arrays: Array) -> tuple[Array, ...]:
        x, target = arrays[:2]
        of_rows = result(target.shape, loss.call.dtype, x)
        of_x = result(loss.call.shape(target, x.shape[loss.call.axes[0]]), x.dtype, x)
        found: tuple[Array, ...] = run(
            loss.call._replace(operation="cross_entropy_with_grad" if gradient else "cross_entropy"),
            (of_x, of_rows, of_rows) if gradient else (of_rows, of_rows),
            dict(zip("xtcl", arrays, strict=True)),
            ignore_index=np.int64(loss.ignore_index),
            label_smoothing=np.float64(loss.label_smoothing),
            z_loss=np.float64(loss.z_loss),
        )
        return found

    return in_one_call(call, *arrays, shared=2)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rows(loss: Loss, x: Array, target: Array, weight: Array | None) -> tuple[Array, ...]:
    return _run(loss, False, x, target, weight, None)


def _rows_forward(loss: Loss, *given: Array | None) -> Any:
    return _rows(loss, *given), given


def _rows_backward(loss: Loss, kept: Any, grads: tuple[Array, Array]) -> Any:
    """One call, which reads the logits again. No gradient flows through lse."""
    return _run(loss, True, *kept, grads[0])[0], None, None


_rows.defvjp(_rows_forward, _rows_backward)


def _take(terms: _Terms, logits: Any, target: Any) -> tuple[Loss, Array, Array, Array | None]:
    """The arguments as the calls take them."""
    refuse(None, terms.stream)
    x, _, _, call = take_logits(logits, terms.axis, terms.num_threads)
    (axis,) = call.axes
    target = jnp.expand_dims(jnp.asarray(_prepared("target", target, ("int64", "int32"))), axis)
    check_shape("target", target.squeeze(axis), (*x.shape[:axis], *x.shape[x.ndim + axis + 1 :]))
    weight = terms.weight
    if weight is not None:
        weight = jax.lax.stop_gradient(jnp.asarray(_prepared("weight", weight, (call.dtype.name,))))
        check_shape("weight", weight, (x.shape[axis],))
    loss = Loss(call, terms.ignore_index, terms.label_smoothing, terms.z_loss)
    return loss, *aligned(x, target, weight)


def _divisor(loss: Loss, N: int, target: Array, weight: Array | None) -> Array:
    """The sum of the weights of the targets."""
    counts = (target >= 0) & (target < N)
    if 0 <= loss.ignore_index < N:
        counts &= target != loss.ignore_index
    if weight is None or N == 0:
        return counts.sum().astype(loss.call.dtype)
    return jnp.where(counts, jnp.take(weight, target, mode="clip"), 0).sum()


def cross_entropy(terms: _Terms, logits: Any, target: Any) -> tuple[Array, Array]:
    """(loss, lse)."""
    loss, x, target, weight = _take(terms, logits, target)
    (axis,) = loss.call.axes
    losses, lse = (each.squeeze(axis) for each in _rows(loss, x, target, weight))
    if terms.reduction != "none":
        losses = losses.sum()
    if terms.reduction == "mean":
        losses /= _divisor(loss, x.shape[axis], target, weight)
    return losses, lse


def cross_entropy_with_grad(terms: _Terms, logits: Any, target: Any) -> tuple[Array, Array, Array]:
    """(loss, gradient, lse)."""
    loss, x, target, weight = _take(terms, logits, target)
    (axis,) = loss.call.axes
    given = None
    if terms.reduction == "mean":
        divisor = _divisor(loss, x.shape[axis], target, weight)
        given = jnp.broadcast_to(1 / divisor, target.shape)
    gradient, *of_rows = _run(loss, True, x, target, weight, given)
    losses, lse = (each.squeeze(axis) for each in of_rows)
    if terms.reduction != "none":
        losses = losses.sum()
    if terms.reduction == "mean":
        losses /= divisor
    return losses, gradient, lse
