"""linear_cross_entropy: the loss of a linear layer's logits, of which only a chunk exists at a time."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._core import X
from .._libraries.operators import ByOperator
from .._libraries.torch import FOR_GRADIENT, torch_data
from .._losses import _Terms, check_kind
from .arguments import as_tensor
from .chunks import Layer, LinearCrossEntropy, tokens_of_chunk
from .fakes import _check_devices, _check_shape, _name_of

if TYPE_CHECKING:
    from .._types import Reduction

_DTYPES = torch.float16, torch.bfloat16, torch.float32, torch.float64


def _check_types(x: Any, **others: Any) -> None:
    for name, tensor in {"x": x, **others}.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is of type {type(tensor).__name__}: expected a tensor")
        found = torch_data(tensor, X)
        if isinstance(found, ByOperator) and found is not FOR_GRADIENT:
            found.refuse()


def _check_call(x: Tensor, linear_weight: Tensor, target: Tensor, linear_bias: Tensor | None) -> None:
    if x.dtype not in _DTYPES:
        raise TypeError(f"x has dtype {_name_of(x)}: expected float16, bfloat16, float32 or float64")
    if x.ndim < 1 or linear_weight.ndim != 2 or x.shape[-1] != linear_weight.shape[1]:
        raise ValueError(
            f"x has shape {tuple(x.shape)}, and linear_weight has {tuple(linear_weight.shape)}: expected "
            "(..., hidden) and (classes, hidden)"
        )
    for name, array in (("linear_weight", linear_weight), ("linear_bias", linear_bias)):
        if array is not None and array.dtype != x.dtype:
            raise TypeError(f"{name} has dtype {_name_of(array)}: expected {_name_of(x)}, as x has")
    check_kind("target", _name_of(target), True)


def _check_classes(target: Tensor, classes: int, ignore_index: int) -> None:
    """Checks all targets on the CPU at once, so that the error has the row's number among all rows."""
    if target.is_cuda:
        return
    wrong = ((target < 0) | (target >= classes)) & (target != ignore_index)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise IndexError(
            f"target {int(target[row])} of row {row} is no class: expected 0 to {classes - 1}, or "
            f"ignore_index, which is {ignore_index}"
        )


def _chunk_of(chunk: Any, tokens: int, classes: int, hidden: int) -> int:
    if chunk is None:
        return tokens_of_chunk(tokens, classes, hidden)
    if not hasattr(chunk, "__index__"):
        raise TypeError(f"chunk is of type {type(chunk).__name__}: expected a number of tokens, or None")
    if isinstance(chunk, bool) or operator.index(chunk) < 1:
        raise ValueError(f"chunk is {chunk!r}: expected a number of tokens, at least 1, or None")
    return operator.index(chunk)


def _autocast(tensor: Tensor | None, device: str) -> Tensor | None:
    """The tensor as torch.nn.functional.linear takes it under torch.autocast."""
    if tensor is None or not tensor.is_floating_point() or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


def linear_cross_entropy(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    /,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: Reduction = "mean",
    chunk: int | None = None,
) -> Tensor:
    """The cross-entropy of a linear layer's logits, of which only a chunk exists at a time.

    It is cross_entropy(x @ linear_weight.T + linear_bias, target). It computes the logits of `chunk` tokens
    into one buffer, and writes their gradient over them. Names and meaning are as in
    torch.nn.functional.linear_cross_entropy, and z_loss is as in cross_entropy.

    The forward step computes the gradients of x, linear_weight and linear_bias. They take memory until the
    backward step. The backward step multiplies them by the gradient of the loss. A second backward step
    through the same call raises RuntimeError.

    With reduction="none", each token has its own gradient of the loss. In float16, gradients are too small
    without the scale of a GradScaler, which comes with the gradient of the loss. In both cases the backward
    step computes the logits of each chunk again. This takes one more product of matrices, and no memory
    between the two steps. The backward step may then repeat, with retain_graph=True.

    There is no second derivative. Under torch.autocast, the arrays are converted as for
    torch.nn.functional.linear. In torch.compile, the call is outside of the graph.

    Parameters
    ----------
    x : tensor of shape (..., hidden)
        The tokens that the layer takes: float16, bfloat16, float32 or float64.
    linear_weight : tensor of shape (classes, hidden)
        The weight of the layer, as in torch.nn.Linear. It has the type of x.
    target : tensor of integers, of the shape of x without the last dimension
        The class of each token.
    linear_bias : tensor of shape (classes,), optional
        The bias of the layer. It has the type of x.
    weight, ignore_index, label_smoothing, z_loss, reduction
        As cross_entropy takes them.
    chunk : int, optional
        The number of tokens whose logits exist at a time. By default, as few chunks as possible share the
        tokens evenly, in multiples of 256. A chunk may have about as many logits as x or linear_weight has
        elements, or 2**25 logits, or the logits of 2048 tokens, whichever is most. If this gives 5 to 8
        chunks, there are 4 chunks instead.

        Up to 4 chunks each round a 16-bit gradient of linear_weight. More chunks add it up in float32. This
        sum takes twice the memory of the gradient.

    Returns
    -------
    tensor
        One loss, or with "none" one for each token. It is float64 for float64, and float32 for all other
        types.

    Raises
    ------
    IndexError
        As cross_entropy raises it. On a GPU, a target that is no class makes the loss and gradients NaN.
    ValueError
        The shapes or devices do not fit each other, or an argument is out of its range.
    TypeError
        An array is not a tensor, or has another type than expected.
    RuntimeError
        The call is inside a transform of torch.func, weight requires grad, create_graph is given, or a
        backward step repeats.

    References
    ----------
    P.-L. Hsu et al., Liger Kernel, arXiv:2410.10989 (2024): chunks with gradients from the forward step.

    Examples
    --------
    >>> import torch
    >>> from onsoftmax.torch import linear_cross_entropy
    >>> head = torch.nn.Linear(4, 1000, bias=False)
    >>> x, target = torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64)
    >>> linear_cross_entropy(x, head.weight, target)
    tensor(6.9078, grad_fn=<LinearCrossEntropyBackward>)
    """
    arguments = {
        "linear_bias": linear_bias,
        "weight": weight,
        "ignore_index": ignore_index,
        "label_smoothing": label_smoothing,
        "z_loss": z_loss,
        "reduction": reduction,
        "chunk": chunk,
    }
    return outside_of_graphs(x, linear_weight, target, **arguments)


