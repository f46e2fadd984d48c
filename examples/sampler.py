"""A sampler of tokens by `softmax_topk`, with a temperature, top-k and top-p.

`softmax_topk` reads the logits of a row once. It gives the k largest probabilities, in descending order.
All later steps work on k numbers a row, not on the vocabulary. `scale` takes a temperature for each row.
The program checks the sampler's distribution against a plain sampler, which sorts the whole vocabulary
with torch.

    python examples/sampler.py
"""

import sys

import onsoftmax as ons

try:
    import torch
except ImportError:
    sys.exit("This example needs torch: pip install torch")


def candidates(logits, temperature, k, p):
    """The probabilities of the k candidates of each row, and their tokens."""
    values, tokens = ons.softmax_topk(logits, k, scale=1 / temperature)
    values /= values.sum(-1, keepdim=True)
    # keeps the smallest set of candidates whose probabilities add up to p or more
    values[values.cumsum(-1) - values >= p] = 0
    return values / values.sum(-1, keepdim=True), tokens


def sample(logits, temperature, k, p, count=1):
    values, tokens = candidates(logits, temperature, k, p)
    return tokens.gather(-1, torch.multinomial(values, count, replacement=True))


def plain_distribution(logits, temperature, k, p):
    """The same over the whole vocabulary, with torch alone."""
    logits, tokens = torch.sort(logits / temperature, dim=-1, descending=True, stable=True)
    logits[:, k:] = -torch.inf
    values = torch.softmax(logits, -1)
    logits[values.cumsum(-1) - values >= p] = -torch.inf
    return torch.zeros_like(logits).scatter(-1, tokens, torch.softmax(logits, -1))


torch.manual_seed(0)
logits = 3 * torch.randn(8, 50257)
settings = {"temperature": torch.linspace(0.5, 1.2, 8)[:, None], "k": 50, "p": 0.9}

expected = plain_distribution(logits, **settings)
values, tokens = candidates(logits, **settings)
found = torch.zeros_like(expected).scatter(-1, tokens, values)
print("tokens that can be drawn, row by row:", (found > 0).sum(-1).tolist())
print(f"probabilities: the largest difference is {(found - expected).abs().max():.1e}")
torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)

drawn = sample(logits, **settings, count=20000)
frequencies = torch.zeros_like(expected).scatter_add(-1, drawn, torch.full(drawn.shape, 1 / drawn.shape[1]))
largest = (frequencies - expected).abs().max()
print(f"frequencies of {drawn.shape[1]} draws a row: the largest difference is {largest:.4f}")
assert largest < 5 * 0.5 / drawn.shape[1] ** 0.5  # five standard deviations
