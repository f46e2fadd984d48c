"""route inside JAX's transformations on the CPU, beside calls outside of them and JAX's own operations."""

import functools
import importlib

import numpy as np
import pytest
from support import run_python

import onsoftmax as ons

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax_checks import assert_near, refusals, same  # noqa: E402

RNG = np.random.default_rng(9)
X = RNG.standard_normal((3, 4, 12), np.float32) * 2
MASK = RNG.random((3, 4, 12)) < 0.7
BIAS = RNG.random((3, 12), np.float32) - 0.5
SCORES = ("softmax", "sigmoid", "sqrtsoftplus", "none")
TERMS = {
    "plain": {},
    "not renormalized": {"renormalize": False, "scale": 2.5},
    "groups": {"groups": 4, "top_groups": 2, "scale": 2.5},
    "bias": {"bias": BIAS[0], "groups": 3, "top_groups": 2},
    "mask": {"where": MASK, "renormalize": False, "index_dtype": "int32"},
    "everything": {"bias": BIAS[1], "groups": 4, "top_groups": 3, "where": MASK[0, 0], "method": "invariant"},
}


def plain(x, indices, score, renormalize=True, scale=1.0, where=None, **_):
    """The weights of chosen experts by JAX alone."""
    where = jnp.broadcast_to(True if where is None else where, x.shape)
    allowed = jnp.take_along_axis(where, indices, -1)
    if score == "none" and renormalize:
        return scale * jax.nn.softmax(jnp.where(allowed, jnp.take_along_axis(x, indices, -1), -jnp.inf))
    scores = {
        "softmax": lambda: jax.nn.softmax(jnp.where(where, x, -jnp.inf)),
        "sigmoid": lambda: jax.nn.sigmoid(x),
        "sqrtsoftplus": lambda: jnp.sqrt(jax.nn.softplus(x)),
        "none": lambda: x,
    }[score]()
    weights = jnp.where(allowed, jnp.take_along_axis(scores, indices, -1), 0)
    return scale * (weights / weights.sum(-1, keepdims=True) if renormalize else weights)


# Each of the terms alone with one or two scores in float32, and all terms with each score.
FLOATS = {"plain": ("none",), "groups": ("softmax",), "mask": ("softmax", "sigmoid")}
FLOATS |= {"bias": ("sqrtsoftplus", "none"), "not renormalized": ("softmax", "sqrtsoftplus")}
FLOATS |= {"everything": ("sigmoid", "none")}
CASES = [(score, terms, "float32") for terms, scores in FLOATS.items() for score in scores]
CASES += [
    (score, "everything", dtype) for score, dtype in zip(SCORES, ("bfloat16", "float16") * 2, strict=True)
]


@pytest.mark.parametrize(("score", "terms", "dtype"), CASES)
def test_results_and_gradients(score, terms, dtype):
    """The bits of calls on NumPy's arrays and on JAX's own, and the first and second derivatives of JAX."""
    x, terms = jnp.asarray(X, dtype), TERMS[terms]
    call = functools.partial(ons.route, k=3, score=score, **terms)
    found, outside, of_numpy = jax.jit(call)(x), call(x), call(np.asarray(x))
    assert same(tuple(found), tuple(outside)) and same(tuple(map(jnp.asarray, of_numpy)), tuple(outside))
    assert type(found) is type(outside) is ons.Route and isinstance(outside.weights, jax.Array)
    assert found.weights.dtype == np.float32 and found.indices.dtype == np.int32
    factors = jnp.asarray(np.random.default_rng(3).standard_normal(found.weights.shape, np.float32))

    def derivatives(weights, x):
        slope = jax.grad(lambda x: (jnp.sin(weights(x)) * factors).sum())
        if dtype != "float32":
            return (slope(x),)
        return slope(x), jax.grad(lambda x: (slope(x) ** 2).sum())(x)

    ours = jax.jit(functools.partial(derivatives, lambda x: call(x).weights))(x)
    of_jax = functools.partial(derivatives, lambda x: plain(x, outside.indices, score, **terms))
    theirs = jax.jit(of_jax)(x.astype("float32"))
    assert ours[0].dtype == dtype
    tolerance = {"float32": 1e-5, "bfloat16": 0.02, "float16": 0.003}[dtype]
    for a, b in zip(ours, theirs, strict=True):  # an element's rounding is relative to the largest term
        largest = np.abs(b).max()
        assert_near(a.astype("float32") / largest, b / largest, tolerance)


def test_along_any_axis():
    given = {"k": 2, "score": "sigmoid", "bias": BIAS[0]}
    rows = jax.jit(jax.grad(lambda x: jnp.sin(ons.route(x, where=MASK, **given)[0]).sum()))(X)
    for axis in (-1, 0, 1, -2):
        x, where = (jnp.moveaxis(jnp.asarray(each), -1, axis) for each in (X, MASK))
        call = functools.partial(ons.route, axis=axis, where=where, **given)
        assert same(tuple(jax.jit(call)(x)), tuple(call(x)))
        gradient = jax.jit(jax.grad(lambda x, call=call: jnp.sin(call(x)[0]).sum()))(x)
        assert same(jnp.moveaxis(gradient, axis, -1), rows)


