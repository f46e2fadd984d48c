"""Softmax of labelled arrays along a dimension by its name, by xarray.apply_ufunc.

The dimension that forms a row is the core dimension of `apply_ufunc`. xarray passes it as the last axis
of a view, and onsoftmax takes views of any strides. A mask is a second array. If the array has Dask's
chunks, pass the function of `onsoftmax.dask` with dask="allowed". The result is then lazy, and chunks may
cut the rows.

    python examples/xarray_dimensions.py
"""

import sys

import numpy as np

import onsoftmax as ons

try:
    import xarray as xr

    import onsoftmax.dask
except ImportError:
    sys.exit("This example needs xarray and dask: pip install xarray 'dask[array]>=2025.1'")


def softmax(x, dim, where=None, **arguments):
    function = onsoftmax.dask.softmax if x.chunks else ons.softmax
    arrays = [x] if where is None else [x, where.broadcast_like(x)]
    return xr.apply_ufunc(
        lambda x, where=None: function(x, where=where, **arguments),
        *arrays,
        input_core_dims=[[dim]] * len(arrays),
        output_core_dims=[[dim]],
        dask="allowed",
        keep_attrs=True,
    ).transpose(*x.dims)


def logsumexp(x, dim, **arguments):
    function = onsoftmax.dask.logsumexp if x.chunks else ons.logsumexp
    return xr.apply_ufunc(function, x, input_core_dims=[[dim]], dask="allowed", kwargs=arguments)


# The logits of four classes for each pixel of an image. In the upper half one class is not allowed.
names = ["water", "forest", "field", "town"]
logits = xr.DataArray(
    np.random.default_rng(0).standard_normal((4, 200, 300), dtype=np.float32),
    dims=("class", "y", "x"),
    coords={"class": names},
)
allowed = (logits["class"] != "town") | (xr.DataArray(np.arange(200), dims="y") >= 100)

probabilities = softmax(logits, "class", where=allowed)
print(probabilities.isel(y=0, x=0).to_series().round(4).to_dict())
expected = np.exp(logits.where(allowed, -np.inf) - logsumexp(logits.where(allowed, -np.inf), "class"))
xr.testing.assert_allclose(probabilities, expected.transpose(*logits.dims), rtol=1e-5)

lazy = softmax(logits.chunk({"class": 2, "y": 100}), "class", where=allowed, scale=0.5)
print(f"with chunks: {lazy.data.numblocks} blocks, nothing computed yet")
xr.testing.assert_allclose(lazy.compute(), softmax(logits, "class", where=allowed, scale=0.5), rtol=1e-5)
