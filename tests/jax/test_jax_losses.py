"""cross_entropy inside JAX's transformations on the CPU, beside exact results and JAX's log_softmax."""

import functools
import importlib

import loss_checks
import numpy as np
import pytest
from loss_checks import Terms
from support import run_python

import onsoftmax as ons

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax_checks import assert_near, refusals, same  # noqa: E402

RNG = np.random.default_rng(7)
X = RNG.standard_normal((3, 4, 50), np.float32) * 3
TARGET = RNG.integers(0, 50, (3, 4))
TARGET[0, 1] = TARGET[2, 3] = -100
WEIGHT = RNG.random((3, 50), np.float32) + 0.5
TERMS = (
    Terms(),
    Terms(weight=WEIGHT[0], z_loss=1e-3),
    Terms(label_smoothing=0.2, ignore_index=int(TARGET[0, 0])),
    Terms(label_smoothing=0.1, weight=WEIGHT[1]),
)


def counted(terms):
    """The targets with rows that the terms ignore."""
    return np.where(TARGET == -100, terms.ignore_index, TARGET)


@pytest.mark.parametrize(
    ("terms", "dtype", "reduction"),
    [
        (TERMS[0], "float32", "mean"),
        (TERMS[0], "bfloat16", "none"),
        (TERMS[1], "float16", "mean"),
        (TERMS[2], "float32", "none"),
        (TERMS[3], "bfloat16", "mean"),
        (TERMS[3], "float32", "sum"),
    ],
)
def test_exact_results(terms, dtype, reduction):
    x, target = jnp.asarray(X, dtype), counted(terms)
    given = terms.keywords() | {"reduction": reduction}

    @jax.jit
    def found(x, target):
        def total(x):
            loss, lse = ons.cross_entropy(x, target, return_lse=True, **given)
            return loss.sum(), (loss, lse)

        gradient, of_rows = jax.grad(total, has_aux=True)(x)
        both = ons.cross_entropy_with_grad(x, target, return_lse=True, **given)
        return gradient, *of_rows, both

    gradient, loss, lse, (loss_too, gradient_too, lse_too) = found(x, target)
    exact = functools.partial(loss_checks.check, np.asarray(x), target, terms, reduction, dtype=dtype)
    exact(loss=loss, gradient=gradient)
    exact(loss=loss_too, gradient=gradient_too)
    outside = ons.cross_entropy_with_grad(x, target, return_lse=True, **given)
    assert same(lse, outside[2]) and same(lse_too, lse) and gradient.dtype == dtype
    if reduction == "none":
        assert same((loss_too, gradient_too, lse_too), outside) and same(gradient, outside[1])


def test_along_any_axis():
    target = jnp.asarray(counted(Terms()))
    for axis in (0, 1, -1, -2):
        x = jnp.moveaxis(jnp.asarray(X), -1, axis)
        function = functools.partial(ons.cross_entropy_with_grad, axis=axis, reduction="none")
        assert same(jax.jit(function)(x, target), function(x, target))


def plain(x, target, weight=None):
    of_rows = -jnp.take_along_axis(jax.nn.log_softmax(x), target[..., None], -1)[..., 0]
    by = jnp.ones_like(of_rows) if weight is None else weight[target]
    return (of_rows * by).sum() / by.sum()


def ours(x, target, weight=None):
    return ons.cross_entropy(x, target, weight=weight)


KNOWN = np.where(TARGET == -100, 3, TARGET)
MAPPED = {
    "logits and targets": ((1, 1), (X, KNOWN)),
    "logits": ((0, None), (X, KNOWN[0])),
    "targets": ((None, 0), (X[0], KNOWN)),
    "not the weights": ((0, 0, None), (X, KNOWN, WEIGHT[0])),
    "weights": ((None, 0, 0), (X[0], KNOWN, WEIGHT)),
}


