"""linear_cross_entropy, forward and backward, beside its products of matrices, torch, Liger and QuACK.

    python benchmarks/gpu_linear_loss.py                                        # a minute or two on a GPU
    python benchmarks/gpu_linear_loss.py --tokens 16384 --hidden 2048 --vocabulary 151936 --json OUT.json
    python benchmarks/gpu_linear_loss.py --device cpu --tokens 64 --hidden 16 --vocabulary 100    # it works
    python benchmarks/gpu_linear_loss.py --show OUT.json                        # the table again

The program compares each loss and gradient with float64 before it times the step. Contestants take turns. A
figure is the median over the rounds. The memory of a step is the most that torch allocates, besides x, the
weight and their gradients.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from gpu_options import listed
from gpu_report import NOTHING, markdown

from onsoftmax._torch.chunks import tokens_of_chunk
from onsoftmax.bench.document import write
from onsoftmax.bench.figures import median_and_range
from onsoftmax.bench.gpu_contestants import loads, short
from onsoftmax.bench.gpu_timing import elapsed
from onsoftmax.bench.machine import about_cpu, about_gpu, obstacle
from onsoftmax.torch import linear_cross_entropy

OURS, PRODUCTS, TORCH = "auto", "products", "torch"
PEERS = ["torch", "compile", "chunked", "liger", "quack"]
SPREAD = 2.0  # of the logits
EXACT_TOKENS = 1024  # that are in float64 at a time
# Our gradients may have so many times the error of torch's. torch rounds a 16-bit gradient of weight
# once. Up to 4 chunks round it once each. 4 roundings have 1.6 times the error of one rounding.
MORE_ERROR = {"gradient of x": 1.25, "gradient of weight": 1.75}
Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Tensors(NamedTuple):
    x: torch.Tensor
    weight: torch.Tensor
    target: torch.Tensor


class Contestant(NamedTuple):
    name: str
    step: Callable[[Tensors], torch.Tensor | None]
    """Leaves gradients in x.grad and weight.grad and returns the loss. Products alone return None."""


def make_tensors(options: argparse.Namespace) -> Tensors:
    place: Any = {"device": options.device, "dtype": getattr(torch, options.dtype)}
    torch.manual_seed(0)
    x = torch.randn(options.tokens, options.hidden, **place)
    weight = torch.randn(options.vocabulary, options.hidden, **place).mul_(SPREAD / options.hidden**0.5)
    target = torch.randint(0, options.vocabulary, (options.tokens,), device=options.device)
    return Tensors(x.requires_grad_(), weight.requires_grad_(), target)


# ---------------------------------------------------------------- contestants


def train(loss: Loss, t: Tensors) -> torch.Tensor:
    t.x.grad = t.weight.grad = None
    found = loss(*t)
    found.backward()
    return found.detach()


def products(chunk: int, t: Tensors) -> None:
    """The three products of matrices that a step has at least, chunk by chunk."""
    x, weight = t.x.detach(), t.weight.detach()
    logits = x.new_empty(min(chunk, len(x)), len(weight))
    for_x, for_weight = torch.empty_like(x), torch.empty_like(weight)
    for start in range(0, len(x), chunk):
        rows = slice(start, min(start + chunk, len(x)))
        part = logits[: rows.stop - start]
        torch.mm(x[rows], weight.T, out=part)
        torch.mm(part, weight, out=for_x[rows])
        torch.addmm(for_weight, part.T, x[rows], beta=float(start > 0), out=for_weight)
    t.x.grad, t.weight.grad = for_x, for_weight


def in_torch(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, weight), target)


def contestants(options: argparse.Namespace) -> Iterator[Contestant]:
    tokens, wanted = options.tokens, options.peers
    chunk = tokens_of_chunk(tokens, options.vocabulary, options.hidden)
    yield Contestant(PRODUCTS, partial(products, tokens))
    if chunk < tokens:
        yield Contestant(f"{PRODUCTS}, {chunk} tokens", partial(products, chunk))
    yield Contestant(OURS, partial(train, linear_cross_entropy))
    for size in options.chunks:
        loss: Loss = partial(linear_cross_entropy, chunk=size)
        yield Contestant(f"chunk={size}", partial(train, loss))
    if "torch" in wanted:
        yield Contestant(TORCH, partial(train, in_torch))
    if "compile" in wanted:
        yield Contestant("torch.compile", partial(train, torch.compile(in_torch, fullgraph=True)))
    if "chunked" in wanted and hasattr(torch.nn, "LinearCrossEntropyOptions"):
        loss = partial(F.linear_cross_entropy, options=torch.nn.LinearCrossEntropyOptions())
        yield Contestant("torch, chunked", partial(train, loss))
    liger = loads("liger_kernel.transformers.fused_linear_cross_entropy") if "liger" in wanted else None
    if liger:
        module = liger.LigerFusedLinearCrossEntropyLoss()
        yield Contestant("Liger", partial(train, lambda x, weight, target: module(weight, x, target)))
    quack = loads("quack.linear_cross_entropy") if "quack" in wanted else None
    if quack:
        yield Contestant("QuACK", partial(train, quack.chunked_linear_cross_entropy))


# ---------------------------------------------------------------- answers


def exact(t: Tensors) -> dict[str, torch.Tensor]:
    """The loss and the gradients in float64."""
    weight, tokens = t.weight.detach().double(), len(t.x)
    loss, for_weight, parts = weight.new_zeros(()), torch.zeros_like(weight), []
    for x, target in zip(t.x.detach().split(EXACT_TOKENS), t.target.split(EXACT_TOKENS), strict=True):
        wide = x.double()
        gradient = (wide @ weight.T).log_softmax(-1)
        chosen = target[:, None]
        loss -= gradient.gather(-1, chosen).sum() / tokens
        gradient.exp_().scatter_add_(-1, chosen, torch.full_like(chosen, -1, dtype=torch.float64))
        gradient /= tokens
        parts.append(gradient @ weight)
        for_weight.addmm_(gradient.T, wide)
    return {"loss": loss, "gradient of x": torch.cat(parts), "gradient of weight": for_weight}


def errors(t: Tensors, loss: torch.Tensor, expected: dict[str, torch.Tensor]) -> dict[str, float]:
    """The size of each error over the size of the result."""
    found = {"loss": loss, "gradient of x": t.x.grad, "gradient of weight": t.weight.grad}
    sizes = {}
    for name, array in found.items():
        assert array is not None
        off = array.double().sub_(expected[name])
        sizes[name] = float(off.norm() / expected[name].norm())
    return sizes


def peak_bytes(contestant: Contestant, t: Tensors) -> int:
    """The most memory of a step, besides x, the weight and their gradients."""
    t.x.grad = t.weight.grad = None
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    contestant.step(t)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before - t.x.nbytes - t.weight.nbytes


# ---------------------------------------------------------------- a run


def enter(contestant: Contestant, t: Tensors, expected: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The first steps of a contestant: its errors and its memory."""
    try:
        loss = contestant.step(t)
        found: dict[str, Any] = {} if loss is None else {"errors": errors(t, loss, expected)}
        contestant.step(t)
        if t.x.is_cuda:
            found["peak_bytes"] = peak_bytes(contestant, t)
    except Exception as error:
        if contestant.name == OURS:
            raise
        return {"failed": short(error)}
    return found


