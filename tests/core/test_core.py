"""The C core against exact results, by core_checks.c: on this processor's instruction sets, and on AArch64's
under emulation. And no primitive takes more instructions an element than was recorded (by
`instructions.py --record`)."""

import os
import platform

import core
import instructions
import pytest
from support import SANITIZED, isas

CROSS_COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
SANITIZE = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
FLAGS = SANITIZE if SANITIZED else []

# Of the same compiler and sources a count is the same to the last instruction; the rest is for a C library
# and for point releases of the compiler other than those it was recorded with.
TOLERANCE = 0.02

pytestmark = pytest.mark.timeout(600)  # the core is compiled, where ccache does not have it


def build(folder, **how):
    try:
        return core.build("core_checks", folder, **how)
    except core.Missing as missing:
        core.skip(missing)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of programs for this processor, which share the core's objects."""
    return tmp_path_factory.mktemp("core")


@pytest.fixture(scope="module")
def program(folder):
    return build(folder, flags=FLAGS)


# With the sanitizers most takes ten times as long; these see every method, both forms, masks and threads. Of
# lengths each third is taken, and of masks and scales each seventh: by turns others for each type.
ALONE = {"lengths": 3, "strips": 1, "masks and scales": 7, "threads": 1} if SANITIZED else {}
CHECKS = {"most": (), **{name: ("--only", name, "--each", each) for name, each in ALONE.items()}}


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("only", CHECKS.values(), ids=CHECKS)
def test_core(program, only, isa):
    said, _ = core.run(program, *only, isa)
    assert said.split()[-1] == "passed", said


@pytest.mark.long("nans")
@pytest.mark.parametrize("isa", isas())
def test_every_class_of_nan(program, isa):
    """Of which test_core has a fifth."""
    said, _ = core.run(program, "--only", "all NaN", isa)
    assert said.split()[-1] == "passed", said


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x87 is of x86")
def test_excess_precision_is_refused(tmp_path):
    """Sums that must round to double do not where the x87 unit adds them: softmax was wrong by 30 %."""
    with pytest.raises(RuntimeError, match=r"must each be rounded to their own type.*-mfpmath=sse"):
        core.build("core_checks", tmp_path, flags=["-mfpmath=387"])


def test_an_instruction_set_that_is_not_there(program):
    said, status = core.run(program, "sse9")
    assert status == 1 and "this processor does not run sse9" in said


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
        program = core.build("select_checks", tmp_path, flags=flags, parts=["cpu/vec/select.c"])
    except core.Missing as missing:
        core.skip(missing)
    said, _ = core.run(program, *here.split())
    assert said == f"taken {taken}, forced {forced}\n"


def largest_errors(folder, *arguments):
    """What how-it-works.md adds up; and no row errs more."""
    try:
        program = core.build("errors", folder, flags=FLAGS)
    except core.Missing as missing:
        core.skip(missing)
    said, _ = core.run(program, *arguments)
    assert said.split()[-1] == "passed", said


@pytest.mark.skipif(SANITIZED, reason="they take their time")
@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("what", [("exponentials", 101), ("search", 3)], ids=lambda what: what[0])
def test_largest_errors(folder, isa, what):
    """Over each 101st number, and by a search of 3 s."""
    largest_errors(folder, *what, isa)


@pytest.mark.long("errors")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("what", [("exponentials", 1), ("search", 600)], ids=lambda what: what[0])
def test_largest_errors_of_all(folder, isa, what):
    """Over every number, and by a search of ten minutes."""
    largest_errors(folder, *what, isa)


@pytest.mark.skipif(SANITIZED, reason="valgrind cannot run beside the sanitizers")
@pytest.mark.parametrize(
    "isa",  # valgrind lacks AVX-512
    [
        pytest.param(isa, marks=pytest.mark.long("valgrind") if isa != "scalar" else ())
        for isa in isas()
        if isa != "avx512"
    ],
)
def test_strips_read_only_what_was_written(program, isa):
    try:
        core.require("valgrind")
    except core.Missing as missing:
        core.skip(missing)
    said, status = core.run("valgrind", "-q", "--error-exitcode=9", program, "--only", "strips", isa)
    assert status == 0, said


def on_aarch64(folder, *runs):
    """Runs the core's checks side by side, each a processor of the emulator's and arguments."""
    try:
        core.require(CROSS_COMPILER, EMULATOR)
    except core.Missing as missing:
        core.skip(missing)
    program = build(folder, compiler=CROSS_COMPILER, link=["-static"])
    started = [core.start(EMULATOR, "-cpu", cpu, program, *arguments) for cpu, *arguments in runs]
    for run in started:
        said, _ = run.communicate()
        assert said.split()[-1] == "passed", said


@pytest.mark.skipif(SANITIZED, reason="the emulator knows no sanitizers")
def test_aarch64_in_short(tmp_path):
    """On a processor that rounds to bfloat16 by itself, and on one that does not: a fifth of the numbers and
    of the places, since the emulator takes fifty times as long."""
    fifth = ("--each", 5, "neon")
    runs = [("max", "--only", "strips", "neon"), ("max", "--only", "edges", *fifth)]
    conversions = [(cpu, "--only", "conversions", *fifth) for cpu in ("max", "cortex-a57")]
    on_aarch64(tmp_path, *runs, *conversions)


@pytest.mark.long("emulation")
@pytest.mark.timeout(1800)
def test_core_on_aarch64(tmp_path):
    last = ("cortex-a57", "--only", "conversions", "neon")
    on_aarch64(tmp_path, ("max", "neon"), ("max", "scalar"), last)


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
