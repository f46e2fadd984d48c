"""filtered_softmax of torch tensors on the CPU: the operator, its gradients, and torch.compile."""

import numpy as np
import pytest

import onsoftmax as ons

torch = pytest.importorskip("torch")
pytest.importorskip("onsoftmax.torch")

TERMS = {"top_k": 9, "top_p": 0.9, "min_p": 0.01}


@pytest.fixture
def logits():
    return 2 * torch.randn(5, 3, 40, generator=torch.Generator().manual_seed(0))


def plain(x, kept, temperature):
    """The softmax of the kept tokens by torch alone."""
    return torch.where(kept, x / temperature, -torch.inf).softmax(-1)


def test_tensors_give_the_same_as_numpy(logits):
    temperature = torch.linspace(0, 2, 15).view(5, 3)
    right = ons.filtered_softmax(logits.numpy(), temperature=temperature.numpy(), **TERMS)
    found = ons.filtered_softmax(logits, temperature=temperature, **TERMS)
    assert found.dtype == torch.float32 and np.array_equal(found.numpy(), right)
    for kind in (torch.float16, torch.bfloat16):
        narrow = ons.filtered_softmax(logits.to(kind), **TERMS)
        assert torch.equal(narrow, ons.filtered_softmax(logits.to(kind).float(), **TERMS))
    moved = ons.filtered_softmax(logits.movedim(-1, 0), axis=0, temperature=temperature, **TERMS)
    assert torch.equal(moved.movedim(0, -1), found)


def test_the_module_the_operator_and_torch_compile_give_the_same(logits):
    import onsoftmax.torch

    temperature = torch.linspace(0.1, 2, 15).view(5, 3)
    right = ons.filtered_softmax(logits, temperature=temperature, **TERMS)
    assert torch.equal(onsoftmax.torch.filtered_softmax(logits, temperature=temperature, **TERMS), right)
    given = {f"{name}_of_all": value for name, value in TERMS.items()}
    assert torch.equal(torch.ops.onsoftmax.filtered_softmax(logits, -1, temperature, **given), right)
    compiled = torch.compile(
        lambda x: ons.filtered_softmax(x, temperature=temperature, **TERMS), fullgraph=True
    )
    assert torch.equal(compiled(logits), right)
    torch.library.opcheck(torch.ops.onsoftmax.filtered_softmax.default, (logits, -1, temperature), given)


@pytest.mark.parametrize("of_rows", [False, True])
def test_gradients(logits, of_rows):
    """The kept tokens are constant. A greedy row has no gradient."""
    temperature = torch.tensor([0.5, 1.5, 1e-31] * 5).view(5, 3) if of_rows else 0.5
    x = logits.double().requires_grad_()
    y = ons.filtered_softmax(x, temperature=temperature, **TERMS)
    divisor = torch.as_tensor(temperature).double().reshape(-1, *([1] if of_rows else []))
    right = plain(x, y > 0, divisor.view(5, 3, 1) if of_rows else divisor)
    g = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (ours,), (theirs,) = (torch.autograd.grad(each, x, g, create_graph=True) for each in (y, right))
    rows = (slice(None), slice(0, 2)) if of_rows else ()
    torch.testing.assert_close(ours[rows], theirs[rows])
    second = [torch.autograd.grad(each[rows].square().sum(), x)[0] for each in (ours, theirs)]
    torch.testing.assert_close(*(each[rows] for each in second))
    if of_rows:
        assert not ours[:, 2].any()
    narrow = logits.half().requires_grad_()
    ons.filtered_softmax(narrow, **TERMS)[..., 0].sum().backward()
    assert narrow.grad.dtype == torch.float16


def test_a_gradient_of_an_excluded_token_has_no_effect(logits):
    where = torch.arange(40) < 30
    x = logits[0, :1].clone().requires_grad_()
    y = ons.filtered_softmax(x, where=where, **TERMS)
    g = torch.ones_like(y).masked_fill(~where, torch.nan)
    assert torch.autograd.grad(y, x, g)[0].isfinite().all()


def test_transforms(logits):
    mapped = torch.vmap(lambda x, k: ons.filtered_softmax(x, top_k=k))(logits, torch.arange(1, 6))
    each = [ons.filtered_softmax(x, top_k=k) for x, k in zip(logits, range(1, 6), strict=True)]
    assert torch.equal(mapped, torch.stack(each))
    grad = torch.func.grad(lambda x: ons.filtered_softmax(x, top_p=0.5)[0].square().sum())(logits[0, 0])
    assert grad.shape == (40,)


def test_errors(logits):
    with pytest.raises(RuntimeError, match=r"temperature requires grad, .* pass temperature\.detach\(\)"):
        ons.filtered_softmax(logits, temperature=torch.ones(5, 3, requires_grad=True))
    with pytest.raises(ValueError, match="top_p is 2: expected a number from 0 to 1"):
        ons.filtered_softmax(logits.requires_grad_(), top_p=2)
