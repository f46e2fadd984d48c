"""Rows that lie side by side in memory, like an image's channels, mostly short. Each gives the result that it
gives alone, and nothing around them is touched."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from support import same_bits

import onsoftmax as ons

OUTSIDE = 1232  # a number that every type holds


def framed(shape, dtype, shift):
    """An array within a larger one full of OUTSIDE, and the larger one. There is a gap between its rows."""
    *outer, N, across = shape
    room = np.full((*outer, N + 2, across + 5 + shift), OUTSIDE, dtype)
    return room[..., 1:-1, shift : shift + across], room


def check(x, y, room, **how):
    inside = x.shape[-2] * x.shape[-1] * x[..., 0, 0].size
    ons.softmax(x, -2, out=y, **how)
    rows = np.ascontiguousarray(np.moveaxis(x, -2, -1))
    assert same_bits(np.moveaxis(y, -2, -1), ons.softmax(rows))
    assert (room == OUTSIDE).sum() == room.size - inside


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("N", [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 21, 31, 32, 33])
def test_columns_are_rows(N, dtype):
    rng = np.random.default_rng(N)
    for across in (6, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257, 300):
        x = (3 * rng.standard_normal((3, N, across))).astype(dtype)
        for shift in (0, 1, 3):
            y, room = framed(x.shape, dtype, shift)
            check(x, y, room)
        x_apart, _ = framed(x.shape, dtype, 2)
        x_apart[...] = x
        y, room = framed(x.shape, dtype, 0)
        check(x_apart, y, room, method="fused")
        in_place = x.copy()
        expected = ons.softmax(x, 1)
        assert same_bits(ons.softmax(in_place, 1, out=in_place), expected)


@pytest.mark.parametrize("across", [349_525, 350_003, 352_256])
@pytest.mark.parametrize("threads", [1, 3])
def test_past_the_caches(across, threads):
    """y begins on a cache line or off it. Its rows begin at different places of a line."""
    x = np.random.default_rng(across).standard_normal((2, 3, across), dtype=np.float32)
    assert ons.plan(x, 1).form == "column" and x.nbytes >= 1 << 22
    for shift in (0, 1, 11):
        y, room = framed(x.shape, np.float32, shift)
        check(x, y, room, num_threads=threads)
    gapless = np.full(x.size + 3, OUTSIDE, np.float32)
    for start in (0, 3):
        y = gapless[start : start + x.size].reshape(x.shape)
        ons.softmax(x, 1, out=y, num_threads=threads)
        assert same_bits(y, ons.softmax(x, 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("across", [6, 15, 16, 17, 50, 64, 100, 255, 257, 512, 1003])
def test_long_columns_past_the_caches(across, dtype):
    """y's rows follow each other or are apart. A strip begins where another one ends, or does not."""
    N = (1 << 19) // (across * np.dtype(dtype).itemsize) + 2
    x = (3 * np.random.default_rng(across).standard_normal((2, N, across))).astype(dtype)
    x[1, 5, across // 2], x[0, 7, 0] = 1e5, np.nan  # one row is relative to its maximum, one is NaN
    assert ons.plan(x, 1).form == "column" and x.nbytes >= 1 << 20
    expected = ons.softmax(np.ascontiguousarray(np.moveaxis(x, 1, -1)))
    for threads in (1, 3):
        for shift in (0, 1, 11):
            y, room = framed(x.shape, dtype, shift)
            check(x, y, room, num_threads=threads)
        for start in (0, 1, 4):
            gapless = np.full(x.size + start + 9, OUTSIDE, dtype)
            y = gapless[start : start + x.size].reshape(x.shape)
            ons.softmax(x, 1, out=y, num_threads=threads)
            assert same_bits(np.moveaxis(y, 1, -1), expected)
            other = gapless[start : start + x.size].reshape(N, 2, across).swapaxes(0, 1)
            other[...] = OUTSIDE
            ons.softmax(x, 1, out=other, num_threads=threads)
            assert same_bits(np.moveaxis(other, 1, -1), expected)
            assert (gapless[:start] == OUTSIDE).all() and (gapless[start + x.size :] == OUTSIDE).all()
    in_place = x.copy()
    assert same_bits(np.moveaxis(ons.softmax(in_place, 1, out=in_place), 1, -1), expected)


@pytest.mark.parametrize("N", [3, 17, 32])
def test_odd_columns_among_others(N):
    rng = np.random.default_rng(N)
    x = rng.standard_normal((N, 70), dtype=np.float32)
    plain = ons.softmax(x, 0)
    for start in range(0, 60, 7):
        z = x.copy()
        z[-1, start], z[0, start + 1], z[0, start + 2] = np.nan, np.inf, -np.inf
        z[:, start + 3] = -np.inf
        z[:, start + 4] += 1e6
        y = ons.softmax(z, 0)
        assert np.isnan(y[:, [start, start + 1, start + 3]]).all()
        assert y[0, start + 2] == 0 and np.isclose(y[:, start + 2].sum(), 1)
        assert same_bits(y[:, start + 4], ons.softmax(z[:, start + 4].copy()))
        ordinary = [i for i in range(70) if not start <= i < start + 5]
        assert same_bits(y[:, ordinary], plain[:, ordinary])


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.7])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("result", [None, np.float32, np.float16, ml_dtypes.bfloat16])
def test_other_types_and_scales(dtype, result, scale):
    """Rows are converted and scaled on the way or not. Results go past the caches or stay in them."""
    if result is not None and dtype == np.float64:
        pytest.skip("float64 gives float64")
    for shape in ((2, 3, 37), (5, 21, 16), (1, 100, 129), (2, 300, 70), (1, 1000, 1203), (1, 3, 350_003)):
        x = (3 * np.random.default_rng(7).standard_normal(shape)).astype(dtype)
        rows = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        expected = ons.softmax(rows, scale=scale, dtype=result)
        y = ons.softmax(x, 1, scale=scale, dtype=result)
        assert y.dtype == expected.dtype
        assert same_bits(np.moveaxis(y, 1, -1), expected), shape
        poisoned, room = framed(shape, y.dtype, 1)
        ons.softmax(x, 1, scale=scale, dtype=result, out=poisoned)
        assert same_bits(poisoned, y) and (room == OUTSIDE).sum() == room.size - y.size
        if result is None:
            ons.softmax(x, 1, scale=scale, out=x)
            assert same_bits(x, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("shape", [(2, 3, 37), (5, 21, 16), (3, 100, 129), (2, 500, 1203), (1, 3, 350_003)])
def test_a_scale_for_each_column(shape, dtype):
    """Scales that float32 holds, and others. One for each column, one for each index of a dimension, and an
    array with a stride of two."""
    rng = np.random.default_rng(5)
    x = (3 * rng.standard_normal(shape)).astype(dtype)
    x[0, 0, :2] = -np.inf
    rows = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    outer, _, across = shape
    exact = rng.integers(1, 64, (outer, 1, across)) / 32
    scales = [exact, 0.7 * exact, np.where(exact > 1, exact, 0.3), exact[:, :, :1], 0.7 * exact[:1]]
    scales += [np.repeat(exact, 2, axis=2)[:, :, ::2], exact.astype(np.float32)]
    for scale in scales:
        expected = ons.softmax(rows, scale=np.moveaxis(scale, 1, -1))
        y, room = framed(shape, dtype, 1)
        ons.softmax(x, 1, scale=scale, out=y)
        assert same_bits(np.moveaxis(y, 1, -1), expected)
        assert (room == OUTSIDE).sum() == room.size - y.size
    where = rng.random(shape) < 0.8
    expected = ons.softmax(rows, scale=np.moveaxis(exact, 1, -1), where=np.moveaxis(where, 1, -1))
    assert same_bits(np.moveaxis(ons.softmax(x, 1, scale=exact, where=where), 1, -1), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("shape", [(2, 3, 37), (5, 21, 16), (3, 100, 129), (1, 1000, 1203), (1, 3, 350_003)])
def test_masks(shape, dtype):
    """Excluded elements give 0, even in a NaN row, and have no effect."""
    rng = np.random.default_rng(11)
    x = (3 * rng.standard_normal(shape)).astype(dtype)
    masks = [rng.random(shape) < 0.8, rng.random(shape[1:]) < 0.8, rng.random((shape[0], 1, shape[2])) < 0.8]
    masks += [rng.random((*shape[:2], 1)) < 0.8, np.asfortranarray(masks[0])]
    for where in masks:
        z = x.copy()
        z[0, -1, 5] = np.nan  # in a row of its own
        z[0, 0, 7:9] = np.inf
        np.copyto(z, dtype(np.nan), where=~where & (rng.random(shape) < 0.5))
        rows = np.ascontiguousarray(np.moveaxis(z, 1, -1))
        mask = np.moveaxis(np.broadcast_to(where, shape), 1, -1)
        for scale in (1.0, 0.7):
            y = ons.softmax(z, 1, where=where, scale=scale)
            assert (y[~np.broadcast_to(where, shape)] == 0).all()
            assert same_bits(np.moveaxis(y, 1, -1), ons.softmax(rows, where=mask, scale=scale))
        in_place = z.copy()
        expected = ons.softmax(z, 1, where=where)
        assert same_bits(ons.softmax(in_place, 1, where=where, out=in_place), expected)
