"""sample: the sampler of a language model. It draws a token for each row of logits. filtered_softmax gives
the probabilities by which it draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._libraries.jax import is_cut_to_32_bits, operator_for_words
from ._libraries.values import int_of
from ._losses import _prepared
from ._sample_arguments import (
    FILTERS,
    INTEGERS,
    LOGPROBS,
    PARAMETERS,
    check_names,
    logprob_name,
    number_of,
    wanted,
)

if TYPE_CHECKING:
    from ._types import ArrayLike, FilterOrder, SampleLogprob


def of_rows(name: str, value: Any) -> Any:
    """A parameter as the core takes it: a number, or an array without gaps."""
    number = number_of(name, value)
    if number is not None:
        return number
    if name in INTEGERS and is_cut_to_32_bits(value):
        value = np.asarray(value)
    return _prepared(name, value, ("int64", "int32") if name in INTEGERS else ("float32", "float64"))


def sampled(
    logits: Any,
    parameters: dict[str, Any],
    *,
    filter_apply_order: str = "top_k_first",
    return_logprob: Any = False,
    return_valid: bool = False,
    axis: int = -1,
    where: Any = None,
    method: str = "auto",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """(indices, logprob or None, valid or None). If an operator of torch or JAX must take the arrays, the
    result is this operator instead."""
    check_names(filter_apply_order, method)
    if found := operator_for_words("sample", logits, *map(parameters.get, INTEGERS)):
        return found
    logprob = logprob_name(return_logprob)
    temperature, top_k, top_p, min_p, seed, offset = (of_rows(name, parameters[name]) for name in PARAMETERS)
    return _core.sample(
        logits,
        int_of("axis", axis),
        temperature,
        top_k,
        top_p,
        min_p,
        seed,
        offset,
        filter_apply_order == "joint",
        0 if logprob is None else 1 + LOGPROBS.index(logprob),
        return_valid,
        where,
        method == "invariant",
        stream,
        num_threads,
    )


def sample(
    logits: ArrayLike,
    /,
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    seed: ArrayLike,
    offset: ArrayLike = 0,
    filter_apply_order: FilterOrder = "top_k_first",
    return_logprob: bool | SampleLogprob = False,
    return_valid: bool = False,
    axis: int = -1,
    where: ArrayLike | None = None,
    method: str = "auto",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """A random token for each row of logits, after filters.

    A decoding step of a language model ends with this call. It takes the place of a softmax, a sort, a
    running sum and a draw. The same seed and offset give the same tokens again.

    Let p be the softmax of a row divided by its temperature. The tokens are in order of their logits, the
    largest first. Each filter keeps the first tokens of this order. The draw takes one of the tokens that
    all filters keep. The probability of such a token is its p divided by the sum of the kept p.

    Each parameter from `temperature` to `offset` is a number for all rows, or an array with a number for each
    row. An array may also have one number for all rows.

    Parameters
    ----------
    logits : array_like, any shape
        One logit for each token along `axis`.
    temperature : float or array_like
        The logits are divided by it. 0 takes the first token.
    top_k : int or array_like of int
        Number of tokens to keep. 0 and a number above the length of the row keep all tokens.
    top_p : float or array_like
        Keeps the fewest tokens that have this share of the mass. 1 keeps all tokens.
    min_p : float or array_like
        Keeps the tokens whose p is at least min_p times the largest p. 0 keeps all tokens.
    seed, offset : int or array_like of int
        Each pair of seed and offset gives other random numbers. Raise the offset at each step. Numbers count
        modulo 2^64. If each row has its own seed, the place of a row in the batch has no effect.
    filter_apply_order : {"top_k_first", "joint"}
        "top_k_first": top_p is a share of the mass of the tokens that top_k keeps. "joint": top_p is a share
        of the mass of the whole row.
    return_logprob : bool or {"unfiltered", "filtered"}
        Whether to return the log-probability of the token. "unfiltered" and True give log(p). "filtered"
        gives the log-probability among the tokens that the filters keep.
    return_valid : bool
        Whether to return which rows are valid.
    axis : int
        The axis of the tokens. The last axis by default.
    where : array of bool that broadcasts to logits, optional
        False excludes a token.
    method : {"auto", "invariant"}
        Both give a row the same bits in any batch.
    stream, num_threads
        As softmax takes them.

    Returns
    -------
    indices, or a tuple (indices, logprob, valid)
        The tuple has only what is asked for. Each array has the shape of logits without the axis. Indices
        are int64, or int32 in JAX without jax_enable_x64. Log-probabilities are float32, or float64 for
        float64 logits. A row is valid if no logit is NaN, its largest logit divided by the temperature is
        finite, and its parameters are in range. Any other row has the index -1 and the log-probability NaN.

    Raises
    ------
    TypeError
        An argument has the wrong type.
    ValueError
        A number is out of range, or a shape does not fit. Numbers in arrays are not checked.

    Notes
    -----
    The random numbers are from Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
    2011). top_p is nucleus sampling (Holtzman et al., arXiv 1904.09751), and min_p is from Nguyen et al.,
    arXiv 2407.01082. The softmax is from Milakov and Gimelshein, arXiv 1805.02867.

    Examples
    --------
    >>> import numpy as np, onsoftmax as ons
    >>> logits = np.array([[1.0, 2, 3, 6, 2, 1]] * 2, np.float32)
    >>> ons.sample(logits, temperature=[0, 5], seed=7)  # the first row is greedy
    array([3, 1])
    """
    parameters = dict(zip(PARAMETERS, (temperature, top_k, top_p, min_p, seed, offset), strict=True))
    terms: dict[str, Any] = {
        "filter_apply_order": filter_apply_order,
        "return_logprob": return_logprob,
        "return_valid": return_valid,
        "axis": axis,
        "where": where,
        "method": method,
        "stream": stream,
        "num_threads": num_threads,
    }
    found = sampled(logits, parameters, **terms)
    if isinstance(found, tuple):
        return wanted(found, return_logprob, return_valid)
    return found(logits, **parameters, **terms)


def filtered(
    logits: Any,
    parameters: dict[str, Any],
    *,
    filter_apply_order: str = "top_k_first",
    axis: int = -1,
    where: Any = None,
    method: str = "auto",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """The result of filtered_softmax, or the operator that must take the arrays."""
    check_names(filter_apply_order, method, "filtered_softmax")
    if found := operator_for_words("filtered_softmax", logits, parameters["top_k"]):
        return found
    temperature, top_k, top_p, min_p = (of_rows(name, parameters[name]) for name in FILTERS)
    joint, is_invariant = filter_apply_order == "joint", method == "invariant"
    return _core.filtered_softmax(
        logits,
        int_of("axis", axis),
        temperature,
        top_k,
        top_p,
        min_p,
        joint,
        where,
        is_invariant,
        stream,
        num_threads,
    )


def filtered_softmax(
    logits: ArrayLike,
    /,
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    filter_apply_order: FilterOrder = "top_k_first",
    axis: int = -1,
    where: ArrayLike | None = None,
    method: str = "auto",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """The probabilities by which sample draws: the softmax of the tokens that the filters keep.

    Speculative decoding compares the probabilities of two models. A test of a sampler compares its draws with
    the probabilities.

    The filters are the filters of sample, with the same meaning. All other tokens have the probability 0.

    Parameters
    ----------
    logits : array_like, any shape
        One logit for each token along `axis`.
    temperature, top_k, top_p, min_p
        As sample takes them: a number for all rows, or an array with a number for each row.
    filter_apply_order, axis, where, method, stream, num_threads
        As sample takes them.

    Returns
    -------
    array of the shape of logits
        float32, or float64 for float64 logits. The probabilities of a row add up to 1. All results of
        a row are NaN if its largest logit is not finite, a logit is NaN, or its numbers are out of range. A
        gradient flows to the logits. For it, the kept tokens are constant.

    Raises
    ------
    TypeError
        An argument has the wrong type.
    ValueError
        A number is out of range, or a shape does not fit. Numbers in arrays are not checked.

    Notes
    -----
    top_p is nucleus sampling (Holtzman et al., arXiv 1904.09751), and min_p is from Nguyen et al., arXiv
    2407.01082. The softmax is from Milakov and Gimelshein, arXiv 1805.02867.

    Examples
    --------
    >>> import numpy as np, onsoftmax as ons
    >>> logits = np.array([1.0, 2, 3, 6, 2, 1], np.float32)
    >>> ons.filtered_softmax(logits, top_k=2).round(3)
    array([0.   , 0.   , 0.047, 0.953, 0.   , 0.   ], dtype=float32)
    """
    parameters = dict(zip(FILTERS, (temperature, top_k, top_p, min_p), strict=True))
    terms: dict[str, Any] = {
        "filter_apply_order": filter_apply_order,
        "axis": axis,
        "where": where,
        "method": method,
        "stream": stream,
        "num_threads": num_threads,
    }
    found = filtered(logits, parameters, **terms)
    return found(logits, **parameters, **terms) if callable(found) else found
