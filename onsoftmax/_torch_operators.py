"""The operators torch.ops.onsoftmax.*: their schemas, what runs, and what the result will be.

An operator takes what the function of its name takes, but for the axes, which are a list, and scale, which is
a tensor, `scale`, or a number, `scale_by`. _torch_gradients.py has their derivatives, _torch_calls.py what
autograd and the transforms do with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, register_fake

from . import _core

LIBRARY = Library("onsoftmax", "DEF")
_TENSORS = "Tensor? where=None, Tensor? scale=None"
_CALL = "str method='auto', float scale_by=1.0, int? num_threads=None"
_OF_ROWS = f"ScalarType? dtype=None, {_CALL}"
_OF_K = f"bool log=False, bool sorted=True, {_OF_ROWS}"
_SCHEMAS = {
    "softmax": f"(Tensor x, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
    "log_softmax": f"(Tensor x, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
    "logsumexp": f"(Tensor x, int[] axes, {_TENSORS}, *, bool keepdims=False, {_CALL}) -> Tensor",
    "softmax_topk": f"(Tensor x, SymInt k, int[] axes, {_TENSORS}, *, {_OF_K}) -> (Tensor, Tensor)",
    "softmax_backward": f"(Tensor grad, Tensor output, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
    "log_softmax_backward": f"(Tensor grad, Tensor output, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
}
NAMES = tuple(_SCHEMAS)
for _name, _schema in _SCHEMAS.items():
    LIBRARY.define(_name + _schema)


def arrays_of(name: str) -> int:
    """How many arguments come before the axes: the arrays, and k."""
    return 2 if name.endswith(("_backward", "_topk")) else 1


# ---------------------------------------------------------------- what runs


def implementation(name: str) -> Callable[..., Any]:
    """The operator on tensors that are their memory, where no gradient is wanted."""
    function = getattr(_core, name)

    def of_one(
        x: Tensor,
        axes: Sequence[int],
        where: Tensor | None = None,
        scale: Tensor | None = None,
        *,
        scale_by: float = 1.0,
        **keywords: Any,
    ) -> Any:
        if where is None and scale is None and scale_by == 1:  # in half the time
            return function(x, tuple(axes), **keywords)
        factor = scale_by if scale is None else scale
        return function(x, tuple(axes), where=where, scale=factor, **keywords)

    def of_two(
        first: Tensor,
        second: Any,
        axes: Sequence[int],
        where: Tensor | None = None,
        scale: Tensor | None = None,
        *,
        scale_by: float = 1.0,
        **keywords: Any,
    ) -> Any:
        factor = scale_by if scale is None else scale
        return function(first, second, tuple(axes), where=where, scale=factor, **keywords)

    return of_one if arrays_of(name) == 1 else of_two


for _name in NAMES:
    _run = torch.no_grad()(implementation(_name))  # autograd has had its turn
    for _device in ("CPU", "CUDA"):
        LIBRARY.impl(_name, _run, _device)


# ---------------------------------------------------------------- what the result will be


def _float_type(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (x.dtype if x.dtype.is_floating_point else torch.get_default_dtype())


def _of_rows(x: Tensor, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> Tensor:
    return x.new_empty(x.shape, dtype=_float_type(x, dtype))


def _of_gradient(
    grad: Tensor, output: Tensor, *_: Any, dtype: torch.dtype | None = None, **__: Any
) -> Tensor:
    if dtype is None:
        types = {_float_type(grad, None), _float_type(output, None)}
        dtype = types.pop() if len(types) == 1 else torch.float64 if torch.float64 in types else torch.float32
    return output.new_empty(output.shape, dtype=dtype)


def _of_values(x: Tensor, axes: Sequence[int], *_: Any, keepdims: bool = False, **__: Any) -> Tensor:
    reduced = {axis % x.ndim for axis in axes} if x.ndim else set()
    shape = [1 if i in reduced else n for i, n in enumerate(x.shape) if keepdims or i not in reduced]
    return x.new_empty(shape, dtype=_float_type(x, None))


def _of_topk(
    x: Tensor, k: int, axes: Sequence[int], *_: Any, dtype: torch.dtype | None = None, **__: Any
) -> tuple[Tensor, Tensor]:
    shape = list(x.shape)
    if shape:
        shape[axes[0]] = k
    return x.new_empty(shape, dtype=_float_type(x, dtype)), x.new_empty(shape, dtype=torch.int64)


_FAKES: dict[str, Callable[..., Any]] = {
    "softmax": _of_rows,
    "log_softmax": _of_rows,
    "logsumexp": _of_values,
    "softmax_topk": _of_topk,
    "softmax_backward": _of_gradient,
    "log_softmax_backward": _of_gradient,
}
for _name, _fake in _FAKES.items():
    register_fake(f"onsoftmax::{_name}", _fake, lib=LIBRARY)
