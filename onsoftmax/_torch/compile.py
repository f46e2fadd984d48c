"""Functions of onsoftmax inside torch.compile, which cannot look into the C core. Its graphs use the
functions of onsoftmax.torch in their place.

torch._dynamo, the tracer, must be told about these functions. Its import takes seconds, so it is told when
torch imports it: at the first compilation.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_TRACER = "torch._dynamo"
_told: set[Callable[..., Any]] = set()


def _tell(tracer: ModuleType) -> None:
    substitute = getattr(tracer, "substitute_in_graph", None)  # torch 2.5 and later
    if substitute is None:
        return
    try:
        operators = importlib.import_module("onsoftmax.torch").OPERATORS
    except (ImportError, RuntimeError):  # a call that needs them says why
        return
    # Outside of graphs they call the core.
    for module in (
        "_losses",
        "_logprob",
        "_divergences",
        "_route",
        "_sample",
        "_torch.linear",
        "_torch.chunks",
    ):
        tracer.trace_rules.add(f"onsoftmax.{module}")
    for module, name in (("linear", "outside_of_graphs"), ("chunks", "times")):
        owner = importlib.import_module(f"onsoftmax._torch.{module}")
        setattr(owner, name, tracer.disable(getattr(owner, name)))
    package = importlib.import_module("onsoftmax")
    for name, function in operators.items():
        public = getattr(package, name)
        if public not in _told:  # it is there already if onsoftmax is imported again
            substitute(public, skip_signature_check=True)(_traced(function))
            _told.add(public)


def _traced(function: Callable[..., Any]) -> Callable[..., Any]:
    torch = sys.modules["torch"]

    def traced(array: Any, /, *given: Any, **keywords: Any) -> Any:
        asked_for_more = keywords.get("stream") is not None or keywords.get("return_normalizer")
        if asked_for_more or not isinstance(array, torch.Tensor):  # a list, or a NumPy array
            torch._dynamo.graph_break()  # the call happens outside of graphs
        return function(array, *given, **keywords)

    return traced


class _AtImport(importlib.abc.MetaPathFinder):
    """Finds the tracer as Python does, and tells it as soon as it is imported."""

    def __init__(self, tell: Callable[[ModuleType], None]) -> None:
        self.tell = tell

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _TRACER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                self.tell(module)

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


def prepare(tell: Callable[[ModuleType], None] = _tell) -> None:
    """Tells the tracer, now or when it is imported. By default about the functions of the C core."""
    finder = _AtImport(tell)
    sys.meta_path.insert(0, finder)
    if _TRACER in sys.modules:
        tracer = importlib.import_module(_TRACER)  # waits for a thread that has only begun to import it
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
            tell(tracer)
