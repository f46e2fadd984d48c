"""Arrays of other libraries: results, and what is refused."""

import ctypes
import importlib.util

import numpy as np
import oracle
import pytest
from dlpack_structs import NAMES, NEW, Managed, Tensor, Versioned
from support import BFLOAT16, run_python, same_bits

import onsoftmax as ons

VALUES = np.linspace(-4, 4, 60).reshape(3, 4, 5).astype(np.float32)


def assert_right(y, x, axis=-1):
    wrong = oracle.wrong_places(y, oracle.softmax(x, axis), oracle.compute_type(x.dtype, y.dtype))
    assert not wrong.any(), np.argwhere(wrong)[:5]


# ---------------------------------------------------------------- plain Python


def test_lists_and_tuples():
    for given in ([1, 2, 3], (1.0, 2.0, 3.0), [[1, 2], [3, 4]], [True, False], [np.float32(1), 2], range(3)):
        y = ons.softmax(given)
        assert type(y) is np.ndarray and y.dtype == np.float64
        assert_right(y, np.array(given, float))
    y = ons.softmax([np.float32([1, 2]), np.float32([3, 4])])
    assert y.dtype == np.float32
    assert ons.softmax([]).shape == (0,) and ons.softmax([]).dtype == np.float64
    assert ons.softmax([[], []]).shape == (2, 0)


@pytest.mark.parametrize("value", [3, 2.5, True, -(10**15), np.float64(7), np.int8(3)])
def test_scalars(value):
    y = ons.softmax(value)
    assert y.shape == () and y == 1 and y.dtype == np.float64
    assert ons.softmax(np.float32(3)).dtype == np.float32
    assert ons.softmax(np.float16(3)).dtype == np.float16


def test_objects_with_array():
    class Holder:
        def __init__(self, values):
            self.values = values

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.values, dtype)

    assert same_bits(ons.softmax(Holder(VALUES), 1), ons.softmax(VALUES, 1))
    assert ons.softmax(Holder([1, 2])).dtype == np.float64
    with pytest.raises(TypeError, match="complex"):
        ons.softmax(Holder([1j]))


def test_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(VALUES[0], columns=list("abcde"))
    for given in (frame, frame["b"], frame.T, pandas.Series([1, 2, 3]), pandas.Index([1.0, 2.0])):
        y = ons.softmax(given)
        assert type(y) is np.ndarray
        values = np.asarray(given)
        assert_right(y, values if values.dtype.kind == "f" else values.astype(float))
    with pytest.raises(TypeError, match="float16, bfloat16, float32 or float64"):
        ons.softmax(pandas.Series(["a", "b"]))


@pytest.mark.skipif(BFLOAT16 is None, reason="ml_dtypes is missing")
def test_ml_dtypes():
    import ml_dtypes

    x = VALUES.astype(BFLOAT16)
    assert ons.softmax(x).dtype == BFLOAT16
    assert same_bits(ons.softmax(x), ons.softmax(x.astype(np.float32)).astype(BFLOAT16))
    assert ons.softmax(BFLOAT16.type(2)) == 1
    for other in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4):
        with pytest.raises(TypeError, match="float16, bfloat16, float32 or float64"):
            ons.softmax(np.zeros(3, other))


# ---------------------------------------------------------------- DLPack


class Producer:
    """An array that only DLPack can show."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self.array.__dlpack__(max_version=max_version)

    def __dlpack_device__(self):
        return (1, 0)


class LegacyProducer(Producer):
    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


class CapsuleOnce(Producer):
    """Returns the same capsule every time."""

    def __dlpack__(self, **keywords):
        self.capsule = getattr(self, "capsule", None) or self.array.__dlpack__()
        return self.capsule


@pytest.mark.parametrize("producer", [Producer, LegacyProducer, CapsuleOnce])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dlpack_producers(producer, dtype):
    base = VALUES.astype(dtype)
    strided = [base[::-1, ::2, ::-1], base.transpose(2, 0, 1), base[:0], base[0, 0, 0:1]]
    for x in (base, *strided, np.array(2, dtype)):
        y = ons.softmax(producer(x))
        assert type(y) is np.ndarray and y.dtype == dtype
        assert same_bits(y.copy(), ons.softmax(x.copy()))
    out = np.zeros_like(base)
    assert ons.softmax(producer(base), out=out) is out
    assert same_bits(out, ons.softmax(base))


def test_dlpack_is_not_kept():
    import weakref

    class Sub(np.ndarray):
        pass

    x = VALUES.copy().view(Sub)
    alive = weakref.ref(x)
    ons.softmax(Producer(x))
    del x
    assert alive() is None


def test_dlpack_integers_and_bool():
    """They give NumPy's default float type, like other integers and bools."""
    for dtype in (np.int8, np.uint8, np.int32, np.int64, bool):
        x = (np.arange(12) % 5).reshape(3, 4).astype(dtype)
        y = ons.softmax(Producer(x))
        assert y.dtype == np.float64
        assert_right(y, x.astype(float))


