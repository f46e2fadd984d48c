"""onsoftmax.dask: results for any chunks, and errors."""

import doctest
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import same_bits

import onsoftmax as ons
from onsoftmax import _core

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
from dask_support import ROWS, SHAPE, TYPES, near, of_numpy, values  # noqa: E402

from onsoftmax import dask as module  # noqa: E402
from onsoftmax._dask import chunks as _dask_chunks  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def test_examples():
    failed, tried = doctest.testmod(module)
    assert failed == 0 and tried == 6


# ---------------------------------------------------------------- answers


def test_the_k_largest():
    """docs/larger-than-memory.md has these lines in place of a softmax_topk."""
    x = np.random.default_rng(0).standard_normal((6, 50))
    logits, k = da.from_array(x, chunks=(3, 20)), 5
    found = ons.softmax_topk(x, k)
    assert (da.argtopk(logits, k).compute() == found.indices).all()
    largest = da.exp(da.topk(logits, k) - module.logsumexp(logits, keepdims=True))
    assert np.allclose(largest.compute(), found.values, rtol=1e-14)


@pytest.mark.parametrize("dtype", [*TYPES, "int32", "bool", ">f4"], ids=str)
@pytest.mark.parametrize("axis", [-1, 1, (2, 0), None, ()], ids=str)
def test_answers(dtype, axis):
    x = values(dtype)
    chunked = da.from_array(x, chunks=(3, 7, 5))
    for function in ROWS:
        y, wanted = function(chunked, axis), of_numpy(function)(x, axis)
        assert y.chunks == chunked.chunks and y.dtype == y.compute().dtype == wanted.dtype
        near(y.compute(), wanted)
    for keepdims in (False, True):
        y, wanted = (
            f(z, axis, keepdims=keepdims) for f, z in ((module.logsumexp, chunked), (ons.logsumexp, x))
        )
        assert y.shape == wanted.shape == y.compute().shape and y.dtype == wanted.dtype
        near(y.compute(), wanted)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("to", TYPES, ids=str)
def test_result_types(dtype, to):
    x = values(dtype)
    y = module.softmax(da.from_array(x, chunks=4), 1, dtype=to).compute()
    assert y.dtype == to
    near(y, ons.softmax(x, 1, dtype=to))


def cuts(length):
    """Chunks of an axis at any places, empty chunks included."""
    places = st.lists(st.integers(0, length), max_size=6).map(sorted)
    return places.map(lambda places: tuple(np.diff([0, *places, length]).tolist()))


@settings(max_examples=25, deadline=None)
@given(
    rows=cuts(6),
    columns=st.tuples(cuts(40), cuts(40)).filter(lambda both: len(both[0]) > 1 and len(both[1]) > 1),
    dtype=st.sampled_from([*TYPES, np.dtype(bool)]),
    spread=st.sampled_from([1, 30, 1000]),
    special=st.sampled_from([None, np.nan, np.inf, -np.inf]),
    masked=st.booleans(),
    scale=st.sampled_from([1, 0.3, "rows"]),
)
def test_no_cut_shows(rows, columns, dtype, spread, special, masked, scale):
    rng = np.random.default_rng(len(rows))
    x = rng.standard_normal((6, 40)) * spread
    if special is not None:
        x[1, 3] = x[2] = special
    with np.errstate(invalid="ignore"):
        x = x.astype(dtype)
    keywords = {"where": rng.random(x.shape) > 0.3} if masked else {}
    keywords["scale"] = rng.uniform(-1, 2, (6, 1)) if scale == "rows" else scale
    for function in (*ROWS, module.logsumexp):
        cut, otherwise = (
            function(da.from_array(x, chunks=chunks), **keywords).compute()
            for chunks in ((rows, columns[0]), ((6,), columns[1]))
        )
        assert same_bits(cut, otherwise)
        near_or_nan = of_numpy(function)(x, **keywords)
        assert (np.isnan(cut) == np.isnan(near_or_nan)).all()
        finite = np.isfinite(near_or_nan)
        near(cut[finite], near_or_nan[finite])
        assert (cut[~finite & ~np.isnan(cut)] == near_or_nan[~finite & ~np.isnan(cut)]).all()


