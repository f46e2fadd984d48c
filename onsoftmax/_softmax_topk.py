"""softmax_topk, the C core's, as type checkers see it; and what it gives with return_normalizer=True."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex, overload

from . import _core
from ._normalizer import Normalizer, normalizer
from ._topk import TopK
from ._types import MethodName


class TopKWithNormalizer(NamedTuple):
    """What softmax_topk gives with return_normalizer=True."""

    values: Any
    """The k largest probabilities of each row, or their logarithms."""
    indices: Any
    """Their indices along the axis."""
    normalizer: Normalizer
    """The (m, d) of the rows."""


def with_normalizer(
    found: TopK, array: Any, pairs: Any, dtype: str, stream: Any, keywords: dict[str, Any]
) -> TopKWithNormalizer:
    """For the C core: of a TopK, and of the pairs of the rows or, where it has none, of the array."""
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
