"""The files that the compiler reads for one kernel, and their lines. A reader of the kernel opens the same
files."""

import os
import re
import subprocess

import pytest
from core import CSRC, NVCC, TESTS, needs_nvcc

pytestmark = [
    pytest.mark.skipif(not os.path.isdir(CSRC), reason="the C sources are not beside the tests"),
    needs_nvcc,
]


@pytest.mark.parametrize(
    ("kernel", "most_files", "most_lines"),
    [
        ("", 27, 3025),
        ("OF_ONE_VALUE", 27, 3025),
        ("WITH_A_MASK", 29, 3364),
        ("IN_A_CLUSTER", 30, 3394),
    ],
    ids=["block", "one value", "masked", "cluster"],
)
def test_what_a_reader_opens(kernel, most_files, most_lines):
    source = os.path.join(TESTS, "core", "one_kernel.cu")
    flags = ["-std=c++17", "-arch=sm_90", *([f"-D{kernel}"] if kernel else [])]
    done = subprocess.run([NVCC, *flags, "-M", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read = {os.path.realpath(path) for path in re.findall(r"[^\s\\\\]+", done.stdout)}
    ours = sorted(path for path in read if path.startswith(os.path.realpath(CSRC) + os.sep))
    lines = 0
    for path in ours:
        with open(path) as file:
            lines += len(file.readlines())
    assert 10 < len(ours) <= most_files and lines <= most_lines, (len(ours), lines, ours)


def test_they_compile():
    source = os.path.join(TESTS, "core", "one_kernel.cu")
    for kernel in ("ALONE", "OF_ONE_VALUE", "WITH_A_MASK", "IN_A_CLUSTER"):
        flags = ["-std=c++17", "-arch=sm_90", f"-D{kernel}", "-Xcicc", "-O0"]
        done = subprocess.run(
            [NVCC, *flags, "-ptx", source, "-o", os.devnull], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
