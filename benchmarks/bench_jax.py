"""onsoftmax inside jax.jit beside jax.nn: jit(f), and jit(grad(f)), where f adds up weights * softmax.

    python benchmarks/bench_jax.py                                          # JAX's GPU, a minute or two
    python benchmarks/bench_jax.py --json OUT.json
    JAX_PLATFORMS=cpu python benchmarks/bench_jax.py --rounds 5             # minutes on two cores
    JAX_PLATFORMS=cpu python benchmarks/bench_jax.py --shapes 64x1000       # to see that it works

The program checks answers before it times them. The contestants take turns. A figure is the median over the
rounds. The speed-up is jax.nn's time over ours. On a GPU, a call makes eight results from eight pairs of
arrays. This hides the host's time, and no array stays in the caches.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import onsoftmax as ons
from onsoftmax.bench.answers import exact as exact_softmax
from onsoftmax.bench.document import write
from onsoftmax.bench.figures import median_and_range
from onsoftmax.bench.machine import load, versions

OPERATIONS = ["softmax", "log_softmax"]
CONTESTANTS = {"onsoftmax": ons, "jax.nn": jax.nn}
CHECKED_ROWS = 64


def programs(operation: str) -> dict[str, dict[str, Any]]:
    """{"forward" or "gradient": {contestant: function of a list of logits and a list of weights}}"""
    found: dict[str, dict[str, Any]] = {"forward": {}, "gradient": {}}
    for name, library in CONTESTANTS.items():
        function = getattr(library, operation)

        def loss(x: Any, weights: Any, function: Any = function) -> Any:
            return (function(x) * weights).sum(dtype=jnp.float32)

        def forward(x: Any, weights: Any, function: Any = function) -> Any:
            return function(x)

        for what, each in (("forward", forward), ("gradient", jax.grad(loss))):
            found[what][name] = jax.jit(
                lambda xs, all_weights, each=each: [each(*pair) for pair in zip(xs, all_weights, strict=True)]
            )
    return found


def exact(operation: str, what: str, x: Any, weights: Any) -> Any:
    x, g = (np.asarray(each.astype("float32")) for each in (x, weights))
    p = exact_softmax(x, -1)
    if what == "forward":
        return p if operation == "softmax" else np.log(p)
    if operation == "softmax":
        return p * (g - (g * p).sum(-1, keepdims=True))
    return g - p * g.sum(-1, keepdims=True)


def largest_error(program: Any, operation: str, what: str, x: Any, weights: Any) -> float:
    x, weights = x[:CHECKED_ROWS], weights[:CHECKED_ROWS]
    made = np.asarray(program([x], [weights])[0].astype("float32"), np.float64)
    return float(np.abs(made - exact(operation, what, x, weights)).max())


def timed(calls: dict[str, Callable[[], Any]], rounds: int, results: int) -> dict[str, list[float]]:
    """Median, lowest and highest milliseconds of one result, by contestant."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-1, rounds):  # turn -1 warms up
        for name, call in calls.items():
            begun = time.perf_counter()
            jax.block_until_ready(call())
            if turn >= 0:
                times[name].append((time.perf_counter() - begun) * 1e3 / results)
    return {name: median_and_range(of, 4) for name, of in times.items()}


def case(
    operation: str, what: str, shape: tuple[int, ...], dtype: str, rounds: int, results: int
) -> dict[str, Any]:
    keys = jax.random.split(jax.random.key(0), 2 * results)
    arrays = [3 * jax.random.normal(key, shape, dtype) for key in keys]
    x, weights = arrays[:results], arrays[results:]
    made = programs(operation)[what]
    errors = {
        name: largest_error(program, operation, what, x[0], weights[0]) for name, program in made.items()
    }
    calls = {name: lambda program=program: program(x, weights) for name, program in made.items()}
    times = timed(calls, rounds, results)
    return {
        "operation": operation,
        "what": what,
        "shape": list(shape),
        "dtype": dtype,
        "ms": times,
        "speed-up": round(times["jax.nn"][0] / times["onsoftmax"][0], 3),
        "largest errors": errors,
        "right": errors["onsoftmax"] <= 4 * float(jnp.finfo(dtype).eps) + 2 * errors["jax.nn"],
    }


def about(options: argparse.Namespace) -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "platform": device.platform,
        "device": device.device_kind if device.platform != "cpu" else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "load_before": load(),
        "versions": {"onsoftmax": ons.__version__, "python": platform.python_version(), **versions(["jax"])},
        "rounds": options.rounds,
    }


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["4096x32768", "8192x4096"])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    document = about(options)
    results = 1 if document["platform"] == "cpu" else 8
    print(f"{document['device']}, JAX {jax.__version__}")
    print("| | onsoftmax | jax.nn | speed-up |\n| --- | ---: | ---: | ---: |")
    document["cases"] = []
    for shape in options.shapes:
        for dtype in options.dtypes:
            for operation in OPERATIONS:
                for what in ("forward", "gradient"):
                    lengths = tuple(map(int, shape.split("x")))
                    found = case(operation, what, lengths, dtype, options.rounds, results)
                    document["cases"].append(found)
                    times = " | ".join(f"{found['ms'][name][0]:.3f} ms" for name in CONTESTANTS)
                    wrong = "" if found["right"] else " NOT RIGHT"
                    print(
                        f"| {shape} {dtype} {operation} {what} | {times} | {found['speed-up']:.2f}{wrong} |",
                        flush=True,
                    )
    if options.json:
        write(document, options.json)
    return 0 if all(found["right"] for found in document["cases"]) else 1


if __name__ == "__main__":
    sys.exit(main())
