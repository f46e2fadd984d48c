"""Rows over the ranks of a torch.distributed group: NCCL, one process per GPU."""

import pytest
from gpu_support import each_dtype, generator, same_bits, torch
from ranks import run_ranks

import onsoftmax as ons
from onsoftmax import _core


@pytest.mark.parametrize("check", ["bits", "gradients", "gradcheck", "bytes", "refused", "dtensor"])
def test_one_rank(tmp_path, check):
    run_ranks(tmp_path, 1, check, device="cuda")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("check", ["bits", "order", "gradients", "gradcheck", "bytes", "refused", "dtensor"])
def test_two_gpus(tmp_path, check):
    run_ranks(tmp_path, 2, check, device="cuda")


LOSSES = "distributed_loss_checks.py"


@pytest.mark.parametrize("check", ["losses", "all_losses", "dtensor_losses"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_losses(tmp_path, ranks, check):
    if torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    run_ranks(tmp_path, ranks, check, device="cuda", program=LOSSES, seconds=300)


@each_dtype
@pytest.mark.parametrize(
    "shape, axis", [((5, 3001), -1), ((3, 40000), -1), ((3001, 70), 0), ((3, 3001, 5), 1)]
)
def test_gradients_of_parts(dtype, shape, axis):
    """The gradient of a part has the values of the gradient of whole rows, by the pairs of whole rows."""
    x = 3 * torch.randn(shape, device="cuda", generator=generator(7), dtype=torch.float64)
    x = x.to(dtype)
    N, rows = shape[axis], x.movedim(axis, -1).shape[:-1]
    target = torch.randint(N, rows, device="cuda", generator=generator(8))
    target.view(-1)[-1] = -100
    real = torch.promote_types(dtype, torch.float32)
    weight = torch.rand(N, device="cuda", generator=generator(9)).to(real)
    keywords = {"label_smoothing": 0.1, "weight": weight, "reduction": "sum"}
    wanted = exact_gradient(x, target, axis, **keywords)
    pairs = state(x, [], axis)
    own = 0.9 * weight[target.clamp(0)].double()
    each = torch.full_like(own, 0.1 / N)
    every = own + each * weight.double().sum()
    cuts, made, start = [N // 3, N // 3 + 1, N - 1], [], 0
    for part in x.tensor_split(cuts, axis):
        end = start + part.shape[axis]
        here = (target >= start) & (target < end)
        place = (target - start).masked_fill(~here, 0).masked_fill(target == -100, -1)
        factors = torch.stack([every, each, own.masked_fill(~here, 0)], -1)
        made.append(_core.loss_gradient(part, place, axis, pairs, factors, weight[start:end]))
        start = end
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(torch.cat(made, axis).double(), wanted, rtol=4 * eps, atol=1e-6)


def exact_gradient(x, target, axis, **keywords):
    """The gradient of whole rows in float64."""
    wide = x.double().clone().requires_grad_()
    keywords["weight"] = keywords["weight"].double()
    loss = ons.cross_entropy(wide, target, axis, **keywords)
    return torch.autograd.grad(loss, wide)[0]


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
