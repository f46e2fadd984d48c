"""The names that arguments may have, for type checkers."""

from __future__ import annotations

from typing import Literal

MethodName = Literal[
    "auto",
    "naive",
    "safe",
    "online",
    "fused",
    "split",
    "fused_warp",
    "fused_block",
    "online_block",
    "cluster",
    "grid",
]
OperationName = Literal[
    "softmax",
    "log_softmax",
    "logsumexp",
    "normalizer",
    "softmax_topk",
    "softmax_backward",
    "log_softmax_backward",
]
ExplainedMethod = Literal["naive", "safe", "online", "fused", "split"]
ExplainedOperation = Literal["softmax", "softmax_topk"]
