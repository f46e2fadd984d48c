"""Follows CONTRIBUTING.md's guide to a new operation and a new method to the letter. The test adds the lines
and files to a copy of the tree, builds it, and uses both. If there is an nvcc, it also compiles a method of
several passes and a method that holds its rows."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from core import NVCC, needs_compiler
from support import ROOT, SANITIZED

GUIDE = os.path.join(ROOT, "CONTRIBUTING.md")
pytestmark = [
    pytest.mark.timeout(600),  # the test compiles the core
    pytest.mark.skipif(not os.path.isfile(GUIDE), reason="no CONTRIBUTING.md and C sources here"),
    needs_compiler,
    pytest.mark.skipif(SANITIZED, reason="the build of the copy would not be sanitized"),
]

USE_METHOD = """
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


USE_OPERATION = """
import numpy as np
import onsoftmax as ons
from onsoftmax import _core

generator = np.random.default_rng(0)
lengths = ((3, 10007), -1), ((2, 5000, 20), 1), ((90, 20), 1), ((90, 200), 1), ((200, 90), 0)
for shape, axis in lengths:
    for dtype in (np.float32, np.float64, np.float16):
        x = (8 * generator.standard_normal(shape)).astype(dtype)
        usual = -np.log2(np.e) * ons.log_softmax(x.astype(np.float64), axis)
        for method in ("auto", "safe", "online", "fused", "split"):
            y = _core.surprisal(x, axis, method=method)
            assert y.dtype == dtype
            np.testing.assert_allclose(y, usual, rtol=4 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps)
x = np.array([[1, 2, 3, 6, 2, 1], [0, -np.inf, 0, 0, 0, 0], [1, 2, np.nan, 0, 0, 0]])
y = _core.surprisal(x, where=x != 2)
assert np.isnan(y[2]).sum() == 5 and np.isinf(y[0, 1]) and y[1, 1] == np.inf
np.testing.assert_allclose(_core.surprisal([0.0, 0.0], method="naive"), [1, 1])
assert ons.plan(x, operation="surprisal").operation == "surprisal"
assert "in bits" in _core.surprisal.__doc__
print(ons.__file__)
"""


# An operation that takes a gradient: its file. Its line is in csrc/op/gradient_and_topk_operations.def.
DESCENT = """/* descent.h - y * (sum(dy * y) - dy), a step down the gradient of softmax. */

#ifdef ONS_OPERATION
ONS_OPERATION(descent, GRADIENT, NOTHING, 0.0, "y * (sum(dy * y) - dy)")
#endif

#ifdef ONS_OPERATION_ON_CPU

enum { descent_adds_products = true };

ONS_ALWAYS void descent_row(double sum, double power, T *first, T *second) {
    (void)power;
    *first = (T)sum;
    *second = 0;
}

ONS_ALWAYS VEC descent_element(VEC dy, VEC y, VEC first, VEC second, VEC power, bool plain) {
    (void)second, (void)plain;
    return (y * power) * (first - dy);
}

#endif

#ifdef ONS_OPERATION_ON_CUDA

struct descent : operation_descent {
    static constexpr bool ADDS_PRODUCTS = true;

    template <typename Real>
    __device__ static void row(double sum, Real, Real *first, Real *second) {
        *first = (Real)sum;
        *second = 0;
    }
    template <typename Real>
    __device__ static Real element(Real dy, Real y, Real first, Real, Real power) {
        return (y * power) * (first - dy);
    }
};

#endif

#ifdef ONS_OPERATION_IN_PYTHON
ONS_OPERATION_IN_PYTHON(descent, GRADIENT, "scale * output * (sum(grad * output) - grad) along axis.",
                        "    An excluded element's result is 0.\\n",
                        ">>> ons.descent([1.0, 0.0], [0.5, 0.5])\\narray([-0.25,  0.25])\\n")
#endif
"""

