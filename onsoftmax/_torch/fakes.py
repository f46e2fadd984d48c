"""What the results of the operators will be, for tensors without values. Checks a call as the core does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _core
from .._divergences import check_divergence
from .._libraries.kinds import index_dtype_name
from .._losses import check_kind, check_terms
from .._route import check_groups, check_names
from .._sample_arguments import FILTERS, INTEGERS, PARAMETERS, logprob_name
from .._sample_arguments import check_names as check_sample_names


def axes_from_end(axes: Sequence[int], ndim: int) -> list[int]:
    """The axes that a call reduces, for an array of `ndim` dimensions. Raises the call's exceptions."""
    return list(_core.check_call(np.empty((1,) * ndim), tuple(axes)))


def _holds(condition: Any) -> bool:
    """Whether a condition on lengths holds. Lengths may be symbols. If a symbol has no value yet, the
    operator checks it when it runs."""
    try:
        return bool(condition)
    except Exception as error:
        if type(error).__name__ != "GuardOnDataDependentSymNode":
            raise
        return True


def _is_supported(array: Tensor) -> bool:
    return not (array.dtype.is_complex or (array.dtype.is_floating_point and array.dtype.itemsize < 2))


def _check_type(name: str, array: Tensor) -> None:
    if not _is_supported(array):
        raise TypeError(
            f"{name}dtype {_name_of(array)} is not supported: expected float16, bfloat16, float32 or float64"
        )


def _check_broadcast(name: str, array: Tensor, x: Tensor, one_along: Sequence[int]) -> None:
    fits = array.ndim <= x.ndim and all(
        _holds(own == 1) or (i not in one_along and _holds(own == x.shape[i]))
        for i, own in enumerate(array.shape, -array.ndim)
    )
    if not fits:
        wanted = tuple(1 if i - x.ndim in one_along else length for i, length in enumerate(x.shape))
        along = ", with length 1 along axis" if one_along else ""
        raise ValueError(
            f"{name} has shape {tuple(array.shape)}, and the array has {tuple(x.shape)}: expected a shape "
            f"that broadcasts to {wanted}{along}"
        )


def _check_devices(x: Tensor, **others: Tensor | None) -> None:
    for name, array in others.items():
        if array is not None and array.device != x.device:
            raise ValueError(
                f"{name} is on {array.device}, but the array is on {x.device}: expected one device"
            )


def _check_shape(name: str, array: Tensor, shape: Sequence[Any]) -> None:
    if array.ndim != len(shape) or not all(_holds(a == b) for a, b in zip(array.shape, shape, strict=True)):
        raise ValueError(f"{name} has shape {tuple(array.shape)}: expected {tuple(shape)}")


def _check(x: Tensor, axes: Sequence[int], others: Sequence[Any], grad: Tensor | None = None) -> list[int]:
    """Checks a call as the core checks a call on arrays with values. Returns the result of axes_from_end.
    `others` are the mask and the scale."""
    where, scale = (*others, None, None)[:2]
    number = scale is not None and scale.ndim == 0
    _check_devices(x, where=where, scale=None if number else scale, grad=grad)
    _check_type("output: " if grad is not None else "", x)
    reduced = axes_from_end(axes, x.ndim)
    if grad is not None:
        _check_type("grad: ", grad)
        _check_shape("grad", grad, x.shape)
    if where is not None:
        if where.dtype != torch.bool:
            raise TypeError(f"where has dtype {_name_of(where)}: expected a mask of bool")
        _check_broadcast("where", where, x, ())
    if scale is not None:
        if not _is_supported(scale):
            raise TypeError(f"scale has dtype {_name_of(scale)}: expected a real number, or an array of them")
        _check_broadcast("scale", scale, x, reduced)
    return reduced


def _name_of(array: Tensor) -> str:
    return str(array.dtype).removeprefix("torch.")


