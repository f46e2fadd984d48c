"""Checks of arrays, streams and memory of two GPUs. test_cuda_stand_in.py runs them on a build with
stand_in.c."""

import copy
import ctypes
import gc
import pickle
import sys
import types

import numpy as np
from dlpack_structs import DELETER, NAMES, NEW, POINTER, Managed, Tensor, Versioned

import onsoftmax as ons
from onsoftmax import _core

STAND_IN = ctypes.CDLL(_core.__file__)
X = np.linspace(-4, 4, 60).reshape(3, 4, 5).astype(np.float32)


def asked(name, kind=ctypes.c_long):
    return kind.in_dll(STAND_IN, f"stand_in_{name}")


def orders(call):
    """(pairs (first, then) of streams that the call put in order, its result)"""
    count = asked("orders", ctypes.c_int)
    count.value = 0
    result = call()
    first, then = ((ctypes.c_void_p * 64).in_dll(STAND_IN, f"stand_in_{n}") for n in ("first", "then"))
    return [(first[i] or 0, then[i] or 0) for i in range(count.value)], result


def stream_of_run():
    return asked("stream", ctypes.c_void_p).value or 0


class Interface:
    """An array on the first GPU as numba shows it."""

    def __init__(self, array, readonly=False, **more):
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, readonly),
            "strides": array.strides,
            "version": 3,
            **more,
        }


class Producer:
    """A GPU array of an unknown library, by DLPack. It remembers the stream that a consumer gave."""

    def __init__(self, array, gpu=0, versioned=True, readonly=False, copied=False):
        self.array, self.gpu, self.versioned = array, gpu, versioned
        self.flags = readonly | 2 * copied
        self.live = 0

    def __dlpack_device__(self):
        return (2, self.gpu)

    def __dlpack__(self, *, stream=None, max_version=None):
        assert max_version == (1, 3) or not self.versioned
        self.stream = stream
        return capsule(self, self.versioned)


class Legacy(Producer):
    def __dlpack__(self, stream=None):
        self.stream = stream
        return capsule(self, False)


KEPT = {}


