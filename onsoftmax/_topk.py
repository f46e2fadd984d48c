"""softmax_topk: the k largest probabilities of each row, and where they are."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, SupportsIndex, overload

from . import _core
from ._normalizer import Normalizer
from ._types import MethodName


class TopK(NamedTuple):
    """What softmax_topk gives: two arrays with k elements along the axis."""

    values: Any
    """The k largest probabilities of each row, or their logarithms."""
    indices: Any
    """Their places along the axis."""


class TopKWithNormalizer(NamedTuple):
    """What softmax_topk gives with return_normalizer=True."""

    values: Any
    """The k largest probabilities of each row, or their logarithms."""
    indices: Any
    """Their places along the axis."""
    normalizer: Normalizer
    """The (m, d) of the rows."""


@overload
def softmax_topk(
    array: Any,
    /,
    k: SupportsIndex,
    axis: int | tuple[int] = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: Literal[False] = False,
    method: MethodName = "auto",
    dtype: Any = None,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopK: ...
@overload
def softmax_topk(
    array: Any,
    /,
    k: SupportsIndex,
    axis: int | tuple[int] = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: Literal[True],
    method: MethodName = "auto",
    dtype: Any = None,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopKWithNormalizer: ...
def softmax_topk(
    array: Any,
    /,
    k: SupportsIndex,
    axis: int | tuple[int] = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: bool = False,
    method: MethodName = "auto",
    dtype: Any = None,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
    **others: Any,
) -> TopK | TopKWithNormalizer:
    """The k largest values of softmax(scale * array) along an axis, and their places, in one read.

    Parameters
    ----------
    array : array_like, any shape
        Logits, dimensionless, as softmax takes them.
    k : int
        How many of each row, from 1 to its length.
    axis : int
        What is taken as one row: one axis, the last by default. A tuple of one int will do.
    log : bool
        Whether the values are those of log_softmax.
    sorted : bool
        Whether the values are in descending order. Without it the order is any; the k are the same.
    return_normalizer : bool
        Whether the result has the normalizer of each row too.
    method : str
        online or split, and on a GPU fused_warp or cluster too; auto picks for the shape (see plan()).
        A GPU gives a k above 1024 by online alone, which reads the array several times then.
    dtype : dtype, optional
        The type of the values; by default that of the array.
    where : array of bool that broadcasts to the array, optional
        False excludes an element: it comes after all others but -inf, its value is 0, or -inf with log.
    scale : float, or array that broadcasts with length 1 along axis
        Multiplies the logits first. A negative one turns the order round.
    stream, num_threads
        As softmax takes them.

    Returns
    -------
    TopK
        The named tuple (values, indices): arrays of the array's kind and shape, with k elements along axis.
        Of equal elements that with the lower index is first, -0.0 equals 0.0, and NaN is the largest. Indices
        count from 0 and are int64; int32 in JAX without jax_enable_x64. A row with a NaN or +inf, or with
        nothing but -inf, has values of NaN.
    TopKWithNormalizer
        The same with a third field, the Normalizer of the rows, where return_normalizer is true.

    Raises
    ------
    ValueError
        k is below 1 or above the row's length; more axes than one; what softmax refuses.
    TypeError
        k is no int; axis is None; what softmax refuses.
    AxisError, BufferError, RuntimeError, MemoryError
        As softmax.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018):
    algorithm 4 (page 5).

    Examples
    --------
    >>> import onsoftmax as ons
    >>> values, indices = ons.softmax_topk([1.0, 2.0, 3.0, 6.0, 2.0, 1.0], 2)
    >>> values.round(4), indices
    (array([0.9092, 0.0453]), array([3, 2]))
    """
    dtypes: list[str] = []
    found = _core.softmax_topk(
        array,
        k,
        axis,
        method=method,  # in the order in which the core looks for them
        dtype=dtype,
        where=where,
        scale=scale,
        stream=stream,
        num_threads=num_threads,
        log=log,
        sorted=sorted,
        return_normalizer=return_normalizer,
        dtypes=dtypes if return_normalizer else None,
        **others,  # which it refuses
    )
    if not return_normalizer:
        return TopK(*found)
    packed = _core.pack(found[2], stream=stream)
    return TopKWithNormalizer(found[0], found[1], Normalizer(packed, axis, scale, dtypes[0]))
