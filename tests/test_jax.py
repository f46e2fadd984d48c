"""The operations inside jax.jit, jax.grad, jax.vmap and the other transformations of JAX, on the CPU."""

import functools
import importlib.util

import numpy as np
import pytest
from support import METHODS, run_python, same_bits

import onsoftmax as ons

jax = pytest.importorskip("jax")
jnp = jax.numpy

X = np.random.default_rng(1).standard_normal((3, 4, 5), dtype=np.float32) * 3
MASK = np.random.default_rng(2).random((3, 4, 5)) < 0.7
MASK[..., 0] = True
WEIGHTS = np.random.default_rng(3).standard_normal((3, 4, 5), dtype=np.float32)
ROWS = ("softmax", "log_softmax")
DTYPES = ("float16", "bfloat16", "float32")


def same(a, b):
    """Both are arrays, or tuples of arrays, of the same bits."""
    a, b = jax.tree.leaves(tuple(a) if isinstance(a, tuple) else a), jax.tree.leaves(b)
    return len(a) == len(b) and all(same_bits(np.asarray(p), np.asarray(q)) for p, q in zip(a, b, strict=True))


def plain(operation, x, axis=-1, where=None, scale=1.0):
    """By jax.nn, which JAX differentiates itself."""
    if operation == "logsumexp":
        return jax.nn.logsumexp(x * scale, axis, where=where)
    y = getattr(jax.nn, operation)(x * scale, axis, where=where)
    return y if where is None else jnp.where(where, y, 0)


def ours(operation, x, axis=-1, **given):
    y = getattr(ons, operation)(x, axis, **given)
    where = given.get("where")
    return jnp.where(where, y, 0) if where is not None and operation == "log_softmax" else y


def assert_near(a, b, tolerance=1e-5):
    for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(p, np.float64), np.asarray(q, np.float64), tolerance, tolerance)


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
        # only the mask or the scale is traced, and the array is NumPy's
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


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize(
    ("operation", "axis", "masked"),
    [("softmax", -1, True), ("log_softmax", (0, 2), True), ("logsumexp", 0, True), ("softmax", None, False)],
)
def test_gradients(operation, axis, masked):
    """First and second derivatives for the array and for a scale, against those that JAX finds itself."""
    where, scale = jnp.asarray(MASK) if masked else None, jnp.float32([[[0.7]]])
    weights = jnp.asarray(WEIGHTS if operation in ROWS else WEIGHTS.sum(axis))

    def loss(function, x, scale):
        return (jnp.sin(function(operation, x, axis, where=where, scale=scale)) * weights).sum()

    def slope(function, x, scale):
        first = jax.grad(functools.partial(loss, function), (0, 1))(x, scale)
        return sum((jnp.cos(each) * (each + 1)).sum() for each in first)

    made, right = (
        jax.jit(jax.value_and_grad(functools.partial(slope, f), (0, 1)))(jnp.asarray(X), scale)
        for f in (ours, plain)
    )
    assert_near(made, right, 1e-4)


@pytest.mark.parametrize("operation", ROWS)
def test_gradients_of_the_gradient(operation):
    def theirs(grad, y, scale):
        if operation == "softmax":
            return scale * y * (grad - (grad * y).sum(-1, keepdims=True))
        return scale * (grad - jnp.exp(y) * grad.sum(-1, keepdims=True))

    backward = getattr(ons, f"{operation}_backward")
    y, grad, scale = getattr(ons, operation)(jnp.asarray(X)), jnp.asarray(WEIGHTS), jnp.full((3, 4, 1), 0.6)
    made, right = (
        jax.jit(jax.grad(lambda g, y, s, f=f: (jnp.sin(f(g, y, s))).sum(), (0, 1, 2)))(grad, y, scale)
        for f in (lambda g, y, s: backward(g, y, scale=s), theirs)
    )
    assert_near(made, right, 1e-4)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("axis", [-1, 1])
