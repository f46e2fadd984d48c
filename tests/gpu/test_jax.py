"""The operations inside jax.jit, jax.grad and jax.vmap on a GPU: the same bits as outside, on XLA's
stream."""

import functools
import os

import numpy as np
import pytest
from support import run_python

import onsoftmax as ons

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it would take most of the memory
jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax_checks import DTYPES, ROWS, assert_near, ours, plain, same  # noqa: E402


@pytest.fixture(autouse=True)
def gpu():
    """Makes the GPU JAX's default device."""
    try:
        gpu = jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX sees no GPU: {error}")
    with jax.default_device(gpu):
        yield gpu


def array(*shape, dtype="float32", seed=0):
    return 3 * jax.random.normal(jax.random.key(seed), shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((64, 500), -1), ((64, 500), 0), ((3, 70, 129), (0, 2)), ((2, 200_001), -1), ((1, 1 << 22), 1)],
)
def test_a_program_has_the_bits_of_the_call(dtype, shape, axis, gpu):
    x, grad = array(*shape, dtype=dtype), array(*shape, dtype=dtype, seed=1)
    for operation in (*ROWS, "logsumexp"):
        function = functools.partial(getattr(ons, operation), axis=axis)
        y = jax.jit(function)(x)
        assert same(y, function(x)) and y.devices() == {gpu}, operation
    for operation in ROWS:
        y, backward = getattr(ons, operation)(x, axis), getattr(ons, f"{operation}_backward")
        assert same(jax.jit(backward, static_argnums=2)(grad, y, axis), backward(grad, y, axis)), operation
    if isinstance(axis, int):
        function = functools.partial(ons.softmax_topk, k=3, axis=axis)
        assert same(jax.jit(function)(x), function(x))


@pytest.mark.parametrize("method", [method.name for method in ons.methods("cuda")])
def test_methods(method):
    """Also methods with scratch memory, many times. The memory is XLA's and is free after each call."""
    for shape in ((64, 500), (3, 30_000)):
        x = array(*shape)
        function = functools.partial(ons.softmax, method=method)
        try:
            expected = function(x)
        except ValueError as error:
            with pytest.raises(ValueError) as caught:
                jax.jit(function)(x)
            assert str(caught.value) == str(error)
            continue
        program = jax.jit(lambda x, f=function: [f(x + i) for i in range(4)])
        for _ in range(10):
            assert same(program(x)[0], expected)


def test_masks_and_scales():
    x, mask = array(64, 500), array(64, 500, seed=2) > -3
    for given in (
        {"where": mask},
        {"where": mask[0]},
        {"scale": 0.3},
        {"scale": jnp.full((64, 1), 0.5)},
        {"scale": jnp.float16(0.5)},
        {"where": mask, "scale": jnp.arange(64.0).reshape(64, 1)},
    ):
        for operation in (*ROWS, "logsumexp"):
            function = getattr(ons, operation)
            traced = {name: value for name, value in given.items() if isinstance(value, jax.Array)}
            fixed = {name: value for name, value in given.items() if name not in traced}
            made = jax.jit(lambda x, arrays, f=function, fixed=fixed: f(x, **arrays, **fixed))(x, traced)
            assert same(made, function(x, **given)), (operation, given)


def test_shapes():
    for shape in ((), (0,), (3, 0), (0, 3), (1, 1), (5, 1)):
        x = jnp.zeros(shape)
        for operation in (*ROWS, "logsumexp"):
            function = getattr(ons, operation)
            assert same(jax.jit(function)(x), function(x)), (shape, operation)


@pytest.mark.parametrize("operation", [*ROWS, "logsumexp"])
def test_gradients(operation):
    """First and second derivatives, against JAX's own."""
    x, scale = array(5, 300), jnp.full((5, 1), 0.7)

    def loss(function, x, scale):
        return jnp.sin(function(operation, x, scale=scale)).sum()

    def slope(function, x, scale):
        return sum(
            jnp.cos(each).sum() for each in jax.grad(functools.partial(loss, function), (0, 1))(x, scale)
        )

    for derivative, tolerance in ((loss, 1e-5), (slope, 1e-3)):
        made, right = (
            jax.jit(jax.grad(functools.partial(derivative, f), (0, 1)))(x, scale) for f in (ours, plain)
        )
        assert_near(made, right, tolerance)
    mapped = jax.jit(jax.vmap(jax.grad(lambda x: loss(ours, x, 0.5))))(x)
    assert_near(mapped, jax.grad(lambda x: loss(plain, x, 0.5))(x), 1e-5)
    top = jax.jit(jax.grad(lambda x: ons.softmax_topk(x, 1).values.sum()))(x)
    assert_near(top, jax.grad(lambda x: jax.nn.softmax(x).max(-1).sum())(x), 1e-5)


