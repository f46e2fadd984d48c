"""docs/picker.html on a phone, a tablet and a desktop, light and dark: nothing reaches beyond the edge, and
all text is readable. ONSOFTMAX_SCREENSHOTS names a directory for pictures."""

from __future__ import annotations

import os
import re

import pytest
from picker_page import needs_page, opened

pytestmark = needs_page

# The contrast of all visible text, lowest first, by WCAG 2's formula. A canvas turns any colour into rgb.
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


@pytest.mark.parametrize("width", [360, 1280])
def test_at_every_width_in_light_and_dark(browser, width, tmp_path):
    folder = os.environ.get("ONSOFTMAX_SCREENSHOTS") or str(tmp_path)
    with opened(browser, width, reduced_motion="reduce") as page:
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
                inner, card = (page.locator(f"#steps {one}").first for one in (".segments", ".card"))
                box, around = inner.bounding_box(), card.bounding_box()
                assert box["x"] + box["width"] <= around["x"] + around["width"], "beyond its card"
                page.locator("#ledger button").nth(2).click()
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                background = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (sum(map(int, re.findall(r"\d+", background))) < 150) == (scheme == "dark")
                texts = page.evaluate(CONTRAST)
                assert len(texts) > 40 and texts[0][0] >= 4.5, texts[:5]
                path = os.path.join(folder, f"{view}-{width}-{scheme}.png")
                page.screenshot(path=path, full_page=True)
                assert os.path.getsize(path) > 20_000