def test_dlpack_refused():
    with pytest.raises(TypeError, match="float16, bfloat16, float32 or float64"):
        ons.softmax(Producer(np.zeros(3, complex)))
    once = CapsuleOnce(VALUES)
    ons.softmax(once)
    with pytest.raises(BufferError, match="capsule"):
        ons.softmax(once)

    class Wrong(Producer):
        def __dlpack__(self, **keywords):
            return self.array

    for nonsense in (None, 7, VALUES):
        with pytest.raises(BufferError, match="capsule"):
            ons.softmax(Wrong(nonsense))

    class Failing(Producer):
        def __dlpack__(self, **keywords):
            raise self.array

    for error in (RuntimeError("moved away"), BufferError("busy"), TypeError("no")):
        with pytest.raises(type(error), match=str(error)):
            ons.softmax(Failing(error))


def copied_capsule(x):
    """A capsule made by hand whose flags say that its memory is a copy."""
    shape = (ctypes.c_int64 * x.ndim)(*x.shape)
    managed = Versioned(version=(1, 3), flags=2)
    managed.tensor = Tensor(x.ctypes.data, (1, 0), x.ndim, 2, 32, 1, shape)

    class Given:
        def __dlpack__(self, **keywords):
            self.keep = (x, shape, managed)
            return NEW(ctypes.addressof(managed), NAMES[True], None)

    return Given()


def test_a_copy_is_no_out():
    """A result in it would be lost. As an input it is like any other array."""
    copy = np.zeros_like(VALUES)
    with pytest.raises(ValueError, match=r"a copy of out.*expected an array that shares its own memory"):
        ons.softmax(VALUES, out=copied_capsule(copy))
    assert not copy.any()
    assert same_bits(ons.softmax(copied_capsule(VALUES)), ons.softmax(VALUES))


def legacy_capsule(x, device=1, lanes=1, ndim=None):
    """A legacy capsule made by hand: C order without strides, no deleter, and any device."""

    shape = (ctypes.c_int64 * x.ndim)(*x.shape)
    managed = Managed(Tensor(x.ctypes.data - 8, (device, 0), x.ndim if ndim is None else ndim, 2, 32, lanes))
    managed.tensor.shape, managed.tensor.byte_offset = shape, 8
    keep = (x, shape, managed, NAMES[False])

    class Given:
        def __dlpack__(self):
            self.keep = keep
            return NEW(ctypes.addressof(managed), NAMES[False], None)

    return Given()


def test_hand_made_capsules():
    assert same_bits(ons.softmax(legacy_capsule(VALUES)), ons.softmax(VALUES))
    with pytest.raises(BufferError, match="device type 10"):
        ons.softmax(legacy_capsule(VALUES, device=10))
    with pytest.raises(TypeError, match="float32 in groups of 4 is not supported"):
        ons.softmax(legacy_capsule(VALUES, lanes=4))
    for ndim in (65, -1):
        with pytest.raises(ValueError, match="dimensions"):
            ons.softmax(legacy_capsule(VALUES, ndim=ndim))


def test_types_that_are_not_supported_have_their_names():
    """However the array is passed."""

    class Given:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

    ml_dtypes, torch, jax = map(pytest.importorskip, ("ml_dtypes", "torch", "jax"))
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu"):
        tensor = torch.empty(4, dtype=getattr(torch, name))
        array = np.ones(4).astype(getattr(ml_dtypes, name))
        for each in (tensor, array, jax.numpy.asarray(array), Given(tensor), Given(jax.numpy.asarray(array))):
            with pytest.raises(
                TypeError, match=f"^dtype {name} is not supported: expected float16, bfloat16"
            ):
                ons.softmax(each)
            if not isinstance(each, Given):
                with pytest.raises(TypeError, match=f"where has dtype {name}: expected a mask of bool"):
                    ons.softmax(np.ones(4), where=each)
        for each in (tensor, array):
            with pytest.raises(TypeError, match=f"scale has dtype {name}: expected a real number"):
                ons.softmax(np.ones(4), scale=each)
            with pytest.raises(TypeError, match=f"out has dtype {name}: expected float16"):
                ons.softmax(np.ones(4), out=each)
    for dtype in (torch.uint4, torch.bits8, torch.complex32):
        with pytest.raises(TypeError, match=f"^dtype {str(dtype)[6:]} is not supported"):
            ons.normalizer(torch.empty(4, dtype=dtype))
    with pytest.raises(TypeError, match="dtype key<fry> is not supported"):
        ons.softmax(jax.random.key(0))


