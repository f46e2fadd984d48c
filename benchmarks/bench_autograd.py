"""softmax forward and backward by autograd on a GPU, beside torch, torch.compile, QuACK and Liger.

    python benchmarks/bench_autograd.py [--json OUT.json] [--rounds 15]

QuACK and Liger are timed if they are installed. The program checks answers and gradients before it times
them. Contestants take turns, on several sets of tensors that together exceed the cache. A figure is the
median over the rounds, in microseconds on the GPU. A kernel that waits holds the GPU until all calls are
queued, so the host's time does not show. A step on a tensor of 4 x 256 is also timed by the host's clock.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import onsoftmax as ons
from onsoftmax.bench.document import write
from onsoftmax.bench.gpu_contestants import liger_softmax, quack_softmax
from onsoftmax.bench.gpu_timing import EventTimer
from onsoftmax.bench.machine import about_gpu

SHAPES = [(4096, 32768), (8192, 4096)]
DTYPES = ["float32", "bfloat16"]
Call = Callable[[torch.Tensor], torch.Tensor]


def contestants() -> dict[str, Call]:
    found: dict[str, Call] = {
        "onsoftmax": ons.softmax,
        "torch": lambda x: torch.softmax(x, -1),
        "torch.compile": torch.compile(lambda x: torch.softmax(x, -1)),
        "onsoftmax in torch.compile": torch.compile(lambda x: ons.softmax(x)),
    }
    if quack_softmax():
        found["QuACK"] = quack_softmax().softmax
    if liger_softmax():
        found["Liger"] = liger_softmax().LigerSoftmaxFunction.apply
    return found


def step(call: Call, x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = torch.autograd.grad(call(x), x, grad)[0]
    return result


def check(name: str, call: Call, x: torch.Tensor, grad: torch.Tensor) -> None:
    rows = slice(0, 64)
    exact = x[rows].detach().double().requires_grad_()
    y = torch.softmax(exact, -1)
    (expected,) = torch.autograd.grad(y, exact, grad[rows].double())
    eps = torch.finfo(x.dtype).eps
    for got, want in ((call(x)[rows].detach(), y.detach()), (step(call, x, grad)[rows], expected)):
        off = (got.double() - want).abs().max() / want.abs().max()
        if not off < 8 * eps:
            raise AssertionError(f"{name}: wrong by {float(off / eps):.1f} eps of the largest")


def host_microseconds(call: Call, repeats: int = 300) -> float:
    x = torch.randn(4, 256, device="cuda", requires_grad=True)
    grad = torch.randn(4, 256, device="cuda")
    for _ in range(50):
        step(call, x, grad)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        step(call, x, grad)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats * 1e6


def measure(shape: tuple[int, int], dtype: str, calls: dict[str, Call], rounds: int) -> dict[str, Any]:
    kind, cache = getattr(torch, dtype), torch.cuda.get_device_properties(0).L2_cache_size
    size = shape[0] * shape[1] * kind.itemsize
    count = max(2, 4 * cache // size)
    sets = [
        (
            torch.randn(shape, device="cuda", dtype=kind).requires_grad_(),
            torch.randn(shape, device="cuda", dtype=kind),
        )
        for _ in range(count)
    ]
    target = torch.empty_like(sets[0][0])
    timers = {"copy": EventTimer([lambda x=x: target.copy_(x.detach()) for x, _ in sets])}
    for name, call in calls.items():
        check(name, call, *sets[0])
        timers[name] = EventTimer([lambda c=call, x=x, g=g: step(c, x, g) for x, g in sets])
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name in random.sample(list(timers), len(timers)):
            samples[name].append(timers[name].sample() * 1e3)
    times = {name: statistics.median(each) for name, each in samples.items()}
    # forward reads x and writes y; backward reads y and dy and writes the gradient
    least = times["copy"] * 5 / 2
    return {
        name: {"us": round(us, 2), "x_bound": round(least / us, 3)}
        for name, us in times.items()
        if name != "copy"
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    calls, results = contestants(), []
    for shape in SHAPES:
        for dtype in DTYPES:
            figures = measure(shape, dtype, calls, options.rounds)
            results.append({"shape": list(shape), "dtype": dtype, "contestants": figures})
            print(f"{shape[0]}x{shape[1]} {dtype}")
            for name, each in sorted(figures.items(), key=lambda item: item[1]["us"]):
                print(f"  {name:28s} {each['us']:9.1f} us  {each['x_bound']:.2f} x bound")
    alone = {name: round(host_microseconds(call), 1) for name, call in calls.items()}
    print("by the host, 4x256:", *(f"{name} {us} us" for name, us in alone.items()), sep="\n  ")
    if options.json:
        about = about_gpu() | {"host_us": alone, "results": results}
        write(about, options.json)


if __name__ == "__main__":
    main()
