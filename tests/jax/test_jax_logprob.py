"""logprob inside JAX's transformations on the CPU, beside exact results and JAX's log_softmax."""

import functools
import importlib

import logprob_checks
import numpy as np
import pytest
from loss_checks import assert_near as assert_exact
from support import run_python

import onsoftmax as ons
from onsoftmax import _core

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax_checks import assert_near, refusals, same  # noqa: E402

RNG = np.random.default_rng(11)
X = RNG.standard_normal((3, 4, 50), np.float32) * 3
INDEX = RNG.integers(0, 50, (3, 4))
SEVERAL = RNG.integers(0, 50, (3, 4, 2))
WANTED = {"entropy": True, "lse": True, "argmax": True}
ALL = {**WANTED, "rank": True, "topk": 3}


@pytest.mark.parametrize(
    ("index", "dtype"),
    [(INDEX, "float16"), (SEVERAL, "bfloat16"), (INDEX, "float32")],
    ids=["float16", "bfloat16", "float32"],
)
def test_exact_results(index, dtype):
    x, given = jnp.asarray(X, dtype), WANTED | {"rank": index is INDEX}
    outside = ons.logprob(x, index, **given)
    rng = np.random.default_rng(12)
    grads = tuple(rng.standard_normal(each.shape).astype("f") for each in outside[:3])

    @jax.jit
    def found(x, *grads):
        made, back = jax.vjp(lambda x: ons.logprob(x, index, **given)[:3], x)
        return ons.logprob(x, index, **given), made, back(grads)[0]

    all_of_them, made, gradient = found(x, *grads)
    assert same(all_of_them, outside) and same(made, outside[:3])
    wanted = logprob_checks.gradient(np.asarray(x), index.reshape(3, 4, -1), *(
        each.reshape(3, 4, -1) if i == 0 else each for i, each in enumerate(grads)
    ))  # fmt: skip
    assert gradient.dtype == dtype
    assert_exact(np.asarray(gradient), *wanted, 2.0**-23, dtype)
    x = np.asarray(x)
    moments = _core.logprob(x, index, -1, True, False, False, False, True, None, None)[5]
    assert same(gradient, _core.logprob_backward(x, index, -1, moments, *grads, None, None))


def test_along_any_axis():
    right = jax.jit(jax.grad(lambda x: plain(x, SEVERAL)[0].sum()))(X)
    for axis in (0, -2):
        x = jnp.moveaxis(jnp.asarray(X), -1, axis)
        function = functools.partial(ons.logprob, axis=axis, **ALL)
        assert same(jax.jit(function)(x, INDEX), function(x, INDEX))
        assert same(
            jax.jit(functools.partial(ons.logprob, axis=axis))(x, SEVERAL), ons.logprob(x, SEVERAL, axis)
        )
        gradient = jax.grad(lambda x, axis=axis: ons.logprob(x, SEVERAL, axis, lse=True).logprob.sum())
        assert_near(jax.jit(gradient)(x), jnp.moveaxis(right, -1, axis))


def plain(x, index):
    """(logprob, entropy, lse)"""
    logs = jax.nn.log_softmax(x)
    several = index if index.ndim == x.ndim else index[..., None]
    chosen = jnp.take_along_axis(logs, several, -1).reshape(index.shape)
    return chosen, -(jnp.exp(logs) * logs).sum(-1), jax.nn.logsumexp(x, -1)


def ours(x, index):
    return tuple(ons.logprob(x, index, entropy=True, lse=True)[:3])


def loss(function, x, index):
    """A number to which all three results add something of their own."""
    chosen, entropy, lse = function(x, index)
    return (jnp.sin(chosen).sum() + 0.3 * (entropy**2).sum() + jnp.cos(lse).sum()) / entropy.size


MAPPED = {
    "both": ((1, 1), (X, INDEX)),
    "logits": ((0, None), (X, INDEX[0])),
    "index": ((None, 0), (X[0], INDEX)),
    "several": ((0, 0), (X, SEVERAL)),
    "index, several": ((None, 1), (X, SEVERAL[:, None])),
}


