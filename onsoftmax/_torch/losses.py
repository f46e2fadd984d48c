"""The losses inside torch's autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _CrossEntropy(torch.autograd.Function):  # type: ignore[misc]  # mypy does not look into torch
    """Keeps the logits and the targets. The backward step reads the logits again, and writes the gradient."""

    @staticmethod
    def forward(ctx: Any, terms: Any, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        loss, _, lse = terms.call(logits.detach(), target, lse=True)
        ctx.save_for_backward(logits, target)
        ctx.terms = terms
        ctx.mark_non_differentiable(lse)
        return loss, lse

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_loss: Tensor, _: Any) -> tuple[None, Tensor, None]:
        logits, target = ctx.saved_tensors
        _, gradient, _ = ctx.terms.call(logits.detach(), target, grad_out=True, grad_loss=grad_loss)
        return None, gradient, None


def cross_entropy(terms: Any, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(loss, lse); the loss has a gradient."""
    loss, lse = _CrossEntropy.apply(terms, logits, torch.as_tensor(target))
    return loss, lse