def _float_type(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (x.dtype if x.dtype.is_floating_point else torch.get_default_dtype())


def _of_rows(
    x: Tensor, axes: Sequence[int], *others: Any, dtype: torch.dtype | None = None, **_: Any
) -> Tensor:
    _check(x, axes, others)
    return x.new_empty(x.shape, dtype=_float_type(x, dtype))


def _of_gradient(
    grad: Tensor,
    output: Tensor,
    axes: Sequence[int],
    *others: Any,
    dtype: torch.dtype | None = None,
    **_: Any,
) -> Tensor:
    _check(output, axes, others, grad)
    if dtype is None:
        types = {_float_type(grad, None), _float_type(output, None)}
        dtype = types.pop() if len(types) == 1 else torch.float64 if torch.float64 in types else torch.float32
    return output.new_empty(output.shape, dtype=dtype)


def _of_values(x: Tensor, axes: Sequence[int], *others: Any, keepdims: bool = False, **_: Any) -> Tensor:
    reduced = _check(x, axes, others)
    from_end = enumerate(x.shape, -x.ndim)
    shape = [1 if i in reduced else n for i, n in from_end if keepdims or i not in reduced]
    return x.new_empty(shape, dtype=_float_type(x, None))


def _of_topk(
    x: Tensor, k: int, axes: Sequence[int], *others: Any, dtype: torch.dtype | None = None, **_: Any
) -> tuple[Tensor, Tensor]:
    shape, reduced = list(x.shape), _check(x, axes, others)
    if len(axes) != 1:
        raise ValueError(f"axis is {tuple(axes)}: expected one axis")
    place = reduced[0] % x.ndim if reduced else 0
    _check_k(k, place, x.shape[place] if reduced else 1)
    if reduced:
        shape[place] = k
    return x.new_empty(shape, dtype=_float_type(x, dtype)), x.new_empty(shape, dtype=torch.int64)


def _check_k(k: int, place: int, longest: int) -> None:
    if not (_holds(k >= 1) and _holds(k <= longest)):
        if _holds(longest == 0):
            raise ValueError(f"k is {k}, and axis {place} has length 0: expected an axis with elements")
        raise ValueError(f"k is {k}: expected 1 to {longest}, the length of axis {place}")


def _check_loss(
    logits: Tensor, target: Tensor, axis: int, weight: Tensor | None, grad: Tensor | None, **terms: Any
) -> tuple[Tensor, Tensor]:
    """Checks a call of a loss as the core does. Returns the loss and the logsumexp of each row."""
    check_terms(terms.get("label_smoothing", 0.0), terms.get("z_loss", 0.0), terms.get("reduction", "mean"))
    _check_type("", logits)
    place = axis_of_rows(axis, logits.ndim) % logits.ndim
    rows = [*logits.shape[:place], *logits.shape[place + 1 :]]
    alone = terms.get("reduction", "mean") == "none"
    for name, array, shape in (
        ("target", target, rows),
        ("weight", weight, [logits.shape[place]]),
        ("grad_loss", grad, rows if grad is not None and grad.ndim else []),
    ):
        if array is not None:
            check_kind(name, _name_of(array), name == "target")
            _check_devices(logits, **{name: array})
            _check_shape(name, array, shape)
    dtype = torch.float64 if _float_type(logits, None) == torch.float64 else torch.float32
    return logits.new_empty(rows if alone else [], dtype=dtype), logits.new_empty(rows, dtype=dtype)


def axis_of_rows(axis: int, ndim: int) -> int:
    """The axis of a loss, from the end."""
    if ndim == 0:
        raise ValueError("logits has shape (): expected at least one dimension")
    return axes_from_end([axis], ndim)[0]


def _of_loss(
    logits: Tensor, target: Tensor, axis: int, weight: Tensor | None = None, **terms: Any
) -> tuple[Tensor, Tensor]:
    return _check_loss(logits, target, axis, weight, None, **terms)


def _of_loss_with_grad(
    logits: Tensor, target: Tensor, axis: int, weight: Tensor | None = None, **terms: Any
) -> tuple[Tensor, Tensor, Tensor]:
    loss, lse = _check_loss(logits, target, axis, weight, None, **terms)
    return loss, logits.new_empty(logits.shape, dtype=_float_type(logits, None)), lse


def _of_loss_backward(
    grad: Tensor, logits: Tensor, target: Tensor, axis: int, weight: Tensor | None = None, **terms: Any
) -> Tensor:
    _check_loss(logits, target, axis, weight, grad, **terms)
    return logits.new_empty(logits.shape, dtype=_float_type(logits, None))


def _check_logprob(
    logits: Tensor, index: Tensor, axis: int, moments: Tensor | None = None, *grads: Tensor | None
) -> tuple[list[Any], torch.dtype]:
    """Returns the shape of the rows and the type of the real results."""
    _check_type("", logits)
    place = axis_of_rows(axis, logits.ndim) % logits.ndim
    rows = [*logits.shape[:place], *logits.shape[place + 1 :]]
    check_kind("index", _name_of(index), True)
    several = list(index.shape[len(rows) :]) if index.ndim == len(rows) + 1 else []
    if several and not _holds(several[0] > 0):
        raise ValueError("index has 0 elements of each row: expected at least one")
    for name, array, shape in (
        ("index", index, rows + several),
        ("moments", moments, [3 * prod(rows)]),
        *zip(("grad_logprob", "grad_entropy", "grad_lse"), grads, (index.shape, rows, rows), strict=False),
    ):
        if array is not None:
            _check_devices(logits, **{name: array})
            _check_shape(name, array, shape)
    return rows, torch.float64 if _float_type(logits, None) == torch.float64 else torch.float32


def _of_logprob(
    logits: Tensor,
    index: Tensor,
    axis: int,
    *,
    entropy: bool = False,
    argmax: bool = False,
    rank: bool = False,
    **_: Any,
) -> tuple[Tensor, ...]:
    rows, dtype = _check_logprob(logits, index, axis)
    if rank and index.ndim > len(rows) and not _holds(index.shape[-1] == 1):
        raise ValueError(
            f"rank is wanted, and index has {index.shape[-1]} elements of each row: expected one"
        )
    return (
        logits.new_empty(index.shape, dtype=dtype),
        logits.new_empty(rows if entropy else [0], dtype=dtype),
        logits.new_empty(rows, dtype=dtype),
        logits.new_empty(rows if argmax else [0], dtype=torch.int64),
        logits.new_empty(index.shape if rank else [0], dtype=torch.int64),
        logits.new_empty([3 * prod(rows)], dtype=torch.float64),
    )


def _of_logprob_backward(logits: Tensor, index: Tensor, moments: Tensor, *given: Any, **_: Any) -> Tensor:
    *grads, axis = given
    _check_logprob(logits, index, axis, moments, *grads)
    return logits.new_empty(logits.shape, dtype=_float_type(logits, None))


def _check_divergence(
    p_logits: Tensor,
    q_logits: Tensor,
    axis: int,
    *others: Tensor | None,
    grad: Tensor | None = None,
    **terms: Any,
) -> Tensor:
    """Checks a call of a divergence as the core does. Returns the value."""
    reduction = terms.get("reduction", "none")
    check_divergence(reduction, terms.get("wrt", "p"), terms.get("beta"))
    place = axis_of_rows(axis, p_logits.ndim) % p_logits.ndim
    _check_shape("the other array of logits", q_logits, p_logits.shape)
    types = [_name_of(x) if x.dtype.is_floating_point else None for x in (p_logits, q_logits)]
    if types[0] != types[1]:
        raise TypeError(
            f"one array of logits has dtype {_name_of(p_logits)}, the other has {_name_of(q_logits)}: "
            "expected the same dtype"
        )
    _check(p_logits, [axis], others)
    _check_devices(p_logits, **{"the other array of logits": q_logits, "grad_value": grad})
    rows = [*p_logits.shape[:place], *p_logits.shape[place + 1 :]]
    if grad is not None:
        check_kind("grad_value", _name_of(grad), False)
        _check_shape("grad_value", grad, rows if grad.ndim else [])
    dtype = torch.float64 if _float_type(p_logits, None) == torch.float64 else torch.float32
    return p_logits.new_empty(rows if reduction == "none" else [], dtype=dtype)


def _of_divergence_with_grad(p_logits: Tensor, *given: Any, **terms: Any) -> tuple[Tensor, Tensor]:
    value = _check_divergence(p_logits, *given, **terms)
    return value, p_logits.new_empty(p_logits.shape, dtype=_float_type(p_logits, None))


def _of_divergence_backward(grad: Tensor, *given: Any, **terms: Any) -> Tensor:
    return _of_divergence_with_grad(*given, grad=grad, **terms)[1]


def _of_route(
    logits: Tensor,
    k: int,
    axis: int,
    bias: Tensor | None = None,
    where: Tensor | None = None,
    *,
    score: str = "softmax",
    groups: int = 1,
    top_groups: int | None = None,
    index_dtype: torch.dtype | None = None,
    method: str = "auto",
    **_: Any,
) -> tuple[Tensor, Tensor]:
    check_names(score, method)
    if index_dtype is not None:
        index_dtype_name(index_dtype)
    shape, place = list(logits.shape), axis_of_rows(axis, logits.ndim) % logits.ndim
    _check_k(k, place, shape[place])
    check_groups(k, shape[place], groups, groups if top_groups is None else top_groups, _holds)
    _check(logits, [axis], [where])
    if bias is not None:
        check_kind("bias", _name_of(bias), False)
        _check_devices(logits, bias=bias)
        _check_shape("bias", bias, [shape[place]])
    shape[place] = k
    real = torch.float64 if _float_type(logits, None) == torch.float64 else torch.float32
    return logits.new_empty(shape, dtype=real), logits.new_empty(shape, dtype=index_dtype or torch.int64)


def _rows_of_tokens(
    name: str,
    logits: Tensor,
    axis: int,
    names: tuple[str, ...],
    given: tuple[Tensor | None, ...],
    filter_apply_order: str = "top_k_first",
    method: str = "auto",
    **_: Any,
) -> tuple[list[Any], torch.dtype]:
    """Checks the arguments of a sampler. Returns the shape of the rows and the type of probabilities."""
    check_sample_names(filter_apply_order, method, name)
    place = axis_of_rows(axis, logits.ndim) % logits.ndim
    rows = [*logits.shape[:place], *logits.shape[place + 1 :]]
    if _holds(logits.shape[place] == 0):
        raise ValueError("logits has rows of length 0: expected at least 1")
    _check(logits, [axis], given[len(names) :])
    for name, array in zip(names, given, strict=False):
        if array is not None:
            check_kind(name, _name_of(array), name in INTEGERS)
            _check_devices(logits, **{name: array})
            if not _holds(prod(array.shape) == 1):
                _check_shape(name, array, rows)
    return rows, torch.float64 if _float_type(logits, None) == torch.float64 else torch.float32


def _of_filtered_softmax(logits: Tensor, axis: int, *given: Tensor | None, **terms: Any) -> Tensor:
    _, real = _rows_of_tokens("filtered_softmax", logits, axis, FILTERS, given, **terms)
    return logits.new_empty(logits.shape, dtype=real)


def _of_sample(
    logits: Tensor,
    axis: int,
    *given: Tensor | None,
    return_logprob: str | None = None,
    return_valid: bool = False,
    **terms: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    logprob_name(return_logprob or False)
    rows, real = _rows_of_tokens("sample", logits, axis, PARAMETERS, given, **terms)
    return (
        logits.new_empty(rows, dtype=torch.int64),
        logits.new_empty(rows if return_logprob else [0], dtype=real if return_logprob else torch.float32),
        logits.new_empty(rows if return_valid else [0], dtype=torch.bool),
    )


FAKES: dict[str, Callable[..., Any]] = {
    "softmax": _of_rows,
    "log_softmax": _of_rows,
    "logsumexp": _of_values,
    "softmax_topk": _of_topk,
    "softmax_backward": _of_gradient,
    "log_softmax_backward": _of_gradient,
    "cross_entropy": _of_loss,
    "cross_entropy_with_grad": _of_loss_with_grad,
    "cross_entropy_backward": _of_loss_backward,
    "logprob": _of_logprob,
    "logprob_backward": _of_logprob_backward,
    "route": _of_route,
    "sample": _of_sample,
    "filtered_softmax": _of_filtered_softmax,
}
for _kind in ("kl", "js"):
    FAKES |= {
        f"{_kind}_divergence": _check_divergence,
        f"{_kind}_divergence_with_grad": _of_divergence_with_grad,
        f"{_kind}_divergence_backward": _of_divergence_backward,
    }
