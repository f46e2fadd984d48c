"""Values that are not arrays yet: the arrays that NumPy makes from them, or the error text."""

from __future__ import annotations

import operator
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .kinds import gpu_of
from .pandas import of_pandas

if TYPE_CHECKING:
    from collections.abc import Callable


def refused_value(given: Any, expected: str = "an array, a number, or numbers in lists") -> str:
    """The error text for a Python value from which NumPy cannot make an array of numbers."""
    odd = _odd_element(given)
    kind, place = type(odd).__name__, "" if odd is given else f" in a {type(given).__name__}"
    if isinstance(odd, Number):
        kind = "n int of over 64 bits" if isinstance(odd, int) else f" {kind}"
        return f"a{kind}{place}: expected floats, or ints of at most 64 bits; convert it by float()"
    if odd is None:
        kind = "None"
    elif not isinstance(odd, (str, bytes)):
        kind = f"an object of type {kind}"
    return f"{kind}{place}: expected {expected}"


def _odd_element(given: Any) -> Any:
    """The first element, however deep in lists, that NumPy cannot make a number from. Otherwise the value."""
    if not isinstance(given, (list, tuple)):
        return given
    odd = [each for each in given if not _is_number(each)]
    return _odd_element(odd[0]) if odd else given


def _is_number(element: Any) -> bool:
    """Whether NumPy makes a number of the element, or an array of numbers."""
    if isinstance(element, (list, tuple)):
        return all(map(_is_number, element))
    if isinstance(element, int):
        return -(2**63) <= element < 2**63
    return isinstance(element, (float, complex)) or (
        hasattr(element, "__array__") and not isinstance(element, (str, bytes))
    )


def array_of_lists(given: Any) -> Any:
    """The NumPy array of lists. ValueError in NumPy's words, except for lists of different lengths."""
    try:
        return np.asarray(given)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError("got lists of different lengths: expected rows of one length") from None


def plain_int(value: Any) -> int:
    """The value as an int. TypeError if it is no int, and for a bool, which Python would take as an int."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"got {value!r}: expected an int")
    return operator.index(value)


def int_of(name: str, value: Any) -> int:
    """The value of the argument `name` as an int."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: expected an int") from None


def check_topk(topk: int, logits: Any, axis: int) -> None:
    """Raises ValueError if logprob shall give more elements than a row has."""
    length = (logits.shape if hasattr(logits, "shape") else np.shape(logits))[axis]
    if topk > length:
        raise ValueError(f"topk is {topk}: expected at most {length}, the length of axis {axis}")


def float_of(name: str, value: Any) -> float:
    """The value of the argument `name` as a float."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}: expected a number") from None


def check_number(name: str, value: Any, expected: str, holds: Callable[[Any], Any]) -> None:
    """TypeError if the value of the argument `name` is no number, ValueError if holds(value) is false."""
    try:
        fits = holds(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: expected {expected}") from None
    if not fits:
        raise ValueError(f"{name} is {value!r}: expected {expected}")


def plain_axes(axis: Any) -> Any:
    """The value of axis= as the core reads it, without an array."""
    try:
        if axis is None:
            return None
        return tuple(map(plain_int, axis)) if isinstance(axis, tuple) else plain_int(axis)
    except TypeError:
        raise TypeError(f"axis is {axis!r}: expected an int, a tuple of ints, or None") from None


def overlaps_itself(array: Any) -> bool:
    """Whether elements of a NumPy array share memory. It compares elements that differ along one axis, and
    are the first along the axes before it."""
    while array.ndim:
        first = array[0, ...]
        if np.shares_memory(first, array[1:]):
            return True
        array = first
    return False


def keeps_memory(array: Any) -> bool:
    """Whether an array has __array__, but its __dlpack__ refuses it, like pyarrow's arrays with nulls."""
    if not hasattr(array, "__array__") or gpu_of(array) is not None:
        return False
    try:
        array.__dlpack__()
    except Exception:
        return True
    return False


def numpy_of(array: Any) -> Any:
    """The NumPy array of an object. A mask of numpy.ma stays, so that it can be seen."""
    if not hasattr(array, "__array__") and hasattr(array, "__dlpack__"):
        try:
            return np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError):  # bfloat16, which NumPy does not have
            return np.asarray(_core.as_numpy(array), np.float64)
    made = np.asanyarray(array)
    if made.dtype == object and hasattr(array, "to_numpy"):
        return of_pandas(array, made)
    return made
