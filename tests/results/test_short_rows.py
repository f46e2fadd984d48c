"""Many rows at once: rows of every length and number, in any surroundings, give what each gives alone."""

from __future__ import annotations

import numpy as np
import pytest
from support import same_bits

import onsoftmax as ons


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 15, 16, 17, 37, 63, 64, 129])
def test_rows_together_are_rows_alone(dtype, rows):
    rng = np.random.default_rng(rows)
    for N in (
        1,
        2,
        3,
        7,
        8,
        9,
        10,
        15,
        16,
        17,
        31,
        33,
        64,
        100,
        128,
        129,
        255,
        256,
        257,
        320,
        333,
        416,
        417,
        511,
        512,
        513,
        600,
        641,
        1281,
        2100,
    ):
        x = (3 * rng.standard_normal((rows, N))).astype(dtype)
        y = ons.softmax(x, method="fused")
        alone = np.stack([ons.softmax(row, method="fused") for row in x])
        assert same_bits(y, alone), (rows, N)
        assert same_bits(ons.softmax(x, method="online"), y), (rows, N)
        in_place = x.copy()
        assert same_bits(ons.softmax(in_place, method="fused", out=in_place), y), (rows, N)


@pytest.mark.parametrize("N", [3, 16, 20, 64, 300, 400, 700, 2000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_odd_rows_among_others(N, dtype):
    """NaN, inf, far and empty rows beside ordinary rows, at every place of a batch."""
    rng = np.random.default_rng(N)
    x = rng.standard_normal((80, N)).astype(dtype)
    plain = ons.softmax(x)
    odd = {"nan": (0, np.nan), "inf": (1, np.inf), "low": (2, -np.inf)}
    for start in range(0, 17, 4):
        z = x.copy()
        for at, value in odd.values():
            z[start + 5 * at, 0] = value
        z[start + 15] = -np.inf
        z[start + 16] += dtype(1e6)
        z[start + 17] -= dtype(3e5)
        y = ons.softmax(z)
        assert np.isnan(y[start]).all() and np.isnan(y[start + 5]).all() and np.isnan(y[start + 15]).all()
        assert y[start + 10, 0] == 0
        assert np.allclose(y[start + 10].sum(), 1, atol=1e-5)
        for far in (start + 16, start + 17):
            assert same_bits(y[far], ons.softmax(z[far : far + 1], method="online")[0])
        ordinary = [i for i in range(80) if i - start not in (0, 5, 10, 15, 16, 17)]
        assert same_bits(y[ordinary], plain[ordinary])


@pytest.mark.parametrize("N", [3, 17, 64, 128, 320, 333, 344, 1000, 5000])
def test_results_past_the_caches(N):
    """Large results take another way to memory: at any alignment, with and without gaps between rows."""
    rows = (1 << 21) // N + 3
    x = np.random.default_rng(0).standard_normal((rows, N), dtype=np.float32)
    small = np.concatenate([ons.softmax(part) for part in np.array_split(x, 8)])
    memory = np.zeros(4 * rows * (N + 3) + 64, np.uint8)
    for offset in (0, 4, 16, 32, 44, 60, 1):
        for pitch in (N, N + 3):
            whole = memory[offset : offset + 4 * rows * pitch].view(np.float32).reshape(rows, pitch)
            whole[:] = -1
            out = whole[:, :N]
            ons.softmax(x, out=out)
            assert same_bits(out.copy(), small), (N, offset, pitch)
            assert (whole[:, N:] == -1).all()
