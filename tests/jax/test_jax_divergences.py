"""kl_divergence and js_divergence inside JAX's transformations on the CPU, beside exact results and JAX's
log_softmax."""

import functools
import importlib

import divergence_checks
import numpy as np
import pytest
from support import run_python

import onsoftmax as ons

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax_checks import assert_near, refusals, same  # noqa: E402

RNG = np.random.default_rng(8)
X, Y = RNG.standard_normal((2, 3, 4, 50), np.float32) * 3
MASK = RNG.random((3, 4, 50)) < 0.7
SCALE = RNG.random((3, 4, 1), np.float32) + 0.5
TERMS = {
    "plain": {},
    "mask and number": {"where": MASK, "scale": 0.5},
    "mask and scales": {"where": MASK[0, 0], "scale": SCALE},
}


@pytest.mark.parametrize(
    ("reduction", "dtype"),
    [("none", "bfloat16"), ("none", "float32"), ("sum", "float16"), ("mean", "float32")],
)
@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_exact_results(terms, reduction, dtype):
    x, y = jnp.asarray(X, dtype), jnp.asarray(Y, dtype)
    for kind, more in (("kl", {}), ("js", {"beta": 0.3})):
        function, with_grad = (getattr(ons, f"{kind}_divergence{suffix}") for suffix in ("", "_with_grad"))
        given = terms | more | {"reduction": reduction}

        @jax.jit
        def found(x, y, function=function, with_grad=with_grad, given=given):
            value, back = jax.vjp(lambda x, y: function(x, y, **given), x, y)
            sides = back(jnp.ones_like(value))
            return value, sides, [with_grad(x, y, wrt=wrt, **given) for wrt in "pq"]

        value, sides, both = found(x, y)
        for wrt, gradient, (value_too, gradient_too) in zip("pq", sides, both, strict=True):
            assert gradient.dtype == gradient_too.dtype == dtype and same(value, value_too)
            for made in ((value, gradient), (value_too, gradient_too)):
                rows = np.asarray(x), np.asarray(y), tuple(map(np.asarray, made))
                divergence_checks.check(*rows, reduction, dtype, wrt, **{"where": True} | terms | more)
            if reduction == "none":
                assert same((value, gradient), with_grad(x, y, wrt=wrt, **given))


def test_along_any_axis():
    for axis in (0, 1, -1, -2):
        x, y, where = (jnp.moveaxis(jnp.asarray(each), -1, axis) for each in (X, Y, MASK))
        function = functools.partial(ons.js_divergence_with_grad, axis=axis, beta=0.2, where=where)
        assert same(jax.jit(function)(x, y), function(x, y))


def plain(x, y, where=None, scale=1.0):
    logs = [jax.nn.log_softmax(each * scale, where=where) for each in (x, y)]
    log_p, log_q = (each if where is None else jnp.where(where, each, -50) for each in logs)
    return (jnp.exp(log_p) * (log_p - log_q)).sum(-1).mean()


def ours(x, y, where=None, scale=1.0):
    return ons.kl_divergence(x, y, where=where, scale=scale, reduction="mean")


MAPPED = {
    "both": ((1, 1), (X, Y)),
    "p": ((0, None), (X, Y[0])),
    "q": ((None, 0), (X[0], Y)),
    "not the mask": ((0, 0, None), (X, Y, MASK[0])),
    "the mask": ((None, None, 0), (X[0], Y[0], MASK)),
    "scales": ((0, None, None, 0), (X, Y[0], MASK[0, 0], SCALE)),
}


@pytest.mark.parametrize(("axes", "given"), MAPPED.values(), ids=MAPPED)
def test_vmap(axes, given):
    given = [jnp.asarray(array) for array in given]
    results = []
    for function in (ours, plain):
        of_each = jax.vmap(jax.value_and_grad(function, (0, 1)), axes)
        of_all = jax.grad(lambda *given, f=function: jnp.sin(jax.vmap(f, axes)(*given)).sum(), (0, 1))
        results.append(jax.jit(lambda *given, f=(of_each, of_all): [each(*given) for each in f])(*given))
    assert_near(*results)