def sample(contestant: Contestant, t: Tensors) -> float:
    """Milliseconds of a step."""
    if t.x.is_cuda:
        return elapsed([partial(contestant.step, t)])
    begun = time.perf_counter()
    contestant.step(t)
    return 1e3 * (time.perf_counter() - begun)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    t = make_tensors(options)
    expected = exact(t)
    roster = list(contestants(options))
    figures = {each.name: enter(each, t, expected) for each in roster}
    del expected
    able = [each for each in roster if "failed" not in figures[each.name]]
    times: dict[str, list[float]] = {each.name: [] for each in able}
    for turn in range(options.rounds):
        for each in able[turn % len(able) :] + able[: turn % len(able)]:
            times[each.name].append(sample(each, t))
    for name, samples in times.items():
        figures[name]["ms"] = median_and_range(samples, 4)
    return figures


def run(options: argparse.Namespace) -> dict[str, Any]:
    machine = about_gpu() if options.device == "cuda" else about_cpu()
    names = ("tokens", "hidden", "vocabulary", "dtype", "rounds")
    chosen = {name: getattr(options, name) for name in names}
    size = getattr(torch, options.dtype).itemsize
    chunk = tokens_of_chunk(options.tokens, options.vocabulary, options.hidden)
    return machine | {
        **chosen,
        "chunk": chunk,
        "logits_bytes": options.tokens * options.vocabulary * size,
        "chunk_bytes": min(chunk, options.tokens) * options.vocabulary * size,
        "figures": measure(options),
    }


