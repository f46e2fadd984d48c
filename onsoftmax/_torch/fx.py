"""torch.fx.symbolic_trace records a call as the function itself, on a Proxy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import handle_torch_function

from .. import _core
from .operators import NAMES


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    def record(*given: Any, **keywords: Any) -> Any:
        return handle_torch_function(function, (*given, *keywords.values()), *given, **keywords)

    return record


OPERATORS = {name: _recorded(getattr(_core, name)) for name in NAMES}
