"""softmax_topk with return_normalizer=True, which the C core leaves to Python."""

from __future__ import annotations

from typing import Any

from . import _core
from ._normalizer import Normalizer, normalizer
from ._topk import TopK, TopKWithNormalizer


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
