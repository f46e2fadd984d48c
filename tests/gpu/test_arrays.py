"""GPU arrays of every library: results, memory, streams and graphs. Needs a GPU."""

import gc
import os
import threading
import time

import numpy as np
import pytest
from gpu_support import OnlyDlpack
from support import run_python

import onsoftmax as ons

torch = pytest.importorskip("torch")

METHODS = [method.name for method in ons.methods("cuda")]
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SLEEP = 200_000_000  # cycles that a kernel waits, about a tenth of a second


def tensor(*shape, dtype=torch.float32, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(shape, generator=generator)).to(dtype).cuda()


def right(x, dim=-1, dtype=None):
    return torch.softmax(x.double(), dim).to(dtype or x.dtype)


def assert_right(y, x, dim=-1):
    torch.testing.assert_close(
        y, right(x, dim, y.dtype), msg=lambda text: f"{y.dtype} {tuple(x.shape)}: {text}"
    )


class OnlyInterface:
    """A tensor that shows itself only by the CUDA Array Interface, version 3 with a stream."""

    def __init__(self, tensor, **more):
        self.tensor = tensor  # torch's own interface is of version 2
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, "version": 3, **more}


def as_tensor(array):
    assert type(array) is ons.DeviceArray
    return torch.from_dlpack(array)


# ---------------------------------------------------------------- torch


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_layouts(dtype):
    x = tensor(6, 8, 10, dtype=dtype)
    channels_last = tensor(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last)
    views = [
        x,
        x.permute(2, 0, 1),
        x[::2, :, ::3],
        x[1:],
        x.expand(2, 6, 8, 10),
        channels_last,
        x[:0],
        x[0, 0, 0],
    ]
    for view in views:
        for axis in {-1, 0} if view.ndim else {-1}:
            y, expected = ons.softmax(view, axis), torch.softmax(view, axis)
            assert type(y) is torch.Tensor and y.device == x.device and y.dtype == dtype
            assert y.stride() == expected.stride() and y.shape == expected.shape
            assert_right(y, view, axis)
        for wanted in DTYPES:
            y = ons.softmax(view, dtype=wanted)
            assert y.dtype == wanted
            assert_right(y, view)


def test_torch_integers():
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool):
        x = (tensor(3, 40) > 0).to(dtype)
        assert ons.softmax(x).dtype == torch.get_default_dtype()
        assert_right(ons.softmax(x), x.float())


def test_torch_kinds_of_tensors():
    x = tensor(4, 30)
    z = torch.complex(x, -x)
    negated = z.conj().imag
    assert negated.is_neg()
    assert_right(ons.softmax(negated), negated)
    assert_right(ons.softmax(torch.nn.Parameter(x, requires_grad=False)), x)

    class Sub(torch.Tensor):
        pass

    assert_right(ons.softmax(x.as_subclass(Sub)).as_subclass(torch.Tensor), x)
    with torch.inference_mode():
        assert ons.softmax(x).is_inference()
    with torch.no_grad():
        assert not ons.softmax(x.clone().requires_grad_()).requires_grad
    assert ons.softmax(x.clone().requires_grad_()).requires_grad
    with pytest.raises(TypeError, match="sparse"):
        ons.softmax(x.to_sparse())
    with pytest.raises(TypeError, match="complex"):
        ons.softmax(z)
    with pytest.raises(ValueError, match="negated"):
        ons.softmax(x, out=negated)
    for nothing in (torch._efficientzerotensor((3, 4), device="cuda"), torch._to_functional_tensor(x)):
        with pytest.raises(BufferError, match="no data"):
            ons.softmax(nothing)
    assert_right(torch.vmap(ons.softmax)(x), x)


def test_torch_out():
    x = tensor(5, 6, 70)
    for out in (torch.empty_like(x), tensor(70, 6, 5).permute(2, 1, 0), tensor(10, 6, 70)[::2], x.bfloat16()):
        version = out._version
        assert ons.softmax(x, out=out) is out and out._version > version
        assert_right(out, x)
    memory = tensor(5 * 6 * 70 + 999)
    for shift in (0, 1, 70, 999):
        before = memory.clone()
        x, out = memory[: 5 * 6 * 70].view(5, 6, 70), memory[shift:][: 5 * 6 * 70].view(5, 6, 70)
        expected = right(x)
        ons.softmax(x, out=out)
        torch.testing.assert_close(out, expected)
        memory.copy_(before)
    with pytest.raises(ValueError, match="broadcast"):
        ons.softmax(x, out=tensor(6, 70).expand(5, 6, 70))


