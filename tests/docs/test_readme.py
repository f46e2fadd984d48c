"""README.md and its pages are true: snippets and commands run and print what the text says, links lead
somewhere, and `auto` does what the text says."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex

import numpy as np
import pytest
from support import ROOT

import onsoftmax as ons
from onsoftmax import _core, cli, demo
from onsoftmax.bench import contestants, cpu_timing, runs

README = os.path.join(ROOT, "README.md")
PAGES = [
    README,
    *(
        os.path.join(ROOT, "docs", f"{name}.md")
        for name in (
            "contract",
            "examples",
            "in-a-training-loop",
            "log-probabilities",
            "routers",
            "sampling",
            "rows-over-gpus",
            "larger-than-memory",
            "building",
            "tools",
            "performance",
        )
    ),
]
HERE = all(map(os.path.isfile, PAGES))
pytestmark = pytest.mark.skipif(not HERE, reason="the documents are not beside the tests")

HAS_GPU = "cuda:0" in _core.config()["cuda"]
MISSING = [name for name in ("torch", "dask", "jax") if importlib.util.find_spec(name) is None]


def read(page):
    with open(page, encoding="utf-8") as file:
        return file.read()


def blocks(language, pages=PAGES):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", "\n".join(map(read, pages)), re.M | re.S)
    return [text for kind, text in found if kind == language]


def commands():
    """The lines of all sh blocks without comments. A backslash at a line's end joins it with the next
    line."""
    lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def test_python_snippets_run(monkeypatch, tmp_path):
    """Runs the snippets of a page in their order, as a reader would, on smaller arrays."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    of_page, ran = {}, 0
    for page in PAGES:
        names = of_page[os.path.basename(page)] = {}
        for block in blocks("python", [page]):
            missing = any(re.search(rf"import {name}|from onsoftmax.{name}", block) for name in MISSING)
            if missing or ('device="cuda"' in block and not HAS_GPU):
                compile(block, page, "exec")
                continue
            exec(compile(block.replace("4096, 32000", "64, 320"), page, "exec"), names)
            ran += 1
    assert ran >= 2
    x, trace = of_page["README.md"]["x"], of_page["tools.md"]["trace"]
    if isinstance(x, np.ndarray):
        sums = of_page["README.md"]["y"].sum(axis=0)  # out=y of the call along axis 0
        np.testing.assert_allclose(sums, 1, rtol=1e-5)
    assert trace.method == "naive"
    text = "".join(blocks("python"))
    assert f"note  # {trace.steps[0].note!r}" in text and f"result  # {trace.result}" in text


def migrations():
    """Both expressions of each line in the table of other libraries' calls."""
    _, table = read(README).split("| instead of | write |\n| --- | --- |\n")
    lines = table.partition("\n\n")[0].splitlines()
    return [re.findall(r"^\| `([^`]+)`.* \| `([^`]+)`", line)[0] for line in lines]


@pytest.mark.parametrize("before, now", migrations() if HERE else ())
def test_calls_of_other_libraries_are_ours(before, now):
    """Both expressions of a line give the same. A line is skipped if its library is missing or needs a
    GPU."""
    library = re.match(r"\(?(?:e := )?(\w+)", before)[1]
    if library == "cupyx":
        assert before.replace("cupyx.scipy.special", "ons") == now
        pytest.skip("CuPy's arrays are tested on a GPU")
    if library != "np":
        pytest.importorskip({"scipy": "scipy.special", "jax": "jax.nn"}.get(library, library))
    x, mask = np.linspace(-3, 5, 12, dtype=np.float32).reshape(3, 4), np.eye(3, 4) + np.eye(3, 4, 1) > 0
    names = {"np": np, "ons": ons, "x": x, "temperature": 0.7}
    if library == "torch":
        import torch

        mask = torch.tensor(mask)
        names |= {"torch": torch, "t": torch.tensor(x), "y": torch.empty(3, 4), "g": torch.tensor(x) ** 2}
        names["target"] = torch.tensor([3, 0, 1])
    elif library != "np":
        names[library] = __import__(library)
    if library == "jax":
        names["j"], mask = names["jax"].numpy.asarray(x), names["jax"].numpy.asarray(mask)
    results = [np.asarray(eval(code, {**names, "mask": mask})) for code in (before, now)]
    assert results[0].dtype == results[1].dtype
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)


