"""softmax and its relatives inside jax.jit, jax.grad, jax.vmap and the other transformations of JAX.

onsoftmax.softmax and the other functions call this module if they are given a JAX tracer. You need to call
this module only for rows that are cut over devices, inside jax.shard_map. `axis_name` is for such rows.

>>> import jax, onsoftmax as ons
>>> jax.jit(jax.grad(lambda x: ons.softmax(x)[0]))(jax.numpy.zeros(2))
Array([ 0.25, -0.25], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

try:
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError("onsoftmax.jax needs JAX 0.5 or later: pip install jax") from error

from ._jax import divergences, logprobs, losses, operators, ranks, routers, samplers
from ._jax.arguments import check_parts, refuse, take
from ._jax.types import parted
from ._libraries.jax import jax_floating
from ._libraries.values import check_topk, int_of
from ._logprob import LogProb
from ._losses import _Terms
from ._route import Route
from ._sample_arguments import FILTERS, PARAMETERS, wanted
from ._topk import TopK

if TYPE_CHECKING:
    from jax import Array
    from jax.typing import ArrayLike

    from ._types import Axis, DType, FilterOrder, MethodName, Reduction, SampleLogprob, Score, Side

__all__ = [
    "cross_entropy",
    "cross_entropy_with_grad",
    "filtered_softmax",
    "js_divergence",
    "js_divergence_with_grad",
    "kl_divergence",
    "kl_divergence_with_grad",
    "log_softmax",
    "log_softmax_backward",
    "logprob",
    "logsumexp",
    "route",
    "sample",
    "softmax",
    "softmax_backward",
    "softmax_topk",
]


def softmax(
    array: ArrayLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: None = None,
    num_threads: int | None = None,
    axis_name: Hashable = None,
) -> Array:
    """onsoftmax.softmax as a call that JAX compiles into a program, on the CPU or a GPU.

    Parameters
    ----------
    array : jax.Array or tracer, any shape
        Logits, dimensionless. float16, bfloat16, float32, and with jax_enable_x64 float64. Other numbers
        become JAX's default float.
    axis, method, dtype, where, scale
        As onsoftmax.softmax takes them. `where` and `scale` may be tracers too. Gradients flow to the array
        and to a scale that is an array.
    out, stream : None
        JAX's arrays are immutable, and its programs have their own stream.
    num_threads : int, optional
        The largest number of threads on a CPU. The default is get_num_threads() when the call is traced. It
        has no effect on a GPU.
    axis_name : str or tuple of str, optional
        Inside jax.shard_map: the axes of the mesh over which the rows are cut along `axis`. Each device has a
        part of every row. The devices exchange 40 bytes a row, and 16 bytes a row in the backward step. The
        result's bits do not depend on how many devices share a row (docs/rows-over-gpus.md). The result is
        differentiable once. axis_name can be combined with axis, dtype, num_threads and the methods auto and
        invariant only.

    Returns
    -------
    jax.Array
        Has the array's shape, and its type or `dtype`. The bits are the same as from onsoftmax.softmax on the
        same array outside a transformation.

    Raises
    ------
    ValueError, TypeError, AxisError
        As onsoftmax.softmax, when the call is traced.
    jax.errors.JaxRuntimeError
        When the program runs: if memory is short, or the GPU lacks something that the method needs.

    Notes
    -----
    The result is differentiable any number of times in reverse mode. The backward step is
    onsoftmax.softmax_backward. It needs only the result, not the array. vmap turns all mapped calls into one
    call. If XLA partitions a program by itself, each device gets the whole array. jax.shard_map avoids that.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018).
    """
    return _of_rows("softmax", array, axis, method, dtype, out, where, scale, stream, num_threads, axis_name)


def log_softmax(
    array: ArrayLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: None = None,
    num_threads: int | None = None,
    axis_name: Hashable = None,
) -> Array:
    """onsoftmax.log_softmax; all else is as in `softmax`."""
    return _of_rows(
        "log_softmax", array, axis, method, dtype, out, where, scale, stream, num_threads, axis_name
    )


def logsumexp(
    array: ArrayLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: None = None,
    num_threads: int | None = None,
    keepdims: bool = False,
    axis_name: Hashable = None,
) -> Array:
    """onsoftmax.logsumexp; all else is as in `softmax`.

    With axis_name the result is the same on all devices, but JAX treats it as a value that varies over them.
    jax.lax.pmean makes one value of it.
    """
    refuse(None, stream)
    x, where, scale, call = take("logsumexp", array, axis, method, None, where, scale, num_threads)
    if axis_name is None:
        y = operators.values(call, x, where, scale)
    else:
        check_parts(array, call, where, scale)
        y = ranks.values(call, axis_name, parted(x, axis_name))
    if np.ndim(array) == 0:
        return y.reshape(())
    return y if keepdims else jnp.squeeze(y, call.axes)


def softmax_topk(
    array: ArrayLike,
    /,
    k: int,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: None = None,
    num_threads: int | None = None,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: bool = False,
) -> TopK[Array, Array]:
    """onsoftmax.softmax_topk; all else is as in `softmax`."""
    refuse(None, stream)
    if return_normalizer:
        raise ValueError(
            "return_normalizer is not taken inside JAX's transformations: use logsumexp for its logarithm"
        )
    x, where, scale, call = take("softmax_topk", array, axis, method, dtype, where, scale, num_threads, k=k)
    call = call._replace(k=int(k), log=bool(log), sorted=bool(sorted))
    values, indices = operators.selected(call, x, where, scale)
    return TopK(values.reshape(()), indices.reshape(())) if np.ndim(array) == 0 else TopK(values, indices)


def softmax_backward(
    grad: ArrayLike,
    output: ArrayLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: None = None,
    num_threads: int | None = None,
) -> Array:
    """onsoftmax.softmax_backward; all else is as in `softmax`. Differentiable too."""
    return _of_gradient(
        "softmax_backward", grad, output, axis, method, dtype, out, where, scale, stream, num_threads
    )


def log_softmax_backward(
    grad: ArrayLike,
    output: ArrayLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: None = None,
    num_threads: int | None = None,
) -> Array:
    """onsoftmax.log_softmax_backward; all else is as in `softmax`. Differentiable too."""
    return _of_gradient(
        "log_softmax_backward", grad, output, axis, method, dtype, out, where, scale, stream, num_threads
    )


def cross_entropy(
    logits: ArrayLike,
    target: ArrayLike,
    /,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
    return_lse: bool = False,
    stream: None = None,
    num_threads: int | None = None,
) -> Any:
    """onsoftmax.cross_entropy as a call that JAX compiles into a program, on the CPU or a GPU.

    Parameters
    ----------
    logits : jax.Array or tracer, of at least one dimension
        As `softmax` takes its array. Gradients flow to the logits.
    target, axis, ignore_index, label_smoothing, z_loss, weight, reduction, return_lse
        As onsoftmax.cross_entropy takes them. `target` and `weight` may be tracers too.
    stream, num_threads
        As `softmax` takes them.

    Returns
    -------
    jax.Array, or (loss, lse) with return_lse
        As from onsoftmax.cross_entropy. The losses of the rows and their logsumexp have the same bits. JAX
        adds up the losses for "sum" and "mean", so the last bits can differ. The loss and the gradient of a
        row are NaN if its target is no class, also on the CPU.

    Raises
    ------
    ValueError, TypeError, AxisError
        As onsoftmax.cross_entropy, when the call is traced.

    Notes
    -----
    The result is differentiable once in reverse mode. JAX keeps the logits and the targets for the backward
    step. This step is one call, which reads the logits and writes the gradient. vmap turns all mapped calls
    into one call, unless it maps the weights.
    """
    terms = _Terms(axis, ignore_index, label_smoothing, z_loss, weight, reduction, stream, num_threads)
    loss, lse = losses.cross_entropy(terms, logits, target)
    return (loss, lse) if return_lse else loss


def cross_entropy_with_grad(
    logits: ArrayLike,
    target: ArrayLike,
    /,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
    return_lse: bool = False,
    grad_out: None = None,
    stream: None = None,
    num_threads: int | None = None,
) -> Any:
    """onsoftmax.cross_entropy_with_grad; all else is as in `cross_entropy`. Not differentiable."""
    refuse(grad_out, stream, "grad_out")
    terms = _Terms(axis, ignore_index, label_smoothing, z_loss, weight, reduction, stream, num_threads)
    loss, gradient, lse = losses.cross_entropy_with_grad(terms, logits, target)
    return (loss, gradient, lse) if return_lse else (loss, gradient)


def logprob(
    logits: ArrayLike,
    index: ArrayLike,
    /,
    axis: int = -1,
    *,
    entropy: bool = False,
    lse: bool = False,
    argmax: bool = False,
    rank: bool = False,
    topk: int = 0,
    stream: None = None,
    num_threads: int | None = None,
) -> Any:
    """onsoftmax.logprob as a call that JAX compiles into a program, on the CPU or a GPU.

    Parameters
    ----------
    logits : jax.Array or tracer, of at least one dimension
        As `softmax` takes its array. Gradients flow to the logits.
    index, axis, entropy, lse, argmax, rank, topk
        As onsoftmax.logprob takes them. `index` may be a tracer too.
    stream, num_threads
        As `softmax` takes them.

    Returns
    -------
    jax.Array or LogProb
        As from onsoftmax.logprob, with the same bits. argmax and rank are int32 unless jax_enable_x64 is on.
        If an index is out of range, its log-probability and the gradient of its row are NaN, and its rank is
        -1, also on the CPU.

    Raises
    ------
    ValueError, TypeError, AxisError
        As onsoftmax.logprob, when the call is traced.

    Notes
    -----
    Gradients flow from the log-probabilities, the entropy, the lse and the values of topk. The first three
    are differentiable once in reverse mode. JAX keeps the logits, the index and 24 bytes a row for the
    backward step. This step is one call, which reads the logits and writes the gradient. topk is a call of
    softmax_topk. vmap turns all mapped calls into one call.
    """
    found = logprobs.logprob(logits, index, axis, entropy, lse, argmax, rank, stream, num_threads)
    if not (entropy or lse or argmax or rank or topk):
        return found[0]
    largest = None
    if int_of("topk", topk):
        check_topk(topk, logits, axis)
        dtype = found[0].dtype.name
        largest = softmax_topk(logits, topk, axis, log=True, dtype=dtype, num_threads=num_threads)
    return LogProb(*found, largest)


def kl_divergence(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    stream: None = None,
    num_threads: int | None = None,
) -> Array:
    """onsoftmax.kl_divergence as a call that JAX compiles into a program, on the CPU or a GPU.

    Parameters
    ----------
    p_logits, q_logits : jax.Array or tracer, of at least one dimension
        As `softmax` takes its array. Gradients flow to both arrays.
    axis, scale, where, reduction
        As onsoftmax.kl_divergence takes them. `scale` and `where` may be tracers too. No gradient flows to
        `scale`.
    stream, num_threads
        As `softmax` takes them.

    Returns
    -------
    jax.Array
        As from onsoftmax.kl_divergence. The values of the rows have the same bits. JAX adds up the values for
        "sum" and "mean", so the last bits can differ.

    Raises
    ------
    ValueError, TypeError, AxisError
        As onsoftmax.kl_divergence, when the call is traced.

    Notes
    -----
    The result is differentiable once in reverse mode. JAX keeps both logits for the backward step. This step
    is a call for each side, which reads both logits and writes the gradient of the side. jax.jit leaves out
    the call if nothing uses the gradient. vmap turns all mapped calls into one call.
    """
    return divergences.value(
        p_logits,
        q_logits,
        axis,
        scale=scale,
        where=where,
        reduction=reduction,
        stream=stream,
        num_threads=num_threads,
    )


def kl_divergence_with_grad(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    wrt: Side = "p",
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    grad_out: None = None,
    stream: None = None,
    num_threads: int | None = None,
) -> tuple[Array, Array]:
    """onsoftmax.kl_divergence_with_grad; all else is as in `kl_divergence`. Not differentiable."""
    return divergences.with_grad(
        p_logits,
        q_logits,
        axis,
        wrt=wrt,
        scale=scale,
        where=where,
        reduction=reduction,
        grad_out=grad_out,
        stream=stream,
        num_threads=num_threads,
    )


def js_divergence(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    beta: float = 0.5,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    stream: None = None,
    num_threads: int | None = None,
) -> Array:
    """onsoftmax.js_divergence; all else is as in `kl_divergence`. beta is a number, not a tracer."""
    return divergences.value(
        p_logits,
        q_logits,
        axis,
        beta=beta,
        scale=scale,
        where=where,
        reduction=reduction,
        stream=stream,
        num_threads=num_threads,
    )


def js_divergence_with_grad(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    /,
    axis: int = -1,
    *,
    wrt: Side = "p",
    beta: float = 0.5,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    reduction: Reduction = "none",
    grad_out: None = None,
    stream: None = None,
    num_threads: int | None = None,
) -> tuple[Array, Array]:
    """onsoftmax.js_divergence_with_grad; all else is as in `js_divergence`. Not differentiable."""
    return divergences.with_grad(
        p_logits,
        q_logits,
        axis,
        wrt=wrt,
        beta=beta,
        scale=scale,
        where=where,
        reduction=reduction,
        grad_out=grad_out,
        stream=stream,
        num_threads=num_threads,
    )


def _of_rows(
    operation: str, array: Any, axis: Any, method: str, dtype: Any, out: Any, where: Any, scale: Any,
    stream: Any, num_threads: Any, axis_name: Hashable,
) -> Array:  # fmt: skip
    refuse(out, stream)
    x, where, scale, call = take(operation, array, axis, method, dtype, where, scale, num_threads)
    if axis_name is not None:
        check_parts(array, call, where, scale)
        return ranks.rows(call, axis_name, parted(x, axis_name))
    return operators.rows(call, x, where, scale).reshape(np.shape(array))


def _of_gradient(
    operation: str, grad: Any, output: Any, axis: Any, method: str, dtype: Any, out: Any, where: Any,
    scale: Any, stream: Any, num_threads: Any,
) -> Array:  # fmt: skip
    refuse(out, stream)
    grad = jax_floating(jnp.asarray(grad))
    y, where, scale, call = take(
        operation, output, axis, method, dtype, where, scale, num_threads, other=grad
    )
    if dtype is None:
        call = call._replace(
            dtype=grad.dtype if grad.dtype == y.dtype else jnp.promote_types(grad.dtype, y.dtype)
        )
    return operators.gradient(call, grad.reshape(y.shape), y, where, scale).reshape(np.shape(output))


def route(
    logits: ArrayLike,
    /,
    k: int,
    axis: int = -1,
    *,
    score: Score = "softmax",
    bias: ArrayLike | None = None,
    groups: int = 1,
    top_groups: int | None = None,
    renormalize: bool = True,
    scale: float = 1.0,
    index_dtype: Any = None,
    where: ArrayLike | None = None,
    method: str = "auto",
    stream: None = None,
    num_threads: int | None = None,
) -> Route:
    """onsoftmax.route as a call that JAX compiles into a program, on the CPU or a GPU.

    Parameters
    ----------
    logits : jax.Array or tracer, of at least one dimension
        As `softmax` takes its array. Gradients flow to the logits, and to no other argument.
    k, axis, score, bias, groups, top_groups, renormalize, scale, index_dtype, where, method
        As onsoftmax.route takes them. `bias` and `where` may be tracers too.
    stream, num_threads
        As `softmax` takes them.

    Returns
    -------
    Route
        As from onsoftmax.route, with the same bits. The indices are int32 unless jax_enable_x64 is on.

    Raises
    ------
    ValueError, TypeError, AxisError
        As onsoftmax.route, when the call is traced.

    Notes
    -----
    The weights are differentiable any number of times in reverse mode. The chosen experts are constant. JAX
    keeps the logits and the indices for the backward step. vmap turns all mapped calls into one call, unless
    it maps the bias.
    """
    weights, indices = routers.route(
        logits,
        k,
        axis,
        score=score,
        bias=bias,
        groups=groups,
        top_groups=top_groups,
        renormalize=renormalize,
        scale=scale,
        index_dtype=index_dtype,
        where=where,
        method=method,
        stream=stream,
        num_threads=num_threads,
    )
    return Route(weights, indices)


def sample(
    logits: ArrayLike,
    /,
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    seed: ArrayLike,
    offset: ArrayLike = 0,
    filter_apply_order: FilterOrder = "top_k_first",
    return_logprob: bool | SampleLogprob = False,
    return_valid: bool = False,
    axis: int = -1,
    where: ArrayLike | None = None,
    method: str = "auto",
    stream: None = None,
    num_threads: int | None = None,
) -> Any:
    """onsoftmax.sample as a call that JAX compiles into a program, on the CPU or a GPU.

    Parameters
    ----------
    logits : jax.Array or tracer, of at least one dimension
        As `softmax` takes its array.
    temperature, top_k, top_p, min_p, seed, offset
        As onsoftmax.sample takes them. Each may be a tracer too. A traced number counts as an array with one
        element.
    filter_apply_order, return_logprob, return_valid, axis, where, method
        As onsoftmax.sample takes them. `where` may be a tracer too.
    stream, num_threads
        As `softmax` takes them.

    Returns
    -------
    indices, or a tuple (indices, logprob, valid)
        As from onsoftmax.sample, with the same bits. Indices are int32 unless jax_enable_x64 is on.

    Raises
    ------
    ValueError, TypeError, AxisError
        As onsoftmax.sample, when the call is traced.
    RuntimeError
        JAX differentiates a call with return_logprob.

    Notes
    -----
    No gradient flows. JAX differentiates a program as if the indices were constant. vmap turns all mapped
    calls into one call. Each mapped call gives the tokens that it would give as a separate call. So
    mapped calls that share a seed and an offset have the same random numbers: map the seed or the offset
    too. The same holds for the devices of jax.shard_map.
    """
    found = samplers.sample(
        logits,
        dict(zip(PARAMETERS, (temperature, top_k, top_p, min_p, seed, offset), strict=True)),
        filter_apply_order=filter_apply_order,
        return_logprob=return_logprob,
        axis=axis,
        where=where,
        method=method,
        stream=stream,
        num_threads=num_threads,
    )
    return wanted(found, return_logprob, return_valid)


def filtered_softmax(
    logits: ArrayLike,
    /,
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    filter_apply_order: FilterOrder = "top_k_first",
    axis: int = -1,
    where: ArrayLike | None = None,
    method: str = "auto",
    stream: None = None,
    num_threads: int | None = None,
) -> Array:
    """onsoftmax.filtered_softmax as a call that JAX compiles into a program, on the CPU or a GPU.

    Parameters
    ----------
    logits : jax.Array or tracer, of at least one dimension
        As `softmax` takes its array. Gradients flow to the logits, and to no other argument.
    temperature, top_k, top_p, min_p, filter_apply_order, axis, where, method, stream, num_threads
        As `sample` takes them.

    Returns
    -------
    jax.Array
        As from onsoftmax.filtered_softmax, with the same bits.

    Raises
    ------
    ValueError, TypeError, AxisError
        As onsoftmax.filtered_softmax, when the call is traced.

    Notes
    -----
    The result is differentiable any number of times in reverse mode. The kept tokens are constant. The
    backward step is onsoftmax.softmax_backward. For this step, JAX keeps the result, the mask, and a
    number for each row if the temperature is an array. vmap turns all mapped calls into one call.
    """
    return samplers.filtered_softmax(
        logits,
        dict(zip(FILTERS, (temperature, top_k, top_p, min_p), strict=True)),
        filter_apply_order=filter_apply_order,
        axis=axis,
        where=where,
        method=method,
        stream=stream,
        num_threads=num_threads,
    )


OPERATORS = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "softmax_topk": softmax_topk,
    "softmax_backward": softmax_backward,
    "log_softmax_backward": log_softmax_backward,
    "cross_entropy": cross_entropy,
    "cross_entropy_with_grad": cross_entropy_with_grad,
    "logprob": logprob,
    "kl_divergence": kl_divergence,
    "kl_divergence_with_grad": kl_divergence_with_grad,
    "js_divergence": js_divergence,
    "js_divergence_with_grad": js_divergence_with_grad,
    "route": route,
    "sample": sample,
    "filtered_softmax": filtered_softmax,
}
