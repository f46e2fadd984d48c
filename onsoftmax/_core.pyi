from collections.abc import Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

_Axis = int | tuple[int, ...] | None
_Array = TypeVar("_Array")

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
    stream: None = None,
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
    stream: None = None,
    num_threads: int | None = None,
) -> _Array: ...
def plan(
    array_or_shape: Any,
    /,
    axis: _Axis = -1,
    *,
    dtype: Any = None,
    method: str = "auto",
    num_threads: int | None = None,
) -> dict[str, Any]: ...
def methods() -> list[dict[str, Any]]: ...
def set_num_threads(n: int, /) -> None: ...
def get_num_threads() -> int: ...
def config() -> dict[str, Any]: ...
