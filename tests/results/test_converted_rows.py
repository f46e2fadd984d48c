"""Rows that are converted, scaled and masked on the way have the bits of `online`."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from support import same_bits

import onsoftmax as ons

TYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
LENGTHS = [1, 2, 3, 7, 8, 10, 16, 17, 31, 32, 33, 48, 64, 65, 79, 128, 255, 256, 257, 300, 416, 1000, 2049]


def rows_of(rows, N, dtype):
    rng = np.random.default_rng(N)
    x = (3 * rng.standard_normal((rows, N))).astype(dtype)
    return x, rng.random((rows, N)) < 0.7, (0.25 + rng.random((rows, 1)))


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("of", TYPES)
def test_types(of, to):
    for N in LENGTHS:
        x, where, scale = rows_of(7 if N > 300 else 150, N, of)
        for options in (
            {},
            {"where": where},
            {"scale": 0.7},
            {"scale": scale},
            {"scale": scale, "where": where},
        ):
            y = ons.softmax(x, method="fused", dtype=to, **options)
            assert same_bits(y, ons.softmax(x, method="online", dtype=to, **options)), (N, options.keys())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("N", [9, 20, 48, 200, 300, 700])
def test_masked_rows_without_a_softmax(dtype, N):
    """Excluded elements give 0 even beside NaN. A row without any allowed element gives 0."""
    x, where, _ = rows_of(140, N, dtype)
    where[[3, 5, 6, 9, 12], :2] = True, False
    x[3, where[3].argmax()] = np.nan
    x[5, where[5].argmax()] = np.inf
    x[6, (~where[6]).argmax()] = np.nan
    x[9] = -np.inf
    where[11] = False
    x[12] += dtype(3e4)
    y = ons.softmax(x, where=where)
    assert same_bits(y, ons.softmax(x, where=where, method="online"))
    assert (y[~where] == 0).all()
    for row in (3, 5, 9):
        assert np.isnan(y[row][where[row]]).all()
    assert np.isfinite(y[6]).all() and np.isfinite(y[12]).all() and (y[11] == 0).all()


@pytest.mark.parametrize("N", [10, 32, 64, 100, 333, 1000])
def test_results_past_the_caches(N):
    """Large results, at any alignment, with and without gaps between rows, are the results of a few rows."""
    rows = (1 << 20) // N + 5
    x, where, _ = rows_of(rows, N, np.float32)
    x[1] = np.nan
    parts = zip(np.array_split(x, 8), np.array_split(where, 8), strict=True)
    small = np.concatenate([ons.softmax(part, where=mask, scale=0.5) for part, mask in parts])
    memory = np.zeros(4 * rows * (N + 3) + 64, np.uint8)
    for offset in (0, 4, 16, 1):
        for pitch in (N, N + 3):
            whole = memory[offset : offset + 4 * rows * pitch].view(np.float32).reshape(rows, pitch)
            whole[:] = 7
            ons.softmax(x, where=where, scale=0.5, out=whole[:, :N])
            assert same_bits(whole[:, :N], small), (offset, pitch)
            assert (whole[:, N:] == 7).all()


def test_strided_rows_and_results_in_place():
    x, where, scale = rows_of(33, 512, np.float32)
    expected = ons.softmax(x, where=where, scale=scale, method="online")
    reversed_rows = ons.softmax(x[:, ::-1], where=where[:, ::-1], scale=scale)
    assert same_bits(reversed_rows, ons.softmax(x[:, ::-1].copy(), where=where[:, ::-1].copy(), scale=scale))
    apart = np.repeat(x, 3, axis=1)[:, ::3]
    assert same_bits(ons.softmax(apart, where=where, scale=scale), expected)
    ons.softmax(x, where=where, scale=scale, out=x)
    assert same_bits(x, expected)
