"""What editors show for each public name, as the language server of pyright and jedi give it.

    python tests/support/hovers.py        prints it

It needs pyright[nodejs] and jedi. A name of a module is left out if the module's library is not installed.
"""

import functools
import importlib
import inspect
import json
import os
import subprocess
import sys
from types import GetSetDescriptorType, ModuleType
from typing import NamedTuple

import onsoftmax as ons

MODULES = ("torch", "jax", "dask", "distributed")
# Where the instances of a class come from, if their types depend on it. Other instances are only declared.
MADE_BY = {
    "Normalizer": "ons.normalizer([1.0])",
    "TopK": "ons.softmax_topk([1.0], 1)",
    "TopKWithNormalizer": "ons.softmax_topk([1.0], 1, return_normalizer=True)",
}


class Shown(NamedTuple):
    """What an editor shows for one name."""

    hover: str
    signatures: list[str]
    """In parentheses behind the name. Empty if the name is no function."""


def own(cls):
    """The public names that a class of onsoftmax has and its base classes of other libraries do not."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("onsoftmax")]
    names = {name for base in ours for name in vars(base)} | {*getattr(cls, "__dataclass_fields__", ())}
    theirs = {name for base in {*cls.__mro__} - {*ours} for name in vars(base)}
    return sorted(name for name in names - theirs if not name.startswith("_"))


def public_names():
    """Modules, their functions and classes, and the members of these, as "torch.Softmax.forward"."""
    names = [*ons.__all__]
    for module in MODULES:
        try:
            listed = importlib.import_module(f"onsoftmax.{module}").__all__
        except ImportError:
            continue
        names += [module, *(f"{module}.{name}" for name in listed)]
    members = {name: own(value(name)) if inspect.isclass(value(name)) else [] for name in names}
    return [each for name in names for each in (name, *(f"{name}.{member}" for member in members[name]))]


def value(name):
    """The object with this name. None for an attribute that only instances have."""
    return functools.reduce(lambda found, part: getattr(found, part, None), name.split("."), ons)


def has_docstring(name):
    """Whether it is a module, a class, a function or a property. Fields have none at run time."""
    found = value(name)
    return callable(found) or isinstance(found, (property, GetSetDescriptorType, ModuleType))


def program(*lines):
    return "\n".join(["import onsoftmax as ons", *lines, ""])


def expressions(names):
    """{name: its expression}, and the lines before them, which give an instance of each class a name."""
    instances = {name: f"one_{name.replace('.', '_')}" for name in names if inspect.isclass(value(name))}
    made = [
        f"{instance}: ons.{name} = eval('')" if name not in MADE_BY else f"{instance} = {MADE_BY[name]}"
        for name, instance in instances.items()
    ]
    found = {}
    for name in names:
        owner, _, member = name.rpartition(".")
        found[name] = f"{instances[owner]}.{member}" if owner in instances else f"ons.{name}"
    return found, made


class LanguageServer:
    """pyright's. It speaks JSON-RPC over standard input and output."""

    def __init__(self, folder):
        self.folder = folder
        self.asked = self.opened = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pyright.langserver", "--stdio"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        capabilities = {"textDocument": {"hover": {"contentFormat": ["plaintext"]}}}
        self.ask("initialize", processId=os.getpid(), rootUri=None, capabilities=capabilities)
        self.tell("initialized")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()

    def _send(self, **message):
        text = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        self.process.stdin.flush()

    def _receive(self):
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, number = line.partition(b":")
            length = int(number) if name.lower() == b"content-length" else length
        return json.loads(self.process.stdout.read(length))

    def tell(self, method, **parameters):
        self._send(method=method, params=parameters)

    def ask(self, method, **parameters):
        self.asked += 1
        self._send(id=self.asked, method=method, params=parameters)
        while True:
            message = self._receive()
            if "method" not in message:
                return message["result"]
            if "id" in message:  # a question to the editor, which has no settings
                settings = [None] * len(message["params"].get("items", []))
                self._send(id=message["id"], result=settings or None)

    def open(self, text):
        """Opens a new document. `at` then asks about this document."""
        self.opened += 1
        self.uri = f"file://{os.path.join(self.folder, f'user_{self.opened}.py')}"
        document = {"uri": self.uri, "languageId": "python", "version": 1, "text": text}
        self.tell("textDocument/didOpen", textDocument=document)

    def at(self, question, line, column):
        place = {"line": line, "character": column}
        return self.ask(f"textDocument/{question}", textDocument={"uri": self.uri}, position=place)


def by_pyright(names, server):
    """{name: Shown}. Python must be able to import onsoftmax from the server's folder."""
    found, (places, made) = {}, expressions(names)
    server.open(program(*made, *(f"{place}()" for place in places.values())))
    for line, (name, place) in enumerate(places.items(), 1 + len(made)):
        end = len(place)
        hover = server.at("hover", line, end - 1)
        signatures = server.at("signatureHelp", line, end + 1) if callable(value(name)) else None
        found[name] = Shown(
            hover["contents"]["value"] if hover else "",
            [signature["label"] for signature in (signatures or {"signatures": []})["signatures"]],
        )
    return found


def completed_by_pyright(prefixes, server):
    """{prefix: the names that pyright offers behind it}, for prefixes such as "ons."."""
    server.open(program(*prefixes))
    offered = [server.at("completion", line, len(prefix)) for line, prefix in enumerate(prefixes, 1)]
    return {
        prefix: {item["label"] for item in each["items"]}
        for prefix, each in zip(prefixes, offered, strict=True)
    }


def by_jedi(names, folder):
    import jedi

    found, (places, made) = {}, expressions(names)
    text = program(*made, *(f"{place}()" for place in places.values()))
    for line, (name, place) in enumerate(places.items(), 2 + len(made)):
        end = len(place)
        if (line - 2 - len(made)) % 100 == 0:  # jedi answers 300 questions about a program, and then no more
            script = jedi.Script(text, path=os.path.join(folder, "user.py"))
        hover = "\n".join(each.docstring() for each in script.help(line, end - 1))
        signatures = script.get_signatures(line, end + 1) if callable(value(name)) else []
        texts = [each.to_string() for each in signatures]
        found[name] = Shown(hover, [text[text.index("(") :] for text in texts])
    return found


def completed_by_jedi(prefixes, folder):
    import jedi

    script = jedi.Script(program(*prefixes), path=os.path.join(folder, "user.py"))
    return {
        prefix: {each.name for each in script.complete(line, len(prefix))}
        for line, prefix in enumerate(prefixes, 2)
    }


if __name__ == "__main__":
    folder = os.path.dirname(ons.__path__[0])
    names = public_names()
    with LanguageServer(folder) as server:
        shown = {"pyright": by_pyright(names, server), "jedi": by_jedi(names, folder)}
    for name in names:
        print(f"{'=' * 20} onsoftmax.{name}")
        for editor, of in shown.items():
            print(f"--- {editor}\n{of[name].hover}")
            for signature in of[name].signatures:
                print(f"signature: {signature}")
