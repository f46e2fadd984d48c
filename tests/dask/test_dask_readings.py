"""onsoftmax.dask: what it reads, when and how often, and what it holds in memory."""

import pickle
import sys
import weakref

import numpy as np
import pytest
from support import SANITIZED, run_python, same_bits

import onsoftmax as ons

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
from dask_support import ROWS, near, values  # noqa: E402

from onsoftmax import dask as module  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


class Source:
    """A source of chunks, like a file. It records the chunks that were read, and the most that were in
    memory."""

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
    """One chunk for each worker. Dask's own tasks in between may hold a second one."""
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
    """Dask recognises the same call by its name. This includes the tasks of the second reading."""
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
    """Each chunk is read twice, within a memory limit that the whole array exceeds."""
    done = run_python(["-c", LIMIT, "256", "synchronous"], OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "within the limit\n"


def test_without_dask():
    done = run_python(["-c", "import sys; sys.modules['dask'] = None; import onsoftmax.dask"])
    assert done.stderr.endswith('onsoftmax.dask needs Dask: pip install "dask[array]>=2025.1"\n')
    assert run_python(["-c", "import sys, onsoftmax; print('dask' in sys.modules)"]).stdout == "False\n"
