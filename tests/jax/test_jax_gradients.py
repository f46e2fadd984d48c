"""The operations inside jax.grad, jax.vmap, loops and checkpoints, on the CPU."""

import functools

import pytest

import onsoftmax as ons

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax_checks import MASK, ROWS, WEIGHTS, X, assert_near, ours, plain, same  # noqa: E402

# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize(
    ("operation", "axis", "masked"),
    [("softmax", -1, True), ("log_softmax", (0, 2), True), ("logsumexp", 0, True), ("softmax", None, False)],
)
def test_gradients(operation, axis, masked):
    """First and second derivatives for the array and for a scale, against JAX's own derivatives."""
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


def test_gradients_have_the_type_of_the_array(dtype="bfloat16"):
    x = jnp.asarray(X).astype(dtype)
    for given in ({}, {"dtype": "float32"}, {"scale": jnp.full((3, 4, 1), 0.5)}):
        for operation in ROWS:
            function = functools.partial(getattr(ons, operation), **given)
            made = jax.jit(jax.grad(lambda x, f=function: (f(x) * WEIGHTS).astype("float32").sum()))(x)
            scale = given.get("scale", 1)
            right = jax.grad(lambda x, o=operation, s=scale: (plain(o, x, scale=s) * WEIGHTS).sum())
            right = jax.jit(right)(x.astype("float32"))
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
    """vmap over the array, a mask and a scale, each mapped or not, along any dimension."""
    x, mask, scale = jnp.asarray(X), jnp.asarray(MASK), jnp.float32([1, 2, 0.5])
    for operation in ("softmax", "logsumexp"):
        function = getattr(ons, operation)

        def one(x, mask, scale, function=function):
            return function(x, axis, where=mask, scale=scale)

        for dims in (
            (0, 0, 0),
            (0, None, None),
            (None, 0, None),
            (None, None, 0),
            (0, None, 0),
            (None, 0, 0),
        ):
            given = [a if dim == 0 else a[0] for a, dim in zip((x, mask, scale), dims, strict=True)]
            each = [
                a if dim == 0 else jnp.broadcast_to(a, (3, *a.shape))
                for a, dim in zip(given, dims, strict=True)
            ]
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
    alone = jax.jit(jax.grad(loss))
    right = jnp.stack([alone(each, scale) for each in x])
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

    right = jax.jit(jax.grad(lambda x: jnp.sin(plain("softmax", x)).sum()))(x)
    assert_near(jax.jit(jax.grad(loss))(x), right)
    assert_near(jax.jit(jax.grad(jax.checkpoint(lambda x: jnp.sin(ons.softmax(x)).sum())))(x), right)
    assert same(jax.lax.map(ons.log_softmax, x), ons.log_softmax(x))
    assert (
        jax.eval_shape(ons.softmax, jax.ShapeDtypeStruct((1 << 20, 1 << 20), "float16")).shape
        == (1 << 20,) * 2
    )


def test_vmap_of_a_scale_alone():
    scale = jnp.float32([0.5, 2])
    right = jnp.stack([ons.softmax(jnp.asarray(X), scale=each) for each in scale])
    assert same(jax.vmap(lambda s: ons.softmax(X, scale=s))(scale), right)


def test_invariant_counts_for_the_backward_step():
    """Another method's name counts for the forward step alone."""
    for call, steps in (
        (ons.softmax, 2),
        (ons.log_softmax, 2),
        (ons.logsumexp, 2),
        (lambda x, **how: ons.softmax_topk(x, 2, **how).values, 3),
    ):
        for method, count in (("invariant", steps), ("split", 1)):
            program = jax.make_jaxpr(jax.grad(lambda x, f=call, m=method: f(x, method=m).sum()))(X[0, 0])
            assert str(program).count(method) == count, (method, program)
