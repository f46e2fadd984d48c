"""The names that arguments may have, for type checkers. Command lines use the names of the types too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

DTYPES = ("float16", "bfloat16", "float32", "float64")

MethodName = Literal[
    "auto",
    "invariant",
    "naive",
    "safe",
    "online",
    "fused",
    "split",
    "exact",
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
PlannedOperation = (
    OperationName
    | Literal[
        "cross_entropy",
        "cross_entropy_with_grad",
        "logprob",
        "kl_divergence",
        "kl_divergence_with_grad",
        "js_divergence",
        "js_divergence_with_grad",
        "route",
        "sample",
    ]
)
NormalizerMethod = Literal["auto", "invariant", "exact"]
Reduction = Literal["none", "sum", "mean"]
Side = Literal["p", "q"]
Score = Literal["softmax", "sigmoid", "sqrtsoftplus", "none"]
FilterOrder = Literal["top_k_first", "joint"]
SampleLogprob = Literal["unfiltered", "filtered"]
ExplainedMethod = Literal["naive", "safe", "online", "fused", "split", "exact"]
ExplainedOperation = Literal[
    "softmax",
    "log_softmax",
    "logsumexp",
    "softmax_topk",
    "softmax_backward",
    "log_softmax_backward",
    "cross_entropy",
    "cross_entropy_with_grad",
    "logprob",
    "sample",
]

# The types of arguments. NumPy's releases allow different annotations, so only type checkers read these.
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol, TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    Axis: TypeAlias = int | tuple[int, ...] | None

    class HasDLPack(Protocol):
        """A torch tensor, a CuPy or JAX array, a DeviceArray. The result is of the same class."""

        def __dlpack__(self, *arguments: Any, **keywords: Any) -> Any: ...

    class HasCudaArrayInterface(Protocol):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]: ...

    class HasArray(Protocol):
        """A NumPy array or scalar, or an object that NumPy converts, such as a pandas Series."""

        def __array__(self, *arguments: Any, **keywords: Any) -> Any: ...

    class TorchDType(Protocol):
        """A torch.dtype. NumPy's types do not have this attribute."""

        @property
        def is_floating_point(self) -> bool: ...

    class TorchDevice(Protocol):
        """A torch.device."""

        @property
        def index(self) -> Any: ...
        @property
        def type(self) -> str: ...

    Device: TypeAlias = str | TorchDevice | None

    # Lists within lists, four deep. A recursive alias would also take a str, whose elements are str.
    Numbers: TypeAlias = Sequence[float | Sequence[float | Sequence[float | Sequence[float]]]]
    _Item: TypeAlias = float | HasArray
    Nested: TypeAlias = Sequence[_Item | Sequence[_Item | Sequence[_Item | Sequence[_Item]]]]

    Counts: TypeAlias = NDArray[np.integer[Any]] | NDArray[np.bool_]
    NumPyLike: TypeAlias = NDArray[Any] | Nested
    Convertible: TypeAlias = float | HasArray | HasCudaArrayInterface
    ArrayLike: TypeAlias = NumPyLike | Convertible | HasDLPack

    # To a type checker, ml_dtypes.bfloat16 is only an np.generic, and so passes for np.generic[bytearray].
    # A class derived from np.generic with another item, such as np.int32, does not pass.
    _BFloat16: TypeAlias = np.generic[bytearray]
    DType: TypeAlias = (
        type[np.floating[Any] | _BFloat16] | np.dtype[np.floating[Any] | _BFloat16] | TorchDType | str | None
    )
    # Values of DType from which a type checker cannot tell the result's type.
    AnyDType: TypeAlias = type[_BFloat16] | np.dtype[_BFloat16] | str | None
