"""The first view of docs/picker.html: dragging, keyboard, touch, the plan that it shows, nonsense in its
fields, and the passes."""

from __future__ import annotations

import math
import re

import pytest
from picker_page import LONGEST, PAGE, fact, length, needs_page, opened, planned, shown, shown_length

import onsoftmax as ons

pytestmark = needs_page


def test_dragging_the_slider(page):
    page.locator("#length").scroll_into_view_if_needed()
    box = page.locator("#length").bounding_box()
    middle, seen = box["y"] + box["height"] / 2, []
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    for share in (0.2, 0.45, 0.6, 0.95):
        page.mouse.move(box["x"] + share * box["width"], middle, steps=5)
        N = length(page)
        plan = planned(page, N)
        assert (shown(page, "method"), fact(page, "Tile").split()[0]) == (plan["method"], f"{plan['tile']:,}")
        assert plan["reason"][1:] in shown(page, "reason")
        file, _, rows = plan["measured"].partition(": ")
        assert rows in shown(page, "measured") and file in shown(page, "measured")
        first, last = (int(n.replace(",", "")) for n in re.findall("[0-9,]+", shown(page, "range")))
        assert first <= N <= last
        assert planned(page, first)["method"] == planned(page, last)["method"]
        assert last == LONGEST or planned(page, last + 1)["method"] != plan["method"]
        seen.append(N)
    page.mouse.up()
    assert seen == sorted(seen) and seen[0] < 100 and seen[-1] > 4_000_000


def test_dragging_anywhere_on_the_map(page):
    page.locator("#lanes").scroll_into_view_if_needed()
    box, lanes = page.locator("#map").bounding_box(), page.locator("#lanes").bounding_box()
    page.mouse.move(box["x"] + 1, lanes["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 10 / 24, lanes["y"] + 10, steps=3)
    assert abs(math.log2(length(page)) - 10) < 0.05
    page.mouse.move(box["x"] + box["width"] + 300, lanes["y"] + 10)
    assert shown_length(page) == "16,777,216"
    page.mouse.up()


def test_by_touch_on_a_phone(browser):
    with opened(browser, 360, 740, has_touch=True, is_mobile=True) as page:
        page.locator("#cliffs button").first.tap()
        N = int(page.locator("#cliffs button").first.get_attribute("data-n"))
        assert shown_length(page) == f"{N:,}"
        assert shown(page, "method") != planned(page, N - 1)["method"]
        page.locator("#lanes").scroll_into_view_if_needed()
        box = page.locator("#lanes").bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 5)
        assert abs(math.log2(length(page)) - 12) < 0.1


def test_the_slider_by_keyboard(page):
    page.focus("#length")
    cliffs = [int(one.get_attribute("data-n")) for one in page.locator("#cliffs button").all()]
    page.keyboard.press("Home")
    assert shown_length(page) == "1"
    for cliff in cliffs:
        page.keyboard.press("PageUp")
        assert shown_length(page) == f"{cliff:,}"
        method = shown(page, "method")
        page.keyboard.press("Shift+ArrowLeft")
        assert (shown_length(page), shown(page, "method") != method) == (f"{cliff - 1:,}", True)
        page.keyboard.press("Shift+ArrowRight")
        assert shown(page, "method") == method
    page.keyboard.press("End")
    assert shown_length(page) == "16,777,216"
    page.keyboard.press("ArrowRight")
    assert shown_length(page) == "16,777,216"
    page.keyboard.press("PageDown")
    assert shown_length(page) == f"{cliffs[-1]:,}"
    page.keyboard.press("ArrowDown")
    assert cliffs[-1] * 0.9 < length(page) < cliffs[-1]
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
    speed = planned(page, 1)["copy_speed"]
    assert float(page.input_value("#speed")) == speed / 1e9 > 1000
    page.fill("#length-number", "50257")
    page.fill("#rows-number", "2k")
    page.check("input[value=bfloat16]")
    plan = planned(page, 50257, 2048, "bfloat16")
    measured = ons.plan((2048, 50257), dtype="bfloat16", device="H100").measured_seconds
    assert plan["measured_seconds"] == measured and 0.9 < plan["measured_copy_seconds"] / measured < 1.1
    assert float(fact(page, "Time").split()[0]) == pytest.approx(measured * 1e6, rel=5e-3)
    page.fill("#speed", "3,000")
    assert plan["bytes_moved"] == (plan["reads"] + plan["writes"]) * 2048 * 50257 * 2
    assert fact(page, "Tile") == f"{plan['tile']:,} elements"
    assert fact(page, "Warps") == f"{plan['threads'] // 32} a block"
    assert fact(page, "Registers") == f"{plan['elements_a_thread']} elements"
    assert float(fact(page, "Memory traffic").split()[0]) == pytest.approx(
        plan["bytes_moved"] / 1e6, rel=5e-3
    )
    assert float(fact(page, "Time").removeprefix("\u2265 ").split()[0]) == pytest.approx(
        plan["bytes_moved"] / 3e12 * 1e6, rel=5e-3
    )
    assert shown(page, "call") == 'ons.plan((2048, 50257), dtype="bfloat16", device="cuda")'
    page.check("input[value=cpu]")
    assert page.input_value("#speed") == "30"
    page.fill("#threads", "1")
    assert (fact(page, "Threads"), shown(page, "method")) == ("1", "fused")
    assert "\u2265" not in fact(page, "Time") and "may take less" in shown(page, "kinds-of-times")
    page.fill("#length-number", "16M")
    page.fill("#rows-number", "1")
    page.fill("#threads", "8")
    assert shown(page, "method") == "split"
    page.check("input[value=cuda]")
    assert page.input_value("#speed") == "3000"


def test_what_fits_where(page):
    """A bar ends at the longest row that the plan gives for the method."""
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


NO_NUMBERS = ["abc", "", "-5", "0", "1e", "12 apples", "99999999999999999999", "<b>4", "NaN"]


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("length-number", NO_NUMBERS),
        *((name, ["12 apples", "0"]) for name in ("rows-number", "threads", "speed")),
    ],
)
def test_text_in_a_number_field_changes_nothing(page, name, texts):
    if name == "threads":
        page.check("input[value=cpu]")
    before = (shown(page, "method"), shown(page, "facts"), page.input_value(f"#{name}"))
    for text in texts:
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
        assert shown_length(page) == f"{N:,}"


