"""log_softmax and logsumexp on every instruction set, and the texts about operations."""

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support import isas, run_python

import onsoftmax as ons


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize(
    "checks",
    ["lengths places edges guard", pytest.param("many_lengths", marks=pytest.mark.long("lengths"))],
)
def test_on_every_instruction_set(checks, isa):
    done = run_python(["operation_checks.py", *checks.split()], ONSOFTMAX_ISA=isa)
    assert done.returncode == 0, done.stderr[-2000:]


def test_naive_is_the_formula():
    x = np.array([2.0, 4.0, 12.0], np.float16)
    assert np.isinf(ons.logsumexp(x, method="naive")) and np.isinf(ons.log_softmax(x, method="naive")).all()
    x = np.array([[0.5, 1.0, -2.0], [3.0, 3.0, 3.0]])
    total = np.log(np.exp(x).sum(1, keepdims=True))
    np.testing.assert_allclose(ons.log_softmax(x, method="naive"), x - total, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(ons.logsumexp(x, method="naive"), total[:, 0], rtol=1e-14)


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=40),
        elements=st.floats(-1e4, 1e4, width=32),
    ),
    st.data(),
)
def test_any_array(x, data):
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    compute = oracle.compute_type(x.dtype)
    assert not oracle.far_from(ons.log_softmax(x, axis), oracle.log_softmax(x, axis), compute).any()
    assert not oracle.far_from(ons.logsumexp(x, axis), oracle.logsumexp(x, axis), compute).any()


def test_kinds_of_results():
    assert isinstance(ons.logsumexp([1.0, 2.0]), np.float64) and isinstance(ons.logsumexp(3), np.float64)
    assert ons.logsumexp(np.float32([[1, 2]])).dtype == np.float32
    assert isinstance(ons.logsumexp(np.ones((2, 3)), None), np.float64)
    kept = ons.logsumexp(np.ones((2, 3)), None, keepdims=True)
    assert isinstance(kept, np.ndarray) and kept.shape == (1, 1)
    assert ons.logsumexp(np.ones((2, 3)), ()).shape == (2, 3)
    assert ons.logsumexp(np.arange(6).reshape(2, 3), 0).dtype == np.float64


def test_torch():
    torch = pytest.importorskip("torch")
    x = torch.randn(5, 70, 9)
    for dim in (-1, 0, 1):
        torch.testing.assert_close(ons.log_softmax(x, dim), torch.log_softmax(x, dim))
        for keepdims in (False, True):
            y = ons.logsumexp(x, dim, keepdims=keepdims)
            torch.testing.assert_close(y, torch.logsumexp(x, dim, keepdims))
    whole = ons.logsumexp(x, None)
    assert isinstance(whole, torch.Tensor) and whole.shape == ()
    half = ons.logsumexp(x.bfloat16())
    assert half.dtype == torch.bfloat16 and half.shape == (5, 70)
    assert ons.logsumexp(torch.empty(3, 0)).tolist() == [-np.inf] * 3


def test_jax():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((5, 70), np.float32))
    y = ons.logsumexp(x)
    assert isinstance(y, jax.Array) and y.shape == (5,)
    np.testing.assert_allclose(y, jax.nn.logsumexp(x, -1), rtol=1e-6)
    np.testing.assert_allclose(ons.log_softmax(x), jax.nn.log_softmax(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"dtype": "float32"}, TypeError, r"logsumexp\(\) got an unexpected keyword argument 'dtype'"),
        ({"out": np.ones(2)}, TypeError, r"logsumexp\(\) got an unexpected keyword argument 'out'"),
        ({"method": "cluster"}, ValueError, "runs only on CUDA arrays"),
        ({"axis": 2}, np.exceptions.AxisError, "axis 2 is out of bounds"),
    ],
)
def test_errors(keywords, error, words):
    with pytest.raises(error, match=words):
        ons.logsumexp(np.ones((2, 3)), **keywords)


def test_log_softmax_has_no_keepdims():
    with pytest.raises(TypeError, match=r"log_softmax\(\) got an unexpected keyword argument 'keepdims'"):
        ons.log_softmax(np.ones(3), keepdims=True)


def test_plans():
    plan = ons.plan((64, 1000), operation="logsumexp")
    assert plan.operation == "logsumexp" and plan.method == "online" and plan.bytes_moved == 64 * 4004
    assert ons.plan((64, 100), operation="logsumexp").method == "fused"
    assert "logsumexp in the row form" in str(plan)
    assert ons.plan((64, 1000), operation="log_softmax").method == ons.plan((64, 1000)).method == "fused"
    for shape in [(8192, 1000), (8192, 4096), (64, 128256), (4096, 65536), (1, 10**8)]:
        on_gpu = ons.plan(shape, device="cuda", operation="log_softmax")
        assert on_gpu.bytes_moved == on_gpu.rows * on_gpu.N * 8 * (1.5 if on_gpu.method == "split" else 1)
    chosen = {
        (8192, 1000): "fused_warp",
        (8192, 40000): "online",
        (8, 20000): "cluster",
        (8, 2000): "fused_block",
    }
    for shape, method in {**chosen, (8, 10**6): "split"}.items():
        on_gpu = ons.plan(shape, device="cuda", operation="logsumexp")
        assert on_gpu.method == method and on_gpu.bytes_moved == on_gpu.rows * (4 * on_gpu.N + 4)
    with pytest.raises(
        ValueError, match="operation is 'nonsense': expected one of softmax, log_softmax, logsumexp"
    ):
        ons.plan((2, 3), operation="nonsense")
