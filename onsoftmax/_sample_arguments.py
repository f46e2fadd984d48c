"""The arguments of sample and filtered_softmax. torch.compile traces these functions."""

from __future__ import annotations

from numbers import Integral, Real
from operator import index
from typing import Any, get_args

import numpy as np

from ._route import check_method
from ._types import FilterOrder, SampleLogprob

_ORDERS: tuple[FilterOrder, ...] = get_args(FilterOrder)
LOGPROBS: tuple[SampleLogprob, ...] = get_args(SampleLogprob)
_LARGEST = float(np.finfo(np.float64).max)
_SHARE = 0, 1, "a number from 0 to 1"
_WORD = -(2**63), 2**64 - 1, "an int from -2^63 to 2^64 - 1"
# What a number for all rows may be. An array may have other numbers. A row with such a number is not valid.
_RANGES: dict[str, tuple[float, float, str]] = {
    "temperature": (0, _LARGEST, "a finite number of at least 0"),
    "top_k": (0, float("inf"), "an int of at least 0"),
    "top_p": _SHARE,
    "min_p": _SHARE,
    "seed": _WORD,
    "offset": _WORD,
}
PARAMETERS = tuple(_RANGES)
GREEDY_BELOW = 1e-30  # a temperature (csrc/api/sample.h)
FILTERS = PARAMETERS[:4]  # without a draw
# The defaults of the operator's parameters.
DEFAULTS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 0, "offset": 0}
INTEGERS = "top_k", "seed", "offset"


def check_names(filter_apply_order: str, method: str, name: str = "sample") -> None:
    if filter_apply_order not in _ORDERS:
        raise ValueError(f"filter_apply_order is {filter_apply_order!r}: expected 'top_k_first' or 'joint'")
    check_method(name, method)


def logprob_name(return_logprob: Any) -> SampleLogprob | None:
    """Which log-probability is wanted, if any."""
    if isinstance(return_logprob, (bool, np.bool_)):
        return LOGPROBS[0] if return_logprob else None
    for name in LOGPROBS:
        if isinstance(return_logprob, str) and return_logprob == name:
            return name
    raise ValueError(f"return_logprob is {return_logprob!r}: expected a bool, 'unfiltered' or 'filtered'")


def number_of(name: str, value: Any) -> Any:
    """The number for all rows, as the core takes it. None if the value is an array."""
    of_ints = name in INTEGERS
    if type(value) is not int and (of_ints or type(value) is not float):  # an abstract class answers slowly
        is_number = isinstance(value, Integral if of_ints else Real)
        if value is None or isinstance(value, (bool, str)) or (isinstance(value, Real) and not is_number):
            kind = "an int, or an array of integers" if of_ints else "a number, or an array of numbers"
            raise TypeError(f"{name} is {value!r}: expected {kind}")
        if not is_number:
            return None
    lowest, highest, expected = _RANGES[name]
    plain = value.item() if isinstance(value, np.generic) else value
    if not lowest <= plain <= highest:
        raise ValueError(f"{name} is {plain!r}: expected {expected}")
    if not of_ints:
        return float(plain)
    whole = plain if isinstance(plain, int) else index(plain)  # index would fix the value of a symbolic int
    if whole < 2**63:
        return whole
    return 2**63 - 1 if name == "top_k" else whole - 2**64


def wanted(found: tuple[Any, Any, Any], return_logprob: Any, return_valid: bool) -> Any:
    """Which of its three results the caller of sample wants."""
    indices, logprob, valid = found
    others = [logprob] if logprob_name(return_logprob) else []
    if return_valid:
        others.append(valid)
    return (indices, *others) if others else indices
