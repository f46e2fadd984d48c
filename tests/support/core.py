"""The C core without Python, linked with a C program of the tests, for this machine or another one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from glob import glob

import pytest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = os.path.join(TESTS, "core")
ROOT = os.path.dirname(TESTS)
CSRC = os.path.join(ROOT, "csrc")
COMPILER = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is missing")
NVCC = shutil.which(os.environ.get("NVCC") or "nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="nvcc is missing")

# The flags with which setuptools compiles the module, so that ccache already has the objects. One list is for
# this machine, the other for another machine's wheel.
NATIVE = [flag for name in ("CFLAGS", "CCSHARED") for flag in (sysconfig.get_config_var(name) or "").split()]
CROSS = ["-fPIC"]
# The flags of setup.py, and the flags of the environment.
FLAGS = ["-std=c11", "-O3", "-g0", "-ffp-contract=off", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra"]
FLAGS += os.environ.get("ONSOFTMAX_CFLAGS", "").split()


class Missing(Exception):
    """Says why there is nothing to run."""


def skip(missing):
    """Skips a test that cannot run. With ONSOFTMAX_REQUIRE_TOOLS=1 in the environment it fails."""
    if os.environ.get("ONSOFTMAX_REQUIRE_TOOLS"):
        pytest.fail(str(missing))
    pytest.skip(str(missing))


def require(*programs):
    if not os.path.isdir(CSRC):
        raise Missing("the C sources are not beside the tests")
    absent = [program for program in programs if shutil.which(program) is None]
    if absent:
        raise Missing(f"{' and '.join(absent)} not found")


def compile_with(program, *command):
    """Runs a compiler. Raises Missing if a header is missing."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True)
    absent = re.search(r"fatal error: '?([\w./]+)'?(: No such file| file not found)", done.stderr)
    if absent:
        raise Missing(f"{absent[1]} not found")
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed on {program}:\n{done.stderr[-3000:]}")


def compiled(source, folder, compiler, flags):
    """The object of a source. The folder's programs share it. If there is a sanitizers' build, which took
    minutes, its object."""
    relative = os.path.relpath(source, ROOT)
    built = os.path.join(os.environ.get("ONSOFTMAX_OBJECTS", ""), os.path.splitext(relative)[0] + ".o")
    if "ONSOFTMAX_OBJECTS" in os.environ and os.path.exists(built):
        return built
    name = relative.replace(os.sep, "_")
    target = os.path.join(folder, f"{name}.o")
    if not os.path.exists(target):
        first = NATIVE if compiler == COMPILER else CROSS
        compile_with(source, compiler, *first, "-c", relative, "-o", target, *FLAGS, *flags)
    return target


CORE = ("api/*.c", "plan/*.c", "cpu/**/*.c", "cuda/driver/absent.c")


def build(program, folder, compiler=COMPILER, flags=(), link=(), parts=CORE):
    """Builds tests/core/<program>.c with the core, or these parts of it, in the folder. Returns its path.
    Raises Missing without the compiler or a header."""
    require(compiler)
    sources = [os.path.join(PROGRAMS, f"{program}.c")]
    for part in parts:
        sources += glob(os.path.join(CSRC, part), recursive=True)
    target = os.path.join(folder, program)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # with sanitizers, each source takes up to a minute
        objects = list(pool.map(lambda source: compiled(source, folder, compiler, flags), sorted(sources)))
    compile_with(program, compiler, *flags, *link, "-pthread", "-o", target, *objects, "-lm")
    return target


def start(*command):
    """Starts a program without LD_PRELOAD. A program built with sanitizers contains their libraries."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.Popen(
        [*map(str, command)], env=plain, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def run(*command):
    started = start(*command)
    return started.communicate()[0], started.returncode
