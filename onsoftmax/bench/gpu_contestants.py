"""The contestants of a case on a GPU: ours by every method, the peers that are installed, and the copy."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

import onsoftmax

from .. import methods as list_methods
from .case import Case, size_of
from .contestants import Contestant, in_torch, installed, our_line

Tensors = dict[str, torch.Tensor]
COPY = "copy"
QUACK_TYPES = ["float32", "bfloat16", "float16"]
# QuACK keeps a row in the shared memory of its largest cluster, which has 16 blocks.
QUACK_ROW_BYTES = 16 * 227 * 1024
LIGER_LONGEST = 65536  # Liger's own limit


def our_methods() -> list[str]:
    return ["auto", *(method.name for method in list_methods("cuda"))]


OPTIONS = {
    **dict.fromkeys(["where", "where for all rows"], ", where=mask"),
    "scale per row": ", scale=scale",
    "scale 0.7": ", scale=0.7",
}


def ours(case: Case, methods: list[str]) -> Iterator[Contestant]:
    extra = OPTIONS.get(case.extra, "")
    function = getattr(onsoftmax, case.operation)
    into = case.takes_out
    if case.operation == "normalizer":  # the one function that takes no method
        yield Contestant("auto", "ours", "function(x)", lambda t: {"function": function, **t}, False)
        return
    for method in methods:
        line = our_line(case, method, into, extra)
        yield Contestant(method, "ours", line, lambda t: {"function": function, **t}, into)
    # In a graph a call without `out` writes where the last result lay, which is in the caches. The peers'
    # calls do so too.
    if case.in_graph and "auto" in methods and into:
        line = our_line(case, extra=extra)
        yield Contestant("auto, no out=", "ours", line, lambda t: {"function": function, **t}, False)


def softmax_in_torch(case: Case) -> Callable[..., torch.Tensor]:
    """The function that a torch user would write for the case. It takes x and the tensors of its `extra`."""
    axis, dtype = case.axis, getattr(torch, case.out_dtype or case.dtype)
    if case.extra.startswith("where"):
        return lambda x, mask: torch.softmax(x.masked_fill(~mask, -math.inf), axis)
    if case.extra == "scale per row":
        return lambda x, scale: torch.softmax(x * scale, axis).to(dtype)
    if case.extra == "scale 0.7":
        return lambda x: torch.softmax(x * 0.7, axis)
    if case.out_dtype:
        return lambda x: torch.softmax(x, axis, dtype=dtype)
    return in_torch(case)


def unfused(x: torch.Tensor, axis: int) -> torch.Tensor:
    """The formula, with a kernel for each of its five operations: it reads the array five times and writes it
    three times."""
    e = torch.exp(x - x.amax(axis, keepdim=True))
    return e / e.sum(axis, keepdim=True)


@cache
def triton_softmax() -> Any:
    if not installed("triton"):
        return None
    from . import triton_softmax

    return triton_softmax


@cache
def quack_softmax() -> Any:
    """The module. None if it is not installed or does not load."""
    return loads("quack.softmax")


@cache
def liger_softmax() -> Any:
    return loads("liger_kernel.ops.softmax")


def loads(module: str) -> Any:
    """Like `installed`, for modules that may fail in other ways."""
    try:
        return installed(module)
    except Exception as e:
        print(f"{module} does not load: {short(e)}: left out", file=sys.stderr)
        return None


def short(error: BaseException) -> str:
    """The first line of an error's text, cut."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:160]


