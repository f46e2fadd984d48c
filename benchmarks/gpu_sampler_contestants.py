"""The contestants of gpu_sampler.py and the tokens that they may draw. A line gives a token for each row."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from gpu_loss_contestants import called, compiled, one
from gpu_router_contestants import Tensors, copy_tensors
from gpu_sampler_cases import K, SamplerCase

import onsoftmax as ons
from onsoftmax.bench.contestants import Contestant
from onsoftmax.bench.gpu_case import Reference, make_sets, random_values
from onsoftmax.bench.gpu_contestants import COPY, loads

SEED, OFFSET = 1, 2
# The share of the mass, and the relative error of a probability, by which a filter of a peer may be off.
NEAR = 1e-4
# Two logits that differ by less may be equal after a division by the temperature in float32.
SAME = 1e-5
Tokens = torch.Tensor
Draw = Callable[[torch.Tensor], Tokens]


def sampler_tensors(case: SamplerCase) -> Tensors:
    """x, each parameter as an array with a number for each row, and the tensors of the copy. A library of C
    writes its tokens into y. The bits of NaN, which y has before, are no token."""
    x = random_values(case.elements, "float32", case.spread).view(case.shape)
    if case.head:
        head = torch.tensor(case.head, device=x.device).expand(case.M, -1)
        x.scatter_(1, torch.randint(case.N, head.shape, device=x.device), head)
    rows = {
        name: torch.full((case.M,), value, device=x.device)
        for name, value in {**case.filters, "temperature": case.temperature}.items()
        if not isinstance(value, str)
    }
    y = torch.empty(case.M, device=x.device)
    return {**copy_tensors(case), **rows, "x": x.to(getattr(torch, case.dtype)), "y": y}


def sampler_sets(case: SamplerCase, cache_bytes: int) -> list[Tensors]:
    return make_sets(case, cache_bytes, sampler_tensors)


# ---------------------------------------------------------------- the answers


class SamplerReference(Reference):
    """The least logit that the filters keep, by a sort in float64, for a sample of rows. No token may have a
    smaller logit. So a contestant may keep more tokens that are equal to the last kept token."""

    def expect(self, tensors: Tensors) -> None:
        x = self.rows(tensors["x"]).double()
        self.p, self.logits = x.softmax(-1), x / self.case.temperature
        ordered = self.logits.sort(-1, descending=True).values
        p = ordered.softmax(-1)
        filters = self.case.filters
        k = min(filters.get("top_k") or self.case.N, self.case.N)
        running = p.cumsum(-1)
        whole = running[:, -1 if "filter_apply_order" in filters else k - 1, None]
        by_top_p = (running < (filters.get("top_p", 1) + NEAR) * whole).sum(-1, keepdim=True) + 1
        by_min_p = (p >= filters.get("min_p", 0) * (1 - NEAR) * p[:, :1]).sum(-1, keepdim=True)
        self.kept = torch.minimum(by_top_p, by_min_p).clamp(1, k)
        self.least = ordered.gather(1, self.kept - 1)

    def error_eps(self, result: Any) -> float:
        """0 if each token is among the kept tokens, else NaN. For softmax_topk the largest error of a
        probability, in eps of float32."""
        if isinstance(result, ons.TopK):
            exact = self.p.topk(K).values
            error = (self.rows(result.values).double() - exact).abs() / exact
            return float(error.max()) / torch.finfo(torch.float32).eps
        if result.dtype == torch.float32:
            result = result.view(torch.int32)
        if result.shape != (self.case.M,) or not bool(((result >= 0) & (result < self.case.N)).all()):
            return math.nan
        drawn = self.logits.gather(1, self.rows(result)[:, None].long())
        return 0.0 if bool((drawn >= self.least - SAME * self.least.abs()).all()) else math.nan


# ---------------------------------------------------------------- in torch


def scaled(x: torch.Tensor, case: SamplerCase) -> torch.Tensor:
    return x.float() if case.temperature == 1 else x.float() / case.temperature


def drawn(p: torch.Tensor) -> Tokens:
    """A draw that does not wait for the GPU, as in vLLM. torch.multinomial also checks p."""
    return (p / torch.empty_like(p).exponential_()).argmax(-1)


def by_order(x: torch.Tensor, case: SamplerCase, select: bool = False) -> Tokens:
    """All filters on the tokens in order, then the draw. With `select`, a selection of the k largest replaces
    the sort."""
    logits = scaled(x, case)
    filters, k = case.filters, case.filters.get("top_k", 0)
    ordered, tokens = logits.topk(k) if select else logits.sort(-1, descending=True)
    is_joint = "filter_apply_order" in filters
    if k and not is_joint:
        ordered = ordered[:, :k]
    p = ordered.softmax(-1)
    if "top_p" in filters:
        before = p.cumsum(-1) - p
        p = p.masked_fill(before >= filters["top_p"], 0)
    if "min_p" in filters:
        p = p.masked_fill(p < filters["min_p"] * p[:, :1], 0)
    if k and is_joint:
        p = p[:, :k]
    return tokens.gather(1, drawn(p)[:, None])[:, 0]


def forms_in_torch(case: SamplerCase) -> dict[str, Draw]:
    """By name: with filters, a sort, and a selection for top_k. Without, the softmax, and Gumbel's argmax."""
    if not case.filters:
        return {
            "torch": lambda x: drawn(scaled(x, case).softmax(-1)),
            "torch Gumbel": lambda x: (
                scaled(x, case) - torch.empty_like(x, dtype=torch.float32).exponential_().log()
            ).argmax(-1),
        }
    forms: dict[str, Draw] = {"torch": lambda x: by_order(x, case)}
    if "top_k" in case.filters and "filter_apply_order" not in case.filters:
        forms["torch top-k"] = lambda x: by_order(x, case, select=True)
    return forms


