"""onsoftmax.dask on a GPU: Dask arrays with CuPy chunks."""

import numpy as np
import pytest
from support import same_bits

import onsoftmax as ons

cupy = pytest.importorskip("cupy")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
from onsoftmax import dask as module  # noqa: E402
from onsoftmax._dask import chunks as _dask_chunks  # noqa: E402

ROWS = [module.softmax, module.log_softmax]


def arrays(dtype="float32", chunks=(3, 100)):
    x = cupy.asarray(5 * np.random.default_rng(0).standard_normal((8, 400))).astype(dtype)
    return x, da.from_array(x, chunks=chunks, asarray=False)


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_answers(dtype, axis):
    x, chunked = arrays(dtype)
    for function in (*ROWS, module.logsumexp):
        y, wanted = function(chunked, axis), getattr(ons, function.__name__)(x, axis)
        made = y.compute()
        assert isinstance(y._meta, cupy.ndarray) and isinstance(made, cupy.ndarray)
        assert y.dtype == made.dtype == wanted.dtype and y.shape == made.shape
        rtol = 2e-3 if dtype == "float16" else 2e-6
        cupy.testing.assert_allclose(made, wanted, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("masked", [False, True])
def test_no_cut_shows(dtype, masked):
    results = []
    for chunks in ((3, 100), (8, (1, 0, 37, 362)), (2, 333)):
        x, chunked = arrays(dtype, chunks)
        keywords = {"where": x > -3, "scale": cupy.linspace(0.1, 2, 8)[:, None]} if masked else {}
        results.append([cupy.asnumpy(function(chunked, **keywords).compute()) for function in ROWS])
        near = cupy.asnumpy(ons.softmax(x, **keywords))
        np.testing.assert_allclose(results[-1][0], near, rtol=2e-3 if dtype == "float16" else 2e-6, atol=1e-7)
    for others in results[1:]:
        assert all(same_bits(a, b) for a, b in zip(others, results[0], strict=True))


def test_large_chunks_are_converted_by_pieces(monkeypatch):
    _, chunked = arrays()
    wanted = module.softmax(chunked, where=chunked > 0, scale=0.5).compute()
    monkeypatch.setattr(_dask_chunks, "_PIECE_ELEMENTS", 100)
    made = module.softmax(chunked, where=chunked > 0, scale=0.5).compute()
    assert same_bits(cupy.asnumpy(made), cupy.asnumpy(wanted))


def test_wrong_arguments():
    _, chunked = arrays()
    with pytest.raises(ValueError, match="num_threads"):
        module.softmax(chunked, num_threads=2)
    with pytest.raises(ValueError, match="where"):
        module.softmax(chunked, where=np.ones((8, 400), bool))
    with pytest.raises(ValueError, match="method is 'cluster', and the rows lie in 4 chunks along axis 1"):
        module.softmax(chunked, method="cluster")