@pytest.mark.parametrize(("axes", "given"), MAPPED.values(), ids=MAPPED)
def test_vmap(axes, given):
    given = [jnp.asarray(array) for array in given]
    results = []
    for function in (ours, plain):
        of_each = jax.vmap(jax.value_and_grad(function), axes)
        of_all = jax.grad(lambda *given, f=function: jnp.sin(jax.vmap(f, axes)(*given)).sum())
        results.append(jax.jit(lambda *given, f=(of_each, of_all): [each(*given) for each in f])(*given))
    assert_near(*results)


def test_other_transformations():
    x, target = jnp.asarray(X), jnp.asarray(KNOWN)
    results = []
    for function in (ours, plain):
        twice = jax.vmap(jax.vmap(function, (0, None)), (None, 0))
        remade = jax.grad(jax.checkpoint(lambda x, f=function: f(jnp.tanh(x), target)))
        of_rows = jax.jacrev(lambda x, f=function: jnp.stack([f(x[0], target[0]), f(2 * x[0], target[1])]))

        @jax.jit
        def all_of_them(x, twice=twice, remade=remade, of_rows=of_rows, f=function):
            total, _ = jax.lax.scan(lambda total, row: (total + f(*row), None), 0.0, (x, target))
            return twice(x[0], target[:, 0]), remade(x), of_rows(x), total

        results.append(all_of_them(x))
    assert_near(*results)
    wide = jax.jit(jax.value_and_grad(ours))(x, target)
    assert same(jax.jit(jax.value_and_grad(ours))(x, target.astype("uint8")), wide)
    for function in (
        lambda x: jax.grad(lambda x: jax.grad(ours)(x, target).sum())(x),
        jax.grad(lambda x: ons.cross_entropy_with_grad(x, target)[0]),
    ):
        with pytest.raises(ValueError, match="cannot be differentiated"):
            function(x)


def test_edges():
    """A target that is no class gives NaN, since a compiled program cannot raise."""
    x = jnp.asarray(X[0])
    loss, gradient = jax.jit(functools.partial(ons.cross_entropy_with_grad, reduction="none"))(
        x, jnp.array([1, 50, -1, -100])
    )
    assert np.isnan(loss[1:3]).all() and np.isnan(gradient[1:3]).all()
    assert loss[3] == 0 and not gradient[3].any() and np.isfinite(gradient[0]).all()
    for shape in ((0, 5), (2, 0), (2, 3)):
        x, target = jnp.ones(shape), jnp.full(shape[0], -100)
        for weight in (None, jnp.ones(shape[1])):
            call = functools.partial(ons.cross_entropy_with_grad, weight=weight, return_lse=True)
            assert same(jax.jit(call)(x, target), call(x, target)), shape
    # any argument may be the tracer
    x, target, weight = X, KNOWN, WEIGHT[0]
    right = ours(x, target, weight)
    assert_near(jax.jit(lambda target: ours(x, target, weight))(target), right)
    assert_near(jax.jit(lambda weight: ours(x, target, weight))(weight), right)
    assert not jax.grad(lambda weight: ours(x, target, weight))(weight).any()


@pytest.mark.parametrize(
    "given",
    [
        {"axis": 3},
        {"axis": 1.5},
        {"reduction": "avg"},
        {"label_smoothing": 2},
        {"z_loss": np.inf},
        {"target": TARGET[0]},
        {"target": TARGET * 1.0},
        {"target": np.ma.masked_array(TARGET)},
        {"weight": WEIGHT},
        {"weight": WEIGHT[0, :3]},
        {"weight": np.ones(50, bool)},
        {"num_threads": 0},
        {"stream": 0},
        {"logits": np.float32(1), "target": np.array(0)},
        {"logits": X.astype("complex64")},
    ],
    ids=repr,
)
def test_what_is_refused(given):
    """Tracing raises the error of the same call outside a transformation."""
    arguments = {"logits": X, "target": TARGET} | given
    x, target = jnp.asarray(arguments.pop("logits")), arguments.pop("target")
    outside, inside = refusals(lambda x: ons.cross_entropy(x, target, **arguments), x)
    assert outside == inside or "stream is given" in inside
    with pytest.raises(TypeError, match=r"immutable: call without grad_out="):
        jax.jit(lambda x: ons.cross_entropy_with_grad(x, TARGET, grad_out=X))(X)


