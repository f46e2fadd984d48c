"""The C core against exact results, by core_checks.c: on this processor's instruction sets, and on AArch64's
under emulation. And no primitive takes more instructions an element than was recorded (by `python
tests/instructions.py --record`)."""

import os
import platform

import core
import instructions
import pytest
from support import SANITIZED, isas

CROSS_COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
FLAGS = os.environ.get("ONSOFTMAX_CFLAGS", "").split()
if SANITIZED:
    FLAGS += ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]

# Of the same compiler and sources a count is the same to the last instruction; the rest is for a C library
# and for point releases of the compiler other than those it was recorded with.
TOLERANCE = 0.02


def build(folder, *compiler, flags):
    try:
        return core.build("core_checks", folder, *compiler, flags=flags)
    except core.Missing as missing:
        core.skip(missing)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of programs for this processor, which share the core's objects."""
    return tmp_path_factory.mktemp("core")


@pytest.fixture(scope="module")
def program(folder):
    return build(folder, flags=FLAGS)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("only", [(), ("--only", "all NaN")], ids=["most", "all NaN"])
def test_core(program, only, isa):
    said, _ = core.start(program, *only, isa).communicate(timeout=600)
    assert said.split()[-1] == "passed", said


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x87 is of x86")
def test_excess_precision_is_refused(tmp_path):
    """Sums that must round to double do not where the x87 unit adds them: softmax was wrong by 30 %."""
    with pytest.raises(RuntimeError, match=r"must each be rounded to their own type.*-mfpmath=sse"):
        core.build("core_checks", tmp_path, flags=["-mfpmath=387"])


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


@pytest.mark.skipif(SANITIZED, reason="they take their time")
@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("what", [("exponentials", 41), ("search", 8)], ids=lambda what: what[0])
def test_largest_errors(folder, isa, what):
    """What how-it-works.md adds up, over each 41st number; and no row errs more. By hand: 1, and 600 s."""
    try:
        program = core.build("errors", folder, flags=FLAGS)
    except core.Missing as missing:
        core.skip(missing)
    said, _ = core.start(program, *what, isa).communicate(timeout=600)
    assert said.split()[-1] == "passed", said


@pytest.mark.skipif(SANITIZED, reason="valgrind cannot run beside the sanitizers")
@pytest.mark.parametrize("isa", [isa for isa in isas() if isa != "avx512"])  # which valgrind lacks
def test_panels_read_only_what_was_written(program, isa):
    try:
        core.require("valgrind")
    except core.Missing as missing:
        core.skip(missing)
    valgrind = ["valgrind", "-q", "--error-exitcode=9"]
    run = core.start(*valgrind, program, "--only", "panels", isa)
    said, _ = run.communicate(timeout=600)
    assert run.returncode == 0, said


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
            ("cortex-a57", "--only", "conversions", "neon"),
        )
    ]
    for run in runs:
        said, _ = run.communicate(timeout=900)
        assert said.split()[-1] == "passed", said


@pytest.mark.skipif(SANITIZED, reason="valgrind cannot run beside the sanitizers")
def test_instructions_an_element(folder):
    try:
        compiler, made = instructions.counts(folder)
    except core.Missing as missing:
        core.skip(missing)
    budget = instructions.read_budget()
    if compiler not in budget:
        pytest.skip(f"recorded for {' and '.join(budget)}, not for {compiler}")
    if "avx2" not in isas() and any(name.startswith("avx2: ") for name in budget[compiler]):
        pytest.skip("recorded on a processor with AVX2")
    assert made.keys() == budget[compiler].keys(), f"{instructions.BUDGET} is of others: record it anew"
    beyond = [
        f"{name}: {count}, at most {budget[compiler][name]} so far"
        for name, count in made.items()
        if count > budget[compiler][name] * (1 + TOLERANCE)
    ]
    assert not beyond, "\n".join(beyond)