def test_other_transformations():
    x, y = jnp.asarray(X), jnp.asarray(Y)
    results = []
    for function in (ours, plain):
        twice = jax.vmap(jax.vmap(function, (0, None)), (None, 0))
        remade = jax.grad(jax.checkpoint(lambda x, f=function: f(jnp.tanh(x), 2 * x)))
        of_rows = jax.jacrev(lambda x, f=function: jnp.stack([f(x[0], y[0]), f(y[1], 2 * x[0])]))

        @jax.jit
        def all_of_them(x, twice=twice, remade=remade, of_rows=of_rows, f=function):
            total, _ = jax.lax.scan(lambda total, row: (total + f(*row), None), 0.0, (x, y))
            return twice(x[0], y[:, 0]), remade(x), of_rows(x), total

        results.append(all_of_them(x))
    assert_near(*results)
    for function in (
        lambda x: jax.grad(lambda x: jax.grad(ours)(x, y).sum())(x),
        jax.grad(lambda x: ons.kl_divergence_with_grad(x, y, reduction="sum")[0]),
    ):
        with pytest.raises(ValueError, match="cannot be differentiated"):
            function(x)
    # no gradient flows to a scale
    assert not jax.grad(lambda scale: ours(x, y, scale=scale))(jnp.asarray(SCALE)).any()


def test_a_side_that_nothing_uses():
    """The backward step of one side is one call."""
    for sides, calls in ((0, 1), (1, 1), ((0, 1), 2)):
        compiled = jax.jit(jax.grad(ours, sides)).lower(X, Y).compile()
        assert compiled.as_text().count("custom-call(") == calls


def test_edges():
    for shape in ((0, 5), (2, 0), (2, 3)):
        for reduction in ("none", "sum", "mean"):
            call = functools.partial(ons.js_divergence_with_grad, reduction=reduction)
            x, y = jnp.ones(shape), jnp.zeros(shape)
            assert_near(jax.jit(call)(x, y), call(x, y))
    x, y = X[0, 0], Y[0, 0]
    assert same(jax.jit(ons.kl_divergence)(x, y), ons.kl_divergence(jnp.asarray(x), y))
    # any argument may be the tracer
    right = ours(X, Y, MASK, SCALE)
    for place, given in enumerate((X, Y, MASK, SCALE)):

        def of_one(traced, place=place):
            arguments = [X, Y, MASK, SCALE]
            arguments[place] = traced
            return ours(*arguments)

        assert_near(jax.jit(of_one)(given), right)
    integers = jnp.arange(12).reshape(3, 4)
    assert same(
        jax.jit(ons.kl_divergence)(integers, 2.0 * integers), ons.kl_divergence(integers, 2.0 * integers)
    )


@pytest.mark.parametrize(
    "given",
    [
        {"axis": 3},
        {"axis": 1.5},
        {"reduction": "avg"},
        {"beta": 1.0},
        {"q": Y[0]},
        {"q": Y.astype("float16")},
        {"where": X},
        {"where": MASK[:, :3]},
        {"scale": X},
        {"num_threads": 0},
        {"stream": 0},
        {"p": np.float32(1), "q": np.float32(1)},
        {"p": X.astype("complex64")},
    ],
    ids=" ".join,
)
def test_what_is_refused(given):
    """Tracing raises the error of the same call outside a transformation."""
    arguments = {"p": X, "q": Y} | given
    p, q = jnp.asarray(arguments.pop("p")), jnp.asarray(arguments.pop("q"))
    outside, inside = refusals(lambda p: ons.js_divergence(p, q, **arguments), p)
    assert outside == inside or "stream is given" in inside
    with pytest.raises(TypeError, match=r"immutable: call without grad_out="):
        jax.jit(lambda x: ons.kl_divergence_with_grad(x, Y, grad_out=X))(X)
    with pytest.raises(ValueError, match="wrt is 'x'"):
        jax.jit(lambda x: ons.kl_divergence_with_grad(x, Y, wrt="x"))(X)


