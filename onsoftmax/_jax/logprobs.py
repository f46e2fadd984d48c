"""logprob as a call of XLA's foreign function interface (csrc/xla).

Arrays with entries for each row have all dimensions of the logits, with length 1 along the axis, and a last
dimension for the entries of a row.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _core
from .._libraries.jax import jax_has_64_bits
from .._losses import _prepared
from .arguments import check_shape, refuse, take_logits
from .mapping import in_one_call
from .operators import Call, run
from .types import aligned, result

Array = Any
_PAIR, _WORDS = 4, 2  # the words of a pair, and of a float64 or an int64


class Wanted(NamedTuple):
    """What is known about log-probabilities when they are traced, besides shapes and types."""

    call: Call  # its dtype is the type of the log-probabilities
    entropy: bool
    lse: bool
    argmax: bool
    rank: bool

    def run(self, moments: bool, x: Array, index: Array) -> tuple[Array, ...]:
        """The log-probabilities, and the other results that are wanted. argmax and rank are int64, as words.

        `moments` adds the pair of each row and its mean of x - m, as words. Their memory has the pairs of all
        rows first, so they become two arrays of rows here."""
        rows, real = index.shape[:-1], self.call.dtype
        of_each = (
            (self.entropy, _core.XLA_ENTROPY, (*rows, 1), real),
            (self.lse, _core.XLA_LSE, (*rows, 1), real),
            (self.argmax, _core.XLA_ARGMAX, (*rows, _WORDS), np.uint32),
            (self.rank, _core.XLA_RANK, (*rows, _WORDS), np.uint32),
            (moments, _core.XLA_MOMENTS, (math.prod(rows) * (_PAIR + _WORDS),), np.uint32),
        )
        wanted = [each[1:] for each in of_each if each[0]]
        results = [result(shape, dtype, x) for _, shape, dtype in ((0, index.shape, real), *wanted)]
        call, flags = self.call._replace(operation="logprob"), sum(flag for flag, _, _ in wanted)
        found = run(call, results, {"x": x, "t": index}, flags)
        if not moments:
            return tuple(found)
        pairs, means = jnp.split(found[-1], [math.prod(rows) * _PAIR])
        return (*found[:-1], pairs.reshape(*rows, _PAIR), means.reshape(*rows, _WORDS))

    def gradient(
        self, x: Array, index: Array, pairs: Array, means: Array, *grads: Array | None
    ) -> tuple[Array]:
        """`grads` are the gradients of the log-probabilities, the entropy and the logsumexp."""
        moments = jnp.concatenate([pairs.reshape(-1), means.reshape(-1)])
        of_x = result(self.call.shape(index[..., 0], x.shape[self.call.axes[0]]), x.dtype, x)
        arrays = {"x": x, "t": index, "p": moments, **dict(zip("ghl", grads, strict=True))}
        return (run(self.call._replace(operation="logprob_backward"), of_x, arrays),)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rows(wanted: Wanted, x: Array, index: Array) -> tuple[Array, ...]:
    return in_one_call(partial(wanted.run, False), x, index)


def _rows_forward(wanted: Wanted, x: Array, index: Array) -> Any:
    *found, pairs, means = in_one_call(partial(wanted.run, True), x, index)
    return tuple(found), (x, index, pairs, means)


def _rows_backward(wanted: Wanted, kept: Any, grads: tuple[Array, ...]) -> Any:
    """One call, which reads the logits again. Integers have no gradient."""
    of_logprob, *others = grads
    made = iter(others)
    of_reals = [next(made) if each else None for each in (wanted.entropy, wanted.lse)]
    return in_one_call(wanted.gradient, *kept, of_logprob, *of_reals)[0], None


_rows.defvjp(_rows_forward, _rows_backward)


def _integers(words: Array) -> Array:
    """int64 from its words. Without jax_enable_x64, int32 from the lower word."""
    if jax_has_64_bits():
        return jax.lax.bitcast_convert_type(words, np.int64)
    return jax.lax.bitcast_convert_type(words[..., 0], np.int32)


def logprob(
    logits: Any,
    index: Any,
    axis: int,
    entropy: bool,
    lse: bool,
    argmax: bool,
    rank: bool,
    stream: Any,
    num_threads: int | None,
) -> tuple[Array, Array, Array, Array, Array]:
    """(logprob, entropy, lse, argmax, rank). A result that is not wanted is None."""
    refuse(None, stream)
    x, _, _, call = take_logits(logits, axis, num_threads)
    (place,) = call.axes
    rows = (*x.shape[:place], *x.shape[x.ndim + place + 1 :])
    index = jnp.asarray(_prepared("index", index, ("int64", "int32")))
    shape = index.shape
    several: tuple[int, ...] = shape[len(rows) :] if index.ndim == len(rows) + 1 else ()
    check_shape("index", index, (*rows, *several))
    if several == (0,):
        raise ValueError("index has 0 elements of each row: expected at least one")
    if rank and several not in ((), (1,)):
        raise ValueError(f"rank is wanted, and index has {several[0]} elements of each row: expected one")
    wanted = Wanted(call, bool(entropy), bool(lse), bool(argmax), bool(rank))
    index = index.reshape(*call.shape(x, 1), *(several or (1,)))
    chosen, *others = _rows(wanted, *aligned(x, index))
    made = iter(others)
    of_entropy, of_lse = (next(made).reshape(rows) if each else None for each in (entropy, lse))
    largest, above = (_integers(next(made)).reshape(rows) if each else None for each in (argmax, rank))
    return chosen.reshape(shape), of_entropy, of_lse, largest, above