def test_what_it_says_is_printed_is(capsys):
    """A block shows the beginning of what its command prints. Lines that are left out are "..."."""
    shown = [block for block in blocks("") if block.startswith("$ onsoftmax ")]
    assert len(shown) > 1
    for block in shown:
        command, _, output = block.partition("\n")
        assert cli.main(shlex.split(command)[2:]) == 0
        beginning, *others = output.split("...\n")
        printed = capsys.readouterr().out
        assert printed.startswith(beginning.rstrip())
        assert all(text.strip() and text in printed for text in others)


def test_commands_run(monkeypatch, tmp_path, capsys, threads_restored):
    """Runs the onsoftmax commands, on small arrays. A command that needs a GPU or matplotlib needs it here
    too."""
    monkeypatch.chdir(tmp_path)
    np.save("IN.npy", np.ones((3, 8), np.float32))
    monkeypatch.setattr(demo, "show_large", lambda: None)
    monkeypatch.setattr(runs, "CPU_SHAPES", [((8, 64), -1)])
    monkeypatch.setattr(runs, "GPU_SHAPES", [((8, 64), -1)])
    monkeypatch.setattr(cpu_timing, "SAMPLE_SECONDS", 1e-4)
    ours = [words[1:] for words in commands() if words[0] == "onsoftmax"]
    known = {"demo", "explain", "plan", "bench", "topk", "apply", "info", "completion"}
    assert {words[0] for words in ours if words} == known
    for words in ours:
        if "--plot" not in words or contestants.importable("matplotlib"):
            assert cli.main(words) == 0, words
            assert capsys.readouterr().out or words[0] == "apply" or "--output" in words
    assert (np.load("OUT.npy") == 0.125).all()


def test_every_option_is_known(capsys):
    """Also options that the comments list. .ci/run has the other commands, which install and test."""
    assert {words[0] for words in commands()} <= {"onsoftmax", "pip", "make", "ONSOFTMAX_CUDA=1"}
    for line in "".join(blocks("sh")).splitlines():
        named = re.match(r"onsoftmax ([a-z]+) ", line)
        if named and named[1] != "info":
            with pytest.raises(SystemExit):
                cli.main([named[1], "--help"])
            known = capsys.readouterr().out
            assert set(re.findall(r"(?<![\w-])--[a-z]+", line)) <= set(re.findall(r"--[a-z]+", known)), line


def test_the_first_page_is_short():
    assert len(read(README).splitlines()) <= 180


def anchors(page):
    """The anchors that code hosts make of headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", read(page), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [*PAGES, os.path.join(ROOT, "docs", "how-it-works.md")], ids=os.path.basename
)
def test_links_lead_somewhere(page):
    text = read(page)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    for target in targets:
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        where = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        assert os.path.exists(where), target
        assert not anchor or anchor in anchors(where), target


def test_what_is_said_of_auto():
    """The plan agrees with the table in performance.md."""
    lines = re.findall(r"^\| (\d+) \| (`fused_warp` up to .*) \| (.*) \|$", read(PAGES[-1]), re.M)
    assert len(lines) == 4
    for rows, *said in lines:
        for dtype, text in zip(("float32", "bfloat16"), said, strict=True):
            found = ons.plan((int(rows), 1000), dtype=dtype, device="H100").cliffs()
            expected = [f"`{cliff.method}` up to {cliff.N}" for cliff in found] + [f"`{found[-1].then}`"]
            assert text == ", ".join(expected)
