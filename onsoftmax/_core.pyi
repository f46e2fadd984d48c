from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, final, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from ._topk import TopK, TopKWithNormalizer
from ._types import (
    AnyDType,
    ArrayLike,
    Axis,
    Convertible,
    Counts,
    DType,
    HasDLPack,
    MethodName,
    Numbers,
    NumPyLike,
)

# tests/support/stubs.py writes the docstrings, and copies the overloads of a function for those that have the
# same parameters. Write everything else by hand.

_Array = TypeVar("_Array", bound=HasDLPack)
_Float = TypeVar("_Float", bound=np.floating[Any])
# The type of a result that neither dtype nor out says is the default.
_Result = TypeVar("_Result", bound=np.floating[Any], default=_Float)
_Double = TypeVar("_Double", bound=np.floating[Any], default=np.float64)
_Some = TypeVar("_Some", bound=np.floating[Any], default=np.floating[Any])
_Pair = tuple[float, float, float, float]

# Numbers that Python and C share: ons_library and ons_role of csrc, flags of csrc/xla, and some more.
NUMPY: int
TORCH: int
JAX: int
CUPY: int
BY_OPERATOR: int
X: int
Y: int
WHERE: int
SCALE: int
INDICES: int
UNKNOWN_GPU: int
MAX_ELEMENTS_LOG2: int
PACKED_VALUES: int
XLA_LOG: int
XLA_SORTED: int
XLA_SUMS: int
XLA_ENTROPY: int
XLA_LSE: int
XLA_ARGMAX: int
XLA_RANK: int
XLA_MOMENTS: int
DTYPES: tuple[str, ...]

