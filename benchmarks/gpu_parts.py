"""The parts of bench_cuda.py that time no kernel: accuracy, and the host's time per call."""

from __future__ import annotations

import random
import timeit
from collections.abc import Iterator
from typing import Any

import torch

import onsoftmax as ons
from onsoftmax.bench.answers import errors_eps, exact
from onsoftmax.bench.case import Case
from onsoftmax.bench.contestants import Contestant, installed
from onsoftmax.bench.figures import figures_of, rounded
from onsoftmax.bench.gpu_case import make_tensors
from onsoftmax.bench.gpu_contestants import peers
from onsoftmax.bench.gpu_timing import what_failed

HOST_SHAPE = (4, 256)
HOST_CALLS = 300  # fewer than the GPU's queue holds
HOST_ROUNDS, QUICK_HOST_ROUNDS = 25, 9


def accuracy(case: Case, roster: list[Contestant]) -> dict[str, Any]:
    """{name: largest and mean error against long double}"""
    tensors = make_tensors(case)
    expected = exact(tensors["x"].double().cpu().numpy(), case.axis)
    out: dict[str, Any] = {}
    for contestant in roster:
        if contestant.kind == "copy":
            continue
        if contestant.cannot:
            out[contestant.name] = {"cannot": contestant.cannot}
            continue
        try:
            y = tensors["y"].fill_(torch.nan)
            result = eval(contestant.line, contestant.names(tensors))
            largest, mean = errors_eps(y if contestant.into else result, expected, case.dtype)
            out[contestant.name] = {"error": rounded(largest), "mean": rounded(mean)}
        except Exception as e:
            out[contestant.name] = what_failed(contestant, e)
    return out


def torch_callers(case: Case, wanted: list[str]) -> Iterator[Contestant]:
    for name, line in (("auto", "softmax(x)"), ("auto out=", "softmax(x, out=y)")):
        yield Contestant(name, "ours", line, lambda t: {"softmax": ons.softmax, **t}, "out=" in line)
    for contestant in peers(case, wanted):
        if contestant.name == "torch":
            line = "torch.softmax(x, -1)"
            yield Contestant("torch", "peer", line, lambda t: {"torch": torch, **t}, False)
        else:
            yield contestant


def cupy_callers() -> Iterator[Contestant]:
    """Our call and CuPy's own on CuPy arrays. None of them if CuPy is missing or does not work."""
    cupy, special = installed("cupy"), installed("cupyx.scipy.special") if installed("cupy") else None
    if not cupy:
        return
    x = cupy.random.standard_normal(HOST_SHAPE, dtype=cupy.float32)
    names = {"x": x, "y": cupy.empty_like(x), "softmax": ons.softmax, "special": special}
    yield Contestant("auto", "ours", "softmax(x)", lambda _: names, False)
    yield Contestant("auto out=", "ours", "softmax(x, out=y)", lambda _: names, True)
    if hasattr(special, "softmax"):
        yield Contestant("CuPy", "peer", "special.softmax(x, axis=-1)", lambda _: names, False)


def host_time(roster: list[Contestant], tensors: dict[str, Any], rounds: int) -> dict[str, Any]:
    """{name: figures of the time until a call returns, while the GPU still works}"""
    out: dict[str, Any] = {}
    timers: dict[str, timeit.Timer] = {}
    for contestant in roster:
        try:
            timer = timeit.Timer(contestant.line, globals=contestant.names(tensors))
            timer.timeit(20)
            torch.cuda.synchronize()
            timers[contestant.name] = timer
        except Exception as e:
            out[contestant.name] = what_failed(contestant, e)
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name in random.sample(list(timers), len(timers)):
            samples[name].append(timers[name].timeit(HOST_CALLS) / HOST_CALLS * 1e3)
            torch.cuda.synchronize()
    return {**{name: figures_of(values, None, 0, 0, []) for name, values in samples.items()}, **out}


def host(wanted: list[str], quick: bool) -> Iterator[tuple[str, list[Contestant], Any]]:
    """Yields (label, contestants, figures) for torch tensors and for CuPy arrays."""
    rounds = QUICK_HOST_ROUNDS if quick else HOST_ROUNDS
    case = Case("host", HOST_SHAPE, "float32")
    roster = list(torch_callers(case, wanted))
    yield "torch tensor", roster, host_time(roster, make_tensors(case), rounds)
    try:
        roster = list(cupy_callers())
    except Exception as e:  # CuPy can be imported without a GPU that it knows
        print(f"CuPy does not work: {e}")
        return
    if roster:
        yield "CuPy array", roster, host_time(roster, {}, rounds)