USE_GRADIENT = """
import numpy as np, onsoftmax as ons
from onsoftmax import _core
rng = np.random.default_rng(1)
for dtype in ("float32", "float64", "float16"):
    for shape, axis in (((3, 1000), -1), ((40, 7), 0), ((2, 70001), -1)):
        y = ons.softmax(rng.normal(size=shape), axis).astype(dtype)
        dy = rng.normal(size=shape).astype(dtype)
        for method in ("auto", "online", "fused", "split"):
            got = _core.descent(dy, y, axis=axis, scale=0.5, method=method)
            expected = -ons.softmax_backward(dy, y, axis=axis, scale=0.5, method=method)
            assert got.dtype == dtype
            np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-6)
assert "sum(grad * output)" in _core.descent.__doc__
print(ons.__file__)
"""


def added():
    """The guide's additions: the lines for each .def file, the files as {path: text}, and the command."""
    with open(GUIDE) as file:
        text = file.read()
    lines = {
        "op/row_operations.def": re.findall(r'^```\n(#include ".*")\n```$', text, re.M),
        "api/methods.def": re.findall(r"^```\n(ONS_METHOD\(.*\))\n```$", text, re.M),
    }
    assert [len(found) for found in lines.values()] == [1, 1]
    files = re.findall(r"the file `(csrc/[^`]+)`:\n\n```c\n(.*?)^```$", text, re.M | re.S)
    commands = re.findall(r"^After `ONSOFTMAX_CUDA=0 python (setup\.py [^`]+)`", text, re.M)
    assert len(commands) == 2 and len({*commands}) == 1
    return lines, dict(files), commands[0].split()


def compile_on_cuda(tree):
    """Compiles two methods' kernels of the new operation, without optimizing (-G)."""
    if NVCC is None:
        return
    for method in ("naive", "fused_block"):
        command = [NVCC, "-std=c++17", "-G", "-arch=sm_90", "-ptx", f"csrc/cuda/{method}.cu"]
        done = subprocess.run([*command, "-o", method], cwd=tree, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        made = (tree / method).read_bytes()
        assert b"surprisal" in made, f"{method} has no kernel of the new operation"
        assert method == "naive" or b"descent" in made, "fused_block has none of the one with a gradient"


def leave_out_instruction_sets(folder):
    """Keeps only scalar code. The other instruction sets have the same sources, and each compiles for a
    minute."""
    select = (folder / "select.c").read_text()
    for name in ("avx2", "avx512", "neon"):
        line = f"    &ons_isa_{name},\n"
        assert line in select
        select = select.replace(line, "")
        for path in folder.glob(f"{name}*.c"):  # each type has its own file
            path.unlink()
    (folder / "select.c").write_text(select)


def test_an_operation_and_a_method_are_a_file_and_a_line_each(tmp_path):
    pytest.importorskip("setuptools")
    for name in ("csrc", "onsoftmax"):
        ignored = shutil.ignore_patterns("*.so", "*.pyc", "__pycache__")
        shutil.copytree(os.path.join(ROOT, name), tmp_path / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(os.path.join(ROOT, name), tmp_path)
    lines, files, command = added()
    assert list(files) == ["csrc/op/surprisal.h", "csrc/cpu/toy.c"]
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    for name, (line,) in lines.items():
        with open(tmp_path / "csrc" / name, "a") as file:
            file.write(line + "\n")
    (tmp_path / "csrc" / "op" / "descent.h").write_text(DESCENT)
    with open(tmp_path / "csrc" / "op" / "gradient_and_topk_operations.def", "a") as file:
        file.write('#include "descent.h"\n')
    leave_out_instruction_sets(tmp_path / "csrc" / "cpu" / "vec")

    plain = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ONSOFTMAX_ISA")}
    plain |= {"ONSOFTMAX_CUDA": "0", "ONSOFTMAX_CFLAGS": "-Werror -O1", "ONSOFTMAX_LDFLAGS": ""}

    def run(arguments, **more):
        how = {"cwd": tmp_path, "capture_output": True, "text": True}
        done = subprocess.run([sys.executable, *arguments], env={**plain, **more}, **how)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run([*command, "-j2"])
    compile_on_cuda(tmp_path)
    here = {"PYTHONPATH": str(tmp_path)}
    for use in (USE_METHOD, USE_OPERATION, USE_GRADIENT):
        assert run(["-c", use], **here).startswith(str(tmp_path)), "not the copy's build"
    assert "toy" in run(["-m", "onsoftmax", "plan", "--shape", "64x1024", "--method", "toy"], **here)
