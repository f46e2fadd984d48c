"""Copies docstrings, and the overloads of similar functions, into onsoftmax/_core.pyi.

    python tests/support/stubs.py        writes the stub anew, from the built C core

The annotations are written by hand. A function with the parameters of an overloaded one gets a copy of its
overloads. For example, log_softmax has the parameters of softmax.
"""

import ast
import inspect
import os
import re

from onsoftmax import _core

STUB = os.path.join(os.path.dirname(_core.__file__), "_core.pyi")


def read():
    with open(STUB) as file:
        return file.read()


def places(text):
    """{name: (first line, last line)} of each function. All overloads of a function are one place."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            first = min(part.lineno for part in (node, *node.decorator_list))
            found[node.name] = (found.get(node.name, (first,))[0], node.end_lineno)
    return found


def with_copies(text):
    core = [name for name, value in vars(_core).items() if inspect.isbuiltin(value) and name[0] != "_"]
    models = {}
    for name in dict.fromkeys([*places(text), *sorted(core)]):
        model = models.setdefault(getattr(_core, name).__text_signature__, name)
        where, lines = places(text), text.splitlines()
        if model == name or not lines[where[model][0] - 1].startswith("@overload"):
            continue
        first, last = where[model]
        copy = [re.sub(rf"^def {model}\b", f"def {name}", line) for line in lines[first - 1 : last]]
        first, last = where.get(name, (last + 1, last))
        lines[first - 1 : last] = copy
        text = "\n".join(lines) + "\n"
    return text


def documented(nodes, owner):
    """(node, object) for each node that gets a docstring. Of overloads, the last one gets it, and editors
    show it for all."""
    last = {}
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            last[node.name] = (node, getattr(owner, node.name))
            if isinstance(node, ast.ClassDef):
                yield from documented(node.body, getattr(owner, node.name))
    yield from last.values()


def with_docstrings(text):
    lines = text.splitlines()
    for node, value in sorted(documented(ast.parse(text).body, _core), key=lambda pair: -pair[0].lineno):
        body, indent = node.body[0], " " * (node.col_offset + 4)
        first, last = body.lineno, body.end_lineno
        if first == node.end_lineno and lines[first - 1].endswith(" ..."):
            lines[first - 1] = lines[first - 1].removesuffix(" ...")
            first, last = first + 1, first
        doc = inspect.getdoc(value).replace("\\", "\\\\").splitlines()
        doc[0] = '"""' + " " * doc[0].startswith('"') + doc[0]  # in ruff's format
        doc = [*doc, '"""'] if len(doc) > 1 else [doc[0] + '"""']
        if isinstance(node, ast.FunctionDef) and not node.col_offset and last < len(lines) and lines[last]:
            doc.append("")
        lines[first - 1 : last] = [(indent + line).rstrip() for line in doc]
    return "\n".join(lines) + "\n"


def current():
    return with_docstrings(with_copies(read()))


if __name__ == "__main__":
    text = current()
    with open(STUB, "w") as file:
        file.write(text)
