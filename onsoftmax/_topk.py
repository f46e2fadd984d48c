"""What softmax_topk gives. The C core takes TopK from here when it is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ._normalizer import Normalizer


class TopK(NamedTuple):
    """What softmax_topk gives: two arrays with k elements along the axis."""

    values: Any
    """The k largest probabilities of each row, or their logarithms."""
    indices: Any
    """Their places along the axis."""


class TopKWithNormalizer(NamedTuple):
    """What softmax_topk gives with return_normalizer=True."""

    values: Any
    """The k largest probabilities of each row, or their logarithms."""
    indices: Any
    """Their places along the axis."""
    normalizer: Normalizer
    """The (m, d) of the rows."""
