"""cross_entropy and its gradient: exact results, edges, errors."""

import loss_checks
import numpy as np
import pytest
from loss_checks import Terms
from support import BFLOAT16, DTYPES, isas, run_python

import onsoftmax as ons

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("isa", isas())
def test_random_losses(isa):
    done = run_python(["loss_checks.py"], ONSOFTMAX_ISA=isa)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_vocabulary(rng, threads):
    x = (3 * rng.standard_normal((5, 40001))).astype(np.float32)
    target = rng.integers(0, 40001, 5)
    for terms in (
        Terms(),
        Terms(label_smoothing=0.2, z_loss=1e-4),
        Terms(weight=rng.random(40001, np.float32)),
    ):
        made = ons.cross_entropy_with_grad(x, target, num_threads=threads, **terms.keywords())
        loss_checks.check(x, target, terms, "mean", *made, "float32")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_class_of_a_sure_row(dtype):
    """p is 0.999, and 1e-9. A gradient of 16 bits has its own digits, not those of a rounded p."""
    x = np.array([[7.0, 0.0, 0.1], [0.0, 20.7, 0.0]], dtype)
    target = np.array([0, 0])
    _, gradient = ons.cross_entropy_with_grad(x, target, reduction="none")
    wanted = loss_checks.expected(x, target, Terms()).gradient
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-15, "float64": 2.0**-44}[dtype.name]
    np.testing.assert_allclose(np.float64(gradient), np.float64(wanted), rtol=eps, atol=2.0**-25)


def test_a_common_offset_does_not_matter(rng):
    x = rng.integers(-40, 40, (4, 1000)).astype(np.float32) / 8
    target = rng.integers(0, 1000, 4)
    near, far = (ons.cross_entropy_with_grad(x + offset, target) for offset in (0, 2.0**17))
    np.testing.assert_allclose(far[0], near[0], rtol=3e-7)
    np.testing.assert_allclose(far[1], near[1], rtol=1e-6)


EDGES = {
    "a NaN": ([1.0, NAN, 2.0], 0, NAN, [NAN] * 3),
    "+inf": ([1.0, INF, 2.0], 0, NAN, [NAN] * 3),
    "+inf at the target": ([1.0, INF, 2.0], 1, NAN, [NAN] * 3),
    "-inf beside others": ([0.0, -INF, 0.0], 0, np.log(2), [-0.5, 0.0, 0.5]),
    "-inf at the target": ([0.0, -INF, 0.0], 1, INF, [0.5, -1.0, 0.5]),
    "nothing but -inf": ([-INF, -INF], 0, NAN, [NAN] * 2),
    "one element": ([5.0], 0, 0.0, [0.0]),
    "ignored": ([1.0, 2.0], -100, 0.0, [0.0, 0.0]),
    "ignored, with a NaN": ([NAN, 2.0], -100, 0.0, [0.0, 0.0]),
    "huge": ([3e38, -3e38], 1, INF, [1.0, -1.0]),
}


@pytest.mark.parametrize(("row", "target", "loss", "gradient"), EDGES.values(), ids=EDGES)
def test_edges(row, target, loss, gradient):
    x = np.array([row, row], np.float32)
    made = ons.cross_entropy_with_grad(x, np.full(2, target), reduction="none")
    np.testing.assert_array_equal(made[0], np.float32([loss] * 2))
    np.testing.assert_array_equal(made[1], np.float32([gradient] * 2))


def test_no_rows_and_no_elements():
    none = np.empty((0, 5), np.float32)
    loss, gradient = ons.cross_entropy_with_grad(none, np.empty(0, int))
    assert np.isnan(loss) and gradient.shape == (0, 5)
    assert ons.cross_entropy(none, np.empty(0, int), reduction="sum") == 0
    assert np.isnan(ons.cross_entropy(np.ones((3, 4), np.float32), np.full(3, -100)))
    _, gradient = ons.cross_entropy_with_grad(np.ones((3, 4), np.float32), np.full(3, -100))
    assert not gradient.any()
    loss, lse = ons.cross_entropy(np.empty((2, 0)), np.full(2, -100), reduction="none", return_lse=True)
    assert np.array_equal(loss, [0, 0]) and np.array_equal(lse, [-INF] * 2)


def test_results_have_the_kind_of_the_logits(rng):
    x, target = rng.standard_normal((2, 3, 4)).astype(np.float32), rng.integers(0, 4, (2, 3))
    loss, lse = ons.cross_entropy(x, target, return_lse=True)
    assert isinstance(loss, np.float32) and lse.shape == (2, 3)
    np.testing.assert_allclose(lse, ons.logsumexp(x), rtol=1e-6)
    loss, gradient, lse = ons.cross_entropy_with_grad(
        x.tolist(), target.tolist(), reduction="none", return_lse=True
    )
    assert loss.shape == lse.shape == (2, 3) and loss.dtype == gradient.dtype == lse.dtype == np.float64
    assert isinstance(ons.cross_entropy([1.0, 2.0], 1), np.float64)
    if BFLOAT16:
        loss, gradient = ons.cross_entropy_with_grad(x.astype(BFLOAT16), target)
        assert loss.dtype == np.float32 and gradient.dtype == BFLOAT16
    out = np.empty_like(x)
    assert ons.cross_entropy_with_grad(x, target, grad_out=out)[1] is out
    assert np.array_equal(out, ons.cross_entropy_with_grad(x, target)[1])
    overlapping = np.empty(25, np.float32)
    a, b = overlapping[:24].reshape(2, 3, 4), overlapping[1:].reshape(2, 3, 4)
    a[:] = x
    ons.cross_entropy_with_grad(a, target, grad_out=b)
    assert np.array_equal(b, out)


