"""logprob on a GPU: exact results and gradients of every kernel and layout, edges, batches."""

import logprob_checks
import numpy as np
import pytest
from gpu_support import DEVICE, each_dtype, name, torch

import onsoftmax as ons
from onsoftmax import _core

# Lengths around the tiles of a warp and the warps of a block and of a cluster.
LENGTHS = (1, 3, 4, 5, 31, 33, 511, 512, 513, 1023, 1024, 1025, 2049, 4097, 8191, 8192, 9000, 16384, 16385)
LONG = (32000, 32769, 50257, 131072, 262145, 400001)


def to_numpy(tensor):
    return None if tensor is None else tensor.double().cpu().numpy()


def arguments(rng, dtype, N, rows, layout, several=1):
    x = torch.tensor(3 * rng.standard_normal((rows, N + 1)), device=DEVICE).to(dtype)
    index = torch.tensor(rng.integers(0, N, (rows, several)), device=DEVICE)
    index = index.int() if rng.random() < 0.5 else index
    return {"plain": x[:, :N].contiguous(), "pitched": x[:, :N], "odd": x[:, 1:]}[layout], index


def checked(x, index, found):
    logprob_checks.check(
        to_numpy(x), index.cpu().numpy().astype(int), [to_numpy(each) for each in found], name(x.dtype)
    )


@each_dtype
@pytest.mark.parametrize("layout", ["plain", "pitched", "odd"])
@pytest.mark.parametrize("lengths", [LENGTHS, LONG], ids=["short", "long"])
def test_every_length(rng, dtype, layout, lengths):
    for N in lengths:
        for rows in (1, 3) if N >= 1000 else (300,):
            x, index = arguments(rng, dtype, N, rows, layout)
            checked(x, index, ons.logprob(x, index, entropy=True, lse=True, argmax=True, rank=True)[:5])


@each_dtype
@pytest.mark.small
@pytest.mark.parametrize("N", [7, 1000, 5000, 40000])
def test_gradients(rng, dtype, N):
    real = torch.float64 if dtype == torch.float64 else torch.float32
    for layout, several in (("plain", 1), ("odd", 3)):
        x, index = arguments(rng, dtype, N, 5, layout, several)
        given = [
            torch.tensor(rng.standard_normal(shape), device=DEVICE, dtype=real)
            for shape in ((5, several), (5,), (5,))
        ]
        moments = _core.logprob(x, index, -1, True, False, False, False, True, None, None)[5]
        made = _core.logprob_backward(x, index, -1, moments, *given, None, None)
        wanted, size = logprob_checks.gradient(
            to_numpy(x), index.cpu().numpy().astype(int), *map(to_numpy, given)
        )
        eps = 2.0**-52 if dtype == torch.float64 else 2.0**-23
        logprob_checks.assert_near(to_numpy(made), wanted, size, eps, name(dtype))


@each_dtype
@pytest.mark.small
@pytest.mark.parametrize("N", [1000, 40000])
def test_autograd(rng, dtype, N):
    """Gradients of the log-probabilities, the entropy and the lse, along another axis too. The backward step
    keeps 24 bytes a row besides the logits and the indices."""
    x, index = arguments(rng, dtype, N, 5, "plain", 2)
    real = torch.float64 if dtype == torch.float64 else torch.float32
    given = [torch.tensor(rng.standard_normal(s), device=DEVICE, dtype=real) for s in ((5, 2), (5,), (5,))]
    wanted, size = logprob_checks.gradient(
        to_numpy(x), index.cpu().numpy().astype(int), *map(to_numpy, given)
    )
    eps = 2.0**-52 if dtype == torch.float64 else 2.0**-23
    for axis, logits in ((-1, x), (0, x.T.contiguous())):
        leaf, kept = logits.clone().requires_grad_(), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, k=kept: k.append(t) or t, lambda t: t):
            found = ons.logprob(leaf, index, axis, entropy=True, lse=True, argmax=True)
        plain = ons.logprob(logits, index, axis, entropy=True, lse=True, argmax=True)
        assert all(torch.equal(a, b) for a, b in zip(found[:4], plain[:4], strict=True))
        assert [each.data_ptr() for each in kept[:2]] == [leaf.data_ptr(), index.data_ptr()]
        assert [each.nbytes for each in kept[2:]] == [24 * 5]
        (made,) = torch.autograd.grad(found[:3], leaf, given)
        logprob_checks.assert_near(to_numpy(made.movedim(axis, -1)), wanted, size, eps, name(dtype))


