"""The operations inside jax.jit on the CPU: the same bits and errors as outside."""

import doctest
import functools
import importlib.util

import numpy as np
import pytest
from support import METHODS, run_python

import onsoftmax as ons
from onsoftmax import _core

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax_checks import DTYPES, MASK, ROWS, WEIGHTS, X, same  # noqa: E402

from onsoftmax import jax as module  # noqa: E402


def test_examples():
    failed, tried = doctest.testmod(module)
    assert failed == 0 and tried == 2


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [-1, 0, 1, (0, 2), None, ()])
def test_a_program_has_the_bits_of_the_call(dtype, axis):
    x, grad = jnp.asarray(X).astype(dtype), jnp.asarray(WEIGHTS).astype(dtype)
    for operation in (*ROWS, "logsumexp"):
        function = functools.partial(getattr(ons, operation), axis=axis)
        assert same(jax.jit(function)(x), function(x)), operation
    for operation in ROWS:
        y, backward = getattr(ons, operation)(x, axis), getattr(ons, f"{operation}_backward")
        assert same(jax.jit(backward, static_argnums=2)(grad, y, axis), backward(grad, y, axis)), operation
    if isinstance(axis, int):
        for given in ({}, {"log": True}):
            function = functools.partial(ons.softmax_topk, k=3, axis=axis, **given)
            assert same(jax.jit(function)(x), function(x)), operation
            assert isinstance(jax.jit(function)(x), ons.TopK)


@pytest.mark.parametrize(
    "given",
    [
        {"where": MASK},
        {"where": MASK[0, 0]},
        {"where": MASK[:, :1]},
        {"where": True},
        {"scale": 0.3},
        {"scale": -2},
        {"scale": np.float32([[0.5], [1], [2], [4]])},
        {"scale": np.float16(0.5)},
        {"scale": np.int32(2)},
        {"scale": jnp.asarray(2.5)},
        {"scale": jnp.asarray([[[2]]])},
        {"where": MASK, "scale": np.float32(np.arange(12)).reshape(3, 4, 1)},
        {"num_threads": 1},
        {"num_threads": 2**31},
        {"num_threads": 2**70},
    ],
    ids=repr,
)
def test_masks_and_scales(given):
    x = jnp.asarray(X)
    for operation in (*ROWS, "logsumexp"):
        function = getattr(ons, operation)
        assert same(jax.jit(functools.partial(function, **given))(x), function(x, **given))
        traced = {name: value for name, value in given.items() if isinstance(value, (np.ndarray, jax.Array))}
        fixed = {name: value for name, value in given.items() if name not in traced}
        # only the mask or the scale is traced, and the array is a NumPy array
        made = jax.jit(lambda arrays, f=function, fixed=fixed: f(X, **arrays, **fixed))(traced)
        assert same(made, function(x, **given))
    function = functools.partial(ons.softmax_topk, k=2, **given)
    assert same(jax.jit(function)(x), function(x))
    function = functools.partial(ons.softmax_backward, **given)
    assert same(jax.jit(function)(jnp.asarray(WEIGHTS), x), function(jnp.asarray(WEIGHTS), x))


def test_methods_and_types():
    x = jnp.asarray(X)
    for method in METHODS:
        function = functools.partial(ons.softmax, method=method, dtype="float16")
        assert same(jax.jit(function)(x), function(x)), method
    for dtype in (*DTYPES, np.float16, jnp.bfloat16):
        assert jax.jit(functools.partial(ons.log_softmax, dtype=dtype))(x).dtype == dtype
    for given in (jnp.arange(4), jnp.array([True, False]), jnp.uint8([3, 4])):
        assert same(jax.jit(ons.softmax)(given), ons.softmax(given))
    grad, y = jnp.ones(3, "float16"), jnp.ones(3, "bfloat16")
    for pair in ((grad, y), (y, y), (grad, jnp.ones(3))):
        assert same(jax.jit(ons.softmax_backward)(*pair), ons.softmax_backward(*pair))
    keep = functools.partial(ons.logsumexp, axis=1, keepdims=True)
    assert same(jax.jit(keep)(x), keep(x))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (1, 1), (1, 7), (5, 1), (2, 1, 3, 1, 2)])
