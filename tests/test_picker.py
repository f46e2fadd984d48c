"""docs/picker.html in a browser: it plans as the library does, its steps are right, and it is used by mouse,
by keyboard, on a phone and in the dark. ONSOFTMAX_REQUIRE_BROWSER=1 makes a failure of what would be skipped;
ONSOFTMAX_SCREENSHOTS names a directory that keeps what the page looks like."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import re
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
from support import ROOT, SANITIZED, run_python

import onsoftmax as ons

PAGE = os.path.join(ROOT, "docs", "picker.html")
pytestmark = pytest.mark.skipif(not os.path.exists(PAGE), reason="the documents are not beside the tests")

LONGEST = 2**24
DTYPES = ["float16", "bfloat16", "float32", "float64"]
ROWS = [1, 16, 17, 131, 132, 4096, 250_000]
FACTS = [
    "method", "reason", "compute", "rows", "N", "width", "tile", "bytes_moved", "on_chip_bytes",
    "workspace_bytes", "threads",
]  # fmt: skip
GPU_FACTS = ["blocks_a_row", "elements_a_thread", "longest_row"]


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


@pytest.fixture(scope="module")
def browser():
    """Chromium: the machine's own, else the one that playwright brought."""
    if SANITIZED:
        pytest.skip("a browser under a sanitizer that is not its own")

    def without(reason):
        (pytest.fail if os.environ.get("ONSOFTMAX_REQUIRE_BROWSER") == "1" else pytest.skip)(reason)

    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        without("playwright is not installed")
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=next(filter(None, found), None), args=["--no-sandbox"]
            )
        except Error as error:
            without(f"no Chromium starts: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@contextmanager
def opened(browser, width=1280, height=900, **options):
    """The page in a window of its own; what it said on the console or asked of the network is an error."""
    wrong = []
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda request: wrong.append(request.url) if request.url[:4] == "http" else None)
    page.goto(f"file://{PAGE}")
    page.wait_for_function("document.getElementById('method').textContent !== ''")
    yield page
    context.close()
    assert not wrong


@pytest.fixture
def page(browser):
    with opened(browser, reduced_motion="reduce") as page:
        yield page


def shown(page, name):
    return page.inner_text(f"#{name}").replace("\u2212", "-")


def fact(page, name):
    return page.inner_text(f'[data-fact="{name}"] dd:not(.note)')


# ---- the same plan as the library's ----

