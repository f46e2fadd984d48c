"""cross_entropy on a GPU: exact results from every kernel and layout, in place, edges, autograd, streams."""

import loss_checks
import numpy as np
import pytest
from gpu_support import DEVICE, OnlyDlpack, each_dtype, name, torch
from loss_checks import Terms

import onsoftmax as ons
from onsoftmax.torch import CrossEntropyLoss

# Lengths around the limits of the shapes in a warp, of a block, and of a cluster.
LENGTHS = (1, 3, 4, 5, 8, 9, 31, 32, 33, 100, 128, 129, 512, 513, 1000, 1024, 1025, 4097, 8192, 16384, 16385)
LONG = (32000, 32769, 50257, 131072, 262145, 400001)


def to_numpy(tensor):
    return tensor.double().cpu().numpy()


def checked(x, target, terms, reduction, results):
    loss, gradient = results
    assert loss.is_cuda and gradient.dtype == x.dtype
    loss_checks.check(
        to_numpy(x), target.cpu().numpy(), terms, reduction, to_numpy(loss), to_numpy(gradient), name(x.dtype)
    )


def arguments(rng, dtype, N, rows, layout):
    """Logits in a layout, and their targets, of which some are ignored."""
    x = torch.tensor(3 * rng.standard_normal((rows, N + 1)), device=DEVICE).to(dtype)
    target = torch.tensor(rng.integers(0, N, rows), device=DEVICE)
    target = target.int() if rng.random() < 0.5 else target
    if rows > 1:
        target[rng.integers(0, rows)] = -100
    return {"plain": x[:, :N].contiguous(), "pitched": x[:, :N], "odd": x[:, 1:]}[layout], target


def random_terms(rng, N, dtype):
    terms = loss_checks.random_terms(rng, N, name(dtype))._replace(ignore_index=-100)
    weight = None if terms.weight is None else torch.tensor(terms.weight, device=DEVICE)
    return terms, terms._replace(weight=weight).keywords()


@each_dtype
@pytest.mark.parametrize("layout", ["plain", "pitched", "odd"])
@pytest.mark.parametrize("lengths", [LENGTHS, LONG], ids=["short", "long"])
def test_every_length(rng, dtype, layout, lengths):
    for N in lengths:
        x, target = arguments(rng, dtype, N, 5 if N < 1000 else 2, layout)
        terms, keywords = random_terms(rng, N, dtype)
        reduction = str(rng.choice(loss_checks.REDUCTIONS))
        loss, gradient, lse = ons.cross_entropy_with_grad(
            x, target, reduction=reduction, return_lse=True, **keywords
        )
        checked(x, target, terms, reduction, (loss, gradient))
        alone, other_lse = ons.cross_entropy(x, target, reduction=reduction, return_lse=True, **keywords)
        checked(x, target, terms, reduction, (alone, gradient))
        for made in (lse, other_lse):
            assert torch.allclose(made.double(), torch.logsumexp(x.double(), -1), rtol=1e-6, atol=1e-6)


@each_dtype
@pytest.mark.small
@pytest.mark.parametrize("N", [7, 1000, 5000, 40000])
def test_in_place_and_other_axes(rng, dtype, N):
    for layout in ("plain", "odd"):
        x, target = arguments(rng, dtype, N, 3, layout)
        kept = x.clone()
        loss, gradient = ons.cross_entropy_with_grad(x, target, grad_out=x)
        assert gradient is x
        checked(kept, target, Terms(), "mean", (loss, gradient))
    by_columns = kept.T.contiguous()
    loss, gradient = ons.cross_entropy_with_grad(by_columns, target, axis=0)
    checked(kept, target, Terms(), "mean", (loss, gradient.T))


@each_dtype
@pytest.mark.small
@pytest.mark.parametrize("N", [10, 2000, 20000, 70000])
def test_no_class_and_edges(dtype, N):
    x = torch.zeros(6, N, device=DEVICE, dtype=dtype)
    x[3, 5] = torch.nan
    x[4, 5] = torch.inf
    x[5, 5] = -torch.inf
    target = torch.tensor([N, -1, -100, 0, 0, 5], device=DEVICE)
    for function in (
        ons.cross_entropy_with_grad,
        lambda *given, **terms: (ons.cross_entropy(*given, **terms), None),
    ):
        loss, gradient = function(x, target, reduction="none")
        assert torch.isnan(loss[[0, 1, 3, 4]]).all() and loss[2] == 0 and loss[5] == torch.inf
        if gradient is not None:
            assert torch.isnan(gradient[[0, 1, 3, 4]]).all() and not gradient[2].any()
            assert gradient[5, 5] == -1
    assert torch.isnan(ons.cross_entropy(x[:1], torch.tensor([-100], device=DEVICE)))
    assert (
        torch.isnan(ons.cross_entropy(x[:0], target[:0]))
        and ons.cross_entropy(x[:0], target[:0], reduction="sum") == 0
    )


@pytest.mark.parametrize("N", [1000, 50000])
def test_autograd(rng, N):
    x = torch.tensor(rng.standard_normal((4, N)), device=DEVICE, dtype=torch.float32)
    target = torch.tensor(rng.integers(0, N, 4), device=DEVICE)
    for reduction in loss_checks.REDUCTIONS:
        gradients = []
        for function in (ons.cross_entropy, torch.nn.functional.cross_entropy):
            leaf = x.clone().requires_grad_()
            (function(leaf, target, reduction=reduction).sum() * 3).backward()
            gradients.append(leaf.grad)
        assert torch.allclose(*gradients, rtol=1e-5, atol=1e-8)