def test_shapes(shape):
    x = jnp.asarray(np.random.default_rng(4).standard_normal(shape, np.float32))
    for operation in (*ROWS, "logsumexp"):
        function = getattr(ons, operation)
        assert same(jax.jit(function)(x), function(x)), operation
        assert jax.jit(jax.grad(lambda x, f=function: f(x).sum()))(x).shape == shape
    if x.size:
        function = functools.partial(ons.softmax_topk, k=1)
        assert same(jax.jit(function)(x), function(x))
    assert same(jax.jit(ons.softmax_backward)(x, x), ons.softmax_backward(x, x))


def test_large_arrays():
    x = jnp.asarray(np.random.default_rng(5).standard_normal((300, 3001), np.float32))
    for operation in (*ROWS, "logsumexp"):
        function = getattr(ons, operation)
        assert same(jax.jit(function)(x), function(x)), operation
        assert same(jax.jit(functools.partial(function, axis=0))(x), function(x, 0)), operation


# ---------------------------------------------------------------- errors


def text_of(function, *given):
    with pytest.raises(Exception) as caught:
        function(*given)
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"axis": 3},
        {"axis": (0, 0)},
        {"axis": 1.5},
        {"dtype": "int8"},
        {"dtype": "float64"},
        {"method": "fast"},
        {"method": 3},
        {"method": "cluster"},
        {"where": np.ones(5, np.float32)},
        {"where": np.ones(4, bool)},
        {"scale": np.ones(5, np.float32)},
        {"scale": None},
        {"scale": 10**400},
        {"scale": 1j},
        {"num_threads": 0},
        {"num_threads": "two"},
        {"axes": 0},
    ],
    ids=repr,
)
def test_what_is_refused(given):
    """Tracing raises the error of the same call outside a transformation."""
    x = jnp.asarray(X)
    for function in (ons.softmax, ons.log_softmax):
        call = functools.partial(function, **given)
        assert text_of(jax.jit(call), x) == text_of(call, x)


def test_what_else_is_refused():
    x = jnp.asarray(X)
    for call in (
        lambda x: ons.softmax_topk(x, 6),
        lambda x: ons.softmax_topk(x, 0),
        lambda x: ons.softmax_topk(x, 1.5),
        lambda x: ons.softmax(x, True),
        lambda x: ons.softmax_topk(x, True),
        lambda x: ons.softmax_topk(x, 1, None),
        lambda x: ons.softmax_topk(x, 1, (0, 1)),
        lambda x: ons.softmax_topk(x[:, :, :0], 1),
        lambda x: ons.softmax_topk(x, 2, method="safe"),
        lambda x: ons.softmax_backward(x[0], x),
        lambda x: ons.softmax_backward(x, x, method="safe"),
        lambda x: ons.softmax(x.astype("complex64")),
    ):
        assert text_of(jax.jit(call), x) == text_of(call, x)
    with pytest.raises(TypeError, match="float8_e4m3fn is not supported"):
        jax.jit(ons.softmax)(x.astype("float8_e4m3fn"))
    for given in ({"out": X}, {"out": x}):
        with pytest.raises(TypeError, match=r"JAX.*immutable: call without out="):
            jax.jit(lambda x, given=given: ons.softmax(x, **given))(x)
    with pytest.raises(ValueError, match="stream is given"):
        jax.jit(lambda x: ons.softmax(x, stream=0))(x)
    with pytest.raises(ValueError, match=r"return_normalizer.*logsumexp"):
        jax.jit(lambda x: ons.softmax_topk(x, 2, return_normalizer=True))(x)
    for function in (ons.normalizer, ons.plan, ons.explain):
        with pytest.raises(TypeError, match=r"JAX tracer.*concrete arrays"):
            jax.jit(function)(x)


def test_an_older_jax_is_told_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TypeError, match=r"JAX tracer.*no jax\.ffi.*JAX 0\.5 or later"):
        jax.jit(ons.softmax)(jnp.ones(3))