def test_torch_where_and_scale():
    x = tensor(4, 3, 50)
    mask = tensor(4, 1, 50, seed=2) > 0
    expected = torch.softmax((0.5 * x).double().masked_fill(~mask, -torch.inf), -1).float()
    for scale in (
        0.5,
        torch.tensor(0.5),
        np.float32(0.5),
        torch.tensor(0.5).cuda(),
        torch.full((4, 1, 1), 0.5).cuda(),
    ):
        torch.testing.assert_close(ons.softmax(x, where=mask, scale=scale), expected)
    for dtype in (*DTYPES, torch.int32, torch.int64):
        scale = torch.tensor([1, 2, 3, 4]).view(4, 1, 1).to(dtype).cuda()
        assert_right(ons.softmax(x, scale=scale), x * scale)
    assert_right(ons.softmax(x, where=True), x)
    for keywords in (
        {"where": mask.cpu()},
        {"where": mask.cpu().numpy()},
        {"scale": torch.ones(4, 1, 1)},
        {"scale": np.ones((4, 1, 1))},
        {"out": torch.empty(4, 3, 50)},
        {"out": np.empty((4, 3, 50), np.float32)},
    ):
        with pytest.raises(ValueError, match=rf"{next(iter(keywords))} is on the CPU.*cuda:0"):
            ons.softmax(x, **keywords)
    for keywords in ({"where": mask}, {"scale": torch.ones(4, 1, 1).cuda()}, {"out": torch.empty_like(x)}):
        with pytest.raises(ValueError, match=r"the CPU.*cuda:0|cuda:0.*the CPU"):
            ons.softmax(x.cpu(), **keywords)
    with pytest.raises(ValueError, match="num_threads"):
        ons.softmax(x, num_threads=1)
    with pytest.raises(TypeError, match="bool"):
        ons.softmax(x, where=x)


def test_torch_gives_all_memory():
    """Results and scratch memory come from torch's allocator. 10^4 calls leave nothing behind."""
    x, out = tensor(3, 1 << 20), torch.empty(3, 1 << 20, device="cuda")
    for method in ("split", "auto", "grid"):
        ons.softmax(x, method=method, out=out)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    allocated = torch.cuda.memory_allocated()
    ons.softmax(x, method="split", out=out)
    assert torch.cuda.memory_allocated() == allocated
    assert torch.cuda.max_memory_allocated() > allocated  # the scratch memory was torch's
    x, out = tensor(4, 256), torch.empty(4, 256, device="cuda")
    for _ in range(100):
        ons.softmax(x)
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for i in range(10_000):
        ons.softmax(x, method=METHODS[i % len(METHODS)], out=out if i % 2 else None)
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] >= free - (4 << 20)


def test_out_of_memory_is_survived():
    huge = torch.zeros(1, device="cuda").expand(1 << 40)
    for given in (huge, OnlyDlpack(huge), OnlyInterface(huge)):
        with pytest.raises((MemoryError, RuntimeError), match="memory"):
            ons.softmax(given)
        x = tensor(3, 40)
        assert_right(ons.softmax(x), x)


def test_several_threads():
    x, results = tensor(8, 300), {}

    def work(i):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            for _ in range(200):
                y = ons.softmax(x, method=METHODS[i % len(METHODS)])
            results[i] = y
        stream.synchronize()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 9)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for y in results.values():
        assert_right(y, x)


# ---------------------------------------------------------------- streams


def late(stream):
    """A tensor whose values arrive only after a long wait on the stream."""
    x = torch.full((64, 1000), float("nan"), device="cuda")
    values = tensor(64, 1000)
    ons.softmax(values)  # loads the kernel, which may take as long as the wait
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLEEP)
        x.copy_(values)
    return x, values


@pytest.mark.parametrize("way", ["current", "object", "cuda_stream", "handle", "protocol"])
def test_work_goes_on_the_stream(way):
    """The work is on torch's current stream or on the given one. The call does not wait."""
    stream = torch.cuda.Stream()
    x, values = late(stream)
    begin = time.perf_counter()
    if way == "current":
        with torch.cuda.stream(stream):
            y = ons.softmax(x)
    else:
        handle = stream.cuda_stream
        given = {
            "object": stream,
            "cuda_stream": type("Stream", (), {"cuda_stream": handle})(),
            "handle": handle,
            "protocol": type("Stream", (), {"__cuda_stream__": lambda self: (0, handle)})(),
        }[way]
        y = ons.softmax(x, stream=given)
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert not stream.query() and time.perf_counter() - begin < 0.05
    stream.synchronize()
    assert_right(y, values)


