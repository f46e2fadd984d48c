"""Normalizer on a GPU: torch, CuPy, JAX, streams, and rows of which a CPU has the other half."""

import functools
import os

import numpy as np
import pytest
from gpu_support import DEVICE, each_dtype, generator, name, same_bits, spread_out, torch

import onsoftmax as ons
from onsoftmax import Normalizer


def rows(shape, dtype, offset=0.0, seed=1):
    x = torch.randn(shape, device=DEVICE, generator=generator(seed), dtype=torch.float64)
    return (3 * x + offset).to(dtype)


def merged(parts):
    return functools.reduce(Normalizer.merge, parts)


def assert_near(made, wanted, logarithm=False):
    """Within 10 eps of the arithmetic's type, plus one place of the result's own."""
    eps = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float64: 10 * 2.0**-52}
    size = wanted.double().abs().clamp(min=1.0 if logarithm else 0.0)
    bound = size * eps.get(made.dtype, 10 * 2.0**-23) + 1e-7 * (made.dtype is torch.float16)
    error = (made.double() - wanted.double()).abs()
    assert made.dtype == wanted.dtype and (error <= bound).all(), (error / size).max()


@each_dtype
@pytest.mark.parametrize("offset", [0.0, -16384.0, 1e6])
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_on_gpu_and_cpu(dtype, offset, axis):
    if dtype is torch.float16 and offset:
        pytest.skip("beyond float16")
    x = rows((30, 5000) if axis else (5000, 30), dtype, offset)
    parts = x.tensor_split((1024, 1024, 1999, 4000), axis)
    states = [ons.normalizer(part, axis) for part in parts]
    whole = merged(states)
    packed = torch.stack([state.packed for state in states])
    for order in (torch.randperm(5), torch.randperm(5)):
        assert same_bits(Normalizer.merge_all(packed[order.cuda()]).packed, whole.packed)
        assert same_bits(merged([states[i] for i in order]).packed, whole.packed)
        on_cpu = Normalizer.merge_all(packed[order.cuda()].cpu())
        assert same_bits(on_cpu.packed, whole.packed.cpu())
    assert torch.equal(whole.m, x.double().amax(axis)) and whole.m.is_cuda
    d = (x.double() - whole.m.unsqueeze(axis)).exp().sum(axis)
    assert torch.allclose(whole.d, d, rtol=1e-14 if dtype is torch.float64 else 1e-6, atol=0)
    here = merged(states[:3])
    there = merged([ons.normalizer(part.cpu(), axis) for part in parts[3:]])
    sent = Normalizer.from_packed(here.packed.cpu(), axis, dtype=dtype).merge(there)
    back = Normalizer.from_packed(sent.packed.to(DEVICE), axis, dtype=dtype)
    for operation in ("softmax", "log_softmax"):
        made = [getattr(back, operation)(part) for part in parts[:3]]
        made += [getattr(sent, operation)(part.cpu()).to(DEVICE) for part in parts[3:]]
        wanted = getattr(ons, operation)(x, axis)
        assert_near(torch.cat(made, axis), wanted, operation == "log_softmax")
    assert_near(back.logsumexp(), ons.logsumexp(x, axis), logarithm=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_chunks_of_another_type_have_the_products_of_the_rows(dtype):
    x = (2700 + 0.03 * torch.randn(3, 5000, device=DEVICE, dtype=torch.float64)).to(dtype)
    for scale in (3.7, torch.tensor([[3.7], [-0.3], [1.0]], device=DEVICE)):
        row = ons.normalizer(x, scale=scale)
        for chunk in (x, x.double()):
            for y in (
                row.softmax(chunk),
                row.softmax(chunk, dtype="float64"),
                row.softmax(chunk.T.clone().T),
            ):
                tolerance = 2e-2 if torch.bfloat16 in (dtype, y.dtype) else 1e-6
                assert torch.allclose(y.double().sum(1), torch.ones_like(y[:, 0]).double(), rtol=tolerance)
        found = ons.softmax_topk(x, 5, scale=scale, dtype="float64", return_normalizer=True)
        assert same_bits(found.normalizer.packed, row.packed)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_equal_elements_have_d_their_number(dtype):
    for n in (1, 2, 3, 7, 100, 1000, 50257):
        for value in (0.0, 1.0, -3.3, 50.0, 700.5, -65000.0, 3e6, 1e20, -3e38):
            x = torch.full((2, n), value, device=DEVICE).to(dtype)
            if not torch.isfinite(x).all():
                continue
            row = ons.normalizer(x)
            assert row.d.tolist() == [n, n], (n, value, row.d)
            parts = ons.normalizer(x[:, : n // 2]).update(x[:, n // 2 :])
            assert parts.d.tolist() == [n, n], (n, value, parts.d)
            if n == 1:
                assert not row.log_softmax(x).any() and not ons.log_softmax(x).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_no_logarithm_is_above_0(dtype):
    x = torch.randn(3000, 2, device=DEVICE, dtype=torch.float64).mul(30).to(dtype)
    x[:, 1] = x[:, 0] - 200
    row = ons.normalizer(x[:, :1]).update(x[:, 1:])
    assert row.log_softmax(x).max() <= 0 and ons.log_softmax(x).max() <= 0
    there = Normalizer.from_packed(row.packed.cpu().cuda(), dtype=dtype)
    assert there.log_softmax(x[:, :1]).max() <= 0


def test_special_and_many_rows():
    x = torch.tensor([[np.nan, 1], [1, np.inf], [-np.inf, -np.inf], [-np.inf, 2]], device=DEVICE)
    row = ons.normalizer(x[:, :1]).update(x[:, 1:])
    np.testing.assert_array_equal(row.m.cpu(), [np.nan, np.inf, -np.inf, 2])
    np.testing.assert_array_equal(row.d.cpu()[:3], [np.nan, np.nan, 0])
    assert same_bits(row.softmax(x), ons.softmax(x)) and row.logsumexp()[2] == -np.inf
    empty = Normalizer.empty((700, 1001), like=x)
    x = rows((700, 1001, 2), torch.float32)
    row = empty.merge(empty).update(x)
    assert torch.equal(row.merge(empty).packed, row.packed)
    assert torch.equal(Normalizer.merge_all(row.packed[:, ::3], 0).m, x[:, ::3].double().amax((0, 2)))
    assert Normalizer.merge_all(row.packed[:0]).packed.shape == (1001, 5)
    assert Normalizer.merge_all(row.packed[:, :0]).packed.shape == (0, 5)


def test_options_and_errors():
    x = rows((33, 500), torch.float32)
    where, scale = x > -1, torch.linspace(0.5, 2, 33, device=DEVICE)[:, None]
    row = ons.normalizer(x[:, :100], where=where[:, :100], scale=scale)
    row = row.update(x[:, 100:], where=where[:, 100:])
    out = torch.empty_like(x)
    assert row.softmax(x, where=where, out=out) is out
    assert_near(out, ons.softmax(x, where=where, scale=scale))
    with pytest.raises(ValueError, match="other is on the CPU, but the array is on cuda:0"):
        ons.normalizer(x).merge(ons.normalizer(x.cpu()))
    with pytest.raises(ValueError, match="pairs is on the CPU"):
        ons.normalizer(x.cpu()).softmax(x)
    with pytest.raises(ValueError, match="num_threads"):
        ons.normalizer(x, num_threads=2)


@each_dtype
@pytest.mark.parametrize("N", [3, 33, 127, 129, 385])
def test_short_rows_one_after_the_other(dtype, N):
    """Neighbouring short rows are taken together. They have the pairs of the same rows with gaps."""
    x = rows((9000, N), dtype)
    packed = ons.normalizer(x).packed
    assert same_bits(packed, ons.normalizer(spread_out(x, 3, 1)).packed)
    assert same_bits(packed, ons.normalizer(spread_out(x, 0, 1)).packed)


def test_streams():
    """Calls do not wait, and the work keeps the order of its stream."""
    x = rows((200, 20000), torch.float32)
    wanted = ons.normalizer(x).update(x[:, :0]).softmax(x)  # loads the kernels
    stream = torch.cuda.Stream()
    for _ in range(5):
        y = torch.full_like(x, torch.nan)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            y.copy_(x)
        row = ons.normalizer(y[:, :9000], stream=stream).update(y[:, 9000:], stream=stream)
        made = row.softmax(y, stream=stream)
        assert not stream.query()
        torch.cuda.current_stream().wait_stream(stream)
        assert_near(made, wanted)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        row = ons.normalizer(x)
        m, total = row.m, row.logsumexp()
    stream.synchronize()
    assert torch.equal(m, x.double().amax(-1)) and torch.allclose(total, x.logsumexp(-1))


def test_cupy():
    cupy = pytest.importorskip("cupy")
    x = cupy.random.RandomState(1).standard_normal((5, 3000)).astype("f4")
    row = ons.normalizer(x[:, :1000]).update(x[:, 1000:])
    for array in (row.m, row.d, row.packed, row.logsumexp(), row.softmax(x)):
        assert type(array) is cupy.ndarray
    cupy.testing.assert_allclose(row.softmax(x), ons.softmax(x), rtol=2e-6)
    with cupy.cuda.Stream() as stream:
        other = ons.normalizer(x[:, :1000], stream=stream).update(x[:, 1000:], stream=stream)
    stream.synchronize()
    assert (other.packed == row.packed).all()
    there = Normalizer.from_packed(cupy.asnumpy(row.packed), dtype="float32")
    assert (there.packed == cupy.asnumpy(row.packed)).all()
    assert Normalizer.empty(5, like=x).merge(row).logsumexp().dtype == "float32"


def test_jax():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    try:
        gpu = jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX sees no GPU: {error}")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        x = jax.device_put(rows((5, 3000), torch.float32).cpu().numpy(), gpu)
        row = ons.normalizer(x[:, :1000]).update(x[:, 1000:])
        for array in (row.m, row.d, row.packed, row.logsumexp(), row.softmax(x)):
            assert isinstance(array, jax.Array) and array.devices() == {gpu}
        np.testing.assert_allclose(row.softmax(x), jax.nn.softmax(x), rtol=5e-6)
        np.testing.assert_allclose(row.logsumexp(), jax.nn.logsumexp(x, -1), rtol=2e-6)
        there = Normalizer.from_packed(np.asarray(row.packed), dtype="float32")
        np.testing.assert_array_equal(there.packed, row.packed)
        empty = Normalizer.empty(5, like=x).merge(row)
        np.testing.assert_array_equal(empty.packed, row.packed)
    finally:
        jax.config.update("jax_enable_x64", before)


def test_other_arrays():
    x = rows((5, 3000), torch.float32)

    class Producer:
        def __init__(self, tensor):
            self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__

    row = ons.normalizer(Producer(x[:, :999])).update(Producer(x[:, 999:]))
    assert type(row.packed) is type(row.m) is ons.DeviceArray and row.dtype == name(x.dtype)
    torch.cuda.synchronize()
    assert_near(torch.from_dlpack(row.softmax(Producer(x))), ons.softmax(x))
    assert_near(torch.from_dlpack(row.logsumexp()), ons.logsumexp(x), logarithm=True)