GOOD = {
    "operation": "softmax",
    "operands": "x",
    "axes": np.int64([-1]),
    "method": "auto",
    "scale": np.float64(1),
    "num_threads": np.int32(1),
    "flags": np.int32(0),
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": "softmin"},
        {"operation": "merge"},
        {"operation": "softmax_backward"},
        {"operation": "softmax_topk"},
        {"operands": "g"},
        {"operands": "xs"},
        {"num_threads": np.int32(0)},
        {"operation": "logsumexp"},
        {"operation": "logsumexp", "shape": (4,)},
        {"operation": "logsumexp", "shape": (4, 5)},
        {"operation": "normalizer", "shape": (4, 1)},
        {"operation": "normalizer", "flags": np.int32(4), "shape": (4, 1, 10)},
        {"operation": "normalizer", "flags": np.int32(4), "shape": (4, 1, 8), "dtype": "uint32"},
        {"operation": "normalizer", "shape": (4, 1, 10), "dtype": "uint32"},
        {"operation": "normalizer", "method": "exact", "shape": (4, 1, 4), "dtype": "uint32"},
        {"flags": np.int32(4), "shape": (4, 1, 10), "dtype": "uint32"},
        {"shape": (4, 1)},
        {"operands": "xx"},
        {"operands": "p"},
        {"operands": "?"},
        {"axes": np.int64([0])},
        {"axes": np.int64([-3])},
        {"axes": np.int32([-1])},
        {"method": "fast"},
        {"method": "cluster"},
        {"scale": np.float32(0.5)},
        {"flags": None},
        {"shape": (3, 5)},
        {"shape": (20,)},
        {"dtype": "int8"},
        {"dtype": "uint32"},
        {"dtype": "int32"},
    ],
    ids=repr,
)
def test_a_wrong_program_is_an_error(wrong):
    """Another version's compiled program may call the target in a way that this version never does."""
    importlib.import_module("onsoftmax.jax")  # registers the target
    x = jnp.ones((4, 5))
    attributes = {**GOOD, **wrong}
    result = jax.ShapeDtypeStruct(attributes.pop("shape", x.shape), attributes.pop("dtype", x.dtype))
    call = jax.ffi.ffi_call("onsoftmax", result)
    with pytest.raises(jax.errors.JaxRuntimeError, match="onsoftmax: "):
        call(
            x, **{name: value for name, value in attributes.items() if value is not None}
        ).block_until_ready()
    assert np.allclose(jax.ffi.ffi_call("onsoftmax", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, **GOOD), 0.2)


def test_a_gpus_call_without_a_gpu_is_an_error():
    """XLA has no stream for the call here."""
    jax.ffi.register_ffi_target("onsoftmax_on_a_gpu", _core.xla_target("CUDA"), platform="cpu")
    call = jax.ffi.ffi_call("onsoftmax_on_a_gpu", jax.ShapeDtypeStruct((4, 5), "float32"))
    with pytest.raises(jax.errors.JaxRuntimeError):
        jax.block_until_ready(call(jnp.ones((4, 5)), **GOOD))
    empty = jax.ffi.ffi_call("onsoftmax_on_a_gpu", jax.ShapeDtypeStruct((0, 5), "float32"))
    assert empty(jnp.ones((0, 5)), **GOOD).shape == (0, 5)


# ---------------------------------------------------------------- 64 bits, several devices

X64 = """
import jax, numpy as np, onsoftmax as ons
jax.config.update("jax_enable_x64", True)
x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((3, 50)))
scale = jax.numpy.full((3, 1), 0.1)
for function in (ons.softmax, ons.log_softmax, ons.logsumexp):
    assert np.array_equal(jax.jit(function)(x), function(x)) and function(x).dtype == "float64"
    assert np.array_equal(jax.jit(lambda x: function(x, scale=scale))(x), function(x, scale=scale))
    assert np.array_equal(jax.jit(function)(jax.numpy.arange(3)), function(jax.numpy.arange(3)))
found = jax.jit(lambda x: ons.softmax_topk(x, 3))(x)
assert found.indices.dtype == "int64" and np.array_equal(found.indices, ons.softmax_topk(x, 3).indices)
assert jax.jit(lambda x: ons.softmax(x, dtype="float64"))(x.astype("float32")).dtype == "float64"
from jax.test_util import check_grads
mask = jax.numpy.asarray(np.arange(50) % 7 > 0)
for function in (ons.softmax, ons.log_softmax, ons.logsumexp):
    given = {} if function is ons.log_softmax else {"where": mask}
    check_grads(jax.jit(lambda x, s: function(x, scale=s, **given)), (x, scale), order=1, modes=["rev"])
    if function is not ons.logsumexp:
        backward = getattr(ons, function.__name__ + "_backward")
        masked = jax.jit(lambda g, y: backward(g, y, where=mask))
        check_grads(masked, (x, function(x)), order=1, modes=["rev"])
"""


def test_float64():
    done = run_python(["-c", X64])
    assert done.returncode == 0, done.stderr
