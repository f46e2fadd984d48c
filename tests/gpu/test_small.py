"""Every method and type on a few small shapes, for compute-sanitizer (`-m small`).

Values and comparisons are on the CPU, with oracle.py, so that the sanitizer sees little else."""

import numpy as np
import oracle
import pytest
from gpu_support import DEVICE, METHODS, each_dtype, name, torch

import onsoftmax as ons

pytestmark = pytest.mark.small

NAMED = [method for method in METHODS if method != "auto"]


def check(y, x, axis=-1, where=None, scale=1.0, method=None):
    """Compares y with the oracle. x, where and scale are on the CPU."""
    numbers = x.double().numpy()
    y = y.cpu()
    if method == "naive":
        expected = oracle.softmax(numbers, axis, where, scale).astype(np.float64)
        np.testing.assert_allclose(
            y.double().numpy(), expected, rtol=20 * torch.finfo(x.dtype).eps, atol=1e-7
        )
        return
    compute = np.float64 if torch.float64 in (x.dtype, y.dtype) else np.float32
    exact = oracle.softmax(numbers, axis, where, scale, compute)
    if y.dtype is torch.bfloat16:  # NumPy has no bfloat16: the error is half a place at most
        error = np.abs(y.double().numpy() - exact.astype(np.float64))
        assert (error <= 2.0**-8 * 1.001 * exact + 1e-40).all()
    else:
        wrong = oracle.wrong_places(y.numpy(), exact, compute)
        assert not wrong.any(), (
            f"{method} {name(y.dtype)} {tuple(x.shape)}: wrong at {np.argwhere(wrong)[:5]}"
        )


def values(shape, dtype, seed=1):
    return (2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def on_gpu(x, offset=0):
    """A copy of x on the GPU, `offset` elements after an aligned address."""
    padded = torch.cat([torch.zeros(offset, dtype=x.dtype), x.reshape(-1)])
    return padded.to(DEVICE)[offset:].view(x.shape)


@each_dtype
@pytest.mark.parametrize("method", NAMED)
class TestEach:
    def test_rows_masked_and_scaled_off_alignment(self, method, dtype):
        x = values((3, 333), dtype)
        where = torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < 0.7
        where[1] = False
        scale = torch.tensor([[0.5], [2.0], [-0.25]])
        if method == "naive":
            x[1] = 0
            where[1] = True
        y = ons.softmax(on_gpu(x, 1), method=method, where=on_gpu(where, 1), scale=on_gpu(scale))
        check(y, x, -1, where.numpy(), scale.double().numpy(), method)

    def test_aligned_rows_in_place(self, method, dtype):
        x = values((5, 512), dtype)
        y = on_gpu(x)
        ons.softmax(y, method=method, out=y)
        check(y, x, method=method)

    def test_columns(self, method, dtype):
        x = values((16 if method == "fused_warp" else 70, 37), dtype)
        check(ons.softmax(on_gpu(x), 0, method=method), x, 0, method=method)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=name)
@pytest.mark.parametrize("method", [m for m in NAMED if m != "fused_warp"])
def test_long_rows(method, dtype):
    """Several tiles per row, or several blocks."""
    x = values((2, 4099), dtype)
    try:
        y = ons.softmax(on_gpu(x), method=method)
    except ValueError as error:
        pytest.skip(str(error))
    check(y, x, method=method)


@pytest.mark.parametrize("method", ["split", "cluster", "grid", "online"])
def test_longer_rows(method):
    x = values((2, 30_001), torch.float32)
    check(ons.softmax(on_gpu(x), method=method), x, method=method)


@pytest.mark.parametrize("method", NAMED)
def test_short_rows_of_another_type(method):
    x = values((33, 3), torch.float16)
    check(ons.softmax(on_gpu(x, 1), method=method, dtype=torch.float32), x, method=method)


@pytest.mark.parametrize("shape", [(200, 3), (70, 10), (70, 33), (21, 131), (8192, 257)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=name)
def test_rows_that_come_as_a_span(dtype, shape):
    """In place, unaligned."""
    x = values(shape, dtype)
    y = on_gpu(x, 1)
    ons.softmax(y, method="fused_warp", out=y)
    check(y, x, method="fused_warp")


@each_dtype
@pytest.mark.parametrize("method", NAMED)
@pytest.mark.parametrize("N", [37, 333, 4099])
def test_other_operations(method, dtype, N):
    """Gradients, and the operations that have their own kernels. The rows are not aligned."""
    x, dy = (values((3, N), dtype, seed) for seed in (3, 4))
    eps = 16 * torch.finfo(dtype).eps
    y = torch.softmax(x.double(), -1)
    log_y = torch.log_softmax(x.double(), -1).to(dtype)
    inner = (dy.double() * y.to(dtype).double()).sum(-1, keepdim=True)
    expected = {
        "logsumexp": ([x], torch.logsumexp(x.double(), -1)),
        "log_softmax": ([x], log_y),
        "softmax_backward": ([dy, y.to(dtype)], y * (dy.double() - inner)),
        "log_softmax_backward": ([dy, log_y], dy - log_y.double().exp() * dy.double().sum(-1, keepdim=True)),
    }
    for operation, (arrays, exact) in expected.items():
        try:
            got = getattr(ons, operation)(*(on_gpu(a, 1) for a in arrays), method=method)
        except ValueError:  # the method has no such kernels, or none for this length
            continue
        torch.testing.assert_close(got.cpu().double(), exact.double(), rtol=eps, atol=eps)
