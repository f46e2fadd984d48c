from collections.abc import Sequence
from typing import Any, SupportsIndex, TypeVar, final, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

_Axis = int | tuple[int, ...] | None
_Array = TypeVar("_Array")
_Pair = tuple[float, float, float, float]

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

@overload
def softmax(
    array: NDArray[np.floating[Any]] | Sequence[Any] | float,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: DTypeLike | None = None,
    out: None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: None = None,
    num_threads: int | None = None,
) -> NDArray[Any]: ...
@overload
def softmax(
    array: Any,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: Any = None,
    out: _Array,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def softmax(
    array: _Array,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: Any = None,
    out: None = None,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def log_softmax(
    array: NDArray[np.floating[Any]] | Sequence[Any] | float,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: DTypeLike | None = None,
    out: None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: None = None,
    num_threads: int | None = None,
) -> NDArray[Any]: ...
@overload
def log_softmax(
    array: Any,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: Any = None,
    out: _Array,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def log_softmax(
    array: _Array,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: Any = None,
    out: None = None,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def logsumexp(
    array: NDArray[np.floating[Any]] | Sequence[Any] | float,
    /,
    axis: _Axis = -1,
    *,
    keepdims: bool = False,
    method: str = "auto",
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: None = None,
    num_threads: int | None = None,
) -> Any: ...
@overload
def logsumexp(
    array: _Array,
    /,
    axis: _Axis = -1,
    *,
    keepdims: bool = False,
    method: str = "auto",
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def softmax_backward(
    grad: NDArray[np.floating[Any]] | Sequence[Any] | float,
    output: NDArray[np.floating[Any]] | Sequence[Any] | float,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: DTypeLike | None = None,
    out: None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: None = None,
    num_threads: int | None = None,
) -> NDArray[Any]: ...
@overload
def softmax_backward(
    grad: Any,
    output: Any,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: Any = None,
    out: _Array,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def softmax_backward(
    grad: Any,
    output: _Array,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: Any = None,
    out: None = None,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def log_softmax_backward(
    grad: NDArray[np.floating[Any]] | Sequence[Any] | float,
    output: NDArray[np.floating[Any]] | Sequence[Any] | float,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: DTypeLike | None = None,
    out: None = None,
    where: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
    stream: None = None,
    num_threads: int | None = None,
) -> NDArray[Any]: ...
@overload
def log_softmax_backward(
    grad: Any,
    output: Any,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: Any = None,
    out: _Array,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def log_softmax_backward(
    grad: Any,
    output: _Array,
    /,
    axis: _Axis = -1,
    *,
    method: str = "auto",
    dtype: Any = None,
    out: None = None,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
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
    k: SupportsIndex,
    /,
    axis: _Axis = -1,
    *,
    log: bool = False,
    sorted: bool = True,
    return_normalizer: bool = False,
    method: str = "auto",
    dtype: Any = None,
    where: Any = None,
    scale: Any = 1.0,
    stream: Any = None,
    num_threads: int | None = None,
    dtypes: list[str] | None = None,
) -> tuple[Any, ...]: ...
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
) -> Any: ...
def merge(
    packed: Any, /, axis: _Axis = (), *, other: Any = None, gives: str = "packed", stream: Any = None
) -> Any: ...
def pack(
    pairs: Any, /, axis: _Axis = (), *, other: Any = None, gives: str = "packed", stream: Any = None
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
def methods(operation: str, /) -> list[dict[str, Any]]: ...
def as_numpy(array: Any, /) -> NDArray[Any]: ...
def set_num_threads(n: int, /) -> None: ...
def get_num_threads() -> int: ...
def config() -> dict[str, Any]: ...
def pair_of(row: tuple[float, ...], in_float: bool, /) -> _Pair: ...
def pair_merge(a: _Pair, b: _Pair, /) -> _Pair: ...
def pair_d(pair: _Pair, /) -> float: ...
def pair_anchor(m: float, /) -> float: ...
