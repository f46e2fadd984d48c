"""Progress on stderr, for work longer than a second: a bar of tqdm if it is installed, otherwise lines."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any

DELAY_S, INTERVAL_S = 1.0, 2.0


WIDTH = 30  # characters of the bar in our own lines


def bar(share: float) -> str:
    return f"[{'#' * int(WIDTH * share):{WIDTH}}]"


def _tqdm() -> Any:
    try:
        from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    return tqdm


class Progress:
    """How much of `total` is `done`. The working threads count it. The thread that calls tick() shows it."""

    def __init__(self, total: int, size: int) -> None:
        self.total, self.done = total, 0
        self._counting = threading.Lock()
        self._bytes_each = size / total if total else 0.0
        self._start, self._shown = time.monotonic(), 0.0
        self._bar: Any = None
        self._tqdm = _tqdm()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None and self._shown:
            self._show()
        if self._bar is not None:
            self._bar.close()

    def advance(self, count: int) -> None:
        """Adds `count` to the work that is done."""
        with self._counting:
            self.done += count

    def tick(self) -> None:
        """Shows the present state, if it is time to."""
        now = time.monotonic()
        if now - self._start < DELAY_S or (not self._tqdm and now - self._shown < INTERVAL_S):
            return
        self._shown = now
        self._show()

    def _show(self) -> None:
        done, total = (int(elements * self._bytes_each) for elements in (self.done, self.total))
        if not self._tqdm:
            seconds = time.monotonic() - self._start
            share = done / total if total else 1.0
            line = f"{bar(share)} {done / 1e9:.2f} of {total / 1e9:.2f} GB, {seconds:.0f} s"
            print(line, file=sys.stderr, flush=True)
            return
        if self._bar is None:
            self._bar = self._tqdm(
                total=total, initial=done, unit="B", unit_scale=True, desc="onsoftmax", file=sys.stderr
            )
        self._bar.update(done - self._bar.n)
