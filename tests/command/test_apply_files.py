"""`onsoftmax apply` against bad files, streams, signals and full disks.

Either `apply` replaces OUT and exits with 0, or OUT stays as it was and the exit code says why.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from support import environment, hear_signals

import onsoftmax as ons
from onsoftmax import apply, cli
from onsoftmax._cli import files as _files

X = np.random.default_rng(0).standard_normal((60, 50))
NOBODY = 65534


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash. $ONS is the command in it. Python buffers its streams, as it does by default."""
    given = environment(ONS=f"{sys.executable} -m onsoftmax", PYTHONUNBUFFERED="")
    return subprocess.run(
        ["bash", "-c", line], cwd=cwd, env=given, capture_output=True, text=True, timeout=120
    )


def run(code: str, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=hear_signals,
    )


def is_applied_once(path: Path) -> bool:
    return np.array_equal(np.load(path), ons.softmax(X))


@pytest.fixture
def place(tmp_path):
    """A directory that holds only x.npy."""
    np.save(tmp_path / "x.npy", X)
    return tmp_path


# ------------------------------------------------ streams

STREAMS = [">&-", ">/dev/full", "2>&-", "2>/dev/full", "<&- >&- 2>&-", "| true", "2>&1 | true"]


@pytest.mark.parametrize("streams", STREAMS)
def test_streams_do_not_matter_to_apply(place, streams):
    done = shell(f"$ONS apply x.npy x.npy {streams}; exit ${{PIPESTATUS[0]}}", place)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert is_applied_once(place / "x.npy") and os.listdir(place) == ["x.npy"]


# Reports progress without delay while it works for at least a quarter of a second.
TALKATIVE = """
import sys, time
from onsoftmax import apply, cli
from onsoftmax._cli import progress as _progress
_progress.DELAY_S = _progress.INTERVAL_S = 0
whole = apply.softmax
apply.softmax = lambda *a, **k: (time.sleep(0.25), whole(*a, **k))[1]
if sys.argv.pop(1) == "lines":
    _progress._tqdm = lambda: None
raise SystemExit(cli.main())
"""


@pytest.mark.parametrize(
    ("kind", "streams"),
    [
        *(("tqdm", streams) for streams in ("2>/dev/full", "2>&-", "2>&1 >/dev/full | true", "")),
        ("lines", "2>/dev/full"),
        ("lines", ""),
    ],
)
def test_progress_that_nobody_sees_stops_no_work(place, kind, streams):
    if kind == "tqdm":
        pytest.importorskip("tqdm")
    (place / "talkative.py").write_text(TALKATIVE)
    command = f"'{sys.executable}' talkative.py {kind} apply x.npy x.npy {streams}"
    done = shell(f"{command}; exit ${{PIPESTATUS[0]}}", place)
    assert done.returncode == 0, done.stderr
    assert bool(done.stderr) == (not streams) and "Traceback" not in done.stderr
    assert is_applied_once(place / "x.npy")


def test_an_error_that_nobody_sees_is_an_error(place):
    for streams in ("2>&-", "2>/dev/full", "<&- >&- 2>&-"):
        assert shell(f"$ONS apply missing.npy x.npy {streams}", place).returncode == 2, streams
    np.testing.assert_array_equal(np.load(place / "x.npy"), X)


def test_a_closed_stream_is_never_a_file_of_ours(place):
    """Other code writes to descriptors 1 and 2, as C libraries do. Its text must not reach OUT."""
    code = (
        "import os\n"
        "os.close(1), os.close(2)\n"
        "from onsoftmax import apply, cli\n"
        "whole = apply.softmax\n"
        "def softmax(*a, **k):\n"
        "    os.write(1, b'to stdout'), os.write(2, b'to stderr')\n"
        "    return whole(*a, **k)\n"
        "apply.softmax = softmax\n"
        "raise SystemExit(cli.main(['apply', 'x.npy', 'x.npy']))"
    )
    assert run(code, cwd=place).returncode == 0
    assert is_applied_once(place / "x.npy")


