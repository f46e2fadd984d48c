"""softmax, log_softmax and logsumexp of Dask arrays, lazily. Rows may be cut in chunks.

>>> import dask.array as da, onsoftmax.dask  # doctest: +SKIP
>>> y = onsoftmax.dask.softmax(x)  # doctest: +SKIP
>>> da.store(y, on_disk)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from ._dask.call import Call
except ImportError as error:
    raise ImportError('onsoftmax.dask needs Dask: pip install "dask[array]>=2025.1"') from error

if TYPE_CHECKING:
    from dask.array import Array

    from ._types import Axis, DType, MethodName

__all__ = ["log_softmax", "logsumexp", "softmax"]


def softmax(
    array: Any,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    where: Any = None,
    scale: Any = 1.0,
    num_threads: int | None = None,
) -> Array:
    """Softmax of a Dask array, lazily.

    If the rows lie in one chunk along `axis`, each chunk is read once.

    If the rows are cut, each chunk is read twice. The first reading computes the state of each of its rows:
    the maximum, and the sum of the exponentials. After the states of all chunks have been merged, the second
    reading makes the result. A worker holds one chunk and its result at a time. If Dask uses threads, each
    thread is a worker. Between the readings only the states are kept: 40 bytes for each row of each chunk.

    Parameters
    ----------
    array : dask.array.Array, or anything that dask.array.asarray takes
        Its chunks are NumPy or CuPy arrays of type float16, bfloat16, float32 or float64. Integers and bool
        become float64. The lengths of chunks may be unknown (nan).
    axis : int, tuple of ints, or None
        The axis or axes that form a row. None means all axes.
    method : str
        As in `onsoftmax.softmax` if the rows lie in one chunk. If they are cut, it is 'auto', 'invariant'
        or 'exact'. 'exact' gives the bits of whole rows, and reads a chunk once more while it is in memory.
    dtype : dtype, optional
        The result's type: one of the four.
    where : mask of bool that broadcasts, optional
    scale : float, or array that broadcasts with length 1 along axis
        As in `onsoftmax.softmax`. An array here is a Dask array, or an array of the same library as the
        chunks. It is cut into the same chunks as `array`.
    num_threads : int, optional
        The threads for one chunk on the CPU. None means 1, since Dask computes several chunks side by side.

    Returns
    -------
    dask.array.Array
        It has the chunks of `array`.

    Raises
    ------
    ValueError, TypeError, AxisError
        As in `onsoftmax.softmax`, when this function is called, not when the result is computed. ValueError
        is also raised if rows are cut and another method is named. It is raised if a length is unknown in
        `where` or `scale` but known in `array`, or the other way round.
    RuntimeError
        Dask's option array.query-planning is on.

    Notes
    -----
    Reading a chunk means computing everything that the graph of `array` has for it. Dask keeps the result of
    a task until its last use, so the second reading has tasks of its own. They begin when the states of their
    rows are there. The source must give the same numbers both times. Chunks that are in memory already, as
    after ``array.persist()``, are neither computed again nor copied.

    The bits do not depend on where the rows are cut, or on the number of chunks, as in
    `onsoftmax.distributed`. Exceptions are float64 rows with abs(m) above 2^40, and rows of more than 2^29
    elements. Rows in one chunk give the same bits as `onsoftmax.softmax`. Cut rows give other bits in the
    last place of some elements. With ``method="exact"`` both give the same bits.

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
    array: Any,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    where: Any = None,
    scale: Any = 1.0,
    num_threads: int | None = None,
) -> Array:
    """The logarithm of softmax of a Dask array, lazily. All else is as in `softmax`."""
    return Call("log_softmax", array, axis, method, where, scale, num_threads, dtype).rows()


def logsumexp(
    array: Any,
    /,
    axis: Axis = -1,
    *,
    keepdims: bool = False,
    method: MethodName = "auto",
    where: Any = None,
    scale: Any = 1.0,
    num_threads: int | None = None,
) -> Array:
    """log(sum(exp(x))) of each row of a Dask array, lazily. Each chunk is read once.

    The result has the array's shape without `axis`. With `keepdims`, `axis` has length 1. All else is as in
    `softmax`.

    Examples
    --------
    >>> import dask.array as da, onsoftmax.dask
    >>> x = da.from_array([1.0, 2.0, 3.0, 6.0, 2.0, 1.0], chunks=3)
    >>> float(onsoftmax.dask.logsumexp(x).compute().round(4))
    6.0952
    """
    call = Call("logsumexp", array, axis, method, where, scale, num_threads)
    return call.values(keepdims)