# ---------------------------------------------------------------- JAX


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def test_jax_types(jax):
    for dtype in ("float16", "bfloat16", "float32"):
        x = jax.numpy.asarray(VALUES).astype(dtype)
        for axis in (-1, 0, None):
            y = ons.softmax(x, axis)
            assert isinstance(y, jax.Array) and y.dtype == dtype and y.shape == x.shape
            assert same_bits(np.asarray(y), np.ascontiguousarray(ons.softmax(np.asarray(x), axis)))
    for x in (jax.numpy.arange(4), jax.numpy.array([True, False])):
        y = ons.softmax(x)
        assert isinstance(y, jax.Array) and y.dtype == jax.numpy.zeros(1).dtype
    assert ons.softmax(jax.numpy.float32(3)) == 1
    assert ons.softmax(jax.numpy.zeros((0, 3))).shape == (0, 3)
    with pytest.raises(TypeError, match="complex64"):
        ons.softmax(jax.numpy.zeros(3, "complex64"))


def test_jax_waits_for_its_input(jax):
    """JAX computes in the background. The call must wait for an unfinished array."""
    slow = jax.jit(lambda a: jax.lax.fori_loop(0, 60, lambda i, b: jax.numpy.sin(b) + b, a))
    start = jax.numpy.linspace(-1, 1, 500_000)
    settled = np.asarray(slow(start))
    assert same_bits(np.asarray(ons.softmax(slow(start))), ons.softmax(settled))


def test_jax_tracers(jax):
    """Functions that onsoftmax.jax does not cover. tests/jax/test_jax.py has the others."""
    for transform in (jax.jit, jax.vmap):
        with pytest.raises(TypeError, match=r"JAX tracer.*concrete arrays"):
            transform(lambda x: ons.normalizer(x).m)(jax.numpy.ones((3, 3)))


def test_jax_is_never_written(jax):
    x = jax.numpy.asarray(VALUES)
    with pytest.raises(TypeError, match=r"JAX.*immutable"):
        ons.softmax(x, out=x)
    out = np.empty(VALUES.shape, np.float32)
    assert ons.softmax(x, out=out) is out
    assert np.array_equal(np.asarray(x), VALUES)


DEVICES = """
import jax, numpy as np, pytest
import onsoftmax as ons
one, two = jax.devices("cpu")
x = np.linspace(-4, 4, 12, dtype="f4").reshape(3, 4)
expected = ons.softmax(x)
for device in (one, two):
    for given in (jax.device_put(x, device), jax.device_put(x.astype(int), device)):
        for keywords in ({}, {"dtype": "bfloat16"}, {"where": jax.device_put(x > -9, one)}):
            y = ons.softmax(given, **keywords)
            assert y.devices() == {device} and y.committed
    assert np.array_equal(ons.softmax(jax.device_put(x, device)), expected)
free = jax.numpy.asarray(x)  # goes to where it is used
assert ons.softmax(free).devices() == {one} and not ons.softmax(free).committed
with jax.default_device(two):
    assert ons.softmax(free).devices() == {one}
    assert ons.softmax(jax.numpy.asarray(x)).devices() == {two}
mesh = jax.sharding.Mesh(np.array([one, two]), "a")
cut = jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "a")))
with pytest.raises(BufferError, match="the array lies on 2 devices: .*jax.shard_map"):
    ons.softmax(cut)
"""


def test_jax_devices(jax):
    """The result lies on the array's device, and is committed to it if the array is. The array lies on one
    device."""
    done = run_python(
        ["-c", DEVICES], XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu"
    )
    assert done.returncode == 0, done.stderr


