"""GPU arrays on a machine without a GPU: the errors, and that nothing is touched."""

import ctypes
import re

import numpy as np
import pytest
from dlpack_structs import NAMES, NEW, Managed, Tensor, Versioned
from support import PACKAGE_PARENT, run_python

import onsoftmax as ons
from onsoftmax import _core

CUDA = _core.config()["cuda"]
TO_HAVE_CUDA = "in the checkout: ONSOFTMAX_CUDA=1 pip install -v -e ."
NO_GPU = f"no CUDA.*nvcc, {TO_HAVE_CUDA}" if CUDA.startswith("not built") else "driver|no GPU"
pytestmark = pytest.mark.skipif(
    "GPUs" in CUDA, reason="there is a GPU, which would read what is none of its own"
)
X = np.linspace(-4, 4, 60).reshape(3, 4, 5).astype(np.float32)


class Given:
    """An array by a capsule made by hand: C order, no deleter, and any claim about its memory."""

    def __init__(self, x, kind=Versioned, device=(2, 0), says_device=None, code=2, bits=32, version=(1, 3)):
        self.shape = (ctypes.c_int64 * x.ndim)(*x.shape)
        self.managed = kind()
        self.managed.tensor = Tensor(x.ctypes.data, device, x.ndim, code, bits, 1, self.shape)
        if kind is Versioned:
            self.managed.version[:] = version
        self.name = NAMES[kind is Versioned]
        self.says_device, self.calls = says_device or device, []

    def __dlpack_device__(self):
        return self.says_device

    def __dlpack__(self, **keywords):
        self.calls.append(keywords)
        return NEW(ctypes.addressof(self.managed), self.name, None)


class Interface:
    def __init__(self, **more):
        shown = {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3, **more}
        self.__cuda_array_interface__ = shown


def test_what_show_config_says_of_cuda():
    expected = f"not built; to have it, {TO_HAVE_CUDA}" if "not built" in CUDA else "built for [0-9].*; "
    assert re.match(expected, CUDA)


@pytest.mark.parametrize("kind", [Managed, Versioned])
@pytest.mark.parametrize("device", [(2, 0), (2, 3), (13, 0)])
def test_capsules_of_a_gpu(kind, device):
    for keywords in ({}, {"stream": 5}, {"out": X.copy()}):
        with pytest.raises(RuntimeError, match=NO_GPU):
            ons.softmax(Given(X, kind, device), **keywords)
    for name in ("out", "where", "scale"):
        with pytest.raises((RuntimeError, ValueError), match=f"{NO_GPU}|cuda:{device[1]}"):
            ons.softmax(X, **{name: Given(X, kind, device)})


def test_a_gpu_is_asked_in_the_order_of_a_stream():
    for stream, asked in ((None, 1), (5, 5), (0, 1), (2, 2)):
        given = Given(X)
        with pytest.raises(RuntimeError, match=NO_GPU):
            ons.softmax(given, stream=stream)
        assert given.calls == [{"max_version": (1, 3), "stream": asked}]
    given = Given(X, device=(1, 0))
    assert np.array_equal(ons.softmax(given), ons.softmax(X))
    assert given.calls == [{"max_version": (1, 3)}]


def test_dlpack_refused():
    with pytest.raises(BufferError, match=r"version 2\.0.*1\.x"):
        ons.softmax(Given(X, version=(2, 0)))
    for device in (10, 4, 15):
        with pytest.raises(BufferError, match=f"device type {device}.*CPU.*CUDA"):
            ons.softmax(Given(X, device=(device, 0)))
    types = {(5, 64): "complex64", (2, 8): "float8", (1, 4): "uint4", (10, 8): "float8_e4m3fn"}
    types |= {
        (17, 4): "float4_e2m1fn",
        (3, 64): "of DLPack's code 3 and 64 bits",
        (18, 8): "of DLPack's code 18",
    }
    for (code, bits), name in types.items():
        with pytest.raises(TypeError, match=f"dtype {name}.*float16, bfloat16, float32 or float64"):
            ons.softmax(Given(X, device=(1, 0), code=code, bits=bits))
    given = Given(X)
    given.name = b"used_dltensor_versioned"
    with pytest.raises(BufferError, match="no unused DLPack capsule"):
        ons.softmax(given)


def test_cuda_array_interface():
    for given in (Interface(), Interface(stream=5), Interface(version=2), Interface(strides=(4,))):
        with pytest.raises(RuntimeError, match=NO_GPU):
            ons.softmax(given)
        with pytest.raises(RuntimeError, match=NO_GPU):
            ons.plan(given)
    with pytest.raises(ValueError, match=r"array is on the CPU.*a GPU"):
        ons.softmax(X, where=Interface())
    with pytest.raises(TypeError, match="masked"):
        ons.softmax(Interface(mask=Interface()))
    with pytest.raises(TypeError, match="native"):
        ons.softmax(Interface(typestr=">f4"))


def test_streams_are_for_gpu_arrays():
    class Stream:
        def __cuda_stream__(self):
            return (0, 7)

    class Framework:
        cuda_stream = 7

    class Pointer:
        ptr = 7

    for stream in (Stream(), Framework(), Pointer(), 7, 0, 1):
        with pytest.raises(ValueError, match=r"stream.*the CPU"):
            ons.softmax(X, stream=stream)
        with pytest.raises(RuntimeError, match=NO_GPU):
            ons.softmax(Given(X), stream=stream)
    for wrong in ("7", 7.0, True, object(), [7]):
        with pytest.raises(TypeError, match=r"stream is .*__cuda_stream__"):
            ons.softmax(X, stream=wrong)
    Stream.__cuda_stream__ = lambda self: (1, 7)
    with pytest.raises(ValueError, match=r"version 1.*version 0"):
        ons.softmax(X, stream=Stream())
    Stream.__cuda_stream__ = lambda self: 7
    with pytest.raises(TypeError, match="not iterable"):
        ons.softmax(X, stream=Stream())
    Pointer.ptr = "7"
    with pytest.raises(TypeError, match="handle '7'"):
        ons.softmax(X, stream=Pointer())
    for wrong in (-1, 1 << 64):
        with pytest.raises(ValueError, match="stream is"):
            ons.softmax(X, stream=wrong)


def test_plan_without_a_gpu():
    for method in (None, *ons.methods("cuda")):
        plan = ons.plan((64, 1000), device="cuda", method=method.name if method else "auto")
        assert plan.device == "cuda" and (plan.rows, plan.N) == (64, 1000)
        assert (
            plan.registers is plan.spilled_bytes is plan.shared_bytes is plan.blocks_a_multiprocessor is None
        )
        assert plan.warps == plan.threads // 32 and plan.method in str(plan)
    assert ons.plan((64, 1000)).blocks_a_row is None


def test_device_array_is_not_made_by_hand():
    with pytest.raises(TypeError, match="cannot create"):
        ons.DeviceArray()
    with pytest.raises(TypeError, match="immutable"):
        ons.DeviceArray.shape = 3
    names = {"shape", "strides", "dtype", "device", "stream", "ndim", "size", "nbytes", "copy_to_host"}
    protocols = {"__dlpack__", "__dlpack_device__", "__cuda_array_interface__"}
    assert names | protocols <= set(dir(ons.DeviceArray))


def test_the_import_asks_nothing_of_cuda():
    """The import does not even load CUDA's library, and works without a library or a driver."""
    code = "import onsoftmax; print('libcuda' in open('/proc/self/maps').read())"
    done = run_python(["-c", code], CUDA_VISIBLE_DEVICES="nonsense")
    assert done.stdout == "False\n", done.stderr + PACKAGE_PARENT