def test_a_stream_of_its_own_library_only():
    x = tensor(3, 40)
    for stream in (0, 1, torch.cuda.default_stream(), torch.cuda.current_stream()):
        assert_right(ons.softmax(x, stream=stream), x)
    for wrong in ("0", 1.5, object()):
        with pytest.raises(TypeError, match="__cuda_stream__"):
            ons.softmax(x, stream=wrong)


def test_memory_of_another_stream_is_not_taken_again_too_early():
    """The array may be freed before the work on `stream` runs. Its memory must not be reused until then."""
    stream = torch.cuda.Stream()
    for _ in range(3):
        x, values = tensor(64, 1000), tensor(64, 1000)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP)
        y = ons.softmax(x, stream=stream)
        del x
        scribbles = [torch.full((64, 1000), float("nan"), device="cuda") for _ in range(8)]
        stream.synchronize()
        assert_right(y, values)
        del scribbles


def test_dlpack_and_interface_are_in_order():
    stream = torch.cuda.Stream()
    x, values = late(stream)
    with torch.cuda.stream(stream):  # torch makes this stream wait for the stream that a consumer asks for
        y = ons.softmax(OnlyDlpack(x))
    assert_right(as_tensor(y), values)
    x, values = late(stream)
    y = ons.softmax(OnlyInterface(x, stream=stream.cuda_stream))
    assert y.stream == stream.cuda_stream and not stream.query()
    assert_right(as_tensor(y), values)  # by DLPack, which makes torch's current stream wait
    x, values = late(stream)
    other = torch.cuda.Stream()
    y = ons.softmax(OnlyInterface(x, stream=stream.cuda_stream), stream=other)
    assert y.stream == other.cuda_stream
    np.testing.assert_allclose(y.copy_to_host(), right(values).cpu(), rtol=1e-5)


# ---------------------------------------------------------------- graphs


@pytest.mark.parametrize("out", [False, True])
@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_graphs(method, out):
    """Capture asks CUDA for no memory and waits for nothing. A replay works on the current values."""
    N = {"fused_warp": 300, "fused": 3000, "fused_block": 3000, "online_block": 3000}.get(method, 60_000)
    x = tensor(5, N)
    y = torch.empty_like(x) if out else None
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            ons.softmax(x, method=method, out=y)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ons.softmax(x, method=method, out=y)
        further = ons.softmax(result, scale=3.0, where=x > 0)
    for seed in range(2, 5):
        x.copy_(tensor(5, N, seed=seed))
        graph.replay()
        if method != "naive":
            assert_right(result, x)
            masked = (3 * result.double()).masked_fill(x <= 0, -torch.inf)
            torch.testing.assert_close(further, torch.softmax(masked, -1).float())
    assert not out or result is y


# ---------------------------------------------------------------- several GPUs


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU at most")
def test_the_arrays_gpu_is_used():
    for gpu in range(2):
        for current in range(2):
            with torch.cuda.device(current):
                x = tensor(4, 30_000).to(f"cuda:{gpu}")
                y = ons.softmax(x, method="split")
                assert y.device == x.device and torch.cuda.current_device() == current
                assert_right(y, x)
                z = ons.softmax(OnlyDlpack(x))
                assert z.device == f"cuda:{gpu}" and torch.cuda.current_device() == current
    x = tensor(4, 30)
    for keywords in ({"out": x.to("cuda:1")}, {"where": (x > 0).to("cuda:1")}):
        with pytest.raises(ValueError, match=r"cuda:1.*cuda:0"):
            ons.softmax(x, **keywords)


# ---------------------------------------------------------------- DeviceArray


def test_device_array():
    x = tensor(4, 3, 50)
    for given in (
        OnlyDlpack(x),
        OnlyInterface(x),
        OnlyDlpack(x.permute(2, 0, 1)),
        OnlyInterface(x[::2, :, ::3]),
    ):
        y = ons.softmax(given)
        assert (y.shape, y.dtype, y.device) == (tuple(given.tensor.shape), "float32", "cuda:0")
        assert_right(as_tensor(y), given.tensor)
        assert_right(torch.as_tensor(y.copy_to_host()).cuda(), given.tensor)
    for dtype in DTYPES:
        y = ons.softmax(OnlyDlpack(x), dtype=dtype)
        assert as_tensor(y).dtype == dtype and y.dtype == str(dtype).removeprefix("torch.")
        assert_right(as_tensor(ons.softmax(y)), as_tensor(y))
        if dtype is not torch.bfloat16:
            torch.testing.assert_close(torch.as_tensor(y, device="cuda"), as_tensor(y))  # by its interface
    out = ons.softmax(OnlyDlpack(x), scale=0.0)
    assert ons.softmax(OnlyInterface(x), out=out) is out
    assert_right(as_tensor(out), x)
    assert ons.softmax(x, out=out) is out and ons.softmax(out, out=x) is x


