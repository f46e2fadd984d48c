"""The results of softmax_topk. The C core takes TopK from here at its import. _topk.pyi has their types."""

from __future__ import annotations

from typing import Any, NamedTuple


class TopK(NamedTuple):
    """The result of softmax_topk: two arrays with k elements along the axis."""

    values: Any
    """The k largest probabilities of each row, or their logarithms."""
    indices: Any
    """Their indices along the axis."""


class TopKWithNormalizer(NamedTuple):
    """The result of softmax_topk with return_normalizer=True."""

    values: Any
    """The k largest probabilities of each row, or their logarithms."""
    indices: Any
    """Their indices along the axis."""
    normalizer: Any
    """The Normalizer of the rows."""
