""".npy files: a file to read, and a file that appears under its name whole or not at all.

They are read and written by ordinary calls. If another process makes IN shorter meanwhile, a read says so. A
mapping would end the process by SIGBUS.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import secrets
import stat
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.lib import format as npy

from .interrupt import ignore_signals

Array = np.ndarray[Any, np.dtype[Any]]
Box = tuple[slice, ...]

# More bytes than any header that NumPy reads.
HEADER_BYTES = 1 << 16

# The temporary file's name begins with at most this many characters of OUT's name. So it is not too long
# for the file system.
NAME_BEGINS = 30


class CommandError(Exception):
    """The user's request cannot be carried out. The text is the one line to show."""


@contextmanager
def _said_of(path: str) -> Iterator[None]:
    """Within it an OSError becomes a CommandError that names `path`, except for a pipe that nobody reads."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error


class _Descriptor:
    """An open file. It closes when nothing refers to it: after a failure a thread may still use it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


@dataclass(frozen=True)
class NpyFile:
    """An array in an open .npy file. Its boxes are read and written."""

    path: str  # the name in messages
    descriptor: _Descriptor
    start: int  # where the first element begins
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def _order(self) -> Literal["C", "F"]:
        return "F" if self.fortran else "C"

    def _offset(self, box: Box) -> int:
        """The place in the file where a box begins."""
        offset, stride = self.start, self.dtype.itemsize
        dimensions = list(zip(self.shape, box, strict=True))
        for extent, part in dimensions if self.fortran else reversed(dimensions):
            offset += part.start * stride
            stride *= extent
        return offset

    def read(self, box: Box) -> Array:
        """A copy of a box whose elements follow each other in the file, in the file's order."""
        array = np.empty([part.stop - part.start for part in box], self.dtype, self._order)
        memory, offset = self._memory(array), self._offset(box)
        with _said_of(self.path):
            while memory:
                count = os.preadv(self.descriptor.number, [memory], offset)
                if count == 0:
                    raise CommandError(f"{self.path}: became shorter while it was read")
                memory, offset = memory[count:], offset + count
        return array

    def write(self, box: Box, array: Array) -> None:
        """Writes an array, of the file's type and order, to the place of a box like read's."""
        memory, offset = self._memory(array), self._offset(box)
        with _said_of(self.path):
            while memory:
                count = os.pwrite(self.descriptor.number, memory, offset)
                memory, offset = memory[count:], offset + count

    def _memory(self, array: Array) -> memoryview:
        return array.reshape(-1, order=self._order).view(np.uint8).data

    def mapped(self) -> Array:
        """The array in mapped memory. Only for files that no other process knows and so could shorten."""
        with _said_of(self.path):
            memory = mmap.mmap(self.descriptor.number, self.start + self.nbytes)
        return np.ndarray(self.shape, self.dtype, memory, self.start, order=self._order)


def _parse(head: bytes) -> tuple[int, np.dtype[Any], tuple[int, ...], bool]:
    """Reads the beginning of a file: where its data start, their type, shape, and whether in Fortran order.

    Raises ValueError if it is no .npy file.
    """
    stream = BytesIO(head)
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version} of the format is not known")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about headers that Python 2 wrote
            shape, fortran, dtype = read(stream)
    except Exception as error:  # any exception that NumPy's parser may raise for the bytes of a file
        header = head[10 if version == (1, 0) else 12 :].partition(b"\n")[0].strip()[:90].decode("latin1")
        raise ValueError(f"{_short(error) or type(error).__name__}, in its header {header!r}") from error
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"its header says shape {_short(shape)}")
    return stream.tell(), dtype, shape, fortran


def _short(what: object) -> str:
    """The first line of its text, cut to 120 characters."""
    return str(what).partition("\n")[0][:120]


def _layout(path: str, head: bytes, there: int) -> tuple[int, np.dtype[Any], tuple[int, ...], bool]:
    """The result of _parse for a file of `there` bytes. CommandError if its numbers cannot be taken."""
    try:
        start, dtype, shape, fortran = _parse(head)
    except ValueError as error:
        raise CommandError(f"{path}: not a .npy file: {error}") from error
    if dtype.hasobject:
        raise CommandError(f"{path}: holds pickled Python objects (dtype {dtype}): expected numbers")
    if dtype.kind == "V" and dtype.names is None and dtype.itemsize == 2:
        raise CommandError(
            f"{path}: holds 2-byte values of no known type, which is how NumPy saves bfloat16: "
            "save it as float32"
        )
    if dtype.subdtype is not None:
        raise CommandError(f"{path}: holds an array in each element (dtype {dtype}): expected numbers")
    promised = start + math.prod(shape) * dtype.itemsize
    if there < promised:
        raise CommandError(f"{path}: truncated: {there} bytes, and its header promises {promised}")
    try:
        np.broadcast_to(np.empty((), dtype), shape)  # checks the shape: it takes no memory
    except (ValueError, OverflowError) as error:
        raise CommandError(f"{path}: its header says shape {_short(shape)}: {error}") from error
    return start, dtype, shape, fortran