@pytest.mark.parametrize("command", ["plan --shape 4x4", "--version", "apply --help"])
def test_other_commands_end_well_too(tmp_path, command):
    closed = shell(f"$ONS {command} >&-", tmp_path)
    assert (closed.returncode, closed.stderr) == (0, "")
    unread = shell(f"$ONS {command} | true; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert (unread.returncode, unread.stderr) == (0, "")
    full = shell(f"$ONS {command} >/dev/full", tmp_path)
    text = "onsoftmax: error: standard output: No space left on device\n"
    assert (full.returncode, full.stderr) == (2, text)


def test_a_benchmark_whose_progress_nobody_sees(tmp_path):
    command = "$ONS bench --device cpu --shape 4x4 --rounds 1 --against none 2>&1 >table | true"
    assert shell(f"{command}; exit ${{PIPESTATUS[0]}}", tmp_path).returncode == 0
    assert "x copy" in (tmp_path / "table").read_text()


# ------------------------------------------------ directories and names

AS_NOBODY = f"""
import os, sys
from onsoftmax.cli import main
if os.geteuid() == 0:
    os.setgid({NOBODY}), os.setuid({NOBODY})
raise SystemExit(main(sys.argv[1:]))
"""


def test_a_directory_that_may_not_be_read():
    """Such a directory cannot be synced. This is no failure."""
    directory = Path(tempfile.mkdtemp())  # pytest's own folder is closed to other users
    try:
        np.save(directory / "x.npy", X)
        if os.geteuid() == 0:
            os.chown(directory / "x.npy", NOBODY, NOBODY)
            os.chown(directory, NOBODY, NOBODY)
        directory.chmod(0o300)
        done = run(AS_NOBODY, "apply", directory / "x.npy", directory / "x.npy", cwd=Path("/"))
        directory.chmod(0o700)
        assert (done.returncode, done.stderr) == (0, "")
        assert is_applied_once(directory / "x.npy") and os.listdir(directory) == ["x.npy"]
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize(
    "name",
    ["x" * 243, "x" * 255, "é" * 127, "\N{GRINNING FACE}" * 63 + "xy"],
    ids=["243", "255", "of 2 bytes", "of 4 bytes"],
)
def test_names_as_long_as_the_system_takes(place, monkeypatch, name, dtype):
    if len(os.fsencode(name)) > os.pathconf(place, "PC_NAME_MAX"):
        pytest.skip("names are shorter here")
    monkeypatch.setattr(apply, "BOX_BYTES", 3000)
    monkeypatch.setattr(apply, "RUN_BYTES", 64)
    arguments = ["--axis", "none", "--dtype", np.dtype(dtype).name]
    assert cli.main(["apply", str(place / "x.npy"), str(place / name), *arguments]) == 0
    np.testing.assert_array_equal(np.load(place / name), ons.softmax(X, None, dtype=np.dtype(dtype)))
    assert sorted(os.listdir(place)) == sorted(["x.npy", name])


def test_a_name_that_is_too_long(place, capsys):
    assert cli.main(["apply", str(place / "x.npy"), str(place / ("x" * 256))]) == 2
    assert capsys.readouterr().err.endswith("x: File name too long\n")
    assert os.listdir(place) == ["x.npy"]


# ------------------------------------------------ signals and failures about the rename

# Arguments: when the signal comes, and its name.
SIGNALLED = """
import atexit, os, signal, sys
from onsoftmax import cli
when, name = sys.argv[1:]
hit = lambda: os.kill(os.getpid(), getattr(signal, name))
replace, fsync = os.replace, os.fsync

def replace_and_hit(*paths):
    if when == "at the rename":
        hit()
    replace(*paths)
    if when == "after it":
        hit()

def fsync_and_hit(descriptor):
    fsync(descriptor)
    if when == "before it" and os.listdir() != ["x.npy"]:
        hit()

class Last:
    def __del__(self, kill=os.kill, process=os.getpid(), number=getattr(signal, name)):
        kill(process, number)

os.replace, os.fsync = replace_and_hit, fsync_and_hit
if when == "at exit":
    atexit.register(hit)
if when == "when modules are gone":
    last = Last()
sys.argv[1:] = ["apply", "x.npy", "x.npy"]
raise SystemExit(cli.main())
"""


@pytest.mark.parametrize(
    ("when", "name"),
    [
        *(("before it", name) for name in ("SIGINT", "SIGTERM", "SIGHUP")),
        ("at the rename", "SIGTERM"),
        ("after it", "SIGHUP"),
        *((when, "SIGINT") for when in ("at the rename", "at exit", "when modules are gone")),
        ("at exit", "SIGTERM"),
    ],
)
def test_the_exit_code_says_whether_out_was_replaced(place, when, name):
    done = run(SIGNALLED, when, name, cwd=place)
    assert os.listdir(place) == ["x.npy"]
    if when == "before it":
        assert done.returncode == 128 + getattr(signal, name)
        assert done.stderr == f"onsoftmax: interrupted by {name}\n"
        np.testing.assert_array_equal(np.load(place / "x.npy"), X)
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert is_applied_once(place / "x.npy")


def test_signals_do_afterwards_what_they_did_before(place, capsys):
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    for source, code in (("x.npy", 0), ("missing.npy", 2)):
        assert cli.main(["apply", str(place / source), str(place / "x.npy")]) == code
        assert [signal.getsignal(number) for number in numbers] == before


def fails(arguments, capsys) -> str:
    assert cli.main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and re.fullmatch(r"onsoftmax: error: [^\n]+\n", printed.err)
    return printed.err


@pytest.mark.parametrize("function", ["fsync", "replace", "fchmod", "posix_fallocate", "pwrite"])
def test_a_failure_before_the_rename_leaves_out_alone(place, capsys, monkeypatch, function):
    def failing(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(_files.os, function, failing)
    assert "x.npy: Input/output error" in fails(["apply", place / "x.npy", place / "x.npy"], capsys)
    np.testing.assert_array_equal(np.load(place / "x.npy"), X)
    assert os.listdir(place) == ["x.npy"]


def test_a_directory_that_does_not_sync(place, monkeypatch):
    """Some file systems cannot sync a directory. OUT is already replaced then."""
    replace, fsync = os.replace, os.fsync
    replaced = []

    def failing(descriptor):
        if replaced:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(_files.os, "replace", lambda *paths: (replace(*paths), replaced.append(paths)))
    monkeypatch.setattr(_files.os, "fsync", failing)
    assert cli.main(["apply", str(place / "x.npy"), str(place / "x.npy")]) == 0
    assert replaced and is_applied_once(place / "x.npy")


def test_a_disk_that_sets_nothing_aside(place, monkeypatch):
    def failing(*_):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(_files.os, "posix_fallocate", failing)
    assert cli.main(["apply", str(place / "x.npy"), str(place / "x.npy")]) == 0
    assert is_applied_once(place / "x.npy")


# ------------------------------------------------ IN becomes shorter

# Arguments: when IN becomes shorter, then the command. The 2 MB of IN are many boxes.
SHORTENED = """
import os, sys
from onsoftmax import apply, cli
when = sys.argv.pop(1)
apply.BOX_BYTES = 1 << 16
shorten = lambda: os.truncate("in.npy", 300_000)
begin, whole = apply.Progress, apply.softmax

def progress(*sizes):
    if when == "at the start":
        shorten()
    return begin(*sizes)

def softmax(values, *a, **k):
    if when == "on the way" and values.size:
        shorten()
    return whole(values, *a, **k)

apply.Progress, apply.softmax = progress, softmax
raise SystemExit(cli.main())
"""


@pytest.mark.parametrize(
    ("when", "dtype", "arguments"),
    [
        ("at the start", "f4", []),
        ("at the start", "f4", ["--axis", "0"]),
        ("at the start", ">f4", ["--axis", "none", "--dtype", "float64"]),
        ("at the start", "i2", []),
        ("on the way", "f4", []),
        ("on the way", "i4", ["--dtype", "float16"]),
    ],
)
def test_a_file_that_becomes_shorter_meanwhile(tmp_path, when, dtype, arguments):
    np.save(tmp_path / "in.npy", np.ones((1000, 1000), dtype))
    (tmp_path / "out.npy").write_bytes(b"old")
    done = run(SHORTENED, when, "apply", "in.npy", "out.npy", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "onsoftmax: error: in.npy: became shorter while it was read\n",
    )
    assert (tmp_path / "out.npy").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["in.npy", "out.npy"]


# ------------------------------------------------ headers made by hand


def file_of(header: str, version: tuple[int, int] = (1, 0), length: int | None = None) -> bytes:
    text = header.encode("latin1").ljust(117) + b"\n"
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + bytes(version) + size + text + bytes(400)


def header(shape: str = "(3, 4)", descr: str = "'<f8'", fortran: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}"


# Bad shapes, types and orders. The error must name each.
SHAPES = [
    "(0, 1000000000000000000000000000000)",
    "(0, 10**30)",
    "(0, 9223372036854775808)",
    "(9223372036854775807, 0)",
    "(0, 4611686018427387904, 4611686018427387904)",
    "(True, 3)",
    "(3, False)",
    "(-3, 4)",
    "(-1, -12)",
    "(3.0, 4)",
    "(None,)",
    "((3,), 4)",
    "3",
    "[3, 4]",
]
TYPES = ["'<f3'", "'nonsense'", "5", "()", "('<f8',)", "['<f8']", "{'names': ['a']}", "None", "''", "b'<f8'"]
ORDERS = ["1", "0", "None", "'True'", "[]"]


@pytest.fixture
def refused(tmp_path, capsys):
    """A function that writes these bytes to IN and returns the error line."""

    def line(content: bytes) -> str:
        (tmp_path / "in.npy").write_bytes(content)
        error = fails(["apply", tmp_path / "in.npy", tmp_path / "out.npy"], capsys)
        assert os.listdir(tmp_path) == ["in.npy"]
        assert error.startswith(f"onsoftmax: error: {tmp_path / 'in.npy'}: ")
        return error

    return line


def test_shapes_that_no_array_has(refused):
    for shape in SHAPES:
        assert shape in refused(file_of(header(shape=shape)))
    for length in "01":
        error = refused(file_of(header(shape=f"({f'{length}, ' * 65})")))
        assert f"({length}, {length}, " in error and "65" in error


def test_types_and_orders_that_no_array_has(refused):
    for descr in TYPES:
        assert descr in refused(file_of(header(descr=descr)))
    for fortran in ORDERS:
        assert f"'fortran_order': {fortran}" in refused(file_of(header(fortran=fortran)))
    assert "('<f8', (2,))" in refused(file_of(header(descr="('<f8', (2,))")))
    assert "pickled Python objects" in refused(file_of(header(descr="'|O'")))


def test_headers_that_are_none(refused):
    for version in ((0, 0), (1, 1), (4, 0), (255, 255)):
        assert f"version {version}" in refused(file_of(header(), version))
    assert "65535" in refused(file_of(header(), length=65535))
    assert "4294967295" in refused(file_of(header(), (2, 0), length=2**32 - 1))
    assert "not a .npy file" in refused(file_of(header() + " " * 100_000, (2, 0)))
    for text in ("(" * 9000, "-" * 9000 + "1", "{[]: 1}", "1 is 2", "\0" * 50, "{1, 2}", "", "[]"):
        assert "not a .npy file" in refused(file_of(text))


def test_a_header_of_python_2(tmp_path, capsys):
    (tmp_path / "in.npy").write_bytes(file_of(header(shape="(3L, 4L)")))
    assert cli.main(["apply", str(tmp_path / "in.npy"), str(tmp_path / "out.npy")]) == 0
    assert capsys.readouterr() == ("", "")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), np.full((3, 4), 0.25))


