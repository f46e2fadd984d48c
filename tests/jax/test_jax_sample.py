"""sample of JAX arrays on the CPU: outside of transformations as NumPy's arrays, and inside as outside."""

import functools
import importlib
import itertools

import numpy as np
import pytest
from support import run_python

import onsoftmax as ons

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax_checks import refusals, same  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 20)).astype(np.float32)
MASK = RNG.random((3, 4, 20)) < 0.7
ALL = {"return_logprob": True, "return_valid": True}
# a number for each row
OF_ROWS = {
    "temperature": np.linspace(0, 2, 12, dtype=np.float32).reshape(3, 4),
    "top_k": np.arange(12, dtype=np.int32).reshape(3, 4),
    "top_p": np.linspace(0.1, 1.2, 12, dtype=np.float32).reshape(3, 4),  # the last two rows are not valid
    "min_p": np.linspace(0, 0.3, 12, dtype=np.float32).reshape(3, 4),
    "seed": np.arange(12, dtype=np.int32).reshape(3, 4),
    "offset": np.arange(12, dtype=np.int32).reshape(3, 4) % 5,
}
TERMS = {
    "plain": {},
    "greedy": {"temperature": 0},
    "numbers": {"temperature": 0.7, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "offset": -2, "seed": 2**64 - 3},
    "rows": OF_ROWS | {"filter_apply_order": "joint"},
    "mask": {"where": MASK, "top_p": OF_ROWS["top_p"], "return_logprob": "filtered"},
    "lists": {
        "temperature": [[0.1, 1, 2, 3]] * 3,
        "seed": [2**40],
        "where": MASK[0, 0],
        "method": "invariant",
    },
}


