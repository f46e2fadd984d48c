"""Trains the head of a small language model on generated text, in torch and in JAX, without an array of
log-probabilities. The losses agree with torch's cross_entropy to 1e-5.

    python examples/language_model_head.py

In torch the logits become their gradient (`in_place=True`). So the step needs no array beside them. At the
end, one call gives the log-probability of each next word and the entropy of each prediction.
"""

import sys

import numpy as np

import onsoftmax as ons

try:
    import jax
    import jax.numpy as jnp
    import torch

    from onsoftmax.torch import CrossEntropyLoss
except ImportError:
    sys.exit("This example needs torch and JAX: pip install torch jax")

WORDS, WIDTH, TOKENS, STEPS, RATE = 5000, 32, 512, 8, 20.0
rng = np.random.default_rng(0)

# The text: each word has three words that may follow it.
followers = rng.integers(0, WORDS, (WORDS, 3))
text = [0]
while len(text) <= TOKENS:
    text.append(int(followers[text[-1], rng.integers(0, 3)]))
words, next_words = np.array(text[:-1]), np.array(text[1:])
states = rng.standard_normal((WORDS, WIDTH)).astype(np.float32)[words]  # what a model says of each word
head = (0.02 * rng.standard_normal((WORDS, WIDTH))).astype(np.float32)


def train_in_torch(loss_of):
    layer = torch.nn.Linear(WIDTH, WORDS, bias=False)
    layer.weight.data = torch.tensor(head)
    optimizer = torch.optim.SGD(layer.parameters(), lr=RATE)
    losses = []
    for _ in range(STEPS):
        loss = loss_of(layer(torch.tensor(states)), torch.tensor(next_words))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, layer


@jax.jit
def step_in_jax(weight):
    loss, gradient = jax.value_and_grad(lambda w: ons.cross_entropy(states @ w.T, next_words))(weight)
    return loss, weight - RATE * gradient


def train_in_jax():
    weight, losses = jnp.asarray(head), []
    for _ in range(STEPS):
        loss, weight = step_in_jax(weight)
        losses.append(float(loss))
    return losses


wanted, _ = train_in_torch(torch.nn.functional.cross_entropy)
in_torch, layer = train_in_torch(CrossEntropyLoss(in_place=True))
in_jax = train_in_jax()
for step in range(0, STEPS, STEPS - 1):
    print(f"step {step + 1}: torch {wanted[step]:.5f}, here {in_torch[step]:.5f}, in JAX {in_jax[step]:.5f}")
np.testing.assert_allclose(in_torch, wanted, rtol=1e-5)
np.testing.assert_allclose(in_jax, wanted, rtol=1e-5)

with torch.no_grad():
    found = ons.logprob(layer(torch.tensor(states)), torch.tensor(next_words), entropy=True)
chance = found.logprob.exp().median().item()
print(f"Half of the next words have a probability above {chance:.2f}.")
print(f"The mean entropy of the predictions is {found.entropy.mean():.2f}.")
assert in_torch[-1] < in_torch[0] and chance > 10 / WORDS
