"""linear_cross_entropy on a GPU: gradients of all chunks, memory, autocast, and no wait for the GPU."""

import loss_checks
import pytest
from gpu_support import DEVICE, each_dtype, torch
from torch.nn import functional

from onsoftmax._torch.chunks import _ADDS_WIDE
from onsoftmax.torch import linear_cross_entropy

SLACK = 2**20


def arguments(dtype, tokens, hidden, classes):
    generator = torch.Generator(DEVICE).manual_seed(0)
    x = torch.randn(tokens, hidden, device=DEVICE, generator=generator).to(dtype)
    weight = (torch.randn(classes, hidden, device=DEVICE, generator=generator) / hidden**0.5).to(dtype)
    target = torch.randint(classes, (tokens,), device=DEVICE, generator=generator)
    target[::7] = -100
    return x.requires_grad_(), weight.requires_grad_(), target


def in_torch(x, weight, target, bias=None, reduction="mean"):
    return functional.cross_entropy(functional.linear(x, weight, bias), target, reduction=reduction)


def error(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


@each_dtype
@pytest.mark.parametrize("classes", [1001, 50257])
@pytest.mark.parametrize("reduction", loss_checks.REDUCTIONS)
def test_gradients(dtype, classes, reduction):
    """Of x, weight and bias, in one chunk, in a few, and in many. The last chunk is shorter."""
    x, weight, target = arguments(dtype, 300, 64, classes)
    bias = torch.linspace(-1, 1, classes, device=DEVICE).to(dtype).requires_grad_()
    wide = [each.detach().double().requires_grad_() for each in (x, weight, bias)]
    factor = torch.rand(300 if reduction == "none" else (), device=DEVICE) + 0.5
    factor *= 4096 if dtype == torch.float16 else 1  # as a GradScaler does
    theirs = in_torch(wide[0], wide[1], target, wide[2], reduction)
    exact = torch.autograd.grad(theirs, wide, factor.double())
    for chunk in (None, 128, 32):
        loss = linear_cross_entropy(x, weight, target, linear_bias=bias, reduction=reduction, chunk=chunk)
        gradients = torch.autograd.grad(loss, (x, weight, bias), factor.to(loss.dtype))
        eps = torch.finfo(dtype).eps
        assert error(loss.detach(), theirs.detach()) < max(4 * eps, 2e-6)
        for found, wanted in zip(gradients, exact, strict=True):
            assert found.dtype == dtype and error(found, wanted) < max(4 * eps, 2e-6)
        alone = linear_cross_entropy(
            *(each.detach() for each in (x, weight)), target, linear_bias=bias.detach(), reduction=reduction
        )
        torch.testing.assert_close(alone, loss.detach(), rtol=max(4 * eps, 2e-6), atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounding(dtype):
    """The gradient of weight has about the error of torch's one product, with many chunks too."""
    x, weight, target = arguments(dtype, 4096, 256, 5000)
    wide = weight.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(in_torch(x.detach().double(), wide, target), wide)
    allowed = 1.25 * error(torch.autograd.grad(in_torch(x, weight, target), weight)[0], exact)
    for chunk in (4096, 2048, 1024, 512, 64):
        (found,) = torch.autograd.grad(linear_cross_entropy(x, weight, target, chunk=chunk), weight)
        assert error(found, exact) < allowed, chunk


@pytest.mark.parametrize("reduction", loss_checks.REDUCTIONS)
def test_memory(reduction):
    """Besides the gradients, a step needs one chunk of logits, or the sum in float32 of many chunks."""
    x, weight, target = arguments(torch.bfloat16, 2048, 256, 20000)
    for chunk in (2048, 512, 256):
        for _ in range(2):  # the first step also gets what cuBLAS keeps
            x.grad = weight.grad = None
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            linear_cross_entropy(x, weight, target, chunk=chunk, reduction=reduction).sum().backward()
            peak = torch.cuda.max_memory_allocated() - before - x.nbytes - weight.nbytes
        logits = chunk * 20032 * 2
        summed = 2 * weight.nbytes if _ADDS_WIDE else 3 * weight.nbytes  # else a product too
        assert peak <= SLACK + (logits if chunk >= 512 else max(logits + weight.nbytes, summed))


def test_nothing_waits():
    x, weight, target = arguments(torch.bfloat16, 2048, 64, 1000)
    of_classes = torch.rand(1000, device=DEVICE)
    linear_cross_entropy(x, weight, target).backward()
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for reduction in loss_checks.REDUCTIONS:
            for terms in ({}, {"weight": of_classes, "label_smoothing": 0.1, "z_loss": 0.1}):
                loss = linear_cross_entropy(x, weight, target, reduction=reduction, chunk=500, **terms)
                loss.sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode(before)


def test_autocast():
    x, weight, target = arguments(torch.float32, 300, 64, 1000)
    with torch.autocast(DEVICE, torch.bfloat16):
        loss = linear_cross_entropy(x, weight, target, chunk=100)
        theirs = in_torch(x, weight, target)
    torch.testing.assert_close(loss, theirs, rtol=1e-4, atol=0)
    for found, wanted in zip(
        *(torch.autograd.grad(each, (x, weight)) for each in (loss, theirs)), strict=True
    ):
        assert found.dtype == torch.float32 and error(found, wanted.double()) < 0.02


def test_a_target_that_is_no_class():
    x, weight, target = arguments(torch.bfloat16, 300, 64, 1000)
    target[5] = 1000
    losses = linear_cross_entropy(x, weight, target, reduction="none", chunk=100)
    assert losses.isnan().nonzero().flatten().tolist() == [5]
    assert linear_cross_entropy(x, weight, target).isnan()
