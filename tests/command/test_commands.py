"""`onsoftmax explain`, `plan` and `bench`: what they print and write, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys

import numpy as np
import pytest
from support import SANITIZED, fails, prints, run_python

import onsoftmax as ons
from onsoftmax import _core, cli
from onsoftmax._cli import explain as _cli_explain
from onsoftmax._cli import plan as _cli_plan
from onsoftmax._cli import progress as _progress
from onsoftmax._cli import topk as _cli_topk
from onsoftmax._explain import trace_text as _trace_text
from onsoftmax._plan import table as _table
from onsoftmax.bench import answers, command, contestants, cpu_timing, machine, progress, runs

ROW = ["1", "2", "3", "6", "2", "1"]
HAS_GPU = "cuda:0" in _core.config()["cuda"]
has_plots = pytest.mark.skipif(not contestants.importable("matplotlib"), reason="matplotlib is not installed")


@pytest.fixture
def quick(monkeypatch, threads_restored):
    """Small arrays and few samples, so that a run is short."""
    monkeypatch.setattr(runs, "CPU_SHAPES", [((8, 64), -1), ((2, 500), -1)])
    monkeypatch.setattr(cpu_timing, "SAMPLE_SECONDS", 1e-4)
    monkeypatch.setattr(cpu_timing, "PAUSE_SECONDS", 0)


# ------------------------------------------------ explain


def test_explain_prints_the_trace(capsys):
    assert prints(["explain", *ROW], capsys) == f"{ons.explain([1, 2, 3, 6, 2, 1])}\n"
    assert prints(["explain"], capsys) == f"{ons.explain([1, 2, 3, 6, 2, 1])}\n"
    by_one = str(ons.explain([1, 2, 3, 6, 2, 1], tile=1))
    assert prints(["explain", "--tile", "1"], capsys) == f"{by_one}\n"
    assert prints(["explain", "--tile", "1", *ROW], capsys) == f"{by_one}\n"
    topk = ons.explain([1, 2, 3, 6, 2, 1], operation="softmax_topk", k=2)
    assert prints(["explain", "-k", "2"], capsys) == f"{topk}\n"
    logarithm = ons.explain([1, 2, 3, 6, 2, 1], operation="log_softmax")
    assert prints(["explain", "--operation", "log_softmax"], capsys) == f"{logarithm}\n"
    backward: dict = {"operation": "log_softmax_backward", "method": "fused"}
    asked = ["explain", "--operation", "log_softmax_backward", "--method", "fused"]
    fused = ons.explain([1, 2, 3, 6, 2, 1], operation="log_softmax", method="fused")
    for grad in ([1, 0, 0, 0, 0, 0], [0.5, -2, 0, 0, 1, 3]):
        given = [] if grad[0] == 1 else ["--grad", *map(str, grad)]
        assert prints([*asked, *given], capsys) == f"{ons.explain(fused.result, grad=grad, **backward)}\n"
    loss: dict = {"operation": "cross_entropy_with_grad", "target": 3, "z_loss": 0.5}
    asked = ["explain", *ROW, "--operation", "cross_entropy_with_grad", "--target", "3", "--z-loss", "0.5"]
    assert prints(asked, capsys) == f"{ons.explain([1, 2, 3, 6, 2, 1], **loss)}\n"
    logprob: dict = {"operation": "logprob", "target": 0, "entropy": True}
    asked = ["explain", *ROW, "--operation", "logprob", "--target", "0", "--entropy"]
    assert prints(asked, capsys) == f"{ons.explain([1, 2, 3, 6, 2, 1], **logprob)}\n"
    sample: dict = {
        "operation": "sample",
        "temperature": 2,
        "top_k": 4,
        "top_p": 0.9,
        "min_p": 0.05,
        "seed": 7,
    }
    filters = ["--temperature", "2", "--top-k", "4", "--top-p", "0.9", "--min-p", "0.05", "--seed", "7"]
    asked = ["explain", *ROW, "--operation", "sample", *filters]
    assert prints(asked, capsys) == f"{ons.explain([1, 2, 3, 6, 2, 1], **sample)}\n"
    sample |= {"offset": 3, "filter_apply_order": "joint"}
    asked += ["--offset", "3", "--joint"]
    assert prints(asked, capsys) == f"{ons.explain([1, 2, 3, 6, 2, 1], **sample)}\n"
    exact = ons.explain([1, 2, 3, 6, 2, 1], method="exact")
    assert prints(["explain", "--method", "exact"], capsys) == f"{exact}\n"
    split = ["explain", *ROW, "--method", "split", "--tile", "1", "--parts", "3"]
    expected = ons.explain([1, 2, 3, 6, 2, 1], method="split", tile=1, parts=3)
    assert prints(split, capsys) == f"{expected}\n"


def test_explain_takes_every_number(capsys):
    row = ["-1e3", "-inf", "-.5", "nan", "+2", "1e-3"]
    data = json.loads(prints(["explain", *row, "--json", "--dtype", "float32"], capsys))
    assert data["row"][:3] == [-1000, "-inf", -0.5] and data["row"][3] == "nan"
    assert data["dtype"] == "float32"


@has_plots
def test_explain_writes_its_files(capsys, tmp_path):
    files = ["--html", tmp_path / "row.html", "--plot", tmp_path / "row.png"]
    naive = ["explain", 2, 4, 12, "--method", "naive", "--dtype", "float16"]
    assert "0 0 nan" in prints([*naive, *files], capsys)
    assert "the largest float16" in (tmp_path / "row.html").read_text()
    assert (tmp_path / "row.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["1", "two"], "'two' is not a number"),
        (["1,2"], "'1,2' is not a number"),
        ([*ROW, "--tile", "0"], "tile is 0"),
        ([*ROW, "--tile", "x"], "--tile"),
        ([*ROW, "--parts", "-1"], "parts is -1"),
        ([*ROW, "--method", "quick"], "naive, safe, online, fused, split"),
        ([*ROW, "--dtype", "int8"], "--dtype"),
        ([*ROW, "--method", "exact", "--dtype", "float64"], "here the array is float64"),
        (["0"] * 4097, "4097 elements"),
        ([*ROW, "-k", "7"], "k is 7: expected 1 to 6, the length of axis 0"),
        (
            [*ROW, "-k", "2", "--method", "safe"],
            "method of softmax_topk is 'safe': expected one of online, split",
        ),
        ([*ROW, "--operation", "softmx"], "operation is 'softmx': expected one of softmax, log_softmax"),
        ([*ROW, "--operation", "softmax_topk"], "softmax_topk needs k"),
        ([*ROW, "--grad", "1"], "softmax takes no grad"),
        ([*ROW, "--operation", "softmax_backward", "--grad", "1"], "grad has length 1: expected 6"),
        ([*ROW, "--operation", "softmax_backward", "--method", "naive"], "online, fused, split"),
        ([*ROW, "--operation", "cross_entropy"], "explain() of cross_entropy needs target"),
        ([*ROW, "--operation", "logprob", "--target", "6"], "target is 6: expected the index of an element"),
        ([*ROW, "--operation", "sample"], "explain() of sample needs seed"),
        (
            [*ROW, "--operation", "sample", "--seed", "1", "--top-p", "2"],
            "top_p is 2.0: expected a number from 0",
        ),
        ([*ROW, "--top-k", "2"], "softmax takes no top_k: operation='sample' does"),
        ([*ROW, "--html", "no/such/place"], "no/such/place: No such file or directory"),
        ([*ROW, "--html", "."], ".: Is a directory"),
        ([*ROW, "--plot", "chart.xyz"], "matplotlib" if not shutil.which("python") else "chart.xyz"),
    ],
)
def test_explain_refuses(arguments, text, capsys):
    assert text in fails(["explain", *arguments], capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", *ROW, "--html"],
        ["plan", "--shape", "4x4", "--html"],
        ["bench", "--shape", "4x4", "--json"],
    ],
)
def test_a_file_that_may_not_be_written(arguments, capsys, tmp_path, monkeypatch):
    target = tmp_path / "kept"
    target.write_text("as it was")
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(target))  # root may write all
    assert f"{target}: Permission denied" in fails([*arguments, target], capsys)
    assert target.read_text() == "as it was"


def test_a_plot_without_matplotlib(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    assert "pip install matplotlib" in fails(["explain", *ROW, "--plot", "row.png"], capsys)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "onsoftmax._explain.trace_plot", raising=False)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        ons.explain([1, 2]).plot()


# ------------------------------------------------ plan


def test_plan_prints_the_plan(capsys):
    arguments = ["plan", "--shape", "2048x131072", "--dtype", "float32", "--device", "cuda"]
    assert prints(arguments, capsys) == f"{ons.plan((2048, 131072), device='cuda')}\n"
    text = prints([*arguments[:-1], "rtx4090"], capsys)
    assert text == f"{ons.plan((2048, 131072), device='RTX 4090')}\n"
    online = ["plan", "--shape", "100x40@0", "--dtype", "float64", "--method", "online", "--threads", "1"]
    plan = ons.plan((100, 40), 0, dtype="float64", method="online", num_threads=1)
    assert prints([*online, "--bandwidth", "2e10"], capsys) == plan.to_text(2e10) + "\n"


def test_plan_takes_the_shape_by_position_or_by_name(capsys):
    for shape in (["100x40@0"], ["--shape", "100x40@0"]):
        text = prints(["plan", *shape, "--bandwidth", "2e10"], capsys)
        assert text == ons.plan((100, 40), 0).to_text(2e10) + "\n"


def test_plan_and_info_as_json(capsys):
    arguments = ["plan", "4096x4096", "--device", "A100", "--bandwidth", "1e12", "--json"]
    assert json.loads(prints(arguments, capsys)) == ons.plan((4096, 4096), device="A100").to_dict(1e12)
    told = json.loads(prints(["info", "--json"], capsys))
    assert told == ons.show_config()


def test_plan_writes_a_page(capsys, tmp_path):
    prints(["plan", "8x100", "--html", tmp_path / "plan.html"], capsys)
    page = (tmp_path / "plan.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "Where auto changes" in page


@pytest.mark.parametrize(
    "arguments, text",
    [
        ([], "got 0 shapes: expected one, such as 4096x1024"),
        (["4x4", "--shape", "4x4"], "got 2 shapes: expected one"),
        (["4 by 4"], "'4 by 4' is not a shape"),
        (["-4x4"], "'-4x4' is not a shape"),
        (["--shape", "4 by 4"], "'4 by 4' is not a shape"),
        (["--shape", "-4x4"], "--shape"),
        (["--shape", "4x4@2"], "axis 2"),
        (["--shape", "9999999999x9999999999"], "at most 2^48 elements"),
        (["--shape", "99999999999999999999"], "below 2^63"),
        (["--shape", "4x4", "--dtype", "float8"], "float8"),
        (
            ["--shape", "4x4", "--device", "tpu"],
            "'tpu': expected 'cpu', 'cuda', None, or a GPU to plan for: H100",
        ),
        (["--shape", "4x4", "--device", "A100", "--method", "cluster"], "does not run here"),
        (["--shape", "4x4", "--method", "grid"], "'grid'"),
        (["--shape", "4x4", "--threads", "0"], "num_threads"),
        (["--shape", "4x4", "--bandwidth", "fast"], "'fast' is not a bandwidth"),
        (["--shape", "4x4", "--bandwidth", "-1"], "not a bandwidth"),
        (["--shape", "4x99999999", "--device", "cuda", "--method", "cluster"], "1048576"),
    ],
)
def test_plan_refuses(arguments, text, capsys):
    assert text in fails(["plan", *arguments], capsys)


# ------------------------------------------------ bench


def names_in(text):
    return [line.split("  ")[0] for line in text.split("\nGB/s")[1].split("\nx copy")[0].splitlines()[3:]]


def test_bench_measures_who_is_there(quick, capsys, tmp_path):
    path = tmp_path / "run.json"
    text = prints(["bench", "--device", "cpu", "--rounds", "1", "--json", path], capsys)
    document = json.loads(path.read_text())
    assert [case["label"] for case in document["cases"]] == ["8x64", "2x500"]
    for peer in contestants.PEERS:
        shown = {"scipy": "SciPy", "numpy": "NumPy", "onnxruntime": "ONNX Runtime"}.get(peer, peer)
        here = command.is_here(peer)
        assert (shown in document["kinds"]) == here == (f"\n{shown} " in text)
        assert here or f"left out: {peer}" in text or f", {peer}" in text
    for case in document["cases"]:
        assert set(case["figures"]) == set(document["kinds"])
        assert case["bytes"] == 8 * np.prod(case["shape"]) and case["plan"] == "fused"
        copies = [f["ms"] for name, f in case["figures"].items() if document["kinds"][name] == "copy"]
        for name, figure in case["figures"].items():
            assert figure["gbps"] == pytest.approx(case["bytes"] / figure["ms"] / 1e6, rel=1e-3), name
            assert figure["x_copy"] == pytest.approx(min(copies) / figure["ms"], rel=1e-3)
        assert case["figures"]["auto"]["error"] <= answers.LIMIT_OURS_EPS
    assert all(len(line) <= 80 for line in text.splitlines())


def test_bench_names_columns_by_N_where_the_rows_are_as_many(quick, capsys):
    shapes = ["--shape", "2x1024", "2x2048", "2x100", "--against", "none", "--rounds", "1"]
    text = prints(["bench", "--device", "cpu", *shapes], capsys)
    assert re.search(r"^GB/s, 2 rows of N\n +1K +2K +100$", text, re.M)


def test_bench_takes_the_peers_and_methods_it_is_told(quick, capsys):
    arguments = ["bench", "--device", "cpu", "--rounds", "1", "--shape", "30x20@0", "--against"]
    text = prints([*arguments, "numpy", "--methods", "safe,split"], capsys)
    ours = ["auto", "auto out=", "safe", "safe out=", "split", "split out="]
    assert "30x20@0" in text and names_in(text)[: len(ours) + 2] == [*ours, "NumPy", "copy: np.copyto"]
    text = prints([*arguments, "none", "--methods", "all", "--dtype", "float64", "--threads", "1"], capsys)
    assert {m.name for m in ons.methods("cpu")} - {"exact"} <= set(names_in(text)) and "NumPy" not in text


@pytest.mark.skipif(not contestants.importable("torch"), reason="torch is not installed")
def test_bench_with_torch_and_without(quick, capsys, monkeypatch):
    arguments = ["bench", "--device", "cpu", "--rounds", "1"]
    assert "torch out=" in prints(arguments, capsys)
    found = contestants.importable
    monkeypatch.setattr(command, "importable", lambda name: name != "torch" and found(name))
    text = prints(arguments, capsys)
    assert "torch out=" not in text and re.search("left out: .*torch", text)
    assert "it is not installed: pip install torch" in fails([*arguments, "--against", "torch"], capsys)


@pytest.mark.skipif(SANITIZED, reason="the sanitizer is slow to start")
def test_bench_on_a_machine_without_torch(tmp_path):
    """torch and other optional libraries cannot be imported."""
    code = (
        "import sys\n"
        "missing = ('torch', 'scipy', 'onnxruntime', 'tqdm', 'rich', 'matplotlib')\n"
        "for name in missing: sys.modules[name] = None\n"
        "import importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if sys.modules.get(name, 0) is None else found(name, *rest)\n"
        "from onsoftmax.cli import main\n"
        "raise SystemExit(main(['bench', '--shape', '16x32', '--rounds', '1']))"
    )
    done = run_python(["-c", code])
    assert done.returncode == 0, done.stderr
    assert "not installed, left out: scipy, torch, onnxruntime" in done.stdout and "NumPy" in done.stdout
    assert re.search(r"\[#+\] 1 of 1", done.stderr)


def test_bench_times_no_wrong_answer(quick, capsys, monkeypatch):
    right = ons.softmax

    def wrong(x, *arguments, out=None, **options):
        y = right(x, *arguments, out=out, **options)
        y *= 1 + 1e-5
        return y

    monkeypatch.setattr(ons, "softmax", wrong)
    text = prints(["bench", "--device", "cpu", "--rounds", "1", "--against", "numpy"], capsys, code=1)
    assert "WRONG: auto, 8x64" in text and re.search(r"^auto +wrong +wrong$", text, re.M)
    assert "NumPy" in text


@pytest.mark.parametrize("operation", command.OPERATIONS[1:])
def test_bench_of_other_operations(operation, quick, capsys, tmp_path):
    """Ours and the peers that have it are right, along both axes."""
    path = tmp_path / "run.json"
    peers = [peer for peer in ("scipy", "numpy", "torch", "jax") if command.is_here(peer)]
    peers = [peer for peer in peers if operation in contestants.HAVE.get(peer, [operation])]
    arguments = ["--operation", operation, "--shape", "8x64", "30x20@0", "--against", ",".join(peers)]
    text = prints(["bench", "--device", "cpu", "--rounds", "1", *arguments, "--json", path], capsys)
    document = json.loads(path.read_text())
    k = " k=8" if operation == "softmax_topk" else ""
    assert document["operation"] == operation + k and text.startswith(f"{operation}{k}, float32, ")
    kinds = document["kinds"]
    assert {"scipy": "SciPy", "numpy": "NumPy", "jax": "JAX"}.get(peers[0], peers[0]) in kinds
    assert len({name.split()[0] for name, kind in kinds.items() if kind == "peer"}) == len(peers)
    assert ("auto out=" in kinds) == (operation not in ("logsumexp", "softmax_topk"))
    for case in document["cases"]:
        M, N = (8, 64) if case["N"] == 64 else (20, 30)
        moved = {"logsumexp": 4 * (N + 1), "softmax_topk": 4 * N + 8 * 12}.get(operation, 8 * N)
        assert case["bytes"] == M * (moved + 4 * N * operation.endswith("_backward"))
        assert all(figure["gbps"] > 0 for figure in case["figures"].values()), case


@pytest.mark.skipif(not contestants.importable("jax"), reason="JAX is not installed")
def test_bench_times_no_float32_as_float64(quick, capsys):
    """JAX would turn the one into the other."""
    pytest.importorskip("jax").config.update("jax_enable_x64", False)
    run = ["bench", "--device", "cpu", "--rounds", "1", "--dtype", "float64", "--shape", "8x64"]
    assert cli.main([*run, "--against", "jax"]) == 0
    out, err = capsys.readouterr()
    assert "JAX" not in out and "JAX, float64: left out: JAX computes in float64 only with" in err


@has_plots
def test_bench_draws_a_chart(quick, capsys, tmp_path):
    run = ["bench", "--device", "cpu", "--rounds", "1", "--plot"]
    prints([*run, tmp_path / "chart.svg"], capsys)
    assert "<svg" in (tmp_path / "chart.svg").read_text()
    prints([*run, tmp_path / "bars.svg", "--shape", "8x64", "8x100", "--against", "numpy"], capsys)
    bars = (tmp_path / "bars.svg").read_text()
    assert all(
        f"<!-- {text} -->" in bars for text in ("8x64", "8x100", "auto", "NumPy")
    )  # beside their glyphs


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--against", "nobody"], "--against nobody: on cpu there are"),
        (["--against", "triton"], "on another device"),
        (["--against", "scipy", "--operation", "softmax_topk"], "it has no softmax_topk): on cpu there are"),
        (["--methods", "grid"], "--methods grid"),
        (
            ["--methods", "safe", "--operation", "softmax_backward"],
            "on cpu has invariant, online, fused, split",
        ),
        (["--operation", "normalizer"], "--operation"),
        (["-k", "2"], "-k 2: softmax takes no k"),
        (["--operation", "softmax_topk", "-k", "5", "--shape", "3x4"], "k is 5: expected 1 to 4"),
        (["--shape", "nonsense"], "'nonsense' is not a shape"),
        (["--shape", "3x0"], "lengths of at least 1"),
        (["--shape", "3x4@5"], "axis 5"),
        (["--shape", "9999999x9999999"], "GB of memory"),
        (["--rounds", "0"], "--rounds"),
        (["--threads", "none"], "--threads"),
        (["--json", "no/such/place"], "no/such/place: No such file"),
        (["--device", "tpu"], "--device"),
    ],
)
def test_bench_refuses(arguments, text, capsys):
    assert text in fails(["bench", "--device", "cpu", *arguments], capsys)


@pytest.mark.skipif(HAS_GPU, reason="a GPU is here")
def test_bench_on_a_gpu_that_is_not_there(capsys, monkeypatch):
    error = fails(["bench", "--device", "cuda"], capsys)
    assert re.search("needs torch|finds no CUDA GPU", error)
    if contestants.importable("torch"):
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        built = _core.config()["cuda"]
        expected = f"onsoftmax's part for GPUs is {built}" if "not built" in built else ""
        assert machine.obstacle() == expected
    monkeypatch.setitem(sys.modules, "torch", None)
    assert machine.obstacle() == "needs torch, built for CUDA"


def test_bench_where_memory_is_short(quick, capsys, monkeypatch):
    monkeypatch.setattr(runs, "free_memory", lambda: 1e6)
    assert "too little memory is free" in fails(["bench", "--device", "cpu"], capsys)


# ------------------------------------------------ tables, terminals, progress


class Terminal:
    """A terminal in place of stdout."""

    def __init__(self, stream):
        self.stream = stream
        self.encoding = "utf-8"

    def isatty(self):
        return True

    def __getattr__(self, name):
        return getattr(self.stream, name)


def test_rich_tables_on_a_terminal(capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", Terminal(sys.stdout))
    text = prints(["explain", *ROW], capsys)
    assert "\N{BOX DRAWINGS LIGHT HORIZONTAL}" in text and "1.099894" in text and "bytes" in text
    shown = set(re.findall(r"\d\.\d+", text))
    assert shown == set(re.findall(r"\d\.\d+", str(ons.explain([1, 2, 3, 6, 2, 1]))))
    monkeypatch.setenv("COLUMNS", "30")
    assert set(re.findall(r"\d\.\d+", prints(["explain", *ROW], capsys))) == shown
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    plain = prints(["explain", *ROW], capsys)
    assert plain == f"{ons.explain([1, 2, 3, 6, 2, 1])}\n"


def test_tables_wrap_to_the_width():
    table = _table.Table("a title", ("name", "words"), [("one", "some words that are long"), ("two", "x")])
    assert _table.plain(table, 22).splitlines() == [
        "a title",
        "name             words",
        "----  ----------------",
        "one    some words that",
        "              are long",
        "two                  x",
    ]
    narrow = _table.plain(table, 5)  # no word is cut
    assert {"some", "words", "that", "are", "long"} <= set(narrow.split())
    assert "&lt;b&gt;" in _table.as_html(_table.Table("<b>", ("a",), [("<b>",)]))


def test_a_bar_of_our_own(capsys, monkeypatch):
    monkeypatch.setattr(progress, "importable", lambda name: False)
    assert list(progress.progress([5, 6])) == [5, 6]
    lines = capsys.readouterr().err.splitlines()
    assert [line[-6:] for line in lines] == ["0 of 2", "1 of 2", "2 of 2"]
    assert [line.count("#") for line in lines] == [0, _progress.WIDTH // 2, _progress.WIDTH]


def test_tables_of_narrow_terminals():
    wide = (ons.plan((4096, 32000)), ons.explain([1, 2, 3, 6, 2, 1]), ons.explain([1, 2, 6], method="split"))
    for parts in (
        *(plan.parts() for plan in wide[:1]),
        *(_trace_text.parts(trace, 50) for trace in wide[1:]),
    ):
        for part in parts:
            if isinstance(part, _table.Table):
                text = _table.plain(part, 50)
                assert all(len(line) <= 50 for line in text.splitlines()), text
    narrow = _table.plain(_table.Table("t", ("name", "it"), [("a" * 10, "b c")]), 8)
    assert narrow.splitlines() == ["t", "-" * 8, "name  " + "a" * 10, "it    b", "      c"]


def test_a_busy_machine_is_told(quick, capsys, monkeypatch):
    for load, told in ((3.0, True), (0.1, False)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, load, load))
        text = prints(["bench", "--device", "cpu", "--against", "none", "--rounds", "1"], capsys)
        assert ("The machine was busy: a load of 3.0" in text) == told


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh", "fish"])
def test_completion(shell, capsys):
    pytest.importorskip("shtab")
    text = prints(["completion", shell], capsys)
    assert all(name in text for name in ("explain", "apply", "tile"))


def test_completion_of_a_shell_that_shtab_does_not_know(capsys, monkeypatch):
    shtab = pytest.importorskip("shtab")
    monkeypatch.setattr(shtab, "SUPPORTED_SHELLS", ["bash"])
    assert "knows no fish: pip install -U shtab" in fails(["completion", "fish"], capsys)


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["pla"], "'pla': did you mean plan? Expected one of demo, explain, plan"),
        (["benchmark"], "did you mean bench?"),
        (["completion", "fisch"], "did you mean fish?"),
        (["plan", "4x4", "--dtype", "bfloat"], "did you mean bfloat16?"),
        (["frobnicate"], "'frobnicate': expected one of demo"),
    ],
)
def test_a_misspelled_word_is_recognized(arguments, text, capsys):
    assert text in fails(arguments, capsys)


def test_prose_wraps_on_a_narrow_terminal(capsys, monkeypatch):
    """The commands under "examples:" are not wrapped, because users copy them."""
    monkeypatch.setenv("COLUMNS", "50")
    commands = ["demo", "explain", "plan", "bench", "topk", "apply", "info", "completion"]
    for words in ([], *([name] for name in commands)):
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        lines = capsys.readouterr().out.splitlines()
        long = [line for line in lines if len(line) > 50]
        assert all(line.startswith("  onsoftmax ") and "   " not in line.strip() for line in long), long
    monkeypatch.setattr(_cli_plan, "show", lambda parts: print(_table.paragraphs(parts, 50)))
    assert all(len(line) <= 50 for line in prints(["plan", "4096x4096"], capsys).splitlines())


def test_completion_without_shtab(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "pip install shtab" in fails(["completion", "bash"], capsys)


def test_the_examples_of_help_run(quick, capsys, tmp_path, monkeypatch):
    """Runs every line under "examples:", except pipes and completion."""
    monkeypatch.chdir(tmp_path)
    np.save("logits.npy", np.zeros((3, 70)))
    np.save("in.npy", np.zeros((3, 70)))
    monkeypatch.setattr(cli, "demo", lambda: print("the demo"))
    monkeypatch.setattr(runs, "ROUNDS", 1)
    epilogs = [cli.APPLY_EPILOG, cli.DEMO_EPILOG, cli.INFO_EPILOG, _cli_explain.EPILOG, _cli_plan.EPILOG]
    for text in (*epilogs, _cli_topk.EPILOG, command.EPILOG):
        for line in text.splitlines()[1:]:
            words = re.split(r"\s{3,}", line.strip())[0].split()
            assert words[0] == "onsoftmax"
            if "-" in words:
                continue
            on_gpu = words[1:2] == ["bench"] and "cuda" in words
            peers = words[words.index("--against") + 1].split(",") if "--against" in words else []
            here = all(command.is_here(name) for name in peers if name != "none")
            here &= "--plot" not in words or contestants.importable("matplotlib")
            if here and (HAS_GPU or not on_gpu):
                prints([*words[1:], *(["--rounds", "1"] if words[1:2] == ["bench"] else [])], capsys)
