"""The names that arguments may have, for type checkers. Command lines use the names of the types too."""

from __future__ import annotations

from typing import Literal

DTYPES = ("float16", "bfloat16", "float32", "float64")

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
