"""Arrays that the core does not take, and the operators that take them in its place."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn


class ByOperator(NamedTuple):
    """The core gets this instead of an array that has more than values (a gradient, say), or whose use a mode
    must see.
    `module` has operators that take the array. A function without such an operator raises `error`."""

    module: str | None
    error: type[Exception]
    message: str

    def refuse(self) -> NoReturn:
        raise self.error(self.message)


_operators: dict[str, dict[str, Callable[..., Any]]] = {}  # by module


def operator_of(given: ByOperator, name: str) -> Callable[..., Any] | None:
    """The operator that takes such arrays in place of the function with this name, or None."""
    module = given[0]
    if module is None:
        return None
    operators = _operators.get(module)
    if operators is None:  # not sys.modules: it also has modules that another thread has only begun to import
        operators = _operators[module] = importlib.import_module(module).OPERATORS
    return operators.get(name)
