"""Large NumPy results lie in special memory (csrc/python/numpy_memory.c). They behave like any array."""

from __future__ import annotations

import pickle
import sys
import threading

import numpy as np
import pytest

import onsoftmax as ons

ROWS, N = 2304, 1024  # 9 MiB of float32: above the threshold


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).standard_normal((ROWS, N), dtype=np.float32)


@pytest.fixture(scope="module")
def expected(x):
    return ons.softmax(x, out=np.empty_like(x))


def test_owned_and_writeable(x, expected):
    y = ons.softmax(x)
    assert y.flags.owndata and y.flags.writeable and y.base is None and type(y) is np.ndarray
    assert np.array_equal(y, expected)


def test_results_that_live_do_not_share(x, expected):
    held = [ons.softmax(x) for _ in range(4)]
    held[0].fill(7)
    assert all(np.array_equal(y, expected) for y in held[1:])
    del held
    assert np.array_equal(ons.softmax(x), expected)  # the result reuses memory


def test_fortran_order_keeps(x):
    y = ons.softmax(np.asfortranarray(x), axis=0)
    assert y.flags.f_contiguous
    assert np.allclose(y.sum(0), 1, atol=1e-5)


@pytest.mark.parametrize("rows", [10, 2 * ROWS])
def test_resize(x, expected, rows):
    y = ons.softmax(x)
    y.resize((rows, N), refcheck=False)
    kept = min(rows, ROWS)
    assert np.array_equal(y[:kept], expected[:kept]) and not y[kept:].any()


def test_pickle_and_copy(x, expected):
    y = ons.softmax(x)
    assert np.array_equal(pickle.loads(pickle.dumps(y)), expected)
    assert np.array_equal(y.copy(), expected)


def test_other_arrays_keep_numpys_memory(x):
    multiarray = pytest.importorskip(
        "numpy._core.multiarray" if np.__version__ >= "2" else "numpy.core.multiarray"
    )
    y = ons.softmax(x)
    assert multiarray.get_handler_name(y) == ("onsoftmax" if sys.platform == "linux" else "default_allocator")
    assert multiarray.get_handler_name(np.empty_like(x)) == "default_allocator"
    assert multiarray.get_handler_name(ons.softmax(x[:2])) == "default_allocator"


def test_threads_allocate_and_free(x, expected):
    wrong = []

    def work():
        for _ in range(20):
            if not np.array_equal(ons.softmax(x, num_threads=1)[:: ROWS // 8], expected[:: ROWS // 8]):
                wrong.append(threading.current_thread().name)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
