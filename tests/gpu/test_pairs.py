"""Pairs from a GPU mean the same as pairs from a CPU."""

import numpy as np
import pytest
from pairs import exact, merge

import onsoftmax as ons
from onsoftmax import _core

torch = pytest.importorskip("torch")
DTYPES = ["float16", "bfloat16", "float32", "float64"]


def rows(shape, dtype, offset=0.0):
    torch.manual_seed(4)
    return (3 * torch.randn(shape, device="cuda") + offset).to(getattr(torch, dtype))


def eps_of(x):
    return 2.0**-52 if x.dtype == torch.float64 else 2.0**-23


def assert_pairs(pairs, wanted, eps):
    pairs = pairs.cpu().numpy()
    np.testing.assert_array_equal(pairs[..., 0], wanted[..., 0])
    np.testing.assert_allclose(pairs[..., 1], wanted[..., 1], rtol=8 * eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape, axis",
    [
        ((300, 3), -1),
        ((5, 77), -1),
        ((50, 1000), -1),
        ((3, 70001), -1),
        ((2, 500, 33), 1),
        ((9, 40), 0),  # in packs of columns, as the others below
        ((2, 700, 68), 1),
        ((3, 21, 12), 1),
        ((5000, 1536), 0),
    ],
)
@pytest.mark.parametrize("offset", [0.0, -16384.0, 1e6])
def test_statistics(dtype, shape, axis, offset):
    if dtype == "float16" and offset:
        pytest.skip("beyond float16")
    x = rows(shape, dtype, offset)
    host = np.moveaxis(x.double().cpu().numpy(), axis, -1)
    assert_pairs(_core.normalizer(x, axis), exact(host), eps_of(x))
    where = torch.rand(shape, device="cuda") > 0.2
    kept = np.moveaxis(where.cpu().numpy(), axis, -1)
    assert_pairs(_core.normalizer(x, axis, where=where), exact(host, kept), eps_of(x))


def test_special_rows():
    x = torch.tensor([[np.nan, 1], [np.inf, 1], [-np.inf, -np.inf]], device="cuda")
    pairs = _core.normalizer(x).cpu().numpy()
    np.testing.assert_array_equal(pairs, [[np.nan, np.nan], [np.inf, np.nan], [-np.inf, 0]])
    empty = _core.normalizer(torch.empty((2, 0), device="cuda"))
    np.testing.assert_array_equal(empty.cpu().numpy(), [[-np.inf, 0]] * 2)
    assert torch.isnan(_core.finish(x, pairs=_core.normalizer(x))).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0.0, 20000.0, -16384.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_one_half_from_a_cpu(dtype, offset, axis):
    """Each half is finished on its device. The results agree with the whole rows."""
    if dtype == "float16" and offset:
        pytest.skip("beyond float16")
    x = rows((37, 3000) if axis else (3000, 37), dtype, offset)
    first, second = x.split(1000, axis)[0], torch.cat(x.split(1000, axis)[1:], axis)
    on_gpu, on_cpu = _core.normalizer(first, axis), _core.normalizer(second.cpu(), axis)
    pairs = torch.from_numpy(merge(on_gpu.cpu().numpy(), on_cpu.numpy()))
    for operation in ("softmax", "log_softmax"):
        wanted = getattr(ons, operation)(x, axis)
        made = torch.cat(
            [
                _core.finish(first, axis, pairs=pairs.cuda(), operation=operation),
                _core.finish(second.cpu(), axis, pairs=pairs, operation=operation).cuda(),
            ],
            axis,
        )
        eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(dtype, 8 * eps_of(x))
        size = wanted.double().abs().clamp(min=0.0 if operation == "softmax" else 1.0)
        error = (made.double() - wanted.double()).abs()
        assert (error <= eps * size + 1e-7 * (dtype == "float16")).all(), (error / size).max()
    total = _core.finish(first, axis, pairs=pairs.cuda(), operation="logsumexp").double()
    assert torch.allclose(
        total,
        ons.logsumexp(x, axis).double(),
        rtol={"bfloat16": 2.0**-7, "float16": 2.0**-10}.get(dtype, 1e-6),
    )


def test_options_of_finish():
    x = rows((33, 500), "float32")
    where, scale = x > -1, torch.linspace(0.5, 2, 33, device="cuda")[:, None]
    pairs = _core.normalizer(x, where=where, scale=scale)
    out = torch.full_like(x, torch.nan)
    assert _core.finish(x, pairs=pairs, where=where, scale=scale, out=out) is out
    torch.testing.assert_close(out, ons.softmax(x, where=where, scale=scale), rtol=1e-6, atol=0)
    with pytest.raises(ValueError, match="pairs"):
        _core.finish(x, pairs=np.zeros((33, 2)))


@pytest.mark.parametrize("shape", [(3, 40, 50), (40, 3, 50)])
def test_rows_of_several_dimensions(shape):
    x = rows(shape, "float32").transpose(0, 1)
    whole = torch.softmax(x, -1)
    torch.testing.assert_close(_core.finish(x, pairs=_core.normalizer(x)), whole)
    middle = _core.normalizer(x, (0, 2))
    torch.testing.assert_close(_core.finish(x, (0, 2), pairs=middle), ons.softmax(x, (0, 2)))
