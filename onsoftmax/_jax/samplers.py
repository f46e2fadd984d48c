"""sample as a call of XLA's foreign function interface (csrc/xla).

Arrays with an entry for each row have all dimensions of the logits, with length 1 along the axis. JAX has no
64-bit types by default. So an array of 64-bit numbers from another library becomes uint32 words, with a last
dimension of their own.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._libraries import as_numpy
from .._libraries.jax import jax_has_64_bits
from .._libraries.kinds import gpu_of
from .._sample import of_rows
from .._sample_arguments import INTEGERS, LOGPROBS, PARAMETERS, check_names, logprob_name
from .arguments import check_shape, refuse, take_logits
from .mapping import in_one_call
from .operators import Call, run
from .types import aligned, result

Array = Any
_LETTERS = "tkpmso"  # of the parameters


class Sampler(NamedTuple):
    """What is known about a sampler when it is traced, besides the arrays' shapes and types."""

    call: Call  # its dtype is the type of the log-probabilities
    joint: bool
    logprob: int  # api/sample.h
    period: int
    numbers: tuple[tuple[str, Any], ...]  # the names and values of parameters that are no arrays

    def run(self, x: Array, where: Array | None, *parameters: Array | None) -> tuple[Array, ...]:
        """The log-probabilities, the indices, and which rows are valid."""
        dims = x.ndim
        shapes = [each.shape[:dims] for each in (x, where, *parameters) if each is not None]
        shape = tuple(  # vmap may map any array alone
            1 if i - dims in self.call.axes else n for i, n in enumerate(np.broadcast_shapes(*shapes))
        )
        arrays = {
            letter: _of_all_rows(each, shape) for letter, each in zip(_LETTERS, parameters, strict=True)
        }
        numbers: dict[str, Any] = {
            name: (np.int64 if name in INTEGERS else np.float64)(number) for name, number in self.numbers
        }
        indices = jax.dtypes.canonicalize_dtype(np.int64)
        found: tuple[Array, ...] = run(
            self.call._replace(operation="sample"),
            [result(shape, dtype, x) for dtype in (self.call.dtype, indices, np.bool_)],
            {"x": x, "w": where, **arrays},
            joint=np.int32(self.joint),
            logprob=np.int32(self.logprob),
            period=np.int64(self.period),
            **numbers,
        )
        return tuple(found)


def _of_all_rows(array: Array | None, shape: tuple[int, ...]) -> Array | None:
    """A parameter with a number for each row, or with one number for all rows."""
    if array is None or set(array.shape[: len(shape)]) <= {1}:
        return array
    return jnp.broadcast_to(array, (*shape, *array.shape[len(shape) :]))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _sampled(of: Sampler, *arrays: Array | None) -> tuple[Array, ...]:
    return in_one_call(of.run, *arrays)


@_sampled.defjvp  # type: ignore[untyped-decorator]
def _refuse_gradient(of: Sampler, *_: Any) -> Any:
    raise RuntimeError(
        "no gradient flows through the log-probability of sample: pass jax.lax.stop_gradient of the logits "
        "and of the parameters, and take the log-probability of the indices by logprob"
    )


def _prepared(name: str, value: Any) -> Any:
    """A number for all rows, or an array that has its final type in JAX or NumPy."""
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
    return jnp.asarray(array).reshape(shape)


def sample(
    logits: Any,
    parameters: dict[str, Any],
    *,
    filter_apply_order: str,
    return_logprob: Any,
    axis: int,
    where: Any,
    method: str,
    stream: Any,
    num_threads: int | None,
) -> tuple[Array, Array, Array]:
    """(indices, logprob, valid). If logprob is not wanted, it has no meaning."""
    check_names(filter_apply_order, method)
    logprob = logprob_name(return_logprob)
    given = {name: _prepared(name, parameters[name]) for name in PARAMETERS}
    refuse(None, stream)
    x, where, _, call = take_logits(logits, axis, num_threads, where, method=method)
    if x.shape[call.axes[0]] == 0:
        raise ValueError("logits has rows of length 0: expected at least 1")
    shape = call.shape(x, 1)
    rows = tuple(n for i, n in enumerate(x.shape) if i - x.ndim not in call.axes)
    numbers = {name: each for name, each in given.items() if isinstance(each, (int, float))}
    arrays = [
        None if name in numbers else _as_argument(name, given[name], rows, shape) for name in PARAMETERS
    ]
    own_seeds = "seed" not in numbers and given["seed"].size != 1
    of = Sampler(
        call,
        filter_apply_order == "joint",
        0 if logprob is None else 1 + LOGPROBS.index(logprob),
        1 if own_seeds else max(math.prod(rows), 1),
        tuple(numbers.items()),
    )
    if logprob is None:  # nothing that has a gradient
        x, *arrays = (each if each is None else jax.lax.stop_gradient(each) for each in (x, *arrays))
    chances, indices, valid = (each.reshape(rows) for each in _sampled(of, *aligned(x, where, *arrays)))
    return indices, chances, valid
