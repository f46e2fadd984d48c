"""route: the router of a mixture of experts. It chooses k experts for each row of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from . import _core
from ._libraries.kinds import index_dtype_name
from ._libraries.values import float_of, int_of
from ._losses import _prepared, _real_type
from ._types import Score

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._types import ArrayLike

SCORES: tuple[Score, ...] = get_args(Score)
_METHODS = ("auto", "invariant")
_INDEX_BITS = {"int32": 32, "int64": 64}
ALL_GROUPS = -(2**63)  # in place of top_groups


class Route(NamedTuple):
    """The result of route: two arrays with k elements along the axis."""

    weights: Any
    """The weights of the k experts of each row."""
    indices: Any
    """Their indices along the axis."""


def check_method(function: str, method: str) -> None:
    if method not in _METHODS:
        raise ValueError(
            f"method is {method!r}: expected 'auto' or 'invariant', since {function} has one method"
        )


def check_names(score: str, method: str) -> None:
    if score not in SCORES:
        raise ValueError(f"score is {score!r}: expected 'softmax', 'sigmoid', 'sqrtsoftplus' or 'none'")
    check_method("route", method)


def check_groups(
    k: Any, length: Any, groups: Any, top_groups: Any, holds: Callable[[Any], bool] = bool
) -> None:
    """Checks numbers that may be symbols, as the core checks numbers."""
    if not (holds(groups >= 1) and holds(length % groups == 0)):
        raise ValueError(f"groups is {groups}: expected a divisor of the {length} experts")
    if not (holds(top_groups >= 1) and holds(top_groups <= groups)):
        raise ValueError(f"top_groups is {top_groups}: expected 1 to {groups}, the number of groups")
    each = length // groups
    if not holds(k <= each * top_groups):
        raise ValueError(
            f"k is {k}, and {top_groups} groups of {each} experts have {each * top_groups} experts: "
            f"expected at most {each * top_groups}"
        )


def routed(
    logits: Any,
    k: int,
    axis: int = -1,
    *,
    score: Score = "softmax",
    bias: Any = None,
    groups: int = 1,
    top_groups: int | None = None,
    renormalize: bool = True,
    scale: float = 1.0,
    index_dtype: Any = None,
    where: Any = None,
    method: str = "auto",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """(weights, indices). If an operator of torch or JAX must take the arrays, the result is this operator
    instead."""
    check_names(score, method)
    if bias is not None:
        bias = _prepared("bias", bias, _real_type(logits))
    return _core.route(
        logits,
        k,
        int_of("axis", axis),
        SCORES.index(score),
        bias,
        int_of("groups", groups),
        ALL_GROUPS if top_groups is None else int_of("top_groups", top_groups),
        renormalize,
        float_of("scale", scale),
        where,
        0 if index_dtype is None else _INDEX_BITS[index_dtype_name(index_dtype)],
        method == "invariant",
        stream,
        num_threads,
    )


def route(
    logits: ArrayLike,
    /,
    k: int,
    axis: int = -1,
    *,
    score: Score = "softmax",
    bias: ArrayLike | None = None,
    groups: int = 1,
    top_groups: int | None = None,
    renormalize: bool = True,
    scale: float = 1.0,
    index_dtype: Any = None,
    where: ArrayLike | None = None,
    method: str = "auto",
    stream: Any = None,
    num_threads: int | None = None,
) -> Route:
    """The k experts of each row of router logits, and their weights.

    A layer of a mixture of experts begins with this step. It takes the place of a softmax, a top-k, a gather
    and a division. A GPU reads the logits once and starts one kernel, if a row has up to 1024 experts in up
    to 32 groups.

    Each expert has a score. The k largest scores choose the experts, after `bias` is added to them. The
    weights are the scores without the bias.

    Parameters
    ----------
    logits : array_like, any shape
        One logit for each expert along `axis`.
    k : int
        Number of experts to choose per row.
    axis : int
        The axis of the experts. The last axis by default.
    score : {"softmax", "sigmoid", "sqrtsoftplus", "none"}
        The score of a logit x: softmax over all experts, 1 / (1 + exp(-x)), sqrt(log(1 + exp(x))), or x.
    bias : array_like of length N, optional
        A number for each expert. It is added to the score for the choice, but not for the weights.
    groups, top_groups : int
        The experts lie in `groups` equal groups, side by side. Only experts of the `top_groups` best groups
        can be chosen. None means all groups. The value of a group is its largest score. With a bias, it is
        the sum of the two largest numbers score + bias in the group.
    renormalize : bool
        Whether the weights of a row are divided by their sum. If the sum is 0, the weights stay 0. If score
        is "none", the weights are the softmax of the k logits.
    scale : float
        The weights are multiplied by this factor at the end.
    index_dtype : dtype, optional
        int32 or int64. By default int64, or int32 in JAX without jax_enable_x64.
    where : array of bool that broadcasts to logits, optional
        False excludes an expert. Its weight is 0, it has no part in the value of its group, and it comes
        after all other experts.
    method : {"auto", "invariant"}
        Both give a row the same bits in any batch.
    stream, num_threads
        As softmax takes them.

    Returns
    -------
    Route
        The named tuple (weights, indices), with k elements along axis. The expert with the largest score, or
        with a bias the largest score + bias, comes first. If two experts are equal, the lower index comes
        first. The same holds for two groups. NaN counts as the largest number.
        Weights are float32, or float64 for float64 logits.

    Raises
    ------
    TypeError
        An argument has the wrong type.
    ValueError
        An argument is out of range, k is larger than the number of experts in the chosen groups, or a shape
        does not fit.

    Notes
    -----
    The algorithm is algorithm 4 of Milakov and Gimelshein, arXiv 1805.02867. DeepSeek-V2 (arXiv 2405.04434)
    and DeepSeek-V3 (arXiv 2412.19437) introduced the groups.

    Examples
    --------
    >>> import numpy as np, onsoftmax as ons
    >>> weights, indices = ons.route(np.array([[1.0, 2, 3, 6, 2, 1]], np.float32), 2)
    >>> weights.round(3), indices
    (array([[0.953, 0.047]], dtype=float32), array([[3, 2]]))
    """
    terms: dict[str, Any] = {
        "score": score,
        "bias": bias,
        "groups": groups,
        "top_groups": top_groups,
        "renormalize": renormalize,
        "scale": scale,
        "index_dtype": index_dtype,
        "where": where,
        "method": method,
        "stream": stream,
        "num_threads": num_threads,
    }
    found = routed(logits, k, axis, **terms)
    if isinstance(found, tuple):
        return Route(*found)
    by_operator: Route = found(logits, k, axis, **terms)
    return by_operator
