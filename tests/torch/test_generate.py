"""sample inside the generate of huggingface/transformers: tokens have the distribution of its own sampler."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import onsoftmax as ons

transformers = pytest.importorskip("transformers")

SEQUENCES, TOKENS, VOCABULARY = 20_000, 2, 40
TERMS = {"temperature": 0.8, "top_k": 12, "top_p": 0.9}


class Sampler(transformers.LogitsProcessor):
    """Leaves one token of each row, which sample has drawn."""

    def __init__(self, seed):
        self.seed = seed

    def __call__(self, tokens, logits):
        drawn = ons.sample(logits, **TERMS, seed=self.seed, offset=tokens.shape[1])
        return torch.full_like(logits, -torch.inf).scatter_(1, drawn[:, None], 0.0)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=8, n_embd=16, n_layer=1, n_head=2, initializer_range=0.8
    )
    return transformers.GPT2LMHeadModel(config).eval()


def generated(model, **terms):
    prompt = torch.tensor([[1, 2, 3]]).expand(SEQUENCES, -1)
    found = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=TOKENS, pad_token_id=0, **terms
    )
    return found[:, 3:].numpy()


def test_the_distribution_of_the_tokens(model):
    torch.manual_seed(1)
    theirs = generated(model, do_sample=True, **TERMS)
    ours = generated(model, do_sample=False, logits_processor=[Sampler(seed=5)])
    pairs = [tokens[:, 0] * VOCABULARY + tokens[:, 1] for tokens in (theirs, ours)]
    counts = np.array([np.bincount(pair, minlength=VOCABULARY**2) for pair in pairs])
    often = counts.sum(0) >= 20
    assert often.sum() > 20
    assert counts[:, ~often].sum() < 0.05 * counts.sum()
    # chi-squared of two samples: its mean is the number of kinds, its variance twice that
    a, b = counts[:, often].astype(float)
    statistic, kinds = ((a - b) ** 2 / (a + b)).sum(), often.sum()
    assert abs(statistic - kinds) < 5 * np.sqrt(2 * kinds)


def test_the_same_seed_gives_the_same_tokens(model):
    first, again, other = (
        generated(model, do_sample=False, logits_processor=[Sampler(seed)]) for seed in (5, 5, 6)
    )
    assert (first == again).all() and (first != other).any()
