"""What setup.py answers where it cannot do what it was told, before anything is compiled."""

import os
import subprocess
import sys

import pytest
from support import ROOT

pytestmark = pytest.mark.skipif(not os.path.isdir(os.path.join(ROOT, "csrc")), reason="no C sources here")

# As much of nvcc as setup.py asks before it compiles.
NVCC = """#!/bin/sh
case "$*" in
    --version) echo "Cuda compilation tools, release 13.0, V13.0.88" ;;
    --dryrun*) echo "#$ TOP={top}" ;;
    --list-gpu-code) echo sm_75; echo sm_90 ;;
    *) exit 1 ;;
esac
"""


@pytest.fixture
def build(tmp_path):
    pytest.importorskip("setuptools")

    def run(**environment):
        plain = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH", "CUDAARCHS")}
        command = [sys.executable, "setup.py", "build_ext", f"-b{tmp_path}/lib", f"-t{tmp_path}/temp"]
        how = {"cwd": ROOT, "capture_output": True, "text": True, "env": {**plain, **environment}}
        done = subprocess.run(command, **how)
        assert done.returncode != 0
        return done.stdout + done.stderr

    return run


@pytest.fixture
def nvcc(tmp_path):
    path = tmp_path / "nvcc"
    path.write_text(NVCC.format(top=tmp_path))
    path.chmod(0o755)
    return str(path)


def test_no_nvcc(build):
    said = build(ONSOFTMAX_CUDA="1", NVCC="/nowhere/nvcc")
    assert "error: ONSOFTMAX_CUDA=1, but NVCC=/nowhere/nvcc is not a program" in said


def test_half_a_toolkit(build, nvcc, tmp_path):
    said = build(ONSOFTMAX_CUDA="1", NVCC=nvcc)
    assert f"but {nvcc} has no libcudart_static.a in {tmp_path}/lib64, {tmp_path}/lib" in said
    assert "does not tell its version" in build(ONSOFTMAX_CUDA="1", NVCC="/bin/sh")


def test_wrong_settings(build, nvcc, tmp_path):
    assert 'ONSOFTMAX_CUDA="yes": expected auto, 0 or 1' in build(ONSOFTMAX_CUDA="yes")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcudart_static.a").touch()
    how = {"ONSOFTMAX_CUDA": "1", "NVCC": nvcc}
    said = build(**how, ONSOFTMAX_CUDA_ARCHS="sm_90")
    assert 'ONSOFTMAX_CUDA_ARCHS="sm_90": expected numbers such as "90" or "80;90"' in said
    assert 'CUDAARCHS="all": expected' in build(**how, CUDAARCHS="all", ONSOFTMAX_CUDA_ARCHS="")
    assert 'MAX_JOBS="many": expected a number' in build(**how, MAX_JOBS="many", ONSOFTMAX_CUDA_ARCHS="90")


def test_the_gpus_to_build_for(build, nvcc, tmp_path):
    """Those that were said, else those present, else the usual ones that this nvcc knows; and what nvcc
    refuses stops the build."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcudart_static.a").touch()
    smi = tmp_path / "nvidia-smi"
    how = {"NVCC": nvcc, "ONSOFTMAX_CUDA": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for said, present, archs in (
        ({"ONSOFTMAX_CUDA_ARCHS": "75;90", "CUDAARCHS": "80"}, "9.0", "75;90"),
        ({"CUDAARCHS": "80-real, 90a"}, "9.0", "80;90a"),
        ({"CUDAARCHS": "native"}, "9.0", "90"),
        ({}, "9.0\n7.5\n9.0", "75;90"),
        ({}, "[N/A]", "75;90"),
        ({}, "12.0", "75;90"),
    ):
        smi.write_text(f"#!/bin/sh\necho '{present}'\n")
        smi.chmod(0o755)
        output = build(**{**how, "ONSOFTMAX_CUDA_ARCHS": "", **said})
        assert f"onsoftmax: builds for CUDA {archs} with {nvcc} 13.0.88" in output
        assert "error: nvcc failed on csrc/cuda/" in output
        assert all(f"-gencode=arch=compute_{arch},code=sm_{arch}" in output for arch in archs.split(";"))