MAPPED = {
    "the logits": ((1, None, None), (X, BIAS[0], None)),
    "the logits and the mask": ((0, None, 0), (X, None, MASK)),
    "not the mask": ((0, None, None), (X, BIAS[0], MASK[0, 0])),
    "the mask": ((None, None, 0), (X[0], None, MASK)),
    "the bias": ((None, 0, None), (X[0], BIAS, MASK[0])),
    "all": ((0, 0, 0), (X, BIAS, MASK[:, 0])),
}


@pytest.mark.parametrize(("axes", "given"), MAPPED.values(), ids=MAPPED)
def test_vmap(axes, given):
    """As a loop does. One call for all, unless vmap maps the bias."""
    given = [None if each is None else jnp.asarray(each) for each in given]

    def both(x, bias, where):
        def call(x):
            return ons.route(x, 2, score="sigmoid", bias=bias, groups=3, top_groups=2, where=where)

        return tuple(call(x)), jax.grad(lambda x: jnp.sin(call(x).weights).sum())(x)

    found, alone = jax.jit(jax.vmap(both, axes))(*given), jax.jit(both)
    for i in range(4 if axes[0] == 1 else 3):
        mine = [x if dim is None else jnp.take(x, i, dim) for x, dim in zip(given, axes, strict=True)]
        results, gradient = alone(*mine)
        assert same(tuple(part[i] for part in found[0]), results)
        assert_near(found[1][i], gradient, 1e-6)
    text = jax.jit(jax.vmap(lambda *given: tuple(both(*given)[0]), axes)).lower(*given).compile().as_text()
    assert text.count("custom-call(") == 1


def test_other_transformations():
    def weights(x):
        return ons.route(x, 3, score="sqrtsoftplus", bias=BIAS[0], scale=2.0).weights

    rows = jax.jit(jax.vmap(jax.vmap(weights)))(X)
    assert same(rows, weights(jnp.asarray(X)))
    jacobian = jax.jit(jax.jacrev(weights))(X[0, 0])
    indices = ons.route(jnp.asarray(X[0, 0]), 3, score="sqrtsoftplus", bias=BIAS[0]).indices
    by_jax = jax.jit(jax.jacrev(lambda x: plain(x, indices, "sqrtsoftplus", scale=2.0)))
    assert_near(jacobian, by_jax(X[0, 0]))
    remade = jax.jit(jax.grad(jax.checkpoint(lambda x: weights(jnp.tanh(x)).max(-1).sum())))(X)
    assert_near(remade, jax.jit(jax.grad(lambda x: weights(jnp.tanh(x)).max(-1).sum()))(X))
    total, _ = jax.jit(lambda x: jax.lax.scan(lambda t, row: (t + weights(row), None), 0 * rows[0], x))(X)
    assert_near(total, rows.sum(0))
    # no gradient flows to a bias
    assert not jax.grad(lambda bias: ons.route(X, 2, bias=bias).weights.max())(jnp.asarray(BIAS[0])).any()
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(weights, (X,), (X,))


def test_tiny_scores_and_excluded_experts():
    """Their gradients are finite. A row without a score above 0 has the weights and the gradient 0."""
    x = np.array(
        [[-119, -120, -121, -np.inf], [-np.inf] * 4, [np.nan, np.inf, 1, 2], [0, 0, 0, 0]], np.float32
    )
    where = np.array([[1] * 4, [1] * 4, [0, 0, 1, 1], [0] * 4], bool)
    for score in ("sigmoid", "sqrtsoftplus"):
        for renormalize in (True, False):

            def call(x, score=score, renormalize=renormalize):
                return ons.route(x, 4, score=score, renormalize=renormalize, where=where).weights

            weights = np.asarray(call(jnp.asarray(x)))
            gradient = np.asarray(jax.jit(jax.grad(lambda x, call=call: jnp.sin(call(x)).sum()))(x))
            assert np.isfinite(gradient).all() and not gradient[~where].any()
            assert not gradient[[1, 3]].any() and not weights[[1, 3]].any()
            assert gradient[2, 2:].all() and (gradient[0, :3].all() or not renormalize)