def test_device_arrays_memory():
    """Memory is freed with its last holder, and none is lost."""
    x = tensor(1 << 20)
    kept = as_tensor(ons.softmax(OnlyDlpack(x)))[5:]
    gc.collect()
    torch.testing.assert_close(kept, right(x)[5:])
    del kept
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(2000):
        y = ons.softmax(OnlyDlpack(x))
        as_tensor(y)
        ons.softmax(y, out=y, method="split")
    del y
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] >= free - (64 << 20)


def test_the_end_of_the_process():
    code = """
import torch, onsoftmax as ons
class Given:
    def __init__(self, tensor): self.tensor = tensor
    def __dlpack__(self, **keywords): return self.tensor.__dlpack__(**keywords)
    def __dlpack_device__(self): return self.tensor.__dlpack_device__()
array = ons.softmax(Given(torch.ones(3, 4, device="cuda")))
tensor, capsule = torch.from_dlpack(array), array.__dlpack__()
print(tensor.sum().item())
"""
    done = run_python(["-c", code])
    assert (done.returncode, done.stdout, done.stderr) == (0, "3.0\n", "")


# ---------------------------------------------------------------- CuPy


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


def test_cupy(cupy):
    values = tensor(6, 8, 10)
    for dtype in ("float16", "float32", "float64"):
        x = cupy.asarray(values.cpu().numpy()).astype(dtype)
        views = [x, x.transpose(2, 0, 1), x[::-1, ::2, ::-3], x[:0], cupy.asfortranarray(x), x[0, 0, 0]]
        for view in views:
            for axis in {-1, 0} if view.ndim else {-1}:
                y = ons.softmax(view, axis)
                assert type(y) is cupy.ndarray and y.dtype == dtype
                assert y.strides == cupy.empty_like(view).strides
                expected = right(torch.as_tensor(cupy.asnumpy(view)), axis)
                torch.testing.assert_close(torch.as_tensor(cupy.asnumpy(y)), expected)
    x = cupy.asarray(values.cpu().numpy())
    out, mask = cupy.empty_like(x), x > 0
    assert ons.softmax(x, out=out) is out
    cupy.testing.assert_allclose(out, ons.softmax(x), rtol=0)
    assert ons.softmax(x, dtype="float16").dtype == "float16"
    assert ons.softmax(cupy.arange(5)).dtype == "float64"
    y = ons.softmax(x, where=mask, scale=cupy.full((6, 1, 1), 2.0))
    expected = cupy.nan_to_num(ons.softmax(cupy.where(mask, 2 * x, -cupy.inf)))
    cupy.testing.assert_allclose(y, expected, rtol=1e-5)
    x[1:] = x[:-1].copy()
    expected = ons.softmax(x[1:].copy())
    ons.softmax(x[1:], out=x[:-1])
    cupy.testing.assert_allclose(x[:-1], expected, rtol=0)
    with pytest.raises(ValueError, match=r"where is on the CPU.*cuda:0"):
        ons.softmax(x, where=cupy.asnumpy(mask))
    with pytest.raises(ValueError, match=r"CPU.*cuda:0"):
        ons.softmax(cupy.asnumpy(x), where=mask)


def test_cupy_bfloat16(cupy):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    try:
        x = cupy.asarray(tensor(3, 100).cpu().numpy()).astype(ml_dtypes.bfloat16)
    except (TypeError, ValueError) as error:
        pytest.skip(f"this CuPy has no bfloat16: {error}")
    y = ons.softmax(x)
    assert y.dtype == ml_dtypes.bfloat16
    wide = ons.softmax(x, dtype="float32")
    cupy.testing.assert_allclose(y.astype("float32"), wide, rtol=2**-8)


