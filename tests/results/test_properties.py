"""Properties of any array, searched by hypothesis, and a few hundred cases of random_cases.py."""

import numpy as np
import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from support import DTYPES, STABLE_METHODS, WIDE_DTYPES, lay_out, run_python, same_bits

import onsoftmax as ons

settings.register_profile(
    "onsoftmax",
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("onsoftmax")

methods = st.sampled_from([*STABLE_METHODS, "auto"])
shapes = npst.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=6) | st.tuples(st.integers(1, 600))


@st.composite
def arrays(draw, dtypes=DTYPES, elements=None, shape=shapes):
    dtype = draw(st.sampled_from(list(dtypes)))
    limits = {"min_value": -60000, "max_value": 60000, "allow_subnormal": False, "width": 32}
    elements = st.floats(**limits) if elements is None else elements
    with np.errstate(over="ignore"):
        values = draw(npst.arrays(np.float32, draw(shape), elements=elements)).astype(dtype)
    permutation = draw(st.permutations(range(values.ndim)))
    steps = draw(st.tuples(*[st.sampled_from([1, -1, 2, -3])] * values.ndim))
    return lay_out(values, tuple(permutation), steps, draw(st.integers(0, 3)))


@st.composite
def axes(draw, ndim):
    if ndim == 0:
        return draw(st.sampled_from([None, -1, 0, ()]))
    some = st.lists(st.integers(0, ndim - 1), unique=True).map(tuple)
    return draw(st.none() | st.integers(-ndim, ndim - 1) | some)


def assert_right(y, x, axis, where=None, scale=1.0):
    compute = oracle.compute_type(x.dtype, y.dtype)
    wrong = oracle.wrong_places(y, oracle.softmax(x, axis, where, scale, compute), compute)
    assert not wrong.any(), np.argwhere(wrong)[:5]


@given(st.data(), methods)
def test_any_array(data, method):
    x = data.draw(arrays())
    axis = data.draw(axes(x.ndim))
    dtype = data.draw(st.none() | st.sampled_from(DTYPES))
    y = ons.softmax(x, axis, method=method, dtype=dtype)
    assert y.shape == x.shape and y.dtype == (dtype or x.dtype)
    assert_right(y, x, axis)


@given(st.data(), methods)
def test_any_bits(data, method):
    """NaN, infinities, subnormals and the largest numbers."""
    x = data.draw(arrays(elements=st.floats(width=32) | st.sampled_from([-np.inf, 0.0, 3e38, -3e38])))
    axis = data.draw(axes(x.ndim))
    assert_right(ons.softmax(x, axis, method=method), x, axis)


@given(st.data(), methods)
def test_any_mask_and_scale(data, method):
    x = data.draw(arrays(elements=st.floats(-50, 50, width=32)))
    axis = data.draw(axes(x.ndim))
    mask_shape = tuple(1 if data.draw(st.booleans()) else n for n in x.shape)
    where = data.draw(st.none() | npst.arrays(bool, mask_shape))
    of = tuple(1 if i in oracle.axes_of(axis, x.ndim) else n for i, n in enumerate(x.shape))
    scales = st.floats(-3, 3)
    scale = data.draw(scales | npst.arrays(np.float64, of, elements=scales))
    y = ons.softmax(x, axis, where=where, scale=scale, method=method)
    assert_right(y, x, axis, where, scale)


@given(st.data(), methods)
def test_out_is_as_no_out(data, method):
    x = data.draw(arrays())
    axis = data.draw(axes(x.ndim))
    expected = ons.softmax(x, axis, method=method)
    assert same_bits(ons.softmax(x, axis, method=method, out=x), expected)


finite = arrays(WIDE_DTYPES, st.floats(-300, 300, width=32), npst.array_shapes(max_dims=3))


@given(finite, methods)
def test_rows_sum_to_one(x, method):
    y = ons.softmax(x, method=method)
    assert (y >= 0).all() and (y <= 1 + 4 * np.finfo(y.dtype).eps).all()
    total = y.astype(np.longdouble).sum(-1).astype(float)
    np.testing.assert_allclose(total, 1, rtol=4 * np.finfo(y.dtype).eps)


@given(finite, st.integers(-(2**15), 2**15), methods)
def test_a_constant_changes_nothing(x, offset, method):
    """Multiples of 1/4 below 2^17, so that adding the constant is exact."""
    x = np.round(4 * x) / x.dtype.type(4)
    shifted = x + x.dtype.type(offset)
    tiny = np.finfo(x.dtype).smallest_normal
    np.testing.assert_allclose(
        ons.softmax(shifted, method=method), ons.softmax(x, method=method), 8 * np.finfo(x.dtype).eps, tiny
    )


@given(finite, st.randoms(use_true_random=False), methods)
def test_permutation(x, random, method):
    order = list(range(x.shape[-1]))
    random.shuffle(order)
    y = ons.softmax(x, method=method)
    shuffled = ons.softmax(x[..., order], method=method)
    info = np.finfo(x.dtype)
    np.testing.assert_allclose(shuffled, y[..., order], 8 * info.eps, info.smallest_subnormal)
    rows = np.array(random.sample(range(len(x)), len(x)))
    if x.ndim > 1:
        assert same_bits(ons.softmax(x[rows], method=method), np.ascontiguousarray(y[rows]))


@given(finite, methods)
def test_order_is_kept(x, method):
    y = ons.softmax(x, method=method)
    order = np.argsort(x, -1, kind="stable")
    assert (np.diff(np.take_along_axis(y, order, -1)) >= 0).all()


@given(finite, methods)
def test_excluded_is_minus_inf(x, method):
    where = x > np.median(x)
    hidden = np.where(where, x, -np.inf).astype(x.dtype)
    y, expected = ons.softmax(x, where=where, method=method), ons.softmax(hidden, method=method)
    nothing = ~where.any(-1)
    assert (y[nothing] == 0).all() and np.isnan(expected[nothing]).all()
    assert same_bits(np.ascontiguousarray(y[~nothing]), np.ascontiguousarray(expected[~nothing]))


@pytest.mark.parametrize("seed", [1, 1_000_000])
def test_random_cases(seed):
    done = run_python(["random_cases.py", "--cases", "400", "--seed", str(seed)])
    assert (done.returncode, done.stdout) == (0, "400 cases, 0 wrong\n"), done.stdout + done.stderr


def test_random_cases_can_fail(monkeypatch, capsys):
    import random_cases

    real = ons.softmax
    monkeypatch.setattr(ons, "softmax", lambda *args, **keywords: real(*args, **keywords) * np.float32(0.999))
    assert random_cases.main(["--cases", "40"]) == 1
    assert " 0 wrong" not in capsys.readouterr().out