def test_headers_with_errors_anywhere(tmp_path, capsys):
    """Whatever bytes the header has, there is a result or a single error line."""
    rng = np.random.default_rng(0)
    good = np.frombuffer(file_of(header()), np.uint8)
    alphabet = np.frombuffer(b"0123456789-+.,()[]{}'\"<>|=fiuOVUSbcL_ \n\0\xff:eTrue", np.uint8)
    codes = set()
    for _ in range(200):
        bad = good.copy()
        bad[rng.integers(6, 70, size=rng.integers(1, 4))] = rng.choice(alphabet, size=1)
        (tmp_path / "in.npy").write_bytes(bad.tobytes())
        codes.add(cli.main(["apply", str(tmp_path / "in.npy"), str(tmp_path / "out.npy")]))
        assert re.fullmatch(r"(onsoftmax: error: [^\n]+\n)?", capsys.readouterr().err)
    assert codes == {0, 2}


# ------------------------------------------------ files of the other commands

WRITES = [
    "topk x.npy -k 2 --output {}",
    "explain --html {} >/dev/null",
    "explain --plot {} >/dev/null",
    "plan --shape 3x4 --html {} >/dev/null",
    "bench --shape 10 --against numpy --json {} >/dev/null",
]


@pytest.mark.parametrize("command", WRITES[:4])
def test_a_file_that_cannot_be_written_whole_stays_as_it_was(command, place):
    """A limit of 1024 bytes per file stands for a full disk. Python 3.11 would cut its .pyc files too, and
    the next process would find them."""
    limit = "export PYTHONDONTWRITEBYTECODE=1; trap '' XFSZ; ulimit -f"
    target = place / "out.png"
    target.write_bytes(b"old")
    target.chmod(0o640)
    if "plot" in command:  # matplotlib writes its list of fonts once, and warns if it cannot
        run("import matplotlib.font_manager", cwd=place)
    failed = shell(f"{limit} 1; $ONS {command.format(target)}", place)
    if "topk" in command:  # the output of topk is small
        failed = shell(f"{limit} 0; $ONS {command.format(target)}", place)
    assert failed.returncode == 2
    assert failed.stderr == f"onsoftmax: error: {target}: File too large\n"
    assert target.read_bytes() == b"old" and sorted(os.listdir(place)) == ["out.png", "x.npy"]
    done = shell(f"$ONS {command.format(target)}", place)
    assert (done.returncode, done.stderr) == (0, "") and len(target.read_bytes()) > 100
    assert target.stat().st_mode & 0o777 == 0o640 and sorted(os.listdir(place)) == ["out.png", "x.npy"]


