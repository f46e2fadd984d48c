"""The running (m, d) of rows as a value. The (m, d) of a row's parts merge to the (m, d) of the row."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np

from . import _core
from ._libraries import as_numpy
from ._libraries.kinds import dtype_name, gpu_of
from ._libraries.values import plain_axes
from ._topk import TopK, TopKWithNormalizer
from ._types import DTYPES

if TYPE_CHECKING:
    import typing_extensions
    from numpy.typing import NDArray

    from ._types import AnyDType, ArrayLike, Axis, Convertible, DType, HasDLPack, NormalizerMethod, NumPyLike

    _Array = TypeVar("_Array", bound=HasDLPack)
    _Float = TypeVar("_Float", bound=np.floating[Any])
    _Result = typing_extensions.TypeVar("_Result", bound=np.floating[Any], default=_Float)
    _Kind = typing_extensions.TypeVar("_Kind", covariant=True, default=Any)
else:  # Python 3.10 has no TypeVar with a default
    _Kind = TypeVar("_Kind")


def is_exact(packed: Any) -> bool:
    """Whether packed states are states of method="exact". They have 4 values a row."""
    return bool(packed.shape[-1:] == (4,))


@dataclass(frozen=True, eq=False, repr=False)
class Normalizer(Generic[_Kind]):
    """The maximum m and the normalizer d = sum(exp(x - m)) of every row, over the parts seen so far.

    `normalizer` makes one from an array, `from_packed` from a packed state, and `empty` from nothing.
    `merge`, `update` and `merge_all` add further parts. A Normalizer never changes. Its arrays have the
    library and the device of the array that it was made from.

    For rows up to 2^29 elements, the bits do not depend on the order or the grouping of the merges, since a
    merge adds up integers. There is one exception: in float64 rows with abs(m) above 2^40, merging two parts
    whose maxima differ by less than 746 can round, by up to 2 eps.

    The place where a row is cut can change the last bits, since it changes how the sums inside the parts
    round. On the CPU, softmax of float16, bfloat16 and float32 rows has the bits of ``method="online"`` if
    abs(m) is at most 16384 and all parts but the last have a length that is a multiple of 128. A part's d is
    rounded to float64, which changes about one element of 2^27, by 1 eps. With other cuts softmax lies within
    4 eps of the exact result, as it does without cuts. In float64 it lies within 5 eps, or within 8 eps if
    abs(m) is above 16384.

    With ``method="exact"`` the Normalizer keeps the sum in two doubles. Its softmax, log_softmax and
    logsumexp are the exact results of the whole rows, rounded once. They have the bits of
    ``onsoftmax.softmax(..., method="exact")``, whatever the cuts, merges and devices.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018), section
    3.1: the merge.

    Examples
    --------
    >>> import onsoftmax as ons
    >>> row = ons.normalizer([1.0, 2.0, 3.0]).merge(ons.normalizer([6.0, 2.0, 1.0]))
    >>> float(row.m), float(row.d.round(4))
    (6.0, 1.0999)
    >>> row.softmax([1.0, 2.0, 3.0]).round(4)
    array([0.0061, 0.0167, 0.0453])
    """

    # By hand: with slots=True some Pythons raise TypeError for an attribute that is no field (cpython 105936)
    __slots__ = ("axis", "dtype", "method", "packed", "scale")

    packed: _Kind
    """The state as one float64 array, for any transport: m, and d in four parts (csrc/api/packed.h). Its
    shape is the rows' shape followed by 5, or by 4 for ``method="exact"``: m, the number of elements equal to
    m, and the sum of the other exponentials in two doubles. Read-only."""
    axis: Axis
    """The axis or axes that form a row of a chunk."""
    scale: Any
    """The factor of the elements: a number or an array. The Normalizer keeps a read-only NumPy copy of an
    array or a list on the CPU. It keeps an array on a GPU without a copy. Do not write to such an array."""
    dtype: str | None
    """The name of the rows' type. logsumexp() has the same type. None if the state came packed and no type
    was given. Then the first chunk or Normalizer that is merged with this one sets the type."""
    method: NormalizerMethod
    """The method by which `update` adds further chunks: "auto", "invariant" or "exact". A state that came
    packed has "exact" or "auto"."""

    def __post_init__(self) -> None:
        if isinstance(self.packed, np.ndarray):
            object.__setattr__(self, "packed", _read_only(self.packed.view()))
        object.__setattr__(self, "scale", _kept(self.scale))

    def __reduce__(self) -> tuple[Any, ...]:
        return Normalizer, (self.packed, self.axis, self.scale, self.dtype, self.method)

    @property
    def m(self) -> _Kind | Any:
        """The largest element of each row, float64. NaN if the row has a NaN, -inf if the row has no
        elements."""
        return _core.merge(self.packed, gives="m")

    @property
    def d(self) -> _Kind | Any:
        """sum(exp(x - m)) of each row, float64. 0 if m is -inf, NaN if m is NaN or inf.

        On the CPU d is exactly n for a row of n equal elements.
        """
        return _core.merge(self.packed, gives="d", dtype=self.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The rows' shape: the shape of a chunk without axis."""
        packed: Any = self.packed
        return tuple(packed.shape[:-1])

    def __repr__(self) -> str:
        return (
            f"Normalizer(m={self.m!r}, d={self.d!r}, axis={self.axis!r}, scale={self.scale!r}, "
            f"dtype={self.dtype!r})"
        )

    def merge(self, other: Normalizer, /, *, stream: Any = None) -> Normalizer[_Kind]:
        """The Normalizer of longer rows: each row of this Normalizer, followed by the same row of other. The
        order of the two does not matter. Merging an empty Normalizer changes nothing.

        The rows of both must have one shape, type and scale, and lie on one device. Both or none must be of
        ``method="exact"``. Otherwise ValueError is raised. If one type is None, the result has the other
        type. Anything but a Normalizer raises TypeError. Two scales are the same if they are equal numbers,
        or arrays of one shape with equal numbers. Here NaN equals NaN. Scales on a GPU must be one object.
        The result has the kind, the axis and the method of this Normalizer. `stream` is as in
        `onsoftmax.softmax`.
        """
        if not isinstance(other, Normalizer):
            raise TypeError(f"other is of type {type(other).__name__}: expected a Normalizer")
        if not _same_scale(self.scale, other.scale):
            one = ", the same object" if gpu_of(self.scale) is not None else ""
            raise ValueError(
                f"other has scale {other.scale!r}: expected this Normalizer's scale, {self.scale!r}{one}"
            )
        if None not in (self.dtype, other.dtype) and self.dtype != other.dtype:
            raise ValueError(f"other is of {other.dtype} rows: expected this Normalizer's type, {self.dtype}")
        if is_exact(self.packed) != is_exact(other.packed):
            raise ValueError(
                f"other has method {other.method!r}: expected this Normalizer's method, {self.method!r}"
            )
        packed = _core.merge(self.packed, other=other.packed, stream=stream)
        return Normalizer(packed, self.axis, self.scale, self.dtype or other.dtype, self.method)

    def update(
        self,
        chunk: ArrayLike,
        /,
        *,
        where: ArrayLike | None = None,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> Normalizer[_Kind]:
        """This Normalizer merged with the Normalizer of a further chunk of the rows.

        Parameters and errors are as in `normalizer` and `merge`. The axis, the scale and the method are this
        Normalizer's. Lists, numbers, and NumPy arrays of integers or bools are converted to the Normalizer's
        type.

        Examples
        --------
        >>> import onsoftmax as ons
        >>> row = ons.normalizer([1.0, 2.0, 3.0]).update([6.0, 2.0]).update([1.0])
        >>> float(row.d.round(4))
        1.0999
        """
        further = normalizer(
            _of_type(chunk, self.dtype),
            self.axis,
            method=self.method,
            where=where,
            scale=self.scale,
            stream=stream,
            num_threads=num_threads,
        )
        if self.dtype not in (None, further.dtype):
            raise ValueError(f"chunk is of {further.dtype}: expected this Normalizer's type, {self.dtype}")
        return self.merge(further, stream=stream)

    @overload
    def softmax(
        self,
        chunk: NDArray[_Float],
        /,
        *,
        dtype: type[_Result] | np.dtype[_Result] | None = None,
        out: NDArray[_Result] | None = None,
        where: ArrayLike | None = None,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[_Result]: ...
    @overload
    def softmax(
        self,
        chunk: NumPyLike,
        /,
        *,
        dtype: AnyDType | type[float] = None,
        out: NDArray[np.floating[Any]] | None = None,
        where: ArrayLike | None = None,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[np.floating[Any]]: ...
    @overload
    def softmax(
        self,
        chunk: _Array,
        /,
        *,
        dtype: DType = None,
        out: _Array | None = None,
        where: ArrayLike | None = None,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> _Array: ...
    @overload
    def softmax(
        self,
        chunk: Convertible,
        /,
        *,
        dtype: DType = None,
        out: Any = None,
        where: ArrayLike | None = None,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[np.floating[Any]] | Any: ...
    def softmax(
        self,
        chunk: Any,
        /,
        *,
        dtype: Any = None,
        out: Any = None,
        where: Any = None,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> Any:
        """The softmax of the whole rows, at the elements of a chunk.

        Parameters
        ----------
        chunk : array_like
            A part of the rows that this Normalizer describes. No element may be above m. The chunk's type may
            differ from the type of the rows. If it does, the chunk is multiplied by the scale in the type of
            the rows, and the results are no more exact than that type.
        dtype, out, where, stream, num_threads : optional
            As `onsoftmax.softmax` takes them.

        Returns
        -------
        array of the chunk's shape and kind
            NaN in rows with NaN or +inf, and in rows of -inf alone. 0 where `where` is False.

        Raises
        ------
        ValueError
            The chunk has rows of another shape, or is on another device. Also the errors of
            `onsoftmax.softmax`.

        Examples
        --------
        >>> import onsoftmax as ons
        >>> row = ons.normalizer([1.0, 2.0, 3.0, 6.0, 2.0, 1.0])
        >>> row.softmax([6.0, 2.0, 1.0]).round(4)
        array([0.9092, 0.0167, 0.0061])
        """
        return self._finish("softmax", chunk, dtype, out, where, stream, num_threads)

    @overload
    def log_softmax(
        self,
        chunk: NDArray[_Float],
        /,
        *,
        dtype: type[_Result] | np.dtype[_Result] | None = None,
        out: NDArray[_Result] | None = None,
        where: ArrayLike | None = None,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[_Result]: ...
    @overload
    def log_softmax(
        self,
        chunk: NumPyLike,
        /,
        *,
        dtype: AnyDType | type[float] = None,
        out: NDArray[np.floating[Any]] | None = None,
        where: ArrayLike | None = None,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[np.floating[Any]]: ...
    @overload
    def log_softmax(
        self,
        chunk: _Array,
        /,
        *,
        dtype: DType = None,
        out: _Array | None = None,
        where: ArrayLike | None = None,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> _Array: ...
    @overload
    def log_softmax(
        self,
        chunk: Convertible,
        /,
        *,
        dtype: DType = None,
        out: Any = None,
        where: ArrayLike | None = None,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[np.floating[Any]] | Any: ...
    def log_softmax(
        self,
        chunk: Any,
        /,
        *,
        dtype: Any = None,
        out: Any = None,
        where: Any = None,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> Any:
        """The log_softmax of the whole rows, at the elements of a chunk. All else is as in `softmax`.

        Examples
        --------
        >>> import onsoftmax as ons
        >>> ons.normalizer([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).log_softmax([6.0, 2.0, 1.0]).round(4)
        array([-0.0952, -4.0952, -5.0952])
        """
        return self._finish("log_softmax", chunk, dtype, out, where, stream, num_threads)

    @overload
    def logsumexp(
        self: Normalizer[NDArray[np.float64]], *, stream: Any = None
    ) -> NDArray[np.floating[Any]] | Any: ...
    @overload
    def logsumexp(self, *, stream: Any = None) -> _Kind: ...
    def logsumexp(self, *, stream: Any = None) -> Any:
        """log(sum(exp(x))) of each row. It has the rows' type. If this type is not known, it is float64, or
        float32 for ``method="exact"``. It is m if m is -inf, inf or NaN.

        Examples
        --------
        >>> import onsoftmax as ons
        >>> float(ons.normalizer([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).logsumexp().round(4))
        6.0952
        """
        dtype = self.dtype or ("float32" if self.method == "exact" else "float64")
        rows = _core.empty(self.packed, (*self.shape, 0), dtype=dtype)
        return _core.finish(rows, pairs=self._pairs(stream), operation="logsumexp", stream=stream)

    def _pairs(self, stream: Any) -> Any:
        """What finish takes: the rows' pairs, or the exact states as they are."""
        exact = is_exact(self.packed)
        return self.packed if exact else _core.merge(self.packed, gives="pair", stream=stream)

    def _finish(
        self,
        operation: str,
        chunk: Any,
        dtype: Any,
        out: Any,
        where: Any,
        stream: Any,
        num_threads: int | None,
    ) -> Any:
        return _core.finish(
            chunk,
            self.axis,
            pairs=self._pairs(stream),
            operation=operation,
            dtype=dtype,
            out=out,
            where=where,
            scale=self.scale,
            stream=stream,
            num_threads=num_threads,
            compute=self.dtype,
        )

    @staticmethod
    def from_packed(
        array: _Array, /, axis: Axis = -1, *, scale: ArrayLike = 1.0, dtype: DType = None
    ) -> Normalizer[_Array]:
        """The Normalizer of a packed state, on the device where its array is now.

        Parameters
        ----------
        array : array of float64, shape (..., 5) or, for ``method="exact"``, (..., 4)
            The `packed` of a Normalizer, however it came here. It is copied.
        axis, scale
            The arguments that `normalizer` was given. The packed state stores neither.
        dtype : dtype, optional
            The rows' type. If it is None, the first chunk or Normalizer that is merged with this one sets the
            type.

        Raises
        ------
        ValueError
            The array has another shape or type.
        TypeError
            axis is not an int, a tuple of ints or None, or dtype is not float16, bfloat16, float32 or
            float64.

        Examples
        --------
        >>> import numpy as np, onsoftmax as ons
        >>> sent = ons.normalizer([1.0, 2.0, 3.0]).packed.tobytes()
        >>> row = ons.Normalizer.from_packed(np.frombuffer(sent)).update([6.0, 2.0, 1.0])
        >>> float(row.d.round(4))
        1.0999
        """
        return Normalizer.merge_all(array, (), row_axis=axis, scale=scale, dtype=dtype)

    @staticmethod
    def merge_all(
        packed: _Array, /, axis: Axis = 0, *, row_axis: Axis = -1, scale: ArrayLike = 1.0, dtype: DType = None
    ) -> Normalizer[_Array]:
        """The Normalizer of packed states that are stacked along an axis. They are merged at once.

        `axis` is an int, a tuple of ints, or None for all axes. It does not count the last dimension, which
        has length 5, or 4 for ``method="exact"``. An axis out of bounds raises AxisError. If the axis has
        length 0, the result is the state of empty rows. `row_axis`, `scale` and
        `dtype` are the axis, scale and dtype of `from_packed`. The other errors are as in `from_packed`.

        Examples
        --------
        >>> import numpy as np, onsoftmax as ons
        >>> parts = [ons.normalizer(part).packed for part in ([1.0, 2.0], [3.0, 6.0], [2.0, 1.0])]
        >>> float(ons.Normalizer.merge_all(np.stack(parts)).d.round(4))
        1.0999
        """
        name = None if dtype is None else dtype_name(dtype)
        if name not in (None, *DTYPES):
            raise TypeError(f"dtype is {name}: expected float16, bfloat16, float32 or float64")
        given = getattr(packed, "dtype", None)
        if getattr(given, "kind", "f") in "iub":  # softmax takes these as floats
            raise ValueError(f"packed is of {given}: expected float64")
        merged = _core.merge(packed, axis)
        return Normalizer(merged, plain_axes(row_axis), scale, name, "exact" if is_exact(merged) else "auto")

    @staticmethod
    def empty(
        shape: int | Sequence[int],
        *,
        like: ArrayLike,
        axis: Axis = -1,
        method: NormalizerMethod = "auto",
        scale: ArrayLike = 1.0,
        dtype: DType = None,
    ) -> Normalizer:
        """The Normalizer of rows that have no elements yet: (-inf, 0).

        `shape` is the shape of the rows, without axis: an int, a tuple or a list. The rows have the library
        and the device of the array `like`, and its type unless `dtype` gives another one. `axis`, `method`
        and `scale` are as in `normalizer`. A negative length raises ValueError. TypeError is raised for a
        `like` that `onsoftmax.softmax` does not take, and for an `axis` or a `dtype` that
        `from_packed` does not take.

        Examples
        --------
        >>> import onsoftmax as ons
        >>> row = ons.Normalizer.empty((), like=0.0)
        >>> float(row.m), float(row.d), float(row.update([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).m)
        (-inf, 0.0, 6.0)
        """
        try:
            lengths = tuple(map(operator.index, shape if isinstance(shape, (tuple, list)) else (shape,)))
        except TypeError:
            raise TypeError(f"shape is {shape!r}: expected an int, or a tuple of ints") from None
        if any(length < 0 for length in lengths):
            raise ValueError(f"shape is {shape!r}: expected lengths of at least 0")
        none = normalizer(_core.empty(like, (*lengths, 0), dtype=dtype), method=method)
        return Normalizer(none.packed, plain_axes(axis), scale, none.dtype, method)


@overload
def normalizer(
    array: NumPyLike,
    /,
    axis: Axis = -1,
    *,
    method: NormalizerMethod = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> Normalizer[NDArray[np.float64]]: ...
@overload
def normalizer(
    array: _Array,
    /,
    axis: Axis = -1,
    *,
    method: NormalizerMethod = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> Normalizer[_Array]: ...
@overload
def normalizer(
    array: Convertible,
    /,
    axis: Axis = -1,
    *,
    method: NormalizerMethod = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> Normalizer: ...
def normalizer(
    array: Any,
    /,
    axis: Axis = -1,
    *,
    method: NormalizerMethod = "auto",
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> Normalizer[Any]:
    """The running (m, d) of every row of an array: its maximum m, and d = sum(exp(x - m)).

    The array may be a chunk of the rows. The call reads it once, or twice if method is exact. If the
    parts of a row lie in several chunks, processes or devices, each part gives its own (m, d). These
    merge to the (m, d) of the row. With the (m, d) of the row, the softmax of each part can be
    computed where the part lies.

    Parameters
    ----------
    array, axis, where, scale, stream, num_threads
        As `onsoftmax.softmax` takes them. The Normalizer keeps axis, scale and method for further chunks.
    method : str
        auto, invariant or exact. invariant gives the same bits in any batch, as in softmax. exact gives
        exact results, rounded once. exact takes float16, bfloat16 and float32.

    Returns
    -------
    Normalizer
        With arrays of the input's kind, on its device.

    Raises
    ------
    ValueError, TypeError, RuntimeError, MemoryError
        As `onsoftmax.softmax`. The state is float64, so a JAX array without jax_enable_x64 raises TypeError.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018): m and d
    as in its algorithm 3.

    Examples
    --------
    >>> import onsoftmax as ons
    >>> row = ons.normalizer([1.0, 2.0, 3.0, 6.0, 2.0, 1.0])
    >>> float(row.m), float(row.d.round(4)), float(row.logsumexp().round(4))
    (6.0, 1.0999, 6.0952)
    """
    if method not in ("auto", "invariant", "exact"):
        raise ValueError(f"method is {method!r}: expected 'auto', 'invariant' or 'exact'")
    dtypes: list[str] = []
    pairs = _core.normalizer(
        array,
        axis,
        method=method,
        where=where,
        scale=scale,
        stream=stream,
        num_threads=num_threads,
        dtypes=dtypes,
    )
    packed = pairs if method == "exact" else _core.pack(pairs, stream=stream)
    return Normalizer(packed, axis, scale, dtypes[0], method)


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _kept(scale: Any) -> Any:
    """A scale as a value that nobody changes. A scale on a GPU stays as it is."""
    if isinstance(scale, Real) or gpu_of(scale) is not None:
        return scale
    copy = as_numpy(scale).copy()
    return _read_only(copy) if copy.ndim else copy[()]


def _same_scale(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, Real) and isinstance(b, Real):
        return bool(a == b or (a != a and b != b))
    if gpu_of(a) is not None or gpu_of(b) is not None:
        return False
    return np.array_equal(a, b, equal_nan=True)


def _of_type(chunk: Any, name: str | None) -> Any:
    """The chunk as an array of the named type, if it is a list, a number or NumPy's integers. These have no
    floating type of their own."""
    array = np.asarray(chunk) if isinstance(chunk, (list, tuple, int, float)) else chunk
    if type(array) is not np.ndarray or array.dtype.kind not in ("iub" if array is chunk else "iubf"):
        return chunk
    made = _core.empty(array, array.shape, dtype=name)
    made[...] = array
    return made


def with_normalizer(
    found: TopK, array: Any, pairs: Any, dtype: str, stream: Any, keywords: dict[str, Any]
) -> TopKWithNormalizer:
    """The C core calls it for softmax_topk with return_normalizer=True.

    It adds the rows' Normalizer to a TopK, from their pairs, or from the array if pairs is None.
    """
    axis, scale = keywords.get("axis", -1), keywords.get("scale", 1.0)
    method: NormalizerMethod = "invariant" if keywords.get("method") == "invariant" else "auto"
    if pairs is None:
        same = {name: keywords[name] for name in ("where", "num_threads") if name in keywords}
        made = normalizer(array, axis, method=method, scale=scale, stream=stream, **same)
    else:
        made = Normalizer(_core.pack(pairs, stream=stream), axis, scale, dtype, method)
    return TopKWithNormalizer(found.values, found.indices, made)
