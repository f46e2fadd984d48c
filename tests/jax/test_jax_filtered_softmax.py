"""filtered_softmax of JAX arrays on the CPU: inside transformations as outside, and its gradients."""

import functools
import importlib

import numpy as np
import pytest
from support import run_python

import onsoftmax as ons

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax_checks import assert_near, refusals, same  # noqa: E402

RNG = np.random.default_rng(0)
X = 2 * RNG.standard_normal((3, 4, 20)).astype(np.float32)
G = RNG.standard_normal((3, 4, 20)).astype(np.float32)
MASK = RNG.random((3, 4, 20)) < 0.7
# a number for each row
OF_ROWS = {
    "temperature": np.linspace(0, 2, 12, dtype=np.float32).reshape(3, 4),
    "top_k": np.arange(12, dtype=np.int32).reshape(3, 4),
    "top_p": np.linspace(0.1, 1.2, 12, dtype=np.float32).reshape(3, 4),  # the last two rows are not valid
    "min_p": np.linspace(0, 0.3, 12, dtype=np.float32).reshape(3, 4),
}
NUMBERS = {"temperature": 0.75, "top_k": 9, "top_p": 0.9, "min_p": 0.0625}
TERMS = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "greedy": {"temperature": 0},
    "numbers": NUMBERS | {"method": "invariant"},
    "rows": OF_ROWS | {"filter_apply_order": "joint"},
    "mask": {"where": MASK},
    "mask and rows": {"where": MASK[0, 0], "top_p": OF_ROWS["top_p"]},
    "lists": {"temperature": [[0.1, 1, 2, 3]] * 3, "top_k": [2**40]},
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_jit(terms, dtype):
    """The bits of the call outside, which are those of a NumPy array."""
    x, call = jnp.asarray(X, dtype), functools.partial(ons.filtered_softmax, **terms)
    found = jax.jit(call)(x)
    assert found.dtype == "float32" and same(found, call(x))
    assert same(found, ons.filtered_softmax(np.asarray(x.astype("float32")), **terms))


def test_traced_parameters():
    """Numbers and arrays, all together and each alone. The wide types of NumPy's arrays keep all bits."""
    inside = jax.jit(lambda x, where, given: ons.filtered_softmax(x, where=where, **given))
    for given in (NUMBERS, OF_ROWS):
        right = ons.filtered_softmax(jnp.asarray(X), where=MASK, **given)
        assert same(inside(X, MASK, given), right)
        for name, value in given.items():
            call = jax.jit(lambda value, name=name, given=given: ons.filtered_softmax(
                X, where=MASK, **given | {name: value}
            ))  # fmt: skip
            assert same(call(value), right), name
    wide = {
        name: value / np.float64(3) if value.dtype == np.float32 else value + np.int64(2**40)
        for name, value in OF_ROWS.items()
    }
    assert {value.dtype.name for value in wide.values()} == {"int64", "float64"}
    right = ons.filtered_softmax(jnp.asarray(X), **wide)
    assert same(jax.jit(lambda x: ons.filtered_softmax(x, **wide))(X), right)
    steps = jax.lax.scan(lambda _, k: (None, ons.filtered_softmax(X, top_k=k)), None, jnp.arange(1, 4))[1]
    assert same(steps, jnp.stack([ons.filtered_softmax(jnp.asarray(X), top_k=k) for k in (1, 2, 3)]))


MAPPED = {
    "the logits": ((0, None, None), {}),
    "other rows": ((1, None, None), {"where": MASK[0, 0]}),
    "the temperature": ((None, None, 0), {"temperature": np.float32([0, 0.5, 2])}),
    "the temperatures": ((None, None, 0), {"temperature": OF_ROWS["temperature"]}),
    "the mask": ((None, 0, None), {}),
    "all": ((0, 0, 0), {"temperature": OF_ROWS["temperature"]}),
    "temperatures of rows": ((0, None, None), {"temperature": OF_ROWS["temperature"][0]}),
}