def test_programs_are_in_order():
    """Programs run in the order of XLA's stream, in loops that XLA may record as graphs, and among calls
    outside programs."""
    x = array(200, 5000)

    @jax.jit
    def ours_in_a_loop(x):
        return jax.lax.fori_loop(
            0, 50, lambda i, y: ons.softmax(jnp.sin(y) * 9, method="split") + ons.softmax(y), x
        )

    @jax.jit
    def theirs_in_a_loop(x):
        return jax.lax.fori_loop(0, 50, lambda i, y: jax.nn.softmax(jnp.sin(y) * 9) + jax.nn.softmax(y), x)

    expected = theirs_in_a_loop(x)
    for _ in range(10):
        y = ours_in_a_loop(x)
        filler = [jnp.tanh(y + i) for i in range(3)]
        np.testing.assert_allclose(ons.softmax(y), ons.softmax(expected), rtol=1e-4)
        del filler


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 500), (33, 50257), (3, 300_001)])
def test_losses(shape, dtype):
    """In one kernel, and in several parts with one scratch."""
    x = array(*shape, dtype=dtype)
    target = jax.random.randint(jax.random.key(2), shape[:1], 0, shape[1]).at[1].set(-100)
    for given in ({}, {"label_smoothing": 0.1}, {"z_loss": 1e-3, "weight": jnp.abs(array(shape[1])) + 0.5}):
        both = functools.partial(ons.cross_entropy_with_grad, reduction="none", return_lse=True, **given)
        made = jax.jit(both)(x, target)
        assert same(made, both(x, target))
        total = jax.jit(
            jax.grad(lambda x, given=given: ons.cross_entropy(x, target, reduction="sum", **given))
        )
        assert same(total(x), made[1])
    mean = jax.jit(jax.value_and_grad(lambda x: ons.cross_entropy(x, target)))(x)
    assert_near(mean, ons.cross_entropy_with_grad(x, target), 1e-2 if x.dtype != "float32" else 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("N", [8, 256, 3000])
def test_routers(N, dtype):
    x, bias = array(64, N, dtype=dtype), jnp.linspace(-0.1, 0.1, N)
    for given in ({}, {"score": "sigmoid", "bias": bias, "groups": 4, "top_groups": 2, "scale": 2.5}):
        call = functools.partial(ons.route, k=2, **given)
        made, outside = jax.jit(call)(x), call(x)
        assert same(made.weights, outside.weights) and np.array_equal(made.indices, outside.indices)
        slope = jax.jit(jax.grad(lambda x, call=call: jnp.sin(call(x).weights).sum()))(x)
        on_cpu = jax.device_put(x, jax.devices("cpu")[0])
        given = given | {"bias": np.asarray(bias)} if "bias" in given else given
        of_cpu = jax.grad(lambda x, given=given: jnp.sin(ons.route(x, 2, **given).weights).sum())(on_cpu)
        assert_near(slope, of_cpu, 1e-2 if x.dtype != "float32" else 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 500), (3, 50257)])
def test_samplers(shape, dtype):
    """Each kind of filter has kernels of its own. The parameters are numbers and arrays."""
    x, seeds, offsets = array(*shape, dtype=dtype), jnp.arange(shape[0]), jnp.arange(20)
    terms = {"return_logprob": True, "return_valid": True}

    def steps(call):
        return jax.lax.scan(lambda none, offset: (none, call(x, offset=offset)), None, offsets)[1]

    for filters in ({}, {"top_k": 50}, {"top_p": 0.9}, {"top_k": 2000, "min_p": 0.001}):
        traced = {"temperature": jnp.linspace(0, 2, shape[0]), "seed": seeds, **filters}
        call = functools.partial(ons.sample, **terms)
        found = jax.jit(call)(x, **traced)
        assert same(found, call(x, **traced | {name: jnp.array([n]) for name, n in filters.items()}))
        for seed in (seeds, 7):
            call = functools.partial(ons.sample, seed=seed, **filters, **terms)
            right = [call(x, offset=offset) for offset in offsets]
            found = jax.jit(functools.partial(steps, call))()
            assert same(found, tuple(map(jnp.stack, zip(*right, strict=True))))
            assert same(jax.vmap(lambda offset, call=call: call(x, offset=offset))(offsets), found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 500), (3, 50257)])
