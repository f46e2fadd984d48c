"""logprob: the log-probabilities of some elements of each row, and what else the same read can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, overload

from . import _core
from ._libraries.values import check_topk, int_of
from ._losses import _prepared
from ._topk import TopK

if TYPE_CHECKING:
    from ._types import ArrayLike, HasDLPack

    _Array = TypeVar("_Array", bound=HasDLPack)


class LogProb(NamedTuple):
    """The result of logprob if more than log-probabilities is wanted. Fields that are not wanted are None."""

    logprob: Any
    """The log-probabilities, in the shape of index."""
    entropy: Any = None
    """The entropy of each row in nats."""
    lse: Any = None
    """The logsumexp of each row."""
    argmax: Any = None
    """The index of each row's largest element, of type int64."""
    rank: Any = None
    """The number of elements that are larger than the chosen one, of type int64."""
    topk: TopK | None = None
    """The k largest log-probabilities of each row, and their indices."""


@overload
def logprob(
    logits: _Array,
    index: ArrayLike,
    /,
    axis: int = -1,
    *,
    entropy: Literal[False] = False,
    lse: Literal[False] = False,
    argmax: Literal[False] = False,
    rank: Literal[False] = False,
    topk: Literal[0] = 0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def logprob(
    logits: ArrayLike,
    index: ArrayLike,
    /,
    axis: int = -1,
    *,
    entropy: bool = False,
    lse: bool = False,
    argmax: bool = False,
    rank: bool = False,
    topk: int = 0,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any: ...
def logprob(
    logits: ArrayLike,
    index: ArrayLike,
    /,
    axis: int = -1,
    *,
    entropy: bool = False,
    lse: bool = False,
    argmax: bool = False,
    rank: bool = False,
    topk: int = 0,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """The log-probability of one element of each row, or of several: logits[index] - logsumexp(logits).

    A GPU reads each row once for the log-probabilities, entropy, lse, argmax and rank. A CPU walks over it
    once more for entropy, argmax or rank. topk needs one more read. No array of the logits' size is written.

    torch's gradients flow to the logits from the log-probabilities, the entropy, the lse and the values of
    topk. torch has second derivatives too. A JAX tracer goes to onsoftmax.jax.logprob, which has first
    derivatives only. No gradient flows from argmax, rank and the indices of topk. The
    backward step reads the logits once and writes their gradient once. topk has a backward step of its own.

    Parameters
    ----------
    logits : array_like, of at least one dimension
        Dimensionless, as softmax takes them.
    index : array of integers
        The chosen element of each row, from 0 to N - 1, in the logits' shape without axis. With one more
        dimension at the end, there are several elements of each row. int32 and int64 are read as they are.
        If -100 marks rows that do not count, pass index.clip(0) and leave out the results of these rows.
    axis : int
        The axis along which the rows run.
    entropy : bool
        Whether to return the entropy -sum(p * log(p)) of each row, with p = softmax(row).
    lse : bool
        Whether to return the logsumexp of each row.
    argmax : bool
        Whether to return the index of each row's largest element: the first of equal ones, or the first NaN.
    rank : bool
        Whether to return how many elements of each row are larger than the chosen one. There must be one
        chosen element for each row.
    topk : int
        The number of largest log-probabilities to return, as softmax_topk(log=True) returns them; 0 for none.
    stream, num_threads
        As softmax takes them.

    Returns
    -------
    array of the logits' kind, or LogProb
        The log-probabilities in the shape of index, or a LogProb with all results that you asked for. Real
        numbers are float64 for float64 logits, and float32 for all other types. A row with a NaN or +inf, or
        with nothing but -inf, has NaN as its log-probability and entropy. An element that is -inf beside
        finite elements has the log-probability -inf, and adds 0 to the entropy.

    Raises
    ------
    IndexError
        An index on the CPU is out of range. On a GPU, the log-probability of such an index is NaN and its
        rank is -1, since an exception would have to wait for the GPU. The same holds inside jax.jit.
    ValueError
        The shape of index does not fit, rank is wanted for several elements of each row, topk is out of its
        range, or the arrays are on different devices.
    TypeError
        The index does not have an integer type, or an array has a type that softmax does not take.

    Examples
    --------
    >>> import onsoftmax as ons
    >>> float(ons.logprob([1.0, 2.0, 3.0, 6.0, 2.0, 1.0], 3).round(4))
    -0.0952
    >>> found = ons.logprob([1.0, 2.0, 3.0, 6.0, 2.0, 1.0], [2, 4], entropy=True)
    >>> found.logprob.round(4), float(found.entropy.round(4))
    (array([-3.0952, -4.0952]), 0.4255)
    """
    if int_of("topk", topk) < 0:
        raise ValueError(f"topk is {topk}: expected at least 0")
    of_index = _prepared("index", index, ("int64", "int32"))
    found = _core.logprob(logits, of_index, axis, entropy, lse, argmax, rank, False, stream, num_threads)
    if not isinstance(found, tuple):  # an operator of torch or JAX
        return found(
            logits,
            index,
            axis,
            entropy=entropy,
            lse=lse,
            argmax=argmax,
            rank=rank,
            topk=topk,
            stream=stream,
            num_threads=num_threads,
        )
    if not (entropy or lse or argmax or rank or topk):
        return found[0]
    largest = None
    if topk:
        check_topk(topk, logits, axis)
        dtype = "float64" if str(found[0].dtype).endswith("float64") else "float32"
        largest = _core.softmax_topk(
            logits, topk, axis, log=True, dtype=dtype, stream=stream, num_threads=num_threads
        )
    return LogProb._make((*found[:5], largest))
