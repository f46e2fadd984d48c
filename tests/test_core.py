"""The C core against exact results, by core_checks.c: on this processor's instruction sets, and on AArch64's
under emulation."""

import os

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