def test_bits_are_those_of_ranks():
    """The bits agree with onsoftmax.distributed. For whole rows they agree with onsoftmax.softmax."""
    x = values(shape=(20, 3000))
    pairs = _core.merge(_core.sums(x), gives="pair")
    for function in ROWS:
        whole, cut = (function(da.from_array(x, chunks=(9, n))).compute() for n in (3000, 1100))
        assert same_bits(whole, of_numpy(function)(x))
        assert same_bits(cut, _core.finish(x, pairs=pairs, operation=function.__name__))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
def test_masks_and_scales(dtype):
    x, rng = values(dtype), np.random.default_rng(1)
    mask, scale = rng.random(SHAPE) > 0.4, rng.uniform(-1, 2, (7, 1, 5))
    chunked = da.from_array(x, chunks=(3, 7, 5))
    masks = [mask, da.from_array(mask, chunks=4), mask[:, :, :1], mask[0], chunked > 0, True, mask[0, 0, 0]]
    scales = [scale, da.from_array(scale, chunks=2), scale[:1], 0.3, np.float32(-2)]
    for where, factor in itertools.product(masks, scales):
        y = module.softmax(chunked, 1, where=where, scale=factor).compute()
        where, factor = dask.compute(where, factor)
        assert (y[~np.broadcast_to(where, SHAPE)] == 0).all()
        near(y, ons.softmax(x, 1, where=where, scale=factor))


def test_large_chunks_are_converted_by_pieces(monkeypatch):
    """The bits do not change."""
    x, mask = values(shape=(40, 500)), values("bool", (40, 500), seed=1)
    chunked = da.from_array(x, chunks=(30, 300))
    keywords = {"where": mask, "scale": np.linspace(0.1, 2, 40)[:, None]}
    wanted = module.softmax(chunked, **keywords).compute()
    sizes, sums = [], _dask_chunks._sums
    monkeypatch.setattr(_dask_chunks, "_PIECE_ELEMENTS", 100)
    monkeypatch.setattr(_dask_chunks, "_sums", lambda x, *more: (sizes.append(x.size), sums(x, *more))[1])
    assert same_bits(module.softmax(chunked, **keywords).compute(), wanted)
    assert max(sizes) <= 100 and sum(sizes) == x.size


def test_odd_shapes():
    for x in (np.ones((0, 5)), np.ones((5, 0)), np.float32(3), np.ones((2, 0, 3))):
        chunked = da.from_array(x, chunks=2)
        assert same_bits(np.asarray(module.softmax(chunked).compute()), np.asarray(ons.softmax(x)))
        assert same_bits(np.asarray(module.logsumexp(chunked).compute()), np.asarray(ons.logsumexp(x)))
    assert (module.softmax([1, 1]).compute() == 0.5).all()


def test_unknown_lengths():
    x = values(shape=(20, 12))
    kept = x[:, 0] > 0
    some = da.from_array(x, chunks=(6, 5))[da.from_array(kept, chunks=6)]
    assert np.isnan(some.shape[0])
    for axis in (0, 1, None):
        near(
            module.softmax(some, axis, where=some > -1).compute(),
            ons.softmax(x[kept], axis, where=x[kept] > -1),
        )
        near(module.logsumexp(some, axis).compute(), ons.logsumexp(x[kept], axis))
    for where in (kept[:, None], da.from_array(x, chunks=(6, 5)) > 0):
        with pytest.raises(ValueError, match=r"where has shape \(20, .* \(nan, 12\); compute_chunk"):
            module.softmax(some, where=where)
    with pytest.raises(ValueError, match=r"where has shape \(nan, 12\)"):
        module.softmax(x, where=some > 0)


def test_exact_of_cut_rows(rng):
    """The bits of whole rows, with a mask and a scale too."""
    x = (10 * rng.standard_normal((6, 1000))).astype("float32")
    x[0], x[1, 7], x[2] = x[0, 0], np.nan, -np.inf
    where, scale = rng.random(x.shape) < 0.7, rng.standard_normal((6, 1))
    for chunks in ((6, 333), (2, 1), (4, (0, 1, 999))):
        if chunks == (2, 1):
            x, where = x[:, :20], where[:, :20]
        chunked, chunked_where = da.from_array(x, chunks=chunks), da.from_array(where, chunks=chunks)
        for name in ("softmax", "log_softmax", "logsumexp"):
            function, whole = getattr(module, name), getattr(ons, name)
            assert same_bits(function(chunked, method="exact").compute(), whole(x, method="exact"))
            made = function(chunked, method="exact", where=chunked_where, scale=scale).compute()
            assert same_bits(made, whole(x, method="exact", where=where, scale=scale))
        x, where = np.tile(x, 50)[:, :1000], np.tile(where, 50)[:, :1000]


