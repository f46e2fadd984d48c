"""softmax, log_softmax and logsumexp of Dask arrays, lazily: also of rows that are cut in chunks.

>>> import dask.array as da, onsoftmax.dask  # doctest: +SKIP
>>> y = onsoftmax.dask.softmax(x)  # doctest: +SKIP
>>> da.store(y, on_disk)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any, TypeAlias

try:
    from ._dask.call import Call
except ImportError as error:
    raise ImportError('onsoftmax.dask needs Dask: pip install "dask[array]>=2025.1"') from error

DaskArray: TypeAlias = Any
_Axis: TypeAlias = int | tuple[int, ...] | None


def softmax(
    array: DaskArray,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: Any = None,
    where: Any = None,
    scale: Any = 1.0,
    num_threads: int | None = None,
) -> DaskArray:
    """Softmax of a Dask array, lazily.

    Where the rows lie in one chunk along `axis`, each chunk is read once.

    Where they are cut, each chunk is read twice: for the states of its rows, and when the states of all
    chunks have been merged, for the result. A worker (of Dask's threads, each thread) holds one chunk and its
    result at a time. Between the readings nothing is kept but the states: 40 bytes for each row of each
    chunk.

    Parameters
    ----------
    array : dask.array.Array, or what dask.array.asarray takes
        Its chunks are of NumPy or CuPy. float16, bfloat16, float32 or float64; integers and bool become
        float64. Lengths may be unknown (nan).
    axis : int, tuple of ints, or None
        What is one row; None for all axes.
    method : str
        As in `onsoftmax.softmax` where the rows lie in one chunk; where they are cut, 'auto'.
    dtype : dtype, optional
        The result's type: one of the four.
    where : mask of bool that broadcasts, optional
    scale : float, or array that broadcasts with length 1 along axis
        As in `onsoftmax.softmax`. Arrays are of Dask, or of the kind of the chunks. They get the chunks of
        `array`.
    num_threads : int, optional
        The threads for one chunk on the CPU: 1 if None, as Dask computes several chunks side by side.

    Returns
    -------
    dask.array.Array
        With the chunks of `array`.

    Raises
    ------
    ValueError, TypeError, AxisError
        As in `onsoftmax.softmax`, when this is called, not when the result is computed. Also ValueError where
        rows are cut and a method is named; and where a length of `where` or `scale` is unknown and that of
        `array` is not, or the other way round.
    RuntimeError
        Dask's option array.query-planning is on.

    Notes
    -----
    To read a chunk is to compute all that the graph of `array` has for it. The second reading has tasks of
    its own, as Dask keeps what a task made until its last use. They begin when the states of their rows are
    there. The source must give the same numbers both times. What is in memory already, as after
    ``array.persist()``, is neither computed again nor copied.

    The bits do not depend on where the rows are cut, nor in how many chunks, as in `onsoftmax.distributed`.
    Excepted are float64 rows with an abs(m) above 2^40, and rows of more than 2^29 elements. Rows in one
    chunk have the bits of `onsoftmax.softmax`. They differ from those of cut rows in the last place of some
    elements: in float32 some 15 %, in float64 some 30 %.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018), section
    3.1: the merge. J. Demmel and H. D. Nguyen, Parallel reproducible summation, IEEE Transactions on
    Computers 64(7), 2015: the sum in digits.

    Examples
    --------
    >>> import dask.array as da, onsoftmax.dask
    >>> x = da.from_array([1.0, 2.0, 3.0, 6.0, 2.0, 1.0], chunks=3)
    >>> onsoftmax.dask.softmax(x).compute().round(4)
    array([0.0061, 0.0167, 0.0453, 0.9092, 0.0167, 0.0061])
    """
    return Call("softmax", array, axis, method, where, scale, num_threads, dtype).rows()


def log_softmax(
    array: DaskArray,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: Any = None,
    where: Any = None,
    scale: Any = 1.0,
    num_threads: int | None = None,
) -> DaskArray:
    """The logarithm of softmax of a Dask array, lazily. All else is as in `softmax`."""
    return Call("log_softmax", array, axis, method, where, scale, num_threads, dtype).rows()


def logsumexp(
    array: DaskArray,
    /,
    axis: _Axis = -1,
    *,
    keepdims: bool = False,
    method: str = "auto",
    where: Any = None,
    scale: Any = 1.0,
    num_threads: int | None = None,
) -> DaskArray:
    """log(sum(exp(x))) of each row of a Dask array, lazily. Each chunk is read once.

    The result has the array's shape without `axis`, or 1 there with `keepdims`. All else is as in `softmax`.

    >>> import dask.array as da, onsoftmax.dask
    >>> x = da.from_array([1.0, 2.0, 3.0, 6.0, 2.0, 1.0], chunks=3)
    >>> float(onsoftmax.dask.logsumexp(x).compute().round(4))
    6.0952
    """
    call = Call("logsumexp", array, axis, method, where, scale, num_threads)
    return call.values(keepdims)