def capsule(producer, versioned):
    x = producer.array
    managed = Versioned() if versioned else Managed()
    lengths = ctypes.c_int64 * max(x.ndim, 1)
    shape, strides = lengths(*x.shape), lengths(*(s // x.itemsize for s in x.strides))
    code = 6 if x.dtype == bool else 0 if x.dtype.kind == "i" else 2
    managed.tensor = Tensor(
        x.ctypes.data, (2, producer.gpu), x.ndim, code, 8 * x.itemsize, 1, shape, strides, 0
    )
    key = ctypes.addressof(managed)

    def deleter(_):
        producer.live -= 1
        del KEPT[key]

    managed.deleter = DELETER(deleter)
    if versioned:
        managed.version[:] = (1, 3)
        managed.flags = producer.flags
    producer.live += 1
    KEPT[key] = (managed, shape, strides, x)
    return NEW(key, NAMES[versioned], None)


def shown(array):
    assert type(array) is ons.DeviceArray
    return array.copy_to_host()


def refused(exception, text, call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except exception as error:
        for part in text.split("|"):
            assert part in str(error), str(error)
    else:
        raise AssertionError(f"no {exception.__name__}")


def check_results():
    expected = ons.softmax(X)
    for given in (
        Interface(X),
        Producer(X),
        Legacy(X, versioned=False),
        Producer(X, 1),
        ons.softmax(Interface(X)),
    ):
        y = ons.softmax(given)
        if not isinstance(given, ons.DeviceArray):
            assert np.array_equal(shown(y), expected)
        assert y.device == ("cuda:1" if getattr(given, "gpu", 0) else "cuda:0")
        assert asked("gpu", ctypes.c_int).value == getattr(given, "gpu", 0)
    for array in (
        X[::-1, ::2, ::-1],
        X.transpose(2, 0, 1),
        X[:0],
        X[0, 0, 0:1].reshape(()),
        X.astype(np.float64),
        X.astype("f2"),
    ):
        for given in (Interface(array), Producer(array)):
            y = ons.softmax(given, dtype="float64")
            assert np.array_equal(shown(y), ons.softmax(array, dtype="float64").reshape(array.shape))
    y = ons.softmax(Interface(X, strides=None), 0)
    assert np.array_equal(shown(y), ons.softmax(X, 0))
    y = ons.softmax(Interface(X), dtype="bfloat16")
    assert y.dtype == "bfloat16" and not hasattr(y, "__cuda_array_interface__")
    assert y.copy_to_host().dtype.name == "bfloat16"


def check_device_array():
    y = ons.softmax(Interface(X), dtype="float64")
    assert (y.shape, y.strides, y.dtype, y.device) == ((3, 4, 5), (160, 40, 8), "float64", "cuda:0")
    assert (y.ndim, y.size, y.nbytes, y.stream) == (3, 60, 480, 0)
    assert repr(y) == "DeviceArray(shape=(3, 4, 5), dtype=float64, device=cuda:0)"
    interface = y.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["version"]) == ((3, 4, 5), "<f8", 3)
    assert interface["strides"] is None and interface["stream"] == 1 and interface["data"][1] is False
    assert y.__dlpack_device__() == (2, 0)
    refused(TypeError, "cannot create", ons.DeviceArray)
    refused(TypeError, "copy_to_host", np.asarray, y)
    for refuse in (pickle.dumps, copy.copy, copy.deepcopy):
        refused(TypeError, "cannot pickle 'onsoftmax.DeviceArray'", refuse, y)
    # DLPack
    legacy, versioned = y.__dlpack__(), y.__dlpack__(max_version=(1, 0), dl_device=(2, 0), copy=False)
    for given, name, kind in ((legacy, b"dltensor", Managed), (versioned, b"dltensor_versioned", Versioned)):
        tensor = kind.from_address(POINTER(given, name)).tensor
        assert tensor.data == interface["data"][0] and list(tensor.device) == [2, 0]
        assert (tensor.ndim, tensor.code, tensor.bits, tensor.lanes) == (3, 2, 64, 1)
        assert tensor.shape[:3] == [3, 4, 5] and tensor.strides[:3] == [20, 5, 1]
    copied = y.__dlpack__(max_version=(1, 0), copy=True)
    managed = Versioned.from_address(POINTER(copied, b"dltensor_versioned"))
    assert managed.flags == 2 and managed.tensor.data != interface["data"][0]
    assert np.array_equal(
        np.ctypeslib.as_array((ctypes.c_double * 60).from_address(managed.tensor.data)), shown(y).ravel()
    )
    brief = ons.softmax(Interface(X), dtype="bfloat16").__dlpack__()
    assert Managed.from_address(POINTER(brief, b"dltensor")).tensor.code == 4
    refused(BufferError, "dl_device|copy_to_host", y.__dlpack__, dl_device=(1, 0))
    refused(BufferError, "dl_device", y.__dlpack__, dl_device=(2, 1))
    refused(ValueError, "stream is 0", y.__dlpack__, stream=0)
    refused(TypeError, "stream is 'x'", y.__dlpack__, stream="x")


def check_memory():
    """Memory is freed with its last holder, after the streams that it was lent to."""
    gc.collect()
    live = asked("live").value
    y = ons.softmax(Interface(X))
    assert asked("live").value == live + 1
    kept, given = y.__dlpack__(stream=7), y.__dlpack__(stream=8, max_version=(1, 3))
    managed = Versioned.from_address(POINTER(given, b"dltensor_versioned"))
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    name = b"used_dltensor_versioned"
    rename(given, name)
    y.__dlpack__(stream=-1), y.__dlpack__(stream=1), y.__dlpack__()
    holders = [y, kept, given]
    del y, kept, given
    done, _ = orders(holders.clear)
    assert asked("live").value == live + 1 and done == [(7, 0)]
    done, _ = orders(lambda: managed.deleter(ctypes.addressof(managed)))
    assert asked("live").value == live and done == [(8, 0)]
    refused(
        MemoryError,
        "out of memory",
        ons.softmax,
        Interface(np.lib.stride_tricks.as_strided(X, (1 << 42,), (0,))),
    )
    assert asked("live").value == live
    assert np.array_equal(shown(ons.softmax(Interface(X))), ons.softmax(X))


def check_streams():
    class Cuda:
        def __cuda_stream__(self):
            return (0, 77)

    for stream, handle in (
        (Cuda(), 77),
        (types.SimpleNamespace(cuda_stream=78), 78),
        (types.SimpleNamespace(ptr=79), 79),
        (80, 80),
        (0, 0),
        (1, 0),
        (2, 2),
    ):
        producer = Producer(X)
        y = ons.softmax(producer, stream=stream)
        assert stream_of_run() == handle == y.stream
        assert producer.stream == (handle or 1)
    producer = Producer(X)
    ons.softmax(producer)
    assert producer.stream == 1 and stream_of_run() == 0
    # The array is in the order of stream 5. The call runs on this stream or on another one. The other one
    # waits for stream 5, which then waits for the call.
    assert ons.softmax(Interface(X, stream=5)).stream == 5 == stream_of_run()
    done, y = orders(lambda: ons.softmax(Interface(X, stream=5), stream=6))
    assert done == [(5, 6), (6, 5)] and y.stream == 6
    done, z = orders(lambda given=y: ons.softmax(given))
    assert done == [] and z.stream == 6
    assert orders(lambda: ons.softmax(Interface(X, stream=None), stream=6))[0] == []
    assert orders(lambda: ons.softmax(Interface(X, version=2), stream=6))[0] == [(0, 6), (6, 0)]
    # out in the order of another stream
    done, _ = orders(lambda: ons.softmax(z, out=ons.softmax(Interface(X, stream=9))))
    assert done == [(9, 6), (6, 9)]
    # the array knows which streams it was lent to
    done, _ = orders(lambda: z.__dlpack__(stream=11))
    assert done == [(6, 11)]
    for wrong, exception in (
        (True, TypeError),
        ("s", TypeError),
        (1.5, TypeError),
        (-1, ValueError),
        (1 << 70, ValueError),
    ):
        refused(exception, "stream", ons.softmax, Interface(X), stream=wrong)
    refused(
        ValueError, "version", ons.softmax, X, stream=types.SimpleNamespace(__cuda_stream__=lambda: (1, 2))
    )
    refused(TypeError, "handle", ons.softmax, X, stream=types.SimpleNamespace(ptr=None))
    refused(ValueError, "num_threads|cuda:0", ons.softmax, Interface(X), num_threads=2)
    # the stream lives as long as the array
    stream = Cuda()
    before = sys.getrefcount(stream)
    y = ons.softmax(ons.softmax(Interface(X), stream=stream))
    assert sys.getrefcount(stream) == before + 1
    del y
    assert sys.getrefcount(stream) == before


def check_lent_memory():
    """A library that lends its memory gets it back once the result is gone and its readers are done."""
    producer, where = Producer(X), Producer(X > 0)
    y = ons.softmax(producer, where=where)
    assert (producer.live, where.live) == (1, 1)
    z = ons.softmax(y)
    del y
    assert (producer.live, where.live) == (0, 0)
    ons.softmax(producer, out=z)
    assert producer.live == 1
    ons.softmax(Interface(X), out=z)
    assert producer.live == 0
    refused(np.exceptions.AxisError, "axis", ons.softmax, producer, 7)
    refused(ValueError, "where", ons.softmax, producer, where=Producer(X[:, :2] > 0))
    assert producer.live == 0


def check_operands():
    mask, scale = X > -1, np.linspace(0.5, 2, 12).reshape(3, 4, 1)
    expected = ons.softmax(X, where=mask, scale=scale)
    y = ons.softmax(Interface(X), where=Interface(mask), scale=Producer(scale))
    assert np.array_equal(shown(y), expected)
    for number in (2, 2.0, np.float32(2), np.array(2)):
        assert np.array_equal(shown(ons.softmax(Interface(X), scale=number)), ons.softmax(X, scale=2.0))
    assert np.array_equal(shown(ons.softmax(Interface(X), where=True)), ons.softmax(X))
    refused(ValueError, "where is on the CPU|the array is on cuda:0", ons.softmax, Interface(X), where=mask)
    refused(ValueError, "where is on the CPU", ons.softmax, Interface(X), where=False)
    refused(ValueError, "where is on the CPU", ons.softmax, Interface(X), where=mask.tolist())
    refused(ValueError, "scale is on the CPU|the array is on cuda:0", ons.softmax, Interface(X), scale=scale)
    masked = np.ma.array(2.0, mask=True)
    refused(TypeError, "scale is a masked array", ons.softmax, Interface(X), scale=masked)
    refused(
        ValueError,
        "where is on cuda:1|the array is on cuda:0",
        ons.softmax,
        Producer(X),
        where=Producer(mask, 1),
    )
    refused(ValueError, "out is on the CPU|the array is on cuda:0", ons.softmax, Interface(X), out=X.copy())
    y = ons.softmax(Producer(X, 1))
    refused(ValueError, "out is on cuda:1|the array is on cuda:0", ons.softmax, Interface(X), out=y)
    refused(ValueError, "out is on cuda:1|the array is on the CPU", ons.softmax, X, out=y)
    refused(ValueError, "CPU|a GPU", ons.softmax, X, where=Interface(mask))
    refused(ValueError, "CPU|cuda:1", ons.softmax, X, scale=y)
    refused(TypeError, "bool", ons.softmax, Interface(X), where=Interface(X))
    refused(TypeError, "bool", ons.softmax, Interface(X), where=Producer(X))
    refused(TypeError, "bool", ons.softmax, y, where=y)
    refused(ValueError, "length 1 along axis", ons.softmax, Interface(X), scale=Interface(X))
    refused(TypeError, "int64|float32", ons.softmax, Interface(X.astype(int)))
    refused(TypeError, "integers", ons.softmax, Producer(X.astype(int)))
    refused(TypeError, "mask", ons.softmax, Interface(X, mask=Interface(mask)))
    refused(TypeError, "native", ons.softmax, Interface(X.astype(">f4")))
    refused(ValueError, "cuda:5|2 GPUs", ons.softmax, Producer(X, 5))
    refused(
        ValueError,
        "quick|fused_warp, fused_block, online_block, cluster, grid",
        ons.softmax,
        Interface(X),
        method="quick",
    )


def check_losses():
    """One kernel for rows that are held, and one scratch for all parts of other rows."""
    target, weight = np.arange(12).reshape(3, 4) % 5, np.linspace(0.5, 2, 5, dtype=np.float32)
    runs, live = asked("runs"), asked("live").value
    for reduction in ("none", "sum", "mean"):
        for parts, terms in ((1, {}), (1, {"z_loss": 0.1, "weight": weight}), (4, {"label_smoothing": 0.1})):
            terms["reduction"] = reduction
            expected = ons.cross_entropy_with_grad(X, target, return_lse=True, **terms)
            given = {name: Interface(a) if name == "weight" else a for name, a in terms.items()}
            before = runs.value
            made = ons.cross_entropy_with_grad(Interface(X), Interface(target), return_lse=True, **given)
            assert runs.value == before + parts
            assert all(np.array_equal(shown(a), b) for a, b in zip(made, expected, strict=True)), terms
    del made
    assert asked("live").value == live
    long = np.linspace(-3, 3, 300_000, dtype=np.float32).reshape(2, -1)  # some parts have a workspace
    for x, index, axis, by in (
        (X.transpose(2, 0, 1), target, 0, weight),
        (long, np.array([7, 149_999]), 1, long[0].copy()),
    ):
        made, expected = (
            ons.cross_entropy_with_grad(kind(x), kind(index), axis, label_smoothing=0.2, weight=kind(by))
            for kind in (Interface, np.asarray)
        )
        assert all(np.array_equal(shown(a), b) for a, b in zip(made, expected, strict=True))
    factors = np.linspace(0, 1, 36).reshape(3, 4, 3)
    of_rows = target.copy(), _core.normalizer(X), factors, weight
    of_rows[0][0] = -1  # rows without a gradient
    made, expected = (
        _core.loss_gradient(kind(X), kind(of_rows[0]), 2, *map(kind, of_rows[1:]))
        for kind in (Interface, np.asarray)
    )
    assert np.array_equal(shown(made), expected) and not expected[0].any() and expected[1:].all()


def check_batch_invariant():
    """The method that runs, and whether in the column form: by auto, by invariant, and by the setting."""
    long, short = Interface(np.linspace(-4, 4, 16384, dtype=np.float32)[None]), Interface(X[0].repeat(100, 0))
    few = Interface(np.linspace(-4, 4, 200)[None])
    row = ons.Normalizer.empty((1,), like=long, method="invariant")
    calls = [
        (lambda **how: ons.softmax(long, **how), ("cluster", 0), ("fused_block", 0)),
        (lambda **how: ons.log_softmax(long, **how), ("cluster", 0), ("fused_block", 0)),
        (lambda **how: ons.logsumexp(long, **how), ("cluster", 0), ("fused_block", 0)),
        (lambda **how: ons.normalizer(long, **how), ("cluster", 0), ("fused_block", 0)),
        (lambda **how: ons.Normalizer.empty((1,), like=long, **how).update(long), ("cluster", 0),
         ("fused_block", 0)),
        (lambda **how: ons.softmax_topk(few, 50, **how), ("fused_block", 0), ("fused_warp", 0)),
        (lambda **how: ons.softmax(short, 0, **how), ("fused_block", 1), ("fused_warp", 0)),
        (lambda **how: ons.softmax_backward(short, short, 0, **how), ("cluster", 1), ("fused_warp", 0)),
        (lambda **how: _core.gradient_sums(short, short, 0, **how), ("split", 1), ("split", 0)),
    ]  # fmt: skip

    def taken(call, **how):
        call(**how)
        return asked("method", ctypes.c_char_p).value.decode(), asked("form", ctypes.c_int).value

    for i, (call, by_auto, by_invariant) in enumerate(calls):
        assert taken(call) == by_auto, (i, taken(call))
        assert taken(call, method="invariant") == by_invariant, (i, taken(call, method="invariant"))
        assert ons.set_batch_invariant(True) is False
        try:
            assert taken(call) == by_invariant, (i, taken(call))
            assert taken(call, method="auto") == by_invariant
        finally:
            assert ons.set_batch_invariant(False) is True
    assert taken(lambda: row.update(long)) == ("fused_block", 0)
    found = ons.softmax_topk(few, 50, method="invariant", return_normalizer=True)
    assert found.normalizer.method == "invariant"


def check_alignment():
    """An unaligned element would stop the GPU, or be another element."""
    memory = np.zeros(8 * 34 + 8, np.uint8)
    odd = memory[1:].view(np.uint8)[: 8 * 32].view("<f4").reshape(8, 8)
    apart = np.ndarray((8, 8), "<f4", memory, strides=(34, 4))
    fits = np.zeros((8, 8), "f4")
    for given in (Interface(odd), Interface(apart), Producer(odd)):
        refused(ValueError, "array is not aligned|4-byte elements", ons.softmax, given)
        refused(ValueError, "out is not aligned", ons.softmax, Interface(fits), out=given)
    refused(ValueError, "scale is not aligned", ons.softmax, Interface(fits), scale=Interface(odd[:, :1]))
    ons.softmax(Interface(odd[:0]))  # with no elements there is nothing to read
    refused(ValueError, "length -1", ons.softmax, Interface(fits, shape=(-1, 8), strides=None))


def check_a_gpu_that_the_address_tells():
    """The CUDA Array Interface names no GPU."""
    place = ctypes.c_int.in_dll(ctypes.CDLL(_core.__file__), "stand_in_gpu_of_memory")
    place.value = 1
    try:
        assert ons.softmax(Interface(X)).device == "cuda:1"
        place.value = -1
        refused(ValueError, "not on a GPU", ons.softmax, Interface(X))
    finally:
        place.value = 0


def check_out():
    expected = ons.softmax(X)
    for out in (X * 0, np.zeros((5, 4, 3), np.float32).T, np.zeros((6, 4, 5), np.float32)[::-2]):
        for given in (Interface(out), Producer(out)):
            assert ons.softmax(Interface(X), out=given) is given
            assert np.array_equal(out, expected)
            out[...] = 0
    out = ons.softmax(Interface(X), scale=0.0)
    assert ons.softmax(Producer(X), out=out) is out and np.array_equal(shown(out), expected)
    refused(ValueError, "read-only", ons.softmax, Interface(X), out=Interface(X * 0, readonly=True))
    refused(ValueError, "read-only", ons.softmax, Interface(X), out=Producer(X * 0, readonly=True))
    refused(ValueError, "(4, 5)|(3, 4, 5)", ons.softmax, Interface(X), out=Interface(X[0] * 0))
    copy = Producer(X * 0, copied=True)
    refused(ValueError, "DLPack gives only a copy of out", ons.softmax, Interface(X), out=copy)
    assert not copy.array.any()
    assert np.array_equal(shown(ons.softmax(Producer(X, copied=True))), expected)
    for strides in ((80, 4, 4), (80, 8, 4), (4, 80, 8), (0, 20, 4)):
        out = np.ndarray(X.shape, np.float32, np.zeros(100, np.float32), strides=strides)
        refused(ValueError, "out is broadcast, or strided so", ons.softmax, Interface(X), out=Interface(out))
        refused(ValueError, "out is broadcast, or strided so", ons.softmax, Interface(X), out=Producer(out))
    # in place, and overlapping
    x = X.copy()
    ons.softmax(Interface(x), out=Interface(x))
    assert np.array_equal(x, expected)
    for shift, step in ((1, 1), (7, 1), (3, -1), (0, -1)):
        memory = np.random.default_rng(3).standard_normal(80).astype(np.float32)
        x = memory[:60].reshape(3, 4, 5)
        out = memory[shift : shift + 60].reshape(3, 4, 5)[::step]
        wanted = ons.softmax(x.copy())
        ons.softmax(Interface(x), out=Interface(out))
        assert np.array_equal(out, wanted)
    scale = np.ones((3, 4, 1))
    ons.softmax(Interface(np.ones((3, 4, 1))), out=Interface(scale), scale=Interface(scale))


def check_methods():
    live = asked("live").value
    long = np.zeros((1, 1 << 20), np.float32)
    for method in ons.methods("cuda"):
        assert np.array_equal(shown(ons.softmax(Interface(X), method=method.name)), ons.softmax(X))
    workspaces = asked("workspaces").value
    assert np.array_equal(shown(ons.softmax(Interface(long), method="split")), ons.softmax(long))
    assert asked("workspaces").value == workspaces + 1 and asked("live").value == live
    text = "'fused_warp' holds rows of at most|1048576|online, split"
    refused(ValueError, text, ons.softmax, Interface(long), method="fused_warp")
    refused(ValueError, text, ons.plan, Interface(long), method="fused_warp")


def check_libraries():
    """Imitations of CuPy and JAX, for calls that reach these libraries."""
    current = types.SimpleNamespace(ptr=31)

    class Device:
        def __init__(self, id):
            self.id = id

        def __enter__(self):
            pass

        def __exit__(self, *error):
            pass

    class Stream(Device):
        def __enter__(self):
            self.before, current.ptr = current.ptr, self.id

        def __exit__(self, *error):
            current.ptr = self.before

    class ndarray:
        __module__ = "cupy"

        def __init__(self, array):
            self.array, self.device = array, Device(1)
            self.data = types.SimpleNamespace(ptr=array.ctypes.data)
            self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype

        def astype(self, dtype):
            return ndarray(self.array.astype(dtype))

    class Pointer:
        def __init__(self, length):
            self.array = np.zeros(length, np.uint8)
            self.ptr = self.array.ctypes.data

    cupy = types.SimpleNamespace(
        empty_like=lambda like, dtype: ndarray(np.empty_like(like.array, dtype=dtype)),
        cuda=types.SimpleNamespace(
            get_current_stream=lambda gpu=-1: types.SimpleNamespace(ptr=current.ptr),
            Device=Device,
            ExternalStream=Stream,
            Stream=types.SimpleNamespace(null=Stream(0)),
            alloc=Pointer,
        ),
    )
    sys.modules["cupy"] = cupy
    live = asked("live").value
    for x in (X, X.transpose(2, 0, 1), X[::-1], X.astype(np.float16), np.arange(12).reshape(3, 4)):
        y = ons.softmax(ndarray(x))
        assert (
            type(y) is ndarray
            and np.array_equal(y.array, ons.softmax(x))
            and y.strides == ons.softmax(x).strides
        )
        assert (stream_of_run(), asked("gpu", ctypes.c_int).value) == (31, 1)
    assert ons.softmax(ndarray(X), dtype="bfloat16").dtype.name == "bfloat16"
    x = X.copy()
    out = ndarray(x[::-1])
    assert ons.softmax(ndarray(x), out=out) is out and np.array_equal(out.array, ons.softmax(X))
    done, y = orders(
        lambda: ons.softmax(ndarray(X), stream=44, where=ndarray(X > -9), scale=ndarray(np.array(1)))
    )
    assert done == [] and stream_of_run() == 44 and current.ptr == 31
    assert np.array_equal(y.array, ons.softmax(X))
    long = np.zeros((1, 1 << 20), np.float32)
    assert np.array_equal(ons.softmax(ndarray(long), method="split").array, ons.softmax(long))
    ons.softmax(ndarray(X), stream=31)
    assert stream_of_run() == 31
    ons.softmax(ndarray(X), stream=0)
    assert stream_of_run() == 0 and current.ptr == 31
    assert asked("live").value == live  # all memory was CuPy's
    del sys.modules["cupy"]

    class Array(Producer):
        __module__ = "jaxlib"
        dtype = np.dtype("float32")
        sharding = types.SimpleNamespace(num_devices=1)

    handed = []
    jax = types.ModuleType("jax")
    jax.dlpack = types.ModuleType("jax.dlpack")
    jax.dlpack.from_dlpack = lambda array: handed.append(array) or "a JAX array"
    jax.core = types.SimpleNamespace(Tracer=ons.DeviceArray)
    jax.numpy = types.SimpleNamespace(issubdtype=np.issubdtype, floating=np.floating)
    sys.modules.update({"jax": jax, "jax.dlpack": jax.dlpack})
    x = Array(X)
    assert ons.softmax(x) == "a JAX array" and x.stream == 1 and x.live == 1
    assert np.array_equal(shown(handed[0]), ons.softmax(X))
    handed.clear()
    assert x.live == 0
    refused(TypeError, "immutable", ons.softmax, x, out=x)
    del sys.modules["jax"], sys.modules["jax.dlpack"]


def check_normalizer():
    wanted = ons.normalizer(X, scale=2.0)
    first, second = Producer(X[..., :2]), Interface(X[..., 2:], stream=5)
    row = ons.normalizer(first, scale=2.0, stream=7)
    assert stream_of_run() == 7 == row.packed.stream and row.dtype == "float32" and first.live == 1
    done, further = orders(lambda: row.update(second))
    assert stream_of_run() == 7 == further.packed.stream
    assert done == [(5, 7), (7, 5)], done
    assert orders(lambda: row.merge(row, stream=9))[0] == [(7, 9)] * 2 + [(9, 7)] * 2
    for here, there in ((further.m, wanted.m), (further.logsumexp(), wanted.logsumexp())):
        assert np.array_equal(shown(here), there) and here.stream == 7
    assert np.allclose(shown(further.d), wanted.d, rtol=1e-7)
    made = further.softmax(Producer(X), stream=6)
    assert made.stream == 6 and np.allclose(shown(made), wanted.softmax(X), rtol=3e-7)
    sent = ons.Normalizer.from_packed(Producer(shown(row.packed), 1), scale=2.0, dtype="float32")
    assert sent.packed.device == "cuda:1" and asked("gpu", ctypes.c_int).value == 1
    refused(ValueError, "other is on cuda:1|the array is on cuda:0", row.merge, sent)
    refused(ValueError, "other is on the CPU|the array is on cuda:0", row.merge, wanted)
    refused(ValueError, "packed is not aligned", ons.Normalizer.from_packed, Interface(odd_states()))
    many = Interface(np.stack([shown(row.packed)] * 3))
    assert np.allclose(
        shown(ons.Normalizer.merge_all(many, scale=2.0, dtype="float32").d), 3 * shown(row.d), rtol=1e-15
    )
    none = ons.Normalizer.empty((3, 4), like=second, scale=2.0).merge(row)
    assert none.packed.stream == 5 and np.array_equal(shown(none.packed), shown(row.packed))
    row = None
    assert first.live == 0


def odd_states():
    return np.zeros(8 * 5 + 1, np.uint8)[1:].view("<f8")


def check_plan():
    plan = ons.plan(Interface(X))
    assert plan.device == "cuda" and plan.registers == 32 and plan.blocks_a_multiprocessor == 8
    assert "32 registers" in str(plan)
    assert ons.plan((3, 4, 5), device="cuda") == plan
    refused(ValueError, "a GPU", ons.plan, Interface(X), device="cpu")


def check_code():
    """What a build has for a GPU of sm_90: machine code, or PTX that its driver compiles."""
    architectures = asked("architectures", ctypes.c_char_p)
    for built, has_code in (
        (b"75-virtual;80;90;100", True),
        (b"90a", True),
        (b"75-virtual;80;100", False),
        (b"90-virtual", False),
        (b"95", False),
    ):
        architectures.value = built
        code = "machine code" if has_code else "compiled by the driver at the first call"
        assert (
            f"built for {built.decode()}; 2 GPUs; cuda:0 stand-in, sm_90, {code}; cuda:1 another"
            in (_core.config()["cuda"])
        )


def check_topk():
    """Two or three results: where they lie, what they keep alive, and int64 in DLPack and the interface."""
    expected = ons.softmax_topk(X, 3, 1, return_normalizer=True)
    for given, gpu in (
        (Interface(X), 0),
        (Producer(X), 0),
        (Producer(X, 1), 1),
        (ons.softmax(Interface(X)), 0),
    ):
        found = ons.softmax_topk(given, 3, 1, return_normalizer=True)
        assert type(found) is ons.TopKWithNormalizer and asked("gpu", ctypes.c_int).value == gpu
        arrays = found.values, found.indices, found.normalizer.packed
        assert [each.device for each in arrays] == [f"cuda:{gpu}"] * 3
        assert [each.dtype for each in arrays] == ["float32", "int64", "float64"]
        if not isinstance(given, ons.DeviceArray):
            wanted = expected.values, expected.indices, expected.normalizer.packed
            assert all(np.array_equal(shown(a), b) for a, b in zip(arrays, wanted, strict=True))
    places = found.indices
    assert places.__cuda_array_interface__["typestr"] == "<i8" and places.strides == (120, 40, 8)
    lent = places.__dlpack__()
    tensor = Managed.from_address(POINTER(lent, b"dltensor")).tensor
    assert (tensor.code, tensor.bits) == (0, 64)
    refused(TypeError, "a DeviceArray of int64", ons.softmax, places)
    refused(TypeError, "where has dtype int64|bool", ons.softmax, Interface(X), where=places)
    # the array's own stream, and the stream of the call
    done, found = orders(lambda: ons.softmax_topk(Interface(X, stream=5), 2, stream=6))
    assert done == [(5, 6), (6, 5)] and stream_of_run() == 6 and found.indices.stream == 6
    producer = Producer(X)
    found = ons.softmax_topk(producer, 2)
    assert producer.live == 1  # both results keep it alive
    del found
    gc.collect()
    assert producer.live == 0
    refused(ValueError, "num_threads", ons.softmax_topk, Interface(X), 2, num_threads=1)
    refused(ValueError, "k is 6", ons.softmax_topk, Interface(X), 6)


def check_sample():
    """Parameters on the GPU, and all results. Streams wait for the parameters."""
    numbers = {
        "temperature": np.linspace(0, 2, 12).reshape(3, 4),
        "top_k": np.arange(12, dtype=np.int32).reshape(3, 4),
        "min_p": np.array([0.01], np.float32),
        "seed": np.arange(12).reshape(3, 4),
        "offset": np.array(7),
    }
    terms = {"top_p": 0.9, "return_logprob": True, "return_valid": True}
    expected = ons.sample(X, **numbers, **terms)
    live = asked("live").value
    for kind in (Interface, Producer):
        found = ons.sample(kind(X), **{name: kind(each) for name, each in numbers.items()}, **terms)
        assert [each.dtype for each in map(shown, found)] == [np.int64, np.float32, np.bool_]
        assert all(np.array_equal(shown(a), b) for a, b in zip(found, expected, strict=True))
        lent = [each.__dlpack__() for each in found]
        codes = [Managed.from_address(POINTER(each, b"dltensor")).tensor.code for each in lent]
        assert codes == [0, 2, 6]  # int, float and bool
        del lent
        assert shown(ons.logsumexp(found[1], where=found[2], axis=None)) == ons.logsumexp(expected[1], None)
    del found
    assert asked("live").value == live
    seed = Interface(numbers["seed"], stream=5)
    done, _ = orders(lambda: ons.sample(Interface(X, stream=6), seed=seed, stream=7))
    assert done[:2] == [(6, 7), (5, 7)] and (7, 5) in done and (7, 6) in done and stream_of_run() == 7
    x, half = Interface(X), Interface(np.ones((3, 4), np.float16))
    for error, text, given in (
        (ValueError, "temperature is on the CPU, but the array is on cuda:0", {"temperature": np.ones(1)}),
        (ValueError, "top_k is on cuda:1", {"top_k": Producer(numbers["top_k"], gpu=1)}),
        (TypeError, "top_p has dtype float16: expected float32 or float64", {"top_p": half}),
        (ValueError, "min_p has gaps", {"min_p": Interface(np.ones((3, 8))[:, ::2])}),
        (ValueError, "num_threads", {"num_threads": 1}),
    ):
        refused(error, text, ons.sample, x, **{"seed": 0} | given)


def check_growth():
    """Calls leave nothing behind, whether they work or fail."""
    producer, interface, mask = Producer(X), Interface(X), Interface(X > 0)
    out = ons.softmax(interface)

    def some():
        ons.softmax(producer, where=mask, stream=6)
        ons.softmax(interface, out=out, scale=2)
        ons.softmax(out, out=Interface(X.copy()), stream=5)
        out.__dlpack__(stream=3, max_version=(1, 0), copy=True)
        assert out.__cuda_array_interface__
        for wrong in ({"axis": 9}, {"where": X}, {"scale": X}, {"out": X}, {"dtype": int}, {"stream": "x"}):
            try:
                ons.softmax(producer, **wrong)
            except (TypeError, ValueError, IndexError):
                continue
            raise AssertionError(wrong)

    for _ in range(200):
        some()
    gc.collect()
    before, live = sys.getallocatedblocks(), asked("live").value
    counts = [sys.getrefcount(each) for each in (producer, interface, mask, out)]
    for _ in range(1000):
        some()
    gc.collect()
    assert sys.getallocatedblocks() - before < 800  # one block left in each round would be 1000
    assert asked("live").value == live
    assert [sys.getrefcount(each) for each in (producer, interface, mask, out)] == counts
    assert producer.live == 0


def before_a_gpu_was_seen():
    """No driver and no GPU are two reasons. test_cuda_arrays.py has the third, a build without CUDA."""
    status = asked("count_status", ctypes.c_int)
    status.value = 35
    refused(RuntimeError, "driver", ons.softmax, Interface(X))
    status.value = 100
    refused(RuntimeError, "no GPU|CUDA_VISIBLE_DEVICES", ons.softmax, Producer(X))
    assert "built" in _core.config()["cuda"]
    assert ons.plan((3, 4), device="cuda").registers is None
    status.value = 0


if __name__ == "__main__":
    before_a_gpu_was_seen()
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            print(name)
    ALIVE_AT_EXIT = ons.softmax(Interface(X))
    CAPSULE_AT_EXIT = ALIVE_AT_EXIT.__dlpack__(stream=4)
    print("done")
