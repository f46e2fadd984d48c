"""Softmax in Triton, as a user would write it by hand: the row in one block, and the row tile by tile.

Both take rows of a 2-D tensor whose last axis is contiguous, and write into `y`, whose type may differ.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

LONGEST_BLOCK = 2**17  # longest row in one block: registers spill long before, and compile time explodes
TILE = 4096  # for the row tile by tile
ELEMENTS_A_THREAD = 16


@triton.jit
def one_block_kernel(x, y, x_stride, y_stride, N, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < N
    v = tl.load(x + row * x_stride + columns, mask=inside, other=-float("inf")).to(WIDE)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * y_stride + columns, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def online_kernel(x, y, x_stride, y_stride, N, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    y += row * y_stride
    columns = tl.arange(0, BLOCK)
    m = tl.full([], -float("inf"), WIDE)
    d = tl.full([], 0.0, WIDE)
    for start in tl.range(0, N, BLOCK):
        v = tl.load(x + start + columns, mask=start + columns < N, other=-float("inf")).to(WIDE)
        larger = tl.maximum(m, tl.max(v, axis=0))
        d = d * tl.exp(m - larger) + tl.sum(tl.exp(v - larger), axis=0)
        m = larger
    for start in tl.range(0, N, BLOCK):
        inside = start + columns < N
        v = tl.load(x + start + columns, mask=inside, other=-float("inf")).to(WIDE)
        tl.store(y + start + columns, tl.exp(v - m) / d, mask=inside)


def launch(kernel, x: torch.Tensor, y: torch.Tensor, block: int) -> torch.Tensor:
    M, N = x.shape
    wide = tl.float64 if x.dtype == torch.float64 else tl.float32
    warps = min(32, max(1, block // (32 * ELEMENTS_A_THREAD)))
    kernel[(M,)](x, y, x.stride(0), y.stride(0), N, WIDE=wide, BLOCK=block, num_warps=warps)
    return y


def one_block(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return launch(one_block_kernel, x, y, triton.next_power_of_2(x.shape[1]))


def online(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return launch(online_kernel, x, y, min(TILE, triton.next_power_of_2(x.shape[1])))
