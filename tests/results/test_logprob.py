"""logprob: exact results, edges and errors."""

import logprob_checks
import numpy as np
import pytest
from support import DTYPES, isas, run_python

import onsoftmax as ons

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("isa", isas())
def test_random_calls(isa):
    done = run_python(["logprob_checks.py"], ONSOFTMAX_ISA=isa)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_vocabulary(rng, threads):
    x = (3 * rng.standard_normal((7, 40001))).astype(np.float32)
    index = rng.integers(0, 40001, (7, 1))
    found = ons.logprob(x, index, entropy=True, lse=True, argmax=True, rank=True, num_threads=threads)
    logprob_checks.check(x, index, found[:5], "float32")


EDGES = {  # a row, an index; its log-probability, entropy, lse, argmax and rank
    "a NaN": ([1.0, NAN, 2.0], 0, NAN, NAN, NAN, 1, 1),
    "+inf": ([1.0, INF, 2.0], 0, NAN, NAN, INF, 1, 2),
    "-inf beside others": ([0.0, -INF, 0.0], 0, -np.log(2), np.log(2), np.log(2), 0, 0),
    "-inf is chosen": ([0.0, -INF, 0.0], 1, -INF, np.log(2), np.log(2), 0, 2),
    "nothing but -inf": ([-INF, -INF], 0, NAN, NAN, -INF, 0, 0),
    "one element": ([5.0], 0, 0.0, 0.0, 5.0, 0, 0),
    "equal elements": ([1.0] * 8, 3, -np.log(8), np.log(8), 1 + np.log(8), 0, 0),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES)
def test_edges(dtype, edge):
    row, index, *wanted = edge
    found = ons.logprob(np.array(row, dtype), index, entropy=True, lse=True, argmax=True, rank=True)
    assert found.argmax == wanted[3] and found.rank == wanted[4]
    np.testing.assert_allclose([float(each) for each in found[:3]], wanted[:3], rtol=3e-7)


def test_a_common_offset_does_not_matter(rng):
    x = rng.integers(-40, 40, (4, 1000)).astype(np.float32) / 8
    index = rng.integers(0, 1000, 4)
    near, far = (ons.logprob(x + offset, index, entropy=True) for offset in (0, 2.0**17))
    np.testing.assert_allclose(far[:2], near[:2], rtol=1e-6)


def test_what_is_not_wanted_is_none(rng):
    x = rng.standard_normal((2, 3, 50))
    index = rng.integers(0, 50, (2, 3, 4))
    alone = ons.logprob(x, index)
    assert alone.shape == (2, 3, 4) and alone.dtype == np.float64
    found = ons.logprob(x, index, lse=True)
    assert found.entropy is found.argmax is found.rank is found.topk is None
    assert np.array_equal(found.logprob, alone) and np.array_equal(found.lse, ons.logsumexp(x))


def test_topk(rng):
    x = rng.standard_normal((5, 300)).astype(np.float16)
    found = ons.logprob(x, np.zeros(5, int), topk=3, argmax=True)
    assert np.array_equal(found.topk.indices[:, 0], found.argmax)
    assert found.topk.values.dtype == np.float32
    assert np.array_equal(found.topk.values, ons.softmax_topk(x, 3, log=True, dtype="float32").values)


def test_no_rows_and_no_elements():
    assert ons.logprob(np.zeros((0, 5)), np.zeros(0, int), entropy=True).entropy.shape == (0,)
    with pytest.raises(IndexError, match=r"index 0 of row 0 is no element: expected 0 to -1"):
        ons.logprob(np.zeros((1, 0)), [0])


@pytest.mark.parametrize(
    ("index", "keywords", "error", "text"),
    [
        ([0, 5], {}, IndexError, "index 5 of row 1 is no element: expected 0 to 4"),
        ([[0, 1], [-1, 0]], {}, IndexError, "index -1 of row 1 is no element"),
        ([0.0, 1.0], {}, TypeError, "index has dtype float64: expected"),
        ([0], {}, ValueError, r"index has shape \(1,\): expected \(2,\)"),
        ([[0, 1], [1, 0]], {"rank": True}, ValueError, "index has 2 elements of each row: expected one"),
        (np.zeros((2, 0), int), {}, ValueError, "index has 0 elements of each row: expected at least one"),
        ([0, 1], {"topk": -1}, ValueError, "topk is -1"),
        ([0, 1], {"topk": 9}, ValueError, "topk is 9: expected at most 5, the length of axis -1"),
        ([0, 1], {"axis": 2}, np.exceptions.AxisError, "axis"),
        ([0, 1], {"stream": 0}, ValueError, "stream is given"),
    ],
)
def test_errors(index, keywords, error, text):
    with pytest.raises(error, match=text):
        ons.logprob(np.zeros((2, 5)), index, **keywords)