def test_inputs_that_the_gradient_is_written_over(rng):
    x, target = rng.standard_normal((3, 4)).astype(np.float32), np.array([0, 3, 2])
    memory = np.empty(20, np.float32)
    weight, out = memory[2:6], memory[:12].reshape(3, 4)
    weight[:] = [1, 2, 3, 4]
    terms = Terms(weight=weight.copy(), label_smoothing=0.1)
    made = ons.cross_entropy_with_grad(x, target, grad_out=out, weight=weight, label_smoothing=0.1)
    loss_checks.check(x, target, terms, "mean", *made, "float32")


def test_targets_of_any_kind():
    x = np.array([[1.0, 2.0, 4.0], [3.0, 1.0, 2.0]])
    wanted = ons.cross_entropy(x, [2, 1])
    for kind in (">i8", "<i4", "u1", "int16"):
        assert ons.cross_entropy(x, np.array([2, 1], kind)) == wanted
    assert ons.cross_entropy(x, np.array([2, 9, 1, 9])[::2]) == wanted
    with pytest.raises(TypeError, match="target is a masked array"):
        ons.cross_entropy(x, np.ma.masked_array([2, 1]))
    pandas = pytest.importorskip("pandas")
    assert ons.cross_entropy(x, pandas.Series([2, 1])) == wanted


def test_smoothing_with_an_impossible_class():
    """As torch: the smoothed target gives every class a share."""
    x = np.array([[0.0, -INF, 1.0]])
    assert ons.cross_entropy(x, [0], label_smoothing=0.1) == INF


X, T = np.ones((2, 3), np.float32), np.array([0, 1])
ERRORS = {
    "class": (
        lambda: ons.cross_entropy(X, [0, 3]),
        IndexError,
        "target 3 of row 1 is no class: expected 0 to 2",
    ),
    "negative": (lambda: ons.cross_entropy(X, [-1, 0]), IndexError, "target -1 of row 0"),
    "shape": (
        lambda: ons.cross_entropy(X, [0, 1, 2]),
        ValueError,
        r"target has shape \(3,\): expected \(2,\)",
    ),
    "floats": (
        lambda: ons.cross_entropy(X, [0.0, 1.0]),
        TypeError,
        "target has dtype float64: expected the indices",
    ),
    "reduction": (
        lambda: ons.cross_entropy(X, T, reduction="avg"),
        ValueError,
        "reduction is 'avg': expected 'none'",
    ),
    "smoothing": (
        lambda: ons.cross_entropy(X, T, label_smoothing=1.5),
        ValueError,
        "label_smoothing is 1.5: expected",
    ),
    "z_loss": (
        lambda: ons.cross_entropy(X, T, z_loss=NAN),
        ValueError,
        "z_loss is nan: expected a finite number",
    ),
    "weight": (
        lambda: ons.cross_entropy(X, T, weight=[1, 2]),
        ValueError,
        r"weight has shape \(2,\): expected \(3,\)",
    ),
    "axis": (lambda: ons.cross_entropy(X, T, 2), np.exceptions.AxisError, "axis 2"),
    "no dimension": (lambda: ons.cross_entropy(1.0, 0), ValueError, r"logits has shape \(\)"),
    "out's shape": (
        lambda: ons.cross_entropy_with_grad(X, T, grad_out=X[0]),
        ValueError,
        "grad_out has shape",
    ),
    "out's type": (
        lambda: ons.cross_entropy_with_grad(X, T, grad_out=np.ones((2, 3))),
        ValueError,
        "grad_out has dtype",
    ),
    "read-only": (
        lambda: ons.cross_entropy_with_grad(X, T, grad_out=np.broadcast_to(np.float32(1), (2, 3))),
        ValueError,
        "read-only",
    ),
    "stream": (
        lambda: ons.cross_entropy(X, T, stream=0),
        ValueError,
        "stream is given, but the array is on the CPU",
    ),
    "complex": (lambda: ons.cross_entropy(X.astype(complex), T), TypeError, "complex"),
}


@pytest.mark.parametrize(("call", "error", "text"), ERRORS.values(), ids=ERRORS)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_jax_arrays():
    jax = pytest.importorskip("jax")
    x, target = jax.numpy.asarray([[1.0, 2.0, 3.0]]), jax.numpy.asarray([2])
    loss, gradient = ons.cross_entropy_with_grad(x, target)
    assert isinstance(loss, jax.Array) and isinstance(gradient, jax.Array)
    np.testing.assert_allclose(loss, 0.4076, atol=1e-4)
    np.testing.assert_allclose(gradient, [[0.0900, 0.2447, -0.3348]], atol=1e-4)
