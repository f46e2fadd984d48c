"""Arrays that the core does not take, and the operators that take them in its place."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


class ByOperator(TypeError, RuntimeError):
    """An array whose values are not all there is to it, or that the caller wants to see at work. A call that
    has an operator in `module` goes by that one; another raises this.

    Users see it as a plain TypeError, and may also catch it as a RuntimeError, as torch has it.
    """

    __module__ = "builtins"
    __qualname__ = "TypeError"

    def __init__(self, module: str | None, message: str) -> None:
        super().__init__(message)
        self.module = module

    def __reduce__(self) -> tuple[Any, ...]:
        return TypeError, self.args


ByOperator.__name__ = "TypeError"


_operators: dict[str, dict[str, Callable[..., Any]]] = {}  # by module


def operator_of(error: ByOperator, name: str) -> Callable[..., Any] | None:
    """What takes such arrays in the place of the function of that name."""
    if error.module is None:
        return None
    operators = _operators.get(error.module)
    if operators is None:  # sys.modules has a module that another thread has only begun to import
        operators = _operators[error.module] = importlib.import_module(error.module).OPERATORS
    return operators.get(name)
