"""route on a GPU against the formulas, for the kernels in a warp and in a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from route_checks import check_route, random_case

import onsoftmax as ons


def on_gpu(array: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(array)).cuda()


def on_host(found: Any) -> Any:
    return tuple(a.cpu().numpy() for a in found)


def check_on_gpu(logits: Any, k: int, terms: dict[str, Any], given: Any = None) -> None:
    moved = {name: on_gpu(a) if isinstance(a, np.ndarray) else a for name, a in terms.items()}
    found = ons.route(on_gpu(logits) if given is None else given, k, **moved)
    check_route(logits, k, on_host(found), flushes=True, **terms)


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_random_rows(first: int) -> None:
    for seed in range(first, first + 100):
        check_on_gpu(*random_case(seed))


@pytest.mark.parametrize(
    "N", [1, 2, 31, 64, 65, 128, 129, 255, 256, 257, 384, 512, 513, 896, 1000, 1024, 1025, 5000]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_lengths(N: int, dtype: Any) -> None:
    torch.manual_seed(N)
    for rows in (1, 9):
        x = (torch.randn(rows, N, device="cuda", dtype=torch.float64) * 3).to(dtype)
        wide = x.to(torch.float64) if dtype is torch.float64 else x.float()
        for k in sorted({1, min(2, N), min(8, N), min(33, N), N}):
            for score in ("softmax", "sigmoid"):
                check_route(wide.cpu().numpy(), k, on_host(ons.route(x, k, score=score)), score=score)


def test_layouts_and_types_of_indices() -> None:
    x = torch.randn(5, 160, 7, device="cuda")
    weights, indices = ons.route(x, 6, axis=1, index_dtype="int32", groups=8, top_groups=3)
    assert weights.shape == (5, 6, 7) and indices.dtype == torch.int32
    found = weights.movedim(1, -1), indices.movedim(1, -1)
    check_route(x.movedim(1, -1).cpu().numpy(), 6, on_host(found), groups=8, top_groups=3)
    wide = torch.randn(40, 300, device="cuda")
    check_on_gpu(wide[:, 1:257:2].cpu().numpy(), 9, {}, wide[:, 1:257:2])
    check_on_gpu(wide[::3, 3:].cpu().numpy(), 9, {}, wide[::3, 3:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("N", "k"), [(64, 8), (128, 3), (256, 8), (256, 20)])
def test_a_row_has_the_same_bits_in_any_batch(dtype: Any, N: int, k: int) -> None:
    x, bias = torch.randn(70000, N, device="cuda").to(dtype), torch.randn(N, device="cuda")
    terms: list[dict[str, Any]] = [
        {},
        {"renormalize": False},
        {"score": "sigmoid"},
        {"score": "sqrtsoftplus"},
    ]
    terms += [{"score": "sigmoid", "bias": bias, "groups": 8, "top_groups": 4}, {"bias": bias}]
    for some in terms:
        weights, indices = ons.route(x, k, **some)
        for rows in (1, 3, 64, 4096):
            one = ons.route(x[100 : 100 + rows], k, **some)
            assert torch.equal(one.weights, weights[100 : 100 + rows])
            assert torch.equal(one.indices, indices[100 : 100 + rows])
        if "bias" not in some:  # rows with gaps have a kernel of their own
            apart = torch.empty(300, N, 2, device="cuda", dtype=dtype)[..., 0].copy_(x[:300])
            one = ons.route(apart, k, **some)
            assert torch.equal(one.weights, weights[:300]) and torch.equal(one.indices, indices[:300])


@pytest.mark.parametrize("N", [7, 64, 250, 256, 1000])
def test_a_bias_may_begin_anywhere(N: int) -> None:
    x, biases = torch.randn(300, N, device="cuda"), torch.randn(N + 3, device="cuda")
    for begin in range(4):
        bias = biases[begin : begin + N]
        found, right = (ons.route(x, 5, bias=each) for each in (bias, bias.clone()))
        assert torch.equal(found.weights, right.weights) and torch.equal(found.indices, right.indices)


def test_many_groups() -> None:
    rng = np.random.default_rng(0)
    for N, groups in ((1024, 1024), (1024, 512), (999, 333), (6000, 3000), (2048, 8)):
        logits = rng.standard_normal((3, N)).astype(np.float32)
        for top in (1, 7, groups):
            if top <= groups:
                k = min(5, N // groups * top)
                check_on_gpu(logits, k, {"groups": groups, "top_groups": top})


def test_it_runs_in_a_graph() -> None:
    x = torch.randn(64, 256, device="cuda")
    ons.route(x, 8)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = ons.route(x, 8)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    check_route(x.cpu().numpy(), 8, on_host(found))
