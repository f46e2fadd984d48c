"""docs/picker.html is up to date with its parts, loads nothing, and plans as ons.plan does."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import random
import re

import pytest
from picker_page import LONGEST, PAGE, needs_page
from support import ROOT, run_python

import onsoftmax as ons

pytestmark = needs_page

DTYPES = ["float16", "bfloat16", "float32", "float64"]
ROWS = [1, 16, 17, 131, 132, 4096, 250_000]
FACTS = [
    "method", "reason", "measured", "compute", "rows", "N", "width", "tile", "bytes_moved", "on_chip_bytes",
    "workspace_bytes", "threads", "least_bytes",
]  # fmt: skip
GPU_FACTS = [
    "blocks_a_row",
    "elements_a_thread",
    "longest_row",
    "copy_speed",
    "measured_seconds",
    "launch_seconds",
]


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_the_page_was_made_from_its_parts():
    spec = importlib.util.spec_from_file_location("make_picker", os.path.join(ROOT, "docs", "make_picker.py"))
    make_picker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_picker)
    page = text_of(PAGE)
    assert page == make_picker.make_page(make_picker.planner_of(page)), "run: make picker"


def test_the_page_loads_nothing():
    assert not re.findall(r"https?://|\bimport\b\s*[({\"']|@import|url\(|\bfetch\(", text_of(PAGE))


# Plans in an interpreter that sees no GPU, and so plans for an H100, with caches like the page's.
EXPECTED = """
import json, sys
import ml_dtypes
from onsoftmax import _core
for line in sys.stdin:
    case = json.loads(line)
    dtype = getattr(ml_dtypes, "bfloat16") if case["dtype"] == "bfloat16" else case["dtype"]
    found = []
    for N in case["lengths"]:
        plan = _core.plan(
            (case["rows"], N), dtype=dtype, device=case["device"], num_threads=case["threads"],
            caches=(1 << 20, 1 << 25, 8),
        )
        found.append([plan[name] for name in case["facts"]])
    print(json.dumps(found))
"""

ASKED = """async ({ facts, lengths, ...question }) => {
    const planner = await picker, regions = regionsOf(planner, question);
    const all = [...new Set([...lengths, ...regions.flatMap(({ from }) => [from - 1, from, from + 1])])]
        .filter((N) => N >= 1 && N <= LONGEST);
    const plans = all.map((N) => planner.plan({ ...question, N }));
    const placed = PLACES[question.device].flatMap((place) => place.methods);
    const facts_of = (plan) => facts.map((name) => plan[name]);
    return JSON.stringify({ lengths: all, regions, placed, plans: plans.map(facts_of) });
}"""


@pytest.mark.parametrize("device, threads", [("cuda", 1), ("cpu", 1), ("cpu", 8)])
def test_page_and_plan_agree(page, device, threads, tmp_path):
    pytest.importorskip("ml_dtypes")
    generator = random.Random(f"{device} {threads}")
    facts = FACTS + (GPU_FACTS if device == "cuda" else [])
    cases, answers = [], []
    for dtype, rows in [*itertools.product(DTYPES, ROWS)][threads == 8 :: 2]:  # every second pair
        lengths = [min(LONGEST, int(2 ** generator.uniform(0, 24.001))) for _ in range(200)]
        case = {"device": device, "dtype": dtype, "rows": rows, "threads": threads, "facts": facts}
        answer = json.loads(page.evaluate(ASKED, {**case, "lengths": lengths}))
        answers.append(answer)
        cases.append({**case, "lengths": answer["lengths"]})
    questions = tmp_path / "questions"
    questions.write_text("\n".join(map(json.dumps, cases)))
    code = f"import sys; sys.stdin = open({str(questions)!r})\n{EXPECTED}"
    run = run_python(["-c", code], CUDA_VISIBLE_DEVICES="")
    assert run.returncode == 0, run.stderr
    for case, answer, line in zip(cases, answers, run.stdout.splitlines(), strict=True):
        where = {name: case[name] for name in ("device", "dtype", "rows", "threads")}
        assert {region["method"] for region in answer["regions"]} <= {*answer["placed"]}
        assert len(case["lengths"]) >= 150  # 200 lengths and the ends of regions, but short ones repeat
        for N, by_page, by_library in zip(case["lengths"], answer["plans"], json.loads(line), strict=True):
            assert dict(zip(facts, by_page, strict=True)) == dict(zip(facts, by_library, strict=True)), (
                f"{where} N={N}: page and plan differ. Run: make picker"
            )
            region = next(one for one in answer["regions"] if one["from"] <= N <= one["to"])
            assert region["method"] == by_library[0], f"{where} N={N}: the map says {region['method']}"


def test_the_page_knows_every_method(page):
    listed = page.evaluate("picker.then((planner) => planner.methods)")
    assert [one["name"] for one in listed] == [method.name for method in ons.methods()]
    for one, method in zip(listed, ons.methods(), strict=True):
        assert (one["reads"], one["writes"], one["keeps"]) == (method.reads, method.writes, method.keeps)
        assert (one["summary"], tuple(one["devices"])) == (method.summary, method.devices)
