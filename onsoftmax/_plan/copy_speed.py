"""How fast this machine's memory copies. Every softmax is compared with this speed."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from .memory import free_memory

Array = np.ndarray[Any, np.dtype[Any]]

MIN_BYTES, MAX_BYTES = 1 << 26, 1 << 28  # size of each of the two arrays
SHARE = 8  # an array takes at most one part in SHARE of the free memory
ROUNDS = 5


def last_level_cache() -> int:
    """The size of the last-level cache in bytes. 32 MiB if the system does not tell it."""
    sizes = [p.read_text().strip() for p in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    units = {"K": 2**10, "M": 2**20}
    return max((int(s[:-1]) * units[s[-1]] for s in sizes if s[-1:] in units), default=2**25)


def _pieces(array: Array, count: int) -> Iterator[Array]:
    yield from np.array_split(array, count)


@functools.cache
def of_memory(threads: int) -> float:
    """Bytes a second that np.copyto moves in main memory on this number of threads, by reads and writes.

    Measured once for each number of threads, in a few hundredths of a second.
    """
    wanted = min(max(2 * last_level_cache(), MIN_BYTES), MAX_BYTES)
    size = max(int(min(wanted, free_memory() / SHARE)) // 8, threads)
    source, target = np.ones(size), np.zeros(size)
    pairs = list(zip(_pieces(target, threads), _pieces(source, threads), strict=True))
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(*pair), pairs))
            best = max(best, 2 * source.nbytes / (time.perf_counter() - start))
    return best