@pytest.mark.parametrize(("axes", "given"), MAPPED.values(), ids=MAPPED)
def test_vmap(axes, given):
    """One call for all. Each mapped call, and its gradient, gives what it gives alone."""
    given = {"x": X, "where": MASK, "temperature": np.float32(1.5)} | given
    whole = [
        jnp.asarray(each[0] if dim is None and np.ndim(each) == 3 else each)
        for dim, each in zip(axes, given.values(), strict=True)
    ]

    def call(x, where, temperature):
        return ons.filtered_softmax(x, where=where, temperature=temperature, top_k=9, min_p=0.01)

    def gradient(*given):
        return jax.grad(lambda *given: (call(*given) ** 2).sum())(*given)

    for function in (call, gradient):
        program, alone = jax.jit(jax.vmap(function, axes)), jax.jit(function)
        found = program(*whole)
        for i in range(4 if axes[0] == 1 else 3):
            mine = (x if dim is None else jnp.take(x, i, dim) for x, dim in zip(whole, axes, strict=True))
            assert same(found[i], alone(*mine))
        calls = program.lower(*whole).compile().as_text().count("custom-call(")
        assert calls == (1 if function is call else 2)


def test_rows_that_vmap_maps():
    x, k = jnp.asarray(X), jnp.asarray(OF_ROWS["top_k"])
    rows = jax.vmap(jax.vmap(lambda row, k: ons.filtered_softmax(row, top_k=k)))
    assert same(jax.jit(rows)(x, k), ons.filtered_softmax(x, top_k=k))
    planes = jax.vmap(lambda x, p: ons.filtered_softmax(x, axis=0, top_p=p), (2, None), 1)
    alone = [ons.filtered_softmax(x[..., i], axis=0, top_p=0.8) for i in range(20)]
    assert same(planes(x, 0.8), jnp.stack(alone, 1))


def plain(x, kept, temperature):
    """The softmax of the kept tokens by JAX alone. It is not defined for greedy rows."""
    return jax.nn.softmax(jnp.where(kept, x / temperature, -jnp.inf), -1)


@pytest.mark.parametrize(
    ("temperature", "where"),
    [
        (0.5, None),
        (np.float64([[0.25, 0.5, 1, 3]] * 3), MASK),
        (jnp.array([[0.25, 0.5, 1, 3]] * 3), None),
        (jnp.array([2.0]), MASK),
    ],
    ids=["number", "wide", "rows", "one"],
)
def test_gradients(temperature, where):
    """First and second derivatives with constant kept tokens. None flows to the parameters."""
    x, terms = jnp.asarray(X), {"top_k": 9, "top_p": 0.9, "where": where}
    of_rows = jnp.asarray(temperature).reshape(-1, 4 if np.size(temperature) > 1 else 1, 1)
    kept = ons.filtered_softmax(x, temperature=temperature, **terms) > 0
    assert not kept.all()

    def ours(x):
        return ons.filtered_softmax(x, temperature=temperature, **terms)

    def theirs(x):
        return plain(x, kept, of_rows)

    first = [jax.jit(jax.grad(lambda x, f=f: (f(x) * G).sum())) for f in (ours, theirs)]
    second = [jax.jit(jax.grad(lambda x, f=f: (f(x) ** 2).sum())) for f in first]
    for mine, right in (first, second):
        assert_near(mine(x), right(x))
    assert same(jax.jit(jax.checkpoint(first[0]))(x), first[0](x))
    assert_near(first[0](x), ons.softmax_backward(G, ours(x), scale=1 / of_rows))
    if isinstance(temperature, jax.Array):
        given = {"temperature": temperature, "top_p": jnp.array([0.9]), "min_p": jnp.array([0.01])}
        to_parameters = jax.grad(lambda given: (ons.filtered_softmax(x, **terms | given) * G).sum())
        assert not any(each.any() for each in jax.jit(to_parameters)(given).values())


