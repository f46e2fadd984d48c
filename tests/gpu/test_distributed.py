"""Rows over the ranks of a torch.distributed group: NCCL, one process per GPU."""

import pytest
from gpu_support import generator, same_bits, torch
from ranks import run_ranks

from onsoftmax import _core


@pytest.mark.parametrize("check", ["bits", "gradients", "gradcheck", "bytes", "refused", "dtensor"])
def test_one_rank(tmp_path, check):
    run_ranks(tmp_path, 1, check, device="cuda")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("check", ["bits", "order", "gradients", "gradcheck", "bytes", "refused", "dtensor"])
def test_two_gpus(tmp_path, check):
    run_ranks(tmp_path, 2, check, device="cuda")


def state(x, cuts, axis):
    """The pairs of rows that are cut into parts."""
    parts = [_core.sums(part, axis) for part in x.tensor_split(cuts, axis)]
    return _core.merge(torch.stack(parts), 0, gives="pair")


CUTS = [[1], [100, 101, 101, 900], [0, 128, 1500], [2990], [3001]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "scale, offset",
    [
        *((1, 0), (30, 0), (1e4, 0), (40, 16384), (40, -16384), (1, 1e6), (60, 2.5e6), (60, -2.5e6)),
        *((1e8, 1e9), (1e30, 0)),
    ],
)
@pytest.mark.parametrize("shape, axis", [((40, 3001), -1), ((3001, 70), 0), ((3, 3001, 5), 1)])
def test_where_a_row_is_cut_does_not_show(dtype, scale, offset, shape, axis):
    """The maxima lie on both sides of the bound beyond which a row gets an anchor."""
    if dtype == torch.float16 and offset + 5 * scale > 6e4:
        pytest.skip("beyond float16")
    x = torch.randn(shape, device="cuda", generator=generator(3), dtype=torch.float64)
    x = (scale * x + offset).to(dtype)
    x.movedim(axis, -1)[0, ..., :4] = torch.tensor([-torch.inf, 0, torch.inf, torch.nan], device="cuda")
    whole = state(x, [], axis)
    for cuts in CUTS:
        assert same_bits(state(x, cuts, axis), whole), cuts
    host = state(x.cpu(), [], axis)
    near = torch.isclose(whole.cpu(), host, rtol=1e-6, atol=0, equal_nan=True)
    assert near.all(), (whole.cpu()[~near], host[~near])


def test_long_rows():
    for N in (70_001, 151_936, 5_000_003):
        x = 3 * torch.randn((3, N), device="cuda", generator=generator(4))
        for part in (x, x.bfloat16(), x[:, 1:].bfloat16(), x.double()):
            whole = state(part, [], 1)
            assert same_bits(state(part, [N // 3, N // 2 + 1], 1), whole)
            lse = _core.finish(part[:, :0].double(), pairs=whole, operation="logsumexp")
            assert torch.allclose(lse, torch.logsumexp(part.double(), 1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("operation", ["softmax_backward", "log_softmax_backward"])
@pytest.mark.parametrize(
    "shape, axis", [((40, 3001), -1), ((30, 4096), -1), ((3001, 70), 0), ((2, 40000), -1)]
)
def test_gradients_by_given_sums(dtype, operation, shape, axis):
    """The gradients equal those of whole rows, except for the order of the sums."""
    y = torch.randn(shape, device="cuda", generator=generator(5), dtype=torch.float64)
    y = (torch.softmax if operation == "softmax_backward" else torch.log_softmax)(y, axis).to(dtype)
    grad = torch.randn(shape, device="cuda", generator=generator(6)).to(dtype)
    cuts = [shape[axis] // 3, shape[axis] // 2]
    parts = list(zip(grad.tensor_split(cuts, axis), y.tensor_split(cuts, axis), strict=True))
    sums = torch.stack([_core.gradient_sums(*part, axis, operation=operation) for part in parts]).sum(0)
    terms = grad.double() * (y.double() if operation == "softmax_backward" else 1)
    assert torch.allclose(sums.sum(-1), terms.sum(axis), rtol=0, atol=1e-12 * shape[axis])
    made = [_core.gradient_finish(*part, axis, pairs=sums, operation=operation) for part in parts]
    wanted = getattr(_core, operation)(grad, y, axis)
    eps = torch.finfo(dtype).eps
    assert torch.allclose(torch.cat(made, axis).double(), wanted.double(), rtol=4 * eps, atol=4 * eps)
    empty = _core.gradient_sums(grad.narrow(axis, 0, 0), y.narrow(axis, 0, 0), axis, operation=operation)
    assert empty.shape == sums.shape and (empty == 0).all()
    nothing = _core.sums(y.narrow(axis, 0, 0), axis)
    assert (nothing[..., 0] == -torch.inf).all() and (nothing[..., 1:] == 0).all()
