"""method="safe" keeps the digits of logarithms near 0."""

import numpy as np
import pytest
from support import isas, run_python

import onsoftmax as ons


@pytest.mark.parametrize("isa", isas())
def test_on_every_instruction_set(isa):
    pytest.importorskip("mpmath")
    ran = run_python(["near_zero_checks.py"], ONSOFTMAX_ISA=isa)
    assert ran.returncode == 0, ran.stderr


def test_digits():
    for dtype in (np.float64, np.float32):
        x = np.array([0, -40], dtype)
        small = dtype(4.248354255291589e-18)
        assert ons.logsumexp(x, method="safe") == small
        assert ons.log_softmax(x, method="safe").tolist() == [-small, -40]
    assert ons.logsumexp(np.array([0.0, -740.0]), method="safe") == np.exp(-740.0)
    assert ons.logsumexp(np.array([-1e-18, -700.0]), method="safe") == -1e-18


def test_in_place_and_small_types():
    x = np.tile(np.array([0, -40, -50], np.float32), (5, 1))
    expected = ons.log_softmax(x, method="exact")
    y = x.copy()
    ons.log_softmax(y, out=y, method="safe")
    np.testing.assert_array_equal(y, expected)
    half = np.array([[0, -15, -20]], np.float16)
    np.testing.assert_array_equal(ons.log_softmax(half, method="safe"), ons.log_softmax(half, method="exact"))
    np.testing.assert_array_equal(ons.logsumexp(half, method="safe"), ons.logsumexp(half, method="exact"))


def test_scale():
    """The product of the scale is added up, rounded once."""
    x = np.array([0, -13.3])
    assert ons.logsumexp(x, scale=3.0, method="safe") == np.log1p(np.exp(-13.3 * 3.0))