def test_gradients_of_greedy_rows():
    """They have the gradient 0, also if the temperature is traced. A row that is not valid has NaN."""
    x, temperature = jnp.asarray(X[0]), jnp.array([0, 1e-31, 2e-30, jnp.nan])

    def total(x, temperature):
        return (ons.filtered_softmax(x, temperature=temperature) * G[0]).sum()

    of_x, of_temperature = jax.jit(jax.grad(total, (0, 1)))(x, temperature)
    assert not of_x[:3].any() and jnp.isnan(of_x[3]).all() and not of_temperature.any()
    assert not jax.grad(lambda x: total(x, 0))(x).any()
    two_equal = jnp.zeros(2)
    assert jax.grad(lambda x: ons.filtered_softmax(x, temperature=0.5)[0])(two_equal).tolist() == [0.5, -0.5]
    assert not jax.grad(lambda x: ons.filtered_softmax(x, temperature=0)[0])(two_equal).any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_have_the_type_of_the_logits(dtype):
    for terms in ({}, {"top_k": 5, "temperature": jnp.array([0.5])}):
        call = jax.jit(jax.grad(lambda x, terms=terms: (ons.filtered_softmax(x, **terms) * G).sum()))
        found = call(jnp.asarray(X, dtype))
        assert found.dtype == dtype
        assert_near(found, call(jnp.asarray(X, dtype).astype("float32")), 1e-2)


def test_excluded_tokens_have_no_gradient():
    """The gradient of a token that `where` excludes does not matter."""
    wrong = jnp.where(MASK, G, jnp.nan)
    found, right = (
        jax.vjp(lambda x: ons.filtered_softmax(x, where=MASK, top_k=9), jnp.asarray(X))[1](g)[0]
        for g in (wrong, G)
    )
    assert same(found, right) and not found[~MASK].any()


