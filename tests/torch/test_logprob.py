"""logprob of torch tensors on the CPU. test_torch_operators.py tests derivatives, transforms and graphs,
together with the other operators."""

import pytest

import onsoftmax as ons

torch = pytest.importorskip("torch")
pytest.importorskip("onsoftmax.torch")


def arguments(dtype=torch.float32, rows=(6,), N=50, several=()):
    """Logits that require grad, and indices."""
    generator = torch.Generator().manual_seed(0)
    x = (3 * torch.randn((*rows, N), generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()
    return x, torch.randint(N, (*rows, *several), generator=generator)


def of_torch(x, index, axis=-1):
    """The log-probabilities, entropy and logsumexp by torch alone."""
    x = x.movedim(axis, -1)
    at = index if index.ndim == x.ndim else index.unsqueeze(-1)
    chosen = torch.log_softmax(x, -1).gather(-1, at).view(index.shape)
    return chosen, torch.distributions.Categorical(logits=x).entropy(), x.logsumexp(-1)


def ours(x, index, axis=-1):
    return ons.logprob(x, index, axis, entropy=True, lse=True)[:3]


def values_and_gradient(function, x, index, axis=-1):
    """Each result has a gradient that differs from row to row."""
    results = function(x, index, axis)
    factors = [torch.linspace(-1, 2, each.numel()).view(each.shape).to(each) for each in results]
    (gradient,) = torch.autograd.grad(results, x, factors)
    return [each.detach() for each in results], gradient


@pytest.mark.parametrize(
    ("dtype", "axis", "several"),
    [
        (torch.float32, -1, ()),
        (torch.float32, 0, (3,)),
        (torch.float64, 0, ()),
        (torch.float64, -1, (1,)),
        (torch.bfloat16, -1, (3,)),
    ],
    ids=str,
)
def test_beside_torch(dtype, axis, several):
    """torch's own results are in float64. Our gradient is rounded once more to 16 bits."""
    x, index = arguments(dtype, (4, 5), several=several)
    x = x.detach().movedim(-1, axis).requires_grad_()
    results, gradient = values_and_gradient(ours, x, index, axis)
    wide = x.detach().double().requires_grad_()
    expected, wanted = values_and_gradient(of_torch, wide, index, axis)
    real = torch.promote_types(dtype, torch.float32)
    for made, theirs in zip(results, expected, strict=True):
        assert made.dtype == real
        torch.testing.assert_close(made.double(), theirs, rtol=2e-6, atol=0)
    eps = torch.finfo(dtype).eps
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient.double(), wanted, rtol=eps, atol=8 * torch.finfo(real).eps)


def test_each_result_alone():
    """The results that are not wanted, or not used, add nothing to the gradient."""
    x, index = arguments(torch.float64)
    whole = ons.logprob(x, index, entropy=True, lse=True, argmax=True, rank=True, topk=2)
    alone = ons.logprob(x, index), *(ons.logprob(x, index, **{name: True}) for name in ("entropy", "lse"))
    for made, other, theirs in zip(
        whole[:3], (alone[0], alone[1].entropy, alone[2].lse), of_torch(x, index), strict=True
    ):
        (wanted,) = torch.autograd.grad(theirs.sum(), x)
        for result in (made, other):
            (gradient,) = torch.autograd.grad(result.sum(), x, retain_graph=True)
            torch.testing.assert_close(gradient, wanted)
    both = ons.softmax_topk(x, 2, log=True).values, whole.topk.values
    assert torch.equal(*(torch.autograd.grad(values.sum(), x)[0] for values in both))
    assert not (whole.argmax.requires_grad or whole.rank.requires_grad or whole.topk.indices.requires_grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_a_gradient_keeps(dtype):
    """The logits, the indices and 24 bytes a row."""
    x, index = arguments(dtype)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        found = ons.logprob(x, index, entropy=True, lse=True, argmax=True, rank=True)
    assert [each.data_ptr() for each in kept[:2]] == [x.data_ptr(), index.data_ptr()]
    assert [each.nbytes for each in kept[2:]] == [24 * 6]
    del found
    for written in (x.detach(), index):
        result = ons.logprob(x, index)
        written[0] = 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_bits_are_those_of_a_plain_call():
    x, index = arguments()
    for keywords in ({}, {"entropy": True, "rank": True}, {"lse": True, "argmax": True, "topk": 3}):
        plain, found = (ons.logprob(each, index, **keywords) for each in (x.detach(), x))
        assert type(found) is (ons.LogProb if keywords else torch.Tensor)
        if not keywords:
            assert torch.equal(plain, found) and found.grad_fn and not plain.grad_fn
            continue
        pairs = zip((*found[:5], *(found.topk or ())), (*plain[:5], *(plain.topk or ())), strict=True)
        for made, wanted in pairs:
            assert made is wanted is None or torch.equal(made, wanted)
    with torch.no_grad():
        assert ons.logprob(x, index).grad_fn is None


def test_reinforcement():
    """A policy learns as with torch's distribution, in 16 bits under torch.autocast too."""
    x, index = arguments(rows=(40,), N=5)
    advantage = torch.linspace(-1, 2, 40)
    for dtype in (torch.float32, torch.bfloat16):
        losses = []
        for function in (ours, of_torch):
            torch.manual_seed(0)
            policy = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 5))
            optimizer = torch.optim.AdamW(policy.parameters(), lr=0.1)
            for _ in range(5):
                with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                    logprob, entropy, _ = function(policy(x.detach()), index)
                    loss = -(advantage * logprob).mean() - 0.01 * entropy.mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append(loss.detach().float())
        torch.testing.assert_close(*losses, rtol=1e-5 if dtype == torch.float32 else 0.05, atol=0)


def test_rows_that_do_not_count():
    x, index = arguments()
    index[2] = -100
    with pytest.raises(IndexError, match="index -100 of row 2 is no element"):
        ons.logprob(x, index)
    counts = index != -100
    chosen = ons.logprob(x, index.clip(0))
    (gradient,) = torch.autograd.grad(chosen[counts].sum(), x)
    assert torch.equal(gradient.any(-1), counts)


@pytest.mark.parametrize("kind", ["plain", "with a gradient"])
def test_indices_of_every_kind(kind):
    x, index = arguments()
    x = x.detach() if kind == "plain" else x
    wanted = ons.logprob(x, index)
    gaps = torch.stack([index, index], 1)[:, 0]
    for given in (index.int(), index.to(torch.uint8), gaps, index.tolist(), index.numpy()):
        made = ons.logprob(x, given, entropy=True).logprob
        assert torch.equal(made, wanted) and made.requires_grad == x.requires_grad
    row = ons.logprob(x[0], int(index[0]))
    assert row.shape == () and torch.equal(row, wanted[0])
    empty = ons.logprob(x[:0], index[:0], entropy=True, rank=True)
    assert empty.entropy.shape == empty.rank.shape == (0,)
    for error, words, wrong in (
        (TypeError, "index has dtype float32: expected the indices of elements", x.detach()[:, 0]),
        (TypeError, "index .* str.*: expected the indices of elements", "a"),
        (ValueError, r"index has shape \(5,\): expected \(6,\)", index[1:]),
        (ValueError, "index has 0 elements of each row", index[:, None][:, :0]),
        (ValueError, "index is on meta", index.to("meta")),
        (IndexError, "index 50 of row 0 is no element", torch.full((6,), 50)),
    ):
        with pytest.raises(error, match=words):
            ons.logprob(x, wrong)
    with pytest.raises(ValueError, match="index has 2 elements of each row: expected one"):
        ons.logprob(x, index[:, None].expand(6, 2), rank=True)
