"""method="exact": the exact results, rounded once."""

import numpy as np
import pytest
from support import isas, run_python, same_bits

import onsoftmax as ons

pytest.importorskip("mpmath")


@pytest.mark.parametrize("isa", isas())
def test_on_every_instruction_set(isa):
    ran = run_python(["exact_checks.py", "random", "near", "ties", "layouts"], ONSOFTMAX_ISA=isa)
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


def rows_in_parts(rng, dtype, N, offset):
    """Rows of several spreads, one of equal elements, and the parts of a random cut in a random order."""
    x = (rng.choice([0.1, 3, 30], size=(5, 1)) * rng.standard_normal((5, N)) + offset).astype(dtype)
    x[0] = x[0, 0]
    parts = np.split(np.arange(N), np.sort(rng.integers(0, N + 1, rng.integers(5))))
    return x, [parts[i] for i in rng.permutation(len(parts))]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rows_in_parts_have_the_bits_of_whole_rows(rng, dtype):
    for N in (1, 2, 5, 100, 1000, 5000, 70_001):
        for offset in (0, 1000, -3e4):
            x, parts = rows_in_parts(rng, dtype, N, offset)
            row = ons.Normalizer.empty(5, like=x, method="exact")
            for part in parts:
                row = row.update(x[:, part])
            states = np.stack([ons.normalizer(x[:, part], method="exact").packed for part in parts])
            assert states.shape == (len(parts), 5, 4)
            for made in (row, ons.Normalizer.merge_all(states, dtype=dtype)):
                assert made.method == "exact"
                for name in ("softmax", "log_softmax"):
                    wanted = getattr(ons, name)(x, method="exact")
                    for part in parts:
                        assert same_bits(getattr(made, name)(x[:, part]), wanted[:, part])
                assert same_bits(made.logsumexp(), ons.logsumexp(x, method="exact"))


def test_parts_far_below_the_maximum():
    """They still decide the direction in which a result is rounded, and give a logarithm near 0."""
    for far in (-0.5, -40, -103, -600, -700, -1e5):
        x = np.array([4096.5, 4096.5 + far, 4096.5 + 2 * far], np.float32)
        x = np.stack([x, np.array([0, far, -np.inf], np.float32)])
        row = ons.Normalizer.empty(2, like=x, method="exact")
        for i in (1, 0, 2):
            row = row.update(x[:, i : i + 1])
        for name in ("softmax", "log_softmax"):
            for dtype in (np.float16, np.float32):
                wanted = getattr(ons, name)(x, method="exact", dtype=dtype)
                assert same_bits(getattr(row, name)(x, dtype=dtype), wanted)
        assert same_bits(row.logsumexp(), ons.logsumexp(x, method="exact"))


def test_special_rows_in_parts():
    inf, nan = np.inf, np.nan
    x = np.float32([[nan, 0, 1], [inf, 0, 1], [-inf, -inf, -inf], [-inf, 3, -inf], [5, 5, 5]])
    row = ons.normalizer(x[:, 1:], method="exact").update(x[:, :1])
    np.testing.assert_array_equal(row.m, [nan, inf, -inf, 3, 5])
    np.testing.assert_array_equal(row.d, [nan, nan, 0, 1, 3])
    np.testing.assert_array_equal(row.softmax(x), ons.softmax(x, method="exact"))
    np.testing.assert_array_equal(row.log_softmax(x), ons.log_softmax(x, method="exact"))
    np.testing.assert_array_equal(row.logsumexp(), ons.logsumexp(x, method="exact"))
    nothing = ons.normalizer(x[:, :0], method="exact")
    assert same_bits(nothing.merge(row).packed, row.packed) and (nothing.d == 0).all()


def test_masks_and_scales_of_rows_in_parts(rng):
    x = rng.standard_normal((4, 300)).astype(np.float32)
    where, scale = rng.random(x.shape) < 0.5, rng.standard_normal((4, 1))
    first, second = slice(100), slice(100, None)
    row = ons.normalizer(x[:, first], where=where[:, first], scale=scale, method="exact")
    row = row.update(x[:, second], where=where[:, second])
    wanted = ons.softmax(x, where=where, scale=scale, method="exact")
    assert same_bits(row.softmax(x, where=where), wanted)


def test_what_rows_in_parts_refuse():
    x = np.float32([1, 2])
    row = ons.normalizer(x, method="exact")
    with pytest.raises(ValueError, match="method is 'fused': expected 'auto', 'invariant' or 'exact'"):
        ons.normalizer(x, method="fused")
    with pytest.raises(ValueError, match="other has method 'auto': expected this Normalizer's method"):
        row.merge(ons.normalizer(x))
    for call in (lambda: ons.normalizer([1.0, 2.0], method="exact"), lambda: row.softmax(np.float64([1]))):
        with pytest.raises(ValueError, match="method 'exact' takes and gives float32, float16 and bfloat16"):
            call()


def test_the_plan_says_that_it_works_in_float64():
    assert ons.plan((64, 1000), method="exact").compute == "float64"
    cost = {each.method: each for each in ons.plan(np.zeros((64, 1000))).others}["exact"]
    assert cost.cannot == "takes and gives float32, float16 and bfloat16"