def test_wide_types():
    source = """
import jax, numpy as np, onsoftmax as ons
jax.config.update("jax_enable_x64", True)
for dtype in ("float32", "float64"):
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((3, 8)), dtype)
    given = {"temperature": np.array([0.3, 1, 2]), "top_p": np.float64(0.9), "top_k": np.array([5, 6, 2**40])}
    right = ons.filtered_softmax(np.asarray(x), **given)
    call = lambda x, given: ons.filtered_softmax(x, **given)
    for found in (call(x, given), jax.jit(call)(x, given), jax.jit(lambda x: call(x, given))(x)):
        assert found.dtype == dtype and (found == right).all()
    made = jax.grad(lambda x: (call(x, given) ** 2).sum())(x)
    assert made.dtype == dtype
    expected = ons.softmax_backward(2 * right, right, scale=1 / given["temperature"][:, None])
    np.testing.assert_allclose(made, expected, 1e-5 if dtype == "float32" else 1e-14)
"""
    done = run_python(["-c", source], JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr


def test_edges():
    for shape in ((0, 5), (2, 0, 5), (2, 3), (7,), (2, 1, 3)):
        x = jnp.ones(shape)
        for k in (2, np.arange(np.prod(shape[:-1], dtype=int)).reshape(shape[:-1])):
            call = functools.partial(ons.filtered_softmax, top_k=k)
            assert same(jax.jit(call)(x), call(x))
    assert jax.grad(lambda x: ons.filtered_softmax(x, top_k=2).sum())(jnp.ones((0, 5))).shape == (0, 5)
    integers = jnp.arange(12).reshape(3, 4)
    call = functools.partial(ons.filtered_softmax, top_p=0.7)
    assert same(jax.jit(call)(integers), call(integers))
    wrong = jnp.array([[np.nan, 0, 1], [-np.inf] * 3, [0, np.inf, 0], [-np.inf, 0, -np.inf]])
    for terms in ({}, {"top_p": 0.5}, {"where": np.array([True, True, False])}):
        found = jax.jit(functools.partial(ons.filtered_softmax, **terms))(wrong)
        assert jnp.isnan(found).all(-1).tolist() == [True, True, True, False]
    for axis in (0, 1, -2):
        x, where = (jnp.moveaxis(jnp.asarray(each), -1, axis) for each in (X, MASK))
        call = functools.partial(ons.filtered_softmax, axis=axis, where=where, **OF_ROWS)
        right = ons.filtered_softmax(jnp.asarray(X), where=MASK, **OF_ROWS)
        assert same(jax.jit(call)(x), call(x)) and same(jnp.moveaxis(call(x), axis, -1), right)

    def gradient(x, **given):
        return jax.jit(jax.grad(lambda x: (ons.filtered_softmax(x, **NUMBERS, **given) ** 2).sum()))(x)

    made, expected = gradient(x, axis=axis, where=where), gradient(X, where=MASK)
    assert_near(jnp.moveaxis(made, axis, -1), expected)


@pytest.mark.parametrize(
    "given",
    [
        {"axis": 3},
        {"axis": 1.5},
        {"x": X[..., :0]},
        {"x": np.float32(1)},
        {"filter_apply_order": "last"},
        {"method": "online"},
        {"where": MASK[:, :3]},
        {"num_threads": 0},
        {"stream": 0},
        {"temperature": -1},
        {"temperature": OF_ROWS["temperature"][0]},
        {"top_k": 1.5},
        {"top_p": 1.5},
        {"min_p": [0.1, 0.2]},
    ],
    ids=" ".join,
)
def test_what_is_refused(given):
    """Tracing raises the error of the same call outside a transformation."""
    arguments = {"x": X} | given
    x = jnp.asarray(arguments.pop("x"))
    outside, inside = refusals(lambda x: ons.filtered_softmax(x, **arguments), x)
    assert outside == inside or "stream is given" in inside


GOOD = {
    "operation": "filtered_softmax",
    "operands": "xwtkpm",
    "axes": np.int64([-1]),
    "method": "auto",
    "scale": np.float64(1),
    "num_threads": np.int32(1),
    "flags": np.int32(0),
    "joint": np.int32(1),
    "temperature": np.float64(1),
    "top_k": np.int64(0),
    "top_p": np.float64(1),
    "min_p": np.float64(0),
}
ARRAYS = {"x": X[0], "w": MASK[0], "s": np.zeros((4, 1), np.int32)} | {
    letter: each[0, :, None] for letter, each in zip("tkpm", OF_ROWS.values(), strict=True)
}
RESULT = (4, 20), "float32"


@pytest.mark.parametrize(
    "wrong",
    [
        {"operands": "wtkpm"},
        {"operands": "xs"},
        {"axes": np.int64([-2, -1])},
        {"joint": np.int64(0)},
        {"operands": "x", "temperature": np.float32(1)},
        {"operands": "x", "top_k": np.int32(1)},
        {"w": MASK[0, :, :3]},
        {"t": OF_ROWS["temperature"][0]},
        {"k": OF_ROWS["temperature"][:1].T},
        {"results": [((4, 20), "float16")]},
        {"results": [((4, 1), "float32")]},
        {"results": [RESULT, ((4, 1), "int32"), ((4, 1), "bool")]},
    ],
    ids=repr,
)
def test_a_wrong_program_is_an_error(wrong):
    importlib.import_module("onsoftmax.jax")  # registers the target
    attributes = {name: wrong.get(name, value) for name, value in GOOD.items()}
    arrays = ARRAYS | wrong
    results = [jax.ShapeDtypeStruct(*each) for each in wrong.get("results", [RESULT])]
    call = jax.ffi.ffi_call("onsoftmax", results)
    with pytest.raises(jax.errors.JaxRuntimeError, match="onsoftmax: "):
        jax.block_until_ready(call(*(arrays[letter] for letter in attributes["operands"]), **attributes))
    call = jax.ffi.ffi_call("onsoftmax", jax.ShapeDtypeStruct(*RESULT))
    found = call(*(ARRAYS[letter] for letter in GOOD["operands"]), **GOOD)
    given = {name: each[0] for name, each in OF_ROWS.items()}
    right = ons.filtered_softmax(jnp.asarray(X[0]), where=MASK[0], filter_apply_order="joint", **given)
    assert same(found, right)