@pytest.mark.parametrize("command", [*WRITES, "apply x.npy {}"])
def test_an_empty_name_is_refused(command, place):
    failed = shell(f"$ONS {command.format(repr(''))}", place)
    text = "onsoftmax: error: the file to write has the name '': expected a name\n"
    assert (failed.returncode, failed.stdout, failed.stderr) == (2, "", text)
    assert os.listdir(place) == ["x.npy"]


def test_a_pipe_that_closes_says_nothing(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1000, 1000)))
    for command in ("apply x.npy -", "topk x.npy -k 3 --json", "topk x.npy -k 3 --output /dev/stdout"):
        done = shell(f"$ONS {command} | head -c 1 | wc -c; exit ${{PIPESTATUS[0]}}", tmp_path)
        assert (done.stdout.strip(), done.stderr) == ("1", ""), command
        assert done.returncode == 0, command


# Interrupts itself while Python imports NumPy.
IMPORTS = """
import importlib.abc, os, signal, sys
sys.argv[0] = "/usr/bin/onsoftmax"
class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from onsoftmax.cli import main
"""


def test_an_interrupt_while_the_command_is_imported(tmp_path):
    done = run(IMPORTS, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
    library = run(IMPORTS.replace("/usr/bin/onsoftmax", "program.py"), cwd=tmp_path)
    assert "KeyboardInterrupt" in library.stderr