def open_input(path: str) -> NpyFile:
    """A .npy file to read. Raises CommandError or OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise CommandError(f"{path}: not a regular file")
    descriptor = _Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    with _said_of(path):
        head = os.pread(descriptor.number, HEADER_BYTES, 0)
        there = os.fstat(descriptor.number).st_size
    return NpyFile(path, descriptor, *_layout(path, head, there))


def read_stdin() -> Array:
    """The array of the .npy file on standard input, in memory. Raises CommandError."""
    if sys.stdin.isatty():
        raise CommandError(
            "-: standard input is a terminal: expected a .npy file from a pipe, or a file name"
        )
    held = sys.stdin.buffer.read()
    start, dtype, shape, fortran = _layout("standard input", held[:HEADER_BYTES], len(held))
    return np.ndarray(shape, dtype, held, start, order="F" if fortran else "C")


def write_stdout(array: Array) -> None:
    """Writes the array as a .npy file to standard output. Raises CommandError, or BrokenPipeError."""
    if sys.stdout.isatty():
        raise CommandError("-: standard output is a terminal: expected a pipe or a file")
    fortran = not array.flags.c_contiguous
    memory = np.ascontiguousarray(array.T if fortran else array).reshape(-1).view(np.uint8).data
    with _said_of("standard output"):
        sys.stdout.buffer.write(_header(array.dtype, array.shape, fortran))
        sys.stdout.buffer.write(memory)
        sys.stdout.buffer.flush()


def _header(dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool) -> bytes:
    """The header of a .npy file."""
    header = BytesIO()
    says = {"descr": npy.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    npy.write_array_header_1_0(header, says)
    return header.getvalue()


def _reserve(descriptor: int, size: int) -> None:
    """Reserves the file's length on the disk. If the disk is full, there is an error now, and not hours later
    an error or a SIGBUS."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
    zeros = bytes(1 << 20)
    for offset in range(0, size, len(zeros)):
        os.pwrite(descriptor, zeros[: size - offset], offset)


@contextmanager
def _temporary(path: str) -> Iterator[tuple[str, _Descriptor]]:
    """A new file beside `path`: its name, and the open file. It is removed at the end."""
    directory, own = os.path.split(path)
    name = os.path.join(directory, f"{own[:NAME_BEGINS]}.{secrets.token_hex(4)}.tmp")
    try:
        with _said_of(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = _Descriptor(os.open(name, flags, 0o666))
        yield name, descriptor
    finally:
        with suppress(OSError):
            os.unlink(name)


@contextmanager
def _replacing(path: str) -> Iterator[_Descriptor]:
    """A new file, which replaces `path` if the context ends well. Otherwise it is removed."""
    if not path:
        raise CommandError("the file to write has the name '': expected a name")
    path = os.path.realpath(path)  # of a link, the file that it points to
    mode = _mode_of_output(path)
    with _temporary(path) as (name, descriptor):
        yield descriptor
        with _said_of(path):
            if mode is not None:
                os.fchmod(descriptor.number, mode)
            os.fsync(descriptor.number)
            directory = _directory(path)
            ignore_signals()
            os.replace(name, path)
        # OUT is replaced. From here on nothing may fail.
        if directory is not None:
            with suppress(OSError):  # some file systems do not sync directories
                os.fsync(directory.number)


def _new_npy(
    path: str, descriptor: _Descriptor, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool
) -> NpyFile:
    """Makes an empty file a .npy file. Its elements are not written yet."""
    header = _header(dtype, shape, fortran)
    file = NpyFile(path, descriptor, len(header), dtype, shape, fortran)
    with _said_of(path):
        _reserve(descriptor.number, file.start + file.nbytes)
        os.pwrite(descriptor.number, header, 0)
    return file


@contextmanager
def scratch(beside: NpyFile, dtype: np.dtype[Any]) -> Iterator[NpyFile]:
    """Another file of the same shape on the same disk, as long as the context lasts."""
    with _temporary(beside.path) as (_, descriptor):
        yield _new_npy(beside.path, descriptor, dtype, beside.shape, beside.fortran)


@contextmanager
def output(path: str, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool) -> Iterator[NpyFile]:
    """A new .npy file, which replaces `path` if the context ends well. Otherwise it is removed."""
    with _replacing(path) as descriptor:
        yield _new_npy(path, descriptor, dtype, shape, fortran)


@contextmanager
def written(path: str) -> Iterator[BinaryIO]:
    """A stream whose bytes replace the file `path` if the context ends well. A pipe, a terminal or another
    file that is not regular gets them as they come. Raises CommandError, with the file's name."""
    with _said_of(path), ExitStack() as stack:
        if os.path.exists(path) and not os.path.isfile(path):
            yield stack.enter_context(open(path, "wb"))
            return
        descriptor = stack.enter_context(_replacing(path))
        with open(os.dup(descriptor.number), "wb") as stream:
            yield stream


def _directory(path: str) -> _Descriptor | None:
    """The open directory of a file. None if it may not be read."""
    try:
        return _Descriptor(os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return None


def _mode_of_output(path: str) -> int | None:
    """The permissions of the file that will be replaced. None if there is no such file."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise CommandError(f"{path}: not a regular file")
    return stat.S_IMODE(mode)
