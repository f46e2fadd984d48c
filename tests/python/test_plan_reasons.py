"""plan's reason: a launch, a cache or a tie, by the plan's own costs. The plan as plain data."""

from __future__ import annotations

import dataclasses
import json
import os
import re

import numpy as np
import pytest
from support import ROOT

import onsoftmax as ons
from onsoftmax import _core
from onsoftmax._plan import reasons

RUN = os.path.join(ROOT, "benchmarks", "results", "plan-times-h100-2026-11-25.json")


def costs(plan):
    return {cost.method: cost for cost in plan.others}


def test_a_tie_is_said_with_its_times_and_where_it_ends():
    plan = ons.plan((4096, 4096), device="H100")
    of = costs(plan)
    assert plan.method == "fused_block" and plan.reason.startswith("the row fits the registers of a block")
    tie = re.search(r"fused_block takes ([\d.]+) us here\. (.*) tie with it\.", plan.reason)
    assert float(tie[1]) == pytest.approx(plan.measured_seconds * 1e6, rel=0.01)
    said = {name: float(us) for name, us in re.findall(r"(\w+) \(([\d.]+) us\)", tie[2])}
    near = [
        name
        for name, cost in of.items()
        if cost.measured_seconds and 1 / 1.065 < cost.measured_seconds / plan.measured_seconds < 1.065
    ]
    assert (
        {*said}
        == {*near} - {"fused", "fused_block"}
        == {"online_block", "cluster", "online", "naive", "safe"}
    )
    for name, us in said.items():
        assert us == pytest.approx(of[name].measured_seconds * 1e6, rel=0.01)
    assert "online, naive and safe read the array again, but from the L2 cache" in plan.reason
    ends = re.findall(r"(\w+) ([\d.]+) times as long \((\d+) rows?\)", plan.reason)
    assert {name for name, _, _ in ends} == {*said}
    for name, ratio, rows in ends:
        own, other = (_core.plan((int(rows), 4096), device="H100", method=m) for m in ("auto", name))
        assert own["method"] == plan.method
        assert other["measured_seconds"] / own["measured_seconds"] == pytest.approx(float(ratio), rel=0.01)


def test_no_tie_and_a_faster_method_are_said_too():
    assert ons.plan((8, 100_000), device="H100").reason == "the row fits the registers of a cluster: one read"
    plan = ons.plan((1000, 1001), device="H100")
    assert plan.method == "fused_warp" and "fused_block (5.79 us) is faster. auto goes by" in plan.reason
    assert costs(plan)["fused_block"].measured_seconds * reasons.TIE < plan.measured_seconds
    assert ons.plan((4096, 4096), device="H100", method="safe").reason == "asked for by name"


@pytest.mark.parametrize("name", ["H100", "B200", "A100", "L4"])
def test_a_small_array_is_launch_bound(name):
    plan = ons.plan((10, 20), device=name)
    launch = plan.launch_seconds
    assert plan.method == "fused_warp"
    assert launch == pytest.approx(1.36e-6)  # the shortest time of the H100's table
    assert "Launch-bound: a launch alone takes 1.36 us" in plan.reason
    assert costs(plan)["fused_warp"].note == reasons.LAUNCH_BOUND
    assert name == "H100" or {cost.note for cost in plan.others if cost.bytes_moved} == {"launch-bound"}
    assert plan.seconds() == (plan.measured_seconds if name == "H100" else launch) >= launch
    assert "0.000" not in str(plan) and (name == "H100" or ">= 1.36 us" in str(plan))
    large = ons.plan((4096, 32000), device=name)
    assert "aunch-bound" not in str(large) and large.seconds() > 50 * launch


def test_other_operations_have_a_launch_too():
    for operation, k in (("log_softmax", None), ("softmax_backward", None), ("softmax_topk", 3)):
        plan = ons.plan((10, 20), device="B200", operation=operation, k=k)
        assert "Launch-bound" in plan.reason and 5e-7 < plan.seconds() == plan.launch_seconds < 3e-6
    assert ons.plan((10, 20)).launch_seconds is None


def test_doubles_may_be_slow():
    """Where doubles are slow, the arithmetic of `exact` takes longer than the memory."""
    for name, slow in (("H100", False), ("A100", False), ("L4", True), ("RTX 4090", True)):
        plan = ons.plan((8192, 4096), device=name, method="exact")
        cost = costs(plan)["exact"]
        assert (cost.note == reasons.SLOW_DOUBLES) == slow == ("slow with doubles" in str(plan))
        assert (cost.most_x_copy < 0.6) == slow and cost.most_x_copy <= 1
        assert (cost.arithmetic_seconds == plan.seconds()) == slow
    assert costs(plan)["safe"].arithmetic_seconds is None
    assert costs(ons.plan((8192, 4096), method="exact"))["exact"].arithmetic_seconds is None