GOOD = {
    "operation": "js_divergence",
    "operands": "xgwsl",
    "axes": np.int64([-1]),
    "method": "auto",
    "scale": np.float64(1),
    "num_threads": np.int32(1),
    "flags": np.int32(0),
    "beta": np.float64(0.5),
}
ARRAYS = {letter: np.ones(shape, "f") for letter, shape in {"x": (4, 5), "s": (4, 1), "l": (4, 1)}.items()}
ARRAYS |= {"g": np.zeros((4, 5), "f"), "w": np.ones((1, 5), bool)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"operands": "xwsl"},
        {"operands": "gwsl"},
        {"operands": "xxg"},
        {"operands": "xgp", "p": np.ones((4, 5), "f")},
        {"axes": np.int64([-2])},
        {"axes": np.int64([-1, -2])},
        {"beta": np.float32(0.25)},
        {"x": np.ones((4, 5), "i")},
        {"g": np.ones((4, 5), "float16")},
        {"g": np.ones((4, 4), "f")},
        {"w": np.ones((4, 4), bool)},
        {"w": np.ones((4, 5), "f")},
        {"s": np.ones((4, 5), "f")},
        {"s": np.ones((4, 1), "float16")},
        {"l": np.ones((4, 5), "f")},
        {"l": np.ones((4, 1), "i")},
        {"l": np.ones((1, 1), "f")},
        {"results": [((4, 1), "float16")]},
        {"results": [((4, 5), "float32")]},
        {"results": [((4, 1), "float32"), ((4, 1), "float32")]},
        {"results": [((4, 5), "float16"), ((4, 1), "float32")]},
        {"results": [((4, 5), "float32"), ((4, 1), "float32"), ((4, 1), "float32")]},
    ],
    ids=repr,
)
def test_a_wrong_program_is_an_error(wrong):
    importlib.import_module("onsoftmax.jax")  # registers the target
    attributes = {name: wrong.get(name, value) for name, value in GOOD.items()}
    arrays = ARRAYS | wrong
    row = jax.ShapeDtypeStruct((4, 1), "float32")
    results = [jax.ShapeDtypeStruct(*each) for each in wrong.get("results", [((4, 1), "float32")])]
    call = jax.ffi.ffi_call("onsoftmax", results)
    with pytest.raises(jax.errors.JaxRuntimeError, match="onsoftmax: "):
        jax.block_until_ready(call(*(arrays[letter] for letter in attributes["operands"]), **attributes))
    (value,) = jax.ffi.ffi_call("onsoftmax", (row,))(*(ARRAYS[letter] for letter in "xgwsl"), **GOOD)
    assert not np.asarray(value).any()


X64 = """
import divergence_checks, jax, jax.numpy as jnp, numpy as np, onsoftmax as ons
jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
x, y = (jnp.asarray(rng.standard_normal((6, 40))) for _ in range(2))
scales, mask = rng.random((6, 1)), rng.random(40) < 0.5
for kind, terms in (("kl", {"scale": scales}), ("js", {"beta": 0.2, "where": mask})):
    value = lambda *sides: getattr(ons, f"{kind}_divergence")(*sides, reduction="mean", **terms)
    found, sides = jax.jit(jax.value_and_grad(value, (0, 1)))(x, y)
    for wrt, gradient in zip("pq", sides):
        assert {each.dtype.name for each in (found, gradient)} == {"float64"}
        made = np.asarray(found), np.asarray(gradient)
        divergence_checks.check(np.asarray(x), np.asarray(y), made, "mean", "float64", wrt, **terms)
"""


def test_float64():
    done = run_python(["-c", X64])
    assert done.returncode == 0, done.stderr
