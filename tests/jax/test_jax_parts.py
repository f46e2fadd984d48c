"""Arrays on several devices inside jax.shard_map: whole rows, and rows that are cut."""

import pytest
from support import run_python

pytest.importorskip("jax")

START = """
import functools, jax, jax.numpy as jnp, numpy as np, onsoftmax as ons, pytest
from onsoftmax import _core, jax as ons_jax
P = jax.sharding.PartitionSpec
x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 24), dtype=np.float32) * 3)
weights = jnp.asarray(np.random.default_rng(1).standard_normal((8, 24), dtype=np.float32))

def mesh(devices):
    return jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("i",))

def near(a, b):
    np.testing.assert_allclose(np.float64(a), np.float64(b), 1e-5, 1e-5)

def parts(function, devices, axis=-1, check=True, out=True):
    spec = P(*["i" if i == axis % x.ndim else None for i in range(x.ndim)])
    specs = {"in_specs": spec, "out_specs": spec if out else P(), "check_vma": check}
    return jax.jit(jax.shard_map(function, mesh=mesh(devices), **specs))
"""

WHOLE = """
scale, mask, specs = jnp.float32(0.5), x[0] > -3, (P("i"), P(), P())
for name, check in (("softmax", True), ("log_softmax", False), ("logsumexp", True)):
    def whole(x, scale, mask, function=getattr(ons, name)):
        return function(x, scale=scale, where=mask)
    def loss(x, scale, function):
        return jnp.sin(function(x, scale, mask if name != "log_softmax" else mask | True)).sum()
    right = jax.grad(loss, (0, 1))(x, scale, whole)
    cut = jax.shard_map(whole, mesh=mesh(4), in_specs=specs, out_specs=P("i"), check_vma=check)
    assert np.array_equal(jax.jit(cut)(x, scale, mask), whole(x, scale, mask)), name
    for made, expected in zip(jax.jit(jax.grad(lambda *a: loss(*a, cut), (0, 1)))(x, scale), right):
        near(made, expected)
# the loss of rows that are cut over devices
target, weight = jnp.arange(8) * 3 % 24, jnp.abs(weights[0])
of_rows = functools.partial(ons.cross_entropy, reduction="none")
for check in (True, False):
    cut = jax.shard_map(
        lambda x, target, weight: of_rows(x, target, weight=weight),
        mesh=mesh(4), in_specs=(P("i"), P("i"), P()), out_specs=P("i"), check_vma=check,
    )
    assert np.array_equal(jax.jit(cut)(x, target, weight), of_rows(x, target, weight=weight))
    made = jax.jit(jax.grad(lambda x: cut(x, target, weight).sum()))(x)
    near(made, ons.cross_entropy_with_grad(x, target, weight=weight, reduction="sum")[1])
    # and their log-probabilities
    def reals(x, target):
        return jnp.stack(ons.logprob(x, target, entropy=True, lse=True)[:3], -1)
    cut = jax.shard_map(
        reals, mesh=mesh(4), in_specs=(P("i"), P("i")), out_specs=P("i"), check_vma=check
    )
    assert np.array_equal(jax.jit(cut)(x, target), reals(x, target))
    made, right = (jax.jit(jax.grad(lambda x: jnp.sin(f(x, target)).sum()))(x) for f in (cut, reals))
    assert np.array_equal(made, right)
    # and their tokens: each device counts its own rows
    def drawn(x, seed, offset):
        return ons.sample(x, seed=seed, offset=offset, top_p=0.9, return_logprob=True, return_valid=True)
    specs = (P("i"), P("i"), P())
    cut = jax.jit(jax.shard_map(drawn, mesh=mesh(4), in_specs=specs, out_specs=P("i"), check_vma=check))
    for made, right in zip(cut(x, target, 5), drawn(x, target, 5)):
        assert np.array_equal(made, right)
    def shared(x, offset):
        return drawn(x, 7, offset)
    specs = (P(), P("i"))
    same = jax.shard_map(shared, mesh=mesh(4), in_specs=specs, out_specs=P("i"), check_vma=check)
    for made, *right in zip(same(x, jnp.arange(4)), *(drawn(x, 7, i) for i in range(4))):
        assert np.array_equal(made, jnp.concatenate(right))
    # and their filtered probabilities, whose filters each device has for its own rows
    def kept(x, k, temperature):
        return ons.filtered_softmax(x, top_k=k, temperature=temperature)
    def loss(x, f):
        return jnp.sin(f(x, target, jnp.array([0.7]))).sum()
    specs = (P("i"), P("i"), P())
    cut = jax.shard_map(kept, mesh=mesh(4), in_specs=specs, out_specs=P("i"), check_vma=check)
    assert np.array_equal(jax.jit(cut)(x, target, jnp.array([0.7])), kept(x, target, jnp.array([0.7])))
    made, right = (jax.jit(jax.grad(functools.partial(loss, f=f)))(x) for f in (cut, kept))
    assert np.array_equal(made, right)
# XLA partitions the program by itself
spread = jax.device_put(x, jax.sharding.NamedSharding(mesh(4), P("i")))
for function in (ons.softmax, functools.partial(ons.sample, seed=3)):
    assert np.array_equal(jax.jit(function)(spread), function(x))
if hasattr(jax, "set_mesh"):  # from JAX 0.8 on
    # shardings in types
    explicit = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(explicit):
        spread = jax.device_put(x, jax.sharding.NamedSharding(explicit, P("i")))
        for function in (ons.softmax, ons.logsumexp, functools.partial(ons.sample, seed=3)):
            assert np.array_equal(jax.jit(function)(spread), function(x))
"""

