"""What docs/site_api.py makes of the API's pages. docs/make_site.py builds all of the site in CI."""

import os
import re
import runpy

import pytest
from support import ROOT

import onsoftmax as ons

SITE_API = os.path.join(ROOT, "docs", "site_api.py")
pytestmark = pytest.mark.skipif(not os.path.exists(SITE_API), reason="the documents are not beside the tests")
ITEM = (
    '<li class="doc-section-item field-body">\n<b><code>{}</code></b>\n(<code>Axis</code>) \u2013\n'
    '<div class="doc-md-description">\n<p>{}</p>\n</div>\n</li>\n'
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A function that gives the finished articles of a site whose pages have these articles."""
    finish = runpy.run_path(SITE_API)["finish"]
    folder = tmp_path_factory.mktemp("api")

    def finished(articles):
        for name in {*ons.__all__, "dask.softmax", "dask.logsumexp"}:
            (folder / name).mkdir(exist_ok=True)
            article = f'<h1 id="onsoftmax.{name}">{name}</h1>{articles.get(name, "")}'
            (folder / name / "index.html").write_text(f"plan()<article>{article}</article>plan()")
        finish(folder)
        return {name: (folder / name / "index.html").read_text() for name in articles}

    return finished


def links(html):
    return re.findall(r'<a href="([^"]*)">([^<]*)</a>', html)


@pytest.mark.parametrize(
    "text, link",
    [
        ("<code>softmax_topk</code>", "../softmax_topk/"),
        ("<code>onsoftmax.softmax</code>", "../softmax/"),
        ("<code><span>Plan</span></code>", "../Plan/"),
        ("see plan() for", "../plan/"),
        ("the\nNormalizer of", "../Normalizer/"),
        ("of logsumexp.", "../logsumexp/"),
    ],
)
def test_names_are_links(pages, text, link):
    html = pages({"explain": f"<p>{text}</p>"})["explain"]
    (found,) = links(html)
    assert found[0] == link and re.sub("</?a[^>]*>", "", html).count(text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<p>the plan of a softmax by other methods</p>",
        "<p>Method is a word here, and explain() is this page.</p>",
        "<pre><code>ons.softmax_topk(x)</code></pre>",
        "<h2>softmax_topk</h2>",
        '<a href="elsewhere">softmax_topk</a>',
        "<b><code>plan</code></b>",
        "<p><code>method='online'</code></p>",
    ],
)
def test_other_text_has_no_links(pages, text):
    html = pages({"explain": text})["explain"]
    assert text in html and not [link for link in links(html) if link[0] != "elsewhere"]


def test_names_are_looked_up_as_in_python(pages):
    """Among the members of the page's object, then in its module, then in onsoftmax."""
    members = "".join(f'<h2 id="onsoftmax.Normalizer.{name}">{name}</h2>' for name in ("merge", "softmax"))
    text = "<p><code>softmax</code> and <code>softmax_topk</code></p>"
    html = pages({"Normalizer": members + text, "dask.logsumexp": text})
    assert [link for link, _ in links(html["Normalizer"])] == [
        "../Normalizer/#onsoftmax.Normalizer.softmax",
        "../softmax_topk/",
    ]
    assert [link for link, _ in links(html["dask.logsumexp"])] == ["../dask.softmax/", "../softmax_topk/"]


def test_parameters_with_one_text_are_one_item(pages):
    items = [
        ("array", "Logits."),
        ("axis", "As in softmax."),
        ("scale", "As in softmax."),
        ("k", "A number."),
    ]
    html = pages({"explain": f"<ul>{''.join(ITEM.format(*item) for item in items)}</ul>"})["explain"]
    assert html.count("<li") == 3 and html.count("As in softmax.") == 1
    assert "<b><code>axis</code></b>, <b><code>scale</code></b> \u2013" in html
