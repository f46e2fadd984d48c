"""The contestants of gpu_routers.py and the exact results. Each line gives a pair: weights and indices."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from gpu_loss_contestants import compiled, one
from gpu_router_cases import RouterCase

import onsoftmax as ons
from onsoftmax.bench.case import Case
from onsoftmax.bench.contestants import Contestant
from onsoftmax.bench.gpu_case import Reference, make_sets, random_values
from onsoftmax.bench.gpu_contestants import COPY, quack_topk

GROUPS, TOP_GROUPS, SCALE = 8, 4, 2.5  # of DeepSeek-V3
BIAS = 0.1  # the spread of the bias of the experts
# Peers may swap experts, or groups, whose scores differ by less. QuACK drops ten bits of a float32 logit.
NEAR = 2.0**-10
Tensors = dict[str, torch.Tensor]
Routed = tuple[torch.Tensor, torch.Tensor]


def copy_tensors(case: Case) -> Tensors:
    """For the copy `source` and `target`, each of half the bytes of a call."""
    source = random_values(case.copy_bytes // 8, "float32", 1)
    return {"source": source, "target": torch.empty_like(source)}


def router_tensors(case: RouterCase) -> Tensors:
    """x, the bias of a grouped router, and the tensors of the copy."""
    copied = copy_tensors(case)
    x = random_values(case.elements, case.dtype, case.spread).view(case.shape)
    bias = random_values(case.N, "float32", BIAS)
    return {**copied, "x": x, "bias": bias, "y": copied["target"]}


def router_sets(case: RouterCase, cache_bytes: int) -> list[Tensors]:
    return make_sets(case, cache_bytes, router_tensors)


# ---------------------------------------------------------------- formulas


def normalized(weights: torch.Tensor) -> torch.Tensor:
    return weights / weights.sum(-1, keepdim=True)


def counts_of(keys: torch.Tensor) -> torch.Tensor:
    """The value of each group: the sum of its two best."""
    return keys.unflatten(-1, (GROUPS, -1)).topk(2).values.sum(-1)


def open_keys(scores: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The keys that experts of the best groups compete by. The other groups have -inf."""
    keys = scores + bias
    counts = counts_of(keys)
    is_closed = torch.ones_like(counts, dtype=torch.bool)
    is_closed.scatter_(1, counts.topk(TOP_GROUPS, sorted=False).indices, False)
    return keys.unflatten(-1, (GROUPS, -1)).masked_fill(is_closed[..., None], -math.inf).flatten(1)


def softmax_first(x: torch.Tensor, k: int) -> Routed:
    """As Mixtral and Qwen3-MoE have it."""
    weights, indices = x.softmax(-1, dtype=torch.float32).topk(k)
    return normalized(weights), indices


def deepseek_v3(x: torch.Tensor, bias: torch.Tensor, k: int) -> Routed:
    scores = x.float().sigmoid()
    indices = open_keys(scores, bias).topk(k).indices
    return SCALE * normalized(scores.gather(1, indices)), indices


class RouterReference(Reference):
    """The exact scores of a sample of rows. A weight is compared with the exact weight of the expert that was
    chosen. The expert must have the exact key of its place, but for NEAR."""

    def expect(self, tensors: Tensors) -> None:
        x = self.rows(tensors["x"]).double()
        self.p = x.softmax(-1)
        self.scores = self.keys = self.p
        self.is_sure = torch.ones(len(x), 1, dtype=torch.bool, device=x.device)
        if self.case.is_grouped:
            self.scores, bias = x.sigmoid(), tensors["bias"].double()
            self.keys = open_keys(self.scores, bias)
            counts = counts_of(self.scores + bias).sort(-1, descending=True).values
            last, next_one = counts[:, TOP_GROUPS - 1, None], counts[:, TOP_GROUPS, None]
            self.is_sure = last - next_one > NEAR

    def error_eps(self, result: Any) -> float:
        """Largest error of a weight in eps of float32. NaN if an expert is wrong."""
        k, is_topk = self.case.k, isinstance(result, ons.TopK)
        scores, keys = (self.p, self.p) if is_topk else (self.scores, self.keys)
        weights, indices = (self.rows(each) for each in result)
        indices = indices.long()
        if indices.shape != (len(keys), k) or not bool(((indices >= 0) & (indices < keys.shape[1])).all()):
            return math.nan
        best = keys.topk(k).values
        is_right = (keys.gather(1, indices) - best).abs() <= NEAR * best.abs()
        is_other = indices.sort(-1).values.diff(dim=-1) > 0
        if not bool((is_right | ~self.is_sure).all() & is_other.all()):
            return math.nan
        exact = scores.gather(1, indices)
        if not is_topk:
            exact = normalized(exact) * (SCALE if self.case.is_grouped else 1)
        error = (weights.double() - exact).abs() / exact
        return float(error.max()) / torch.finfo(torch.float32).eps


