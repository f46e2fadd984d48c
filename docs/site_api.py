"""The last step of make_site.py: in the API's pages, names link to their pages, and parameters with one text
are one item."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

# Elements in which a name gets no link: other links, code blocks, headings, and the names of parameters.
_LEFT_OUT = ("a", "b", "h1", "h2", "h3", "label", "nav", "pre", "script", "style", "svg")
# Names that are also words. In running text, onsoftmax.plan and plan() are the function, and plan is not.
_WORDS = {"explain", "methods", "normalizer", "plan", "softmax"}
_TAG = re.compile(r"(<[^>]*>)")
_ITEM = re.compile(
    r'<li class="doc-section-item field-body">\s*(?P<name><b>.*?</b>)(?:(?!<li).)*?\u2013\s*'
    r'(?P<text><div class="doc-md-description">.*?</div>)\s*</li>',
    re.S,
)
_NAME = re.compile(r"(?:onsoftmax\.|ons\.)?([A-Za-z_][\w.]*\w)(\(\))?")


def _names(pages: dict[str, str]) -> dict[str, str]:
    """{name: where it is, as seen from another name's page}, of the names with pages and their members."""
    found = {name: f"../{name}/" for name in pages}
    for page, html in pages.items():
        members = re.findall(r'id="onsoftmax\.([\w.]+)"', html)
        found |= {name: f"../{page}/#onsoftmax.{name}" for name in members if name.startswith(f"{page}.")}
    return found


def _scopes(page: str) -> Iterator[str]:
    """Where a name on a page may be defined: in the page's object, in its module, or in onsoftmax."""
    while page:
        yield f"{page}."
        page = page.rpartition(".")[0]
    yield ""


def linked(html: str, page: str, names: dict[str, str]) -> str:
    """The HTML of a page with a link at each name that has a place."""

    def link(match: re.Match[str], is_code: bool = True) -> str:
        text, name = match[0], match[1]
        is_name = is_code or text != name
        if not is_name and name in names and "#" not in names[name] and name not in _WORDS:
            # At the beginning of a sentence a class's name may be a word, such as Method.
            is_name = name[0].islower() or re.search(r"[\w,;(]\s$", match.string[: match.start()]) is not None
        scopes = [""] if text.startswith(("onsoftmax.", "ons.")) else _scopes(page)
        found = next((scope + name for scope in scopes if scope + name in names), page)
        return f'<a href="{names[found]}">{text}</a>' if is_name and found != page else text

    def link_in_text(match: re.Match[str]) -> str:
        return link(match, is_code=False)

    start, end = html.index("<article"), html.index("</article>")
    parts, inside = _TAG.split(html[start:end]), list[str]()
    for place, part in enumerate(parts):
        tag = re.match(r"<(/?)(\w+)", part)
        if tag and tag[2] in (*_LEFT_OUT, "code"):
            if tag[1]:
                inside.pop()
            elif not part.endswith("/>"):
                inside.append(tag[2])
        elif not tag and inside in ([], ["code"]):
            whole = _NAME.fullmatch(part)
            if inside and whole:
                parts[place] = link(whole)
            elif not inside:
                parts[place] = _NAME.sub(link_in_text, part)
    return html[:start] + "".join(parts) + html[end:]


def joined(html: str) -> str:
    """The HTML with one item for parameters that share a text. mkdocstrings repeats the text for each
    parameter, with the type and the default of the first one."""
    for text, group in groupby(_ITEM.finditer(html), key=lambda item: item["text"]):
        first, *others = group
        if others:
            names = ", ".join(item["name"] for item in (first, *others))
            html = html.replace(first[0], f"<li>{names} \u2013 {text}</li>", 1)
            for item in others:
                html = html.replace(item[0], "", 1)
    return html


def finish(folder: Path) -> None:
    """Rewrites all pages of a folder with one folder for each name."""
    pages = {file.parent.name: joined(file.read_text()) for file in folder.glob("*/index.html")}
    names = _names(pages)
    for page, html in pages.items():
        (folder / page / "index.html").write_text(linked(html, page, names))
