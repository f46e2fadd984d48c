"""A run as a JSON document, with a line for each case. All benchmarks write it in this way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .._explain.record import for_json


def as_text(document: dict[str, Any]) -> str:
    """JSON with a line for each key, and for each object or list in a list. JSON has no NaN and no infinity,
    so they become text."""
    return _text(for_json(document), 0) + "\n"


def write(document: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text(document))


def _text(value: Any, depth: int) -> str:
    margin = " " * depth
    if isinstance(value, dict) and value:
        members = [f"{margin} {json.dumps(str(key))}: {_text(value[key], depth + 1)}" for key in value]
        return "{\n" + ",\n".join(members) + f"\n{margin}}}"
    if isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value):
        return "[\n" + ",\n".join(map(_line, value)) + f"\n{margin}]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