# ---------------------------------------------------------------- contestants


def ours(case: RouterCase) -> Iterator[Contestant]:
    """`auto` is the call that a user writes."""
    of_v3 = {"score": "sigmoid", "groups": GROUPS, "top_groups": TOP_GROUPS, "scale": SCALE}

    def route(t: Tensors, index_dtype: str) -> Any:
        terms: Any = {**of_v3, "bias": t["bias"]} if case.is_grouped else {}
        return ons.route(t["x"], case.k, index_dtype=index_dtype, **terms)

    yield one("softmax_topk", "yardstick", lambda t: ons.softmax_topk(t["x"], case.k))
    for name, indices in (("auto", "int64"), ("int32", "int32")):
        yield one(name, "ours", route, indices, bytes=case.bytes_with(indices))


def peers(case: RouterCase, wanted: list[str]) -> Iterator[Contestant]:
    def in_torch(router: Callable[..., Routed]) -> Callable[[Tensors], Routed]:
        if case.is_grouped:
            return lambda t: router(t["x"], t["bias"], case.k)
        return lambda t: router(t["x"], case.k)

    router = deepseek_v3 if case.is_grouped else softmax_first
    if "torch" in wanted:
        yield one("torch", "peer", in_torch(router))
    if "compile" in wanted:
        yield one("torch.compile", "peer", in_torch(compiled(router)), compiles=True)
    if "quack" in wanted and not case.is_grouped:
        yield from quack_topk(case, whole=True)


@cache
def route_of(path: Path) -> Any:
    """The function `route` of a library of C. benchmarks/README.md has its parameters."""
    function = ctypes.CDLL(str(path)).route
    pointer, number = ctypes.c_void_p, ctypes.c_int
    function.argtypes = [pointer, number, pointer, *[number] * 5, ctypes.c_float, *[pointer] * 3]
    return function


def by_library(t: Tensors, case: RouterCase, path: Path) -> Routed:
    x, k = t["x"], case.k
    weights = torch.empty(case.M, k, device=x.device)
    indices = torch.empty(case.M, k, device=x.device, dtype=torch.int32)
    of_v3 = t["bias"].data_ptr(), GROUPS, TOP_GROUPS, SCALE
    bias, groups, top_groups, scale = of_v3 if case.is_grouped else (0, 1, 1, 1.0)
    status = route_of(path)(
        x.data_ptr(),
        x.dtype == torch.bfloat16,
        bias,
        case.M,
        case.N,
        k,
        groups,
        top_groups,
        scale,
        weights.data_ptr(),
        indices.data_ptr(),
        torch.cuda.current_stream().cuda_stream,
    )
    if status:
        raise RuntimeError(f"it cannot take the case: status {status}")
    return weights, indices


def contestants(
    case: RouterCase, wanted: list[str], libraries: list[tuple[str, Path]]
) -> Iterator[Contestant]:
    yield Contestant(COPY, "copy", "target.copy_(source)", lambda t: dict(t), True)
    yield from ours(case)
    yield from peers(case, wanted)
    for name, path in libraries:
        yield one(name, "peer", by_library, case, path, bytes=case.bytes_with("int32"))
