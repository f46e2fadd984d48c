"""sample of JAX arrays on the CPU, outside of transformations. Inside of them it raises an error."""

import numpy as np
import pytest

import onsoftmax as ons

jax = pytest.importorskip("jax")
jnp = jax.numpy
X = np.random.default_rng(0).standard_normal((3, 4, 20)).astype(np.float32)


def test_the_same_as_numpy():
    temperature, seed = np.linspace(0, 2, 12, dtype=np.float32).reshape(3, 4), np.arange(12).reshape(3, 4)
    terms = {"top_k": 9, "top_p": 0.9, "return_logprob": True, "return_valid": True}
    right = ons.sample(X, temperature=temperature, seed=seed, **terms)
    for given in (temperature, jnp.asarray(temperature)):
        found = ons.sample(jnp.asarray(X), temperature=given, seed=jnp.asarray(seed), **terms)
        assert [each.dtype for each in found] == [jnp.int32, jnp.float32, jnp.bool_]
        assert all(
            isinstance(a, jax.Array) and np.array_equal(a, b) for a, b in zip(found, right, strict=True)
        )
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        indices = ons.sample(jnp.asarray(X), temperature=temperature, seed=seed, top_k=9, top_p=0.9)
    assert indices.dtype == jnp.int64 and np.array_equal(indices, right[0])


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap], ids=["jit", "vmap"])
def test_inside_of_transformations(transform):
    for call in (
        lambda x: ons.sample(x, seed=0),
        lambda x: ons.sample(X, seed=x[0, 0].astype(int)),
        lambda x: ons.sample(X, temperature=x[..., 0], seed=0),
    ):
        with pytest.raises(TypeError, match="got a JAX tracer, which this function does not support"):
            transform(call)(jnp.asarray(X[..., None]))