X64 = """
import jax, numpy as np, pytest
import onsoftmax as ons
x = jax.numpy.linspace(-4, 4, 12)
for dtype in ("float64", np.float64, float):
    with pytest.raises(TypeError, match="float64.*jax_enable_x64.*numpy.asarray"):
        ons.softmax(x, dtype=dtype)
out = np.zeros(12)
assert ons.softmax(x, out=out) is out and np.array_equal(out, ons.softmax(np.asarray(x), dtype="float64"))
assert ons.softmax(x).dtype == ons.softmax(x, dtype="float32").dtype == "float32"
jax.config.update("jax_enable_x64", True)
wide = x.astype("float64")
for y in (ons.softmax(x, dtype="float64"), ons.softmax(wide), ons.softmax(jax.numpy.arange(3))):
    assert y.dtype == "float64"
assert np.array_equal(ons.softmax(x, dtype="float64"), out)
jax.config.update("jax_enable_x64", False)
with pytest.raises(TypeError, match="jax_enable_x64"):
    ons.softmax(wide)
assert ons.softmax(wide, dtype="float32").dtype == "float32"
"""


def test_jax_float64(jax):
    """If JAX has float64 disabled, it would silently round to float32. So the array is refused."""
    done = run_python(["-c", X64], JAX_ENABLE_X64=None)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- Dask


def test_dask_is_told_what_to_do():
    dask = type("Array", (), {"__module__": "dask.array.core"})
    with pytest.raises(TypeError, match=r"Dask array.*softmax.*onsoftmax\.dask.*compute\(\)"):
        ons.softmax(dask())


def test_what_dask_is_told_works():
    da = pytest.importorskip("dask.array")
    import onsoftmax.dask

    x = da.from_array(VALUES[0], chunks=(2, -1))
    with pytest.raises(TypeError, match="Dask array"):
        ons.softmax(x)
    for y in (onsoftmax.dask.softmax(x).compute(), ons.softmax(x.compute())):
        assert same_bits(y, ons.softmax(VALUES[0]))


class Exporter:
    """Only has __dlpack__. A subclass has __array__ too, and its __dlpack__ refuses, like pyarrow's with
    nulls."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return (1, 0)


class Refusing(Exporter):
    def __dlpack__(self, **keywords):
        raise TypeError("can only use DLPack on arrays with no nulls")

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_masks_and_scales_by_dlpack():
    x, where, scale = (
        np.float32([[1, 2, 3], [4, 5, 7]]),
        np.array([True, False, True]),
        np.array([[2], [0.5]]),
    )
    wanted = ons.softmax(x, where=where, scale=scale)
    for kind in (Exporter, Refusing):
        assert same_bits(ons.softmax(x, where=kind(where), scale=kind(scale)), wanted)
        assert same_bits(ons.softmax(kind(x), scale=kind(np.array(2))), ons.softmax(x, scale=2.0))
    with pytest.raises(TypeError, match="where has dtype float64: expected a mask of bool"):
        ons.softmax(x, where=Exporter(scale))
    if importlib.util.find_spec("jax"):
        import jax

        traced = jax.jit(lambda x: ons.softmax(x, where=Exporter(where), scale=Exporter(scale)))(x)
        assert same_bits(np.asarray(traced), wanted)
    torch = pytest.importorskip("torch")
    ours = ons.softmax(x, scale=Exporter(torch.tensor(scale).bfloat16()))
    assert same_bits(ours, ons.softmax(x, scale=scale))


def test_pandas_types_with_na():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [0.5, 2.5]}).convert_dtypes()
    assert same_bits(ons.softmax(frame), ons.softmax(np.array([[1, 0.5], [2, 2.5]])))
    narrow = pandas.DataFrame(np.float32([[1.5, 2], [3, 4]])).convert_dtypes(convert_integer=False)
    assert ons.softmax(narrow).dtype == np.float32
    missing = pandas.DataFrame({"a": [1, None], "b": [3, 4]}).convert_dtypes()
    assert np.isnan(ons.softmax(missing)).tolist() == [[False, False], [True, True]]
    assert same_bits(
        ons.softmax(missing.fillna(0), where=missing.notna()),
        ons.softmax([[1, 3], [0, 4]], where=[[True, True], [False, True]]),
    )
    with pytest.raises(TypeError, match="dtype object is not supported"):
        ons.softmax(pandas.DataFrame({"a": ["1", None]}).convert_dtypes())


def test_deleted_arrays_of_jax():
    jax = pytest.importorskip("jax")
    x, gone = np.ones((3, 4), np.float32), jax.numpy.ones((3, 4))
    gone.delete()
    for call in (
        lambda: ons.softmax(gone),
        lambda: ons.softmax_topk(gone, 1),
        lambda: ons.softmax(x, scale=gone),
        lambda: ons.softmax(jax.numpy.ones((3, 4)), where=gone),
        lambda: ons.softmax_backward(x, gone),
        lambda: ons.plan(gone),
    ):
        with pytest.raises(RuntimeError, match="Array has been deleted"):
            call()
