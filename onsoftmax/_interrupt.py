"""Signals that end the program become an exception in the main thread, so that it can clean up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked the program to end. Not an Exception: nobody is to handle it on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.signal = number


def _raise(number: int, _frame: FrameType | None) -> None:
    for other in _ENDING:  # a second one must not cut the cleaning up short
        signal.signal(other, signal.SIG_IGN)
    raise Interrupted(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it SIGINT, SIGTERM and SIGHUP raise Interrupted, unless they were ignored (as under nohup)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, _raise)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_beside(work: Callable[[], None], tick: Callable[[], None]) -> None:
    """Runs work() on a thread of its own, tick() on this one about ten times a second until it is done.

    Python handles signals between two steps of the main thread, and one call into C may take minutes. Work
    that still goes on when an exception leaves this function ends with the process.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, name="onsoftmax-apply", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
        tick()
    if failures:
        raise failures[0]