def test_watching_the_passes(page):
    """For every method, the frames read and write the array as often as the method does. A GPU holds rows of
    1000 elements."""
    page.fill("#length-number", "1000")
    for device in ("cuda", "cpu"):
        page.check(f"input[value={device}]")
        for button in page.locator("#others button").all():
            button.click()
            name = button.inner_text()
            method = next(one for one in ons.methods() if one.name == name)
            reads = 1 if (device, name) == ("cuda", "exact") else method.reads
            assert shown(page, "watched") == name
            assert button.get_attribute("aria-pressed") == "true"
            page.click("#pass-back")  # from the first frame to the last
            assert shown(page, "pass-count") == f"read {reads} N, written {method.writes} N"
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


def test_the_address_says_what_is_asked(browser):
    """A link with a shape shows this shape. A change appears in the address. Nonsense in the address has no
    effect."""
    with opened(browser) as page:
        assert "#" not in page.url
        page.goto(f"file://{PAGE}#device=cuda&dtype=bfloat16&rows=100&N=50257")
        page.reload()
        page.wait_for_function("document.getElementById('method').textContent !== ''")
        assert (shown_length(page), page.input_value("#rows-number")) == ("50,257", "100")
        assert shown(page, "call") == 'ons.plan((100, 50257), dtype="bfloat16", device="cuda")'
        page.check("input[value=cpu]")
        page.fill("#threads", "3")
        page.press("#threads", "Enter")
        assert page.url.endswith("#device=cpu&dtype=bfloat16&rows=100&N=50257&threads=3")
        page.reload()
        page.wait_for_function("document.getElementById('method').textContent !== ''")
        assert shown(page, "call") == 'ons.plan((100, 50257), dtype="bfloat16", num_threads=3)'
        page.goto(f"file://{PAGE}#device=tpu&dtype=int8&rows=-1&N=1e99&threads=x")
        page.reload()
        page.wait_for_function("document.getElementById('method').textContent !== ''")
        assert shown(page, "call") == 'ons.plan((4096, 4096), dtype="float32", device="cuda")'


@pytest.mark.parametrize("width", [360, 1280])
def test_no_line_crosses_a_label(browser, width):
    """If a label meets the line that marks the length, the label is on top."""
    with opened(browser, width) as page:
        for N in (2000, 60000, 4_000_000):
            page.fill("#length-number", str(N))
            page.press("#length-number", "Enter")
            crossed = page.evaluate("""() => {
                const box = (element) => element.getBoundingClientRect();
                const line = box(document.querySelector(".here")), found = [];
                for (const label of document.querySelectorAll("#names span, .lane-name > span")) {
                    const { left, right, top, bottom, width } = box(label);
                    if (!width || line.left < left || line.left > right || top < line.top) continue;
                    const depth = (element) => {
                        for (let one = element; one; one = one.parentElement) {
                            const index = getComputedStyle(one).zIndex;
                            if (index !== "auto") return Number(index);
                        }
                        return 0;
                    };
                    const covers = depth(label) > depth(document.querySelector(".here"))
                        && getComputedStyle(label).backgroundColor !== "rgba(0, 0, 0, 0)";
                    if (!covers) found.push(label.textContent);
                }
                return found;
            }""")
            assert crossed == []
