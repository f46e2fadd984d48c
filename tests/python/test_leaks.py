"""Calls lose neither Python objects nor C memory, whether they work or fail."""

import contextlib
import gc
import os
import sys
import tracemalloc

import numpy as np
import pytest
from support import METHODS, SANITIZED

import onsoftmax as ons


def calls_that_work():
    x = np.ones((2, 30), np.float32)
    out, where, scale = np.empty_like(x), x > 0, np.ones((2, 1))
    return [
        lambda: ons.softmax(x),
        lambda: ons.softmax(x, 0, method="online", out=out),
        lambda: ons.softmax(x, (0, 1), where=where, scale=scale, dtype="float64"),
        lambda: ons.softmax([1.0, 2.0], scale=0.3),
        lambda: ons.softmax(x[:, ::-1], out=x),
        lambda: ons.softmax(np.arange(5)),
        lambda: ons.plan(x),
        lambda: ons.softmax(x.astype(">f4")),
    ]


def calls_that_fail():
    x = np.ones((2, 30), np.float32)
    wrong = np.empty((3, 30), np.float32)
    return [
        lambda: ons.softmax(x, 5),
        lambda: ons.softmax(x, (0, 0)),
        lambda: ons.softmax(x, method="quick"),
        lambda: ons.softmax(x, method="cluster"),
        lambda: ons.softmax(x, out=wrong),
        lambda: ons.softmax(x, out=x[0], where=x > 0),
        lambda: ons.softmax(x, where=wrong > 0),
        lambda: ons.softmax(x, scale=wrong),
        lambda: ons.softmax(x, scale="no"),
        lambda: ons.softmax(x, dtype="int32"),
        lambda: ons.softmax(x, out=np.empty((2, 30)), dtype="float32"),
        lambda: ons.softmax(object()),
        lambda: ons.softmax(x, stream=3),
        lambda: ons.plan(x, 7),
    ]


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(("calls", "count"), [(calls_that_work, 50_000), (calls_that_fail, 30_000)])
def test_no_leak(calls, count):
    calls = calls()

    def repeat(times):
        for i in range(times):
            with contextlib.suppress(TypeError, ValueError, IndexError):
                calls[i % len(calls)]()

    repeat(2000)
    gc.collect()
    tracemalloc.start()
    repeat(600 * len(calls))  # exceptions and tracebacks fill the interpreter's caches first
    before = tracemalloc.get_traced_memory()[0]
    repeat(200 * len(calls))
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000  # one object left in each round would be 200 x 50 bytes or more
    if SANITIZED or not os.path.exists("/proc/self/statm"):
        return
    repeat(count // 5)
    before = resident_bytes()
    repeat(count)
    assert resident_bytes() - before < 4 << 20  # 40 bytes a call


def test_no_leak_of_references():
    """After any call, the arguments have the reference counts that they had before."""
    x, wrong = np.ones((2, 30), np.float32), np.ones((3, 3), bool)
    out, scale = np.ones((2, 30)), np.ones((2, 1))
    held = (x, wrong, out, scale, None, "fused")
    before = [sys.getrefcount(each) for each in held[:4]]
    for _ in range(50):
        ons.softmax(x, out=out, scale=scale)
        ons.softmax(out, out=out, where=True)
        for keywords in ({"where": wrong}, {"out": wrong}, {"scale": wrong}, {"dtype": wrong}):
            with pytest.raises((TypeError, ValueError)):
                ons.softmax(x, **keywords)
        del keywords
        with pytest.raises(ValueError, match="where"):
            ons.softmax(x, out=out, scale=scale, where=wrong)
    assert [sys.getrefcount(each) for each in held[:4]] == before


@pytest.mark.skipif(
    SANITIZED or not os.path.exists("/proc/self/statm"), reason="cannot tell what is resident"
)
@pytest.mark.parametrize("method", METHODS)
def test_no_leak_of_large_scratch(method):
    x = np.ones((4, 100_000), np.float16)
    for _ in range(3):
        ons.softmax(x, method=method, num_threads=3)
    before = resident_bytes()
    for _ in range(60):
        ons.softmax(x, method=method, num_threads=3)
    assert resident_bytes() - before < 8 << 20