@pytest.mark.parametrize(("axes", "given"), MAPPED.values(), ids=MAPPED)
def test_vmap(axes, given):
    given = [jnp.asarray(array) for array in given]
    results = []
    for function in (ours, plain):
        number = functools.partial(loss, function)
        of_each = jax.vmap(jax.value_and_grad(number), axes)
        of_all = jax.grad(lambda *given, f=number: jnp.sin(jax.vmap(f, axes)(*given)).sum())
        found = jax.vmap(function, axes)
        results.append(
            jax.jit(lambda *given, f=(found, of_each, of_all): [each(*given) for each in f])(*given)
        )
    assert_near(*results)


def test_other_transformations():
    x, index = jnp.asarray(X), jnp.asarray(INDEX)
    results = []
    for function in (ours, plain):
        number = functools.partial(loss, function)
        twice = jax.vmap(jax.vmap(jax.grad(number), (0, None)), (None, 0))
        remade = jax.grad(jax.checkpoint(lambda x, f=number: f(jnp.tanh(x), index)))
        of_rows = jax.jacrev(lambda x, f=function: f(x[0], index[0]))

        @jax.jit
        def all_of_them(x, twice=twice, remade=remade, of_rows=of_rows, f=number):
            total, _ = jax.lax.scan(lambda total, row: (total + f(*row), None), 0.0, (x, index))
            return twice(x[0], index[:, 0]), remade(x), of_rows(x), total

        results.append(all_of_them(x))
    assert_near(*results)
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda x: jax.grad(lambda x: loss(ours, x, index))(x).sum())(x)


def test_what_is_kept_belongs_to_rows():
    """The backward step may run on some of the rows of the forward step."""
    x, index = jnp.asarray(X), jnp.asarray(INDEX)
    back = jax.vmap(lambda x, index: jax.vjp(lambda x: ours(x, index), x)[1])(x, index)
    assert {each.nbytes for each in jax.tree.leaves(back)} == {x.nbytes, index.nbytes, 16 * 12, 8 * 12}
    last = jax.tree.map(lambda kept: kept[2], back)
    rng = np.random.default_rng(12)
    grads = tuple(jnp.asarray(rng.standard_normal(4), "f") for _ in range(3))
    assert same(last(grads), jax.vjp(lambda x: ours(x, index[2]), x[2])[1](grads))


def test_what_is_wanted():
    x, index = jnp.asarray(X), jnp.asarray(INDEX)
    right = plain(x, index)
    for name, wanted in (("logprob", right[0]), ("entropy", right[1]), ("lse", right[2])):
        asked = {} if name == "logprob" else {name: True}

        def number(x, name=name, asked=asked):
            found = ons.logprob(x, index, **asked)
            return (getattr(found, name) if asked else found).sum(), found

        gradient, found = jax.jit(jax.grad(number, has_aux=True))(x)
        assert same(found, ons.logprob(x, index, **asked))
        assert_near(getattr(found, name) if asked else found, wanted)
        place = ("logprob", "entropy", "lse").index(name)
        assert_near(gradient, jax.jit(jax.grad(lambda x, i=place: plain(x, index)[i].sum()))(x))
    top = jax.jit(jax.grad(lambda x: ons.logprob(x, index, topk=1, rank=True).topk.values.sum()))(x)
    assert_near(top, jax.jit(jax.grad(lambda x: jax.nn.log_softmax(x).max(-1).sum()))(x))
    assert same(jax.jit(lambda index: ons.logprob(X, index, **ALL))(INDEX), ons.logprob(x, INDEX, **ALL))
    narrow = jax.jit(functools.partial(ons.logprob, **ALL))(x, index.astype("uint8"))
    assert same(narrow, ons.logprob(x, index, **ALL))