def test_types_of_indices():
    source = """
import jax, numpy as np, onsoftmax as ons
jax.config.update("jax_enable_x64", True)
for dtype, real in (("float32", "float32"), ("float64", "float64")):
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((3, 8)), dtype)
    for asked, indices in ((None, "int64"), ("int32", "int32"), (jax.numpy.int64, "int64")):
        call = lambda x: ons.route(x, 2, bias=np.arange(8) / 8, index_dtype=asked)
        for found in (call(x), jax.jit(call)(x)):
            assert (found.weights.dtype, found.indices.dtype) == (real, indices)
            assert all((a == b).all() for a, b in zip(found, call(np.asarray(x))))
"""
    done = run_python(["-c", source], JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr


def test_edges():
    for shape in ((0, 5), (2, 0, 5), (2, 3)):
        x = jnp.ones(shape)
        assert same(tuple(jax.jit(lambda x: ons.route(x, 2))(x)), tuple(ons.route(x, 2)))
    # any argument may be the tracer
    right = tuple(ons.route(X, 2, bias=BIAS[0], where=MASK))
    for place, given in enumerate((X, BIAS[0], MASK)):

        def of_one(traced, place=place):
            arguments = [X, BIAS[0], MASK]
            arguments[place] = traced
            x, bias, where = arguments
            return tuple(ons.route(x, 2, bias=bias, where=where))

        weights, indices = jax.jit(of_one)(given)
        assert same(weights, right[0]) and (indices == right[1]).all()
    integers = jnp.arange(12).reshape(3, 4)
    assert same(tuple(jax.jit(lambda x: ons.route(x, 2))(integers)), tuple(ons.route(integers, 2)))


@pytest.mark.parametrize(
    "given",
    [
        {"axis": 3},
        {"axis": 1.5},
        {"k": 13},
        {"k": 0},
        {"k": 1.5},
        {"groups": 5},
        {"groups": 4, "top_groups": 5},
        {"groups": 4, "top_groups": 0},
        {"k": 4, "groups": 4, "top_groups": 1},
        {"score": "relu"},
        {"method": "online"},
        {"index_dtype": "int16"},
        {"bias": BIAS},
        {"bias": BIAS[0, :5]},
        {"bias": BIAS[0] > 0},
        {"where": X},
        {"where": MASK[:, :3]},
        {"num_threads": 0},
        {"stream": 0},
        {"x": np.float32(1)},
        {"x": X.astype("complex64")},
    ],
    ids=" ".join,
)
def test_what_is_refused(given):
    """Tracing raises the error of the same call outside a transformation."""
    arguments = {"x": X, "k": 2} | given
    x = jnp.asarray(arguments.pop("x"))
    outside, inside = refusals(lambda x: tuple(ons.route(x, **arguments)), x)
    assert outside == inside or "stream is given" in inside


GOOD = {
    "operation": "route",
    "operands": "xwb",
    "axes": np.int64([-1]),
    "method": "auto",
    "scale": np.float64(1),
    "num_threads": np.int32(1),
    "flags": np.int32(0),
    "score": np.int32(1),
    "groups": np.int64(3),
    "top_groups": np.int64(2),
    "renormalize": np.int32(1),
}
ARRAYS = {"x": X[0], "w": MASK[0], "b": BIAS[0], "s": np.ones((4, 1), "f")}


@pytest.mark.parametrize(
    "wrong",
    [
        {"operands": "wb"},
        {"operands": "xs"},
        {"operands": "xx"},
        {"axes": np.int64([-2])},
        {"axes": np.int64([-3])},
        {"axes": np.int64([-1, -2])},
        {"score": np.int32(4)},
        {"score": np.int32(-1)},
        {"score": np.int64(2)},
        {"renormalize": np.int64(0)},
        {"groups": np.int64(5)},
        {"groups": np.int64(0)},
        {"groups": np.int32(6)},
        {"top_groups": np.int64(4)},
        {"top_groups": np.int64(0)},
        {"groups": np.int64(12), "top_groups": np.int64(1)},
        {"x": X[0].astype("i")},
        {"w": MASK[0, :, :3]},
        {"w": X[0]},
        {"b": BIAS[0, :4]},
        {"b": BIAS},
        {"b": BIAS[0].astype("float16")},
        {"results": [((4, 2), "float16"), ((4, 2), "int32")]},
        {"results": [((4, 2), "float32"), ((4, 2), "float32")]},
        {"results": [((4, 2), "float32"), ((4, 3), "int32")]},
        {"results": [((4, 13), "float32"), ((4, 13), "int32")]},
        {"results": [((4, 2), "float32")]},
    ],
    ids=repr,
)
def test_a_wrong_program_is_an_error(wrong):
    importlib.import_module("onsoftmax.jax")  # registers the target
    attributes = {name: wrong.get(name, value) for name, value in GOOD.items()}
    arrays = ARRAYS | wrong
    right = [((4, 2), "float32"), ((4, 2), "int32")]
    results = [jax.ShapeDtypeStruct(*each) for each in wrong.get("results", right)]
    call = jax.ffi.ffi_call("onsoftmax", results)
    with pytest.raises(jax.errors.JaxRuntimeError, match="onsoftmax: "):
        jax.block_until_ready(call(*(arrays[letter] for letter in attributes["operands"]), **attributes))
    results = [jax.ShapeDtypeStruct(*each) for each in right]
    found = jax.ffi.ffi_call("onsoftmax", results)(*(ARRAYS[letter] for letter in "xwb"), **GOOD)
    given = {"score": "sigmoid", "groups": 3, "top_groups": 2, "bias": BIAS[0], "where": MASK[0]}
    assert same(tuple(found), tuple(ons.route(jnp.asarray(X[0]), 2, **given)))