def test_gradients_of_the_largest(log, axis):
    def loss(x, scale, select):
        return (jnp.sin(select(x, scale)) * jnp.arange(1.0, 3).reshape(2, *(1,) * (2 - axis % 3))).sum()

    def theirs(x, scale):
        y = (jax.nn.log_softmax if log else jax.nn.softmax)(x * scale, axis)
        return jnp.flip(jnp.sort(y, axis), axis).take(jnp.arange(2), axis)

    made, right = (
        jax.jit(jax.grad(functools.partial(loss, select=select), (0, 1)))(jnp.asarray(X), jnp.float32(0.5))
        for select in (lambda x, s: ons.softmax_topk(x, 2, axis, log=log, scale=s).values, theirs)
    )
    assert_near(made, right)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_have_the_type_of_the_array(dtype):
    x = jnp.asarray(X).astype(dtype)
    for given in ({}, {"dtype": "float32"}, {"scale": jnp.full((3, 4, 1), 0.5)}):
        for operation in ROWS:
            function = functools.partial(getattr(ons, operation), **given)
            made = jax.jit(jax.grad(lambda x, f=function: (f(x) * WEIGHTS).astype("float32").sum()))(x)
            scale = given.get("scale", 1)
            right = jax.grad(lambda x, o=operation, s=scale: (plain(o, x, scale=s) * WEIGHTS).sum())(
                x.astype("float32")
            )
            assert made.dtype == dtype
            assert_near(made, right, 2e-2)
    assert jax.grad(lambda x: ons.logsumexp(x).astype("float32").sum())(x).dtype == dtype
    assert jax.grad(lambda x: ons.softmax_topk(x, 2).values.astype("float32").sum())(x).dtype == dtype


def test_forward_mode_is_refused_by_jax():
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(ons.softmax, (jnp.ones(3),), (jnp.ones(3),))


# ---------------------------------------------------------------- vmap, loops, checkpoints


@pytest.mark.parametrize("axis", [-1, None])
def test_vmap(axis):
    """Of the array, a mask and a scale, each mapped or not, along any dimension."""
    x, mask, scale = jnp.asarray(X), jnp.asarray(MASK), jnp.float32([1, 2, 0.5])
    for operation in ("softmax", "logsumexp"):
        function = getattr(ons, operation)

        def one(x, mask, scale, function=function):
            return function(x, axis, where=mask, scale=scale)

        for dims in ((0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0), (0, None, 0), (None, 0, 0)):
            given = [a if dim == 0 else a[0] for a, dim in zip((x, mask, scale), dims, strict=True)]
            each = [a if dim == 0 else jnp.broadcast_to(a, (3, *a.shape)) for a, dim in zip(given, dims, strict=True)]
            right = jnp.stack([one(*(a[i] for a in each)) for i in range(3)])
            assert same(jax.jit(jax.vmap(one, dims))(*given), right), (operation, dims)
        last = jax.vmap(lambda x, f=function: f(x, axis), -1, -1)(x)
        assert same(last, jnp.stack([function(x[..., i], axis) for i in range(5)], -1))
    assert same(
        jax.vmap(lambda mask: ons.softmax(X, where=mask))(mask[0]),
        jnp.stack([ons.softmax(jnp.asarray(X), where=row) for row in mask[0]]),
    )
    assert same(jax.vmap(jax.vmap(ons.logsumexp))(x), ons.logsumexp(x))
    assert same(jax.vmap(lambda x: ons.softmax_topk(x, 2, 0).indices)(x), ons.softmax_topk(x, 2, 1).indices)


def test_vmap_is_one_call():
    program = jax.jit(jax.vmap(jax.vmap(ons.softmax))).lower(jnp.asarray(X)).as_text()
    assert program.count("custom_call @onsoftmax") == 1 and "while" not in program


