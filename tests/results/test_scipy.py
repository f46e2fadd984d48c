"""SciPy's own tests of softmax, log_softmax and logsumexp, run on our functions."""

import functools
import re

import numpy as np
import pytest
from support import METHODS, run_python

import onsoftmax as ons

scipy_tests = pytest.importorskip("scipy.special.tests.test_logsumexp", reason="needs SciPy with its tests")
if not hasattr(scipy_tests, "TestSoftmax"):  # SciPy 1.11 and older keep them elsewhere
    scipy_tests = pytest.importorskip("scipy.special.tests.test_softmax", reason="SciPy has none")

calls = []


@functools.wraps(ons.softmax)
def softmax(x, axis=None):
    """Without an axis, SciPy's softmax takes all axes together."""
    calls.append(axis)
    return ons.softmax(x, axis=axis)


def own_tests():
    """(name, function) of every test of softmax in SciPy's module, from its class or the module itself."""
    holder = scipy_tests.TestSoftmax() if hasattr(scipy_tests, "TestSoftmax") else scipy_tests
    names = [name for name in dir(holder) if name.startswith("test_softmax")]
    return [pytest.param(getattr(holder, name), id=name) for name in names]


@pytest.mark.parametrize("test", own_tests())
def test_of_scipy(test, monkeypatch):
    monkeypatch.setattr(scipy_tests, "softmax", softmax)
    calls.clear()
    wants_namespace = "xp" in test.__code__.co_varnames[: test.__code__.co_argcount]
    test(**({"xp": np} if wants_namespace else {}))
    assert calls, "SciPy's test did not call our softmax"


def test_scipys_tests_can_fail(monkeypatch):
    monkeypatch.setattr(scipy_tests, "softmax", lambda x, axis=None: softmax(x, axis) * (1 + 1e-9))
    failed = 0
    for parameter in own_tests():
        test = parameter.values[0]
        try:
            test(**({"xp": np} if "xp" in test.__code__.co_varnames[: test.__code__.co_argcount] else {}))
        except AssertionError:
            failed += 1
    assert failed == len(own_tests()) > 0


@pytest.mark.parametrize("digits", [False, True])
def test_logarithms_of_scipy(tmp_path, digits):
    """scipy_shim.py runs all of SciPy's tests of both functions. Without `digits` the method is auto. The
    test of log(1 + e^-40) is then left out, since the contract's 2.5 eps of max(1, abs(result)) allow 0."""
    if not hasattr(scipy_tests, "TestLogSumExp"):
        pytest.skip("the tests of an older SciPy")
    options = ["-q", "-p", "scipy_shim", "-p", "no:cacheprovider", "-W", "ignore", "--rootdir", str(tmp_path)]
    wanted = "(LogSumExp or LogSoftmax)" + ("" if digits else " and not gh18295")
    arguments = ["-m", "pytest", *options, "-k", wanted, "--pyargs", scipy_tests.__name__]
    environment = {"PYTEST_ADDOPTS": None, **({"DIGITS": "1"} if digits else {})}
    done = run_python(arguments, **environment)  # one process, so that calls are counted
    assert done.returncode == 0, done.stdout[-2000:]
    calls = re.search(r"calls: \{'log_softmax': (\d+), 'logsumexp': (\d+)\}", done.stdout)
    assert calls and int(calls[1]) > 5 and int(calls[2]) > 30, done.stdout[-2000:]


def test_beside_scipy(rng):
    special = pytest.importorskip("scipy.special")
    x = 10 * rng.standard_normal((3, 4, 50))
    for axis in (None, 0, 1, 2, -1, (0, 2), (0, 1, 2)):
        np.testing.assert_allclose(ons.softmax(x, axis), special.softmax(x, axis), rtol=1e-13)
        np.testing.assert_allclose(
            ons.log_softmax(x, axis), special.log_softmax(x, axis), rtol=1e-13, atol=1e-15
        )
        np.testing.assert_allclose(ons.logsumexp(x, axis), special.logsumexp(x, axis), rtol=1e-13)


def test_digits():
    """Logistic regression on scikit-learn's digits: softmax of its decision values gives its
    probabilities."""
    datasets = pytest.importorskip("sklearn.datasets")
    linear_model = pytest.importorskip("sklearn.linear_model")
    images, digits = datasets.load_digits(return_X_y=True)
    model = linear_model.LogisticRegression(max_iter=200, tol=1e-2).fit(images[:1000] / 16, digits[:1000])
    unseen = images[1000:] / 16
    decisions, probabilities = model.decision_function(unseen), model.predict_proba(unseen)
    assert decisions.shape == (797, 10)
    for method in METHODS:
        y = ons.softmax(decisions, method=method)
        np.testing.assert_allclose(y, probabilities, rtol=1e-12)
        assert np.array_equal(y.argmax(1), probabilities.argmax(1))
