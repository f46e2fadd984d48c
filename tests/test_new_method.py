"""CONTRIBUTING.md's way to a new method, followed to the letter: its one line and its one file are added to a
copy of the tree, which is then built, and the method is there like any other."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from core import COMPILER
from support import ROOT, SANITIZED

GUIDE = os.path.join(ROOT, "CONTRIBUTING.md")
pytestmark = [
    pytest.mark.skipif(not os.path.isfile(GUIDE), reason="no CONTRIBUTING.md and C sources here"),
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is missing"),
    pytest.mark.skipif(SANITIZED, reason="the build of the copy would not be sanitized"),
]

USE = """
import numpy as np
import onsoftmax as ons

toy = next(method for method in ons.methods("cpu") if method.name == "toy")
assert (toy.devices, toy.reads, toy.writes, toy.keeps) == (("cpu",), 2, 1, "tile"), toy
assert "from the last tile to the first" in toy.summary and "toy" in str(ons.methods())
assert [method.name for method in ons.methods()].count("toy") == 1

generator = np.random.default_rng(0)
for shape, axis in (((3, 10007), -1), ((2, 5000, 20), 1), ((1, 1), -1), ((4, 6000), (0, 1))):
    for dtype in (np.float32, np.float64, np.float16):
        x = (8 * generator.standard_normal(shape)).astype(dtype)
        for offset in (0, 30000) if dtype != np.float16 else (0,):  # the latter needs an anchor
            y, usual = (ons.softmax(x + dtype(offset), axis, method=name) for name in ("toy", "safe"))
            eps = np.finfo(dtype).eps
            np.testing.assert_allclose(y.astype(float), usual.astype(float), rtol=4 * eps, atol=1e-7 * eps)
            assert y.dtype == dtype and not (y == 0).all()

x = np.array([[1, 2, 3, 6, 2, 1], [0, -np.inf, 0, 0, 0, 0], [1, 2, np.nan, 0, 0, 0]])
y = ons.softmax(x, method="toy")
exact = np.exp(x[:2] - x[:2].max(axis=1, keepdims=True))
np.testing.assert_allclose(y[:2], exact / exact.sum(axis=1, keepdims=True), rtol=1e-15)
assert y[1, 1] == 0 and np.isnan(y[2]).all()
assert ons.plan(x, method="toy").method == "toy" and ons.plan(x).method != "toy"
try:
    ons.softmax(x, method="tyo")
except ValueError as error:
    assert "toy" in str(error), error
else:
    raise AssertionError("an unknown method passed")
print(ons.__file__)
"""


def the_method():
    """The line for csrc/methods.def, and the files by their paths, that the guide shows."""
    with open(GUIDE) as file:
        text = file.read()
    (line,) = re.findall(r"^```\n(ONS_METHOD\(.*\))\n```$", text, re.M)
    files = re.findall(r"the file `(csrc/[^`]+)`:\n\n```c\n(.*?)^```$", text, re.M | re.S)
    (command,) = re.findall(r"^After `ONSOFTMAX_CUDA=0 python (setup\.py [^`]+)`", text, re.M)
    return line, dict(files), command.split()


def test_a_method_is_one_file_and_one_line(tmp_path):
    pytest.importorskip("setuptools")
    for name in ("csrc", "onsoftmax"):
        ignored = shutil.ignore_patterns("*.so", "*.pyc", "__pycache__")
        shutil.copytree(os.path.join(ROOT, name), tmp_path / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(os.path.join(ROOT, name), tmp_path)
    line, files, command = the_method()
    assert list(files) == ["csrc/cpu/toy.c"]
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    with open(tmp_path / "csrc" / "methods.def", "a") as file:
        file.write(line + "\n")

    plain = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ONSOFTMAX_ISA")}
    plain |= {"ONSOFTMAX_CUDA": "0", "ONSOFTMAX_CFLAGS": "-Werror -O1", "ONSOFTMAX_LDFLAGS": ""}

    def run(arguments, **more):
        how = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 600}
        done = subprocess.run([sys.executable, *arguments], env={**plain, **more}, **how)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run([*command, "-j2"])
    here = {"PYTHONPATH": str(tmp_path)}
    assert run(["-c", USE], **here).startswith(str(tmp_path)), "not the copy's build"
    assert "toy" in run(["-m", "onsoftmax", "plan", "--shape", "64x1024", "--method", "toy"], **here)
