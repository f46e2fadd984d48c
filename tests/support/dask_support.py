"""Functions that the tests of onsoftmax.dask share."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import onsoftmax as ons
from onsoftmax import dask as module

TYPES = [np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
ROWS = [module.softmax, module.log_softmax]
SHAPE = (7, 30, 5)


def of_numpy(function):
    return getattr(ons, function.__name__)


def values(dtype="float32", shape=SHAPE, seed=0):
    x = 5 * np.random.default_rng(seed).standard_normal(shape)
    return (x > 0 if dtype == "bool" else x).astype(dtype)


def near(y, wanted):
    """Whether two right answers agree: each is within a few eps."""
    eps = {2: 2.0**-10 if wanted.dtype == np.float16 else 2.0**-7, 4: 2.0**-23, 8: 2.0**-52}
    y, eps, wanted = y.astype(float), eps[wanted.itemsize], wanted.astype(float)
    np.testing.assert_allclose(y, wanted, rtol=8 * eps, atol=8 * eps)
