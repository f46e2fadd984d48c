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
UNKNOWN_GPU: int
MAX_ELEMENTS_LOG2: int
PACKED_VALUES: int
XLA_LOG: int
XLA_SORTED: int
XLA_SUMS: int
DTYPES: tuple[str, ...]

@final
class DeviceArray:
    """An array on a GPU in memory of onsoftmax's own, in C order.

    softmax gives one for a GPU array of no library that it knows; torch, CuPy and JAX arrays
    give their own kind. Hand it on by DLPack (torch.from_dlpack, cupy.from_dlpack,
    jax.dlpack.from_dlpack) or by the CUDA Array Interface (numba), give it to softmax as the
    array or as out, or copy_to_host(). It cannot be made, pickled or copied by copy.
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
        """CUDA's handle of the stream that the array is written and freed on; 0: the legacy default one."""
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
        """CUDA Array Interface, version 3; none for bfloat16, which has no name there."""
    def __dlpack__(
        self,
        stream: Any = None,
        *,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule, as the array API standard has it; ready in the order of stream."""
    def __dlpack_device__(self) -> tuple[int, int]:
        """(2, n): CUDA, and the number of the GPU."""
    def copy_to_host(self) -> NDArray[Any]:
        """A NumPy array with the same elements; waits for the GPU. bfloat16 needs ml_dtypes."""

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
        Logits, dimensionless. A NumPy array of any strides, alignment and byte order; a list or a
        number; a torch tensor, CuPy or JAX array; an object with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``.
        float16, bfloat16, float32 or float64. Integers and bool become the library's default float.
        The work is done on the array's device, the CPU or a GPU. The array is not written to.
    axis : int, tuple of ints, or None
        The axis or axes that form a row. The last axis by default; None means all axes.
    method : str
        One of methods(): naive, safe, online, fused or split; on the CPU also exact; on a GPU also
        fused_warp, fused_block, online_block, cluster and grid. auto chooses one for the shape (see
        plan()). exact gives the exact results, rounded once; float64 has no such method.
    dtype : dtype, optional
        The type of the result, one of the four. The arithmetic uses the wider type of input and
        result, and at least float32. Only `naive` works in the array's own type.
    out : array of the same shape, optional
        Array that receives the result and is returned. It may be the input itself or overlap it.
        `out`, `where` and an array `scale` must be on the input's device.
    where : array of bool that broadcasts to the array, optional
        False excludes an element. The result is as if the element did not exist.
    scale : float, or array that broadcasts with length 1 along axis
        Multiplies the logits first, as 1 / temperature does. The product is rounded once.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the legacy
        default stream. By default it is the current stream of torch or CuPy, or the stream of a
        DeviceArray or of the CUDA Array Interface, else the legacy default stream. The call does not
        wait for the GPU.
    num_threads : int, optional
        The most threads to use, for a CPU array only; get_num_threads() by default. The number does
        not change the result.

    Returns
    -------
    array of the input's shape and kind
        A NumPy array for NumPy, torch for torch, CuPy for CuPy, JAX for JAX. For other arrays on a GPU it
        is a DeviceArray.
        Along axis it sums to 1. A row with a NaN or +inf, or with nothing but -inf, is NaN; an excluded
        element's result is 0. On the CPU float32 and float64 lie within 4 eps of the exact value; float16
        and bfloat16 are the float32 result rounded once, to nearest even, and of float64 input the
        float64 result rounded once.

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or this device or row length cannot run it. The shape of out, where or
        scale does not fit. An int scale is above float64. The arrays are on different devices. out is
        read-only, is a copy, or has elements that overlap. out and dtype disagree. A CPU array has a
        stream; a GPU array has num_threads, or num_threads is below 1.
    TypeError
        A longdouble, complex, object, string or masked array; a mask that is not bool; an object that
        is not a CUDA stream; out with a JAX tracer; a float64 result in JAX without jax_enable_x64.
    BufferError
        A DLPack capsule that was used already, or has an unknown version or device.
    RuntimeError
        A GPU array, but the build has no CUDA, or there is no driver or no GPU. An error of CUDA. A
        tensor with a tangent, or with a gradient that does not flow through this function. An array
        that the conversion of another argument reshapes or moves.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018):
    naive, safe and online are its algorithms 1 to 3 (pages 2 and 3), split is its section 3.1 (page
    4).

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
    """scale * array - log(sum(exp(scale * array))) along axis: the logarithm of softmax, without its
    underflow.

    Parameters
    ----------
    array : array_like, any shape
        Logits, dimensionless. A NumPy array of any strides, alignment and byte order; a list or a
        number; a torch tensor, CuPy or JAX array; an object with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``.
        float16, bfloat16, float32 or float64. Integers and bool become the library's default float.
        The work is done on the array's device, the CPU or a GPU. The array is not written to.
    axis : int, tuple of ints, or None
        The axis or axes that form a row. The last axis by default; None means all axes.
    method : str
        One of methods(): naive, safe, online, fused or split; on the CPU also exact; on a GPU also
        fused_warp, fused_block, online_block, cluster and grid. auto chooses one for the shape (see
        plan()). exact gives the exact results, rounded once; float64 has no such method.
    dtype : dtype, optional
        The type of the result, one of the four. The arithmetic uses the wider type of input and
        result, and at least float32. Only `naive` works in the array's own type.
    out : array of the same shape, optional
        Array that receives the result and is returned. It may be the input itself or overlap it.
        `out`, `where` and an array `scale` must be on the input's device.
    where : array of bool that broadcasts to the array, optional
        False excludes an element. The result is as if the element did not exist.
    scale : float, or array that broadcasts with length 1 along axis
        Multiplies the logits first, as 1 / temperature does. The product is rounded once.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the legacy
        default stream. By default it is the current stream of torch or CuPy, or the stream of a
        DeviceArray or of the CUDA Array Interface, else the legacy default stream. The call does not
        wait for the GPU.
    num_threads : int, optional
        The most threads to use, for a CPU array only; get_num_threads() by default. The number does
        not change the result.

    Returns
    -------
    array of the input's shape and kind
        A NumPy array for NumPy, torch for torch, CuPy for CuPy, JAX for JAX. For other arrays on a GPU it
        is a DeviceArray.
        A row with a NaN or +inf, or with nothing but -inf, is NaN; an excluded element's result is -inf.
        float32 and float64 lie within about 2 eps of max(1, abs(result)); 16 bits are that rounded once.

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or this device or row length cannot run it. The shape of out, where or
        scale does not fit. An int scale is above float64. The arrays are on different devices. out is
        read-only, is a copy, or has elements that overlap. out and dtype disagree. A CPU array has a
        stream; a GPU array has num_threads, or num_threads is below 1.
    TypeError
        A longdouble, complex, object, string or masked array; a mask that is not bool; an object that
        is not a CUDA stream; out with a JAX tracer; a float64 result in JAX without jax_enable_x64.
    BufferError
        A DLPack capsule that was used already, or has an unknown version or device.
    RuntimeError
        A GPU array, but the build has no CUDA, or there is no driver or no GPU. An error of CUDA. A
        tensor with a tangent, or with a gradient that does not flow through this function. An array
        that the conversion of another argument reshapes or moves.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018):
    naive, safe and online are its algorithms 1 to 3 (pages 2 and 3), split is its section 3.1 (page
    4).

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
        Logits, dimensionless. A NumPy array of any strides, alignment and byte order; a list or a
        number; a torch tensor, CuPy or JAX array; an object with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``.
        float16, bfloat16, float32 or float64. Integers and bool become the library's default float.
        The work is done on the array's device, the CPU or a GPU. The array is not written to.
    axis : int, tuple of ints, or None
        The axis or axes that form a row. The last axis by default; None means all axes.
    keepdims : bool
        Whether the result keeps axis, with length 1.
    method : str
        One of methods(): naive, safe, online, fused or split; on the CPU also exact; on a GPU also
        fused_warp, fused_block, online_block, cluster and grid. auto chooses one for the shape (see
        plan()). exact gives the exact results, rounded once; float64 has no such method.
    where : array of bool that broadcasts to the array, optional
        False excludes an element. The result is as if the element did not exist.
    scale : float, or array that broadcasts with length 1 along axis
        Multiplies the logits first, as 1 / temperature does. The product is rounded once.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the legacy
        default stream. By default it is the current stream of torch or CuPy, or the stream of a
        DeviceArray or of the CUDA Array Interface, else the legacy default stream. The call does not
        wait for the GPU.
    num_threads : int, optional
        The most threads to use, for a CPU array only; get_num_threads() by default. The number does
        not change the result.

    Returns
    -------
    array of the input's shape without axis, and of its kind and type
        A NumPy array for NumPy, torch for torch, CuPy for CuPy, JAX for JAX. For other arrays on a GPU it
        is a DeviceArray.
        A number where it has no dimension. A row with a NaN gives NaN, one with +inf and no NaN +inf, one
        with nothing, or nothing but -inf, -inf. float32 and float64 lie within about 2 eps of max(1,
        abs(result)); 16 bits are that rounded once.

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or this device or row length cannot run it. The shape of out, where or
        scale does not fit. An int scale is above float64. The arrays are on different devices. out is
        read-only, is a copy, or has elements that overlap. out and dtype disagree. A CPU array has a
        stream; a GPU array has num_threads, or num_threads is below 1.
    TypeError
        A longdouble, complex, object, string or masked array; a mask that is not bool; an object that
        is not a CUDA stream; out with a JAX tracer; a float64 result in JAX without jax_enable_x64.
    BufferError
        A DLPack capsule that was used already, or has an unknown version or device.
    RuntimeError
        A GPU array, but the build has no CUDA, or there is no driver or no GPU. An error of CUDA. A
        tensor with a tangent, or with a gradient that does not flow through this function. An array
        that the conversion of another argument reshapes or moves.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018):
    naive, safe and online are its algorithms 1 to 3 (pages 2 and 3), split is its section 3.1 (page
    4).

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
    """The gradient of a loss with respect to x, from output = softmax(scale * x) and the loss's gradient grad
    with respect to output: scale * output * (grad - sum(grad * output)) along axis.

    Parameters
    ----------
    grad, output : array_like, of one shape
        The gradient of the loss, and the result of the forward operation, both dimensionless. Kinds
        and types are those of softmax. Both are on one device. Each is read once if a row fits (see
        plan).
    axis : int, tuple of ints, or None
        The axis or axes that formed a row in the forward operation. The last axis by default; None
        means all axes.
    method : str
        fused or split; on the CPU also online; on a GPU also fused_warp, fused_block and cluster.
        auto chooses one for the shape.
    dtype : dtype, optional
        The type of the result, one of the four. By default it is the type of the inputs; if these
        differ, float64 if one of them is float64, else float32. The arithmetic uses the widest of the
        three types.
    out : array of the same shape, optional
        Array that receives the result and is returned. It may be grad or output itself, or overlap
        them.
    where : array of bool that broadcasts to the inputs, optional
        The mask of the forward operation. False excludes an element from the sums.
    scale : float, or array that broadcasts with length 1 along axis
        The scale of the forward operation. It multiplies the result, which is rounded once more.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the legacy
        default stream. By default it is the current stream of torch or CuPy, or the stream of a
        DeviceArray or of the CUDA Array Interface, else the legacy default stream. The call does not
        wait for the GPU.
    num_threads : int, optional
        The most threads to use, for a CPU array only; get_num_threads() by default. The number does
        not change the result.

    Returns
    -------
    array of the inputs' shape, and of output's kind
        A NumPy array for NumPy, torch for torch, CuPy for CuPy, JAX for JAX. For other arrays on a GPU it
        is a DeviceArray.
        A row whose output has a NaN, as softmax gives for one with nothing but -inf, is NaN; an excluded
        element's result is 0. float64, and float32 on a GPU, lie within 4 eps of the larger of
        |output * grad| and |output * sum|; float32 on the CPU within 4 eps, with a scale 5, of
        |output| times the larger of |grad| and sum(|grad * output|).

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or this device or row length cannot run it. The shape of out, where or
        scale does not fit. An int scale is above float64. The arrays are on different devices. out is
        read-only, is a copy, or has elements that overlap. out and dtype disagree. A CPU array has a
        stream; a GPU array has num_threads, or num_threads is below 1.
    TypeError
        A longdouble, complex, object, string or masked array; a mask that is not bool; an object that
        is not a CUDA stream; out with a JAX tracer; a float64 result in JAX without jax_enable_x64.
    BufferError
        A DLPack capsule that was used already, or has an unknown version or device.
    RuntimeError
        A GPU array, but the build has no CUDA, or there is no driver or no GPU. An error of CUDA. A
        tensor with a tangent, or with a gradient that does not flow through this function. An array
        that the conversion of another argument reshapes or moves.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018):
    naive, safe and online are its algorithms 1 to 3 (pages 2 and 3), split is its section 3.1 (page
    4).

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
    """The gradient of a loss with respect to x, from output = log_softmax(scale * x) and the loss's gradient
    grad with respect to output: scale * (grad - exp(output) * sum(grad)) along axis.

    Parameters
    ----------
    grad, output : array_like, of one shape
        The gradient of the loss, and the result of the forward operation, both dimensionless. Kinds
        and types are those of softmax. Both are on one device. Each is read once if a row fits (see
        plan).
    axis : int, tuple of ints, or None
        The axis or axes that formed a row in the forward operation. The last axis by default; None
        means all axes.
    method : str
        fused or split; on the CPU also online; on a GPU also fused_warp, fused_block and cluster.
        auto chooses one for the shape.
    dtype : dtype, optional
        The type of the result, one of the four. By default it is the type of the inputs; if these
        differ, float64 if one of them is float64, else float32. The arithmetic uses the widest of the
        three types.
    out : array of the same shape, optional
        Array that receives the result and is returned. It may be grad or output itself, or overlap
        them.
    where : array of bool that broadcasts to the inputs, optional
        The mask of the forward operation. False excludes an element from the sums.
    scale : float, or array that broadcasts with length 1 along axis
        The scale of the forward operation. It multiplies the result, which is rounded once more.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the legacy
        default stream. By default it is the current stream of torch or CuPy, or the stream of a
        DeviceArray or of the CUDA Array Interface, else the legacy default stream. The call does not
        wait for the GPU.
    num_threads : int, optional
        The most threads to use, for a CPU array only; get_num_threads() by default. The number does
        not change the result.

    Returns
    -------
    array of the inputs' shape, and of output's kind
        A NumPy array for NumPy, torch for torch, CuPy for CuPy, JAX for JAX. For other arrays on a GPU it
        is a DeviceArray.
        A row whose output is NaN, as log_softmax gives for one with nothing but -inf, is NaN; an excluded
        element's result is 0. float32 and float64 lie within 4 eps of the larger of |grad| and
        |exp(output) * sum|.

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or this device or row length cannot run it. The shape of out, where or
        scale does not fit. An int scale is above float64. The arrays are on different devices. out is
        read-only, is a copy, or has elements that overlap. out and dtype disagree. A CPU array has a
        stream; a GPU array has num_threads, or num_threads is below 1.
    TypeError
        A longdouble, complex, object, string or masked array; a mask that is not bool; an object that
        is not a CUDA stream; out with a JAX tracer; a float64 result in JAX without jax_enable_x64.
    BufferError
        A DLPack capsule that was used already, or has an unknown version or device.
    RuntimeError
        A GPU array, but the build has no CUDA, or there is no driver or no GPU. An error of CUDA. A
        tensor with a tangent, or with a gradient that does not flow through this function. An array
        that the conversion of another argument reshapes or moves.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018):
    naive, safe and online are its algorithms 1 to 3 (pages 2 and 3), split is its section 3.1 (page
    4).

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
        Whether the values are in descending order. If it is false, the order is open, and the k
        elements are the same.
    return_normalizer : bool
        Whether the result has the normalizer of each row too. It is refused with a tensor that
        requires grad, in transformations of torch and JAX such as vmap, and in torch.compile with
        fullgraph.
    method : str
        online or split; on a GPU also fused_warp, fused_block and cluster. auto chooses one for the
        shape: see plan().
        On a GPU only online gives a k above 1024. It then reads the array several times.
    dtype : dtype, optional
        The type of the values; by default the type of the array.
    where : array of bool that broadcasts to the array, optional
        False excludes an element. It comes after all elements that are allowed, also after -inf. Its
        value is 0, or -inf with log.
    scale : float, or array that broadcasts with length 1 along axis
        Multiplies the logits first. A negative scale reverses the order.
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
        k is below 1 or above the row length. axis is more than one axis. return_normalizer is refused.
        And the errors of softmax.
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
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
    dtypes: list[str] | None = None,
) -> Any:
    """The pair (m, d) of each row: its largest element, and the sum of its exponentials relative to a power
    of two that belongs to m, or to e^m (csrc/api/state.h). The array is read once.

    Parameters
    ----------
    array : array_like, any shape
        Logits, dimensionless. A NumPy array of any strides, alignment and byte order; a list or a
        number; a torch tensor, CuPy or JAX array; an object with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``.
        float16, bfloat16, float32 or float64. Integers and bool become the library's default float.
        The work is done on the array's device, the CPU or a GPU. The array is not written to.
    axis : int, tuple of ints, or None
        The axis or axes that form a row. The last axis by default; None means all axes.
    where : array of bool that broadcasts to the array, optional
        False excludes an element. The result is as if the element did not exist.
    scale : float, or array that broadcasts with length 1 along axis
        Multiplies the logits first, as 1 / temperature does. The product is rounded once.
    stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional
        The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the legacy
        default stream. By default it is the current stream of torch or CuPy, or the stream of a
        DeviceArray or of the CUDA Array Interface, else the legacy default stream. The call does not
        wait for the GPU.
    num_threads : int, optional
        The most threads to use, for a CPU array only; get_num_threads() by default. The number does
        not change the result.

    Returns
    -------
    array of float64, of the input's kind, and of its shape without axis, with 2 behind
        A NumPy array for NumPy, torch for torch, CuPy for CuPy, JAX for JAX. For other arrays on a GPU it
        is a DeviceArray.
        A row with a NaN has (nan, nan), one with +inf and no NaN (inf, nan), one with nothing, or nothing but
        -inf, (-inf, 0).

    Raises
    ------
    AxisError
        axis is out of bounds.
    ValueError
        The method is unknown, or this device or row length cannot run it. The shape of out, where or
        scale does not fit. An int scale is above float64. The arrays are on different devices. out is
        read-only, is a copy, or has elements that overlap. out and dtype disagree. A CPU array has a
        stream; a GPU array has num_threads, or num_threads is below 1.
    TypeError
        A longdouble, complex, object, string or masked array; a mask that is not bool; an object that
        is not a CUDA stream; out with a JAX tracer; a float64 result in JAX without jax_enable_x64.
    BufferError
        A DLPack capsule that was used already, or has an unknown version or device.
    RuntimeError
        A GPU array, but the build has no CUDA, or there is no driver or no GPU. An error of CUDA. A
        tensor with a tangent, or with a gradient that does not flow through this function. An array
        that the conversion of another argument reshapes or moves.
    MemoryError
        There is no memory for the result or the scratch.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018):
    naive, safe and online are its algorithms 1 to 3 (pages 2 and 3), split is its section 3.1 (page
    4).

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
    """An operation on rows, or on parts of rows, whose pairs are given: those that normalizer gives, or merged
    ones. No element may be above the m of its row. compute: the type of the rows that the pairs are
    of, by which products with scale are rounded. The other parameters are softmax's.
    """

def sums(array: Any, /, axis: Axis = -1, *, stream: Any = None, num_threads: int | None = None) -> Any:
    """The state of each row, or part of a row, added up without rounding (csrc/api/exact.h), in 5 float64 behind
    the rows' shape: merge takes it. Where a row is cut does not show.
    """

def gradient_sums(
    grad: Any,
    output: Any,
    /,
    axis: Axis = -1,
    *,
    operation: str = "softmax_backward",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any:
    """What the rows of that operation add up, in 2 float64 behind the rows' shape: the sum, and what it
    rounded away.
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
    """The gradient of rows, or of parts of rows, whose sums are given: those that gradient_sums gives, or the
    sums of these.
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
    """Packed states of rows (csrc/api/packed.h: 5 float64 behind the rows' shape) merged along axis, and with
    those of another array of the same rows.

    gives: 'packed'; 'pair', the 2 that finish takes; 'm' or 'd' alone, with no dimension behind, where d is
    sum(exp(x - m)) of rows of that dtype, by default float64.
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
    """The same of pairs, as normalizer gives them."""

def empty(like: Any, shape: tuple[int, ...], /, *, dtype: Any = None) -> Any:
    """An array of that shape, its contents undefined, of like's kind, on its device, and of its type, or of
    that it is converted to.
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
) -> dict[str, Any]:
    """The plan of a call as a dict: see onsoftmax.plan. caches: bytes that a core has to itself, bytes
    of the last one and the processors that share it, in place of this machine's.
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
    """The axes, counted from the end, that a call reduces, of arrays on the CPU of which shape and type alone
    are looked at. other: the gradient, array being the output. device: None, or 'cuda', where it will run.

    Raises what the call would.
    """

def xla_target(platform: str, /) -> Any:
    """The handler that XLA calls on a platform, 'cpu' or 'CUDA', as the capsule that jax.ffi.register_ffi_target
    takes.
    """

def methods(operation: str, /) -> list[dict[str, Any]]:
    """The methods of an operation as dicts: see onsoftmax.methods."""

def as_numpy(array: Any, /) -> NDArray[Any]:
    """What softmax would read of an array on the CPU, as a read-only NumPy array: its memory, or a copy
    where softmax converts it.
    """

def set_num_threads(n: int, /) -> None:
    """Use at most n threads where a call says nothing else.

    n is an int of at least 1: TypeError and ValueError otherwise.
    """

def get_num_threads() -> int:
    """The most threads a call uses where it says nothing else: set_num_threads, else the environment
    variable ONSOFTMAX_NUM_THREADS, else the processors that affinity and cgroup quota allow.
    """

def config() -> dict[str, Any]:
    """The build and what it found as a dict: see onsoftmax.show_config."""

def pair_of(row: tuple[float, ...], in_float: bool, /) -> _Pair:
    """The pair (m, c, d, d_low) of a tuple of floats: d = sum(e^x * 2^-c), its exponentials rounded to
    float where `in_float`, else to double.
    """

def pair_merge(a: _Pair, b: _Pair, /) -> _Pair:
    """The pair of two parts of a row: ons_state_merge."""

def pair_d(pair: _Pair, /) -> float:
    """d relative to m: sum(e^(x - m))."""

def pair_anchor(m: float, /) -> float:
    """What a row of that maximum is taken relative to before anything else: m where it is large, else 0."""
