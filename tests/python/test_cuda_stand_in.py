"""GPU arrays without a GPU: csrc/python and csrc/xla with a stand-in for CUDA in host memory."""

import os
import shutil
import subprocess
import sys

import pytest
from core import COMPILER, needs_compiler
from support import HERE, ROOT

pytestmark = [
    pytest.mark.skipif(
        not os.path.isdir(os.path.join(ROOT, "csrc")), reason="the C sources are not beside the tests"
    ),
    pytest.mark.timeout(600),  # the test compiles the core if ccache does not have it
]


@needs_compiler
def test_arrays_on_a_stand_in(tmp_path):
    pytest.importorskip("setuptools")
    pytest.importorskip("ml_dtypes")
    built = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("csrc", "onsoftmax"):
        shutil.copytree(os.path.join(ROOT, name), tmp_path / name, ignore=built)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        if os.path.exists(os.path.join(ROOT, name)):
            shutil.copy(os.path.join(ROOT, name), tmp_path)
    folder = tmp_path / "csrc" / "cuda" / "driver"
    (folder / "absent.c").rename(folder / "absent.inc")
    shutil.copy(os.path.join(HERE, "stand_in.c"), folder / "absent.c")
    # the linker also exports the stand-in's variables, which the tests read
    (tmp_path / "csrc" / "exports.map").write_text("{ global: PyInit__core; stand_in_*; local: *; };\n")
    plain = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
    plain.update(ONSOFTMAX_CUDA="0", CC=COMPILER)
    how = {"cwd": tmp_path, "capture_output": True, "text": True}
    build = [sys.executable, "setup.py", "build_ext", "--inplace", "-j2"]
    done = subprocess.run(build, env=plain, **how)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    plain["PYTHONPATH"] = str(tmp_path)
    for checks in ("stand_in_checks.py", "stand_in_xla_checks.py"):
        done = subprocess.run([sys.executable, os.path.join(HERE, checks)], env=plain, **how)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        assert done.stdout.split()[-1] == "done" and not done.stderr