CUT = """
def pairs_of(x, axis):
    return _core.merge(_core.sums(np.asarray(x), axis)[None], 0, gives="pair")

for name, axis, dtype, devices in (
    ("softmax", -1, "float32", 1),
    ("softmax", -1, "float32", 4),
    ("log_softmax", -1, "float32", 2),
    ("log_softmax", 0, "bfloat16", 4),
):
    y = x.astype(dtype)
    f = parts(lambda y: getattr(ons_jax, name)(y, axis, axis_name="i"), devices, axis)
    right = _core.finish(np.asarray(y), axis, pairs=pairs_of(y, axis), operation=name)
    assert np.array_equal(np.asarray(f(y)), right), (name, axis, devices)
for devices, check, name in ((4, True, "softmax"), (2, False, "log_softmax")):
    def values(x):
        y = ons_jax.logsumexp(x, axis_name="i")
        return jax.lax.pmean(y, "i") if check else y
    f = parts(values, devices, check=check, out=False)
    right = _core.finish(np.asarray(x)[:, :0], pairs=pairs_of(x, -1), operation="logsumexp")
    assert np.array_equal(f(x), right)
    made = jax.jit(jax.grad(lambda x: jnp.sin(f(x)).sum()))(x)
    near(made, jax.grad(lambda x: jnp.sin(jax.nn.logsumexp(x, -1)).sum())(x))
    f = parts(lambda x: getattr(ons_jax, name)(x, axis_name="i"), devices, check=check)
    made = jax.jit(jax.grad(lambda x: (jnp.sin(f(x)) * weights).sum()))(x)
    near(made, jax.grad(lambda x: (jnp.sin(getattr(jax.nn, name)(x)) * weights).sum())(x))
f = parts(jax.vmap(lambda row: ons_jax.softmax(row, axis_name="i")), 4)
assert np.array_equal(f(x), _core.finish(np.asarray(x), pairs=pairs_of(x, -1)))
near(jax.grad(lambda x: jnp.sin(f(x)).sum())(x), jax.grad(lambda x: jnp.sin(jax.nn.softmax(x)).sum())(x))
# the same on each device, as parts of rows four times as long
same = jax.shard_map(
    lambda x: ons_jax.logsumexp(x, axis_name="i")[None], mesh=mesh(4), in_specs=P(), out_specs=P("i")
)
near(jax.jit(same)(x)[3], jax.nn.logsumexp(jnp.concatenate([x] * 4, 1), 1))
made = jax.jit(jax.grad(lambda x: same(x)[2].sum()))(x)
near(made, jax.grad(lambda x: jax.nn.logsumexp(jnp.concatenate([x] * 4, 1), 1).sum())(x))
both = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("d", "m"))
for name, spec in (("m", P("d", "m")), (("d", "m"), P(None, ("d", "m")))):
    f = jax.shard_map(lambda x: ons_jax.softmax(x, axis_name=name), mesh=both, in_specs=spec, out_specs=spec)
    assert np.array_equal(jax.jit(f)(x), _core.finish(np.asarray(x), pairs=pairs_of(x, -1)))
    made = jax.jit(jax.grad(lambda x: jnp.sin(f(x)).sum()))(x)
    near(made, jax.grad(lambda x: jnp.sin(jax.nn.softmax(x)).sum())(x))
for given in ({"where": x > 0}, {"scale": 2.0}, {"method": "safe"}, {"axis": None}, {"axis": ()}):
    with pytest.raises(ValueError, match="axis_name is given"):
        ons_jax.softmax(x, axis_name="i", **given)
with pytest.raises(ValueError, match="axis_name is given"):
    ons_jax.logsumexp(jnp.float32(0), axis_name="i")
with pytest.raises(NameError, match="nowhere"):
    ons_jax.softmax(x, axis_name="nowhere")
jax.config.update("jax_enable_x64", True)
x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 24)))
f = parts(lambda x: ons_jax.softmax(x, axis_name="i"), 4)
assert np.array_equal(f(x), _core.finish(np.asarray(x), pairs=pairs_of(x, -1))) and f(x).dtype == "float64"
made = jax.jit(jax.grad(lambda x: jnp.sin(f(x)).sum()))(x)
np.testing.assert_allclose(made, jax.grad(lambda x: jnp.sin(jax.nn.softmax(x)).sum())(x), 1e-12, 1e-14)
"""


def test_shard_map():
    done = run_python(
        ["-c", START + WHOLE + CUT],
        XLA_FLAGS="--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0",
        JAX_PLATFORMS="cpu",
    )
    assert done.returncode == 0, done.stderr
