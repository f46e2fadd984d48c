"""torch.fx.symbolic_trace records a call as the function itself, on a Proxy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch.overrides import handle_torch_function


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    def record(*given: Any, **keywords: Any) -> Any:
        return handle_torch_function(function, (*given, *keywords.values()), *given, **keywords)

    return record


_package = importlib.import_module("onsoftmax")
OPERATORS = {
    name: _recorded(getattr(_package, name)) for name in importlib.import_module("onsoftmax.torch").OPERATORS
}