# in an interpreter that sees no GPU, so that the plan is an H200's, as the page's is
EXPECTED = """
import json, sys
import ml_dtypes
import onsoftmax as ons
for line in sys.stdin:
    case = json.loads(line)
    dtype = getattr(ml_dtypes, "bfloat16") if case["dtype"] == "bfloat16" else case["dtype"]
    threads = None if case["device"] == "cuda" else case["threads"]
    found = []
    for N in case["lengths"]:
        plan = ons.plan((case["rows"], N), dtype=dtype, device=case["device"], num_threads=threads)
        found.append([getattr(plan, name) for name in case["facts"]])
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
def test_page_and_plan_agree_at_1000_lengths(page, device, threads, tmp_path):
    pytest.importorskip("ml_dtypes")
    generator = random.Random(f"{device} {threads}")
    facts = FACTS + (GPU_FACTS if device == "cuda" else [])
    cases, answers = [], []
    for rows in ROWS:
        for dtype in DTYPES:
            lengths = [min(LONGEST, int(2 ** generator.uniform(0, 24.001))) for _ in range(1000)]
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
        assert len(case["lengths"]) >= 500  # 1000, of which the short ones are often the same
        for N, by_page, by_library in zip(case["lengths"], answer["plans"], json.loads(line), strict=True):
            expected = [0 if value is None else value for value in by_library]
            assert dict(zip(facts, by_page, strict=True)) == dict(zip(facts, expected, strict=True)), (
                f"{where} N={N}: page and plan differ. Run: make picker"
            )
            region = next(one for one in answer["regions"] if one["from"] <= N <= one["to"])
            assert region["method"] == expected[0], f"{where} N={N}: the map says {region['method']}"


def test_the_page_knows_every_method(page):
    listed = page.evaluate("picker.then((planner) => planner.methods)")
    assert [one["name"] for one in listed] == [method.name for method in ons.methods()]
    for one, method in zip(listed, ons.methods(), strict=True):
        assert (one["reads"], one["writes"], one["keeps"]) == (method.reads, method.writes, method.keeps)
        assert (one["summary"], tuple(one["devices"])) == (method.summary, method.devices)


# ---- used ----


def test_dragging_the_slider(page):
    page.locator("#length").scroll_into_view_if_needed()
    box = page.locator("#length").bounding_box()
    middle, seen = box["y"] + box["height"] / 2, []
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    for share in (0.2, 0.45, 0.6, 0.95):
        page.mouse.move(box["x"] + share * box["width"], middle, steps=5)
        N = int(shown_value(page).replace(",", ""))
        plan = ons_plan_of_page(page, N)
        assert (shown(page, "method"), fact(page, "Tile").split()[0]) == (plan["method"], f"{plan['tile']:,}")
        assert plan["reason"][1:] in shown(page, "reason")
        first, last = (int(n.replace(",", "")) for n in re.findall("[0-9,]+", shown(page, "range")))
        assert first <= N <= last
        assert ons_plan_of_page(page, first)["method"] == ons_plan_of_page(page, last)["method"]
        assert last == LONGEST or ons_plan_of_page(page, last + 1)["method"] != plan["method"]
        seen.append(N)
    page.mouse.up()
    assert seen == sorted(seen) and seen[0] < 100 and seen[-1] > 4_000_000


def shown_value(page):
    return page.input_value("#length-number")


def ons_plan_of_page(page, N, rows=4096, dtype="float32"):
    question = {"device": "cuda", "dtype": dtype, "rows": rows, "N": N, "threads": 8}
    return page.evaluate("(question) => picker.then((planner) => planner.plan(question))", question)


def test_dragging_anywhere_on_the_map(page):
    page.locator("#lanes").scroll_into_view_if_needed()
    box, lanes = page.locator("#map").bounding_box(), page.locator("#lanes").bounding_box()
    page.mouse.move(box["x"] + 1, lanes["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 10 / 24, lanes["y"] + 10, steps=3)
    assert abs(math.log2(int(shown_value(page).replace(",", ""))) - 10) < 0.05
    page.mouse.move(box["x"] + box["width"] + 300, lanes["y"] + 10)
    assert shown_value(page) == "16,777,216"
    page.mouse.up()


def test_by_touch_on_a_phone(browser):
    with opened(browser, 360, 740, has_touch=True, is_mobile=True) as page:
        page.locator("#cliffs button").first.tap()
        N = int(page.locator("#cliffs button").first.get_attribute("data-n"))
        assert shown_value(page) == f"{N:,}"
        assert shown(page, "method") != ons_plan_of_page(page, N - 1)["method"]
        page.locator("#lanes").scroll_into_view_if_needed()
        box = page.locator("#lanes").bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 5)
        assert abs(math.log2(int(shown_value(page).replace(",", ""))) - 12) < 0.1


def test_the_slider_by_keyboard(page):
    page.focus("#length")
    cliffs = [int(one.get_attribute("data-n")) for one in page.locator("#cliffs button").all()]
    page.keyboard.press("Home")
    assert shown_value(page) == "1"
    for cliff in cliffs:
        page.keyboard.press("PageUp")
        assert shown_value(page) == f"{cliff:,}"
        method = shown(page, "method")
        page.keyboard.press("Shift+ArrowLeft")
        assert (shown_value(page), shown(page, "method") != method) == (f"{cliff - 1:,}", True)
        page.keyboard.press("Shift+ArrowRight")
        assert shown(page, "method") == method
    page.keyboard.press("End")
    assert shown_value(page) == "16,777,216"
    page.keyboard.press("ArrowRight")
    assert shown_value(page) == "16,777,216"
    page.keyboard.press("PageDown")
    assert shown_value(page) == f"{cliffs[-1]:,}"
    page.keyboard.press("ArrowDown")
    assert cliffs[-1] * 0.9 < int(shown_value(page).replace(",", "")) < cliffs[-1]
    assert shown(page, "method") in page.get_attribute("#length", "aria-valuetext")


def test_everything_is_reached_by_tab(page):
    """Each stop is visible, named, and shows that it has the focus."""
    seen = []
    page.focus("#tab-pick")
    for _ in range(60):
        stop = page.evaluate("""() => {
            const at = document.activeElement, style = getComputedStyle(at);
            const box = at.getBoundingClientRect();
            const label = at.closest("label");
            const ringed = [at, label].some((one) => one && getComputedStyle(one).outlineStyle !== "none");
            const name = at.ariaLabel || at.labels?.[0]?.innerText || at.innerText;
            return { id: at.id || at.name || at.innerText, name, ringed: ringed || at.id === "length",
                     seen: box.width > 0 && box.height > 0 };
        }""")
        if stop["id"] in seen[-1:]:
            break
        assert stop["name"] and stop["ringed"] and stop["seen"], stop
        seen.append(stop["id"])
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
    assert {"device", "dtype", "rows", "rows-number", "speed", "length", "length-number", "pass-play"} <= {
        *seen
    }


def test_what_is_read_is_the_plan(page):
    page.fill("#length-number", "50257")
    page.fill("#rows-number", "2k")
    page.check("input[value=bfloat16]")
    page.fill("#speed", "3,000")
    plan = ons_plan_of_page(page, 50257, 2048, "bfloat16")
    assert plan["bytes_moved"] == (plan["reads"] + plan["writes"]) * 2048 * 50257 * 2
    assert fact(page, "Tile") == f"{plan['tile']:,} elements"
    assert fact(page, "Warps") == f"{plan['threads'] // 32} a block"
    assert fact(page, "Registers") == f"{plan['elements_a_thread']} elements"
    assert float(fact(page, "Memory traffic").split()[0]) == pytest.approx(
        plan["bytes_moved"] / 1e6, rel=5e-3
    )
    assert float(fact(page, "Time at copy speed").split()[0]) == pytest.approx(
        plan["bytes_moved"] / 3e12 * 1e6, rel=5e-3
    )
    assert shown(page, "call") == 'ons.plan((2048, 50257), dtype="bfloat16", device="cuda")'
    page.check("input[value=cpu]")
    assert page.input_value("#speed") == "30"
    page.fill("#threads", "1")
    assert (fact(page, "Threads"), shown(page, "method")) == ("1", "fused")
    page.fill("#length-number", "16M")
    page.fill("#rows-number", "1")
    page.fill("#threads", "8")
    assert shown(page, "method") == "split"
    page.check("input[value=cuda]")
    assert page.input_value("#speed") == "3000"


def test_what_fits_where(page):
    """The bars end where the plan says that a row is too long."""
    for dtype in ("float32", "float64"):
        page.check(f"input[value={dtype}]")
        for method in ("fused_warp", "fused_block", "cluster"):
            longest = ons.plan((1, 1), dtype=dtype, device="cuda", method=method).longest_row
            with pytest.raises(ValueError, match=str(longest)):
                ons.plan((1, longest + 1), dtype=dtype, device="cuda", method=method)
            assert f"up to {longest:,}" in page.inner_text(f'.lane[data-place="{method}"]')
    page.fill("#length-number", "100000")
    assert page.locator('#others tr[data-method="fused_warp"] button').is_disabled()
    assert "rows up to 512" in page.inner_text('#others tr[data-method="fused_warp"]')


@pytest.mark.parametrize("name", ["length-number", "rows-number", "threads", "speed"])
def test_text_in_a_number_field_changes_nothing(page, name):
    if name == "threads":
        page.check("input[value=cpu]")
    before = (shown(page, "method"), shown(page, "facts"), page.input_value(f"#{name}"))
    for text in ("abc", "", "-5", "0", "1e", "12 apples", "99999999999999999999", "<b>4", "NaN"):
        page.fill(f"#{name}", text)
        assert (shown(page, "method"), shown(page, "facts")) == before[:2]
        assert page.get_attribute(f"#{name}", "aria-invalid") == "true"
        assert f"“{text}” is not a" in shown(page, f"{name}-note")
        page.focus("#length")
        assert page.input_value(f"#{name}") == before[2]
        assert shown(page, f"{name}-note") == ""
        assert page.get_attribute(f"#{name}", "aria-invalid") is None


def test_lengths_as_people_write_them(page):
    written = {"4096": 4096, "4,097": 4097, "64K": 65536, "16m": LONGEST, "2^20": 2**20, " 1 ": 1}
    for text, N in written.items():
        page.fill("#length-number", text)
        page.focus("#length")
        assert shown_value(page) == f"{N:,}"


def test_watching_the_passes(page):
    """Every method's frames read and write the array as often as the method does."""
    page.fill("#length-number", "1000")
    for device in ("cuda", "cpu"):
        page.check(f"input[value={device}]")
        for button in page.locator("#others button").all():
            button.click()
            name = button.inner_text()
            method = next(one for one in ons.methods() if one.name == name)
            assert shown(page, "watched") == name
            assert button.get_attribute("aria-pressed") == "true"
            page.click("#pass-back")  # from the first frame to the last
            assert shown(page, "pass-count") == f"read {method.reads} N, written {method.writes} N"
            assert page.locator("#y-cells .full").count() == page.locator("#y-cells i").count()
            page.click("#pass-next")
            assert "written 0 N" in shown(page, "pass-count")


