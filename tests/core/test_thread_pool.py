"""The pool's loops: thread_checks.c and threads.c alone, under a sanitizer that sees races if it runs
here."""

import os

import core
import pytest
from support import SANITIZED

SANITIZERS = [["-fsanitize=address,undefined"] if SANITIZED else ["-fsanitize=thread"], []]
NOTHING = "#include <pthread.h>\nint main(void) { return 0; }\n"
# gcc's thread sanitizer fails if the kernel randomizes many bits of an address
STARTS = [["setarch", "-R"], []]


def runs(*command):
    try:
        return core.run(*command)[1] == 0
    except OSError:
        return False


def way_to_run(folder):
    """(compiler flags, beginning of the command) with which an empty program runs."""
    source, nothing = folder / "nothing.c", folder / "nothing"
    source.write_text(NOTHING)
    for flags in SANITIZERS:
        try:
            core.compile_with(source, core.COMPILER, *flags, "-pthread", "-o", nothing, source)
        except RuntimeError:
            continue  # the sanitizer's library is missing
        for start in STARTS:
            if runs(*start, nothing):
                return flags, start
    raise core.Missing("programs do not run here")


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pool")
    try:
        core.require(core.COMPILER)
        flags, start = way_to_run(folder)
        flags = ["-g", "-O1", "-I", os.path.join(core.CSRC, "cpu"), *flags]
        return [*start, core.build("thread_checks", folder, flags=flags, parts=["cpu/threads/threads.c"])]
    except core.Missing as missing:
        core.skip(missing)


@pytest.mark.parametrize("processors", [1, 64])
def test_loops(command, processors):
    """Threads sleep at once, or look for work first."""
    assert core.run(*command, processors) == ("passed\n", 0)
