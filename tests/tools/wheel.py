"""Checks a wheel as a new user meets it: its contents, and its speed on a machine without a compiler.

    python tests/tools/wheel.py dist/onsoftmax-*_x86_64.whl [--tests tests/results/test_edges.py ...]
    python tests/tools/wheel.py dist/onsoftmax-*_aarch64.whl --emulate ROOT [--tests ...]

The second command checks a wheel for another kind of machine. ROOT holds Debian's packages of python3.11 for
this machine, unpacked. Needs: pip install -e '.[wheels]'"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from io import BytesIO

import abi3info
from elftools.elf.elffile import ELFFile

CONFIGURATION = os.path.abspath(f"{__file__}/../../../pyproject.toml")
LARGEST = 60e6  # bytes
NAME = re.compile(r"onsoftmax-[\d.]+-cp310-abi3-.*\bmanylinux_2_17_(x86_64|aarch64)\b.*\.whl")
LIBRARIES = {f"lib{name}.so.{n}" for name, n in (("c", 6), ("m", 6), ("pthread", 0), ("dl", 2), ("rt", 1))}
LOADER = re.compile(r"ld-linux-[\w-]+\.so\.\d")
# Seconds on an idle machine. CI's machine is busy and may take BUSY times as long.
INSTALL, FIRST_RESULT, BUSY = 10, 1, 3
FIRST = "import onsoftmax; print(onsoftmax.softmax([1, 2, 3, 6, 2, 1]), onsoftmax.__file__)"
COMMANDS = ["info", "explain 1 2 3 6 2 1", "bench --shape 64x1024 --rounds 1"]
NEEDED_BY_TESTS = ["pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6", "mpmath"]


def check(holds, text):
    if not holds:
        raise SystemExit(f"FAILED: {text}")


def check_module(module):
    """The module exports only PyInit__core, and needs only the C library and CPython 3.10."""
    elf = ELFFile(BytesIO(module))
    needed = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
    foreign = {name for name in needed - LIBRARIES if not LOADER.fullmatch(name)}
    check(not foreign, f"the module needs {foreign}")
    symbols = [symbol for symbol in elf.get_section_by_name(".dynsym").iter_symbols() if symbol.name]
    there = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
    check(there == {"PyInit__core"}, f"the module exports {there}")
    asked = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and re.match("_?Py", s.name)}
    versions = elf.get_section_by_name(".gnu.version")
    numbered = enumerate(elf.get_section_by_name(".dynsym").iter_symbols())
    old = {s.name for i, s in numbered if isinstance(versions.get_symbol(i)["ndx"], int)}
    weak = {s.name for s in symbols if s["st_info"]["bind"] == "STB_WEAK"}
    known = [*abi3info.FUNCTIONS.values(), *abi3info.DATAS.values()]
    stable = {it.symbol.name for it in known if (it.added.major, it.added.minor) <= (3, 10)}
    unknown = {s.name for s in symbols} - there - asked - old - weak
    check(not unknown, f"no symbols of the C library that the module is linked for: {unknown}")
    check(asked - stable <= weak, f"not of CPython 3.10's limited API: {asked - stable - weak}")


def check_contents(wheel):
    name, size = os.path.basename(wheel), os.path.getsize(wheel)
    check(NAME.fullmatch(name), f"{name}: expected {NAME.pattern}")
    print(f"{name}: {size / 1e6:.2f} MB")
    check(size < LARGEST, f"{size} bytes: expected less than {LARGEST:.0f}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for wanted in ("onsoftmax/py.typed", "onsoftmax/_core.pyi", "onsoftmax/bench/command.py"):
            check(wanted in names, f"the wheel lacks {wanted}")
        other = [n for n in names if not re.match(r"onsoftmax(-[\d.]+\.dist-info)?/", n)]
        check(not other, f"the wheel holds {other}")
        check_module(archive.read("onsoftmax/_core.abi3.so"))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", wheel], check=True)


def environment(path):
    """An environment without a compiler. pip compiles to bytecode in it, as it does by default."""
    left_out = ("PYTHON", "ONSOFTMAX", "PYTEST", "PIP_NO_COMPILE", "CC", "CXX", "LD_PRELOAD")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    kept["PATH"] = path
    for compiler in ("cc", "gcc", "clang"):
        check(shutil.which(compiler, path=path) is None, f"{compiler} is on PATH: {path}")
    return kept


def timed(what, limit, command, **how):
    begin = time.perf_counter()
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **how).stdout
    took = time.perf_counter() - begin
    print(f"{output}{what}: {took:.2f} s (expected below {limit} s)", flush=True)
    check(took < BUSY * limit, f"{what} took {took:.2f} s: expected {limit}, or {BUSY} * {limit} if busy")
    return output


def run_installed(wheel, tests, folder):
    subprocess.run([sys.executable, "-m", "venv", f"{folder}/venv"], check=True)
    how = {"cwd": folder, "env": environment(f"{folder}/venv/bin")}
    python = f"{folder}/venv/bin/python"
    pip = [python, "-m", "pip", "install", "-q", "--only-binary=:all:"]
    timed("installed", INSTALL, [*pip, wheel], **how)
    output = timed("first result", FIRST_RESULT, [python, "-c", FIRST], **how)
    check(f"{folder}/venv/" in output, f"another onsoftmax was imported: {output}")
    for arguments in COMMANDS:
        subprocess.run([f"{folder}/venv/bin/onsoftmax", *arguments.split()], check=True, **how)
    if tests:
        subprocess.run([*pip, *NEEDED_BY_TESTS], check=True, **how)
        pytest = [python, "-m", "pytest", "-c", CONFIGURATION, "-p", "no:cacheprovider"]
        subprocess.run([*pytest, *tests], check=True, **how)


def run_emulated(wheel, tests, root, folder):
    """This machine's pip installs the wheel for the other machine. The other machine's Python runs under
    qemu."""
    site = f"{folder}/site"
    machine = NAME.fullmatch(os.path.basename(wheel))[1]
    platforms = [f"--platform=manylinux_2_{glibc}_{machine}" for glibc in (28, 27, 17)]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", "--target", site, *platforms]
    needed = NEEDED_BY_TESTS if tests else []
    subprocess.run([*pip, "--python-version=3.11", wheel, *needed], check=True)
    emulator = shutil.which(f"qemu-{machine}")
    check(emulator, f"no qemu-{machine} found")
    python = [emulator, "-L", root, f"{root}/usr/bin/python3.11"]
    paths = {"PYTHONHOME": f"{root}/usr", "PYTHONPATH": site}
    how = {"cwd": folder, "env": {**environment(folder), **paths}}
    subprocess.run([*python, "-c", FIRST], check=True, **how)
    if tests:
        pytest = [*python, "-m", "pytest", "-c", CONFIGURATION, "-p", "no:cacheprovider"]
        subprocess.run([*pytest, *tests], check=True, **how)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel")
    parser.add_argument("--tests", nargs="+", default=[], metavar="FILE", help="run these against it")
    parser.add_argument("--emulate", metavar="ROOT", help="another machine's Python, unpacked there")
    given = parser.parse_args()
    wheel, tests = os.path.abspath(given.wheel), [os.path.abspath(path) for path in given.tests]
    check_contents(wheel)
    with tempfile.TemporaryDirectory() as folder:
        if given.emulate:
            run_emulated(wheel, tests, os.path.abspath(given.emulate), folder)
        elif f"_{os.uname().machine}." in wheel:
            run_installed(wheel, tests, folder)


if __name__ == "__main__":
    main()
