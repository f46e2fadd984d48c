"""softmax_topk on every instruction set, beside an exact one and torch, and its errors."""

import itertools
import pickle

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support import isas, run_python, same_bits

import onsoftmax as ons

CHECKS = ["lengths", "many", "rows", "places", "masks", "edges", "guard"]


@pytest.mark.timeout(300)  # the sanitizers make the checks ten times slower
@pytest.mark.parametrize("isa", isas())
def test_on_every_instruction_set(isa):
    done = run_python(["topk_checks.py", *CHECKS], ONSOFTMAX_ISA=isa)
    assert done.returncode == 0, done.stderr[-2000:]


@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=40),
        elements=st.floats(-8, 8, width=16) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0]),
    ),
    st.data(),
)
def test_any_array(x, data):
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    k = data.draw(st.integers(1, x.shape[axis]))
    where = data.draw(st.none() | hnp.arrays(np.bool_, x.shape))
    scale = data.draw(st.sampled_from([1.0, -0.25, 3.0, 0.0]))
    values, indices = ons.softmax_topk(x, k, axis, where=where, scale=scale)
    assert np.array_equal(indices, oracle.topk(x, k, axis, where, scale))
    whole = ons.softmax(x, axis, where=where, scale=scale, method="online")
    assert same_bits(values, np.take_along_axis(whole, indices, axis))


def test_result_is_a_named_tuple():
    found = ons.softmax_topk([[1.0, 3.0, 2.0]], 2)
    assert type(found) is ons.TopK and found._fields == ("values", "indices")
    assert found.indices.tolist() == [[1, 2]] and found.values.dtype == np.float64
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is ons.TopK and again.indices.tolist() == [[1, 2]]
    found = ons.softmax_topk([[1, 3, 2]], 2, log=True, return_normalizer=True)
    assert type(found) is ons.TopKWithNormalizer
    assert type(found.normalizer) is ons.Normalizer and found.normalizer.m == 3
    assert found.normalizer.dtype == "float64" and found.normalizer.shape == (1,)
    assert same_bits(found.values, ons.log_softmax([[1.0, 3.0, 2.0]], method="online")[:, 1:])
    value, index = ons.softmax_topk(5.0, 1)
    assert (value, index) == (1.0, 0) and isinstance(index, np.int64)
    x = np.ones((2, 3, 4), np.float32)
    assert ons.softmax_topk(x, np.int8(2), (1,)).values.shape == (2, 2, 4)
    assert ons.softmax_topk(x, 2, 0).indices.shape == (2, 3, 4)
    assert ons.softmax_topk(x, 2, dtype="float16").values.dtype == np.float16


def test_results_have_the_arrays_memory_order():
    x = np.random.default_rng(8).standard_normal((4, 6, 5))
    for order in itertools.permutations(range(3)):
        laid = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        for axis in range(3):
            found, wanted = ons.softmax_topk(laid, 2, axis), ons.softmax_topk(x, 2, axis)
            for array in found:
                assert array.strides == np.empty_like(laid, shape=array.shape).strides
            assert same_bits(found.values, wanted.values) and (found.indices == wanted.indices).all()


def test_torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.randn(5, 300, dtype=dtype)
        for k, axis in ((7, -1), (3, 0), (300, 1)):
            values, indices = ons.softmax_topk(x, k, axis)
            assert indices.dtype == torch.int64 and values.dtype == dtype
            assert values.shape == indices.shape == torch.topk(x, k, axis).values.shape
            assert torch.equal(torch.gather(x, axis, indices), torch.topk(x, k, axis).values)
            assert torch.equal(values, torch.gather(ons.softmax(x, axis, method="online"), axis, indices))
    found = ons.softmax_topk(torch.tensor([1, 2, 2, 0]), 3, return_normalizer=True)
    assert found.indices.tolist() == [1, 2, 0] and found.normalizer.packed.dtype == torch.float64
    with pytest.raises(TypeError, match="k is"):
        ons.softmax_topk(torch.ones(3), 1.0)


def test_jax():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((4, 50)), dtype="float32")
    values, indices = ons.softmax_topk(x, 5)
    assert isinstance(indices, jax.Array)
    assert indices.dtype == ("int64" if jax.config.jax_enable_x64 else "int32")
    assert np.array_equal(indices, np.asarray(jax.lax.top_k(x, 5)[1]))
    np.testing.assert_allclose(values, jax.lax.top_k(jax.nn.softmax(x), 5)[0], rtol=1e-6)