def test_cupy_streams_and_memory(cupy):
    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.asarray(tensor(3, 1 << 20).cpu().numpy())
    cupy.cuda.Device().synchronize()
    y = ons.softmax(x, stream=stream, method="split")
    stream.synchronize()
    with stream:
        z = ons.softmax(x, method="split")
    stream.synchronize()
    cupy.testing.assert_allclose(y, z, rtol=0)
    torch.testing.assert_close(torch.as_tensor(y, device="cuda"), right(torch.as_tensor(x, device="cuda")))
    pool = cupy.get_default_memory_pool()
    used = pool.used_bytes()
    assert ons.softmax(x, method="split").nbytes == x.nbytes
    assert pool.used_bytes() == used
    out = torch.empty(3, 1 << 20, device="cuda")
    assert ons.softmax(x, out=out, stream=stream) is out  # torch's stream then waits for `stream`
    torch.testing.assert_close(out, torch.as_tensor(y, device="cuda"))


# ---------------------------------------------------------------- JAX


@pytest.fixture
def jax():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it would take most of the memory
    jax = pytest.importorskip("jax")
    try:
        if jax.devices("gpu"):
            return jax
    except RuntimeError as error:
        pytest.skip(f"JAX sees no GPU: {error}")


def test_jax(jax):
    values = tensor(64, 500).cpu().numpy()
    for dtype in ("float16", "bfloat16", "float32"):
        x = jax.device_put(values, jax.devices("gpu")[0]).astype(dtype)
        for axis in (-1, 0, None):
            y = ons.softmax(x, axis)
            assert isinstance(y, jax.Array) and y.dtype == dtype and y.devices() == x.devices()
            expected = jax.nn.softmax(x.astype("float32"), axis).astype(dtype)
            np.testing.assert_allclose(
                np.float64(y), np.float64(expected), rtol=1e-2 if y.itemsize < 4 else 2e-6
            )
    assert ons.softmax(jax.numpy.arange(4)).dtype == jax.numpy.zeros(1).dtype
    y = ons.softmax(x, where=x > 0, scale=jax.numpy.full((64, 1), 2.0))
    assert np.all(np.float32(y)[np.float32(x) <= 0] == 0)
    with pytest.raises(TypeError, match=r"JAX.*immutable"):
        ons.softmax(x, out=x)
    with pytest.raises(TypeError, match="JAX tracer"):
        jax.jit(lambda x: ons.normalizer(x).m)(x)


def test_jax_is_in_order(jax):
    """JAX computes in the background before and after the call, and reuses memory without a holder."""
    slow = jax.jit(lambda a: jax.lax.fori_loop(0, 300, lambda i, b: jax.numpy.sin(b) + b, a))
    start = jax.device_put(tensor(200, 5000).cpu().numpy(), jax.devices("gpu")[0])
    expected = jax.nn.softmax(slow(start))
    for _ in range(20):
        y = ons.softmax(slow(start))
        filler = [slow(start + i) for i in range(3)]
        z = jax.numpy.tanh(y) * 1.0
        np.testing.assert_allclose(z, jax.numpy.tanh(expected), rtol=2e-5, atol=1e-30)
        del filler


# ---------------------------------------------------------------- numba


def test_numba():
    cuda = pytest.importorskip("numba.cuda")
    if not cuda.is_available():
        pytest.skip("numba sees no GPU")
    values = tensor(16, 300).cpu().numpy()
    x = cuda.to_device(values)
    y = ons.softmax(x)
    assert type(y) is ons.DeviceArray
    np.testing.assert_allclose(
        cuda.as_cuda_array(y).copy_to_host(), right(torch.as_tensor(values)), rtol=1e-5
    )
    out = cuda.device_array_like(values)
    assert ons.softmax(x, out=out) is out
    np.testing.assert_array_equal(out.copy_to_host(), y.copy_to_host())
    stream = cuda.stream()
    x = cuda.to_device(values, stream=stream)
    np.testing.assert_array_equal(ons.softmax(x).copy_to_host(), y.copy_to_host())


# ---------------------------------------------------------------- plans


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_plan(method):
    for shape in ((1000, 300), (2, 20_000)):
        try:
            plan = ons.plan(torch.empty(shape, device="cuda"), method=method)
        except ValueError as error:
            assert "rows of at most" in str(error)
            continue
        assert plan == ons.plan(shape, device="cuda", method=method)
        assert 0 < plan.registers <= 255 and plan.spilled_bytes >= 0 and plan.blocks_a_multiprocessor > 0
        assert plan.warps * 32 == plan.threads and "registers a thread" in str(plan)


def test_a_row_that_is_too_long():
    x = torch.zeros(1 << 20, device="cuda")
    with pytest.raises(
        ValueError, match=r"'fused_warp' holds rows of at most \d+ .*1048576: .*online.*split"
    ):
        ons.softmax(x, method="fused_warp")
    assert_right(ons.softmax(x), x)
