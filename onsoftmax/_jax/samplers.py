"""sample and filtered_softmax as calls of XLA's foreign function interface (csrc/xla).

Arrays with an entry for each row have all dimensions of the logits, with length 1 along the axis. JAX has no
64-bit types by default. So an array of 64-bit numbers from another library becomes uint32 words, with a last
dimension of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._libraries import as_numpy
from .._libraries.jax import jax_has_64_bits
from .._libraries.kinds import gpu_of
from .._sample import of_rows
from .._sample_arguments import (
    FILTERS,
    GREEDY_BELOW,
    INTEGERS,
    LOGPROBS,
    PARAMETERS,
    check_names,
    logprob_name,
)
from .arguments import check_shape, refuse, take_logits
from .mapping import in_one_call
from .operators import Call, gradient, run
from .types import aligned, result

Array = Any
_LETTERS = "tkpmso"  # of the parameters


class Sampler(NamedTuple):
    """What is known about a call when it is traced, besides the arrays' shapes and types."""

    call: Call  # its dtype is the type of the results that are no tokens
    attributes: tuple[tuple[str, Any], ...]  # with the parameters that are no arrays

    def run(self, x: Array, where: Array | None, *parameters: Array | None) -> tuple[Array, ...]:
        """The log-probabilities, the indices, and which rows are valid. filtered_softmax has one result."""
        dims, real = x.ndim, self.call.dtype
        shapes = [each.shape[:dims] for each in (x, where, *parameters) if each is not None]
        whole = np.broadcast_shapes(*shapes)  # vmap may map any array alone
        rows = tuple(1 if i - dims in self.call.axes else n for i, n in enumerate(whole))
        arrays = {
            letter: _of_all_rows(each, rows)
            for letter, each in zip(_LETTERS[: len(parameters)], parameters, strict=True)
        }
        results = [result(whole, real, x)]
        if self.call.operation == "sample":
            indices = jax.dtypes.canonicalize_dtype(np.int64)
            results = [result(rows, dtype, x) for dtype in (real, indices, np.bool_)]
        found: tuple[Array, ...] = run(
            self.call, results, {"x": x, "w": where, **arrays}, **dict(self.attributes)
        )
        return tuple(found)


def _of_all_rows(array: Array | None, shape: tuple[int, ...]) -> Array | None:
    """A parameter with a number for each row, or with one number for all rows."""
    if array is None or set(array.shape[: len(shape)]) <= {1}:
        return array
    return jnp.broadcast_to(array, (*shape, *array.shape[len(shape) :]))


def _prepared(name: str, value: Any) -> Any:
    """A number for all rows, or an array that has its final type in JAX or NumPy."""
    if isinstance(value, jax.Array) and value.dtype == np.uint32 and name in INTEGERS:
        return value  # int32 would make a large number negative
    value = of_rows(name, value)
    if isinstance(value, (int, float, jax.Array)):
        return value
    return jnp.asarray(value) if gpu_of(value) is not None else of_rows(name, as_numpy(value))


def _as_argument(name: str, array: Array, rows: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """An array with a number for each row, or with one number, as the call takes it. `rows` is the shape of
    the rows, and `shape` has all dimensions."""
    if array.size == 1:
        shape = (1,) * len(shape)
    else:
        check_shape(name, array, rows)
    if isinstance(array, np.ndarray) and array.itemsize == 8 and not jax_has_64_bits():
        return jnp.asarray(array.reshape(*shape, 1).view(np.uint32))
    array = jnp.asarray(array).reshape(shape)
    if array.dtype != np.uint32:
        return array
    if jax_has_64_bits():
        return array.astype(np.int64)
    return jnp.stack([array, jnp.zeros_like(array)], axis=-1)  # the words of 64-bit numbers


def _taken(
    operation: str,
    names: Sequence[str],
    logits: Any,
    parameters: dict[str, Any],
    *,
    filter_apply_order: str,
    axis: int,
    where: Any,
    method: str,
    stream: Any,
    num_threads: int | None,
) -> tuple[Sampler, dict[str, Any], Array, Array | None, list[Array | None]]:
    """The call, all parameters by their names, the logits, the mask, and the parameters that are arrays."""
    check_names(filter_apply_order, method, operation)
    given = {name: _prepared(name, parameters[name]) for name in names}
    refuse(None, stream)
    if (
        operation == "filtered_softmax"
    ):  # it may be a softmax, whose rows shall have the same bits in any batch
        method = "invariant"
    x, where, _, call = take_logits(logits, axis, num_threads, where, method=method)
    if x.shape[call.axes[0]] == 0:
        raise ValueError("logits has rows of length 0: expected at least 1")
    shape, rows = call.shape(x, 1), _rows_of(x, call)
    numbers = {name: each for name, each in given.items() if isinstance(each, (int, float))}
    arrays = [None if name in numbers else _as_argument(name, given[name], rows, shape) for name in names]
    attributes: dict[str, Any] = {
        name: (np.int64 if name in INTEGERS else np.float64)(number) for name, number in numbers.items()
    }
    attributes["joint"] = np.int32(filter_apply_order == "joint")
    of = Sampler(call._replace(operation=operation), tuple(attributes.items()))
    return of, given, x, where, arrays


def _rows_of(x: Array, call: Call) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(x.shape) if i - x.ndim not in call.axes)


