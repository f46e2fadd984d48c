"""sample under the signatures of FlashInfer and vLLM."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import onsoftmax as ons
from onsoftmax.torch import top_k_top_p_sampling_from_logits, vllm_forward_native

LOGITS = torch.randn(40, 300, generator=torch.Generator().manual_seed(1)) * 2
RAW = SimpleNamespace(logprobs_mode="raw_logprobs")


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_flashinfers_tokens_are_those_of_sample():
    found = top_k_top_p_sampling_from_logits(LOGITS, 20, 0.8, seed=7, offset=3)
    assert found.dtype == torch.int32
    assert torch.equal(found, ons.sample(LOGITS, top_k=20, top_p=0.8, seed=7, offset=3).int())
    k, p = torch.arange(1, 41), torch.linspace(0, 1, 40)
    joint = top_k_top_p_sampling_from_logits(LOGITS, k, p, filter_apply_order="joint", seed=7)
    wanted = ons.sample(LOGITS, top_k=k, top_p=p, filter_apply_order="joint", seed=7)
    assert torch.equal(joint, wanted.int())


def test_a_generator_gives_the_seed():
    first, again, other = (
        top_k_top_p_sampling_from_logits(LOGITS, 50, 0.9, generator=seeded(seed)) for seed in (4, 4, 5)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    torch.manual_seed(8)
    own = top_k_top_p_sampling_from_logits(LOGITS, 50, 0.9)
    torch.manual_seed(8)
    assert torch.equal(top_k_top_p_sampling_from_logits(LOGITS, 50, 0.9), own)
    assert not torch.equal(top_k_top_p_sampling_from_logits(LOGITS, 50, 0.9), own)


def test_indices_choose_rows():
    indices = torch.tensor([3, 3, 0])
    found = top_k_top_p_sampling_from_logits(LOGITS, 5, 1.0, indices, seed=1)
    assert found.dtype == torch.int64
    assert torch.equal(found, ons.sample(LOGITS[indices], top_k=5, seed=1))


def test_rows_that_are_not_valid():
    rows = LOGITS[:3].clone()
    rows[1, 5] = float("nan")
    assert top_k_top_p_sampling_from_logits(rows, 5, 1.0, seed=1)[1] == 0
    assert vllm_forward_native(RAW, rows, {}, None, None)[0][1] == 0
    with pytest.raises(ValueError, match="a logit is NaN"):
        top_k_top_p_sampling_from_logits(rows, 5, 1.0, seed=1, check_nan=True)


def test_vllms_rows_with_generators_have_their_tokens_at_any_place():
    k, p = torch.full((40,), 30, dtype=torch.int32), torch.full((40,), 0.9)
    tokens, nothing = vllm_forward_native(RAW, LOGITS, {2: seeded(9), 5: seeded(6)}, k, p)
    assert nothing is None and tokens.dtype == torch.int64 and tokens.shape == (40,)
    moved, _ = vllm_forward_native(RAW, LOGITS[[7, 5, 2]], {2: seeded(9), 1: seeded(6)}, k[:3], p[:3])
    assert moved[1] == tokens[5] and moved[2] == tokens[2]


def test_vllms_tokens_have_the_filtered_distribution():
    torch.manual_seed(3)
    row = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().expand(40_000, -1)
    tokens, _ = vllm_forward_native(RAW, row, {}, torch.full((40_000,), 3), None)
    shares = np.bincount(tokens.numpy(), minlength=4) / 40_000
    assert np.abs(shares - np.array([4, 3, 2, 0]) / 9).max() < 0.01


def test_vllms_processed_logits_are_refused():
    with pytest.raises(ValueError, match="logprobs_mode is 'processed_logits'"):
        vllm_forward_native(SimpleNamespace(logprobs_mode="processed_logits"), LOGITS, {}, None, None)
