"""route of torch tensors on the CPU. test_torch_operators.py tests derivatives, transforms and graphs of all
operators."""

import numpy as np
import pytest

import onsoftmax
import onsoftmax as ons

torch = pytest.importorskip("torch")
pytest.importorskip("onsoftmax.torch")
routers = pytest.importorskip("routers")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("router", routers.ROUTERS.values(), ids=routers.ROUTERS)
def test_routers_of_models(router, dtype):
    """The same experts as the formula in float64, and nearly exact weights and gradients. No two logits of a
    row are equal. With a bias, experts whose keys differ by less than the rounding may change places."""
    generator = torch.Generator().manual_seed(0)
    if dtype == torch.float32:
        x = 2 * torch.randn(200, router.experts, generator=generator)
    else:  # 256 different numbers of 8 bits
        numbers = torch.cat([sign * torch.arange(128, 256) / 64 for sign in (1, -1)])
        x = torch.stack([numbers[torch.randperm(256, generator=generator)] for _ in range(200)])
        x = x[:, : router.experts]
    bias = torch.rand(router.experts, generator=generator) / 4 if router.has_bias else None
    x = x.to(dtype).requires_grad_()
    weights, indices = ons.route(x, router.k, bias=bias, **router.terms)
    exact = x.detach().double().requires_grad_()
    expected, places = router.formula(exact, router.k, None if bias is None else bias.double())
    assert weights.dtype == torch.float32 and indices.dtype == torch.int64
    same = (indices == places).all(-1)
    assert same.all() if bias is None else same.sum() >= 198
    torch.testing.assert_close(weights[same].double(), expected[same], rtol=2e-6, atol=0)
    factors = torch.arange(1.0, 1 + weights.numel()).sin().view(weights.shape)
    (gradient,) = torch.autograd.grad((weights * factors)[same].sum(), x)
    (wanted,) = torch.autograd.grad((expected * factors)[same].sum(), exact)
    assert gradient.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(gradient.double(), wanted, rtol=max(eps, 1e-5), atol=1e-6 * wanted.abs().max())


SCORES = {
    "softmax": lambda x: torch.softmax(x, -1),
    "sigmoid": torch.sigmoid,
    "sqrtsoftplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)).sqrt(),
    "none": lambda x: x,
}


def of_torch(x, indices, score, renormalize, scale):
    """The weights of chosen experts by torch alone."""
    if score == "none" and renormalize:
        return scale * torch.softmax(x.gather(-1, indices), -1)
    weights = SCORES[score](x).gather(-1, indices)
    return scale * (weights / weights.sum(-1, keepdim=True) if renormalize else weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("renormalize", [True, False], ids=["renormalized", "plain"])
@pytest.mark.parametrize("score", SCORES)
def test_gradients_beside_torch(score, renormalize, dtype):
    """The indices are constant. Logits to the edges of float16, where scores are tiny, 0 or 1."""
    generator = torch.Generator().manual_seed(1)
    for size in (1, 20, 200):
        x = (
            (size * torch.randn((50, 20), generator=generator, dtype=torch.float64))
            .to(dtype)
            .requires_grad_()
        )
        found = ons.route(x, 5, score=score, renormalize=renormalize, scale=2.5)
        assert not found.indices.requires_grad
        wide = x.detach().double().requires_grad_()
        expected = of_torch(wide, found.indices, score, renormalize, 2.5)
        torch.testing.assert_close(found.weights.double(), expected, rtol=2e-6, atol=1e-40)
        factors = torch.linspace(-1, 2, 250).view(50, 5)
        (gradient,) = torch.autograd.grad(found.weights, x, factors.to(found.weights))
        (wanted,) = torch.autograd.grad(expected, wide, factors.double())
        eps = torch.finfo(dtype).eps
        assert gradient.dtype == dtype
        torch.testing.assert_close(
            gradient.double(), wanted, rtol=8 * eps, atol=8 * torch.finfo(found.weights.dtype).eps
        )


@pytest.mark.parametrize("renormalize", [True, False], ids=["renormalized", "plain"])
@pytest.mark.parametrize("score", ["sigmoid", "sqrtsoftplus"])
def test_gradients_of_tiny_scores(score, renormalize):
    """Weights of scores that float32 cannot hold have gradients. A score of 0 has the gradient 0."""
    x = torch.tensor([[-119.0, -120.0, -121.0, -torch.inf], [-torch.inf] * 4, [-69, -70, -70.5, -torch.inf]])
    x.requires_grad_()
    weights, indices = ons.route(x, 4, score=score, renormalize=renormalize)
    (gradient,) = torch.autograd.grad(weights.sin().sum(), x)
    wide = x.detach()[:, :3].double().requires_grad_()
    expected = of_torch(wide[::2], indices[::2, :3], score, renormalize, 1.0)
    (wanted,) = torch.autograd.grad(expected.sin().sum(), wide)
    torch.testing.assert_close(gradient[:, :3].double(), wanted, rtol=1e-5, atol=1e-40)
    assert torch.equal(gradient[:, 3], torch.zeros(3)) and torch.equal(weights[1], torch.zeros(4))


@pytest.mark.parametrize("score", SCORES)
def test_excluded_experts(score):
    """They have no gradient, even if they are chosen, NaN or inf. A row without other experts has none."""
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(2))
    where = torch.tensor([[1, 1, 1, 0, 1, 1], [0, 0, 1, 0, 0, 0], [0] * 6]).bool()
    for renormalize in (True, False):
        results = []
        for excluded in (0.0, torch.nan, torch.inf, -torch.inf):
            leaf = x.masked_fill(~where, excluded).requires_grad_()
            weights, indices = ons.route(leaf, 3, score=score, renormalize=renormalize, where=where)
            (gradient,) = torch.autograd.grad(weights.square().sum(), leaf)
            assert not gradient[~where].any() and not weights[2].any()
            assert gradient[0, where[0]].count_nonzero() >= 3
            results.append((weights, indices, gradient))
        for other in results[1:]:
            assert all(map(torch.equal, results[0], other))


