"""kl_divergence, js_divergence and their gradients: exact results, edges, errors."""

import divergence_checks
import numpy as np
import pytest
from divergence_checks import call, check, random_rows
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy
from support import BFLOAT16, DTYPES, isas, run_python

import onsoftmax as ons

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("isa", isas())
def test_random_divergences(isa):
    done = run_python(["divergence_checks.py"], ONSOFTMAX_ISA=isa)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_values_of_scipy(rng):
    x, y = rng.standard_normal((2, 5, 100))
    p, q = ons.softmax(x), ons.softmax(y)
    np.testing.assert_allclose(ons.kl_divergence(x, y), entropy(p, q, axis=1), rtol=1e-12)
    np.testing.assert_allclose(ons.js_divergence(x, y), jensenshannon(p, q, axis=1) ** 2, rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", divergence_checks.KINDS)
def test_a_vocabulary(rng, threads, kind):
    x, y = random_rows(rng, np.float32, (5, 40001))
    for wrt in (None, "p", "q"):
        made = call(ons, kind, x, y, wrt, reduction="mean", num_threads=threads)
        check(x, y, made, "mean", "float32", wrt or "p", **({} if kind == "kl" else {"beta": 0.5}))


@given(
    st.lists(st.tuples(*[st.floats(-1e4, 1e4, width=32)] * 2), min_size=1, max_size=40), st.sampled_from("pq")
)
def test_any_rows(pairs, wrt):
    x, y = np.float32(pairs).T
    for kind, terms in (("kl", {}), ("js", {"beta": 0.25})):
        check(x, y, call(ons, kind, x, y, wrt, **terms), "none", "float32", wrt, **terms)


# The row of p, the row of q, KL and JS. Gradients of rows without a finite value are not finite.
EDGES = {
    "equal": ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0, 0),
    "equal but for an offset": ([1.0, 2.0, 3.0], [65.0, 66.0, 67.0], 0, 0),
    "q is 0": ([0.0, 0.0], [0.0, -INF], INF, 0.75 * np.log(4 / 3)),
    "p is 0": ([0.0, -INF], [0.0, 0.0], np.log(2), 0.75 * np.log(4 / 3)),
    "both are 0": ([0.0, -INF, 0.0], [0.0, -INF, 0.0], 0, 0),
    "apart": ([0.0, -INF], [-INF, 0.0], INF, np.log(2)),
    "p underflows": ([0.0, -1000.0], [0.0, -INF], 0, 0),
    "q underflows": ([0.0, 0.0], [0.0, -1000.0], 500 - np.log(2), 0.75 * np.log(4 / 3)),
    "a NaN in p": ([0.0, NAN], [0.0, 0.0], NAN, NAN),
    "a NaN in q": ([0.0, 0.0], [0.0, NAN], NAN, NAN),
    "inf in p": ([0.0, INF], [0.0, 0.0], NAN, NAN),
    "inf in q": ([0.0, 0.0], [0.0, INF], NAN, NAN),
    "no p": ([-INF, -INF], [0.0, 0.0], NAN, NAN),
    "no q": ([0.0, 0.0], [-INF, -INF], NAN, NAN),
    "one element": ([5.0], [-7.0], 0, 0),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("p", "q", "kl", "js"), EDGES.values(), ids=EDGES)
def test_edges(p, q, kl, js, dtype):
    x, y = np.array([p, p], dtype), np.array([q, q], dtype)
    # the terms of a row may cancel, and each is rounded to the arithmetic's type
    least = 1e-12 if x.dtype == np.float64 else np.finfo(np.float32).eps
    for kind, wanted in (("kl", kl), ("js", js)):
        for wrt in (None, "p", "q"):
            value, gradient = call(ons, kind, x, y, wrt)
            np.testing.assert_allclose(np.float64(value), [wanted] * 2, rtol=1e-6, atol=least)
            if wrt and np.isnan(wanted):
                assert np.isnan(np.float64(gradient)).any(1).all()
            elif wrt and (np.isfinite(wanted) or wrt == "q"):
                assert np.isfinite(np.float64(gradient)).all()
                np.testing.assert_allclose(np.float64(gradient).sum(1), 0, atol=1e-3)


def test_no_rows_and_no_elements():
    none, empty = np.empty((0, 5), np.float32), np.empty((2, 0))
    for kind in divergence_checks.KINDS:
        assert np.isnan(call(ons, kind, none, none, reduction="mean")[0])
        assert call(ons, kind, none, none, reduction="sum")[0] == 0
        assert call(ons, kind, none, none, "q")[1].shape == (0, 5)
        assert np.array_equal(call(ons, kind, empty, empty)[0], [0, 0])
        value, gradient = call(ons, kind, empty, empty, "p", reduction="mean")
        assert value == 0 and gradient.shape == (2, 0)