@final
class DeviceArray:
    """An array on a GPU, in C order. Its memory belongs to onsoftmax.

    softmax returns a DeviceArray for a GPU array of an unknown library. torch, CuPy and JAX
    arrays give an array of their own library. Other libraries take a DeviceArray by DLPack
    (torch.from_dlpack, cupy.from_dlpack, jax.dlpack.from_dlpack) or by the CUDA Array
    Interface (numba). softmax takes it as the array or as out. copy_to_host() makes a NumPy
    array of it. You cannot make a DeviceArray yourself, pickle it, or copy it with the
    module copy.
    """
    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""
    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, along each dimension."""
    @property
    def dtype(self) -> str:
        """Name of the type: float16, bfloat16, float32 or float64, or int64 of indices."""
    @property
    def device(self) -> str:
        """ "cuda:0" for the first GPU."""
    @property
    def stream(self) -> int:
        """CUDA's handle of the stream on which the array is written and freed. 0 is the legacy default
        stream.
        """
    @property
    def ndim(self) -> int:
        """Number of dimensions."""
    @property
    def size(self) -> int:
        """Number of elements."""
    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA Array Interface, version 3. AttributeError for bfloat16, which has no name there."""
    def __dlpack__(
        self,
        stream: Any = None,
        *,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule, as in the array API standard. Work that comes later on stream sees the
        contents of the array.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """(2, n): CUDA, and the number of the GPU."""
    def copy_to_host(self) -> NDArray[Any]:
        """Waits for the GPU and returns a NumPy array with the same elements. bfloat16 needs
        ml_dtypes.
        """

@overload  # a result of the array's type, of dtype, or of out's type
def softmax(
    array: NDArray[_Float],
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[_Result] | np.dtype[_Result] | None = None,
    out: NDArray[_Result] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Result]: ...
@overload  # float64 by default
def softmax(
    array: Counts | Numbers,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[_Double] | np.dtype[_Double] | None = None,
    out: NDArray[_Double] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Double]: ...
@overload  # from a list of arrays, or by a type's name, a type is not known
def softmax(
    array: NumPyLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[_Some] | np.dtype[_Some] | AnyDType = None,
    out: NDArray[_Some] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Some]: ...
@overload  # Python's float is float64
def softmax(
    array: NumPyLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[float],
    out: NDArray[np.float64] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[np.float64]: ...
@overload  # torch, JAX, CuPy and other arrays: a result of the caller's own kind
def softmax(
    array: _Array,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: _Array | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload  # pandas, numbers; a DeviceArray for a GPU array of another kind
def softmax(
    array: Convertible,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: Any = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[np.floating[Any]] | Any:
    """exp(scale * array) / sum(exp(scale * array)) along axis, for logits of any size.

    Parameters
    ----------
    array : array_like, any shape
        Logits, dimensionless. A NumPy array of any strides, alignment and byte order; a
        list or a number; a torch tensor, CuPy or JAX array; an object with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``.
        The type is float16, bfloat16, float32 or float64. Integers and bools become the
        default float of the array's library.
        The call runs on the array's device, the CPU or a GPU. It does not change the array.
    axis : int, tuple of ints, or None
        The axis or axes that form a row. The last axis by default; None means all axes.
    method : str
        One of methods(): naive, safe, online, fused, split or exact; on a GPU also
        fused_warp, fused_block, online_block, cluster and grid. auto chooses one for the
        shape (see plan()). invariant chooses one for the length of a row alone, so that a
        row has the same bits in any batch (see set_batch_invariant()). exact gives the
        exact results, rounded once, with the same bits on the CPU and on a GPU; float64 has
        no such method.
    dtype : dtype, optional
        The type of the result: float16, bfloat16, float32 or float64. The arithmetic uses
        the wider type of the array and the result, and at least float32. Only `naive` works
        in the array's own type.
    out : array of the same shape, optional
        Array that receives the result and is returned. It may be the input itself or
        overlap it. `out`, `where` and an array `scale` must be on the input's device.
    where : array of bool that broadcasts to the array, optional
        False excludes an element. The result is as if the element did not exist.
    scale : float, or array that broadcasts with length 1 along axis
        The logits are multiplied by scale first. 1 / temperature is a typical scale. Each
        product is rounded once.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the
        legacy default stream. By default it is the current stream of torch or CuPy for
        their arrays, and the array's own stream for a DeviceArray or the CUDA Array
        Interface. For other arrays it is the legacy default stream. The call does not wait
        for the GPU.
    num_threads : int, optional
        The largest number of threads to use, for a CPU array only. The default is
        get_num_threads(). The number does not change the result.

    Returns
    -------
    array of the input's shape and kind
        A NumPy, torch, CuPy or JAX array gives an array of the same library. Other arrays
        on a GPU give a DeviceArray.
        The elements of a row sum to 1. A row with a NaN or +inf, or with nothing but -inf,
        is NaN. An excluded element's result is 0. On the CPU a float32 or float64 result
        lies within 4 eps of the exact value. A float16 or bfloat16 result is the float32
        result, rounded once, to nearest even. If the input is float64, it is the float64
        result, rounded once.

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or cannot run on this device or with rows of this length. The
        shape of where or scale does not fit. An int scale is too large for a float64. The
        arrays are on different devices. stream is given for a CPU array, or num_threads for a
        GPU array. num_threads is below 1.
        out has another shape than the result, or another type than dtype. It is read-only,
        has elements that overlap, or comes by DLPack as a copy.
    TypeError
        An array is longdouble, complex, object, string or masked. The mask is not bool.
        stream is not a CUDA stream. The result would be float64 in JAX without
        jax_enable_x64.
        out is given with a JAX tracer.
    BufferError
        A DLPack capsule was used already, or has an unknown version or device.
    RuntimeError
        An array is on a GPU, but the build has no CUDA, or the machine has no driver or no
        GPU. CUDA reports an error. A tensor has a tangent, or a gradient that cannot flow
        through this function. The code of another argument, such as its __array__, reshapes
        or moves an array that the call has already taken.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax,
    arXiv:1805.02867 (2018): naive, safe and online are its algorithms 1 to 3 (pages 2 and
    3), split is its section 3.1 (page 4).

    Examples
    --------
    >>> import onsoftmax as ons
    >>> ons.softmax([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).round(4)
    array([0.0061, 0.0167, 0.0453, 0.9092, 0.0167, 0.0061])
    """

@overload  # a result of the array's type, of dtype, or of out's type
def log_softmax(
    array: NDArray[_Float],
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[_Result] | np.dtype[_Result] | None = None,
    out: NDArray[_Result] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Result]: ...
@overload  # float64 by default
def log_softmax(
    array: Counts | Numbers,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[_Double] | np.dtype[_Double] | None = None,
    out: NDArray[_Double] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Double]: ...
@overload  # from a list of arrays, or by a type's name, a type is not known
def log_softmax(
    array: NumPyLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[_Some] | np.dtype[_Some] | AnyDType = None,
    out: NDArray[_Some] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Some]: ...
@overload  # Python's float is float64
def log_softmax(
    array: NumPyLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[float],
    out: NDArray[np.float64] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[np.float64]: ...
@overload  # torch, JAX, CuPy and other arrays: a result of the caller's own kind
def log_softmax(
    array: _Array,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: _Array | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload  # pandas, numbers; a DeviceArray for a GPU array of another kind
def log_softmax(
    array: Convertible,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: Any = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[np.floating[Any]] | Any:
    """scale * array - log(sum(exp(scale * array))) along axis: the logarithm of softmax. It
    does not underflow as softmax does.

    Parameters
    ----------
    array : array_like, any shape
        Logits, dimensionless. A NumPy array of any strides, alignment and byte order; a
        list or a number; a torch tensor, CuPy or JAX array; an object with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``.
        The type is float16, bfloat16, float32 or float64. Integers and bools become the
        default float of the array's library.
        The call runs on the array's device, the CPU or a GPU. It does not change the array.
    axis : int, tuple of ints, or None
        The axis or axes that form a row. The last axis by default; None means all axes.
    method : str
        One of methods(): naive, safe, online, fused, split or exact; on a GPU also
        fused_warp, fused_block, online_block, cluster and grid. auto chooses one for the
        shape (see plan()). invariant chooses one for the length of a row alone, so that a
        row has the same bits in any batch (see set_batch_invariant()). exact gives the
        exact results, rounded once, with the same bits on the CPU and on a GPU; float64 has
        no such method.
    dtype : dtype, optional
        The type of the result: float16, bfloat16, float32 or float64. The arithmetic uses
        the wider type of the array and the result, and at least float32. Only `naive` works
        in the array's own type.
    out : array of the same shape, optional
        Array that receives the result and is returned. It may be the input itself or
        overlap it. `out`, `where` and an array `scale` must be on the input's device.
    where : array of bool that broadcasts to the array, optional
        False excludes an element. The result is as if the element did not exist.
    scale : float, or array that broadcasts with length 1 along axis
        The logits are multiplied by scale first. 1 / temperature is a typical scale. Each
        product is rounded once.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the
        legacy default stream. By default it is the current stream of torch or CuPy for
        their arrays, and the array's own stream for a DeviceArray or the CUDA Array
        Interface. For other arrays it is the legacy default stream. The call does not wait
        for the GPU.
    num_threads : int, optional
        The largest number of threads to use, for a CPU array only. The default is
        get_num_threads(). The number does not change the result.

    Returns
    -------
    array of the input's shape and kind
        A NumPy, torch, CuPy or JAX array gives an array of the same library. Other arrays
        on a GPU give a DeviceArray.
        A row with a NaN or +inf, or with nothing but -inf, is NaN. An excluded element's
        result is -inf. In every test the error is at most 2.5 eps * max(1, abs(result)).
        16-bit results are float32 results, rounded once. safe keeps all digits near 0.

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or cannot run on this device or with rows of this length. The
        shape of where or scale does not fit. An int scale is too large for a float64. The
        arrays are on different devices. stream is given for a CPU array, or num_threads for a
        GPU array. num_threads is below 1.
        out has another shape than the result, or another type than dtype. It is read-only,
        has elements that overlap, or comes by DLPack as a copy.
    TypeError
        An array is longdouble, complex, object, string or masked. The mask is not bool.
        stream is not a CUDA stream. The result would be float64 in JAX without
        jax_enable_x64.
        out is given with a JAX tracer.
    BufferError
        A DLPack capsule was used already, or has an unknown version or device.
    RuntimeError
        An array is on a GPU, but the build has no CUDA, or the machine has no driver or no
        GPU. CUDA reports an error. A tensor has a tangent, or a gradient that cannot flow
        through this function. The code of another argument, such as its __array__, reshapes
        or moves an array that the call has already taken.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax,
    arXiv:1805.02867 (2018): naive, safe and online are its algorithms 1 to 3 (pages 2 and
    3), split is its section 3.1 (page 4).

    Examples
    --------
    >>> import onsoftmax as ons
    >>> ons.log_softmax([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).round(4)
    array([-5.0952, -4.0952, -3.0952, -0.0952, -4.0952, -5.0952])
    """

# Without keepdims one NumPy row gives a number, and several rows give an array. The number of rows is no part
# of an array's type: `| Any` lets a caller take the result for a number too.
@overload  # the result may have no dimension left: then it is a number
def logsumexp(
    array: NDArray[_Float],
    /,
    axis: int | tuple[int, ...] = -1,
    *,
    keepdims: Literal[False] = False,
    method: MethodName = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Float] | Any: ...
@overload
def logsumexp(
    array: NDArray[_Float],
    /,
    axis: None,
    *,
    keepdims: Literal[False] = False,
    method: MethodName = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Float: ...
@overload
def logsumexp(
    array: NDArray[_Float],
    /,
    axis: Axis = -1,
    *,
    keepdims: Literal[True],
    method: MethodName = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Float]: ...
@overload
def logsumexp(
    array: float | Sequence[float],
    /,
    axis: Axis = -1,
    *,
    keepdims: Literal[False] = False,
    method: MethodName = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> np.float64: ...
@overload
def logsumexp(
    array: NumPyLike,
    /,
    axis: Axis = -1,
    *,
    keepdims: bool = False,
    method: MethodName = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[np.floating[Any]] | Any: ...
@overload  # torch, JAX, CuPy and other arrays
def logsumexp(
    array: _Array,
    /,
    axis: Axis = -1,
    *,
    keepdims: bool = False,
    method: MethodName = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def logsumexp(
    array: Convertible,
    /,
    axis: Axis = -1,
    *,
    keepdims: bool = False,
    method: MethodName = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[np.floating[Any]] | Any:
    """log(sum(exp(scale * array))) along axis, for logits of any size. The array is read once.

    Parameters
    ----------
    array : array_like, any shape
        Logits, dimensionless. A NumPy array of any strides, alignment and byte order; a
        list or a number; a torch tensor, CuPy or JAX array; an object with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``.
        The type is float16, bfloat16, float32 or float64. Integers and bools become the
        default float of the array's library.
        The call runs on the array's device, the CPU or a GPU. It does not change the array.
    axis : int, tuple of ints, or None
        The axis or axes that form a row. The last axis by default; None means all axes.
    keepdims : bool
        Whether the result keeps axis, with length 1.
    method : str
        One of methods(): naive, safe, online, fused, split or exact; on a GPU also
        fused_warp, fused_block, online_block, cluster and grid. auto chooses one for the
        shape (see plan()). invariant chooses one for the length of a row alone, so that a
        row has the same bits in any batch (see set_batch_invariant()). exact gives the
        exact results, rounded once, with the same bits on the CPU and on a GPU; float64 has
        no such method.
    where : array of bool that broadcasts to the array, optional
        False excludes an element. The result is as if the element did not exist.
    scale : float, or array that broadcasts with length 1 along axis
        The logits are multiplied by scale first. 1 / temperature is a typical scale. Each
        product is rounded once.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the
        legacy default stream. By default it is the current stream of torch or CuPy for
        their arrays, and the array's own stream for a DeviceArray or the CUDA Array
        Interface. For other arrays it is the legacy default stream. The call does not wait
        for the GPU.
    num_threads : int, optional
        The largest number of threads to use, for a CPU array only. The default is
        get_num_threads(). The number does not change the result.

    Returns
    -------
    array of the input's shape without axis, and of its kind and type
        A NumPy, torch, CuPy or JAX array gives an array of the same library. Other arrays
        on a GPU give a DeviceArray.
        If no dimension is left, the result is a number. A row with a NaN gives NaN. A row
        with +inf and no NaN gives +inf. A row without elements, or with nothing but -inf,
        gives -inf. In every test the error is at most 2.5 eps * max(1, abs(result)). 16-bit
        results are float32 results, rounded once. safe keeps all digits near 0.

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or cannot run on this device or with rows of this length. The
        shape of where or scale does not fit. An int scale is too large for a float64. The
        arrays are on different devices. stream is given for a CPU array, or num_threads for a
        GPU array. num_threads is below 1.
    TypeError
        An array is longdouble, complex, object, string or masked. The mask is not bool.
        stream is not a CUDA stream. The result would be float64 in JAX without
        jax_enable_x64.
    BufferError
        A DLPack capsule was used already, or has an unknown version or device.
    RuntimeError
        An array is on a GPU, but the build has no CUDA, or the machine has no driver or no
        GPU. CUDA reports an error. A tensor has a tangent, or a gradient that cannot flow
        through this function. The code of another argument, such as its __array__, reshapes
        or moves an array that the call has already taken.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax,
    arXiv:1805.02867 (2018): naive, safe and online are its algorithms 1 to 3 (pages 2 and
    3), split is its section 3.1 (page 4).

    Examples
    --------
    >>> import onsoftmax as ons
    >>> float(ons.logsumexp([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).round(4))
    6.0952
    """

@overload
def softmax_backward(
    grad: NDArray[_Float],
    output: NDArray[_Float],
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[_Result] | np.dtype[_Result] | None = None,
    out: NDArray[_Result] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Result]: ...
@overload
def softmax_backward(
    grad: NumPyLike,
    output: NumPyLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[_Some] | np.dtype[_Some] | AnyDType = None,
    out: NDArray[_Some] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Some]: ...
@overload
def softmax_backward(
    grad: NumPyLike,
    output: NumPyLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[float],
    out: NDArray[np.float64] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[np.float64]: ...
@overload
def softmax_backward(
    grad: HasDLPack,
    output: _Array,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: _Array | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def softmax_backward(
    grad: ArrayLike,
    output: Convertible,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: Any = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[np.floating[Any]] | Any:
    """The gradient of a loss with respect to x: scale * output * (grad - sum(grad * output))
    along axis.

    Here output is softmax(scale * x), and grad is the gradient of the loss with respect to
    output.

    Parameters
    ----------
    grad, output : array_like, of one shape
        The gradient of the loss, and the result of the forward operation, both
        dimensionless. They may be any array that softmax takes. Both are on one device. If
        a row fits in fast memory (see plan), each of them is read once.
    axis : int, tuple of ints, or None
        The axis or axes that formed a row in the forward operation. The last axis by
        default; None means all axes.
    method : str
        fused or split; on the CPU also online; on a GPU also fused_warp, fused_block and cluster.
        auto chooses one for the shape, and invariant one for the length, as in softmax.
    dtype : dtype, optional
        The type of the result: float16, bfloat16, float32 or float64. The default is the
        type of the inputs. If their types differ, it is float64 if one of them is float64,
        and float32 otherwise. The arithmetic uses the widest type of grad, output and the
        result.
    out : array of the same shape, optional
        Array that receives the result and is returned. It may be grad or output itself, or
        overlap them.
    where : array of bool that broadcasts to the inputs, optional
        The mask of the forward operation. False excludes an element from the sums.
    scale : float, or array that broadcasts with length 1 along axis
        The scale of the forward operation. The result is multiplied by it, and so rounded
        once more.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the
        legacy default stream. By default it is the current stream of torch or CuPy for
        their arrays, and the array's own stream for a DeviceArray or the CUDA Array
        Interface. For other arrays it is the legacy default stream. The call does not wait
        for the GPU.
    num_threads : int, optional
        The largest number of threads to use, for a CPU array only. The default is
        get_num_threads(). The number does not change the result.

    Returns
    -------
    array of the inputs' shape, and of output's kind
        A NumPy, torch, CuPy or JAX array gives an array of the same library. Other arrays
        on a GPU give a DeviceArray.
        A row whose output has a NaN is NaN. softmax gives such an output for a row with
        nothing but -inf. An excluded element's result is 0. The error of a float64 result,
        and of a float32 result on a GPU, is at most 4 eps times the larger of
        |output * grad| and |output * sum|. The error of a float32 result on the CPU is at
        most 4 eps times |output| times the larger of |grad| and sum(|grad * output|). With
        a scale, this error is at most 5 eps times the same product.

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or cannot run on this device or with rows of this length. The
        shape of where or scale does not fit. An int scale is too large for a float64. The
        arrays are on different devices. stream is given for a CPU array, or num_threads for a
        GPU array. num_threads is below 1.
        out has another shape than the result, or another type than dtype. It is read-only,
        has elements that overlap, or comes by DLPack as a copy.
    TypeError
        An array is longdouble, complex, object, string or masked. The mask is not bool.
        stream is not a CUDA stream. The result would be float64 in JAX without
        jax_enable_x64.
        out is given with a JAX tracer.
    BufferError
        A DLPack capsule was used already, or has an unknown version or device.
    RuntimeError
        An array is on a GPU, but the build has no CUDA, or the machine has no driver or no
        GPU. CUDA reports an error. A tensor has a tangent, or a gradient that cannot flow
        through this function. The code of another argument, such as its __array__, reshapes
        or moves an array that the call has already taken.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax,
    arXiv:1805.02867 (2018): naive, safe and online are its algorithms 1 to 3 (pages 2 and
    3), split is its section 3.1 (page 4).

    Examples
    --------
    >>> import onsoftmax as ons
    >>> y = ons.softmax([1.0, 2.0, 3.0])
    >>> ons.softmax_backward([1.0, 0.0, 0.0], y).round(4)
    array([ 0.0819, -0.022 , -0.0599])
    """

@overload
def log_softmax_backward(
    grad: NDArray[_Float],
    output: NDArray[_Float],
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[_Result] | np.dtype[_Result] | None = None,
    out: NDArray[_Result] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Result]: ...
@overload
def log_softmax_backward(
    grad: NumPyLike,
    output: NumPyLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[_Some] | np.dtype[_Some] | AnyDType = None,
    out: NDArray[_Some] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[_Some]: ...
@overload
def log_softmax_backward(
    grad: NumPyLike,
    output: NumPyLike,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: type[float],
    out: NDArray[np.float64] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[np.float64]: ...
@overload
def log_softmax_backward(
    grad: HasDLPack,
    output: _Array,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: _Array | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def log_softmax_backward(
    grad: ArrayLike,
    output: Convertible,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    dtype: DType = None,
    out: Any = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> NDArray[np.floating[Any]] | Any:
    """The gradient of a loss with respect to x: scale * (grad - exp(output) * sum(grad)) along
    axis.

    Here output is log_softmax(scale * x), and grad is the gradient of the loss with respect
    to output.

    Parameters
    ----------
    grad, output : array_like, of one shape
        The gradient of the loss, and the result of the forward operation, both
        dimensionless. They may be any array that softmax takes. Both are on one device. If
        a row fits in fast memory (see plan), each of them is read once.
    axis : int, tuple of ints, or None
        The axis or axes that formed a row in the forward operation. The last axis by
        default; None means all axes.
    method : str
        fused or split; on the CPU also online; on a GPU also fused_warp, fused_block and cluster.
        auto chooses one for the shape, and invariant one for the length, as in softmax.
    dtype : dtype, optional
        The type of the result: float16, bfloat16, float32 or float64. The default is the
        type of the inputs. If their types differ, it is float64 if one of them is float64,
        and float32 otherwise. The arithmetic uses the widest type of grad, output and the
        result.
    out : array of the same shape, optional
        Array that receives the result and is returned. It may be grad or output itself, or
        overlap them.
    where : array of bool that broadcasts to the inputs, optional
        The mask of the forward operation. False excludes an element from the sums.
    scale : float, or array that broadcasts with length 1 along axis
        The scale of the forward operation. The result is multiplied by it, and so rounded
        once more.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the
        legacy default stream. By default it is the current stream of torch or CuPy for
        their arrays, and the array's own stream for a DeviceArray or the CUDA Array
        Interface. For other arrays it is the legacy default stream. The call does not wait
        for the GPU.
    num_threads : int, optional
        The largest number of threads to use, for a CPU array only. The default is
        get_num_threads(). The number does not change the result.

    Returns
    -------
    array of the inputs' shape, and of output's kind
        A NumPy, torch, CuPy or JAX array gives an array of the same library. Other arrays
        on a GPU give a DeviceArray.
        A row whose output is NaN is NaN. log_softmax gives such an output for a row with
        nothing but -inf. An excluded element's result is 0. The error of a float32 or
        float64 result is at most 4 eps times the larger of |grad| and |exp(output) * sum|.

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or cannot run on this device or with rows of this length. The
        shape of where or scale does not fit. An int scale is too large for a float64. The
        arrays are on different devices. stream is given for a CPU array, or num_threads for a
        GPU array. num_threads is below 1.
        out has another shape than the result, or another type than dtype. It is read-only,
        has elements that overlap, or comes by DLPack as a copy.
    TypeError
        An array is longdouble, complex, object, string or masked. The mask is not bool.
        stream is not a CUDA stream. The result would be float64 in JAX without
        jax_enable_x64.
        out is given with a JAX tracer.
    BufferError
        A DLPack capsule was used already, or has an unknown version or device.
    RuntimeError
        An array is on a GPU, but the build has no CUDA, or the machine has no driver or no
        GPU. CUDA reports an error. A tensor has a tangent, or a gradient that cannot flow
        through this function. The code of another argument, such as its __array__, reshapes
        or moves an array that the call has already taken.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax,
    arXiv:1805.02867 (2018): naive, safe and online are its algorithms 1 to 3 (pages 2 and
    3), split is its section 3.1 (page 4).

    Examples
    --------
    >>> import onsoftmax as ons
    >>> y = ons.log_softmax([1.0, 2.0, 3.0])
    >>> ons.log_softmax_backward([1.0, 0.0, 0.0], y).round(4)
    array([ 0.91  , -0.2447, -0.6652])
    """

@overload  # values of the array's type, or of dtype
def softmax_topk(
    array: NDArray[_Float],
    /,
    k: SupportsIndex,
    axis: int | tuple[int] = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: Literal[False] = False,
    method: MethodName = "auto",
    dtype: type[_Result] | np.dtype[_Result] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopK[NDArray[_Result], NDArray[np.int64]]: ...
@overload  # from a list, or by a type's name, a type is not known
def softmax_topk(
    array: NumPyLike,
    /,
    k: SupportsIndex,
    axis: int | tuple[int] = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: Literal[False] = False,
    method: MethodName = "auto",
    dtype: type[_Some] | np.dtype[_Some] | AnyDType = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopK[NDArray[_Some], NDArray[np.int64]]: ...
@overload  # Python's float is float64
def softmax_topk(
    array: NumPyLike,
    /,
    k: SupportsIndex,
    axis: int | tuple[int] = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: Literal[False] = False,
    method: MethodName = "auto",
    dtype: type[float],
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopK[NDArray[np.float64], NDArray[np.int64]]: ...
@overload  # torch, JAX, CuPy and other arrays
def softmax_topk(
    array: _Array,
    /,
    k: SupportsIndex,
    axis: int | tuple[int] = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: Literal[False] = False,
    method: MethodName = "auto",
    dtype: DType = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopK[_Array, _Array]: ...
@overload
def softmax_topk(
    array: Convertible,
    /,
    k: SupportsIndex,
    axis: int | tuple[int] = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: Literal[False] = False,
    method: MethodName = "auto",
    dtype: DType = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopK[Any, Any]: ...
@overload  # with the Normalizer
def softmax_topk(
    array: NDArray[_Float],
    /,
    k: SupportsIndex,
    axis: int | tuple[int] = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: Literal[True],
    method: MethodName = "auto",
    dtype: type[_Result] | np.dtype[_Result] | None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopKWithNormalizer[NDArray[_Result], NDArray[np.int64]]: ...
@overload
def softmax_topk(
    array: ArrayLike,
    /,
    k: SupportsIndex,
    axis: int | tuple[int] = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: Literal[True],
    method: MethodName = "auto",
    dtype: DType = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> TopKWithNormalizer[Any, Any]:
    """The k largest values of softmax(scale * array) along an axis, and their indices, in one read.

    Parameters
    ----------
    array : array_like, any shape
        Logits, dimensionless, as softmax takes them.
    k : int
        Number of elements to return per row, from 1 to the row length.
    axis : int
        The axis that forms a row. The last axis by default. A tuple of one int will do.
    log : bool
        Whether the values are logarithms, as log_softmax gives them.
    sorted : bool
        Whether the values are in descending order. If it is false, the k elements are the
        same, but their order is not defined.
    return_normalizer : bool
        Whether the result has the normalizer of each row too. This is not possible with a
        tensor that requires grad, in transformations of torch and JAX such as vmap, and in
        torch.compile with fullgraph.
    method : str
        online, split or exact; on a GPU also fused, fused_warp, fused_block and cluster. auto
        chooses one for the shape: see plan(). invariant chooses one for the length of a row
        and k, as in softmax. On a GPU, exact reads the array once more.
        On a GPU only online takes a k above 1024. For such a k it reads the array several
        times.
    dtype : dtype, optional
        The type of the values; by default the type of the array.
    where : array of bool that broadcasts to the array, optional
        False excludes an element. An excluded element comes after all other elements, even
        after -inf. Its value is 0, or -inf with log.
    scale : float, or array that broadcasts with length 1 along axis
        The logits are multiplied by scale first. A negative scale reverses the order.
    stream, num_threads
        As softmax takes them.

    Returns
    -------
    TopK
        The named tuple (values, indices): arrays of the array's kind and shape, with k elements along axis.
        If two elements are equal, the one with the lower index comes first; -0.0 equals 0.0. NaN is
        the largest. Indices count from 0 and are int64, or int32 in JAX without jax_enable_x64. A
        row with a NaN or +inf, or with nothing but -inf, has values of NaN.
    TopKWithNormalizer
        The same with a third field, the Normalizer of the rows, if return_normalizer is true.

    Raises
    ------
    ValueError
        k is below 1 or above the row length. axis is more than one axis. return_normalizer
        is true where it is not possible. Also the errors of softmax.
    TypeError
        k is not an int; axis is None; and the errors of softmax.
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

def normalizer(
    array: Any,
    /,
    axis: Axis = -1,
    *,
    method: str = "auto",
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
    dtypes: list[str] | None = None,
) -> Any:
    """The pair (m, d) of each row. m is the largest element. d is the sum of the exponentials,
    relative to a power of two that follows from m, or relative to e^m if abs(m) is very
    large (csrc/api/state.h). The array is read once.

    Parameters
    ----------
    array : array_like, any shape
        Logits, dimensionless. A NumPy array of any strides, alignment and byte order; a
        list or a number; a torch tensor, CuPy or JAX array; an object with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``.
        The type is float16, bfloat16, float32 or float64. Integers and bools become the
        default float of the array's library.
        The call runs on the array's device, the CPU or a GPU. It does not change the array.
    axis : int, tuple of ints, or None
        The axis or axes that form a row. The last axis by default; None means all axes.
    method : str
        As softmax takes it, except naive. exact gives states in place of pairs: m, the
        number of elements equal to m, and the sum of the other exponentials in two
        doubles.
    where : array of bool that broadcasts to the array, optional
        False excludes an element. The result is as if the element did not exist.
    scale : float, or array that broadcasts with length 1 along axis
        The logits are multiplied by scale first. 1 / temperature is a typical scale. Each
        product is rounded once.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the
        legacy default stream. By default it is the current stream of torch or CuPy for
        their arrays, and the array's own stream for a DeviceArray or the CUDA Array
        Interface. For other arrays it is the legacy default stream. The call does not wait
        for the GPU.
    num_threads : int, optional
        The largest number of threads to use, for a CPU array only. The default is
        get_num_threads(). The number does not change the result.

    Returns
    -------
    float64 array of the input's kind. Its shape is the input's shape without axis, followed by 2, or by 4 for exact
        A NumPy, torch, CuPy or JAX array gives an array of the same library. Other arrays
        on a GPU give a DeviceArray.
        A row with a NaN has (nan, nan). A row with +inf and no NaN has (inf, nan). A row
        without elements, or with nothing but -inf, has (-inf, 0).

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or cannot run on this device or with rows of this length. The
        shape of where or scale does not fit. An int scale is too large for a float64. The
        arrays are on different devices. stream is given for a CPU array, or num_threads for a
        GPU array. num_threads is below 1.
    TypeError
        An array is longdouble, complex, object, string or masked. The mask is not bool.
        stream is not a CUDA stream. The result would be float64 in JAX without
        jax_enable_x64.
    BufferError
        A DLPack capsule was used already, or has an unknown version or device.
    RuntimeError
        An array is on a GPU, but the build has no CUDA, or the machine has no driver or no
        GPU. CUDA reports an error. A tensor has a tangent, or a gradient that cannot flow
        through this function. The code of another argument, such as its __array__, reshapes
        or moves an array that the call has already taken.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax,
    arXiv:1805.02867 (2018): naive, safe and online are its algorithms 1 to 3 (pages 2 and
    3), split is its section 3.1 (page 4).

    Examples
    --------
    >>> import onsoftmax as ons
    >>> ons._core.normalizer([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).round(4)
    array([6.    , 0.8667])
    """

def finish(
    array: Any,
    /,
    axis: Axis = -1,
    *,
    pairs: Any,
    operation: str = "softmax",
    dtype: Any = None,
    out: Any = None,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
    compute: str | None = None,
) -> Any:
    """Finishes an operation on rows, or on parts of rows. `pairs` are from normalizer, or from
    merge with gives='pair'. No element may be above the m of its row. compute: the type of
    the rows from which the pairs were made. Products with scale are rounded to it. The
    other parameters are softmax's.
    """

def sums(array: Any, /, axis: Axis = -1, *, stream: Any = None, num_threads: int | None = None) -> Any:
    """Adds up the state of each row, or part of a row, without rounding (csrc/api/digits.h).
    The result is float64. Its shape is the rows' shape, followed by 5. merge takes it. The
    place where a row is cut does not change the bits.
    """

def gradient_sums(
    grad: Any,
    output: Any,
    /,
    axis: Axis = -1,
    *,
    method: MethodName = "auto",
    operation: str = "softmax_backward",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """Adds up each row for the gradient of an operation. The result is float64. Its shape is
    the rows' shape, followed by 2: the sum, and the rest that rounding removed from it.
    """

def gradient_finish(
    grad: Any,
    output: Any,
    /,
    axis: Axis = -1,
    *,
    pairs: Any,
    operation: str = "softmax_backward",
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """The gradient of rows, or of parts of rows. `pairs` are from gradient_sums, and added up
    if the rows have several parts.
    """

def merge(
    packed: Any,
    /,
    axis: Axis = (),
    *,
    dtype: Any = None,
    other: Any = None,
    gives: str = "packed",
    stream: Any = None,
) -> Any:
    """Merges packed states of rows along axis, and with the states in `other`, if it is given.
    An array of states has the rows' shape, followed by 5 (csrc/api/packed.h), or by 4 for
    states of `exact` (csrc/api/rounding.h), and is float64.

    gives: 'packed' for states, 'pair' for the pairs that finish takes, 'm' or 'd' for one
    number a row. finish takes states of `exact` as they are, so they have no pairs. d is
    sum(exp(x - m)). `dtype` is the type of the rows, by default float64.
    """

def pack(
    pairs: Any,
    /,
    axis: Axis = (),
    *,
    dtype: Any = None,
    other: Any = None,
    gives: str = "packed",
    stream: Any = None,
) -> Any:
    """As merge, but from the pairs that normalizer gives."""

def loss_gradient(logits: Any, target: Any, axis: int, pairs: Any, factors: Any, weight: Any, /) -> Any:
    """The gradient of rows of logits, or of parts of rows, from the pairs of the whole rows. factors
    has three float64 for each row: all, each and own. The gradient of class j is then
    all * softmax(row)[j] - each * weight[j]. At the target, own is subtracted too. A row whose
    target is -1 has the gradient 0. If the target is not in this part, give any class of the
    part, and own = 0.
    """

def multiply(gradient: Any, grad_loss: Any, /) -> bool:
    """Multiplies a gradient on a GPU in place by one number on the same GPU. If the number is
    exactly 1, the gradient is neither read nor written. The call does not wait for the GPU.
    Returns False, and does nothing, if the gradient has gaps or is on the CPU.
    """

def divergence(
    operation: int,
    logits: Any,
    other: Any,
    axis: int,
    beta: float,
    scale: Any,
    where: Any,
    grad_value: Any,
    grad_out: Any,
    reduction: int,
    stream: Any,
    num_threads: int | None,
    /,
) -> tuple[Any, Any]:
    """(value, gradient) for onsoftmax/_divergences.py. operation: 0 kl_divergence, 1
    reverse_kl_divergence, 2 js_divergence, of logits from other. The gradient is with respect
    to logits. grad_out: None for no gradient, True for a new array, or the array that receives
    it. reduction: 0 none, 1 sum, 2 mean.

    If an operator must take the arrays, such as tensors that require grad, the result is
    this operator instead.
    """

def logprob(
    logits: Any,
    index: Any,
    axis: int,
    entropy: bool,
    lse: bool,
    argmax: bool,
    rank: bool,
    moments: bool,
    stream: Any,
    num_threads: int | None,
    /,
) -> Any:
    """(logprob, entropy, lse, argmax, rank, moments) for onsoftmax/_logprob.py. A result that is
    not wanted is None. index comes without gaps. It has the shape of the rows, or one
    dimension more. moments has the pairs of all rows. If entropy is wanted, the mean of x - m
    of each row follows.

    If an operator must take the arrays, such as tensors that require grad, the result is
    this operator instead.
    """

def logprob_backward(
    logits: Any,
    index: Any,
    axis: int,
    moments: Any,
    grad_logprob: Any,
    grad_entropy: Any,
    grad_lse: Any,
    stream: Any,
    num_threads: int | None,
    /,
) -> Any:
    """The gradient of the logits for onsoftmax/_logprob.py, from the moments that logprob gave.
    A gradient that is None is 0.
    """

def route(
    logits: Any,
    k: int,
    axis: int,
    score: int,
    bias: Any,
    groups: int,
    top_groups: int,
    renormalize: bool,
    scale: float,
    where: Any,
    index_bits: int,
    is_invariant: bool,
    stream: Any,
    num_threads: int | None,
    /,
) -> Any:
    """(weights, indices) for onsoftmax/_route.py. score: 0 softmax, 1 sigmoid, 2 sqrtsoftplus,
    3 none. bias comes without gaps, in the arithmetic's type. top_groups: -2^63 for
    all groups. index_bits: 32, 64, or 0 for the library's own type.

    If an operator must take the arrays, such as tensors that require grad, the result is
    this operator instead.
    """

def sample(
    logits: Any,
    axis: int,
    temperature: Any,
    top_k: Any,
    top_p: Any,
    min_p: Any,
    seed: Any,
    offset: Any,
    joint: bool,
    logprob: int,
    valid: bool,
    where: Any,
    is_invariant: bool,
    stream: Any,
    num_threads: int | None,
    /,
) -> Any:
    """(indices, logprob, valid) for onsoftmax/_sample.py. A result that is not wanted is None.
    logprob: 0 none, 1 unfiltered, 2 filtered. temperature, top_p and min_p are floats, or
    arrays of float32 or float64. top_k, seed and offset are ints, or arrays of int32 or int64.
    The arrays come without gaps. They have the shape of the rows, or one element.

    If an operator must take the arrays, such as tensors that require grad, the result is
    this operator instead.
    """

def filtered_softmax(
    logits: Any,
    axis: int,
    temperature: Any,
    top_k: Any,
    top_p: Any,
    min_p: Any,
    joint: bool,
    where: Any,
    is_invariant: bool,
    stream: Any,
    num_threads: int | None,
    /,
) -> Any:
    """The filtered probabilities for onsoftmax/_sample.py. It takes the arguments of sample.

    If an operator must take the arrays, such as tensors that require grad, the result is
    this operator instead.
    """

def cross_entropy(
    logits: Any,
    target: Any,
    axis: int,
    weight: Any,
    grad_loss: Any,
    grad_out: Any,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    reduction: int,
    return_lse: bool,
    stream: Any,
    num_threads: int | None,
    /,
) -> tuple[Any, Any, Any]:
    """(loss, gradient, lse) for onsoftmax/_losses.py. target, weight and grad_loss come without
    gaps. weight and grad_loss have the arithmetic's type. grad_out: None for no gradient, True
    for a new array, or the array that receives it. reduction: 0 none, 1 sum, 2 mean.
    """

def empty(like: Any, shape: tuple[int, ...], /, *, dtype: Any = None) -> Any:
    """An array of a shape with undefined contents. It has the library and the device of
    `like`. Its type is dtype, or else the type of `like`, or the type to which `like` is
    converted.
    """

def plan(
    array_or_shape: Any,
    /,
    axis: Axis = -1,
    *,
    dtype: Any = None,
    device: str | None = None,
    method: str = "auto",
    num_threads: int | None = None,
    operation: str = "softmax",
    k: SupportsIndex | None = None,
    caches: tuple[int, int, int] | None = None,
    terms: tuple[Any, ...] | None = None,
) -> dict[str, Any]:
    """The plan of a call as a dict: see onsoftmax.plan. caches: three numbers in place of this
    machine's: the bytes of a core's own cache, the bytes of the last cache, and the number
    of processors that share the last cache. terms: what onsoftmax/_plan/terms.py makes of the
    operation's arguments.
    """

def check_call(
    array: Any,
    /,
    axis: Axis = -1,
    *,
    operation: str = "softmax",
    other: Any = None,
    k: SupportsIndex | None = None,
    method: str = "auto",
    dtype: Any = None,
    where: Any = None,
    scale: Any = 1.0,
    num_threads: int | None = None,
    device: str | None = None,
) -> tuple[int, ...]:
    """The axes that a call reduces, counted from the end. Only the shapes and types of the
    arrays count, and the arrays are on the CPU. other: the gradient; array is then the
    output. device: where the call will run, None (the CPU) or 'cuda'.

    Raises what the call would.
    """

def xla_target(platform: str, /) -> Any:
    """The handler that XLA calls on a platform, 'cpu' or 'CUDA', as the capsule that jax.ffi.register_ffi_target
    takes.
    """

def methods(operation: str, /) -> list[dict[str, Any]]:
    """The methods of an operation as dicts: see onsoftmax.methods."""

def as_numpy(array: Any, /) -> NDArray[Any]:
    """A read-only NumPy array of the elements that softmax would read from an array on the
    CPU. It shows the memory of the array, or a copy if softmax converts the array.
    """

def set_num_threads(n: int, /) -> None:
    """Sets the largest number of threads for calls without num_threads.

    n is an int of at least 1. Another type raises TypeError, a smaller number ValueError.
    """

def get_num_threads() -> int:
    """The largest number of threads for a call without num_threads.

    set_num_threads sets it. Before that it comes from the environment variable
    ONSOFTMAX_NUM_THREADS. Without this variable it is the number of processors that
    affinity and cgroup quota allow.
    """

def set_batch_invariant(invariant: bool, /) -> bool:
    """Whether calls without a method take ``method='invariant'``. Returns the setting before.

    A row then has the same bits in a batch of any size, at any place in it, along any axis,
    whatever the strides and the alignment. So each function takes a method that depends on
    the row's length, the types and the kind of device alone. Some shapes take longer on a
    GPU (docs/contract.md). Nothing changes on the CPU, where all results have this
    property.

    The setting belongs to the process and counts when a call runs, in every thread. So it
    also reaches programs that torch.compile or jax.jit compiled before, backward steps, and
    Dask's tasks in this process. It does not reach a CUDA graph that was captured before.
    The environment variable ONSOFTMAX_BATCH_INVARIANT=1 sets it at the first import, in all
    processes that inherit the variable. A call that names its method keeps that method.

    invariant is a bool; anything else raises TypeError.

    Examples
    --------
    >>> import onsoftmax as ons
    >>> before = ons.set_batch_invariant(True)
    >>> ons.plan((1, 4096), device="H100").method, ons.plan((8192, 4096), device="H100").method
    ('fused_block', 'fused_block')
    >>> ons.set_batch_invariant(before)
    True
    """

def get_batch_invariant() -> bool:
    """Whether calls without a method take ``method='invariant'``. set_batch_invariant
    sets it. Before that it comes from the environment variable
    ONSOFTMAX_BATCH_INVARIANT, 0 or 1. Without this variable it is False.
    """

def config() -> dict[str, Any]:
    """The facts of the build and of this machine as a dict: see onsoftmax.show_config."""

def pair_of(row: tuple[float, ...], in_float: bool, /) -> _Pair:
    """The pair (m, c, d, d_low) of a tuple of floats, with d = sum(e^x * 2^-c). The
    exponentials are rounded to float if `in_float`, and to double otherwise.
    """

def pair_merge(a: _Pair, b: _Pair, /) -> _Pair:
    """The pair of two parts of a row: ons_state_merge."""

def pair_d(pair: _Pair, /) -> float:
    """d relative to m: sum(e^(x - m))."""

def pair_anchor(m: float, /) -> float:
    """The anchor of a row with the maximum m: the number that is subtracted from its elements
    first. It is m if m is large, and 0 otherwise.
    """
