"""Calls from a thread that treats subnormal numbers as 0 or rounds upward. They run in their own interpreter,
because the first call starts the pool's threads in that mode."""

from __future__ import annotations

import ctypes
import platform
from contextlib import contextmanager

import numpy as np
from bit_checks import FUNCTIONS
from support import DTYPES, same_bits

import onsoftmax as ons

X86 = platform.machine() in ("x86_64", "AMD64")
# The word of fenv_t with MXCSR or FPCR, and its bits for flushing subnormals to zero and for rounding upward.
WORD, FLUSH, UPWARD = (7, 0x8040, 0x4000) if X86 else (0, 1 << 24, 1 << 22)
libm = ctypes.CDLL(None)


@contextmanager
def mode(bits):
    before, changed = (ctypes.c_uint32 * 16)(), (ctypes.c_uint32 * 16)()
    libm.fegetenv(before)
    ctypes.memmove(changed, before, ctypes.sizeof(before))
    changed[WORD] |= bits
    libm.fesetenv(changed)
    try:
        yield
        libm.fegetenv(changed)
    finally:
        libm.fesetenv(before)
    assert changed[WORD] & bits == bits, "a call left another mode behind"


def arrays(name, dtype):
    """Subnormal and other numbers, enough for two threads."""
    rng = np.random.default_rng(1)
    spread = {2: 16, 4: 100, 8: 740}[dtype.itemsize]
    x = (-spread * rng.random((400, 500))).astype(dtype)
    if not name.endswith("backward"):
        return [x]
    output = ons.softmax(x) if name == "softmax_backward" else ons.log_softmax(x)
    tiny = np.finfo(dtype).tiny if dtype.kind == "f" else 1e-38
    return [
        (rng.standard_normal(x.shape) * np.where(rng.random(x.shape) < 0.5, tiny, 1)).astype(dtype),
        output,
    ]


def halves(x, axis):
    return [ons.normalizer(half, axis) for half in np.array_split(x, 2, axis)]


def merged(x, axis, num_threads):
    first, second = halves(x, axis)
    return first.merge(second).softmax(x)


def merged_d(x, axis, num_threads):
    first, second = halves(x, axis)
    return first.merge(second).d


def main():
    calls = {name: f for name, (f, _) in FUNCTIONS.items()} | {"merged": merged, "merged d": merged_d}
    for bits in (FLUSH, UPWARD):
        for name, function in calls.items():
            for dtype in DTYPES:
                x = arrays(name, dtype)
                with mode(bits):
                    got = function(*x, -1, num_threads=2)
                    again = function(*x, -1, num_threads=1)
                wanted = function(*x, -1, num_threads=2)
                assert same_bits(got, wanted), (name, dtype, bits, "two threads")
                assert same_bits(again, wanted), (name, dtype, bits, "one thread")
    pair = (-1e300, 0.0, 1.0)
    with mode(UPWARD):
        got = ons._core.pair_of(pair, True)
    assert got == ons._core.pair_of(pair, True)


if __name__ == "__main__":
    main()
