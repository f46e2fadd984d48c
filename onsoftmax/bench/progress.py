"""Progress through a few cases, on stderr: a bar by tqdm if it is installed, otherwise our own bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from .._cli.progress import bar
from .contestants import importable

Item = TypeVar("Item")


def progress(items: Sequence[Item]) -> Iterator[Item]:
    """Yields the items and shows how many are done: a bar on a terminal, otherwise a line for each item."""
    if importable("tqdm"):
        tqdm: Any = __import__("tqdm")
        yield from tqdm.tqdm(items, file=sys.stderr)
        return
    end = "\r" if sys.stderr.isatty() else "\n"
    for done, item in enumerate(items):
        _show(done, len(items), end)
        yield item
    _show(len(items), len(items), "\n")


def _show(done: int, total: int, end: str) -> None:
    print(f"{bar(done / max(total, 1))} {done} of {total}", end=end, file=sys.stderr, flush=True)