def test_motion(browser):
    with opened(browser) as page:
        page.locator("#watch").scroll_into_view_if_needed()
        first = shown(page, "pass-count")
        page.wait_for_function("(was) => byId('pass-count').innerText !== was", arg=first)
        page.click("#pass-play")
        still = shown(page, "pass-count")
        page.wait_for_timeout(1200)
        assert (shown(page, "pass-count"), shown(page, "pass-play")) == (still, "Play")
    with opened(browser, reduced_motion="reduce") as page:
        page.locator("#watch").scroll_into_view_if_needed()
        first = shown(page, "pass-count")
        page.wait_for_timeout(1200)
        assert (shown(page, "pass-count"), shown(page, "pass-play")) == (first, "Play")


# ---- step by step ----


def outputs(page):
    return shown(page, "out-cells").split("\n")


def test_the_worked_row(page):
    page.click("#tab-steps")
    assert (shown(page, "now-m"), shown(page, "now-d")) == ("3", "1.5032")
    assert "e1 - 3 + e2 - 3 + e3 - 3 = 1.5032" in shown(page, "step-lines").replace("\n", "")
    page.click("#step-next")
    assert (shown(page, "now-m"), shown(page, "now-d"), shown(page, "now-factor")) == (
        "6",
        "1.0999",
        "0.0498",
    )
    page.focus("#step-next")
    page.keyboard.press("ArrowRight")
    assert outputs(page) == ["0.0061", "0.0167", "0.0453", "·", "·", "·"]
    page.keyboard.press("End")
    assert outputs(page) == ["0.0061", "0.0167", "0.0453", "0.9092", "0.0167", "0.0061"]
    assert "12 elements read, 6 written" in shown(page, "step-count")
    assert "same as the formula" in shown(page, "verdict")
    assert page.locator("#step-next").is_disabled()
    page.keyboard.press("Home")
    assert shown(page, "step-place") == "Step 1 of 4"
    page.locator("#ledger button").nth(1).click()
    assert shown(page, "now-d") == "1.0999"