def peers(case: Case, wanted: list[str]) -> Iterator[Contestant]:
    torch_line = softmax_in_torch(case)
    arguments = "x, mask" if case.extra.startswith("where") else "x"
    if case.extra == "scale per row":
        arguments = "x, scale"
    if case.backward:
        arguments = "grad, x"
    if "torch" in wanted:
        yield Contestant("torch", "peer", f"line({arguments})", lambda t: {"line": torch_line, **t}, False)
        if case.takes_out and not (case.extra or case.out_dtype or case.backward):
            line = f"torch.{case.operation}(x, {case.axis}, out=y)"
            yield Contestant("torch out=", "peer", line, lambda t: {"torch": torch, **t}, True)
    if "unfused" in wanted and not case.extra and not case.out_dtype and case.operation == "softmax":
        line = f"unfused(x, {case.axis})"
        yield Contestant("torch unfused", "peer", line, lambda t: {"unfused": unfused, **t}, False)
    if "compile" in wanted:
        torch.compiler.reset()  # each shape gets its own kernel, as for a user of one shape
        compiled = torch.compile(torch_line, dynamic=False, fullgraph=True)
        line = f"compiled({arguments})"
        yield Contestant(
            "torch.compile", "peer", line, lambda t: {"compiled": compiled, **t}, False, compiles=True
        )
    if case.plain and case.operation == "softmax":
        yield from peers_of_rows(case, wanted)
    if not case.plain or "quack" not in wanted:
        return
    if case.k:
        yield from quack_topk(case)
    quack = quack_softmax() if case.operation == "softmax_backward" else None
    if quack:
        names = lambda t: {"quack": quack._softmax_backward, **t}  # noqa: E731
        cannot = quack_cannot(case.N, case.dtype)
        yield Contestant("QuACK", "peer", "quack(grad, x, y)", names, True, compiles=True, cannot=cannot)


def quack_topk(case: Case, whole: bool = False) -> Iterator[Contestant]:
    """QuACK's softmax of the k largest, which keeps a place in an element's lowest bits. `whole` asks for the
    indices too."""
    module = loads("quack.topk")
    if module:
        fits = case.N & (case.N - 1) == 0 and case.k & (case.k - 1) == 0 and case.N <= 4096 and case.k <= 128
        names = lambda t: {"quack": module.topk, **t}  # noqa: E731
        cannot = "" if fits else "N to 4096 and k to 128, powers of two"
        line = f"quack(x, {case.k}, softmax=True)" + ("" if whole else "[0]")
        yield Contestant("QuACK", "peer", line, names, False, compiles=True, cannot=cannot)


def peers_of_rows(case: Case, wanted: list[str]) -> Iterator[Contestant]:
    """The peers that take contiguous rows alone."""
    triton = triton_softmax() if "triton" in wanted else None
    if triton:
        long = case.N > triton.LONGEST_BLOCK
        yield Contestant(
            "Triton one-block",
            "peer",
            "one_block(x, y)",
            lambda t: {"one_block": triton.one_block, **t},
            True,
            compiles=True,
            cannot=f"N is above {triton.LONGEST_BLOCK}" if long else "",
        )
        names = lambda t: {"online": triton.online, **t}  # noqa: E731
        yield Contestant("Triton online", "peer", "online(x, y)", names, True)
    liger = liger_softmax() if "liger" in wanted and not case.out_dtype else None
    if liger:
        cannot = f"N is above {LIGER_LONGEST}" if case.N > LIGER_LONGEST else ""
        names = lambda t: {"liger": liger.LigerSoftmaxFunction.apply, **t}  # noqa: E731
        yield Contestant("Liger", "peer", "liger(x)", names, False, cannot=cannot)
    quack = quack_softmax() if "quack" in wanted else None
    if quack:
        names = lambda t: {"quack": quack._softmax_fwd, **t}  # noqa: E731
        cannot = quack_cannot(case.N, case.dtype)
        yield Contestant("QuACK", "peer", "quack(x, y)", names, True, compiles=True, cannot=cannot)


def quack_cannot(N: int, dtype: str) -> str:
    """Why QuACK cannot run rows of N. Empty if it can."""
    if dtype not in QUACK_TYPES:
        return f"not for {dtype}"
    if N * size_of(dtype) % 16:
        return "N is not a multiple of 16 bytes"
    if N * size_of(dtype) > QUACK_ROW_BYTES:
        return f"a row is above {QUACK_ROW_BYTES} bytes"
    return ""


def contestants(case: Case, methods: list[str], wanted: list[str]) -> Iterator[Contestant]:
    line = "target.copy_(source)"
    yield Contestant(COPY, "copy", line, lambda t: dict(t), True)
    yield from ours(case, methods)
    yield from peers(case, wanted)