def test_the_same_as_numpy():
    temperature, seed = OF_ROWS["temperature"], np.arange(12).reshape(3, 4)
    terms = ALL | {"top_k": 9, "top_p": 0.9}
    right = ons.sample(X, temperature=temperature, seed=seed, **terms)
    for given in (temperature, jnp.asarray(temperature)):
        found = ons.sample(jnp.asarray(X), temperature=given, seed=jnp.asarray(seed), **terms)
        assert [each.dtype for each in found] == [jnp.int32, jnp.float32, jnp.bool_]
        assert all(
            isinstance(a, jax.Array) and np.array_equal(a, b) for a, b in zip(found, right, strict=True)
        )
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        indices = ons.sample(jnp.asarray(X), temperature=temperature, seed=seed, top_k=9, top_p=0.9)
    assert indices.dtype == jnp.int64 and np.array_equal(indices, right[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("terms", TERMS)
def test_jit(terms, dtype):
    """The bits of the call outside."""
    x, call = jnp.asarray(X, dtype), functools.partial(ons.sample, **{"seed": 7} | ALL | TERMS[terms])
    found, outside = jax.jit(call)(x), call(x)
    assert same(found, outside) and [each.dtype for each in found] == ["int32", "float32", "bool"]
    few = dict.fromkeys(ALL, False)
    assert same(jax.jit(functools.partial(call, **few))(x), outside[0])


def test_traced_parameters():
    """Numbers and arrays, all together and each alone. The wide types of NumPy's arrays keep all bits."""
    numbers = {"temperature": 0.75, "top_k": 9, "top_p": 0.9, "min_p": 0.0625, "seed": -5, "offset": 3}
    inside = jax.jit(lambda x, where, given: ons.sample(x, where=where, **given, **ALL))
    for given in (numbers, OF_ROWS):
        right = ons.sample(jnp.asarray(X), where=MASK, **given, **ALL)
        assert same(inside(X, MASK, given), right)
        for name, value in given.items():
            call = jax.jit(lambda value, name=name, given=given: ons.sample(
                X, where=MASK, **given | {name: value}, **ALL
            ))  # fmt: skip
            assert same(call(value), right), name
    wide = {
        name: value / np.float64(3) if value.dtype == np.float32 else value + np.int64(2**40)
        for name, value in OF_ROWS.items()
    }
    assert {value.dtype.name for value in wide.values()} == {"int64", "float64"}
    right = ons.sample(jnp.asarray(X), **wide, **ALL)
    assert same(jax.jit(lambda x: ons.sample(x, **wide, **ALL))(X), right)
    for seed in (np.uint64([2**63 + 5]), np.int8(5), np.array(2**40)):
        found = jax.jit(lambda x, seed=seed: ons.sample(x, seed=seed))(X)
        assert same(found, ons.sample(jnp.asarray(X), seed=int(seed.item())))


def test_a_decode_loop():
    """lax.scan over the offset, in which each token chooses the next logits."""
    table = jnp.asarray(np.random.default_rng(1).standard_normal((30, 30)), "bfloat16")
    terms = {"temperature": [0.5, 1, 0, 2], "top_k": 20, "top_p": 0.9}
    first, seeds = jnp.arange(4), jnp.array([3, 3, 4, 5])

    def step(seed, tokens, offset):
        tokens, logprob = ons.sample(table[tokens], seed=seed, offset=offset, return_logprob=True, **terms)
        return tokens, (tokens, logprob)

    scan = jax.jit(lambda seed, start: jax.lax.scan(
        functools.partial(step, seed), first, start + jnp.arange(20)
    )[1])  # fmt: skip
    for seed in (seeds, 11):
        tokens, expected = first, []
        for offset in range(5, 25):
            tokens, found = step(seed, tokens, offset)
            expected.append(found)
        found = scan(seed, 5)
        assert same(found, tuple(map(jnp.stack, zip(*expected, strict=True))))
        assert len(set(found[0][:, 1].tolist())) > 5  # the offset counts
    last = jax.lax.fori_loop(0, 20, lambda i, tokens: step(seeds, tokens, 5 + i)[0], first)
    assert same(last, scan(seeds, 5)[0][-1])


MAPPED = {
    "the logits": ((0, None, None, None), {}),
    "other rows": ((1, None, None, None), {}),
    "the seed": ((None, None, 0, None), {}),
    "the seeds": ((None, None, 0, None), {"seed": np.arange(12).reshape(3, 4)}),
    "the offset": ((None, None, None, 0), {}),
    "the mask": ((None, 0, None, None), {}),
    "all": ((0, 0, 0, 0), {"seed": np.arange(12).reshape(3, 4)}),
    "all and numbers": ((0, 0, 0, 0), {}),
    "seeds of rows": ((0, None, None, None), {"seed": np.arange(4)}),
}


@pytest.mark.parametrize(("axes", "other"), MAPPED.values(), ids=MAPPED)
def test_vmap(axes, other):
    """One call for all. Each mapped call gives what it gives alone."""
    whole = {"x": X, "where": MASK, "seed": np.arange(3), "offset": np.arange(3)} | other
    if axes[0] == 1:
        whole["where"] = MASK[0, 0]
    given = [
        jnp.asarray(each if dim is not None or (name == "seed" and other) else each[0])
        for dim, (name, each) in zip(axes, whole.items(), strict=True)
    ]

    def call(x, where, seed, offset):
        terms = {
            "temperature": 1.5,
            "top_k": 9,
            "min_p": 0.01,
            "where": where,
            "seed": seed,
            "offset": offset,
        }
        return ons.sample(x, **terms, **ALL)

    program = jax.jit(jax.vmap(call, axes))
    found = program(*given)
    for i in range(4 if axes[0] == 1 else 3):
        alone = call(*(x if dim is None else jnp.take(x, i, dim) for x, dim in zip(given, axes, strict=True)))
        assert same(tuple(part[i] for part in found), alone)
    assert program.lower(*given).compile().as_text().count("custom-call(") == 1


def test_rows_that_vmap_maps():
    """They are calls on one row: each has the number 0 if it shares a seed. A nested vmap is no exception."""
    x, seed = jnp.asarray(X), jnp.arange(12).reshape(3, 4)
    rows = jax.vmap(jax.vmap(lambda row, seed: ons.sample(row, seed=seed, **ALL)))
    assert same(rows(x, seed), ons.sample(x, seed=seed, **ALL))
    for call in (rows, jax.jit(rows)):
        assert same(call(x, 0 * seed + 3), ons.sample(x, seed=0 * seed + 3, **ALL))
    shared = jax.vmap(lambda row: ons.sample(row, seed=3))(jnp.ones((50, 20)))
    assert len(set(shared.tolist())) == 1
    planes = jax.vmap(lambda x, p: ons.sample(x, axis=0, top_p=p, seed=1), (2, None), 1)
    alone = [ons.sample(x[..., i], axis=0, top_p=0.8, seed=1) for i in range(20)]
    assert same(planes(x, 0.8), jnp.stack(alone, 1))
    temperature = jax.vmap(lambda t: ons.sample(x, temperature=t, seed=1))(jnp.array([0.5, 0, 1]))
    assert same(temperature, jnp.stack([ons.sample(x, temperature=t, seed=1) for t in (0.5, 0.0, 1.0)]))


def test_gradients():
    """Indices are constant. A log-probability without its gradient would be a surprise."""
    x, t = jnp.asarray(X), jnp.asarray(OF_ROWS["temperature"])

    def of_tokens(x, t):
        tokens, valid = ons.sample(x, temperature=t, seed=1, return_valid=True)
        return jnp.take_along_axis(x, tokens[..., None], -1).sum() + valid.sum() * t.sum()

    tokens = ons.sample(x, temperature=t, seed=1)
    right = np.zeros_like(X)
    np.put_along_axis(right, np.asarray(tokens)[..., None], 1, -1)
    for gradient in (jax.grad(of_tokens, (0, 1)), jax.jit(jax.jacfwd(of_tokens, (0, 1)))):
        of_x, of_t = gradient(x, t)
        assert np.array_equal(of_x, right) and (of_t == 12).all()

    def of_logprob(x, t, stop=()):
        given = [jax.lax.stop_gradient(each) if i in stop else each for i, each in enumerate((x, t))]
        return (
            ons.sample(given[0], temperature=given[1], seed=1, return_logprob=True)[1].sum() + (x * x).sum()
        )

    for argument, wrap in itertools.product((0, 1), (lambda f: f, jax.jit, jax.vmap, jax.checkpoint)):
        call = wrap(functools.partial(of_logprob, stop=(1 - argument,)))
        with pytest.raises(RuntimeError, match=r"no gradient .* by logprob"):
            jax.grad(lambda *given, call=call: call(*given).sum(), argument)(x, t)
    with pytest.raises(RuntimeError, match="no gradient"):
        jax.jvp(lambda x: of_logprob(x, t), (x,), (x,))
    for wrap in (lambda f: f, jax.jit, jax.checkpoint):
        assert same(jax.grad(wrap(functools.partial(of_logprob, stop=(0, 1))))(x, t), 2 * x)


def test_wide_types():
    source = """
import jax, numpy as np, onsoftmax as ons
jax.config.update("jax_enable_x64", True)
for dtype, real in (("float32", "float32"), ("float64", "float64")):
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((3, 8)), dtype)
    given = {"temperature": np.array([0.3, 1, 2]), "seed": 2**40 + np.arange(3), "top_k": 5}
    right = ons.sample(np.asarray(x), **given, return_logprob=True)
    for traced in (given, dict(given, seed=2**40 + np.arange(3).astype(np.uint64), top_k=np.int64(5))):
        call = lambda x, given: ons.sample(x, **given, return_logprob=True)
        for found in (call(x, traced), jax.jit(call)(x, traced), jax.jit(lambda x: call(x, traced))(x)):
            assert [each.dtype for each in found] == ["int64", real]
            assert all((a == b).all() for a, b in zip(found, right))
"""
    done = run_python(["-c", source], JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr


def test_edges():
    for shape in ((0, 5), (2, 0, 5), (2, 3), (7,), (2, 1, 3)):
        x = jnp.ones(shape)
        for seed in (5, np.arange(np.prod(shape[:-1], dtype=int)).reshape(shape[:-1])):
            call = functools.partial(ons.sample, seed=seed, **ALL)
            assert same(jax.jit(call)(x), call(x))
    integers = jnp.arange(12).reshape(3, 4)
    assert same(jax.jit(lambda x: ons.sample(x, seed=1))(integers), ons.sample(integers, seed=1))
    wrong = jnp.array([[np.nan, 0, 1], [-np.inf] * 3, [0, np.inf, 0], [-np.inf, 0, -np.inf]])
    found = jax.jit(lambda x: ons.sample(x, seed=1, top_p=0.5, **ALL))(wrong)
    assert found[0].tolist() == [-1, -1, -1, 1] and found[2].tolist() == [False, False, False, True]
    for axis in (0, 1, -2):
        x, where = (jnp.moveaxis(jnp.asarray(each), -1, axis) for each in (X, MASK))
        call = functools.partial(ons.sample, axis=axis, where=where, **OF_ROWS, **ALL)
        assert same(jax.jit(call)(x), call(x)) and same(
            call(x), ons.sample(jnp.asarray(X), where=MASK, **OF_ROWS, **ALL)
        )


@pytest.mark.parametrize(
    "given",
    [
        {"axis": 3},
        {"axis": 1.5},
        {"x": X[..., :0]},
        {"x": np.float32(1)},
        {"x": X.astype("complex64")},
        {"filter_apply_order": "last"},
        {"method": "online"},
        {"return_logprob": "all"},
        {"where": X},
        {"where": MASK[:, :3]},
        {"num_threads": 0},
        {"stream": 0},
        {"temperature": -1},
        {"temperature": "hot"},
        {"temperature": OF_ROWS["temperature"][0]},
        {"temperature": MASK[..., 0]},
        {"top_k": 1.5},
        {"top_k": np.ones((3, 4))},
        {"top_k": -1},
        {"top_p": 1.5},
        {"min_p": [0.1, 0.2]},
        {"seed": None},
        {"seed": 2**64},
        {"seed": np.arange(4)},
        {"offset": True},
        {"offset": np.ma.masked_array([1])},
    ],
    ids=" ".join,
)
def test_what_is_refused(given):
    """Tracing raises the error of the same call outside a transformation."""
    arguments = {"x": X, "seed": 1} | given
    x = jnp.asarray(arguments.pop("x"))
    outside, inside = refusals(lambda x: ons.sample(x, **arguments), x)
    assert outside == inside or "stream is given" in inside


GOOD = {
    "operation": "sample",
    "operands": "xwtkpmso",
    "axes": np.int64([-1]),
    "method": "auto",
    "scale": np.float64(1),
    "num_threads": np.int32(1),
    "flags": np.int32(0),
    "joint": np.int32(1),
    "logprob": np.int32(1),
    "period": np.int64(1),
    "temperature": np.float64(1),
    "top_k": np.int64(0),
    "top_p": np.float64(1),
    "min_p": np.float64(0),
    "seed": np.int64(0),
    "offset": np.int64(0),
}
ARRAYS = {"x": X[0], "w": MASK[0], "g": X[0]} | {
    letter: each[0, :, None] for letter, each in zip("tkpmso", OF_ROWS.values(), strict=True)
}
RESULTS = [((4, 1), "float32"), ((4, 1), "int32"), ((4, 1), "bool")]


def test_uint32_is_never_negative():
    seeds = np.array([2**31, 2**32 - 1, 5, 2**31 - 1], np.uint32)
    x = np.random.default_rng(5).standard_normal((4, 300)).astype(np.float32)
    expected = ons.sample(x, seed=seeds)
    jax_x, jax_seeds = jnp.asarray(x), jnp.asarray(seeds)
    for found in (
        ons.sample(jax_x, seed=jax_seeds),
        ons.sample(x, seed=jax_seeds),
        jax.jit(lambda x, seed: ons.sample(x, seed=seed))(jax_x, jax_seeds),
        jax.vmap(lambda x, seed: ons.sample(x, seed=seed))(jax_x[:, None], jax_seeds[:, None]).ravel(),
    ):
        assert np.array_equal(found, expected)
    many = np.uint32(2**32 - 1)  # all tokens
    everything = ons.filtered_softmax(jax_x, top_k=jnp.asarray(many))
    assert np.array_equal(everything, ons.filtered_softmax(x, top_k=many))


@pytest.mark.parametrize(
    "wrong",
    [
        {"operands": "wtkpmso"},
        {"operands": "xg"},
        {"operands": "xss"},
        {"axes": np.int64([-2])},
        {"axes": np.int64([-3])},
        {"axes": np.int64([-1, -2])},
        {"joint": np.int64(0)},
        {"logprob": np.int32(3)},
        {"logprob": np.int32(-1)},
        {"period": np.int64(0)},
        {"period": np.int32(2)},
        {"operands": "x", "temperature": np.float32(1)},
        {"operands": "x", "top_k": np.int32(1)},
        {"operands": "x", "min_p": np.int64(0)},
        {"operands": "x", "seed": np.float64(0)},
        {"x": X[0].astype("i")},
        {"w": MASK[0, :, :3]},
        {"t": OF_ROWS["temperature"][0]},
        {"t": OF_ROWS["temperature"][:1, :3].T},
        {"t": OF_ROWS["seed"][:1].T},
        {"p": X[0].astype("float16")[:, :1]},
        {"k": OF_ROWS["temperature"][:1].T},
        {"s": np.zeros((4, 1), np.uint32)},
        {"s": np.zeros((4, 1, 3), np.uint32)},
        {"o": np.zeros((1, 4), np.int32)},
        {"results": [((4, 1), "float16"), *RESULTS[1:]]},
        {"results": [((4, 2), "float32"), ((4, 2), "int32"), ((4, 2), "bool")]},
        {"results": [RESULTS[0], ((4, 1), "float32"), RESULTS[2]]},
        {"results": [*RESULTS[:2], ((4, 1), "int32")]},
        {"results": [*RESULTS[:2], ((4,), "bool")]},
        {"results": RESULTS[:2]},
    ],
    ids=repr,
)
def test_a_wrong_program_is_an_error(wrong):
    importlib.import_module("onsoftmax.jax")  # registers the target
    attributes = {name: wrong.get(name, value) for name, value in GOOD.items()}
    arrays = ARRAYS | wrong
    results = [jax.ShapeDtypeStruct(*each) for each in wrong.get("results", RESULTS)]
    call = jax.ffi.ffi_call("onsoftmax", results)
    with pytest.raises(jax.errors.JaxRuntimeError, match="onsoftmax: "):
        jax.block_until_ready(call(*(arrays[letter] for letter in attributes["operands"]), **attributes))
    results = [jax.ShapeDtypeStruct(*each) for each in RESULTS]
    found = jax.ffi.ffi_call("onsoftmax", results)(*(ARRAYS[letter] for letter in GOOD["operands"]), **GOOD)
    given = {name: each[0] for name, each in OF_ROWS.items()}
    indices, logprob, valid = ons.sample(
        jnp.asarray(X[0]), where=MASK[0], filter_apply_order="joint", **given, **ALL
    )
    assert same(tuple(each[:, 0] for each in found), (logprob, indices, valid))
