"""What onsoftmax.dask does with the chunks of an array: NumPy arrays, or CuPy arrays on a GPU.

An `axis` is a tuple of dimensions, counted from the front. `arrays` are where and scale, as far as `names`
lists them. They have as many dimensions as the chunk. Each dimension has the chunk's length or length 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._normalizer import Normalizer, is_exact

_Axes = tuple[int, ...]

# The elements converted at a time. A copy of this many elements takes little memory and stays in the caches.
_PIECE_ELEMENTS = 2**18


def whole_rows(x: Any, *arrays: Any, names: tuple[str, ...], operation: str, **keywords: Any) -> Any:
    """softmax, log_softmax or logsumexp of a chunk of whole rows."""
    return getattr(_core, operation)(x, **dict(zip(names, arrays, strict=True)), **keywords)


def states(
    x: Any,
    *arrays: Any,
    names: tuple[str, ...],
    axis: _Axes,
    arithmetic: str,
    num_threads: int | None,
    where: Any = True,
    scale: Any = 1.0,
) -> Any:
    """The packed states of the rows of a chunk. Their shape is the chunk's, with 1 along axis and 5 at the
    end."""
    given = {"where": where, "scale": scale, **dict(zip(names, arrays, strict=True))}
    if not arrays and where is True and scale == 1 and (arithmetic == "float32" or x.dtype == arithmetic):
        return _sums(x, axis, num_threads)
    return _converted(x, given["where"], given["scale"], axis, np.dtype(arithmetic), num_threads)


def exact_states(x: Any, *arrays: Any, names: tuple[str, ...], axis: _Axes, **keywords: Any) -> Any:
    """The states of the rows of a chunk for method="exact", with 4 at the end."""
    given = dict(zip(names, arrays, strict=True))
    found = _core.normalizer(x, axis, method="exact", **given, **keywords)
    return found.reshape((*_rows_shape(x.shape, axis), found.shape[-1]))


def as_it_is(states: Any, axis: _Axes, keepdims: bool) -> Any:
    """The function that da.reduction calls on each chunk first."""
    return states


def merged(states: Any, axis: _Axes, keepdims: bool) -> Any:
    """Merges states that lie side by side along axis into one state, for da.reduction."""
    return _core.merge(states, axis).reshape((*_rows_shape(states.shape[:-1], axis), states.shape[-1]))


def finished(x: Any, states: Any, *arrays: Any, names: tuple[str, ...], axis: _Axes, **keywords: Any) -> Any:
    """softmax or log_softmax at the elements of a chunk, from the states of the whole rows."""
    rows = _without(axis, states)
    pairs = rows if is_exact(rows) else _core.merge(rows, gives="pair")
    return _core.finish(x, axis, pairs=pairs, **dict(zip(names, arrays, strict=True)), **keywords)


def values(states: Any, *, axis: _Axes, dtype: str) -> Any:
    """logsumexp of whole rows, with length 1 along axis."""
    found = Normalizer.from_packed(_without(axis, states), dtype=dtype).logsumexp()
    return found.reshape(states.shape[:-1])


def _rows_shape(shape: _Axes, axis: _Axes) -> _Axes:
    """With length 1 along axis."""
    return tuple(1 if dim in axis else length for dim, length in enumerate(shape))


def _without(axis: _Axes, states: Any) -> Any:
    return states.reshape([length for dim, length in enumerate(states.shape) if dim not in axis])


def _sums(x: Any, axis: _Axes, num_threads: int | None) -> Any:
    found = _core.sums(x, axis, num_threads=num_threads)
    return found.reshape((*_rows_shape(x.shape, axis), found.shape[-1]))


def _converted(
    x: Any, where: Any, scale: Any, axis: _Axes, arithmetic: np.dtype[Any], num_threads: int | None
) -> Any:
    """The states of a chunk whose elements are scaled, converted or masked first.

    States do not depend on cuts, so a chunk is halved until the part to convert is small.
    """
    if x.size > _PIECE_ELEMENTS:
        dim = int(np.argmax(x.shape))
        middle = x.shape[dim] // 2
        first, second = (
            _converted(
                _part(x, dim, half),
                _part(where, dim, half),
                _part(scale, dim, half),
                axis,
                arithmetic,
                num_threads,
            )
            for half in (slice(middle), slice(middle, None))
        )
        return _core.merge(first, other=second) if dim in axis else np.concatenate((first, second), dim)
    with np.errstate(over="ignore", invalid="ignore"):
        products = (x.astype(np.float64) * scale).astype(arithmetic)  # rounded once, as everywhere
    if where is not True:
        products = np.where(where, products, arithmetic.type(-np.inf))
    return _sums(products, axis, num_threads)


def _part(array: Any, dim: int, half: slice) -> Any:
    """The half of a chunk, or of its mask or scale, which may be a number."""
    whole = np.ndim(array) == 0 or array.shape[dim] == 1
    return array if whole else array[(slice(None),) * dim + (half,)]