def test_what_is_refused():
    x = np.ones((2, 3))
    for k in (0, -1, 4, 10**30):
        with pytest.raises(ValueError, match=rf"k is {k}: expected 1 to 3, the length of axis 1"):
            ons.softmax_topk(x, k)
    with pytest.raises(ValueError, match="k is 3: expected 1 to 2, the length of axis 0"):
        ons.softmax_topk(x, 3, 0)
    with pytest.raises(ValueError, match="k is 1, and axis 1 has length 0"):
        ons.softmax_topk(np.ones((2, 0)), 1)
    for k in (True, 2.0, None, "2"):
        with pytest.raises(TypeError, match=r"k is .*: expected an int of at least 1"):
            ons.softmax_topk(x, k)
    with pytest.raises(TypeError, match="axis is None: expected one axis"):
        ons.softmax_topk(x, 1, None)
    for axis in ((0, 1), ()):
        with pytest.raises(ValueError, match=r"axis is \(.*\): expected one axis"):
            ons.softmax_topk(x, 1, axis)
    with pytest.raises(IndexError, match="axis 2 is out of bounds"):
        ons.softmax_topk(x, 1, 2)
    for method in ("naive", "safe", "fused"):
        with pytest.raises(
            ValueError,
            match=rf"'{method}' cannot compute softmax_topk.*: use one of auto, invariant, online, split$",
        ):
            ons.softmax_topk(x, 1, method=method)
    with pytest.raises(
        TypeError, match=r"softmax_topk\(\) takes an array, k and an axis by position, but 4 values"
    ):
        ons.softmax_topk(x, 1, 0, 2)
    with pytest.raises(TypeError, match=r"softmax_topk\(\) needs k as its second argument"):
        ons.softmax_topk(x)
    with pytest.raises(TypeError, match="multiple values for argument 'k'"):
        ons.softmax_topk(x, 1, k=2)
    with pytest.raises(TypeError, match="k is None: expected an int"):
        ons.softmax_topk(x, None)
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        ons.softmax_topk(x, 1, out=x)
    with pytest.raises(TypeError, match="dtype is int64"):
        ons.softmax_topk(x, 1, dtype=np.int64)
    with pytest.raises(ValueError, match=r"finish\(\) does no softmax_topk, which takes no pairs"):
        ons._core.finish(x, pairs=np.ones((2, 2)), operation="softmax_topk")


def test_plans():
    plan = ons.plan((64, 1000), operation="softmax_topk", k=5)
    assert (plan.operation, plan.k, plan.method, plan.measured) == ("softmax_topk", 5, "online", "")
    assert plan.bytes_moved == 64 * (1000 * 4 + 5 * (4 + 8))
    assert "softmax_topk of k = 5" in str(plan)
    assert ons.plan((64, 1000)).k is None
    x = np.ones((6, 7), np.float32)
    assert ons.plan(x, 0, operation="softmax_topk", k=6, dtype="float64").bytes_moved == 7 * (6 * 4 + 6 * 16)
    with pytest.raises(TypeError, match=r"plan\(\) of softmax_topk needs k"):
        ons.plan(x, operation="softmax_topk")
    with pytest.raises(TypeError, match=r"plan\(\) of softmax takes no k"):
        ons.plan(x, k=1)
    with pytest.raises(ValueError, match="k is 8: expected 1 to 7"):
        ons.plan(x, operation="softmax_topk", k=8)
    with pytest.raises(TypeError, match="axis is None"):
        ons.plan(x, None, operation="softmax_topk", k=1)


@pytest.mark.parametrize("scale", [3.7, np.array([[3.7], [-0.3]])])
def test_the_normalizer_of_a_wider_result_has_the_products_of_the_rows(scale):
    x = (2700 + 0.03 * np.random.default_rng(6).standard_normal((2, 500))).astype(np.float32)
    where = x < 2700.1
    found = ons.softmax_topk(x, 5, dtype="float64", scale=scale, where=where, return_normalizer=True)
    row = ons.normalizer(x, scale=scale, where=where)
    assert found.normalizer.dtype == "float32" and found.values.dtype == np.float64
    assert np.array_equal(found.normalizer.packed, row.packed)
    sums = found.normalizer.softmax(x, where=where).sum(axis=1, dtype=float)
    np.testing.assert_allclose(sums, 1, rtol=1e-6)
