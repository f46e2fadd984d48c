"""docs/onsoftmax.ipynb: its outputs are current, and its exercises tell right answers from wrong ones."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import runpy
from importlib.util import find_spec
from math import isclose

import pytest
from core import skip
from support import ROOT

NOTEBOOK = os.path.join(ROOT, "docs", "onsoftmax.ipynb")
pytestmark = pytest.mark.skipif(not os.path.exists(NOTEBOOK), reason="the documents are not beside the tests")
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")
RUN_IT = "run: make notebook"


def committed():
    """{id: cell}"""
    with open(NOTEBOOK, encoding="utf-8") as file:
        return {cell["id"]: cell for cell in json.load(file)["cells"]}


def parts(output):
    """{type: content} of an output."""
    data = output.get("data") or {output.get("name", "error"): output.get("text", "")}
    return {kind: "".join(content) for kind, content in data.items()}


def same_text(one, other):
    """Whether two texts have the same words, and the same numbers up to rounding."""
    one, other = " ".join(one.split()), " ".join(other.split())
    numbers = zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
    return re.sub(r"[ -]", "", NUMBER.sub("#", one)) == re.sub(r"[ -]", "", NUMBER.sub("#", other)) and all(
        isclose(float(a), float(b), rel_tol=1e-4, abs_tol=1e-12) for a, b in numbers
    )


def same_picture(one, other):
    """Whether two pictures agree at an eighth of their size. If two versions of matplotlib drew them, texts
    may be a few pixels apart, so the pictures may differ by more."""
    from PIL import Image, ImageChops

    first, second = (Image.open(io.BytesIO(base64.b64decode(png))) for png in (one, other))
    least = (
        12 if first.info["Software"] == second.info["Software"] else 64
    )  # of 255, what counts as different
    size = (first.width // 8, first.height // 8)
    first, second = (picture.convert("RGB").resize(size, Image.Resampling.BOX) for picture in (first, second))
    difference = ImageChops.difference(first, second).convert("L").histogram()
    return sum(difference[least:]) <= 0.002 * size[0] * size[1]


def same(one, other):
    """Whether two outputs agree."""
    one, other = parts(one), parts(other)
    return one.keys() == other.keys() and all(
        (same_picture if kind == "image/png" else same_text)(one[kind], other[kind]) for kind in one
    )


def test_its_outputs_are_current():
    absent = [name for name in ("nbclient", "ipykernel", "matplotlib", "torch") if find_spec(name) is None]
    if absent:
        skip(f"the notebook needs {', '.join(absent)}")
    now = {cell["id"]: cell for cell in runpy.run_path(f"{ROOT}/docs/make_notebook.py")["executed"]().cells}
    for name, cell in committed().items():
        if cell["cell_type"] == "code" and "this-machine" not in cell["metadata"].get("tags", []):
            was, is_now = cell["outputs"], now[name]["outputs"]
            assert len(was) == len(is_now), f"{name}: {RUN_IT}"
            for one, other in zip(was, is_now, strict=True):
                assert same(one, other), f"{name}: {RUN_IT}\n{parts(other).get('text/plain', parts(other))}"


def test_a_stale_output_is_found():
    assert same_text("d = 1.5032147244, error 2.1e-16", "d =  1.5032147246, error 3e-16")
    assert not same_text("d = 1.5032", "d = 1.6032")
    assert not same_text("d = 1.5032", "m = 1.5032")
    assert not same_text("d = 1.5", "d = 1.5 0.5")
    pictures = [
        parts(output)["image/png"]
        for name in ("flash_figure", "above_the_bound", "merge_figure")
        for output in committed()[name]["outputs"]
        if "image/png" in parts(output)
    ]
    assert [[same_picture(one, other) for other in pictures] for one in pictures] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]


def test_it_is_committed_with_all_outputs_and_is_small():
    assert os.path.getsize(NOTEBOOK) < 400_000, f"{RUN_IT}, which makes the pictures small"
    cells = [cell for cell in committed().values() if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), RUN_IT
    assert {tuple(cell["metadata"]) for cell in cells} == {(), ("tags",)}
    assert sum("image/png" in parts(output) for cell in cells for output in cell["outputs"]) >= 11


def what_the_check_says(exercise, answer):
    """Runs the exercise's cell with an answer in place of the empty one."""
    pytest.importorskip("matplotlib")
    cells = committed()
    imports, cell = ("".join(cells[name]["source"]) for name in ("imports", exercise))
    empty, _, check = cell.partition("# The check\n")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(f"{imports}\n{empty if answer is None else answer}\n{check}", {})
    return said.getvalue()


def solution(exercise):
    text = "".join(committed()[f"{exercise}_text"]["source"])
    (folded,) = re.findall(r"<details>\n<summary>Solution</summary>\n\n(.+?)\n\n</details>$", text, re.S)
    (code,) = re.findall(r"```python\n(.+?)```", folded, re.S)
    return code


@pytest.mark.parametrize("exercise", ["exercise_1", "exercise_2", "exercise_3"])
def test_a_solution_is_right_and_an_empty_answer_waits(exercise):
    assert what_the_check_says(exercise, solution(exercise)).startswith("Right")
    assert what_the_check_says(exercise, None).endswith("waits for your answer.\n")


@pytest.mark.parametrize(
    "exercise, right, wrong, says",
    [
        ("exercise_1", "[0, 0, 0]", "[0, 0, float('nan')]", "Wrong: naive gives other numbers"),
        ("exercise_1", "c = 1", "c = 0", "Wrong: with c = 0 naive does not give"),
        ("exercise_1", "c = 1", "c = 2", "Wrong: c = 2 is not the smallest"),
        ("exercise_1", "c = 1", "c = 0.7", "Wrong: c = 0.7 is not the smallest"),
        ("exercise_2", "(d * np.exp(m - largest)).sum()", "d.sum()", "Wrong: m = "),
        ("exercise_2", "if largest == -inf", "if False", "Wrong: two empty parts give (-inf, nan)"),
        ("exercise_3", "d = d * exp(m_before - m)", "d = d", "Wrong: the result is not"),
        ("exercise_3", "(m, x.max())", "(m, memory[j : j + tile].max())", "Wrong: 3 reads of each element"),
        ("exercise_3", "m, d = -inf, 0.0", "m, d, tile = -inf, 0.0, 100", "Wrong: a read has 100 elements"),
    ],
)
def test_a_wrong_answer_is_told(exercise, right, wrong, says):
    answer = solution(exercise)
    assert right in answer
    assert what_the_check_says(exercise, answer.replace(right, wrong)).startswith(says)
