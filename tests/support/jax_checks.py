"""Functions that the tests of JAX share: arrays, comparisons, and JAX's own operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import same_bits

import onsoftmax as ons

X = np.random.default_rng(1).standard_normal((3, 4, 5), dtype=np.float32) * 3
MASK = np.random.default_rng(2).random((3, 4, 5)) < 0.7
MASK[..., 0] = True
WEIGHTS = np.random.default_rng(3).standard_normal((3, 4, 5), dtype=np.float32)
ROWS = ("softmax", "log_softmax")
DTYPES = ("float16", "bfloat16", "float32")


def same(a, b):
    """Whether both are arrays, or tuples of arrays, with the same bits."""
    a, b = jax.tree.leaves(tuple(a) if isinstance(a, tuple) else a), jax.tree.leaves(b)
    return len(a) == len(b) and all(
        same_bits(np.asarray(p), np.asarray(q)) for p, q in zip(a, b, strict=True)
    )


def plain(operation, x, axis=-1, where=None, scale=1.0):
    """The operation by jax.nn, which JAX differentiates itself."""
    if operation == "logsumexp":
        return jax.nn.logsumexp(x * scale, axis, where=where)
    y = getattr(jax.nn, operation)(x * scale, axis, where=where)
    return y if where is None else jnp.where(where, y, 0)


def ours(operation, x, axis=-1, **given):
    y = getattr(ons, operation)(x, axis, **given)
    where = given.get("where")
    return jnp.where(where, y, 0) if where is not None and operation == "log_softmax" else y


def assert_near(a, b, tolerance=1e-5):
    for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(p, np.float64), np.asarray(q, np.float64), tolerance, tolerance)


def refusals(function, x):
    """The texts of the errors that function(x) raises outside of jax.jit and inside."""
    texts = []
    for call in (function, jax.jit(function)):
        with pytest.raises(Exception) as caught:
            call(x)
        texts.append(str(caught.value))
    return texts