def test_the_worked_row_by_the_other_methods(page):
    page.click("#tab-steps")
    page.click("text=in two parts")
    pairs = []
    for _ in range(3):
        pairs.append((shown(page, "now-m"), shown(page, "now-d")))
        page.click("#step-next")
    assert pairs == [("3", "1.5032"), ("6", "1.0251"), ("6", "1.0999")]
    page.check("input[name=step-method][value=safe]")
    assert shown(page, "step-place") == "Step 1 of 6"
    page.locator("#ledger button").last.click()
    assert outputs(page)[3] == "0.9092"
    assert "18 elements read" in shown(page, "step-count")
    page.click("text=one by one")
    assert shown(page, "step-place") == "Step 1 of 12"
    page.click("text=2 4 12 overflows")
    assert shown(page, "now-d") == "∞" and "too large for float16" in shown(page, "step-lines")
    page.click("#step-next")
    assert outputs(page) == ["0", "0", "nan"]
    assert "4.5e-5, 3.4e-4, 0.9996" in shown(page, "verdict")
    page.check("input[name=step-type][value=float32]")
    page.click("#step-next")
    assert outputs(page) == ["4.5e-5", "3.4e-4", "0.9996"]


def test_play_stops_at_the_end(page):
    page.click("#tab-steps")
    page.click("#step-next")
    page.click("#step-next")
    page.click("#step-play")
    assert shown(page, "step-play") == "Pause"
    page.wait_for_function("byId('step-play').innerText === 'Play'")
    assert shown(page, "step-place") == "Step 4 of 4"


def test_a_row_that_is_none(page):
    page.click("#tab-steps")
    before = shown(page, "ledger")
    wrong = {
        "1 2 abc": "“abc” is not a number",
        "": "at least one number",
        "1e999 1": "“1e999” is not a number",
        "nan 1": "“nan” is not a number",
        "1 " * 25: "25 numbers: at most 24",
    }
    for text, said in wrong.items():
        page.fill("#row", text)
        assert said in shown(page, "row-note") and shown(page, "ledger") == before
        page.focus("#tile")
        assert (page.input_value("#row"), shown(page, "row-note")) == ("1 2 3 6 2 1", "")
    for text in ("two", "0", "25", ""):
        page.fill("#tile", text)
        assert f"“{text}” is not a tile" in shown(page, "tile-note") and shown(page, "ledger") == before
    page.fill("#row", "-inf, 2 5")
    page.locator("#ledger button").last.click()
    assert outputs(page) == ["0", "0.0474", "0.9526"]