@pytest.mark.parametrize("N", [5, 5000])
def test_edges(N):
    """An index out of range gives NaN, since a compiled program cannot raise."""
    x = np.random.default_rng(12).standard_normal((4, N)).astype("f")
    x[3, 1:] = -np.inf
    index = np.array([[0, N], [-1, 0], [0, 2**31 - 1], [-(2**31), 0]])
    right = plain(jnp.asarray(x[:3]), np.zeros((3, 2), int))
    chosen, entropy, lse = jax.jit(ours)(x, index)
    assert np.array_equal(np.isnan(chosen), (index < 0) | (index >= N))
    assert_near(
        (chosen[0, 0], chosen[1, 1], entropy[:3], lse[:3]), (right[0][0, 0], right[0][1, 0], *right[1:])
    )
    first = index[:, 0]
    found = jax.jit(functools.partial(ons.logprob, argmax=True, rank=True))(x, first)
    valid = (first >= 0) & (first < N)
    assert np.array_equal(found.rank, np.where(valid, (x > x[:, :1]).sum(-1), -1))
    assert np.array_equal(found.argmax, x.argmax(-1))
    gradient = jax.jit(jax.grad(lambda x: ons.logprob(x, first).sum()))(x)
    assert np.array_equal(np.isnan(gradient), np.broadcast_to(~valid[:, None], x.shape))


def test_nothing():
    for shape in ((0, 5), (0, 0), (2, 3)):
        x, index = jnp.ones(shape), jnp.zeros(shape[0], int)
        call = functools.partial(ons.logprob, **ALL if shape[1] else WANTED)
        assert same(jax.jit(call)(x, index), call(x, index)), shape
        gradient = jax.jit(jax.grad(lambda x, f=call, index=index: f(x, index).entropy.sum()))
        assert gradient(x).shape == shape
    found = jax.jit(functools.partial(ons.logprob, **WANTED, rank=True))(jnp.ones((2, 0)), jnp.zeros(2, int))
    assert np.isnan(found.logprob).all() and (found.rank == -1).all() and (found.lse == -np.inf).all()


@pytest.mark.parametrize(
    "given",
    [
        {"axis": 3},
        {"axis": 1.5},
        {"topk": -1},
        {"topk": 51},
        {"index": INDEX[0]},
        {"index": INDEX * 1.0},
        {"index": np.ma.masked_array(INDEX)},
        {"index": SEVERAL, "rank": True},
        {"num_threads": 0},
        {"stream": 0},
        {"logits": np.float32(1), "index": np.array(0)},
        {"logits": X.astype("complex64")},
    ],
    ids=repr,
)
def test_what_is_refused(given):
    """Tracing raises the error of the same call outside a transformation."""
    arguments = {"logits": X, "index": INDEX} | given
    x, index = jnp.asarray(arguments.pop("logits")), arguments.pop("index")
    outside, inside = refusals(lambda x: ons.logprob(x, index, **arguments), x)
    assert outside == inside or "stream is given" in inside
    with pytest.raises(ValueError, match="index has 0 elements of each row: expected at least one"):
        jax.jit(ons.logprob)(X, SEVERAL[..., :0])


FORWARD = {
    "operation": "logprob",
    "operands": "xt",
    "axes": np.int64([-1]),
    "method": "auto",
    "scale": np.float64(1),
    "num_threads": np.int32(1),
    "flags": np.int32(_core.XLA_ENTROPY | _core.XLA_RANK | _core.XLA_MOMENTS),
}
BACKWARD = FORWARD | {"operation": "logprob_backward", "operands": "xtpghl", "flags": np.int32(0)}
ROWS, WORDS = ((4, 1, 1), "float32"), ((4, 1, 2), "uint32")
RESULTS = {"logprob": [ROWS, ROWS, WORDS, ((24,), "uint32")], "logprob_backward": [((4, 5), "float32")]}
ARRAYS = {letter: np.ones(*ROWS) for letter in "ghl"}
ARRAYS |= {"x": np.ones((4, 5), "f"), "t": np.ones((4, 1, 1), "i"), "p": np.zeros(24, "uint32")}


def call(good, wrong):
    attributes = {name: wrong.get(name, value) for name, value in good.items()}
    results = wrong.get("results", RESULTS[good["operation"]])
    made = jax.ffi.ffi_call("onsoftmax", [jax.ShapeDtypeStruct(*each) for each in results])
    arrays = ARRAYS | wrong
    return jax.block_until_ready(made(*(arrays[letter] for letter in attributes["operands"]), **attributes))


