"""method="exact": the exact results, rounded once."""

import numpy as np
import pytest
from support import isas, run_python

import onsoftmax as ons

pytest.importorskip("mpmath")


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("check", ["random", "near", "ties", "layouts"])
def test_on_every_instruction_set(isa, check):
    ran = run_python(["exact_checks.py", check], ONSOFTMAX_ISA=isa)
    assert ran.returncode == 0, ran.stderr


def test_special_rows():
    inf, nan = np.inf, np.nan
    for dtype in (np.float16, np.float32):
        x = np.array([[nan, 0, 1], [inf, 0, 1], [-inf, -inf, -inf], [-inf, 3, -inf], [5, 5, 5]], dtype)
        third = dtype(1 / 3)
        y = [[nan] * 3] * 3 + [[0, 1, 0], [third] * 3]
        np.testing.assert_array_equal(ons.softmax(x, method="exact"), np.array(y, dtype))
        y = [[nan] * 3] * 3 + [[-inf, 0, -inf], [-np.log(np.float64(3)).astype(dtype)] * 3]
        np.testing.assert_array_equal(ons.log_softmax(x, method="exact"), np.array(y, dtype))
        y = np.array([nan, inf, -inf, 3, (5 + np.log(3)).astype(dtype)], dtype)
        np.testing.assert_array_equal(ons.logsumexp(x, method="exact"), y)
        assert ons.logsumexp(x[:, :0], method="exact").tolist() == [-inf] * 5


def test_near_0():
    """The largest element's logarithm, and logsumexp, have all their digits."""
    x = np.array([0, -40], np.float32)
    assert ons.logsumexp(x, method="exact") == np.float32(4.248354255291589e-18)
    assert ons.log_softmax(x, method="exact")[0] == np.float32(-4.248354255291589e-18)
    assert ons.softmax(np.float32([0, -103]), method="exact")[1] == np.float32(1e-45)


def test_errors_of_long_rows(rng):
    """Half a unit in the last place at most, for rows around the tiles and the kept exponentials."""
    for n in (2047, 2048, 2049, 65536, 131072, 300001):
        for spread in (0.1, 3, 30):
            x = (spread * rng.standard_normal((2, n))).astype(np.float32)
            e = np.exp(x.astype(np.longdouble) - x.max(axis=1, keepdims=True))
            exact = e / e.sum(axis=1, keepdims=True)
            y = ons.softmax(x, method="exact")
            assert (abs(y - exact) <= np.spacing(y.astype(np.float32)) * np.longdouble(0.5 + 2e-8)).all()


@pytest.mark.parametrize("arguments", [(np.float64([1, 2]), {}), (np.float32([1, 2]), {"dtype": np.float64})])
def test_float64_is_refused(arguments):
    x, options = arguments
    what = "array" if x.dtype == np.float64 else "result"
    message = f"method 'exact' takes and gives float32, float16 and bfloat16, and here the {what} is float64"
    for function in (ons.softmax, ons.log_softmax):
        with pytest.raises(ValueError, match=message):
            function(x, method="exact", **options)


def test_other_functions_have_no_exact():
    x = np.float32([1, 2])
    with pytest.raises(ValueError, match="method 'exact' cannot compute softmax_backward"):
        ons.softmax_backward(x, x, method="exact")
    with pytest.raises(ValueError, match="method 'exact' cannot compute normalizer"):
        ons.plan(x, operation="normalizer", method="exact")


def test_the_plan_says_that_it_works_in_float64():
    assert ons.plan((64, 1000), method="exact").compute == "float64"
    cost = {each.method: each for each in ons.plan(np.zeros((64, 1000))).others}["exact"]
    assert cost.cannot == "takes and gives float32, float16 and bfloat16"
