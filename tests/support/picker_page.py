"""docs/picker.html in Chromium, for its tests. With ONSOFTMAX_REQUIRE_BROWSER=1 in the environment, tests
fail instead of being skipped."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager

import pytest
from support import ROOT, SANITIZED

PAGE = os.path.join(ROOT, "docs", "picker.html")
LONGEST = 2**24  # the end of the page's axis

needs_page = pytest.mark.skipif(not os.path.exists(PAGE), reason="the documents are not beside the tests")


@contextmanager
def chromium():
    """A browser: the machine's own, or else playwright's."""
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


def load(page):
    page.goto("about:blank")  # the page returns to its top
    page.goto(f"file://{PAGE}")
    page.wait_for_function("document.getElementById('method').textContent !== ''")


@contextmanager
def opened(browser, width=1280, height=900, **options):
    """The page in a window of its own. A message on the console or a request to the network is an error."""
    wrong = []
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda request: wrong.append(request.url) if request.url[:4] == "http" else None)
    load(page)
    yield page
    context.close()
    assert not wrong


def shown(page, name):
    """The text of an element, with minus signs as in Python."""
    return page.inner_text(f"#{name}").replace("\u2212", "-")


def fact(page, name):
    """The text under that name in the plan's part of the page."""
    return page.inner_text(f'[data-fact="{name}"] dd:not(.note)')


def shown_length(page):
    return page.input_value("#length-number")


def length(page):
    return int(shown_length(page).replace(",", ""))


def planned(page, N, rows=4096, dtype="float32"):
    question = {"device": "cuda", "dtype": dtype, "rows": rows, "N": N, "threads": 8}
    return page.evaluate("(question) => picker.then((planner) => planner.plan(question))", question)
