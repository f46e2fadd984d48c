"""Functions that the tests share: types, arrays in odd places of memory, and fresh interpreters."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import signal
import subprocess
import sys

import numpy as np

import onsoftmax as ons
from onsoftmax import cli

try:
    import ml_dtypes

    BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    BFLOAT16 = None

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(ons.__file__)))

METHODS = [method.name for method in ons.methods("cpu") if method.name != "exact"]  # test_exact.py has exact
STABLE_METHODS = [name for name in METHODS if name != "naive"]
DTYPES = [np.dtype(t) for t in ("float16", "float32", "float64")] + ([BFLOAT16] if BFLOAT16 else [])
WIDE_DTYPES = [np.dtype("float32"), np.dtype("float64")]
NARROW_DTYPES = [t for t in DTYPES if t.itemsize == 2]
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "") or "tsan" in os.environ.get("LD_PRELOAD", "")


def isas():
    from onsoftmax import _core

    return _core.config()["isa_available"]


def hear_signals():
    """Lets a child hear signals that this process ignores, for example when tests run in the background."""
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)


def environment(**extra: str) -> dict[str, str]:
    """This process's environment, with which Python finds the tested package from any directory."""
    paths = [PACKAGE_PARENT, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **extra}


def run_python(arguments, timeout=300, **environment):
    """Runs a new interpreter with this onsoftmax and these tests on its path. The value None unsets a
    variable."""
    paths = [PACKAGE_PARENT, HERE, os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    for name, value in environment.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=HERE,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        preexec_fn=hear_signals,
    )


def bits(array):
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def same_bits(a, b):
    """Whether two arrays agree to the last bit. All NaN count as equal."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.all((bits(a) == bits(b)) | (np.isnan(a) & np.isnan(b))))


def lay_out(values, permutation=None, steps=None, byte_offset=0, swapped=False):
    """The same values in other memory. `permutation` is the memory order of the dimensions. Every |step|-th
    element is used, backwards if the step is negative. The array is `byte_offset` bytes off alignment. Its
    bytes may be swapped."""
    values = np.asarray(values)
    ndim, dtype = values.ndim, values.dtype.newbyteorder() if swapped else values.dtype
    order = tuple(range(ndim)) if permutation is None else permutation
    steps = (1,) * ndim if steps is None else steps
    lengths = [values.shape[i] * abs(steps[i]) for i in order]
    memory = np.zeros(int(np.prod(lengths, dtype=np.int64)) * dtype.itemsize + byte_offset, np.uint8)
    laid = memory[byte_offset:].view(dtype).reshape(lengths).transpose(np.argsort(order))
    laid = laid[(..., *(slice(None, None, step) for step in steps))]
    laid[...] = values
    return laid


class Changes:
    """An argument whose conversion first changes an array in place."""

    def __init__(self, change, value):
        self.change, self.value = change, value

    def __index__(self):
        self.change()
        return self.value

    def __array__(self, dtype=None, copy=None):
        self.change()
        return self.value

    def __dlpack__(self, **keywords):
        self.change()
        return self.value.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return (1, 0)

    @property
    def dtype(self):
        self.change()
        return np.dtype(self.value)


class Guarded:
    """Writable memory between two pages that no code may touch."""

    def __init__(self, bytes_wanted):
        page = mmap.PAGESIZE
        self._mprotect = ctypes.CDLL(None, use_errno=True).mprotect
        self._mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.bytes = -(-bytes_wanted // page) * page
        self._map = mmap.mmap(-1, self.bytes + 2 * page)
        self.memory = np.frombuffer(self._map, np.uint8)[page : page + self.bytes]
        self._start = self.memory.ctypes.data
        self._protect(self._start - page, page, 0)
        self._protect(self._start + self.bytes, page, 0)

    def _protect(self, address, length, protection):
        if self._mprotect(address, length, protection):
            raise OSError(ctypes.get_errno(), "mprotect")

    def set_readonly(self, readonly):
        self._protect(self._start, self.bytes, 1 if readonly else 3)

    def place(self, shape, dtype, at_end, gap=0):
        """An array that ends `gap` bytes before the upper guard, or begins `gap` bytes after the lower
        one."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        begin = self.bytes - size - gap if at_end else gap
        return self.memory[begin : begin + size].view(dtype).reshape(shape)


def prints(arguments, capsys, code=0) -> str:
    assert cli.main([str(argument) for argument in arguments]) == code
    return capsys.readouterr().out


def fails(arguments, capsys) -> str:
    """The single line of a run that must fail with code 2."""
    assert cli.main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"onsoftmax: error: [^\n]+\n", printed.err)
    return printed.err
