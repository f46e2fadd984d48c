""".npy files mapped into memory: one to read, and one that appears under its name whole or not at all."""

from __future__ import annotations

import errno
import math
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.lib import format as npy

Array = np.ndarray[Any, np.dtype[Any]]


class CommandError(Exception):
    """What the user asked for cannot be done; the text is the one line to show."""


def _read_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version} of the format is not known")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if any(length < 0 for length in shape):
        raise ValueError(f"its header says shape {shape}")
    return shape, fortran, dtype


def open_input(path: str) -> Array:
    """The array of a .npy file, mapped read-only. Raises CommandError or OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise CommandError(f"{path}: not a regular file")
    with open(path, "rb") as file:
        try:
            shape, fortran, dtype = _read_header(file)
        except OSError:
            raise
        except Exception as error:  # whatever NumPy's parser makes of the bytes of any file
            reason = str(error).partition("\n")[0][:120]
            raise CommandError(f"{path}: not a .npy file: {reason}") from error
        if dtype.hasobject:
            raise CommandError(f"{path}: holds pickled Python objects (dtype {dtype}): expected numbers")
        if dtype.kind == "V" and dtype.names is None and dtype.itemsize == 2:
            raise CommandError(
                f"{path}: holds 2-byte values of no known type, which is how NumPy saves bfloat16: "
                "save it as float32"
            )
        start = file.tell()
        promised = start + math.prod(shape) * dtype.itemsize
        there = os.fstat(file.fileno()).st_size
        if there < promised:
            raise CommandError(f"{path}: truncated: {there} bytes, and its header promises {promised}")
        order: Literal["C", "F"] = "F" if fortran else "C"
        if math.prod(shape) == 0:
            return np.empty(shape, dtype, order=order)
        return np.memmap(path, dtype, mode="r", offset=start, shape=shape, order=order)


def _reserve(descriptor: int) -> None:
    """Has the disk set the file's length aside: where it is full, an error now, not SIGBUS at a write."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, 0, os.fstat(descriptor).st_size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems do not sync directories
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _new_file(
    path: str, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool
) -> Iterator[tuple[str, int, np.memmap[Any, Any]]]:
    """A .npy file of a name of its own beside `path`: name, descriptor, array. Removed at the end."""
    name, descriptor = f"{path}.{secrets.token_hex(4)}.tmp", -1
    try:
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            array = npy.open_memmap(name, "w+", dtype, shape, fortran)
            _reserve(descriptor)
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror or error}") from error
        yield name, descriptor, array
    finally:
        if descriptor >= 0:
            os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(name)


@contextmanager
def scratch(path: str, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool) -> Iterator[Array]:
    """An array on the disk that `path` is on, for as long as the context lasts."""
    with _new_file(os.path.realpath(path), dtype, shape, fortran) as (_, _, array):
        yield np.asarray(array)


@contextmanager
def output(path: str, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool) -> Iterator[Array]:
    """The array of a new .npy file, which replaces `path` where the context ends well, else is removed."""
    path = os.path.realpath(path)  # through a link, the file it points to
    mode = _mode_of_output(path)
    with _new_file(path, dtype, shape, fortran) as (name, descriptor, array):
        yield np.asarray(array)
        try:
            array.flush()
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
            os.replace(name, path)
            _sync_directory(os.path.dirname(path))
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror or error}") from error


def _mode_of_output(path: str) -> int | None:
    """The permissions of the file that will be replaced, None where there is none."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise CommandError(f"{path}: not a regular file")
    return stat.S_IMODE(mode)
