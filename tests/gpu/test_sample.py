"""sample on a GPU: random calls against the definition, bits in any batch, graphs, and long rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sample_checks import check_sample
from sample_search import search

import onsoftmax as ons

FILTERS: list[dict[str, Any]] = [
    {},
    {"top_k": 50},
    {"top_p": 0.9},
    {"min_p": 0.1},
    {"top_k": 3000, "top_p": 0.7},
    {"top_k": 40, "top_p": 0.8, "min_p": 0.01, "filter_apply_order": "joint"},
    {"temperature": 0.0},
]


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_random_calls(first: int) -> None:
    assert search(10_000, first, "cuda")["wrong"] == []


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("kind", ["normal", "flat", "equal"])
def test_long_rows(filters: dict[str, Any], kind: str) -> None:
    torch.manual_seed(3)
    x = torch.randn(3, 150_001, device="cuda") * {"normal": 2.0, "flat": 0.01, "equal": 0.0}[kind]
    for offset in range(3):
        terms = {**filters, "seed": 5, "offset": offset, "return_logprob": True}
        found = tuple(a.cpu().numpy() for a in ons.sample(x, **terms))
        check_sample(x.cpu().numpy(), found, **terms)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("N", [200, 5000, 70_000])
def test_a_row_has_its_token_in_any_batch(filters: dict[str, Any], dtype: Any, N: int) -> None:
    torch.manual_seed(N)
    x = (torch.randn(300, N, device="cuda") * 2).to(dtype)
    seed = torch.arange(300, device="cuda") + 2**40
    tokens = ons.sample(x, seed=seed, **filters)
    for rows in (slice(0, 1), slice(7, 12), slice(100, 300)):
        assert torch.equal(ons.sample(x[rows], seed=seed[rows], **filters), tokens[rows])
    mirrored = ons.sample(x.flip(0), seed=seed.flip(0), **filters)
    assert torch.equal(mirrored.flip(0), tokens)
    wide = torch.empty(300, N + 3, device="cuda", dtype=dtype)
    wide[:, 1 : N + 1] = x
    assert torch.equal(ons.sample(wide[:, 1 : N + 1], seed=seed, **filters), tokens)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_graph_reads_seed_and_offset_at_each_replay(filters: dict[str, Any]) -> None:
    x = torch.randn(64, 5000, device="cuda")
    seed = torch.tensor(11, device="cuda")
    offset = torch.zeros((), dtype=torch.int64, device="cuda")
    ons.sample(x, seed=seed, offset=offset, **filters)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens = ons.sample(x, seed=seed, offset=offset, **filters)
        offset += 1
    for replay in range(3):
        graph.replay()
        assert torch.equal(tokens, ons.sample(x, seed=11, offset=replay, **filters))


def test_one_seed_counts_rows() -> None:
    x = torch.zeros(4000, 7, device="cuda")
    tokens = ons.sample(x, seed=1)
    assert np.ptp(torch.bincount(tokens, minlength=7).cpu().numpy()) < 200
    assert torch.equal(ons.sample(x.cpu(), seed=1), tokens.cpu())


def test_a_row_of_more_than_2_to_31_elements() -> None:
    if torch.cuda.mem_get_info()[0] < 6e9:
        pytest.skip("needs 6 GB")
    N = 2**31 + 5000
    x = torch.full((1, N), -30.0, dtype=torch.bfloat16, device="cuda")
    x[0, N - 3] = 5
    assert ons.sample(x, seed=1).item() == N - 3
    assert ons.sample(x, seed=1, top_k=3, top_p=0.5).item() == N - 3
    assert ons.sample(x, seed=1, top_p=0.99, temperature=0.5).item() == N - 3
