"""stdout and stderr of a command. They may be closed, full, or without a reader."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO, cast


def _discard(stream: TextIO) -> None:
    """Sends the text that the stream still holds, and all later text, to /dev/null."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class _Lossy:
    """A stream for messages and progress. Text that it cannot take is lost, and no work fails for it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            _discard(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            _discard(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Named:
    """Standard output. Its errors name it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _named():
            return self._stream.write(text)

    def flush(self) -> None:
        with _named():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def _fill_gaps() -> None:
    """Opens /dev/null as each closed descriptor from 0 to 2. Otherwise a file of ours would get it."""
    number = 0
    while number <= 2:
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


@contextmanager
def usable_streams() -> Iterator[None]:
    """Within it there is a stdout and a stderr. Errors of stdout name it, and writing to stderr never fails.

    Text that stdout has not taken at the end is lost: Python's own flush would change the exit code.
    """
    _fill_gaps()
    lossy, named = cast(TextIO, _Lossy(sys.stderr)), cast(TextIO, _Named(sys.stdout))
    with redirect_stderr(lossy), redirect_stdout(named):
        try:
            yield
        finally:
            _Lossy(cast(TextIO, sys.stdout)).flush()
