"""The second view of docs/picker.html: the worked row and other rows, step by step."""

from __future__ import annotations

import numpy as np
from picker_page import PAGE, needs_page, opened, shown

import onsoftmax as ons

pytestmark = needs_page


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


def test_a_row_that_stays_on_the_chip(page):
    page.click("#tab-steps")
    page.check("input[name=step-method][value=fused]")
    assert (shown(page, "step-place"), shown(page, "now-m")) == ("Step 1 of 6", "3")
    for _ in range(3):
        page.click("#step-next")
    assert (shown(page, "now-m"), shown(page, "now-d")) == ("6", "1.0999")
    assert "Pass 1 of 1. Held tile 2" in shown(page, "step-title")
    assert "6 elements read, 0 written" in shown(page, "step-count")
    page.locator("#ledger button").last.click()
    assert "6 elements read, 6 written" in shown(page, "step-count") and outputs(page)[3] == "0.9092"


def test_the_k_largest(page):
    page.click("#tab-steps")
    assert page.is_hidden("#k")
    page.click("text=its k largest")
    assert "largest: 3, 2" in shown(page, "step-lines") and page.is_visible("#k")
    page.click("#step-next")
    lines = shown(page, "step-lines")
    assert "1 of 3 above 2" in lines and "largest: 6, 3" in lines and shown(page, "now-d") == "1.0999"
    assert page.locator("#row-cells .kept").all_inner_texts() == ["3", "6"]
    page.click("#step-next")
    assert outputs(page) == ["·", "·", "0.0453", "0.9092", "·", "·"]
    assert "at 3" in shown(page, "step-lines") and "same as the formula" in shown(page, "verdict")
    assert "6 elements read, 2 written" in shown(page, "step-count")
    page.fill("#k", "0")
    assert "“0” is not a k" in shown(page, "k-note")
    page.fill("#k", "9")
    page.locator("#ledger button").last.click()
    assert "The 6 largest" in shown(page, "step-title") and "·" not in outputs(page)


def test_the_address_opens_the_step(browser):
    """A link to a step shows it; what is changed then is in the address; nonsense there changes nothing."""
    with opened(browser) as page:

        def visit(address):
            page.goto(f"file://{PAGE}#{address}")
            page.reload()
            page.wait_for_function("document.getElementById('method').textContent !== ''")

        visit("steps")
        assert shown(page, "step-place") == "Step 1 of 4" and page.evaluate("location.hash") == "#steps"
        visit("steps&method=topk&tile=2&row=-inf+5+4+4.5&k=3&step=2")
        assert (page.input_value("#row"), page.input_value("#tile"), page.input_value("#k")) == (
            "-inf 5 4 4.5", "2", "3",
        )  # fmt: skip
        assert shown(page, "step-place") == "Step 2 of 3" and "largest: 5, 4.5000, 4" in shown(
            page, "step-lines"
        )
        page.click("#step-next")
        assert page.evaluate("location.hash") == "#steps&method=topk&tile=2&row=-inf+5+4+4.5&k=3&step=3"
        page.check("input[name=step-method][value=naive]")
        page.check("input[name=step-type][value=float32]")
        page.fill("#row", "2 4 12")
        address = "steps&method=naive&tile=2&row=2+4+12&type=float32&step=1"
        assert page.evaluate("location.hash") == f"#{address}"
        page.reload()
        assert (
            page.is_checked("input[name=step-type][value=float32]") and page.input_value("#row") == "2 4 12"
        )
        page.click("#tab-pick")
        assert page.evaluate("location.hash") == "#device=cuda&dtype=float32&rows=4096&N=4096"
        page.click("#tab-steps")
        assert page.evaluate("location.hash") == f"#{address}"
        visit("steps&method=toString&tile=0&row=1+x&type=int8&k=99&step=100")
        assert (page.input_value("#row"), page.input_value("#tile")) == ("1 2 3 6 2 1", "3")
        assert shown(page, "step-place") == "Step 4 of 4"


TRACED = """([row, tile, method, k]) => {
    const steps = traceOf(row.map((x) => (x === null ? -Infinity : x)), tile, method, "float64", k);
    return [steps.at(-1).y, steps.at(-1).reads, steps.at(-1).kept];
}"""


def test_every_trace_gives_the_softmax(page, rng):
    rows = [rng.normal(0, 4, int(rng.integers(1, 25))).tolist() for _ in range(40)]
    rows += [[-1000.0, 1000.0, 999.0], [0.0], [5.0, None, 4.0], [None, None, 3.0, 2.0]]
    for number, row in enumerate(rows):
        exact = ons.softmax(np.array([-np.inf if x is None else x for x in row]))
        for method in ("safe", "fused", "online", "split"):
            y, reads, _ = page.evaluate(TRACED, [row, number % 7 + 1, method, 1])
            np.testing.assert_allclose(y, exact, rtol=1e-12, atol=1e-300)
            assert reads == next(one for one in ons.methods() if one.name == method).reads * len(row)
        k = min(number % 5 + 1, len(row))
        y, reads, places = page.evaluate(TRACED, [row, number % 7 + 1, "topk", k])
        largest = ons.softmax_topk(np.array([-np.inf if x is None else x for x in row]), k)
        assert places == largest.indices.tolist() and reads == len(row)
        np.testing.assert_allclose([y[i] for i in places], largest.values, rtol=1e-12, atol=1e-300)


def test_float16_of_the_page_is_float16(page, rng):
    values = np.concatenate([
        rng.normal(0, 1, 300) * 10.0 ** rng.integers(-9, 6, 300), 2.0 ** np.arange(-27, 17),
        [65504, 65519.99, 65520, 1e9, 0.0, 2.0**-25, 3 * 2.0**-25, 1 + 2.0**-11, 1 + 3 * 2.0**-11],
    ])  # fmt: skip
    values = np.concatenate([values, -values])
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).astype(float)
    np.testing.assert_array_equal(page.evaluate("(x) => x.map(toFloat16)", values.tolist()), expected)
