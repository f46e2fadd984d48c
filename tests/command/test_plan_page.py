"""`onsoftmax plan --html` on a phone: nothing reaches beyond the edge."""

from __future__ import annotations

from onsoftmax import cli


def test_a_plans_page_fits_a_phone(browser, tmp_path, capsys):
    window = browser.new_page(viewport={"width": 360, "height": 740})
    for shape, device in (("4096x4096", "H100"), ("4096x4096", "cpu"), ("1000000x128256", "RTX 4090")):
        page = tmp_path / "plan.html"
        assert cli.main(["plan", shape, "--device", device, "--html", str(page)]) == 0
        window.goto(page.as_uri())
        widths = window.evaluate(
            "[...document.querySelectorAll('html, pre, table')].map((e) => e.scrollWidth)"
        )
        assert len(widths) == 4 and max(widths) <= 360, (shape, device)
    window.close()
