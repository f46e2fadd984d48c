"""Files that a command will write. They are checked before the work begins."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from ..bench import chart
from .files import CommandError, written


def check_target(path: str | None) -> None:
    """Checks that a file may be written, before the work for it begins. Raises OSError or CommandError."""
    if path is None:
        return
    if not path:
        raise CommandError("the file to write has the name '': expected a name")
    place = path if os.path.exists(path) else os.path.dirname(path) or "."
    if not os.path.exists(place):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def check_apart(source: str, target: str | None) -> None:
    """CommandError if a file of another format would replace the input."""
    if target is not None and os.path.exists(target) and os.path.samefile(source, target):
        raise CommandError(f"--output {target}: is the input: expected another file")


def check_plot(path: str | None) -> None:
    """check_target for a chart's file. CommandError if its ending is no picture's, or without matplotlib."""
    check_target(path)
    if path is None:
        return
    try:
        known = chart.formats()
    except ImportError as error:
        raise CommandError(f"--plot {path}: {error}") from error
    if Path(path).suffix.lstrip(".").lower() not in known:
        raise CommandError(f"--plot {path}: expected a name that ends with one of {', '.join(known)}")


def save_plot(figure: Any, path: str) -> None:
    """Saves a matplotlib figure to a file whose name check_plot has seen. Raises CommandError."""
    with written(path) as file:
        figure.savefig(file, format=Path(path).suffix.lstrip(".").lower(), dpi=120)