def multinomial(t: Tensors, case: SamplerCase) -> Tokens:
    return scaled(t["x"], case).softmax(-1).multinomial(1)[:, 0]


def on_x(draw: Draw) -> Callable[[Tensors], Tokens]:
    return lambda t: draw(t["x"])


# ---------------------------------------------------------------- FlashInfer


class Module:
    """FlashInfer's Python module. It takes float32 alone, and makes float32 of other types itself."""

    into = False

    def __init__(self, module: Any) -> None:
        self.sampling = module
        self.fixed = {"seed": SEED, "offset": OFFSET}

    def from_logits(self, x: torch.Tensor, y: torch.Tensor) -> Tokens:
        return self.sampling.sampling_from_logits(x, **self.fixed)

    def select(self, x: torch.Tensor, y: torch.Tensor, k: int, top_p: float) -> Tokens:
        return self.sampling.top_k_top_p_sampling_from_logits(x, k, top_p, **self.fixed)

    def softmax(self, x: torch.Tensor, temperature: float) -> torch.Tensor:
        return self.sampling.softmax(x, temperature=temperature)

    def from_probs(self, p: torch.Tensor, y: torch.Tensor, filters: dict[str, Any]) -> Tokens:
        """`filters` has one filter, or top_k and top_p."""
        name = "_".join(name for name in ("top_k", "top_p", "min_p") if name in filters)
        draw = getattr(self.sampling, f"{name}_sampling_from_probs" if name else "sampling_from_probs")
        order = {"filter_apply_order": "joint"} if name == "top_k_top_p" else {}
        numbers = [value for value in filters.values() if not isinstance(value, str)]
        return draw(p, *numbers, **order, **self.fixed)


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


class Library:
    """FlashInfer's kernels in a library of C. benchmarks/README.md has its functions. They write int32 tokens
    into the memory of y, which is float32."""

    into = True
    SOFTMAX_BYTES, SELECT_BYTES = 2**26, 2**24

    def __init__(self, path: Path, device: torch.device | str) -> None:
        self.functions = ctypes.CDLL(str(path))
        self.work = torch.zeros(self.SOFTMAX_BYTES, dtype=torch.uint8, device=device)
        self.rows = torch.zeros(self.SELECT_BYTES, dtype=torch.uint8, device=device)

    def call(self, name: str, *values: Any) -> None:
        """Numbers of Python become C's int and float."""
        kinds = {int: ctypes.c_int, float: ctypes.c_float, torch.Tensor: pointer}
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        given = [kinds.get(type(value), lambda value: value)(value) for value in values]
        status = getattr(self.functions, f"fi_{name}")(*given, stream)
        if status:
            raise RuntimeError(f"fi_{name}: status {status}")

    def from_logits(self, x: torch.Tensor, y: torch.Tensor) -> Tokens:
        self.call("gumbel", x, y, *x.shape)
        return y

    def select(self, x: torch.Tensor, y: torch.Tensor, k: int, top_p: float) -> Tokens:
        """As top_k_top_p_sampling_from_logits does it with many tokens: a selection, then top_p of the k."""
        values = torch.empty(len(x), k, device=x.device)
        tokens = torch.empty(len(x), k, device=x.device, dtype=torch.int32)
        self.call("select", x, tokens, values, len(x), k, x.shape[1], self.rows)
        places = torch.empty(len(x), device=x.device, dtype=torch.int32)
        self.from_probs(values.softmax(-1), places, {"top_p": top_p})
        torch.gather(tokens, 1, places.long()[:, None], out=y.view(torch.int32)[:, None])
        return y

    def softmax(self, x: torch.Tensor, temperature: float) -> torch.Tensor:
        p, size = torch.empty_like(x), ctypes.c_size_t(self.SOFTMAX_BYTES)
        self.call("softmax", x, p, *x.shape, temperature, self.work, size)
        return p

    def from_probs(self, p: torch.Tensor, y: torch.Tensor, filters: dict[str, Any]) -> Tokens:
        rows, N = p.shape
        start = (p, y, torch.empty(rows, dtype=torch.bool, device=p.device), rows)
        match filters:
            case {"top_k": k, "top_p": top_p}:
                self.call("topktopp", *start, k, top_p, N)
            case {"top_k": k}:
                self.call("topk", *start, k, N)
            case {"top_p": top_p}:
                self.call("topp", *start, top_p, N)
            case {"min_p": min_p}:
                self.call("minp", *start, min_p, N)
            case _:
                self.call("probs", *start, N)
        return y