def test_filtered_softmax(shape, dtype):
    """The bits of the call outside. The gradient is the gradient of a softmax of the kept tokens."""
    x, g = array(*shape, dtype=dtype), array(*shape, seed=1)
    of_rows = jnp.linspace(0.5, 2, shape[0])
    for terms in (
        {},
        {"temperature": 0.5},
        {"temperature": of_rows, "top_k": 50},
        {"temperature": of_rows, "top_p": 0.9},
        {"temperature": of_rows[:1], "top_k": 2000, "min_p": 0.001, "where": g < 1},
    ):
        call = functools.partial(ons.filtered_softmax, **terms)
        y = call(x)
        assert same(jax.jit(call)(x), y)
        scale = 1 / jnp.asarray(terms.get("temperature", 1.0)).reshape(-1, 1)
        right = ons.softmax_backward(g, y, scale=scale)
        gradient = jax.grad(lambda x, call=call: (call(x) * g).sum())
        assert_near(jax.jit(gradient)(x), right, 1e-2 if dtype != "float32" else 1e-5)
        assert gradient(x).dtype == x.dtype
    k = jnp.arange(3) * 300 + 1
    mapped = jax.vmap(lambda k: ons.filtered_softmax(x, top_k=k, temperature=of_rows))
    alone = [ons.filtered_softmax(x, top_k=each, temperature=of_rows) for each in k]
    assert same(jax.jit(mapped)(k), jnp.stack(alone))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 500), (3, 50257)])
def test_log_probabilities(shape, dtype):
    x = array(*shape, dtype=dtype)
    index = jax.random.randint(jax.random.key(2), shape[:1], 0, shape[1])
    call = functools.partial(ons.logprob, entropy=True, lse=True, argmax=True, rank=True)
    made, outside = jax.jit(call)(x, index), call(x, index)
    assert same(made[:3], outside[:3])
    assert np.array_equal(made.argmax, outside.argmax) and np.array_equal(made.rank, outside.rank)
    wrong = jax.jit(call)(x, index.at[0].set(shape[1]).at[1].set(-1))
    assert jnp.isnan(wrong.logprob[:2]).all() and (wrong.rank[:2] == -1).all()
    assert same((wrong.entropy, wrong.argmax, wrong.rank[2:]), (made.entropy, made.argmax, made.rank[2:]))

    def total(found):
        return found.logprob.sum() - 0.01 * found.entropy.sum() + found.lse.sum()

    def expected(x):
        logs = jax.nn.log_softmax(x.astype("float32"))
        chosen, entropy = jnp.take_along_axis(logs, index[:, None], -1), -(jnp.exp(logs) * logs).sum()
        return chosen.sum() - 0.01 * entropy + jax.nn.logsumexp(x.astype("float32"), -1).sum()

    gradient = jax.grad(lambda x: total(call(x, index)))
    assert_near(jax.jit(gradient)(x), jax.grad(expected)(x), 1e-2 if x.dtype != "float32" else 1e-5)
    mapped = jax.vmap(jax.grad(lambda x, index: total(call(x, index))))(x, index)
    assert same(jax.jit(gradient)(x), mapped)


CUT = """
import jax, jax.numpy as jnp, numpy as np, onsoftmax as ons
from onsoftmax import jax as ons_jax
P = jax.sharding.PartitionSpec
x = 3 * jax.random.normal(jax.random.key(0), (64, 4000))
results = []
for devices in {1, len(jax.devices("gpu"))}:
    mesh = jax.sharding.Mesh(np.array(jax.devices("gpu")[:devices]), ("i",))
    specs = {"mesh": mesh, "in_specs": P(None, "i"), "out_specs": P(None, "i")}
    for name in ("softmax", "log_softmax"):
        f, theirs = getattr(ons_jax, name), getattr(jax.nn, name)
        f = jax.shard_map(lambda x, f=f: f(x, axis_name="i"), **specs)
        np.testing.assert_allclose(jax.jit(f)(x), theirs(x), 2e-5, 1e-30)
        made = jax.jit(jax.grad(lambda x: jnp.sin(f(x)).sum()))(x)
        np.testing.assert_allclose(made, jax.grad(lambda x: jnp.sin(theirs(x)).sum())(x), 1e-4, 1e-5)
        results.append((name, np.asarray(jax.jit(f)(x))))
    specs["out_specs"] = P()
    f = jax.shard_map(lambda x: jax.lax.pmean(ons_jax.logsumexp(x, axis_name="i"), "i"), **specs)
    np.testing.assert_allclose(jax.jit(f)(x), jax.nn.logsumexp(x, -1), 1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: f(x).sum()))(x), jax.nn.softmax(x), 2e-5, 1e-30)
for name, y in results:
    assert np.array_equal(y, dict(results)[name]), name
print(len(jax.devices("gpu")))
"""


def test_rows_cut_over_devices():
    """The states are added up, merged and finished on the GPU, or on several if there are any."""
    done = run_python(["-c", CUT], XLA_PYTHON_CLIENT_PREALLOCATE="false")
    assert done.returncode == 0, done.stderr
