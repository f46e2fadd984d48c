"""Runs the programs of examples/ by the commands in their docstrings. They check their own answers."""

import builtins
import importlib.metadata
import os
import re
import runpy
import shlex
import subprocess
from glob import glob

import pytest
from core import NVCC, ROOT, needs_nvcc
from packaging.requirements import Requirement
from support import run_python

PROGRAMS = sorted(glob(os.path.join(ROOT, "examples", "*.py")))
pytestmark = [
    pytest.mark.skipif(not PROGRAMS, reason="the examples are not beside the tests"),
    pytest.mark.timeout(300),  # torch compiles the kernels if there is a GPU
]
by_name = pytest.mark.parametrize("program", PROGRAMS, ids=os.path.basename)


def found_once(pattern, program):
    with open(program, encoding="utf-8") as file:
        (found,) = re.findall(pattern, file.read(), re.M | re.S)
    return found


def run(program):
    """Runs the program in this process, because the import of a library takes most of the time and other
    tests share it."""
    runpy.run_path(program, run_name="__main__")


def what_it_needs(program):
    """The sentence with which a program ends if it lacks a library, and the libraries in the sentence."""
    sentence = found_once(r'sys\.exit\("(This example needs [^"]*)"\)$', program)
    return sentence, [Requirement(text) for text in shlex.split(sentence.partition(": pip install ")[2])]


def is_missing(requirement):
    try:
        return importlib.metadata.version(requirement.name) not in requirement.specifier
    except importlib.metadata.PackageNotFoundError:
        return True


@by_name
def test_it_runs(program, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    sentence, needs = what_it_needs(program)
    if any(map(is_missing, needs)):
        pytest.skip(sentence)
    *launcher, name = found_once(r"^    ((?:python|torchrun) [^\n]*\.py)$", program).split()
    assert os.path.join(ROOT, name) == program
    if launcher == ["python"]:
        try:
            run(program)
        except SystemExit as end:
            if "needs nvcc" in str(end.code):
                pytest.skip(end.code)
            assert not end.code
        output = capsys.readouterr().out
    else:
        assert launcher.pop(0) == "torchrun"
        done = run_python(["-m", "torch.distributed.run", *launcher, program], OMP_NUM_THREADS="1")
        assert done.returncode == 0, done.stderr
        output = done.stdout
    assert 2 <= len(output.splitlines()) <= 10
    assert not os.listdir(tmp_path)


@by_name
def test_without_its_library_it_says_what_it_needs(program, monkeypatch):
    sentence, needs = what_it_needs(program)
    names = {"sklearn" if need.name == "scikit-learn" else need.name for need in needs}
    real = builtins.__import__

    def fake(name, *arguments, **keywords):
        if name.partition(".")[0] in names:
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    assert names
    monkeypatch.setattr(builtins, "__import__", fake)
    with pytest.raises(SystemExit) as end:
        run(program)
    assert end.value.code == sentence


def test_each_has_its_line_in_the_documents():
    page = os.path.join(ROOT, "docs", "examples.md")
    with open(page, encoding="utf-8") as file:
        listed = re.findall(r"^\| \[[^]]*\]\(([^)]+)\)", file.read(), re.M)
    assert sorted(os.path.normpath(os.path.join(ROOT, "docs", name)) for name in listed) == PROGRAMS


@needs_nvcc
def test_the_kernels_of_your_own_compile(tmp_path):
    program = os.path.join(ROOT, "examples", "kernel_of_your_own.py")
    (tmp_path / "kernels.cu").write_text(found_once(r'^KERNELS = r"""(.*?)"""$', program))
    command = [NVCC, "-std=c++17", "-arch=sm_90", "-Werror=all-warnings", "-ptx", "kernels.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
