"""The gradients (with out=) and softmax_topk on the CPU, beside the same operations by other libraries.

    python benchmarks/cpu_operations.py gradients          # writes results/cpu-<isa>-<date>-gradients.json
    python benchmarks/cpu_operations.py topk --quick       # two shapes, three rounds: to see that it works
    python benchmarks/cpu_operations.py topk --threads 1 --shapes 4096x128:8 1000x4096@0:5

4096x128:8 asks for k = 8. 1000x4096@0 is along axis 0. The data is random. Contestants take turns, with one
sample each in a round. A sample has as many calls as fill about 5 ms, on the same arrays, so arrays that fit
a cache stay there. Each sample follows 50 ms of untimed calls. In this time the other contestant's threads
fall asleep, and the system finds a processor for each of the contestant's own. A figure is the median over
the rounds.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import timeit
from pathlib import Path
from typing import Any

import numpy as np

import onsoftmax as ons
from onsoftmax._cli.arguments import parse_shape
from onsoftmax.bench.answers import error_eps, exact, good_enough
from onsoftmax.bench.contestants import installed, numpy_topk
from onsoftmax.bench.document import write
from onsoftmax.bench.figures import median_and_range
from onsoftmax.bench.machine import about_cpu
from onsoftmax.bench.runs import name_of

OPERATIONS = {"gradients": ("softmax_backward", "log_softmax_backward"), "topk": ("softmax_topk",)}
SHAPES = {
    "gradients": "1x4096 64x1024 1000x333 64x4096 1x32768 8x32768 4096x4096 4096x128 16384x64",
    "topk": "4096x64:8 4096x128:8 4096x256:8 1000x1000:10 256x4096:64 256x32000:5 64x50257:50 1x50257:50",
}
SAMPLE_SECONDS, BEFORE_SECONDS = 0.005, 0.05

Shape = tuple[tuple[int, ...], int, int]


def parse_case(text: str) -> Shape:
    shape, _, k = text.partition(":")
    return (*parse_shape(shape), int(k or 8))


def lines(operation: str, case: Shape, dtype: str) -> dict[str, timeit.Timer]:
    """The timers of ours and of the others, after a check of their answers."""
    return topk_lines(case, dtype) if operation == "softmax_topk" else gradient_lines(operation, case, dtype)


def gradient_lines(operation: str, case: Shape, dtype: str) -> dict[str, timeit.Timer]:
    torch = installed("torch")
    shape, axis, _ = case
    rng = np.random.default_rng(0)
    forward = getattr(ons, operation.removesuffix("_backward"))
    output = forward(rng.standard_normal(shape).astype(dtype), axis)
    grad = rng.standard_normal(shape).astype(dtype)
    results = [np.full_like(output, np.nan) for _ in range(2)]
    tensors = [torch.from_numpy(a) for a in (grad, output, results[1])]
    theirs = getattr(torch.ops.aten, f"_{operation}_data").out
    keyword = "grad_input" if operation == "softmax_backward" else "out"
    names = {"f": getattr(ons, operation), "grad": grad, "y": output, "dx": results[0], "axis": axis}
    of_torch = {"f": theirs, "grad": tensors[0], "y": tensors[1], "dx": tensors[2], "axis": axis}
    of_torch["type"] = tensors[1].dtype
    timers = {
        "onsoftmax": timeit.Timer("f(grad, y, axis, out=dx)", globals=names),
        "torch": timeit.Timer(f"f(grad, y, axis, type, {keyword}=dx)", globals=of_torch),
    }
    for timer in timers.values():
        timer.timeit(1)
    np.testing.assert_allclose(*results, rtol=1e-2, atol=1e-2)
    return timers


def topk_lines(case: Shape, dtype: str) -> dict[str, timeit.Timer]:
    """The timers of ours, torch's and NumPy's. All give the k largest in order, and may differ in ties."""
    torch = installed("torch")
    shape, axis, k = case
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    names = {"ons": ons, "torch": torch, "numpy_topk": numpy_topk, "x": x, "t": torch.from_numpy(x)}
    texts = {
        "onsoftmax": f"ons.softmax_topk(x, {k}, {axis})",
        "torch": f"torch.topk(torch.softmax(t, {axis}), {k}, {axis})",
        "NumPy": f"numpy_topk(x, {k}, {axis})",
    }
    whole, largest = exact(x, axis), -np.sort(-x, axis).take(range(k), axis)
    for name, text in texts.items():
        values, places = eval(text, names)
        expected = np.take_along_axis(whole, np.asarray(places), axis)
        error = error_eps(np.asarray(values), expected, dtype)
        if not good_enough(error, dtype, name == "onsoftmax"):
            raise AssertionError(f"{text}: wrong by {error} eps")
        if name != "torch":  # torch selects among rounded results
            np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(places), axis), largest)
    return {name: timeit.Timer(text, globals=names) for name, text in texts.items()}


def measure(timers: dict[str, timeit.Timer], rounds: int) -> dict[str, list[float]]:
    """Median, lowest and highest seconds of a call."""
    calls = {name: math.ceil(SAMPLE_SECONDS / min(t.repeat(2, 1))) for name, t in timers.items()}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, timer in timers.items():
            end = time.perf_counter() + BEFORE_SECONDS
            while time.perf_counter() < end:
                timer.timeit(calls[name])
            samples[name].append(timer.timeit(calls[name]) / calls[name])
    return {name: median_and_range(of) for name, of in samples.items()}


def print_row(case: dict[str, Any], seconds: dict[str, list[float]], first: bool) -> None:
    """Prints a line of the table, with the table's head if it is the first."""
    ours, *others = (median for median, *_ in seconds.values())
    peers = list(seconds)[1:]
    if first:
        heads = [*case, "us", *(head for peer in peers for head in (f"{peer}, us", f"x {peer}"))]
        print(f"| {' | '.join(heads)} |\n| {' | '.join('---' for _ in heads)} |")
    cells = [str(value) for value in case.values()] + [f"{1e6 * ours:.2f}"]
    for other in others:
        cells += [f"{1e6 * other:.2f}", f"{other / ours:.2f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=list(OPERATIONS))
    parser.add_argument("--dtype", default="float32", choices=["float16", "float32", "float64"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="T")
    parser.add_argument("--shapes", type=parse_case, nargs="+", metavar="SHAPE", help="such as 1024x4096@0")
    parser.add_argument("--rounds", type=int, metavar="R", help="21, with --quick 3")
    parser.add_argument("--quick", action="store_true", help="two shapes, no file unless --json")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    if installed("torch") is None:
        return 2
    rounds = args.rounds or (3 if args.quick else 21)
    shapes = args.shapes or [parse_case(shape) for shape in SHAPES[args.what].split()]
    about: dict[str, Any] = {**about_cpu(), "dtype": args.dtype, "rounds": rounds}
    cases: list[dict[str, Any]] = []
    for operation in OPERATIONS[args.what]:
        for threads in args.threads:
            ons.set_num_threads(threads)
            installed("torch").set_num_threads(threads)
            for shape, axis, k in shapes[1:3] if args.quick and not args.shapes else shapes:
                seconds = measure(lines(operation, (shape, axis, k), args.dtype), rounds)
                case = {"operation": operation, "shape": name_of((shape, axis)), "threads": threads}
                case |= {"k": k} if args.what == "topk" else {}
                print_row(case, seconds, first=not cases)
                cases.append({**case, "seconds": seconds})
    suffix = "" if args.dtype == "float32" else f"-{args.dtype}"
    name = f"cpu-{about['isa']}-{about['date']}-{args.what}{suffix}.json"
    path = args.json or (None if args.quick else Path(__file__).parent / "results" / name)
    if path:
        write({**about, "cases": cases}, path)
        print(f"written: {path.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