def test_what_a_gradient_keeps():
    """The logits, the indices, and the bias and the mask if they are given."""
    x, bias, where = torch.randn(3, 8, requires_grad=True), torch.randn(8), torch.ones(8, dtype=torch.bool)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        weights, indices = ons.route(x, 2, bias=bias, where=where)
    assert [t.data_ptr() for t in kept] == [t.data_ptr() for t in (x, indices, bias, where)]
    assert weights.grad_fn.name() == "OnsoftmaxRouteBackward" and indices.grad_fn is None
    for written in (x, indices, where):
        weights, indices = ons.route(x, 2, bias=bias, where=where)
        (indices if written.dtype == torch.int64 else written).detach().fill_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            weights.sum().backward()
    array, mask = bias.numpy().copy(), np.arange(8) > 2  # NumPy does not record changes, so they are copied
    x = torch.randn(3, 8, requires_grad=True)
    wanted = torch.autograd.grad(
        ons.route(x, 2, where=torch.from_numpy(mask.copy())).weights.square().sum(), x
    )
    weights, _ = ons.route(x, 2, bias=0 * array, where=mask)
    mask[:] = False
    assert torch.equal(torch.autograd.grad(weights.square().sum(), x)[0], wanted[0])


def test_types_and_axes():
    x = torch.randn(4, 8, 3, dtype=torch.float64)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        given = x.to(dtype).requires_grad_()
        for kind in (None, torch.int32, "int64", np.int32):
            found = ons.route(given, 2, 1, index_dtype=kind)
            plain = ons.route(given.detach(), 2, 1, index_dtype=kind)
            assert type(found) is type(plain) and all(map(torch.equal, found, plain))
            assert found.indices.dtype == plain.indices.dtype
        rows = ons.route(given.detach().movedim(1, -1), 2)
        assert all(map(torch.equal, (each.movedim(-1, 1) for each in rows), plain))
    for shape in ((0, 8), (2, 0, 8)):
        given = torch.ones(shape, requires_grad=True)
        found = ons.route(given, 2)
        assert found.weights.shape == found.indices.shape == (*shape[:-1], 2)
        assert torch.autograd.grad(found.weights.sum(), given)[0].shape == shape


def test_a_router_learns():
    """A layer with a router learns as with torch's own functions, with a bias in a Parameter too."""
    losses = []
    data = torch.randn(64, 5, generator=torch.Generator().manual_seed(3))
    for route in (
        lambda x, bias: ons.route(x, 2, score="sigmoid", bias=bias.detach(), scale=2.0),
        lambda x, bias: (of_torch(x, i := (x.sigmoid() + bias).topk(2).indices, "sigmoid", True, 2.0), i),
    ):
        torch.manual_seed(0)
        gate, experts = torch.nn.Linear(5, 4), torch.nn.Parameter(torch.randn(4, 5))
        bias = torch.nn.Parameter(torch.tensor([0.1, -0.1, 0.0, 0.05]))
        optimizer = torch.optim.SGD([*gate.parameters(), experts], lr=0.5)
        for _ in range(10):
            weights, indices = route(gate(data), bias)
            loss = ((weights[..., None] * experts[indices]).sum(1) - data).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.detach())
    torch.testing.assert_close(*losses, rtol=1e-4, atol=0)
    with torch.no_grad():  # without a gradient there is nothing to refuse
        assert ons.route(data, 2, bias=torch.nn.Parameter(data[0])).indices.shape == (64, 2)


def test_errors():
    """test_torch_operators.py has the errors that tensors without values raise too."""
    x = torch.randn(3, 4, requires_grad=True)
    bias = torch.ones(4, requires_grad=True)
    without = r"bias requires grad, and no gradient flows to it: pass bias\.detach\(\)"
    for error, words, call in (
        (RuntimeError, without, lambda: ons.route(x, 2, bias=bias)),
        (RuntimeError, without, lambda: ons.route(x.detach(), 2, bias=bias)),
        (
            TypeError,
            "bias is of type str: expected a real number for each",
            lambda: onsoftmax.torch.route(x, 2, bias="a"),
        ),
        (TypeError, "where is of type str", lambda: ons.route(x, 2, where="a")),
        (ValueError, "with torch.cuda.stream", lambda: ons.route(x, 2, stream=1)),
        (
            TypeError,
            "index_dtype is 'float32': expected int32",
            lambda: ons.route(x, 2, index_dtype="float32"),
        ),
        (TypeError, "the array is of type list", lambda: onsoftmax.torch.route([1.0, 2.0], 1)),
        (RuntimeError, "jvp", lambda: torch.func.jvp(lambda t: ons.route(t, 2).weights, (x,), (x,))),
    ):
        with pytest.raises(error, match=words):
            call()
