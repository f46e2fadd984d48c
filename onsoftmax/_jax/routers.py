"""route as a call of XLA's foreign function interface (csrc/xla), and its gradient."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._libraries.kinds import index_dtype_name
from .._libraries.values import float_of, int_of
from .._losses import _prepared
from .._route import SCORES, check_groups, check_names
from .arguments import check_shape, refuse, take_logits
from .mapping import in_one_call
from .operators import Call, rows, run
from .types import aligned, result

Array = Any


class Router(NamedTuple):
    """What is known about a router when it is traced, besides the arrays' shapes and types."""

    call: Call  # its dtype is the type of the weights, and scale_by their factor
    score: str
    groups: int
    top_groups: int
    renormalize: bool
    indices: Any  # their type

    def run(self, x: Array, where: Array | None, bias: Array | None) -> tuple[Array, ...]:
        call, shape = self.call, x.shape
        if where is not None:  # vmap may map the mask alone
            shape = np.broadcast_shapes(shape, where.shape)
        shape = tuple(call.k if i - len(shape) in call.axes else n for i, n in enumerate(shape))
        weights, indices = run(
            call._replace(operation="route"),
            (result(shape, call.dtype, x), result(shape, self.indices, x)),
            {"x": x, "w": where, "b": bias},
            score=np.int32(SCORES.index(self.score)),
            groups=np.int64(self.groups),
            top_groups=np.int64(self.top_groups),
            renormalize=np.int32(self.renormalize),
        )
        return weights, indices


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _routed(of: Router, x: Array, where: Array | None, bias: Array | None) -> tuple[Array, ...]:
    return in_one_call(of.run, x, where, bias, shared=2)


def _routed_forward(of: Router, x: Array, where: Array | None, bias: Array | None) -> Any:
    found = _routed(of, x, where, bias)
    return found, (x, where, found[1])


def _log_of_score(score: str, x: Array) -> tuple[Array, Any]:
    """The logarithm of an expert's score, up to a constant for its row, and its derivative."""
    if score == "sigmoid":
        return jax.nn.log_sigmoid(x), jax.nn.sigmoid(-x)
    if score == "sqrtsoftplus":  # the root of softplus is exp(x / 2) below -60
        near, below = jnp.maximum(x, -60), jnp.minimum(x, -60) + 60
        softplus = jax.nn.softplus(near)
        return (jnp.log(softplus) + below) / 2, jax.nn.sigmoid(near) / (2 * softplus)
    return x, 1.0


def _routed_backward(of: Router, kept: Any, grads: tuple[Array, Array]) -> Any:
    """The chosen experts are constant. Renormalized weights are the softmax of the logarithms of k scores."""
    x, where, indices = kept
    (axis,), dtype = of.call.axes, of.call.dtype
    g = of.call.scale_by * grads[0]

    def spread(values: Array) -> Array:
        return jnp.put_along_axis(jnp.zeros(x.shape, dtype), indices, values, axis, inplace=False)

    if of.score == "softmax" and not of.renormalize:
        whole = of.call.again("softmax", dtype)._replace(given=x.dtype, scale_by=1.0)
        _, back = jax.vjp(lambda x: rows(whole, x, where, None), x)
        return back(spread(g))[0], None, None
    chosen = jnp.take_along_axis(x, indices, axis).astype(dtype)
    allowed = jnp.ones(chosen.shape, bool)
    if where is not None:
        allowed = jnp.take_along_axis(jnp.broadcast_to(where, x.shape), indices, axis)
    chosen, g = jnp.where(allowed, chosen, 0), jnp.where(allowed, g, 0)
    log_s, slope = _log_of_score(of.score, chosen)
    if of.renormalize:
        if of.score in ("sigmoid", "sqrtsoftplus"):  # a row in which all scores are 0 has the weights 0
            allowed &= log_s > -jnp.inf
        largest = log_s.max(axis, keepdims=True, initial=-jnp.inf, where=allowed)
        e = jnp.where(allowed, jnp.exp(log_s - largest), 0)
        total = e.sum(axis, keepdims=True)
        p = e / jnp.where(total == 0, 1, total)
        of_k = slope * p * (g - (p * g).sum(axis, keepdims=True))
    else:
        of_k = g if of.score == "none" else g * slope * jnp.exp(log_s)
    return spread(of_k).astype(x.dtype), None, None


_routed.defvjp(_routed_forward, _routed_backward)


def route(
    logits: Any,
    k: int,
    axis: int,
    *,
    score: str,
    bias: Any,
    groups: int,
    top_groups: int | None,
    renormalize: bool,
    scale: float,
    index_dtype: Any,
    where: Any,
    method: str,
    stream: Any,
    num_threads: int | None,
) -> tuple[Array, ...]:
    """(weights, indices)."""
    check_names(score, method)
    refuse(None, stream)
    x, where, _, call = take_logits(
        logits, axis, num_threads, where, operation="softmax_topk", method=method, k=k
    )
    k, length, groups = operator.index(k), x.shape[call.axes[0]], int_of("groups", groups)
    few = groups if top_groups is None else int_of("top_groups", top_groups)
    check_groups(k, length, groups, few)
    if bias is not None:
        bias = jax.lax.stop_gradient(jnp.asarray(_prepared("bias", bias, (call.dtype.name,))))
        check_shape("bias", bias, (length,))
    indices = jax.dtypes.canonicalize_dtype("int64" if index_dtype is None else index_dtype_name(index_dtype))
    call = call._replace(k=k, scale_by=float_of("scale", scale))
    of = Router(call, score, groups, few, bool(renormalize), indices)
    found: tuple[Array, ...] = _routed(of, *aligned(x, where, bias))
    return found