# ---------------------------------------------------------------- sample


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _sampled(of: Sampler, *arrays: Array | None) -> tuple[Array, ...]:
    return in_one_call(of.run, *arrays)


@_sampled.defjvp  # type: ignore[untyped-decorator]
def _refuse_gradient(of: Sampler, *_: Any) -> Any:
    raise RuntimeError(
        "no gradient flows through the log-probability of sample: pass jax.lax.stop_gradient of the logits "
        "and of the parameters, and take the log-probability of the indices by logprob"
    )


def sample(
    logits: Any, parameters: dict[str, Any], *, return_logprob: Any, **terms: Any
) -> tuple[Array, Array, Array]:
    """(indices, logprob, valid). If logprob is not wanted, it has no meaning."""
    logprob = logprob_name(return_logprob)
    of, given, x, where, arrays = _taken("sample", PARAMETERS, logits, parameters, **terms)
    rows = _rows_of(x, of.call)
    seed = given["seed"]
    own_seeds = not isinstance(seed, int) and seed.size != 1
    of_draws = (
        ("logprob", np.int32(0 if logprob is None else 1 + LOGPROBS.index(logprob))),
        ("period", np.int64(1 if own_seeds else max(math.prod(rows), 1))),
    )
    of = of._replace(attributes=of.attributes + of_draws)
    if logprob is None:  # nothing that has a gradient
        x, *arrays = (each if each is None else jax.lax.stop_gradient(each) for each in (x, *arrays))
    chances, indices, valid = (each.reshape(rows) for each in _sampled(of, *aligned(x, where, *arrays)))
    return indices, chances, valid


# ---------------------------------------------------------------- filtered_softmax


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _filtered(
    of: Sampler, x: Array, where: Array | None, scale: Array | None, parameters: list[Array | None]
) -> Array:
    """`scale` is for the gradient: the factor of the logits, if the temperature is an array."""
    return in_one_call(of.run, x, where, *parameters)[0]


def _filtered_forward(of: Sampler, x: Array, where: Array | None, scale: Array | None, *others: Any) -> Any:
    y = _filtered(of, x, where, scale, *others)
    return y, (y, where, scale)


def _filtered_backward(of: Sampler, kept: Any, grad: Array) -> Any:
    """The kept tokens are constant, so this is the gradient of a softmax of their logits."""
    y, where, scale = kept
    step = of.call.again("softmax_backward", of.call.given)
    if scale is None:
        step = step._replace(scale_by=float(_scale_of(dict(of.attributes)["temperature"])))
    return gradient(step, grad, y, where, scale), None, None, None


_filtered.defvjp(_filtered_forward, _filtered_backward)


def _scale_of(temperature: Any) -> Any:
    """The factor of the logits: csrc/api/sample.h. The temperature is a number or an array."""
    lib = jnp if isinstance(temperature, jax.Array) else np
    return 1 / lib.where(temperature < GREEDY_BELOW, 1, temperature)


def filtered_softmax(logits: Any, parameters: dict[str, Any], **terms: Any) -> Array:
    of, given, x, where, arrays = _taken("filtered_softmax", FILTERS, logits, parameters, **terms)
    scale = None
    if arrays[0] is not None:
        of_rows = jnp.asarray(_scale_of(given["temperature"]))
        scale = _as_argument("temperature", of_rows, _rows_of(x, of.call), of.call.shape(x, 1))
    scale, *arrays = (each if each is None else jax.lax.stop_gradient(each) for each in (scale, *arrays))
    x, where, scale, *arrays = aligned(x, where, scale, *arrays)
    return _filtered(of, x, where, scale, arrays)
