"""What softmax_topk gives. The C core takes TopK from here when it is imported."""

from __future__ import annotations

from typing import Any, NamedTuple


class TopK(NamedTuple):
    """What softmax_topk gives: two arrays with k elements along the axis."""

    values: Any
    """The k largest probabilities of each row, or their logarithms."""
    indices: Any
    """Their indices along the axis."""
