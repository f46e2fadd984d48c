"""One case of a benchmark: an operation, its shape and types, and the bytes that it moves."""

from __future__ import annotations

import math
from dataclasses import dataclass

SPREAD = 3  # the usual spread of the logits
GRAPH_BYTES = 2**28  # with fewer bytes to move, calls on a GPU are timed inside a CUDA graph
PACKED_BYTES = 40  # bytes of a row's Normalizer
SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


@dataclass(frozen=True)
class Case:
    part: str
    shape: tuple[int, ...]
    dtype: str
    axis: int = -1
    out_dtype: str = ""
    """The type of the result. By default the input's type."""
    extra: str = ""
    """An additional feature of the case: one of EXTRAS of benchmarks/gpu_cases.py."""
    spread: float = SPREAD
    operation: str = "softmax"
    k: int = 0
    """For an operation that selects: how many elements."""

    @property
    def N(self) -> int:
        return self.shape[self.axis]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def M(self) -> int:
        return self.elements // self.N

    @property
    def label(self) -> str:
        axis = f" axis {self.axis}" if self.axis != -1 else ""
        out = f" to {self.out_dtype}" if self.out_dtype else ""
        operation = "" if self.operation == "softmax" else f"{self.operation} "
        return (
            operation
            + "x".join(map(str, self.shape))
            + axis
            + (f" k={self.k}" if self.k else "")
            + out
            + (f", {self.extra}" if self.extra else "")
        )

    @property
    def backward(self) -> bool:
        """Whether the operation takes a gradient, `grad`. `x` is then the forward operation's result."""
        return self.operation.endswith("_backward")

    @property
    def copy_bytes(self) -> int:
        """The bytes that the copy moves. A case is compared with this copy."""
        return 2 * self.elements * size_of(self.dtype)

    @property
    def bytes(self) -> int:
        """The bytes that a call must move: each input once, the result once."""
        inputs = 2 if self.backward else 1
        read = self.elements * (inputs * size_of(self.dtype) + (self.extra == "where"))
        written = math.prod(self.out_shape) * size_of(self.out_dtype or self.dtype)
        written += 8 * self.M * self.k  # the places
        if self.operation == "normalizer":
            written = PACKED_BYTES * self.M
        return read + written + (4 * self.M if self.extra == "scale per row" else 0)

    @property
    def leeway(self) -> int:
        """The error that the contract allows is so many times the error of softmax."""
        return 1

    @property
    def out_shape(self) -> tuple[int, ...]:
        axis = self.axis % len(self.shape)
        row = () if self.operation in ("logsumexp", "normalizer") else (self.k or self.N,)
        return self.shape[:axis] + row + self.shape[axis + 1 :]

    @property
    def takes_out(self) -> bool:
        """Whether the function takes `out`."""
        return self.operation not in ("logsumexp", "normalizer", "softmax_topk")

    @property
    def in_graph(self) -> bool:
        return self.bytes < GRAPH_BYTES

    @property
    def plain(self) -> bool:
        """Whether these are rows of a contiguous matrix. Every peer can take such rows."""
        return len(self.shape) == 2 and self.axis == -1 and not self.extra


def size_of(dtype: str) -> int:
    return SIZES[dtype]
