"""The C core against exact results, by core_checks.c: on this processor's instruction sets, and on AArch64's
under emulation."""

import os
import platform

import core
import pytest
from support import SANITIZED, isas

CROSS_COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
FLAGS = os.environ.get("ONSOFTMAX_CFLAGS", "").split()
if SANITIZED:
    FLAGS += ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


def build(folder, *compiler, flags):
    try:
        return core.build("core_checks", folder, *compiler, flags=flags)
    except core.Missing as missing:
        core.skip(missing)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("core"), flags=FLAGS)


@pytest.mark.parametrize("isa", isas())
def test_core(program, isa):
    said, _ = core.start(program, isa).communicate(timeout=600)
    assert said.split()[-1] == "passed", said


def test_an_instruction_set_that_is_not_there(program):
    run = core.start(program, "sse9")
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 1 and "this processor does not run sse9" in said


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="instruction sets of x86-64")
@pytest.mark.parametrize(
    "here, taken, forced",
    [
        ("scalar=suits", "scalar", "none"),
        ("scalar=suits avx2=suits", "avx2", "none"),
        ("scalar=suits avx2=suits avx512=suits", "avx512", "avx512"),
        ("scalar=suits avx2=suits avx512=runs", "avx2", "avx512"),  # whose clock it lowers
    ],
)
def test_which_instruction_set_is_taken(tmp_path, here, taken, forced):
    flags = ["-I", os.path.join(core.CSRC, "cpu"), *FLAGS]
    try:
        program = core.build("select_checks", tmp_path, flags=flags, parts=["cpu/select.c"])
    except core.Missing as missing:
        core.skip(missing)
    said, _ = core.start(program, *here.split()).communicate(timeout=60)
    assert said == f"taken {taken}, forced {forced}\n"


@pytest.mark.skipif(SANITIZED, reason="the emulator knows no sanitizers")
def test_core_on_aarch64(tmp_path):
    """On a processor that rounds to bfloat16 by itself, and the conversions on one that does not."""
    try:
        core.require(CROSS_COMPILER, EMULATOR)
    except core.Missing as missing:
        core.skip(missing)
    program = build(tmp_path, CROSS_COMPILER, flags=["-static"])
    runs = [
        core.start(EMULATOR, "-cpu", cpu, program, *arguments)
        for cpu, *arguments in (
            ("max", "neon"),
            ("max", "scalar"),
            ("cortex-a57", "--conversions", "neon"),
        )
    ]
    for run in runs:
        said, _ = run.communicate(timeout=900)
        assert said.split()[-1] == "passed", said