@cache
def flashinfer(path: Path | None, device: torch.device | str) -> Module | Library | None:
    """The library. Without one, the module, or None if it is not installed."""
    if path:
        return Library(path, device)
    module = loads("flashinfer.sampling")
    return Module(module) if module else None


def of_flashinfer(case: SamplerCase, path: Path | None) -> Iterator[Contestant]:
    """From logits, and from the probabilities of its own softmax."""
    from onsoftmax.bench.gpu_case import DEVICE

    kernels = flashinfer(path, DEVICE)
    if not kernels:
        return
    filters, line = case.filters, "call(t, *more)"
    is_joint, k = "filter_apply_order" in filters, filters.get("top_k", 0)
    options: Any = {"bytes": case.bytes_with(4), "cannot": "it has no min_p beside top_k"}
    options["cannot"] = options["cannot"] if k and "min_p" in filters else ""

    def from_logits(t: Tensors) -> Tokens:
        x = scaled(t["x"], case)
        return (
            kernels.select(x, t["y"], k, filters.get("top_p", 1.0)) if k else kernels.from_logits(x, t["y"])
        )

    def from_probs(t: Tensors) -> Tokens:
        return kernels.from_probs(kernels.softmax(t["x"].float(), case.temperature), t["y"], filters)

    if not filters or (k and not is_joint):
        yield Contestant("FlashInfer", "peer", line, called(from_logits), kernels.into, **options)
    if len(filters) < 2 or is_joint:
        yield Contestant("FlashInfer softmax", "peer", line, called(from_probs), kernels.into, **options)


# ---------------------------------------------------------------- all of them


def ours(case: SamplerCase) -> Iterator[Contestant]:
    """`auto` is the call that a user writes. In `per row` each parameter is an array of rows."""
    terms = {**case.filters, "temperature": case.temperature}
    of_rows = [name for name, value in terms.items() if not isinstance(value, str)]

    def per_row(t: Tensors) -> Tokens:
        return ons.sample(t["x"], seed=SEED, **terms | {name: t[name] for name in of_rows})

    yield one("softmax_topk", "yardstick", lambda t: ons.softmax_topk(t["x"], K))
    yield one("auto", "ours", lambda t: ons.sample(t["x"], seed=SEED, **terms))
    yield one("per row", "ours", per_row)


def peers(case: SamplerCase, wanted: list[str], path: Path | None) -> Iterator[Contestant]:
    forms = forms_in_torch(case)
    if "torch" in wanted:
        for name, form in forms.items():
            yield one(name, "peer", on_x(form))
        if not case.filters:
            yield one("torch.multinomial", "peer", multinomial, case, waits=True)
    if "compile" in wanted:
        options: Any = {
            "compiles": True,
            "cannot": "" if case.temperature == 1 else "compiled at temperature 1 alone",
        }
        for name, form in forms.items():
            yield one(name.replace("torch", "torch.compile"), "peer", on_x(compiled(form)), **options)
    if "flashinfer" in wanted:
        yield from of_flashinfer(case, path)


def contestants(case: SamplerCase, wanted: list[str], path: Path | None) -> Iterator[Contestant]:
    yield Contestant(COPY, "copy", "target.copy_(source)", lambda t: dict(t), True)
    yield from ours(case)
    yield from peers(case, wanted, path)
