"""The chunks of linear_cross_entropy: the logits of some tokens, their loss and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._losses import _Terms
from .losses import times, weights_of_rows

# A chunk may always have this many logits or tokens. Smaller products of matrices leave a GPU waiting.
_LOGITS, _TOKENS = 2**25, 2048
_TILE = 256  # the tokens of a chunk are a multiple of it, which suits the tiles of a GPU's products
_PITCH = 64  # the distance between two rows of logits is a multiple of it, so rows are aligned for any N
# Up to this many chunks each round a 16-bit gradient of linear_weight. More chunks add it up in float32.
_ROUNDED_CHUNKS = 4
# Whether torch.addmm can add 16-bit products on a GPU to a float32 sum.
_ADDS_WIDE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 11)


def tokens_of_chunk(tokens: int, classes: int, hidden: int) -> int:
    """The number of tokens in a chunk by default."""
    logits = max(tokens * hidden, classes * hidden, _LOGITS)
    chunks = -(-tokens // max(_TOKENS, logits // max(classes, 1))) or 1
    if chunks <= 2 * _ROUNDED_CHUNKS:  # 4 chunks take no more memory than a sum in float32, and less time
        chunks = min(chunks, _ROUNDED_CHUNKS)
    return -(-tokens // (chunks * _TILE)) * _TILE or _TILE  # only the last chunk may be smaller


class _Sum:
    """The gradient of linear_weight. Each chunk adds one product of matrices."""

    def __init__(self, like: Tensor, chunks: int) -> None:
        self.dtype = like.dtype
        wide = like.dtype.itemsize == 2 and chunks > _ROUNDED_CHUNKS
        self.total = torch.empty_like(like, dtype=torch.float32 if wide else None)
        self.empty = True

    def add(self, first: Tensor, second: Tensor) -> None:
        total = self.total
        if total.dtype == first.dtype:
            torch.addmm(total, first, second, beta=0 if self.empty else 1, out=total)
        elif total.is_cuda and _ADDS_WIDE:
            torch.addmm(total, first, second, total.dtype, beta=0 if self.empty else 1, out=total)
        else:
            if self.empty:
                total.zero_()
            total.add_(torch.mm(first, second))
        self.empty = False

    def result(self) -> Tensor:
        return self.total.zero_().to(self.dtype) if self.empty else self.total.to(self.dtype)


class Layer:
    """A call: the layer's arrays, the targets and the terms of the loss."""

    def __init__(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, terms: _Terms, chunk: int
    ) -> None:
        self.x, self.weight, self.target, self.terms, self.chunk = x, weight, target, terms, chunk
        self.bias = bias
        self.real = torch.float64 if x.dtype == torch.float64 else torch.float32

    def run(
        self, wanted: tuple[bool, ...], grad_loss: Tensor | None = None
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """The loss of each chunk, and those gradients of x, weight and bias that are wanted."""
        x, weight, bias, tokens = self.x, self.weight, self.bias, len(self.x)
        chunk, N = min(self.chunk, tokens), len(weight)
        for_x = torch.empty_like(x) if wanted[0] else None
        for_weight = _Sum(weight, -(-tokens // self.chunk)) if wanted[1] else None
        for_bias = weight.new_zeros(N, dtype=self.real) if wanted[2] else None
        buffer = x.new_empty(chunk, -(-N // _PITCH) * _PITCH)[:, :N]
        losses = []
        for start in range(0, tokens, self.chunk):
            rows = slice(start, min(start + chunk, tokens))
            part, logits = x[rows], buffer[: rows.stop - start]
            if bias is None:
                torch.mm(part, weight.T, out=logits)
            else:
                torch.addmm(bias, part, weight.T, out=logits)
            given = grad_loss[rows] if grad_loss is not None and grad_loss.ndim else grad_loss
            grad_out = logits if any(wanted) else None
            losses.append(self.terms.call(logits, self.target[rows], grad_out=grad_out, grad_loss=given)[0])
            if for_x is not None:
                torch.mm(logits, weight, out=for_x[rows])
            if for_weight is not None:
                for_weight.add(logits.T, part)
            if for_bias is not None:
                for_bias += logits.sum(0, dtype=self.real)
        buffer = logits = grad_out = None  # frees the memory: result() needs memory to round the sum
        return losses, [
            for_x,
            None if for_weight is None else for_weight.result(),
            None if for_bias is None else for_bias.to(weight.dtype),
        ]

    def divisor(self, reduction: str) -> Tensor | None:
        """The number by which "mean" divides. It stays on the GPU."""
        if reduction != "mean":
            return None
        given, ignored = self.terms.weight, self.terms.ignore_index
        if given is None:
            return (self.target != ignored).sum().to(self.real)
        own = weights_of_rows(self.target, given.detach(), ignored)[1]
        return own.sum(dtype=torch.float64).to(self.real)

    def reduced(self, losses: list[Tensor], divisor: Tensor | None) -> Tensor:
        if self.terms.reduction == "none":
            return torch.cat(losses) if losses else self.x.new_empty(0, dtype=self.real)
        several = torch.stack(losses) if losses else self.x.new_zeros(0)
        total = several.sum(dtype=torch.float64)
        return (total if divisor is None else total / divisor).to(self.real)


class LinearCrossEntropy(torch.autograd.Function):  # type: ignore[misc]  # mypy does not look into torch
    """The forward step computes the gradients, and the backward step multiplies them by the gradient of the
    loss. If `later` is true, the backward step computes them."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        terms: _Terms,
        chunk: int,
        reduction: str,
    ) -> Tensor:
        layer, wanted = Layer(x, weight, bias, target, terms, chunk), ctx.needs_input_grad[:3]
        divisor = layer.divisor(reduction)
        ctx.factor = None if divisor is None else divisor.reciprocal()
        ctx.later = reduction == "none" or x.dtype == torch.float16
        if ctx.later:
            losses, _ = layer.run((False,) * 3)
            ctx.save_for_backward(x, weight, bias, target, terms.weight)
            ctx.given = terms, chunk
        else:
            losses, ctx.gradients = layer.run(wanted, ctx.factor)
        return layer.reduced(losses, divisor)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph is given, and linear_cross_entropy() has no second derivative: expected "
                "cross_entropy() of torch.nn.functional.linear()"
            )
        if ctx.later:
            given = grad_loss if ctx.factor is None else grad_loss * ctx.factor
            _, gradients = Layer(*ctx.saved_tensors[:-1], *ctx.given).run(ctx.needs_input_grad[:3], given)
        else:
            gradients, ctx.gradients = ctx.gradients, None
            if gradients is None:
                raise RuntimeError(
                    "backward goes through linear_cross_entropy() a second time, and the gradients of its "
                    "forward step are gone: expected one backward for each call, or reduction='none', which "
                    "computes the gradients in each backward"
                )
            gradients = [None if each is None else times(each, grad_loss) for each in gradients]
        return *gradients, None, None, None, None
