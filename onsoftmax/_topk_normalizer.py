"""What softmax_topk gives with return_normalizer=True, which the C core asks for."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _core
from ._normalizer import Normalizer
from ._topk import TopK


class TopKWithNormalizer(NamedTuple):
    """What softmax_topk gives with return_normalizer=True."""

    values: Any
    """The k largest probabilities of each row, or their logarithms."""
    indices: Any
    """Their places along the axis."""
    normalizer: Normalizer
    """The (m, d) of the rows."""


def with_normalizer(
    found: TopK, pairs: Any, axis: Any, scale: Any, stream: Any, dtype: str
) -> TopKWithNormalizer:
    """Of a TopK, and of the pairs of the rows that normalizer() has."""
    normalizer = Normalizer(_core.pack(pairs, stream=stream), axis, scale, dtype)
    return TopKWithNormalizer(found.values, found.indices, normalizer)