def show(document: dict[str, Any]) -> None:
    shape = " x ".join(str(document[name]) for name in ("tokens", "hidden", "vocabulary"))
    sizes = "; ".join(f"{name} {document[name + '_bytes'] / 1e6:.0f} MB" for name in ("logits", "chunk"))
    print(f"{shape} {document['dtype']} on {document.get('gpu', 'a CPU')}: {sizes}\n")
    columns = ["contestant", "ms", "range", "x products", "peak MB", "error: loss", "x", "weight"]
    base = document["figures"][PRODUCTS].get("ms", [float("nan")])[0]
    rows = [columns]
    for name, figure in document["figures"].items():
        if "failed" in figure:
            rows.append([name, figure["failed"], *[NOTHING] * 6])
            continue
        middle, low, high = figure["ms"]
        peak = f"{figure['peak_bytes'] / 1e6:.0f}" if "peak_bytes" in figure else NOTHING
        off = [f"{error:.2g}" for error in figure.get("errors", {}).values()] or [NOTHING] * 3
        rows.append([name, f"{middle:.3f}", f"{low:.3f}-{high:.3f}", f"{middle / base:.3f}", peak, *off])
    print(markdown(rows))


def limit(what: str, document: dict[str, Any]) -> float:
    """The largest error that our loss or gradient may have."""
    eps, of_float32 = (torch.finfo(getattr(torch, name)).eps for name in (document["dtype"], "float32"))
    if what == "loss":  # is float32. The roundings of the logits average out over the tokens
        return eps / document["tokens"] ** 0.5 + 8 * of_float32
    theirs = document["figures"].get(TORCH, {}).get("errors", {}).get(what, 8 * eps)  # coarse without torch
    of_sums = of_float32 * document["vocabulary"] ** 0.5  # the products add up in float32
    return MORE_ERROR[what] * theirs + of_sums


def troubles(document: dict[str, Any]) -> list[str]:
    """What is wrong with our results."""
    wrong = []
    for name, figure in document["figures"].items():
        if name == OURS or name.startswith("chunk="):
            for what, error in figure.get("errors", {}).items():
                if not error <= limit(what, document):
                    most = limit(what, document)
                    wrong.append(f"{name}: {what} is off by {error:.2g}, with a limit of {most:.2g}")
    return wrong


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--device", choices=["cuda", "cpu"], default="cuda")
    add("--tokens", type=int, default=8192)
    add("--hidden", type=int, default=4096)
    add("--vocabulary", type=int, default=128256)
    add("--dtype", choices=["float16", "bfloat16", "float32"], default="bfloat16")
    add("--chunks", type=listed(), default=[], metavar="C,C", help="more values of chunk=")
    add(
        "--peers",
        type=listed(*PEERS),
        default=PEERS,
        metavar="A,B",
        help=f"of {', '.join(PEERS)}; '' for none",
    )
    add("--rounds", type=int, default=15, metavar="R", help="samples of each")
    add("--json", type=Path, metavar="FILE", help="where the figures go")
    add("--show", type=Path, metavar="FILE", help="measure nothing: what a JSON file says")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.show:
        show(json.loads(options.show.read_text()))
        return 0
    why = obstacle() if options.device == "cuda" else ""
    if why:
        print(f"gpu_linear_loss.py: {why}", file=sys.stderr)
        return 2
    document = run(options)
    show(document)
    if options.json:
        write(document, options.json)
    wrong = troubles(document)
    for line in wrong:
        print(f"NOT RIGHT: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
