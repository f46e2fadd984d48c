"""docs/how-it-works.md names files and methods that exist, and the sizes that the code has."""

import os
import re

import pytest
from support import ROOT

import onsoftmax as ons

PAGE = os.path.join(ROOT, "docs", "how-it-works.md")
pytestmark = pytest.mark.skipif(not os.path.isfile(PAGE), reason="no docs beside the tests")


def read(*path):
    with open(os.path.join(ROOT, *path)) as file:
        return file.read()


def test_files_are_there():
    text = read("docs", "how-it-works.md")
    named = set(re.findall(r"`(csrc/[\w/.]+)`", text))
    assert len(named) > 30
    links = {os.path.join("docs", link) for link in re.findall(r"\]\((?!http)([^)#]+)", text)}
    assert not [path for path in named | links if not os.path.isfile(os.path.join(ROOT, path))]


def test_every_method_is_told_of():
    text = read("docs", "how-it-works.md")
    assert not [method.name for method in ons.methods() if not re.search(rf"[`*]{method.name}[`*]", text)]


def test_sizes_are_those_of_the_code():
    sizes = read("docs", "how-it-works.md").partition("## Sizes")[2]
    lines = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|[^|]*\| `([^|]*)` \|$", sizes, re.M)
    assert len(lines) > 8
    for names, values, path in lines:
        code = read(path)
        for name, value in zip(re.findall(r"`(\w+)`", names), values.split(", "), strict=True):
            found = re.search(rf"(?:\b{name} =|#define {name}) ([^,;}}/\n]*[^,;}}/\s])", code)
            assert found and found[1] == value, (name, value, path, found and found[1])
