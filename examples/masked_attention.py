"""Attention with a mask, in torch and in JAX.

`where` is the mask of bool. It is True for the keys that a query sees. `scale` is the factor of the
scores. No scaled or filled copy of the scores is written. The program checks results and gradients
against torch's `scaled_dot_product_attention` and JAX's `dot_product_attention`. If a query sees no key,
its result is 0.

    python examples/masked_attention.py
"""

import sys
from functools import partial

import numpy as np

import onsoftmax as ons

try:
    import jax
    import torch
except ImportError:
    sys.exit("This example needs torch and jax: pip install torch jax")


def torch_attention(query, key, value, mask):
    weights = ons.softmax(query @ key.mT, where=mask, scale=query.shape[-1] ** -0.5)
    return weights @ value


def jax_attention(query, key, value, mask):
    scores = jax.numpy.einsum("bqhd,bkhd->bhqk", query, key)
    weights = ons.softmax(scores, where=mask, scale=query.shape[-1] ** -0.5)
    return jax.numpy.einsum("bhqk,bkhd->bqhd", weights, value)


def torch_results(attention, arrays, mask):  # arrays of batch x heads x length x size
    inputs = [torch.tensor(x, requires_grad=True) for x in arrays]
    output = attention(*inputs, torch.tensor(mask))
    return output.detach(), *torch.autograd.grad(output.square().sum(), inputs)


@partial(jax.jit, static_argnums=0)
def jax_results(attention, arrays, mask):  # arrays of batch x length x heads x size
    output, gradient = jax.vjp(lambda *inputs: attention(*inputs, mask=mask), *arrays)
    return output, *gradient(2 * output)


def check(name, ours, theirs):
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True)]
    difference = max(abs(a - b).max() / abs(b).max() for a, b in pairs)
    print(f"{name}, result and gradients: they differ by {difference:.1e} of the largest number")
    assert difference < 1e-5


batch, heads, length, size = 2, 4, 100, 64
arrays = np.random.default_rng(0).standard_normal((3, batch, heads, length, size), dtype=np.float32)
lengths = np.array([100, 70])[:, None, None, None]
mask = np.tri(length, dtype=bool) & (np.arange(length) < lengths)  # causal, and no key of the padding

functions = torch_attention, torch.nn.functional.scaled_dot_product_attention
check("torch", *(torch_results(attention, arrays, mask) for attention in functions))
functions = jax_attention, jax.nn.dot_product_attention
check("JAX", *(jax_results(attention, tuple(arrays.swapaxes(2, 3)), mask) for attention in functions))

no_key = torch.zeros(length, length, dtype=torch.bool)
assert torch_attention(*map(torch.tensor, arrays), no_key).eq(0).all()
