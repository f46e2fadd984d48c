"""filtered_softmax on a GPU, and rows whose filters end far from the first tokens: teams of blocks take them.
The random calls in test_sample.py are also calls of filtered_softmax."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sample_checks import check_filtered, check_sample

import onsoftmax as ons

FAR: list[dict[str, Any]] = [
    {"top_p": 0.999},
    {"top_p": 0.4, "min_p": 1e-3},
    {"min_p": 1e-3},
    {"top_k": 2000},
    {"top_k": 30_000, "top_p": 0.7},
    {"top_k": 3000, "top_p": 0.9, "filter_apply_order": "joint"},
    {"top_k": 4000, "temperature": 0.7, "min_p": 1e-4},
]
KINDS = {"normal": 2.0, "narrow": 0.3, "flat": 0.01, "equal": 0.0}


def logits_of(kind: str, rows: int, N: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(rows + N)
    return (torch.randn(rows, N, device="cuda") * KINDS[kind] + 3).to(dtype)


def check(x: torch.Tensor, **terms: Any) -> None:
    given = x.float() if x.dtype == torch.bfloat16 else x
    on_host = given.cpu().numpy()
    y = ons.filtered_softmax(x, **terms)
    check_filtered(on_host, y.cpu().numpy(), by_logits=True, **terms)
    terms |= {"seed": 3, "return_logprob": "filtered"}
    found = tuple(a.cpu().numpy() for a in ons.sample(x, **terms))
    check_sample(on_host, found, by_logits=True, **terms)


@pytest.mark.parametrize("terms", FAR, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 5, 70, 300])
def test_filters_that_end_far_from_the_first_tokens(rows: int, kind: str, terms: dict[str, Any]) -> None:
    check(logits_of(kind, rows, 50_257 if rows < 70 else 33_000), **terms)


@pytest.mark.parametrize("terms", FAR, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_types(dtype: torch.dtype, terms: dict[str, Any]) -> None:
    for kind in KINDS:
        check(logits_of(kind, 4, 40_001, dtype), **terms)


@pytest.mark.parametrize("terms", FAR[:3], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("apart", [-3.0, 3.0])
def test_a_sample_may_mislead(apart: float, dtype: torch.dtype, terms: dict[str, Any]) -> None:
    """A sample has 8 of 64 packs of a row. Here these have other logits than the rest."""
    x = logits_of("narrow", 3, 20_000, dtype)
    pack = 16 // x.element_size()
    x[:, torch.arange(20_000, device="cuda") // pack % 64 < 8] += apart
    check(x, **terms)
    check(x.sort(-1)[0], **terms)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_many_tokens_with_few_values(dtype: torch.dtype) -> None:
    """The first tokens of the last row have few bits, and the others have many."""
    x = (logits_of("narrow", 3, 100_000) + 5).bfloat16().to(dtype)
    x[2] += (x[2] < 9) * torch.rand(100_000, device="cuda").to(dtype) / 100
    for terms in (*FAR[:3], {"top_p": 0.9, "temperature": 0.7}):
        check(x, **terms)
    alone = ons.filtered_softmax(x[:1], top_p=0.99)
    assert torch.equal(ons.filtered_softmax(x[:1].repeat(150, 1), top_p=0.99), alone.expand(150, -1))


@pytest.mark.parametrize("N", [1, 255, 257, 1000, 4096, 8193, 131_072, 1_000_003])
def test_lengths(N: int) -> None:
    for terms in ({"top_p": 0.99}, {"top_k": max(1, N // 2)}, {"top_k": max(1, N - 1), "top_p": 0.999}):
        check(logits_of("narrow", 3, N), **terms)


@pytest.mark.parametrize("terms", FAR, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_has_its_bits_in_any_batch(dtype: torch.dtype, terms: dict[str, Any]) -> None:
    """Teams have other numbers of blocks in each of these batches."""
    x = logits_of("narrow", 300, 40_000, dtype)
    y, seed = ons.filtered_softmax(x, **terms), torch.arange(300, device="cuda")
    tokens = ons.sample(x, seed=seed, **terms)
    for rows in (slice(0, 1), slice(7, 12), slice(100, 170)):
        assert torch.equal(ons.filtered_softmax(x[rows], **terms), y[rows])
        assert torch.equal(ons.sample(x[rows], seed=seed[rows], **terms), tokens[rows])


def test_some_rows_go_on() -> None:
    """Rows with a wide top_p lie among rows whose filters end in their lists, and rows without filters."""
    x = logits_of("normal", 200, 30_000)
    top_p = torch.full((200,), 0.05, device="cuda")
    for at in ([3], [0, 199], list(range(0, 200, 3))):
        top_p[at] = 0.9995
        top_p[150:153] = 1.0
        on_host = x.cpu().numpy()
        y = ons.filtered_softmax(x, top_p=top_p)
        check_filtered(on_host, y.cpu().numpy(), by_logits=True, top_p=top_p.cpu().numpy())
        for row in (*at, 1, 151):
            one = ons.filtered_softmax(x[row : row + 1], top_p=top_p[row : row + 1])
            assert torch.equal(one[0], y[row])


def test_layouts_and_masks() -> None:
    x = logits_of("narrow", 6, 9000)
    terms: dict[str, Any] = {"top_p": 0.9, "temperature": 0.8}
    right = ons.filtered_softmax(x, **terms)
    assert torch.equal(ons.filtered_softmax(x.T.contiguous(), axis=0, **terms).T, right)
    assert torch.equal(ons.filtered_softmax(x.view(2, 3, 9000), **terms).view(6, 9000), right)
    where = torch.rand(9000, device="cuda") < 0.7
    y = ons.filtered_softmax(x, where=where, **terms)
    check_filtered(x.cpu().numpy(), y.cpu().numpy(), by_logits=True, where=where.cpu().numpy(), **terms)
    hot = ons.filtered_softmax(x, temperature=torch.linspace(0, 2, 6, device="cuda"))
    assert torch.equal(hot[0], torch.nn.functional.one_hot(x[0].argmax(), 9000).float())
    assert torch.equal(ons.filtered_softmax(x), ons.softmax(x, method="invariant"))


def test_a_gradient_and_a_graph() -> None:
    x = logits_of("normal", 8, 5000).requires_grad_()
    y = ons.filtered_softmax(x, top_k=20, temperature=0.5)
    g = torch.randn_like(y)
    masked = torch.where(y > 0, x / 0.5, -torch.inf).softmax(-1)
    (right,) = torch.autograd.grad(masked, x, g)
    torch.testing.assert_close(torch.autograd.grad(y, x, g)[0], right, rtol=1e-4, atol=1e-6)
    inputs = x.detach().clone()
    ons.filtered_softmax(inputs, top_p=0.99)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = ons.filtered_softmax(inputs, top_p=0.99)
    for _ in range(3):
        inputs.copy_(torch.randn_like(inputs))
        graph.replay()
        assert torch.equal(captured, ons.filtered_softmax(inputs, top_p=0.99))
