"""core_checks.c compares the C core with exact results, on this processor's instruction sets and on AArch64
under emulation. No primitive takes more instructions per element than the budget (`instructions.py
--record`)."""

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

# The same compiler and sources give the same count. The tolerance is for another C library, or another point
# release of the compiler.
TOLERANCE = 0.02

pytestmark = pytest.mark.timeout(600)  # the test compiles the core if ccache does not have it


def build(folder, **how):
    try:
        return core.build("core_checks", folder, **how)
    except core.Missing as missing:
        core.skip(missing)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of programs for this processor. They share the core's objects."""
    return tmp_path_factory.mktemp("core")


@pytest.fixture(scope="module")
def program(folder):
    return build(folder, flags=FLAGS)


# The sanitizers make most checks ten times slower. These few still cover every method, both forms, masks and
# threads. They take every third length and every seventh mask and scale, in turn for each type.
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
    """test_core checks a fifth of the classes."""
    said, _ = core.run(program, "--only", "all NaN", isa)
    assert said.split()[-1] == "passed", said


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x87 is of x86")
def test_excess_precision_is_refused(tmp_path):
    """Some sums must round to double. The x87 unit does not round them, and softmax was wrong by 30 %."""
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
        ("scalar=suits avx2=suits avx512=runs", "avx2", "avx512"),  # avx512 lowers its clock
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
    """No error exceeds the bounds of how-it-works.md."""
    try:
        program = core.build("errors", folder, flags=FLAGS)
    except core.Missing as missing:
        core.skip(missing)
    said, _ = core.run(program, *arguments)
    assert said.split()[-1] == "passed", said


@pytest.mark.skipif(SANITIZED, reason="they take their time")
@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("what", [("exponentials", 101), ("search", 1)], ids=lambda what: what[0])
def test_largest_errors(folder, isa, what):
    """Over every 101st number, and by a search of 1 s."""
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
    ("each", "isa"),  # valgrind lacks AVX-512
    [
        (5, "scalar"),
        *(pytest.param(1, isa, marks=pytest.mark.long("valgrind")) for isa in isas() if isa != "avx512"),
    ],
)
def test_strips_read_only_what_was_written(program, each, isa):
    try:
        core.require("valgrind")
    except core.Missing as missing:
        core.skip(missing)
    strips = [program, "--only", "strips", "--each", each, isa]
    said, status = core.run("valgrind", "-q", "--error-exitcode=9", *strips)
    assert status == 0, said


def on_aarch64(folder, *runs):
    """Runs the core's checks side by side. A run is a processor for the emulator, then arguments."""
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
    """On one processor that rounds to bfloat16 itself, and one that does not. A fifth of the numbers and
    places, because the emulator is fifty times slower."""
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


def test_plans_of_invariant(folder):
    """On every GPU that can be named, what sets the order of a row's sum depends on N and the types alone."""
    try:
        program = core.build("invariant_plans", folder, flags=FLAGS)
    except core.Missing as missing:
        core.skip(missing)
    said, status = core.run(program)
    assert status == 0 and said.split()[-1] == "passed", said
