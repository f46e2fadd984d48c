"""`onsoftmax bench` and the plan of a real GPU."""

import json

import pytest

import onsoftmax as ons
from onsoftmax import cli
from onsoftmax.bench import command


@pytest.mark.parametrize("operation", command.OPERATIONS)
def test_bench_on_a_gpu(operation, capsys, tmp_path):
    path = tmp_path / "run.json"
    shapes = ["--shape", "256x1024", "16x70000", "64x32@0"]
    run = ["bench", "--device", "cuda", "--operation", operation, "--rounds", "2", *shapes]
    assert cli.main([*run, "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert [case["label"] for case in document["cases"]] == shapes[1:]
    for case in document["cases"]:
        for name in ("copy", "auto", "torch"):
            assert case["figures"][name]["gbps"] > 0 and case["figures"][name]["x_copy"] > 0
    assert "GB/s" in capsys.readouterr().out


def test_the_plan_of_this_gpu():
    plan = ons.plan((2048, 131072), device="cuda")
    assert plan.registers and "an H100 is assumed" not in str(plan)
    assert plan.cliffs()