TRACED = """([row, tile, method]) => {
    const steps = traceOf(row.map((x) => (x === null ? -Infinity : x)), tile, method);
    return [steps.at(-1).y, steps.at(-1).reads];
}"""


def test_every_trace_gives_the_softmax(page, rng):
    rows = [rng.normal(0, 4, int(rng.integers(1, 25))).tolist() for _ in range(40)]
    rows += [[-1000.0, 1000.0, 999.0], [0.0], [5.0, None, 4.0], [None, None, 3.0, 2.0]]
    for number, row in enumerate(rows):
        exact = ons.softmax(np.array([-np.inf if x is None else x for x in row]))
        for method in ("safe", "online", "split"):
            y, reads = page.evaluate(TRACED, [row, number % 7 + 1, method])
            np.testing.assert_allclose(y, exact, rtol=1e-12, atol=1e-300)
            assert reads == next(one for one in ons.methods() if one.name == method).reads * len(row)


def test_float16_of_the_page_is_float16(page, rng):
    values = np.concatenate([
        rng.normal(0, 1, 300) * 10.0 ** rng.integers(-9, 6, 300), 2.0 ** np.arange(-27, 17),
        [65504, 65519.99, 65520, 1e9, 0.0, 2.0**-25, 3 * 2.0**-25, 1 + 2.0**-11, 1 + 3 * 2.0**-11],
    ])  # fmt: skip
    values = np.concatenate([values, -values])
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).astype(float)
    np.testing.assert_array_equal(page.evaluate("(x) => x.map(toFloat16)", values.tolist()), expected)


# ---- seen ----

# The contrast of all text that is seen, lowest first, by WCAG 2's formula; a canvas makes rgb of any colour.
CONTRAST = """() => {
    const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
        .getContext("2d", { willReadFrequently: true });
    const over = (back, front) => {
        pen.fillStyle = back; pen.fillRect(0, 0, 1, 1);
        pen.fillStyle = front; pen.fillRect(0, 0, 1, 1);
        return `rgb(${[...pen.getImageData(0, 0, 1, 1).data].slice(0, 3)})`;
    };
    const light = (color) => {
        const part = color.match(/[0-9.]+/g).map((v) => v / 255)
            .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
    };
    const behind = (element) => {
        const above = element.parentElement ? behind(element.parentElement) : "white";
        const hill = element.matches(".region") ? getComputedStyle(element.firstChild, "::after") : null;
        return over(above, (hill || getComputedStyle(element)).backgroundColor);
    };
    const found = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const element = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
        if (!text || !element.checkVisibility() || element.closest("script, style, :disabled")) continue;
        const back = behind(element), front = over(back, getComputedStyle(element).color);
        const [a, b] = [light(back), light(front)].sort((x, y) => y - x);
        found.push([(a + 0.05) / (b + 0.05), text]);
    }
    return found.sort((a, b) => a[0] - b[0]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_at_every_width_in_light_and_dark(browser, width, scheme, tmp_path):
    folder = os.environ.get("ONSOFTMAX_SCREENSHOTS") or str(tmp_path)
    with opened(browser, width, color_scheme=scheme, reduced_motion="reduce") as page:
        backgrounds = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", backgrounds))) < 150) == (scheme == "dark")
        for view in ("pick", "cpu", "steps"):
            if view == "cpu":
                page.check("input[value=cpu]")
                page.fill("#length-number", "1M")
            elif view == "steps":
                page.click("#tab-steps")
            for field in page.locator("input[type=text]:visible").all():
                before = field.input_value()
                field.fill("no number at all")
                box = page.locator(f"#{field.get_attribute('id')}-note").bounding_box()
                assert box["x"] >= 0 and box["x"] + box["width"] <= width, "a message beyond the edge"
                field.fill(before)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "scrolls sideways"
            if view == "steps":
                page.locator("#ledger button").nth(2).click()
            texts = page.evaluate(CONTRAST)
            assert len(texts) > 40 and texts[0][0] >= 4.5, texts[:5]
            path = os.path.join(folder, f"{view}-{width}-{scheme}.png")
            page.screenshot(path=path, full_page=True)
            assert os.path.getsize(path) > 20_000