@pytest.mark.parametrize("operation", ["softmax", "logsumexp", "softmax_topk"])
def test_vmap_and_grad_in_any_order(operation):
    def loss(x, scale):
        if operation == "softmax_topk":
            return jnp.sin(ons.softmax_topk(x, 2, scale=scale).values).sum()
        return jnp.sin(getattr(ons, operation)(x, scale=scale)).sum()

    x, scale = jnp.asarray(X), jnp.float32(0.5)
    right = jnp.stack([jax.grad(loss)(each, scale) for each in x])
    assert_near(jax.jit(jax.vmap(jax.grad(loss), (0, None)))(x, scale), right, 1e-6)
    assert_near(jax.jit(jax.grad(lambda x: jax.vmap(loss, (0, None))(x, scale).sum()))(x), right, 1e-6)
    assert_near(jax.jit(jax.vmap(jax.vmap(jax.grad(loss), (0, None)), (0, None)))(x, scale), right, 1e-6)


def test_vmap_of_second_derivatives():
    def hessian(function):
        return jax.jit(jax.vmap(jax.jacrev(jax.grad(lambda x: (jnp.sin(function(x)) ** 2).sum()))))

    assert_near(hessian(ons.log_softmax)(X[0]), hessian(jax.nn.log_softmax)(X[0]))


def test_checkpoint_scan_and_map():
    x = jnp.asarray(X)

    def loss(x):
        return jax.lax.scan(lambda total, row: (total + jnp.sin(ons.softmax(row)).sum(), None), 0.0, x)[0]

    right = jax.grad(lambda x: jnp.sin(plain("softmax", x)).sum())(x)
    assert_near(jax.jit(jax.grad(loss))(x), right)
    assert_near(jax.jit(jax.grad(jax.checkpoint(lambda x: jnp.sin(ons.softmax(x)).sum())))(x), right)
    assert same(jax.lax.map(ons.log_softmax, x), ons.log_softmax(x))
    assert jax.eval_shape(ons.softmax, jax.ShapeDtypeStruct((1 << 20, 1 << 20), "float16")).shape == (1 << 20,) * 2


# ---------------------------------------------------------------- errors


def text_of(function, *given):
    with pytest.raises(Exception) as caught:  # noqa: B017, PT011: which one is what is compared
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
    """When the call is traced, in the words of the call outside a transformation."""
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
        with pytest.raises(TypeError, match=r"JAX.*immutable: leave out= away"):
            jax.jit(lambda x, given=given: ons.softmax(x, **given))(x)
    with pytest.raises(ValueError, match="stream is given"):
        jax.jit(lambda x: ons.softmax(x, stream=0))(x)
    with pytest.raises(ValueError, match="return_normalizer.*logsumexp"):
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
    """A call of the target that this version does not make, as one that another version has compiled."""
    from onsoftmax import jax as _  # registers the target

    x = jnp.ones((4, 5))
    attributes = {**GOOD, **wrong}
    result = jax.ShapeDtypeStruct(attributes.pop("shape", x.shape), attributes.pop("dtype", x.dtype))
    call = jax.ffi.ffi_call("onsoftmax", result)
    with pytest.raises(jax.errors.JaxRuntimeError, match="onsoftmax: "):
        call(x, **{name: value for name, value in attributes.items() if value is not None}).block_until_ready()
    assert np.allclose(jax.ffi.ffi_call("onsoftmax", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, **GOOD), 0.2)


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
for function in (ons.softmax, ons.log_softmax):
    backward = getattr(ons, function.__name__ + "_backward")
    check_grads(jax.jit(lambda g, y: backward(g, y, where=mask)), (x, function(x)), order=1, modes=["rev"])
"""


def test_float64():
    done = run_python(["-c", X64])
    assert done.returncode == 0, done.stderr


def test_a_sum_in_float32_keeps_small_scales():
    """The operands of a mask or a scale that is mapped alone."""
    scale = jnp.float32([0.5, 2])
    right = jnp.stack([ons.softmax(jnp.asarray(X), scale=each) for each in scale])
    assert same(jax.vmap(lambda s: ons.softmax(X, scale=s))(scale), right)
