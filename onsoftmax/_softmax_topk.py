"""The types of the C core's softmax_topk for type checkers, and its result with return_normalizer=True."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex, overload

from . import _core
from ._normalizer import Normalizer, normalizer
from ._topk import TopK
from ._types import MethodName


class TopKWithNormalizer(NamedTuple):
    """The result of softmax_topk with return_normalizer=True."""

    values: Any
    """The k largest probabilities of each row, or their logarithms."""
    indices: Any
    """Their indices along the axis."""
    normalizer: Normalizer
    """The (m, d) of the rows."""


def with_normalizer(
    found: TopK, array: Any, pairs: Any, dtype: str, stream: Any, keywords: dict[str, Any]
) -> TopKWithNormalizer:
    """Called by the C core: adds the rows' Normalizer to a TopK, from their pairs, or from the array if pairs
    is None."""
    axis, scale = keywords.get("axis", -1), keywords.get("scale", 1.0)
    if pairs is None:
        same = {name: keywords[name] for name in ("where", "num_threads") if name in keywords}
        made = normalizer(array, axis, scale=scale, stream=stream, **same)
    else:
        made = Normalizer(_core.pack(pairs, stream=stream), axis, scale, dtype)
    return TopKWithNormalizer(found.values, found.indices, made)


if TYPE_CHECKING:

    @overload
    def softmax_topk(
        array: Any,
        /,
        k: SupportsIndex,
        axis: int | tuple[int] = -1,
        *,
        log: bool = False,
        sorted: bool = True,
        return_normalizer: Literal[False] = False,
        method: MethodName = "auto",
        dtype: Any = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> TopK: ...
    @overload
    def softmax_topk(
        array: Any,
        /,
        k: SupportsIndex,
        axis: int | tuple[int] = -1,
        *,
        log: bool = False,
        sorted: bool = True,
        return_normalizer: Literal[True],
        method: MethodName = "auto",
        dtype: Any = None,
        where: Any = None,
        scale: Any = 1.0,
        stream: Any = None,
        num_threads: int | None = None,
    ) -> TopKWithNormalizer: ...
    def softmax_topk(*arguments: Any, **keywords: Any) -> Any: ...

else:
    softmax_topk = _core.softmax_topk