@each_dtype
@pytest.mark.small
@pytest.mark.parametrize("rows", [8192, 8193, 100003])
def test_many_rows(rng, dtype, rows):
    """From 8193 rows on, several blocks add up the losses and the weights."""
    x = torch.tensor(rng.standard_normal((rows, 9)), device=DEVICE).to(dtype)
    target = torch.tensor(rng.integers(0, 9, rows), device=DEVICE)
    target[rng.random(rows) < 0.2] = -100
    for reduction in ("sum", "mean"):
        terms, keywords = random_terms(rng, 9, dtype)
        results = ons.cross_entropy_with_grad(x, target, reduction=reduction, **keywords)
        checked(x, target, terms, reduction, results)
        alone = ons.cross_entropy(x, target, reduction=reduction, **keywords)
        checked(x, target, terms, reduction, (alone, results[1]))


@each_dtype
def test_the_factor_of_a_gradient(rng, dtype):
    """1 changes nothing, not even a NaN's bits. Any other factor multiplies once, at any alignment."""
    x = torch.tensor(rng.standard_normal(1 << 17), device=DEVICE).to(dtype)
    real = torch.float64 if dtype == torch.float64 else torch.float32
    for count in (1, 7, 1000, (1 << 17) - 5):
        for begin in (0, 1, 3):
            for factor in (1.0, -0.3):
                y = x.clone()
                assert ons._core.multiply(
                    y[begin : begin + count], torch.tensor(factor, device=DEVICE, dtype=real)
                )
                wanted = x.clone()
                wanted[begin : begin + count] = (wanted[begin : begin + count].to(real) * factor).to(dtype)
                assert torch.equal(y, wanted)
    assert not ons._core.multiply(x.reshape(2, -1).T, torch.tensor(2.0, device=DEVICE, dtype=real))


@pytest.mark.parametrize("N", [100, 3000, 40000, 130000])
def test_rows_do_not_depend_on_the_batch_when_invariant(rng, N):
    x = torch.tensor(rng.standard_normal((70, N)), device=DEVICE, dtype=torch.bfloat16)
    target = torch.tensor(rng.integers(0, N, 70), device=DEVICE)
    before = ons.set_batch_invariant(True)
    try:
        loss, gradient = ons.cross_entropy_with_grad(x, target, reduction="none")
        for rows in (slice(3, 4), slice(2, 5)):
            one, of_one = ons.cross_entropy_with_grad(x[rows], target[rows], reduction="none")
            assert torch.equal(one, loss[rows]) and torch.equal(of_one, gradient[rows])
    finally:
        ons.set_batch_invariant(before)


def test_a_stream_and_a_graph(rng):
    x, target = arguments(rng, torch.float32, 5000, 8, "plain")
    wanted = ons.cross_entropy_with_grad(x, target)
    stream = torch.cuda.Stream()
    made = ons.cross_entropy_with_grad(x, target, stream=stream)
    stream.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(made, wanted, strict=True))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = ons.cross_entropy_with_grad(x, target)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(captured, wanted, strict=True))


def test_other_libraries(rng):
    x, target = arguments(rng, torch.float32, 300, 4, "plain")
    loss, gradient = ons.cross_entropy_with_grad(OnlyDlpack(x), OnlyDlpack(target))
    checked(x, target, Terms(), "mean", (torch.from_dlpack(loss), torch.from_dlpack(gradient)))


def test_memory_between_the_steps(rng):
    """4 bytes a row at most, beside logits, targets and the gradient. torch may give 1 MiB more than it is
    asked for."""
    x, target = arguments(rng, torch.bfloat16, 32000, 512, "plain")
    leaf = x.requires_grad_()
    ons.cross_entropy(leaf, target).backward()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    leaf.grad = None
    freed = before - torch.cuda.memory_allocated()
    loss = ons.cross_entropy(leaf, target)
    held = torch.cuda.memory_allocated() - (before - freed)
    assert held <= 4 * 512 + 4096
    loss.backward()
    peak = torch.cuda.max_memory_allocated() - (before - freed)
    assert peak <= x.numel() * 2 + 64 * 512 + 2**20
    assert np.isfinite(float(loss.detach()))


@pytest.mark.parametrize("reduction", loss_checks.REDUCTIONS)
def test_in_place(rng, reduction):
    """The gradient needs no memory of its own."""
    x, target = arguments(rng, torch.bfloat16, 32000, 64, "plain")
    leaf, gradients = x.requires_grad_(), []
    for in_place in (False, True):
        logits = leaf + 0  # hands its gradient on as it is
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        loss = CrossEntropyLoss(in_place=in_place, reduction=reduction)(logits, target).sum()
        gradients.append(torch.autograd.grad(loss * 2, leaf)[0])
        peak = torch.cuda.max_memory_allocated() - before
        assert (peak <= 64 * 64 + 2**20) == in_place
    assert gradients[1].data_ptr() == logits.data_ptr()
    torch.testing.assert_close(*gradients)