@pytest.mark.small
def test_an_index_that_is_no_element_has_no_gradient(rng):
    """Its row is NaN. The other rows are right."""
    x, index = arguments(rng, torch.float32, 1000, 3, "plain")
    index = index[:, 0].clone()
    index[1] = -100
    leaf = x.clone().requires_grad_()
    (made,) = torch.autograd.grad(ons.logprob(leaf, index).sum(), leaf)
    index[1] = 0
    (wanted,) = torch.autograd.grad(ons.logprob(leaf, index).sum(), leaf)
    assert torch.isnan(made[1]).all() and torch.equal(made[::2], wanted[::2])


@each_dtype
@pytest.mark.small
def test_other_axes_and_several_elements(rng, dtype):
    x, index = arguments(rng, dtype, 3000, 4, "plain", 5)
    wanted = logprob_checks.expected(to_numpy(x), index.cpu().numpy().astype(int))
    made = ons.logprob(x.T.contiguous(), index, axis=0)
    assert made.shape == index.shape
    assert np.allclose(to_numpy(made), wanted.logprob.astype(float), rtol=1e-6)


@each_dtype
@pytest.mark.small
@pytest.mark.parametrize("N", [10, 2000, 20000, 70000])
def test_edges(dtype, N):
    x = torch.zeros(6, N, device=DEVICE, dtype=dtype)
    x[2, 3], x[2, 5] = torch.nan, torch.nan
    x[3, 5] = torch.inf
    x[4] = -torch.inf
    x[5, 5] = -torch.inf
    index = torch.tensor([N, -1, 3, 0, 0, 5], device=DEVICE)
    found = ons.logprob(x, index, entropy=True, lse=True, argmax=True, rank=True)
    assert torch.isnan(found.logprob[:5]).all() and found.logprob[5] == -torch.inf
    assert found.rank.tolist() == [-1, -1, 0, 1, 0, N - 1]
    assert found.argmax.tolist() == [0, 0, 3, 5, 0, 0]
    assert torch.isnan(found.entropy[2:5]).all()
    assert torch.isnan(found.lse[2]) and found.lse[3] == torch.inf and found.lse[4] == -torch.inf
    assert abs(found.entropy[5].item() - np.log(N - 1)) < 3e-7 * np.log(N)


@pytest.mark.parametrize("N", [100, 3000, 40000, 130000, 1200000])
def test_rows_do_not_depend_on_the_batch_when_invariant(rng, N):
    x = torch.tensor(rng.standard_normal((200, N + 1)), device=DEVICE, dtype=torch.bfloat16)
    index = torch.tensor(rng.integers(0, N, 200), device=DEVICE)
    before = ons.set_batch_invariant(True)
    try:
        whole = ons.logprob(x[:, :N], index, entropy=True, lse=True)
        for rows in (slice(3, 4), slice(2, 70)):
            for part in (x[rows, :N], x[rows, :N].contiguous(), x[rows, :N].T.contiguous().T):
                made = ons.logprob(part, index[rows], entropy=True, lse=True)
                assert all(torch.equal(a, b[rows]) for a, b in zip(made[:3], whole[:3], strict=True))
    finally:
        ons.set_batch_invariant(before)


def test_a_stream_and_a_graph(rng):
    x, index = arguments(rng, torch.float32, 5000, 8, "plain")
    wanted = ons.logprob(x, index, entropy=True)
    stream = torch.cuda.Stream()
    made = ons.logprob(x, index, entropy=True, stream=stream)
    stream.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(made[:2], wanted[:2], strict=True))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = ons.logprob(x, index, entropy=True)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(captured[:2], wanted[:2], strict=True))
