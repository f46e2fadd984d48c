"""The command line: the demo, `apply` on good, bad and huge files, and interrupted runs."""

from __future__ import annotations

import io
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support import METHODS, environment, hear_signals

import onsoftmax as ons
from onsoftmax import _core, apply, cli, demo
from onsoftmax._cli import files as _files
from onsoftmax._cli import progress as _progress

# The sanitizer's shadow memory counts as the process's own.
UNDER_SANITIZER = "san.so" in os.environ.get("LD_PRELOAD", "")
no_limits = pytest.mark.skipif(UNDER_SANITIZER, reason="no limit on memory goes with a sanitizer")

CPU_METHODS = [method.name for method in ons.methods("cpu")]


def run(*arguments: str | Path, cwd: Path, code: str | None = None, **extra: str):
    start = ["-c", code] if code else ["-m", "onsoftmax"]
    return subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=120,
    )


def fails(arguments, capsys, target: Path | None = None) -> str:
    """The error line of a run that must fail with code 2. It must leave OUT and its directory as they
    were."""
    before = target.read_bytes() if target else b""
    names = set(os.listdir(target.parent)) if target else set()
    assert cli.main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"onsoftmax: error: [^\n]+\n", printed.err)
    if target:
        assert target.read_bytes() == before
        assert set(os.listdir(target.parent)) == names
    return printed.err