GOOD = {
    "operation": "cross_entropy",
    "operands": "xtcl",
    "axes": np.int64([-1]),
    "method": "auto",
    "scale": np.float64(1),
    "num_threads": np.int32(1),
    "flags": np.int32(0),
    "ignore_index": np.int64(-100),
    "label_smoothing": np.float64(0),
    "z_loss": np.float64(0),
}
ARRAYS = {letter: np.ones(shape, "f") for letter, shape in {"x": (4, 5), "c": 5, "l": (4, 1)}.items()}
ARRAYS["t"] = np.ones((4, 1), "i")


@pytest.mark.parametrize(
    "wrong",
    [
        {"operands": "xcl"},
        {"operands": "tcl"},
        {"operands": "xxt"},
        {"operands": "xtw"},
        {"axes": np.int64([-2])},
        {"axes": np.int64([-1, -2])},
        {"z_loss": np.float32(0.5)},
        {"ignore_index": np.int32(0)},
        {"operation": "cross_entropy_with_grad"},
        {"t": np.ones((4, 1), "f")},
        {"t": np.ones(4, "i")},
        {"t": np.ones((1, 1), "i")},
        {"c": np.ones(4, "f")},
        {"c": np.ones((1, 5), "f")},
        {"l": np.ones((4, 5), "f")},
        {"l": np.ones((4, 1), "i")},
        {"x": np.ones((4, 5), "i")},
        {"results": [((4, 1), "float16"), ((4, 1), "float32")]},
        {"results": [((4, 1), "float32"), ((4, 5), "float32")]},
    ],
    ids=repr,
)
def test_a_wrong_program_is_an_error(wrong):
    importlib.import_module("onsoftmax.jax")  # registers the target
    attributes = {name: wrong.get(name, value) for name, value in GOOD.items()}
    arrays = {**ARRAYS, "w": ARRAYS["x"] > 0, **wrong}
    results = [jax.ShapeDtypeStruct(*each) for each in wrong.get("results", [((4, 1), "float32")] * 2)]
    call = jax.ffi.ffi_call("onsoftmax", results)
    with pytest.raises(jax.errors.JaxRuntimeError, match="onsoftmax: "):
        jax.block_until_ready(call(*(arrays[letter] for letter in attributes["operands"]), **attributes))
    rows = jax.ShapeDtypeStruct((4, 1), "float32")
    loss, lse = jax.ffi.ffi_call("onsoftmax", (rows, rows))(*(ARRAYS[letter] for letter in "xtcl"), **GOOD)
    assert np.allclose(loss, np.log(5)) and np.allclose(lse, 1 + np.log(5))


X64 = """
import jax, jax.numpy as jnp, loss_checks, numpy as np, onsoftmax as ons
from loss_checks import Terms
jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
x = jnp.asarray(rng.standard_normal((6, 40)))
weight = jnp.asarray(rng.random(40))
for kind in ("int32", "int64", "uint64"):
    target = jnp.asarray(rng.integers(0, 40, 6), kind)
    for terms in (Terms(), Terms(weight=weight), Terms(label_smoothing=0.1, z_loss=0.01)):
        loss = lambda x: ons.cross_entropy(x, target, **terms.keywords())
        made = jax.jit(jax.value_and_grad(loss))(x)
        assert {each.dtype.name for each in made} == {"float64"}
        loss_checks.check(np.asarray(x), np.asarray(target).astype(int), terms, "mean", *made, "float64")
"""


def test_float64():
    done = run_python(["-c", X64])
    assert done.returncode == 0, done.stderr