def test_reads_that_the_cache_serves():
    """L2 serves a later read of the part that fits: all, some or almost none."""
    for N, online, copies in ((4096, "reads again from L2", 1.0), (65536, "", 0.76), (2**20, "", 0.67)):
        plan = ons.plan((8192, N), device="A100")
        cost = costs(plan)["online"]
        assert cost.note == online and cost.bytes_moved == 12 * 8192 * N
        assert cost.most_x_copy == pytest.approx(8 * 8192 * N / cost.least_bytes)
        assert cost.most_x_copy == pytest.approx(copies, abs=0.01)
    short = ons.plan((8192, 4096), device="A100")
    assert "The rows in work fit the L2 cache: a second read, as in online, comes from there" in short.reason
    online = ons.plan((8192, 4096), device="A100", method="online")
    assert online.seconds() == short.seconds() and online.bytes_moved > short.bytes_moved


@pytest.mark.skipif(not os.path.isfile(RUN), reason="the benchmarks are not beside the tests")
def test_no_measured_time_is_below_the_least_of_the_plan():
    with open(RUN) as file:
        run = json.load(file)
    behind = []
    for series in run["times"]:
        for N, row in [*series["us"].items()][::5]:
            for rows, us in row.items():
                if int(N) < 2**27:
                    how = {"dtype": series["dtype"], "method": series["method"], "device": "H100"}
                    facts = _core.plan((int(rows), int(N)), **how)
                    least = facts["least_bytes"] / facts["copy_speed"]
                    behind.append(us * 1e-6 / max(least, facts["launch_seconds"]))
    assert len(behind) > 4000 and min(behind) > 0.93


def test_the_cpu_has_no_bound_by_a_copy():
    """`measured` lists methods that are faster than a copy, because a copy reads what it overwrites."""
    large, small = (ons.plan((rows, 4096), num_threads=1) for rows in (2**17, 4))
    assert "fused 1.47" in large.measured and all(cost.most_x_copy is None for cost in large.others)
    texts = [" ".join(str(plan).split()) for plan in (large, small)]
    for text in texts:
        assert "at most" not in text and "at least" not in text and "np.copyto" in text
    assert "A copy reads what it overwrites" in texts[0] and "fits the caches" in texts[1]
    assert costs(large)["fused"].note == "writes past the caches"
    assert costs(small)["fused"].note == "the array fits the caches"


def test_the_measured_rows_name_their_gpu():
    plan = ons.plan((4096, 4096), device="H100")
    text = " ".join(str(plan).split())
    assert "48.3 us, measured on an H100" in text
    assert "measured on an NVIDIA H200 where the choice changes, x copy (benchmarks/results/cuda-h200" in text


def test_one_row_and_two_rows():
    for plan, words in (
        (ons.plan((1, 20)), ("1 row of N = 20", "1 row side by side", "for 1 row in")),
        (ons.plan((2, 20)), ("2 rows of N = 20", "2 rows side by side", "for 2 rows in")),
        (ons.plan((10, 20), device="B200"), ("1 warp a block",)),
    ):
        text = str(plan)
        assert all(word in text for word in words)
        assert not re.search(r"\b1 (rows|warps|threads|elements|blocks|bytes|registers)\b", text)


def test_plain_data():
    for plan in (
        ons.plan((4096, 4096), device="A100"),
        ons.plan(np.zeros((3, 5)), num_threads=1),
        ons.plan((10, 20), device="B200", operation="softmax_topk", k=3),
    ):
        data = plan.to_dict()
        assert json.loads(json.dumps(data, allow_nan=False)) == data
        fields = {field.name for field in dataclasses.fields(plan)}
        assert {*data} == fields | {"seconds", "cliffs"}
        assert data["seconds"] == plan.seconds() and plan.to_dict(1e9)["seconds"] == plan.seconds(1e9)
        assert [ons.Cost(**cost) for cost in data["others"]] == [*plan.others]
        assert [ons.Cliff(**cliff) for cliff in data["cliffs"]] == [*plan.cliffs()]
        assert all(data[name] == getattr(plan, name) for name in fields - {"others", "steps"})
    with pytest.raises(ValueError, match="above 0"):
        plan.to_dict(0)
