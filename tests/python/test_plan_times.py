"""plan's times: measured and interpolated. Without a measurement, the least time that memory allows."""

from __future__ import annotations

import itertools
import json
import os
import sys

import numpy as np
import pytest
from support import ROOT

import onsoftmax as ons
from onsoftmax import _core

pytestmark = pytest.mark.skipif(
    not os.path.isdir(os.path.join(ROOT, "benchmarks")), reason="the benchmarks are not beside the tests"
)
RUN = os.path.join(ROOT, "benchmarks", "results", "plan-times-h100-2026-11-25.json")
NEAR = 1.065  # interpolation may be off by 3 % along the rows, and by 3 % along the lengths


@pytest.fixture(scope="module")
def run():
    with open(RUN) as file:
        return json.load(file)


def seconds(shape, **how):
    return _core.plan(shape, device="H100", **how)["measured_seconds"]


def test_every_time_of_the_run(run):
    off = []
    for series in run["times"]:
        for N, row in series["us"].items():
            for rows, us in row.items():
                if int(N) < 2**27:
                    planned = seconds((int(rows), int(N)), dtype=series["dtype"], method=series["method"])
                    off.append(planned * 1e6 / us)
    assert len(off) > 20000
    assert min(off) > 1 / NEAR and max(off) < NEAR


def test_the_table_is_the_runs(run):
    sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
    import plan_table

    with open(plan_table.TABLE) as file:
        assert file.read() == plan_table.table(run)


@pytest.mark.parametrize("rows, N", [(3, 40), (100, 5000), (7, 70000), (1000, 100_000), (2**22, 1000)])
def test_between_and_beyond_what_was_measured(rows, N):
    """More rows take longer. Longer rows of the same kind take longer. float16 takes the time of bfloat16."""
    for dtype, method in itertools.product(("float32", "bfloat16", "float64"), ("online", "split", "naive")):
        times = [seconds((M, N), dtype=dtype, method=method) for M in (rows, 2 * rows, 16 * rows)]
        assert times[0] * 0.93 < times[1] < times[2] < 40 * times[0]
        assert seconds((rows, 256 * N), dtype=dtype, method=method) > times[0]
    assert seconds((rows, N), dtype="float16") == seconds((rows, N), dtype="bfloat16")


def test_what_was_not_measured():
    x = np.ones((64, 100), np.float32)
    assert ons.plan(x).measured_seconds is None
    assert ons.plan((64, 100), device="A100").measured_seconds is None
    assert ons.plan((64, 100), device="H200").measured_seconds is None
    for how in ({"axis": 0}, {"operation": "log_softmax"}, {"operation": "softmax_topk", "k": 2}):
        assert ons.plan((64, 100), device="H100", **how).measured_seconds is None
    assert ons.plan((0, 100), device="H100").measured_seconds is None
    assert ons.plan((64, 0), device="H100").measured_seconds is None


def test_what_is_said_of_each_method():
    plan = ons.plan((65536, 4096), device="H100")
    cost = {each.method: each for each in plan.others}
    assert cost["grid"].measured_seconds > 0.2 > 200 * cost["fused_block"].measured_seconds
    assert plan.seconds() == plan.measured_seconds == cost["fused_block"].measured_seconds
    assert "measured on an H100: 0.9" in str(plan) or "measured on an H100: 1.0" in str(plan)
    assert "0.0027 measured" in str(plan)
    assert plan.seconds(1e12) == plan.bytes_moved / 1e12 and "measured on an H100" not in plan.to_text(1e12)
    elsewhere = ons.plan((4096, 65536), device="A100")
    most = {each.method: each.most_x_copy for each in elsewhere.others}
    assert "at most 0.68" in str(elsewhere) and ">= 1.2 ms" in str(elsewhere)
    assert 2 / 3 < most["split"] < 0.68 < most["online"] < 0.8 and most["cluster"] is None


def test_auto_takes_what_is_fast(run):
    """Over the run's aligned shapes except float64: at most a fifth above the best, 1 % on average."""
    times: dict[tuple, dict[str, float]] = {}
    for series in run["times"]:
        for N, row in series["us"].items():
            for rows, us in row.items():
                if series["packs"]:
                    times.setdefault((series["dtype"], int(rows), int(N)), {})[series["method"]] = us
    behind = []
    for (dtype, rows, N), of_methods in times.items():
        method = _core.plan((rows, N), dtype=dtype, device="H100")["method"]
        if dtype != "float64" and method in of_methods and len(of_methods) > 3:
            behind.append((of_methods[method] / min(of_methods.values()), dtype, rows, N, method))
    assert len(behind) > 1000
    assert np.mean([ratio for ratio, *_ in behind]) < 1.01
    assert max(behind)[0] < 1.2, sorted(behind)[-10:]
