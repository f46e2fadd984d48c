"""softmax_backward and log_softmax_backward: every instruction set, torch's autograd, finite differences, and
errors."""

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support import isas, run_python

import onsoftmax as ons

PAIRS = ((ons.softmax, ons.softmax_backward), (ons.log_softmax, ons.log_softmax_backward))
each_pair = pytest.mark.parametrize(("forward", "backward"), PAIRS, ids=["softmax", "log_softmax"])


CHECKS = ["lengths", "places", "edges", "cancelling", "overflowing", "subnormal", "guard"]


@pytest.mark.timeout(300)  # the sanitizers make the checks ten times slower
@pytest.mark.parametrize("isa", isas())
def test_on_every_instruction_set(isa):
    done = run_python(["gradient_checks.py", *CHECKS], ONSOFTMAX_ISA=isa)
    assert done.returncode == 0, done.stderr[-2000:]


@each_pair
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=40),
        elements=st.floats(-50, 50, width=32),
    ),
    st.data(),
)
def test_any_array(forward, backward, x, data):
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    elements = st.floats(-(2.0**30), 2.0**30, width=32)
    grad = data.draw(hnp.arrays(x.dtype, x.shape, elements=elements))
    where = data.draw(st.none() | hnp.arrays(np.bool_, x.shape))
    scale = data.draw(st.sampled_from([1.0, -0.25, 3.0]))
    output = forward(x, axis, where=where, scale=scale)
    dx = backward(grad, output, axis, where=where, scale=scale)
    exact = oracle.gradient(backward.__name__, grad, output, axis, where, scale)
    assert not oracle.far_from_gradient(dx, *exact, oracle.compute_type(x.dtype)).any()


@each_pair
def test_finite_differences(forward, backward):
    rng = np.random.default_rng(0)
    x, grad = rng.standard_normal((2, 6)), rng.standard_normal((2, 6))
    dx = backward(grad, forward(x, scale=0.7), scale=0.7)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-5
        above, below = forward(x + step, scale=0.7), forward(x - step, scale=0.7)
        assert abs((grad * (above - below)).sum() / 2e-5 - dx[i]) < 1e-8


@each_pair
def test_autograd(forward, backward):
    torch = pytest.importorskip("torch")
    for shape, axis in (((5, 70), -1), ((70, 5), 0), ((3, 4, 5), 1)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        grad = torch.randn(shape, dtype=torch.float64)
        output = getattr(torch, forward.__name__)(x, axis)
        output.backward(grad)
        dx = backward(grad, output.detach(), axis)
        assert isinstance(dx, torch.Tensor)
        torch.testing.assert_close(dx, x.grad, rtol=1e-13, atol=1e-14)
        expanded = torch.ones((), dtype=torch.float64).expand(shape)
        again = backward(expanded, output.detach(), axis)
        torch.testing.assert_close(again, backward(torch.ones_like(grad), output.detach(), axis))


def test_the_gradient_of_a_row_of_minus_infinity_is_nan():
    """softmax's result is NaN too. With `where`, such a row gives 0."""
    x = np.array([[-np.inf, -np.inf], [0.0, 1.0]])
    where = np.isfinite(x)
    for forward, backward in PAIRS:
        grad = np.array([[np.nan, 1.0], [1.0, 0.0]])
        assert np.isnan(backward(np.ones_like(x), forward(x))[0]).all()
        dx = backward(grad, forward(x, where=where), where=where)
        assert (dx[0] == 0).all() and np.isfinite(dx).all()


@each_pair
def test_what_is_refused(forward, backward):
    name = backward.__name__
    y = np.ones((2, 3))
    with pytest.raises(TypeError, match=rf"{name}\(\) needs grad and output as its first two arguments"):
        backward(y)
    with pytest.raises(TypeError, match="4 values"):
        backward(y, y, 0, 1)
    with pytest.raises(ValueError, match=r"grad has shape \(3,\): expected \(2, 3\)"):
        backward(np.ones(3), y)
    for method in ("naive", "safe"):
        names = "use one of auto, invariant, online, fused, split"
        with pytest.raises(ValueError, match=rf"method '{method}' cannot compute {name}: {names}"):
            backward(y, y, method=method)
    with pytest.raises(ValueError, match="method 'cluster' runs only on CUDA arrays"):
        backward(y, y, method="cluster")
    with pytest.raises(ValueError, match="out has shape"):
        backward(y, y, out=np.ones(3))
    with pytest.raises(TypeError, match="complex"):
        backward(y * 1j, y)
    with pytest.raises(ValueError, match=r"finish\(\) does no softmax_backward, which takes no pairs"):
        ons._core.finish(y, pairs=np.ones((2, 2)), operation="softmax_backward")


def test_plans():
    plan = ons.plan((64, 1000), operation="softmax_backward")
    assert plan.operation == "softmax_backward" and plan.method == "fused"
    assert plan.bytes_moved == 3 * 64 * 1000 * 4
    assert ons.plan((4, 1 << 24), operation="log_softmax_backward", num_threads=1).method == "online"
    for device in ("H200", "A100"):
        for N, method in ((100, "fused_warp"), (4096, "fused_block"), (1 << 22, "split")):
            plan = ons.plan((64, N), operation="softmax_backward", device=device)
            assert plan.method == method
    assert ons.plan((64, 100_000), operation="softmax_backward", device="H200").method == "cluster"
    assert ons.plan((64, 100_000), operation="softmax_backward", device="A100").method == "split"


def test_bits_do_not_depend_on_other_rows():
    rng = np.random.default_rng(0)
    for N in (5, 100, 3000, 70_000):
        output, grad = ons.softmax(rng.standard_normal((9, N))), rng.standard_normal((9, N))
        dx = ons.softmax_backward(grad, output)
        for i in range(9):
            assert np.array_equal(ons.softmax_backward(grad[i], output[i]), dx[i])
            assert np.array_equal(ons.softmax_backward(grad[i], output[i], num_threads=1), dx[i])