def _loss(
    x: Tensor,
    linear_weight: Tensor,
    target: Any,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    reduction: Reduction,
    chunk: int | None,
) -> Tensor:
    target = as_tensor("target", target, x) if isinstance(x, Tensor) else target
    _check_types(x, linear_weight=linear_weight, target=target, linear_bias=linear_bias, weight=weight)
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x, linear_weight, linear_bias = (_autocast(each, device) for each in (x, linear_weight, linear_bias))
    _check_call(x, linear_weight, target, linear_bias)
    tokens, (classes, hidden) = x.shape[:-1], linear_weight.shape
    of_classes = {"linear_bias": linear_bias, "weight": weight}
    _check_devices(x, linear_weight=linear_weight, target=target, **of_classes)
    _check_shape("target", target, tokens)
    for name, array in of_classes.items():
        if array is not None:
            _check_shape(name, array, (classes,))
    terms = _Terms(-1, ignore_index, label_smoothing, z_loss, weight, reduction, None, None)
    terms.reduction = "none" if reduction == "none" else "sum"
    x, target = x.reshape(target.numel(), hidden), target.reshape(-1)
    _check_classes(target, classes, terms.ignore_index)
    arrays = x, linear_weight, linear_bias
    given = target, terms, _chunk_of(chunk, len(target), classes, hidden)
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in arrays):
        loss = LinearCrossEntropy.apply(*arrays, *given, reduction)
    else:
        with torch.no_grad():
            layer = Layer(*arrays, *given)
            loss = layer.reduced(layer.run((False,) * 3)[0], layer.divisor(reduction))
    result: Tensor = loss.reshape(tokens) if reduction == "none" else loss
    return result


# compile.py makes torch.compile leave this function to Python.
outside_of_graphs: Callable[..., Tensor] = _loss


class LinearCrossEntropyLoss(torch.nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A module like torch.nn.LinearCrossEntropyLoss for targets that are indices of classes. It has the layer
    `linear`, and calls linear_cross_entropy.

    >>> import torch
    >>> from onsoftmax.torch import LinearCrossEntropyLoss
    >>> head = LinearCrossEntropyLoss(4, 1000)
    >>> head(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64))
    tensor(6.9078, grad_fn=<LinearCrossEntropyBackward>)
    """

    weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        reduction: Reduction = "mean",
        chunk: int | None = None,
    ) -> None:
        """A module with the terms of linear_cross_entropy. `weight` has the weights of the classes."""
        super().__init__()
        self.linear = torch.nn.Linear(in_features, num_classes, bias, device, dtype)
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing, self.z_loss = ignore_index, label_smoothing, z_loss
        self.reduction, self.chunk = reduction, chunk

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return linear_cross_entropy(
            x,
            self.linear.weight,
            target,
            linear_bias=self.linear.bias,
            weight=self.weight,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
            reduction=self.reduction,
            chunk=self.chunk,
        )

    def extra_repr(self) -> str:
        names = ("ignore_index", "label_smoothing", "z_loss", "reduction", "chunk")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
