"""The pairs of rows, and rows finished by given pairs: _core.normalizer and _core.finish, on every
instruction set. core_checks.c compares methods and forms to the bit."""

import itertools

import hypothesis.extra.numpy as arrays
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairs import exact, merge

import onsoftmax as ons
from onsoftmax import _core

TYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def eps_of(dtype):
    return 2.0**-52 if dtype == np.float64 else 2.0**-23


def assert_pairs(pairs, wanted, eps):
    np.testing.assert_array_equal(pairs[..., 0], wanted[..., 0])
    np.testing.assert_allclose(pairs[..., 1], wanted[..., 1], rtol=4 * eps, equal_nan=True)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize(
    "shape, axis", [((5, 77), -1), ((3, 1000, 4), 1), ((40, 3, 5), (0, 2)), ((70001,), None)]
)
def test_statistics(dtype, shape, axis):
    rng = np.random.default_rng(1)
    x = (3 * rng.standard_normal(shape)).astype(dtype)
    where = rng.random(shape) > 0.2
    axes = tuple(range(x.ndim)) if axis is None else np.atleast_1d(axis).tolist()
    rows = np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))
    rows = rows.reshape((*rows.shape[: x.ndim - len(axes)], -1))
    assert_pairs(_core.normalizer(x, axis), exact(rows), eps_of(dtype))
    masked = np.moveaxis(where, axes, range(x.ndim - len(axes), x.ndim)).reshape(rows.shape)
    assert_pairs(_core.normalizer(x, axis, where=where), exact(rows, masked), eps_of(dtype))


def test_special_rows():
    x = np.array([[np.nan, 1], [np.inf, 1], [-np.inf, -np.inf], [-np.inf, 2]])
    np.testing.assert_array_equal(
        _core.normalizer(x)[:, 0], [np.nan, np.inf, -np.inf, 2], err_msg="the maximum is kept"
    )
    np.testing.assert_array_equal(_core.normalizer(x)[:3, 1], [np.nan, np.nan, 0])
    np.testing.assert_array_equal(_core.normalizer(np.zeros((2, 0))), [[-np.inf, 0]] * 2)
    np.testing.assert_array_equal(_core.finish(x, pairs=_core.normalizer(x)), ons.softmax(x))
    assert _core.normalizer(3.0).shape == (2,)


@pytest.mark.parametrize("offset", [0, 16384, -16383.5, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts(dtype, offset):
    """Three parts, one of them empty, in each type. The rows are also finished part by part."""
    rng = np.random.default_rng(2)
    x = (3 * rng.standard_normal((4, 3000)) + offset).astype(dtype)
    parts = x[:, :1024], x[:, 1024:1024], x[:, 1024:]
    whole = merge(*map(_core.normalizer, parts))
    for operation in ("softmax", "log_softmax"):
        wanted = getattr(ons, operation)(x)
        made = np.concatenate([_core.finish(part, pairs=whole, operation=operation) for part in parts], 1)
        size = np.maximum(np.abs(wanted), dtype(operation != "softmax"))
        assert (np.abs(made - wanted) <= 2 * np.spacing(size)).all()
    total = _core.finish(x[:, :5], pairs=whole, operation="logsumexp")
    np.testing.assert_allclose(total, ons.logsumexp(x), rtol=2 * eps_of(dtype))


@given(
    x=arrays.arrays(
        np.float32, st.tuples(st.integers(1, 4), st.integers(0, 40)), elements=st.floats(width=32)
    ),
    cuts=st.lists(st.integers(0, 40), max_size=4),
)
def test_any_parts_in_any_order(x, cuts):
    ends = [0, *sorted(min(cut, x.shape[1]) for cut in cuts), x.shape[1]]
    parts = [_core.normalizer(x[:, a:b]) for a, b in itertools.pairwise(ends)]
    whole = _core.normalizer(x)
    assert_pairs(merge(*parts), whole, eps_of(np.float32))
    assert_pairs(merge(*parts[::-1]), whole, eps_of(np.float32))


def test_options_of_finish():
    x = np.random.default_rng(3).standard_normal((6, 200)).astype(np.float32)
    where, scale = x > -1, np.linspace(0.5, 2, 6)[:, None]
    pairs = _core.normalizer(x, where=where, scale=scale)
    out = np.empty_like(x)
    assert _core.finish(x, pairs=pairs, where=where, scale=scale, out=out) is out
    np.testing.assert_array_equal(out, ons.softmax(x, where=where, scale=scale))
    wide = _core.finish(x, pairs=_core.normalizer(x), dtype="float64")
    np.testing.assert_allclose(wide, ons.softmax(x, dtype="float64"), rtol=3 * eps_of(np.float32))
    columns = _core.finish(x.T, 0, pairs=_core.normalizer(x))
    np.testing.assert_array_equal(columns.T, ons.softmax(x))


@pytest.mark.parametrize(
    "keywords, error, text",
    [
        ({}, TypeError, r"finish\(\) needs pairs"),
        ({"pairs": [1.0]}, ValueError, r"pairs have shape \(1,\) and dtype float64: expected \(3, 2\)"),
        ({"pairs": np.zeros((3, 2), np.float32)}, ValueError, "dtype float32: expected"),
        ({"pairs": np.zeros((3, 4))[:, ::2]}, ValueError, "side by side"),
        ({"pairs": np.zeros((3, 2)), "operation": "logsumexp", "out": np.ones(3)}, TypeError, "takes no out"),
        ({"pairs": np.zeros((3, 2)), "method": "online"}, TypeError, "unexpected keyword argument 'method'"),
    ],
)
def test_errors(keywords, error, text):
    with pytest.raises(error, match=text):
        _core.finish(np.ones((3, 5)), **keywords)
