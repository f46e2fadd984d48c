"""sample of torch tensors on the CPU. test_torch_operators.py tests graphs and errors of all operators."""

import numpy as np
import pytest

import onsoftmax as ons

torch = pytest.importorskip("torch")
pytest.importorskip("onsoftmax.torch")

TERMS = {"top_k": 9, "top_p": 0.9, "min_p": 0.01, "return_logprob": True, "return_valid": True}


@pytest.fixture
def logits():
    return 2 * torch.randn(5, 3, 40, generator=torch.Generator().manual_seed(0))


def test_tensors_give_the_same_as_numpy(logits):
    temperature, seed = torch.linspace(0, 2, 15).view(5, 3), torch.arange(15).view(5, 3)
    right = ons.sample(logits.numpy(), temperature=temperature.numpy(), seed=seed.numpy(), **TERMS)
    for given in ({}, {"temperature": temperature.double()}, {"seed": seed.int()}):
        found = ons.sample(logits, **{"temperature": temperature, "seed": seed} | TERMS | given)
        assert [t.dtype for t in found] == [torch.int64, torch.float32, torch.bool]
        assert all(np.array_equal(a.numpy(), b) for a, b in zip(found, right, strict=True))
    for kind in (torch.float16, torch.bfloat16):
        found = ons.sample(logits, temperature=temperature.to(kind), seed=seed, **TERMS)
        wide = ons.sample(logits, temperature=temperature.to(kind).float(), seed=seed, **TERMS)
        assert all(map(torch.equal, found, wide))
    swapped = ons.sample(logits, temperature=temperature.T.contiguous().T, seed=seed.tolist(), **TERMS)
    assert all(map(torch.equal, swapped, ons.sample(logits, temperature=temperature, seed=seed, **TERMS)))
    moved = ons.sample(logits.movedim(-1, 0), axis=0, seed=seed)
    assert torch.equal(moved, ons.sample(logits, seed=seed))


def test_the_module_and_the_operator_give_the_same(logits):
    """Numbers and tensors alike, and results that are not wanted are empty."""
    import onsoftmax.torch

    temperature, seed = torch.linspace(0.1, 2, 15).view(5, 3), 2**64 - 3
    right = ons.sample(logits, temperature=temperature, seed=seed, **TERMS)
    found = onsoftmax.torch.sample(logits, temperature=temperature.tolist(), seed=seed, **TERMS)
    assert all(map(torch.equal, found, right))
    indices, logprob, valid = torch.ops.onsoftmax.sample(
        logits, -1, temperature, top_k_of_all=9, top_p_of_all=0.9, min_p_of_all=0.01, seed_of_all=-3
    )
    assert torch.equal(indices, right[0]) and logprob.shape == valid.shape == (0,)
    compiled = torch.compile(lambda t, seed: ons.sample(t, temperature=temperature, seed=seed, **TERMS))
    assert all(map(torch.equal, compiled(logits, seed), right))


def test_no_gradient(logits):
    """Logits that require grad give indices. A log-probability without its gradient would be a surprise."""
    leaf, right = logits.clone().requires_grad_(), ons.sample(logits, seed=1, return_valid=True)
    found = ons.sample(leaf, seed=1, return_valid=True)
    assert all(map(torch.equal, found, right)) and not found[0].requires_grad
    with pytest.raises(
        RuntimeError, match=r"logits requires grad, and no gradient .* pass logits\.detach\(\)"
    ):
        ons.sample(leaf, seed=1, return_logprob=True)
    temperature = torch.ones(5, 3, requires_grad=True)
    for given in (logits, leaf):
        with pytest.raises(RuntimeError, match=r"temperature requires grad, .* pass temperature\.detach\(\)"):
            ons.sample(given, temperature=temperature, seed=1)
    with torch.no_grad():
        assert torch.equal(ons.sample(leaf, temperature=temperature, seed=1), right[0])
        assert ons.sample(leaf, seed=1, return_logprob=True)[1].shape == (5, 3)


def test_vmap_makes_a_call_for_each_element(logits):
    seed, where = torch.arange(5), logits[0] > -1
    mapped = torch.vmap(lambda t, s: ons.sample(t, seed=s, where=where, **TERMS))(logits, seed)
    each = [ons.sample(t, seed=s.item(), where=where, **TERMS) for t, s in zip(logits, seed, strict=True)]
    assert all(torch.equal(a, torch.stack(b)) for a, b in zip(mapped, zip(*each, strict=True), strict=True))


def test_errors(logits):
    import onsoftmax.torch

    for error, words, call in (
        (TypeError, "the array is of type list", lambda: onsoftmax.torch.sample([1.0, 2.0], seed=0)),
        (ValueError, "with torch.cuda.stream", lambda: onsoftmax.torch.sample(logits, seed=0, stream=1)),
        (TypeError, "seed is 'a': expected an int", lambda: onsoftmax.torch.sample(logits, seed="a")),
        (
            TypeError,
            "top_k is of type dict: expected a tensor",
            lambda: onsoftmax.torch.sample(logits, seed=0, top_k={}),
        ),
        (ValueError, "seed is on meta", lambda: ons.sample(logits, seed=torch.ones(5, 3).int().to("meta"))),
    ):
        with pytest.raises(error, match=words):
            call()
