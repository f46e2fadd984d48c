"""gpu_bounds.py on a program that prints a table like Nsight Compute's."""

import os

import pytest
from support import ROOT, run_python

SCRIPT = os.path.join(ROOT, "benchmarks", "gpu_bounds.py")
pytestmark = pytest.mark.skipif(not os.path.isfile(SCRIPT), reason="the benchmarks are not beside the tests")
pytest.importorskip("torch")

# Six cases. The first has two kernels, the others one each. Each metric except the duration is 1000.
NCU = """#!/usr/bin/env python3
import sys
metrics = sys.argv[sys.argv.index("--metrics") + 1].split(",")
print("==PROF== Connected")
table = [["ID", "Kernel Name", *metrics], ["", "", *["unit"] * len(metrics)]]
mark = ["0", "vectorized_elementwise_kernel", *["1"] * len(metrics)]
def kernel(name, us):
    return ["0", name, *[str(us) + ",000" if m.startswith("gpu__time") else "1,000" for m in metrics]]
table += [mark, kernel("split_statistics_kernel", 3), kernel("split_finish_kernel", 2)]
for case in range(5):
    table += [mark, kernel("online_kernel", 7)]
for row in table:
    print(",".join(f'"{field}"' for field in row))
"""


@pytest.fixture
def ncu(tmp_path):
    path = tmp_path / "ncu"
    path.write_text(NCU)
    path.chmod(0o755)
    return path


def test_a_table_of_cases(ncu):
    done = run_python([SCRIPT, "--dtypes", "float32", "--lengths", "4096", "--ncu", ncu])
    assert done.returncode == 0, done.stderr
    head, _, first, *others = done.stdout.splitlines()
    assert "instructions an element" in head
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells[:3] == ["65536x4096 float32", "5.0", "0.0"]
    assert len(others) == 5 and all(" 7.0 " in line for line in others)
    assert "4096x4096 axis 0" in others[0] and "both off by one" in others[-1]


def test_without_ncu(tmp_path):
    done = run_python([SCRIPT, "--ncu", tmp_path / "none"])
    assert done.returncode == 2 and "none" in done.stderr and done.stdout == ""


def test_a_table_that_does_not_fit(ncu):
    done = run_python([SCRIPT, "--dtypes", "float32,bfloat16", "--lengths", "4096", "--ncu", ncu])
    assert done.returncode == 2 and "6 of 12 cases" in done.stderr
