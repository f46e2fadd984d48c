"""Rows cut over the ranks of torch.distributed: onsoftmax.distributed beside torch and DTensor, which gather.

    torchrun --nproc-per-node=2 benchmarks/bench_ranks.py                      # two GPUs, NCCL, two minutes
    torchrun --nproc-per-node=2 benchmarks/bench_ranks.py --json OUT.json
    torchrun --nproc-per-node=2 benchmarks/bench_ranks.py --device cpu --shape 64x1000    # gloo

The program checks answers before it times them. Contestants take turns. The time of a round is the time of
the slowest rank, and a figure is the median over the rounds. The speed-up is the faster peer's time over
ours.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather as all_gather_with_gradient
from torch.distributed.tensor import DTensor, Shard, init_device_mesh

from onsoftmax import distributed
from onsoftmax._torch.ranks import gather
from onsoftmax.bench.document import write
from onsoftmax.bench.figures import median_and_range
from onsoftmax.bench.machine import about_cpu, about_gpu

OPERATIONS = ["log_softmax", "softmax", "logsumexp"]
CACHES = 4  # the tensors that take turns exceed the cache this many times
CALLS, MOST_SETS = 3, 8


class Ranks:
    """The group, this rank's device, and the clock."""

    def __init__(self, device: str) -> None:
        self.on_gpu = device == "cuda"
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if self.on_gpu:
            torch.cuda.set_device(local)
        dist.init_process_group("nccl" if self.on_gpu else "gloo")
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.device = torch.device(device, local) if self.on_gpu else torch.device("cpu")
        self.mesh = init_device_mesh(device, (self.count,))
        self.alone = [dist.new_group([rank]) for rank in range(self.count)][self.rank]

    def slowest(self, milliseconds: float) -> float:
        value = torch.tensor([milliseconds], dtype=torch.float64, device=self.device)
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return float(value)

    def all_are(self, here: bool) -> bool:
        return self.slowest(0.0 if here else 1.0) == 0.0

    def time(self, calls: list[Callable[[], Any]]) -> float:
        """Milliseconds of one call, on the slowest rank."""
        dist.barrier()
        if not self.on_gpu:
            begun = time.perf_counter()
            for call in calls:
                call()
            return self.slowest((time.perf_counter() - begun) * 1e3 / len(calls))
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        first.record()
        for call in calls:
            call()
        last.record()
        last.synchronize()
        return self.slowest(first.elapsed_time(last) / len(calls))


def ours(operation: str, x: Any, ranks: Ranks) -> Any:
    return getattr(distributed, operation)(x)


def torch_gathers(operation: str, x: Any, ranks: Ranks) -> Any:
    """Gathers the logits of all ranks and runs torch on the whole rows. Returns this rank's part of the
    result."""
    y = getattr(torch, operation)(torch.cat(all_gather_with_gradient(x), -1), -1)
    return y if operation == "logsumexp" else y.tensor_split(ranks.count, -1)[ranks.rank]


def dtensor_gathers(operation: str, x: Any, ranks: Ranks) -> Any:
    y = getattr(torch, operation)(DTensor.from_local(x, ranks.mesh, [Shard(1)]), -1)
    if operation == "logsumexp":
        return y.full_tensor()
    return y.redistribute(placements=[Shard(1)]).to_local()


CONTESTANTS = {"onsoftmax": ours, "torch": torch_gathers, "DTensor": dtensor_gathers}


def rows(ranks: Ranks, shape: tuple[int, int], dtype: torch.dtype, seed: int = 0) -> Any:
    """The same rows on all ranks. They are made part by part, because the random numbers are float32."""
    generator = torch.Generator(ranks.device).manual_seed(seed)
    x = torch.empty(shape, dtype=dtype, device=ranks.device)
    for part in x.split(1024):
        part.copy_(3 * torch.randn(part.shape, device=ranks.device, generator=generator))
    return x


def same_bits(a: Any, b: Any) -> bool:
    kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    same = (a.contiguous().view(kind) == b.contiguous().view(kind)) | (a.isnan() & b.isnan())
    return a.shape == b.shape and bool(same.all())


