"""Signals that end the program become an exception in the main thread, so that it can clean up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

Item = TypeVar("Item")

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked the program to end. It is no Exception, so that no handler stops it on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.signal = number


def _raise(number: int, _frame: FrameType | None) -> None:
    ignore_signals()  # a second signal must not interrupt the cleaning up
    raise Interrupted(number)


def ignore_signals() -> None:
    """After this no signal raises Interrupted any more, until interruptible() ends."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _ENDING:
        if signal.getsignal(number) is _raise:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def interruptible(*, process_ends: bool) -> Iterator[None]:
    """Within it SIGINT, SIGTERM and SIGHUP raise Interrupted, unless they were ignored (as under nohup).

    After it they do what they did before. If the process then ends, they do nothing, so that its exit code
    stays.
    """
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
            signal.signal(number, signal.SIG_IGN if process_ends else handler)


def run_beside(
    step: Callable[[Item], None], items: Iterable[Item], threads: int, tick: Callable[[], None]
) -> None:
    """step(item) for every item on that many threads. This thread calls tick() about ten times a second.

    Python handles signals between two steps of the main thread, and one call into C may take minutes. When an
    exception leaves this function, no further step begins. A step that still runs ends with the process.
    """
    waiting = iter(items)
    lock = threading.Lock()
    stopped = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not stopped.is_set():
                with lock:
                    item = next(waiting, None)
                if item is None:
                    return
                step(item)
        except BaseException as failure:
            failures.append(failure)
            stopped.set()

    team = [threading.Thread(target=run, name="onsoftmax-apply", daemon=True) for _ in range(threads)]
    try:
        for thread in team:
            thread.start()
        for thread in team:
            while thread.is_alive():
                thread.join(0.1)
                tick()
    finally:
        stopped.set()
    if failures:
        raise failures[0]
