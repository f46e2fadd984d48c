"""onsoftmax.dask: the answers of whole rows, for any chunks; what is read, when and how often."""

import doctest
import itertools
import pickle
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SANITIZED, run_python, same_bits

import onsoftmax as ons
from onsoftmax import _core

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
from onsoftmax import _dask_chunks  # noqa: E402
from onsoftmax import dask as module  # noqa: E402

TYPES = [np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
ROWS = [module.softmax, module.log_softmax]
SHAPE = (7, 30, 5)


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def of_numpy(function):
    return getattr(ons, function.__name__)


def values(dtype="float32", shape=SHAPE, seed=0):
    x = 5 * np.random.default_rng(seed).standard_normal(shape)
    return (x > 0 if dtype == "bool" else x).astype(dtype)


def near(y, wanted):
    """Two right answers: each within a few eps."""
    eps = {2: 2.0**-10 if wanted.dtype == np.float16 else 2.0**-7, 4: 2.0**-23, 8: 2.0**-52}
    y, eps, wanted = y.astype(float), eps[wanted.itemsize], wanted.astype(float)
    np.testing.assert_allclose(y, wanted, rtol=8 * eps, atol=8 * eps)


def test_examples():
    failed, tried = doctest.testmod(module)
    assert failed == 0 and tried == 6


# ---------------------------------------------------------------- answers


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
    """Any chunks of an axis, empty ones among them."""
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
    """What onsoftmax.distributed gives, and of whole rows what onsoftmax.softmax does."""
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
    """The bits stay the same."""
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


# ---------------------------------------------------------------- what is refused, when the graph is built


WRONG = [
    (dict(axis=2), IndexError, "axis 2 is out of bounds"),
    (dict(axis="a"), TypeError, "axis is 'a'"),
    (dict(method="x"), ValueError, "expected one of auto, naive"),
    (dict(method="safe"), ValueError, "'safe', and the rows lie in 2 chunks along axis 1: expected 'auto'"),
    (dict(dtype="int32"), TypeError, "dtype is int32"),
    (dict(where=np.ones(5, bool)), ValueError, r"where has shape \(5,\): expected .* the array's \(4, 6\)"),
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


def test_wrong_arrays():
    with pytest.raises(TypeError, match="masked arrays"):
        module.softmax(da.ma.masked_array(da.ones(4), da.ones(4) > 2))
    with pytest.raises(TypeError, match="array is of type Odd: expected a Dask array"):
        module.softmax(type("Odd", (), {"shape": (3,), "dtype": "odd"})())


# ---------------------------------------------------------------- laziness, readings, memory


class Source:
    """Something to read from, as a file is: which chunks were read, and how many are in memory at most."""

    shape, dtype, ndim = (8, 24), np.dtype(np.float32), 2

    def __init__(self):
        self.reads, self.alive, self.most = [], 0, 0

    def __getitem__(self, place):
        chunk = values(shape=self.shape)[place].copy()
        self.reads.append((place[0].start, place[1].start // 6))
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(chunk, self.forget)
        return chunk

    def forget(self):
        self.alive -= 1

    def array(self):
        return da.from_array(self, chunks=(4, 6), meta=np.empty((0, 0), self.dtype))

    def delayed(self, i):
        read = dask.delayed(self.__getitem__)(np.s_[i : i + 2, 0:24])
        return da.from_delayed(read, (2, 24), self.dtype)

    def times(self):
        return sorted({self.reads.count(place) for place in self.reads})


SOURCES = {
    "as it is": lambda source: source.array(),
    "computed": lambda source: source.array().map_blocks(lambda chunk: chunk + 1),
    "sliced": lambda source: source.array()[:, 1:-1],
    "rechunked": lambda source: source.array().rechunk((4, 4)),
    "reshaped": lambda source: source.array().reshape(2, 4, 24),
    "delayed": lambda source: da.concatenate(
        [
            da.from_delayed(dask.delayed(source.__getitem__)(np.s_[i : i + 2, 0:24]), (2, 24), "f4")
            for i in (0, 2, 4, 6)
        ]
    ).rechunk((2, 12)),
    "optimized": lambda source: dask.optimize(source.array()[:, 1:])[0],
}


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_chunk_is_read_twice(name, scheduler):
    source = Source()
    x = SOURCES[name](source)
    results = module.softmax(x, where=x > -2), module.log_softmax(x), module.logsumexp(x)
    assert source.reads == []
    for y, times in zip(results, ([2], [2], [1]), strict=True):
        source.reads.clear()
        y.compute(scheduler=scheduler)
        assert source.times() == times
    source.reads.clear()
    near(results[1].compute(), ons.log_softmax(x.compute()))


@pytest.mark.parametrize("name", ["as it is", "computed", "sliced", "optimized"])
def test_one_chunk_in_memory(name):
    """For each worker: Dask's own tasks between may hold a second."""
    source = Source()
    x = SOURCES[name](source)
    for y in (module.softmax(x, where=x > -2), module.log_softmax(x, None), module.logsumexp(x, None)):
        da.store(y, np.empty(y.shape, y.dtype), lock=False)
        assert source.most == 1 and source.alive == 0


def test_whole_rows_are_read_once():
    source = Source()
    for function in (*ROWS, module.logsumexp):
        for axis, x in ((1, source.array().rechunk((4, 24))), ((), source.array())):
            source.reads.clear()
            function(x, axis, method="online").compute()
            assert source.times() == [1]


def test_what_is_in_memory_is_not_read():
    source = Source()
    x = source.array().persist()
    source.reads.clear()
    y = module.softmax(x)
    assert same_bits(y.compute(), module.softmax(source.array()).compute()) and source.times() == [2]


def test_a_call_has_one_name():
    """Dask knows the same call by it; the tasks of the second reading too."""
    x = da.ones((4, 6), chunks=3)
    a, b = module.softmax(x, scale=0.5), module.softmax(x, scale=0.5)
    assert a.name == b.name != module.softmax(x).name and set(a.dask) == set(b.dask)
    assert same_bits(pickle.loads(pickle.dumps(a)).compute(), a.compute())


def test_tasks_with_any_key():
    x = da.Array({("x", 0): (np.add, 5, 1.0), 5: (np.ones, 3), ("x", 1): 5}, "x", ((3, 3),), dtype=float)
    near(module.softmax(x).compute(), ons.softmax(np.array([2.0, 2, 2, 1, 1, 1])))


def test_processes():
    x = values()
    with dask.config.set(scheduler="processes", num_workers=2):
        y = module.softmax(da.from_array(x, chunks=(4, 15, 5)), 1, where=x > -1).compute()
    near(y, ons.softmax(x, 1, where=x > -1))


LIMIT = """
import resource, sys
from collections import Counter
import dask.array as da, numpy as np
from onsoftmax.dask import logsumexp, softmax

limit, scheduler = int(sys.argv[1]) << 20, sys.argv[2]
columns = 5 * limit // (4 * 32 * 1000) * 1000 + 1000
row = (np.arange(1000) / 64).astype(np.float32)  # again and again
wanted = np.exp(row.astype(float)) / (np.exp(row.astype(float)).sum() * (columns // 1000))

class Source:
    shape, dtype, ndim, reads = (32, columns), np.dtype(np.float32), 2, []
    def __getitem__(self, place):
        rows, part = place
        self.reads.append((rows.start, part.start))
        return np.tile(row, (rows.stop - rows.start, (part.stop - part.start) // 1000))

class Target:
    elements = worst = 0
    def __setitem__(self, place, y):
        self.elements += y.size
        assert (y == y[0]).all()  # as the rows are
        self.worst = max(self.worst, (np.abs(y[0].reshape(-1, 1000) - wanted) / wanted).max())

resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
x = da.from_array(Source(), chunks=(16, 50000), meta=np.empty((0, 0), np.float32))
assert x.nbytes >= 5 * limit
target = Target()
da.store(softmax(x), target, lock=False, scheduler=scheduler)
assert target.elements == x.size and target.worst <= 4 * 2.0**-23, target.worst
times = Counter(Counter(Source.reads).values())
assert times == {2: x.npartitions}, times
try:
    x.compute(scheduler=scheduler)
except MemoryError:
    print("within the limit")
"""


@pytest.mark.skipif(SANITIZED or sys.platform != "linux", reason="what the process may take is limited")
def test_five_times_the_memory():
    """Each chunk read twice, within a limit that the array itself would pass."""
    done = run_python(["-c", LIMIT, "256", "synchronous"], OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "within the limit\n"


def test_without_dask():
    done = run_python(["-c", "import sys; sys.modules['dask'] = None; import onsoftmax.dask"])
    assert done.stderr.endswith('onsoftmax.dask needs Dask: pip install "dask[array]>=2025.1"\n')
    assert run_python(["-c", "import sys, onsoftmax; print('dask' in sys.modules)"]).stdout == "False\n"