@pytest.mark.parametrize(
    "wrong",
    [
        {"operands": "x"},
        {"operands": "t"},
        {"operands": "xtt"},
        {"operands": "xtg"},
        {"operands": "xtp"},
        {"axes": np.int64([-2])},
        {"axes": np.int64([-1, -2])},
        {"operation": "logprob_backward"},
        {"operation": "cross_entropy"},
        {"flags": np.int32(0)},
        {"flags": np.int32(_core.XLA_LSE | _core.XLA_ENTROPY | _core.XLA_RANK | _core.XLA_MOMENTS)},
        {"flags": np.int32(_core.XLA_ENTROPY | _core.XLA_MOMENTS)},
        {"t": np.ones((4, 1, 1), "f")},
        {"t": np.ones((4, 1), "i")},
        {"t": np.ones((4, 1, 2), "i")},
        {"t": np.ones((4, 1, 0), "i")},
        {"t": np.ones((1, 1, 1), "i")},
        {"x": np.ones((4, 5), "i")},
        {"x": np.ones((3, 5), "f")},
        {"results": [((4, 1, 1), "float16"), ROWS, WORDS, ((24,), "uint32")]},
        {"results": [ROWS, ((4, 1), "float32"), WORDS, ((24,), "uint32")]},
        {"results": [ROWS, ROWS, ROWS, ((24,), "uint32")]},
        {"results": [ROWS, ROWS, WORDS, ((16,), "uint32")]},
        {"results": [ROWS, ROWS, WORDS, ((12,), "float64")]},
    ],
    ids=repr,
)
def test_a_wrong_program_is_an_error(wrong):
    importlib.import_module("onsoftmax.jax")  # registers the target
    with pytest.raises(jax.errors.JaxRuntimeError, match="onsoftmax: "):
        call(FORWARD, wrong)
    chosen, entropy, rank, _ = call(FORWARD, {})
    assert np.allclose(chosen, -np.log(5)) and np.allclose(entropy, np.log(5)) and not rank.any()


@pytest.mark.parametrize(
    "wrong",
    [
        {"operands": "xtghl"},
        {"operands": "xpghl"},
        {"operands": "xtpghg"},
        {"p": np.zeros((4, 6), "uint32")},
        {"p": np.zeros(23, "uint32")},
        {"p": np.zeros(24, "f")},
        {"g": np.ones((4, 1), "f")},
        {"h": np.ones((4, 1, 2), "f")},
        {"l": np.ones((4, 1, 1), "i")},
        {"results": [((4, 5), "float16")]},
        {"results": [((4, 1), "float32")]},
        {"results": [((4, 5), "float32")] * 2},
    ],
    ids=repr,
)
def test_a_wrong_program_of_a_gradient_is_an_error(wrong):
    importlib.import_module("onsoftmax.jax")
    with pytest.raises(jax.errors.JaxRuntimeError, match="onsoftmax: "):
        call(BACKWARD, wrong)
    (gradient,) = call(BACKWARD, {"p": call(FORWARD, {})[3]})
    assert np.allclose(gradient, [[0, 1, 0, 0, 0]] * 4)


X64 = """
import jax, jax.numpy as jnp, logprob_checks, numpy as np, onsoftmax as ons
from loss_checks import assert_near
jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
x = jnp.asarray(rng.standard_normal((6, 40)))
for kind in ("int32", "int64", "uint64"):
    index = jnp.asarray(rng.integers(0, 40, 6), kind)
    def call(x):
        found = ons.logprob(x, index, entropy=True, lse=True, argmax=True, rank=True)
        return found.logprob.sum() + 2 * found.entropy.sum() - found.lse.sum(), found
    gradient, found = jax.jit(jax.grad(call, has_aux=True))(x)
    assert [each.dtype.name for each in found[:5]] == ["float64"] * 3 + ["int64"] * 2
    as_index = np.asarray(index).astype(int)[:, None]
    logprob_checks.check(np.asarray(x), as_index, [np.asarray(each) for each in found[:5]], "float64")
    assert np.array_equal(jax.jit(lambda x: ons.logprob(x, index.at[0].set(99), rank=True).rank)(x)[0], -1)
    ones = np.ones(6)
    wanted = logprob_checks.gradient(np.asarray(x), as_index, ones[:, None], 2 * ones, -ones)
    assert_near(gradient, *wanted, 2.0**-52, "float64")
"""


def test_float64():
    done = run_python(["-c", X64])
    assert done.returncode == 0, done.stderr