@pytest.fixture
def disk(tmp_path):
    """A directory for large files. The test removes it at its end."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.fixture
def small_boxes(monkeypatch):
    """Boxes of a few kilobytes: small arrays take many boxes, and the scratch file."""
    monkeypatch.setattr(apply, "BOX_BYTES", 3000)
    monkeypatch.setattr(apply, "MEMORY_BYTES", 3 * 3000)
    monkeypatch.setattr(apply, "RUN_BYTES", 64)


def applied(tmp_path: Path, x, *arguments: str):
    np.save(tmp_path / "in.npy", x)
    assert cli.main(["apply", str(tmp_path / "in.npy"), str(tmp_path / "out.npy"), *arguments]) == 0
    assert sorted(os.listdir(tmp_path)) == ["in.npy", "out.npy"]
    return np.load(tmp_path / "out.npy")


def option_of(axis) -> str:
    if axis is None:
        return "--axis=none"
    return "--axis=" + (",".join(map(str, axis)) if isinstance(axis, tuple) else str(axis))


# ------------------------------------------------ the demo


def test_demo_shows_the_row_and_the_overflow(capsys):
    demo.show_row()
    demo.show_overflow()
    lines = capsys.readouterr().out.splitlines()
    y = "[0.0061 0.0167 0.0453 0.9092 0.0167 0.0061]"
    starts = [line.split()[0] for line in lines if y in line]
    assert starts == [*CPU_METHODS, "y"]
    assert any("m = 3, d = 1.5032" in line for line in lines)
    assert any(line.endswith("m = 6, d = 1.0999") for line in lines)
    half = {line.split()[0]: line for line in lines[-len(CPU_METHODS) :]}
    assert half.pop("naive").split(maxsplit=1)[1] == "[0 0 nan]"
    assert {line.split(maxsplit=1)[1] for line in half.values()} == {"[4.54e-05 0.000335 1]"}


def test_demo_times_and_checks_an_array(capsys, monkeypatch):
    demo.show_large(96, 500)
    printed = capsys.readouterr().out
    assert "shape (96, 500)" in printed and "would need" not in printed
    assert "NumPy's formula" in printed and "onsoftmax.softmax" in printed and "float64" in printed
    monkeypatch.setattr(demo, "softmax", lambda x, out=None: np.add(x, 1, out=out))
    with pytest.raises(RuntimeError, match="wrong"):
        demo.show_large(4, 500)


def test_demo_takes_fewer_rows_where_memory_is_short(capsys, monkeypatch):
    assert demo.rows_that_fit(math.inf) == 4096
    assert demo.rows_that_fit(5 * 4096 * 32000 * 4) == 4096
    assert demo.rows_that_fit(5 * 4096 * 32000 * 4 - 1) == 2048
    assert demo.rows_that_fit(0) == 1
    assert demo.free_memory() > 0
    monkeypatch.setattr(demo, "free_memory", lambda: 1e6)
    demo.show_large(512, 1000)
    printed = capsys.readouterr().out
    assert "shape (32, 1000)" in printed and "512 rows would need" in printed


def test_the_demo_is_what_runs_without_a_command(capsys, monkeypatch):
    monkeypatch.setattr(demo, "show_large", lambda: print("a large array"))
    assert cli.main([]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith(f"a large array\n\nGPUs: {_core.config()['cuda']}\n")
    assert cli.main(["demo"]) == 0
    assert capsys.readouterr().out == printed


@no_limits
def test_the_whole_demo_under_a_limit(tmp_path):
    code = (
        "import resource, sys; from onsoftmax.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1200 << 20, resource.RLIM_INFINITY))\n"
        "raise SystemExit(main([]))"
    )
    done = run(cwd=tmp_path, code=code, ONSOFTMAX_NUM_THREADS="2", OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "4096 rows would need" in done.stdout and "largest relative error" in done.stdout


def test_output_that_nobody_reads_is_no_error(tmp_path):
    command = f"'{sys.executable}' -m onsoftmax info | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


# ------------------------------------------------ the rest of the command line


def test_version_info_and_help(tmp_path):
    assert run("--version", cwd=tmp_path).stdout == f"onsoftmax {ons.__version__}\n"
    info = run("info", cwd=tmp_path).stdout
    assert all(name in info for name in ("numpy", "isa_available", "num_threads"))
    shown = run("apply", "--help", cwd=tmp_path).stdout
    assert all(name in shown for name in ("IN OUT", "--axis", "--method", "--dtype", "--scale"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "frobnicate"),
        (["demo", "1"], "unrecognized arguments: 1"),
        (["info", "--jsn"], "unrecognized arguments: --jsn: did you mean --json?"),
        (["apply"], "IN, OUT"),
        (["apply", "in.npy"], "OUT"),
        (["apply", "in.npy", "out.npy", "--axis", "x"], "'x' is not an axis"),
        (["apply", "in.npy", "out.npy", "--axis="], "is not an axis"),
        (["apply", "in.npy", "out.npy", "--axis=0,"], "is not an axis"),
        (["apply", "in.npy", "out.npy", "--scale", "hot"], "'hot' is not a scale"),
        (["apply", "in.npy", "out.npy", "--scale", "nan"], "'nan' is not a scale"),
        (["apply", "in.npy", "out.npy", "--scale=-inf"], "'-inf' is not a scale"),
        (["apply", "in.npy", "out.npy", "--scale", "-inf"], "'-inf' is not a scale"),
        (["apply", "in.npy", "out.npy", "--scale", "-1e3x"], "'-1e3x' is not a scale"),
        (["apply", "in.npy", "out.npy", "--axis", "-1.5"], "'-1.5' is not an axis"),
        (["plan", "--shape", "4x4", "--bandwidth", "-1e9"], "'-1e9' is not a bandwidth"),
        (["plan", "--shape", "4x4", "--bandwidth", "-Infinity"], "'-Infinity' is not a bandwidth"),
        (["apply", "in.npy", "out.npy", "--frobnicate"], "--frobnicate"),
    ],
)
def test_bad_command_lines(arguments, words, capsys):
    assert words in fails(arguments, capsys)


# ------------------------------------------------ apply: right answers

SHAPES = [(), (1,), (700,), (0,), (3, 0), (0, 3), (50, 100), (13, 7, 40), (4, 3, 2, 5, 6)]
AXES = {
    0: [None, -1, 0],
    1: [None, -1, 0, (0,)],
    2: [None, 0, -1, (1, 0)],
    3: [0, 1, 2, (0, 2), (1, 2), (0, 1)],
    5: [1, -1, (0, 2, 4), (1, 3), None],
}


@pytest.mark.parametrize(
    ("dtype", "order"),
    [
        *((dtype, "C") for dtype in ("f2", "f4", ">f4", ">f8", "i4", "u1")),
        *((dtype, "F") for dtype in ("f4", "f8", ">f2", ">f8", ">i8", "?")),
    ],
)
def test_apply_is_softmax_in_boxes(tmp_path, small_boxes, dtype, order):
    rng = np.random.default_rng(7)
    for shape in SHAPES:
        x = 3 * np.asarray(rng.standard_normal(shape))
        x = np.asarray(np.abs(x) if dtype == "u1" else x).astype(dtype, order=order)
        for number, axis in enumerate(AXES[x.ndim]):
            method = METHODS[number % len(METHODS)]
            y = applied(tmp_path, x, option_of(axis), "--method", method, "--scale", "0.75")
            expected = ons.softmax(x, axis, method=method, scale=0.75)
            assert y.dtype == expected.dtype and y.dtype.isnative
            np.testing.assert_array_equal(y, expected, err_msg=f"{shape} {axis} {method}")
            if x.size and x.ndim > 1:
                assert y.flags.f_contiguous == x.flags.f_contiguous


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "f4"])
@pytest.mark.parametrize("source", ["f2", "f8", ">f8", "i8"])
def test_apply_dtype(tmp_path, small_boxes, source, dtype):
    x = (5 * np.random.default_rng(3).standard_normal((40, 900))).astype(source)
    for axis in (-1, 0, None):
        y = applied(tmp_path, x, option_of(axis), "--dtype", dtype, "--method", "safe")
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, ons.softmax(x, axis, dtype=np.dtype(dtype), method="safe"))


def through(tmp_path, source, target, given=b"", code=0):
    """Runs `apply` with a pipe at each end. Returns its output and the last line on stderr."""
    command = [sys.executable, "-m", "onsoftmax", "apply", str(source), str(target), "--axis", "0"]
    done = subprocess.run(
        command, input=given, capture_output=True, cwd=tmp_path, env=environment(), timeout=120
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr.decode()


@pytest.mark.parametrize("order", ["C", "F"])
def test_apply_in_a_pipe(tmp_path, order):
    x = np.asarray(np.arange(12.0, dtype=">f4").reshape(3, 4), order=order)
    y = ons.softmax(x, 0)
    np.save(tmp_path / "in.npy", x)
    given = (tmp_path / "in.npy").read_bytes()
    for source, target in (("-", "-"), ("in.npy", "-"), ("-", "out.npy")):
        printed, _ = through(tmp_path, source, target, given)
        got = np.load(io.BytesIO(printed)) if target == "-" else np.load(tmp_path / "out.npy")
        assert got.dtype == np.float32 and got.flags.f_contiguous == (order == "F")
        np.testing.assert_array_equal(got, y)
    for wrong, text in (
        (b"", "not a .npy file"),
        (given[:-1], "standard input: truncated"),
        (b"text", ".npy"),
    ):
        _, said = through(tmp_path, "-", "-", wrong, code=2)
        assert text in said and said.count("\n") == 1


def test_apply_defaults(tmp_path):
    x = np.random.default_rng(1).standard_normal((300, 70)).astype(np.float32)
    np.testing.assert_array_equal(applied(tmp_path, x), ons.softmax(x))


@pytest.mark.parametrize("scale", ["-1e3", "-1E-3", "-.5e1", "-5.", "-1_0", "-2", "-0", "+1e1", "1e-3"])
def test_a_scale_may_be_any_number(tmp_path, scale):
    x = np.random.default_rng(2).standard_normal((5, 40))
    np.testing.assert_array_equal(applied(tmp_path, x, "--scale", scale), ons.softmax(x, scale=float(scale)))


@pytest.mark.parametrize("axis", ["-1", "-2", "-2,-1", "0,-1", "0"])
def test_an_axis_may_begin_with_a_minus(tmp_path, axis):
    x = np.random.default_rng(2).standard_normal((5, 40))
    axes = tuple(map(int, axis.split(",")))
    np.testing.assert_array_equal(applied(tmp_path, x, "--axis", axis), ons.softmax(x, axes))


def test_in_and_out_may_be_one_file(tmp_path, small_boxes):
    for x in (np.arange(4000.0).reshape(40, 100) / 900, np.arange(3000) % 7):
        path = tmp_path / "both.npy"
        np.save(path, x)
        assert cli.main(["apply", str(path), str(path), "--axis", "0", "--method", "online"]) == 0
        np.testing.assert_array_equal(np.load(path), ons.softmax(x, 0, method="online"))
        assert os.listdir(tmp_path) == ["both.npy"]


def test_out_keeps_its_permissions_and_links(tmp_path):
    np.save(tmp_path / "in.npy", np.zeros(4))
    real, link = tmp_path / "real.npy", tmp_path / "link.npy"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    assert cli.main(["apply", str(tmp_path / "in.npy"), str(link)]) == 0
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    np.testing.assert_array_equal(np.load(link), [0.25] * 4)


def test_boxes_cover_the_array_once(monkeypatch):
    rng = np.random.default_rng(5)
    for _ in range(200):
        shape = tuple(int(n) for n in rng.integers(1, 9, size=rng.integers(0, 5)))
        reduced = {d for d in range(len(shape)) if rng.random() < 0.4}
        monkeypatch.setattr(apply, "BOX_BYTES", int(rng.integers(1, 2000)))
        monkeypatch.setattr(apply, "RUN_BYTES", int(rng.integers(1, 40)))
        lengths = apply.box_lengths(shape, reduced, 4, bool(rng.random() < 0.5))
        assert all(lengths[d] == shape[d] for d in reduced)
        seen = np.zeros(shape, int)
        for box in apply.boxes(shape, lengths):
            seen[box] += 1
        assert (seen == 1).all()


def test_a_run_is_a_box_without_gaps():
    rng = np.random.default_rng(6)
    for _ in range(500):
        shape = tuple(int(n) for n in rng.integers(1, 5, size=rng.integers(0, 5)))
        lengths = [int(rng.integers(1, n + 1)) for n in shape]
        for order in "CF":
            places = np.arange(math.prod(shape)).reshape(shape, order=order)
            box = places[tuple(map(slice, lengths))]
            no_gaps = box.max() - box.min() + 1 == box.size
            assert apply.is_run(shape, lengths, order == "F") == no_gaps


def test_a_box_is_bounded_but_reads_whole_pages():
    rows = apply.box_lengths((10**6, 10**4), {1}, 4, False)
    assert rows[1] == 10**4 and apply.BOX_BYTES / 2 < 4 * math.prod(rows) <= apply.BOX_BYTES
    columns = apply.box_lengths((10**9, 10**4), {0}, 4, False)
    assert columns == [10**9, 1024]


# ------------------------------------------------ apply: files it cannot read or write


def npy_bytes(array) -> bytes:
    from io import BytesIO

    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


GOOD = npy_bytes(np.zeros((3, 4)))


def bfloat16_file() -> bytes:
    return GOOD[:128].replace(b"<f8", b"<V2") + GOOD[128:]


BAD_FILES = {
    "empty": (b"", "not a .npy file"),
    "text": (b"these are no numbers\n" * 9, "not a .npy file"),
    "half a magic": (GOOD[:4], "not a .npy file"),
    "half a header": (GOOD[:50], "not a .npy file"),
    "header alone": (GOOD[:128], "truncated"),
    "one byte short": (GOOD[:-1], "truncated: 223 bytes, and its header promises 224"),
    "unknown version": (GOOD[:6] + b"\x09\x00" + GOOD[8:], "version (9, 0)"),
    "garbage header": (GOOD[:10] + bytes(range(118)) + GOOD[128:], "not a .npy file"),
    "negative shape": (GOOD.replace(b"(3, 4), ", b"(-3, 4),"), "(-3, 4)"),
    "astronomic shape": (GOOD.replace(b"(3, 4), }      ", b"(3, 4" + b"0" * 6 + b"), }"), "truncated"),
    "zip": (b"PK\x03\x04" + GOOD, "not a .npy file"),
    "pickle": (b"\x80\x04\x95" + GOOD, "not a .npy file"),
    "objects": (npy_bytes(np.array([1, None, "a"], object)), "pickled Python objects"),
    "strings": (npy_bytes(np.array(["1", "2"])), "dtype <U1 is not supported"),
    "bytes": (npy_bytes(np.array([b"1", b"2"])), "is not supported"),
    "complex": (npy_bytes(np.zeros(3, complex)), "dtype complex128 is not supported"),
    "longdouble": (npy_bytes(np.zeros(3, np.longdouble)), "is not supported"),
    "records": (npy_bytes(np.zeros(3, "f4,i4")), "is not supported"),
    "dates": (npy_bytes(np.zeros(3, "M8[s]")), "is not supported"),
    "bfloat16": (bfloat16_file(), "bfloat16"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_cannot_be_read(tmp_path, capsys, name):
    content, words = BAD_FILES[name]
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    source.write_bytes(content)
    target.write_bytes(b"old")
    line = fails(["apply", source, target], capsys, target)
    assert str(source) in line and words in line


def test_things_that_are_no_files(tmp_path, capsys):
    target = tmp_path / "out.npy"
    target.write_bytes(b"old")
    assert "No such file" in fails(["apply", tmp_path / "missing.npy", target], capsys, target)
    (tmp_path / "directory").mkdir()
    assert "not a regular file" in fails(["apply", tmp_path / "directory", target], capsys, target)
    os.mkfifo(tmp_path / "pipe")  # opening it would wait forever
    assert "not a regular file" in fails(["apply", tmp_path / "pipe", target], capsys, target)


def test_outputs_that_cannot_be_written(tmp_path, capsys):
    source = tmp_path / "in.npy"
    source.write_bytes(GOOD)
    (tmp_path / "directory").mkdir()
    assert "not a regular file" in fails(["apply", source, tmp_path / "directory"], capsys)
    assert "not a regular file" in fails(["apply", source, os.devnull], capsys)
    assert "No such file" in fails(["apply", source, tmp_path / "missing" / "out.npy"], capsys)
    assert "Not a directory" in fails(["apply", source, source / "out.npy"], capsys)
    assert sorted(os.listdir(tmp_path)) == ["directory", "in.npy"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--method", "nope"], "expected one of " + ", ".join(["auto", "invariant", *CPU_METHODS])),
        (["--method", "cluster"], "use one of auto, invariant, naive"),
        (["--axis", "2"], "axis 2 is out of bounds"),
        (["--axis", "0,0"], "axis 0 is given twice"),
        (["--axis", "0,-2"], "axis"),
        (["--dtype", "bfloat16"], "bfloat16"),
        (["--dtype", "int32"], "dtype is int32"),
        (["--dtype", "float8"], "float8"),
        (["--method", "exact", "--dtype", "float64"], "method 'exact' takes and gives float32"),
    ],
)
def test_arguments_that_softmax_refuses(tmp_path, capsys, arguments, words):
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    source.write_bytes(GOOD)
    target.write_bytes(b"old")
    assert words in fails(["apply", source, target, *arguments], capsys, target)


def test_a_failure_on_the_way_leaves_out_alone(tmp_path, capsys, monkeypatch):
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(source, np.zeros((100, 100)))
    target.write_bytes(b"old")

    def no_memory(*_, **keywords):
        if "out" in keywords:
            raise MemoryError("no memory for the scratch")
        return ons.softmax(*_, **keywords)

    monkeypatch.setattr(apply, "softmax", no_memory)
    assert "not enough memory" in fails(["apply", source, target], capsys, target)


def test_a_full_disk_is_one_line(tmp_path):
    np.save(tmp_path / "in.npy", np.zeros((1000, 1000)))
    (tmp_path / "out.npy").write_bytes(b"old")
    code = (
        "import resource, sys; sys.dont_write_bytecode = True  # a .pyc file would be cut too\n"
        "from onsoftmax.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "raise SystemExit(main(sys.argv[1:]))"
    )
    done = run("apply", "in.npy", "out.npy", cwd=tmp_path, code=code)
    assert done.returncode == 2
    assert re.fullmatch(r"onsoftmax: error: [^\n]*out.npy: File too large\n", done.stderr)
    assert (tmp_path / "out.npy").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["in.npy", "out.npy"]


# ------------------------------------------------ apply: interrupted, large, long


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("shape", [(1, 150_000_000), (150_000, 1000)], ids=["one row", "many rows"])
def test_an_interruption_leaves_out_alone(disk, name, shape):
    number = getattr(signal, name)
    np.lib.format.open_memmap(disk / "in.npy", "w+", np.float16, shape)  # zeros that take no disk
    (disk / "out.npy").write_bytes(b"old")
    command = [sys.executable, "-m", "onsoftmax", "apply", "in.npy", "out.npy", "--method", "naive"]
    slow = environment(ONSOFTMAX_ISA="scalar", ONSOFTMAX_NUM_THREADS="1")
    child = subprocess.Popen(
        command, cwd=disk, env=slow, stderr=subprocess.PIPE, text=True, preexec_fn=hear_signals
    )
    try:
        until = time.monotonic() + 60
        while not list(disk.glob("out.npy.*")) and child.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.2)
        child.send_signal(number)
        _, error = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 128 + number, error
    assert error.endswith(f"onsoftmax: interrupted by {name}\n") and "Traceback" not in error
    assert (disk / "out.npy").read_bytes() == b"old"
    assert sorted(os.listdir(disk)) == ["in.npy", "out.npy"]


def test_a_signal_that_was_ignored_stays_ignored(tmp_path):
    np.save(tmp_path / "in.npy", np.zeros(4))
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from onsoftmax import apply, cli\n"
        "whole = apply.softmax\n"
        "def softmax(*a, **k):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    return whole(*a, **k)\n"
        "apply.softmax = softmax\n"
        "raise SystemExit(cli.main(sys.argv[1:]))"
    )
    done = run("apply", "in.npy", "out.npy", cwd=tmp_path, code=code)
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), [0.25] * 4)


# The limit counts memory that a process allocates, not files that it maps. 160 MB hold two boxes and a little
# more.
LIMITED = """
import resource, sys
from onsoftmax.cli import main
held = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
limit = held + (160 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
raise SystemExit(main(sys.argv[1:]))
"""


@no_limits
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="a limit on data that counts mappings is Linux's"
)
@pytest.mark.parametrize(
    ("dtype", "shape", "arguments"),
    [
        ("f4", (100, 1_000_000), []),
        ("f4", (100, 1_000_000), ["--axis", "none"]),
        (">f4", (100_000_000,), []),
        (">f8", (500_000, 100), ["--axis", "0"]),
        ("i2", (50_000_000,), ["--dtype", "float32"]),
    ],
)
def test_a_file_larger_than_the_memory_allowed(disk, dtype, shape, arguments):
    x = np.lib.format.open_memmap(disk / "in.npy", "w+", dtype, shape)  # a file with a hole
    x[(0,) * len(shape)] = 3
    del x
    done = run(
        "apply",
        "in.npy",
        "out.npy",
        *arguments,
        cwd=disk,
        code=LIMITED,
        ONSOFTMAX_NUM_THREADS="2",
        OPENBLAS_NUM_THREADS="1",
    )
    assert done.returncode == 0, done.stderr
    y = np.load(disk / "out.npy", mmap_mode="r")
    n = {"0": shape[0], "none": math.prod(shape)}.get((arguments or [""])[-1], shape[-1])
    assert y.shape == shape
    np.testing.assert_allclose(y[(0,) * len(shape)], math.exp(3) / (n - 1 + math.exp(3)), rtol=1e-6)
    np.testing.assert_allclose(
        y[(-1,) * len(shape)], 1 / (n - 1 + (math.exp(3) if n == y.size else 1)), rtol=1e-6
    )


def test_short_work_shows_no_progress(tmp_path, capsys):
    applied(tmp_path, np.zeros((100, 100)))
    assert capsys.readouterr() == ("", "")


def slowly(monkeypatch):
    """Makes every box take longer than the time after which progress shows."""
    monkeypatch.setattr(_progress, "DELAY_S", 0.05)
    monkeypatch.setattr(_progress, "INTERVAL_S", 0.05)
    monkeypatch.setattr(apply, "softmax", lambda *a, **k: (time.sleep(0.15), ons.softmax(*a, **k))[1])
    monkeypatch.setattr(apply, "BOX_BYTES", 100_000)


def test_long_work_shows_lines_without_tqdm(tmp_path, capsys, monkeypatch):
    slowly(monkeypatch)
    monkeypatch.setattr(_progress, "_tqdm", lambda: None)
    applied(tmp_path, np.zeros((40, 1000)))
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert len(lines) > 1
    assert all(re.fullmatch(r"\[#* *\] \d\.\d\d of 0\.00 GB, \d+ s", line) for line in lines)


def test_long_work_shows_a_bar_with_tqdm(tmp_path, capsys, monkeypatch):
    pytest.importorskip("tqdm")
    slowly(monkeypatch)
    applied(tmp_path, np.zeros((40, 1000)))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "100%" in printed.err and "320k/320k" in printed.err


def test_new_files_are_private_to_their_run(tmp_path):
    """Two runs with the same OUT each have a temporary file of their own."""
    with (
        _files.output(str(tmp_path / "out.npy"), np.dtype("f8"), (2,), False) as first,
        _files.output(str(tmp_path / "out.npy"), np.dtype("f8"), (2,), False) as second,
    ):
        assert len(os.listdir(tmp_path)) == 2
        first.mapped()[:], second.mapped()[:] = 1, 2
    assert os.listdir(tmp_path) == ["out.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), [1, 1])