def test_excluded_elements(rng):
    x, y = rng.standard_normal((2, 3, 6))
    where = np.array([[True] * 4 + [False] * 2, [False] * 6, [True] * 6])
    x[0, 4:], y[0, 5], x[1] = NAN, INF, NAN
    for kind in divergence_checks.KINDS:
        for wrt in "pq":
            value, gradient = call(ons, kind, x, y, wrt, where=where, scale=[[2.0], [1.0], [0.5]])
            alone, its_gradient = call(ons, kind, x[0, :4], y[0, :4], wrt, scale=2.0)
            np.testing.assert_allclose(value[0], alone, rtol=1e-14)
            np.testing.assert_allclose(gradient[0, :4], its_gradient, rtol=1e-13)
            assert not gradient[0, 4:].any() and value[1] == 0 and not gradient[1].any()


@pytest.mark.parametrize("dtype", ["float16", BFLOAT16], ids=str)
def test_the_gradient_of_a_sure_class(dtype):
    """p is 0.999. A gradient of 16 bits has its own digits, not the digits of a rounded p."""
    x, y = np.array([[7.0, 0.0, 0.1]], dtype), np.array([[6.5, 0.25, 0.0]], dtype)
    for kind, terms in (("kl", {}), ("js", {"beta": 0.1})):
        for wrt in "pq":
            _, gradient = call(ons, kind, x, y, wrt, **terms)
            wanted = divergence_checks.expected(x, y, wrt, **terms).gradient
            eps = np.finfo(np.float16).eps if dtype == "float16" else 2.0**-7
            np.testing.assert_allclose(np.float64(gradient), np.float64(wanted), rtol=eps, atol=2.0**-24)


def test_the_worked_row():
    x, y = np.float64([[1, 2, 3, 6, 2, 1]]), np.zeros((1, 6))
    p = ons.softmax(x)
    entropy_of_p = -(p * np.log(p)).sum()
    np.testing.assert_allclose(ons.kl_divergence(x, y), np.log(6) - entropy_of_p, rtol=1e-12)


def test_a_gradient_in_place_of_either_side(rng):
    x, y = random_rows(rng, np.float32, (4, 300))
    for kind in divergence_checks.KINDS:
        for wrt in "pq":
            wanted = call(ons, kind, x, y, wrt)
            for out in (0, 1):
                both = [x.copy(), y.copy()]
                value, gradient = call(ons, kind, *both, wrt, grad_out=both[out])
                assert gradient is both[out]
                assert np.array_equal(value, wanted[0]) and np.array_equal(gradient, wanted[1])


def test_several_threads_give_the_same_bits(rng):
    x, y = random_rows(rng, np.float32, (300, 1000))
    for kind in divergence_checks.KINDS:
        one, three = (call(ons, kind, x, y, "q", num_threads=n) for n in (1, 3))
        assert np.array_equal(one[0], three[0]) and np.array_equal(one[1], three[1])
        few = call(ons, kind, x[7:9], y[7:9], "q")
        assert np.array_equal(one[0][7:9], few[0]) and np.array_equal(one[1][7:9], few[1])


def test_lists_and_results_of_numpy():
    value, gradient = ons.kl_divergence_with_grad([[1.0, 2.0]], [[2.0, 1.0]], wrt="q")
    assert value.dtype == np.float64 and gradient.shape == (1, 2)
    assert isinstance(ons.js_divergence([1.0, 2.0], [2.0, 1.0], reduction="mean"), np.float64)


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("error", "text", "arguments", "keywords"),
    [
        (
            ValueError,
            r"the other array of logits has shape \(2, 4\): expected \(2, 3\)",
            (X, np.ones((2, 4), np.float32)),
            {},
        ),
        (TypeError, "has dtype float32, the other has float64: expected the same", (X, np.ones((2, 3))), {}),
        (ValueError, "wrt is 'x': expected 'p' or 'q'", (X, X), {"wrt": "x"}),
        (ValueError, "reduction is 'batchmean': expected", (X, X), {"reduction": "batchmean"}),
        (ValueError, r"grad_out has shape \(3,\): expected", (X, X), {"grad_out": np.ones(3, np.float32)}),
        (ValueError, "where has shape", (X, X), {"where": np.ones((4, 3), bool)}),
        (ValueError, "stream is given", (X, X), {"stream": 1}),
        (np.exceptions.AxisError if hasattr(np, "exceptions") else IndexError, "axis 2", (X, X), {"axis": 2}),
    ],
)
def test_errors(error, text, arguments, keywords):
    with pytest.raises(error, match=text):
        ons.kl_divergence_with_grad(*arguments, **keywords)


def test_beta_out_of_range():
    for beta in (0, 1, NAN, -0.5):
        with pytest.raises(ValueError, match="expected a number between 0 and 1"):
            ons.js_divergence(X, X, beta=beta)