def test_invariant(rng):
    """The bits of auto, whether rows are cut or not."""
    x = rng.standard_normal((6, 100)).astype("float32")
    for chunks in ((2, 100), (6, 33)):
        chunked = da.from_array(x, chunks=chunks)
        for function in (module.softmax, module.log_softmax, module.logsumexp):
            assert same_bits(function(chunked, method="invariant").compute(), function(chunked).compute())


# ---------------------------------------------------------------- what is refused, when the graph is built


WRONG = [
    (dict(axis=2), IndexError, "axis 2 is out of bounds"),
    (dict(axis="a"), TypeError, "axis is 'a'"),
    (dict(axis=True), TypeError, "axis is True"),
    (dict(method="x"), ValueError, "expected one of auto, invariant, naive"),
    (
        dict(method="safe"),
        ValueError,
        "'safe', and the rows lie in 2 chunks along axis 1: expected 'auto', 'invariant' or 'exact'",
    ),
    (dict(dtype="int32"), TypeError, "dtype is int32"),
    (
        dict(where=np.ones(5, bool)),
        ValueError,
        r"where has shape \(5,\), and the array has \(4, 6\): expected",
    ),
    (dict(where=np.ones((1, 4, 6), bool)), ValueError, "where has shape"),
    (dict(where=np.ones(6)), TypeError, "expected a mask of bool"),
    (dict(where=da.ones(6)), TypeError, "expected a mask of bool"),
    (dict(scale=np.ones(6)), ValueError, r"scale has shape \(6,\).*with length 1 along axis"),
    (dict(scale=1j), TypeError, "scale has dtype complex"),
    (dict(scale=da.ones((4, 1), dtype=complex)), TypeError, "scale has dtype complex"),
    (dict(num_threads=0), ValueError, "num_threads is 0"),
]


@pytest.mark.parametrize("keywords, error, text", WRONG, ids=str)
def test_wrong_arguments(keywords, error, text):
    with pytest.raises(error, match=text):
        module.softmax(da.ones((4, 6), chunks=3), **keywords)


@pytest.mark.parametrize("dtype", [object, complex, "U3", np.longdouble], ids=str)
def test_wrong_types(dtype):
    with pytest.raises(TypeError, match="is not supported"):
        module.logsumexp(da.empty(4, dtype=dtype, chunks=2))


def test_no_other_function_computes_them():
    d, x = da.ones((3, 4), chunks=2), np.ones((3, 4), np.float32)
    for call in (
        lambda: ons.softmax(d),
        lambda: ons.softmax([d, d]),
        lambda: ons.logsumexp(([d[0]], [d[1]])),
        lambda: ons.softmax(x, where=d > 0),
        lambda: ons.softmax_topk(x, 1, where=[d[0] > 0] * 3),
        lambda: ons.log_softmax(x, scale=d[:, :1]),
        lambda: ons.normalizer(x, scale=d[:, :1]),
        lambda: ons.softmax_backward(x, d),
        lambda: ons.route(d, 2),
        lambda: ons.route(x, 2, where=d > 0),
    ):
        with pytest.raises(TypeError, match="got a Dask array: call softmax"):
            call()


def test_wrong_arrays():
    with pytest.raises(TypeError, match="masked arrays"):
        module.softmax(da.ma.masked_array(da.ones(4), da.ones(4) > 2))
    with pytest.raises(TypeError, match="array is of type Odd: expected a Dask array"):
        module.softmax(type("Odd", (), {"shape": (3,), "dtype": "odd"})())


def test_xarray_on_dask_arrays():
    """ons.softmax must not take them: NumPy would compute them."""
    xarray = pytest.importorskip("xarray")
    array = xarray.DataArray(np.ones((4, 6)), dims=("row", "class"))
    assert np.all(ons.softmax(array) == 1 / 6)
    for call in (ons.softmax, lambda x: ons.softmax_topk(x, 2), lambda x: ons.softmax(np.ones(6), where=x)):
        with pytest.raises(TypeError, match=r"got a Dask array.*onsoftmax\.dask"):
            call(array.chunk())
