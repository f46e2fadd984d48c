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


def assert_same_bits(one: Any, other: Any) -> None:
    assert torch.equal(one.weights.view(torch.int32), other.weights.view(torch.int32))
    assert torch.equal(one.indices, other.indices)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("N", "k"), [(64, 8), (128, 3), (256, 8), (256, 20), (256, 33), (384, 8), (384, 17), (480, 24)]
)
def test_a_row_has_the_same_bits_in_any_batch(dtype: Any, N: int, k: int) -> None:
    x, bias = torch.randn(70000, N, device="cuda").to(dtype), torch.randn(N, device="cuda")
    x[101], x[102, 5], x[103], x[104, : N - 2] = 0, torch.nan, -torch.inf, -torch.inf
    x[105, 7], x[106] = -torch.tensor(torch.nan), -x[106].abs()  # a NaN with a sign
    x[106, :9] = -0.0
    x[110:130], bias[::2] = x[110:130].round(), bias[::2].round()  # ties
    terms: list[dict[str, Any]] = [
        {},
        {"renormalize": False},
        {"score": "sigmoid"},
        {"score": "sqrtsoftplus"},
        {"score": "none", "renormalize": False},
        {"score": "none", "bias": bias},
    ]
    terms += [{"score": "sigmoid", "bias": bias, "groups": 8, "top_groups": 4}, {"bias": bias}]
    terms += [{"groups": 4, "top_groups": 3}, {"bias": bias, "groups": 32, "top_groups": 17}]
    for some in terms:
        found = ons.route(x, k, **some)
        for rows in (1, 3, 64, 4096):
            at = slice(100, 100 + rows)
            assert_same_bits(ons.route(x[at], k, **some), type(found)(*(a[at] for a in found)))
        # rows with gaps have a kernel of their own
        apart = torch.empty(300, N, 2, device="cuda", dtype=dtype)[..., 0].copy_(x[:300])
        assert_same_bits(ons.route(apart, k, **some), type(found)(*(a[:300] for a in found)))


@pytest.mark.parametrize("N", [7, 64, 65, 129, 250, 256, 383, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_and_a_bias_may_begin_anywhere(dtype: Any, N: int) -> None:
    biases = torch.randn(N + 3, device="cuda")
    for rows in (300, 2500):  # few and many
        x = torch.randn(rows, N + 3, device="cuda").to(dtype)
        for begin in range(4):
            some, bias = x[:, begin : begin + N], biases[begin : begin + N]
            found, right = (ons.route(y, 5, bias=b) for y, b in ((some, bias), (some.clone(), bias.clone())))
            assert_same_bits(found, right)
            check_route(
                some[:9].float().cpu().numpy(), 5, on_host(a[:9] for a in found), bias=on_host([bias])[0]
            )


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