def check_bits(ranks: Ranks, x: Any) -> dict[str, bool]:
    """Whether rows that are cut give the same bits as whole rows in a group of one rank."""
    N, last = x.shape[1], ranks.count - 1
    some = x[:256].clone()
    spoiled = some.clone()
    spoiled[::2, -1] = torch.nan  # on the last rank
    cases = {
        "even cuts": (x, [N * rank // ranks.count for rank in range(1, ranks.count)]),
        "uneven cuts": (some, [N // 7 + rank for rank in range(last)]),
        "a rank without elements": (some, [0] + [N // 2] * (last - 1) if last else []),
        "NaN on one rank": (spoiled, [N // 3 + rank for rank in range(last)]),
    }
    found = {}
    for name, (whole, cuts) in cases.items():
        mine = whole.tensor_split(cuts, -1)[ranks.rank]
        here = True
        for operation in OPERATIONS:
            function = getattr(distributed, operation)
            wanted = function(whole, ranks.alone)
            wanted = wanted if operation == "logsumexp" else wanted.tensor_split(cuts, -1)[ranks.rank]
            here &= same_bits(function(mine), wanted)
        found[name] = ranks.all_are(here)
    return found


def check_shapes(ranks: Ranks, x: Any) -> dict[str, Any]:
    """One rank has other rows. Whether each rank got an error, and after how many seconds."""
    begun = time.monotonic()
    try:
        distributed.softmax(x[: 1 + (ranks.rank == 0), :10])
        here = ranks.count == 1
    except ValueError:
        here = True
    return {"error on each rank": ranks.all_are(here), "seconds": round(time.monotonic() - begun, 3)}


def check_answers(ranks: Ranks, x: Any, grad: Any) -> dict[str, dict[str, float]]:
    """The largest error of each contestant's values and gradients, against float64 on a few whole rows."""
    mine = x[:64].clone()
    parts = [gather(values[:64], dist.group.WORLD) for values in (x, grad)]
    logits, dy = (torch.cat(list(part), -1).double() for part in parts)
    found: dict[str, dict[str, float]] = {name: {} for name in CONTESTANTS}
    for operation in OPERATIONS:
        values = operation == "logsumexp"
        leaf = logits.clone().requires_grad_()
        whole = getattr(torch, operation)(leaf, -1)
        whole.backward(dy[:, 0] if values else dy)
        exact = [whole.detach(), leaf.grad]
        exact = [e if e.ndim == 1 else e.tensor_split(ranks.count, -1)[ranks.rank] for e in exact]
        for name, function in CONTESTANTS.items():
            given = mine.clone().requires_grad_()
            y = function(operation, given, ranks)
            y.backward(
                dy[:, 0].to(x.dtype) / (ranks.count if values and name == "torch" else 1)
                if values
                else grad[:64]
            )
            made = [y.detach(), given.grad]
            errors = [float((a.double() - e).abs().max()) for a, e in zip(made, exact, strict=True)]
            for what, error in zip(("", " gradient"), errors, strict=True):
                found[name][operation + what] = ranks.slowest(error)
    return found


def rounds_of(ranks: Ranks, contestants: dict[str, list[Callable[[], Any]]], rounds: int) -> dict[str, Any]:
    """Median and range of each contestant, in milliseconds. Contestants take turns."""
    turns = {name: itertools.cycle(calls) for name, calls in contestants.items()}
    for turn in turns.values():
        for _ in range(2):
            next(turn)()
    times: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            times[name].append(ranks.time([next(turn) for _ in range(CALLS)]))
    return {name: median_and_range(of, 5) for name, of in times.items()}


def forward(function: Any, operation: str, x: Any, ranks: Ranks) -> Callable[[], Any]:
    def call() -> None:
        with torch.no_grad():
            function(operation, x, ranks)

    return call


def both(function: Any, operation: str, x: Any, grad: Any, ranks: Ranks) -> Callable[[], Any]:
    leaf = x.detach().requires_grad_()

    def call() -> None:
        leaf.grad = None
        y = function(operation, leaf, ranks)
        y.backward(grad[:, 0] if operation == "logsumexp" else grad)

    return call


def time_operations(ranks: Ranks, sets: list[Any], rounds: int) -> list[dict[str, Any]]:
    cases = []
    for operation, what in itertools.product(OPERATIONS, ["forward", "forward and backward"]):
        calls = {}
        for name, function in CONTESTANTS.items():
            if what == "forward":
                calls[name] = [forward(function, operation, x, ranks) for x, _ in sets]
            else:
                calls[name] = [both(function, operation, x, grad, ranks) for x, grad in sets]
        found = rounds_of(ranks, calls, rounds)
        peers = min(found[name][0] for name in CONTESTANTS if name != "onsoftmax")
        cases.append(
            {"operation": operation, "what": what, "ms": found, "speed-up": peers / found["onsoftmax"][0]}
        )
    return cases


def time_exchange(ranks: Ranks, M: int, rounds: int) -> dict[str, Any]:
    """Times the package's gathering of the states of M rows, beside a bare all_gather of as many bytes."""
    state = torch.rand((M, 5), dtype=torch.float64, device=ranks.device)
    room = torch.empty(ranks.count * M * 5, dtype=torch.float64, device=ranks.device)
    all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    calls = {
        "onsoftmax": [lambda: gather(state, dist.group.WORLD)],
        "bare all_gather": [lambda: all_gather(room, state.view(-1))],
    }
    found = rounds_of(ranks, {name: call * 10 for name, call in calls.items()}, 3 * rounds)
    sums = torch.rand((M, 2), dtype=torch.float64, device=ranks.device)
    return {
        "bytes a rank": state.numel() * 8,
        "bytes a rank backward": sums.numel() * 8,
        "ms": found,
        "times the bare one": found["onsoftmax"][0] / found["bare all_gather"][0],
    }


def about(ranks: Ranks, options: argparse.Namespace) -> dict[str, Any]:
    machine = about_gpu() if ranks.on_gpu else about_cpu()
    return machine | {
        "ranks": ranks.count,
        "backend": dist.get_backend(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if ranks.on_gpu else None,
        "shape": list(options.shape),
        "dtype": options.dtype,
        "rounds": options.rounds,
    }


def show(document: dict[str, Any]) -> None:
    M, N = document["shape"]
    print(f"{M} x {N} {document['dtype']} over {document['ranks']} ranks of {document.get('gpu', 'CPUs')}")
    print("| operation | onsoftmax | torch | DTensor | speed-up |\n| --- | ---: | ---: | ---: | ---: |")
    for case in document["cases"]:
        times = " | ".join(f"{case['ms'][name][0]:.3f} ms" for name in CONTESTANTS)
        print(f"| {case['operation']}, {case['what']} | {times} | {case['speed-up']:.2f} |")
    exchange = document["exchange"]
    print(f"exchange: {exchange['ms']}, {exchange['times the bare one']:.2f} times the bare one")
    print(f"the same bits: {document['the same bits']}; other shapes: {document['other shapes']}")
    for name, errors in document["largest errors"].items():
        print(f"largest errors of {name}: " + ", ".join(f"{what} {e:.2g}" for what, e in errors.items()))


def troubles(document: dict[str, Any]) -> list[str]:
    """What is wrong with our results."""
    wrong = [name for name, same in document["the same bits"].items() if not same]
    if not document["other shapes"]["error on each rank"]:
        wrong.append("other shapes give no error")
    eps = torch.finfo(getattr(torch, document["dtype"])).eps
    errors = document["largest errors"]
    for what, error in errors["onsoftmax"].items():
        if not error <= 4 * eps + 2 * min(errors["torch"][what], errors["DTensor"][what]):
            wrong.append(f"{what} is off by {error}")
    return wrong


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--shape", default="8192x151936", help="of all ranks' rows together")
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32", "float64"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args(arguments)
    options.shape = tuple(map(int, options.shape.split("x")))
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    ranks = Ranks(options.device)
    if options.shape[1] % ranks.count:
        print(f"--shape: rows of {options.shape[1]}: expected a multiple of {ranks.count}, the ranks")
        return 2
    document = about(ranks, options)
    dtype = getattr(torch, options.dtype)
    whole = rows(ranks, options.shape, dtype)
    document["the same bits"] = check_bits(ranks, whole)
    document["other shapes"] = check_shapes(ranks, whole)
    mine = whole.tensor_split(ranks.count, -1)[ranks.rank].clone()
    del whole
    cache = torch.cuda.get_device_properties(ranks.device).L2_cache_size if ranks.on_gpu else 0
    count = min(MOST_SETS, 1 + CACHES * cache // (mine.numel() * mine.element_size()))
    sets = [(mine.clone(), rows(ranks, tuple(mine.shape), dtype, seed=1 + turn)) for turn in range(count)]
    del mine
    document["largest errors"] = check_answers(ranks, *sets[0])
    document["cases"] = time_operations(ranks, sets, options.rounds)
    document["exchange"] = time_exchange(ranks, options.shape[0], options.rounds)
    wrong = troubles(document)
    if ranks.rank == 0:
        show(document)
        if options.json:
            write(document, options.json)
        for line in wrong:
            print(f"NOT RIGHT: {line}")
    dist.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
