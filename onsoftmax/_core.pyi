from collections.abc import Sequence
from typing import Any, Literal, Protocol, SupportsIndex, TypeVar, final, overload

import numpy as np
from numpy.typing import NDArray

from ._types import MethodName

_Axis = int | tuple[int, ...] | None
_Array = TypeVar("_Array")
_Float = TypeVar("_Float", bound=np.floating[Any])
_Result = TypeVar("_Result", bound=np.floating[Any])
_Plain = NDArray[Any] | Sequence[Any] | float
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
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def stream(self) -> int: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(
        self,
        stream: Any = None,
        *,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def copy_to_host(self) -> NDArray[Any]: ...

class _OfRows(Protocol):
    """softmax and log_softmax."""

    @overload  # into an array
    def __call__(
        self,
        array: Any,
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: Any = None,
        out: _Array,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> _Array: ...
    @overload  # a result of a given type
    def __call__(
        self,
        array: _Plain,
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: type[_Result] | np.dtype[_Result],
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[_Result]: ...
    @overload
    def __call__(
        self,
        array: _Plain,
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: str,
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[np.floating[Any]]: ...
    @overload  # a result of the array's type, float64 for integers and bool
    def __call__(
        self,
        array: NDArray[_Float],
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: None = None,
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[_Float]: ...
    @overload
    def __call__(
        self,
        array: NDArray[np.integer[Any]] | NDArray[np.bool_],
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: None = None,
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[np.float64]: ...
    @overload
    def __call__(
        self,
        array: float,
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: None = None,
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> np.float64: ...
    @overload
    def __call__(
        self,
        array: Sequence[float] | Sequence[Sequence[float]],
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: None = None,
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[np.float64]: ...
    @overload
    def __call__(
        self,
        array: Sequence[Any],
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: None = None,
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[np.floating[Any]]: ...
    @overload  # torch, JAX, CuPy and other arrays: a result of the caller's own kind
    def __call__(
        self,
        array: _Array,
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: Any = None,
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> _Array: ...

class _OfValues(Protocol):
    """logsumexp. Without keepdims one NumPy row gives a number, and several rows give an array."""

    @overload
    def __call__(
        self,
        array: NDArray[_Float],
        /,
        axis: _Axis = -1,
        *,
        keepdims: Literal[True],
        method: MethodName = "auto",
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[_Float]: ...
    @overload
    def __call__(
        self,
        array: _Plain,
        /,
        axis: _Axis = -1,
        *,
        keepdims: bool = False,
        method: MethodName = "auto",
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> Any: ...
    @overload
    def __call__(
        self,
        array: _Array,
        /,
        axis: _Axis = -1,
        *,
        keepdims: bool = False,
        method: MethodName = "auto",
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> _Array: ...

class _OfGradients(Protocol):
    """softmax_backward and log_softmax_backward. They take grad, then the forward operation's result."""

    @overload
    def __call__(
        self,
        grad: Any,
        output: Any,
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: Any = None,
        out: _Array,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> _Array: ...
    @overload
    def __call__(
        self,
        grad: _Plain,
        output: _Plain,
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: type[_Result] | np.dtype[_Result],
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[_Result]: ...
    @overload
    def __call__(
        self,
        grad: NDArray[_Float],
        output: NDArray[_Float],
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: None = None,
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[_Float]: ...
    @overload
    def __call__(
        self,
        grad: _Plain,
        output: _Plain,
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: Any = None,
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> NDArray[np.floating[Any]]: ...
    @overload
    def __call__(
        self,
        grad: _Array,
        output: _Array,
        /,
        axis: _Axis = -1,
        *,
        method: MethodName = "auto",
        dtype: Any = None,
        out: None = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> _Array: ...

softmax: _OfRows
log_softmax: _OfRows
logsumexp: _OfValues
softmax_backward: _OfGradients
log_softmax_backward: _OfGradients

def normalizer(
    array: Any,
    /,
    axis: _Axis = -1,
    *,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
    dtypes: list[str] | None = None,
) -> Any: ...
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
) -> Any: ...
def finish(
    array: Any,
    /,
    axis: _Axis = -1,
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
) -> Any: ...
def sums(array: Any, /, axis: _Axis = -1, *, stream: Any = None, num_threads: int | None = None) -> Any: ...
def gradient_sums(
    grad: Any,
    output: Any,
    /,
    axis: _Axis = -1,
    *,
    operation: str = "softmax_backward",
    stream: Any = None,
    num_threads: int | None = None,
) -> Any: ...
def gradient_finish(
    grad: Any,
    output: Any,
    /,
    axis: _Axis = -1,
    *,
    pairs: Any,
    operation: str = "softmax_backward",
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
    num_threads: int | None = None,
) -> Any: ...
def merge(
    packed: Any,
    /,
    axis: _Axis = (),
    *,
    dtype: Any = None,
    other: Any = None,
    gives: str = "packed",
    stream: Any = None,
) -> Any: ...
def pack(
    pairs: Any,
    /,
    axis: _Axis = (),
    *,
    dtype: Any = None,
    other: Any = None,
    gives: str = "packed",
    stream: Any = None,
) -> Any: ...
def empty(like: Any, shape: tuple[int, ...], /, *, dtype: Any = None) -> Any: ...
def plan(
    array_or_shape: Any,
    /,
    axis: _Axis = -1,
    *,
    dtype: Any = None,
    device: str | None = None,
    method: str = "auto",
    num_threads: int | None = None,
    operation: str = "softmax",
    k: SupportsIndex | None = None,
    caches: tuple[int, int, int] | None = None,
) -> dict[str, Any]: ...
def check_call(
    array: Any,
    /,
    axis: _Axis = -1,
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
) -> tuple[int, ...]: ...
def xla_target(platform: str, /) -> Any: ...
def methods(operation: str, /) -> list[dict[str, Any]]: ...
def as_numpy(array: Any, /) -> NDArray[Any]: ...
def set_num_threads(n: int, /) -> None: ...
def get_num_threads() -> int: ...
def config() -> dict[str, Any]: ...
def pair_of(row: tuple[float, ...], in_float: bool, /) -> _Pair: ...
def pair_merge(a: _Pair, b: _Pair, /) -> _Pair: ...
def pair_d(pair: _Pair, /) -> float: ...
def pair_anchor(m: float, /) -> float: ...
