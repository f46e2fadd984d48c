"""Random calls of every function for a given time, with faults around them, compared with the oracle.

python tests/support/soak.py --seconds 3600 [--json FILE]       make soak SECONDS=3600

A process for each processor makes calls with random arrays, strides, types, axes, masks, scales and threads.
Now and then one of Python's allocations fails at a random point of a call, a signal comes in the middle of a
call, the process forks, or several threads call at once. Each call must be right or raise the right
exception, and so must the next call. The program prints the number of calls, and each wrong call with the
seed that repeats it (--seed S --calls 1).
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import divergence_checks
import logprob_checks
import loss_checks
import numpy as np
import oracle
import random_cases
import route_checks
import sample_checks
from random_cases import (
    INPUT_DTYPES,
    LENGTHS,
    LONG,
    random_axis,
    random_layout,
    random_operand,
    random_shape,
    random_values,
)
from support import DTYPES, HERE, METHODS, environment, same_bits

import onsoftmax as ons

try:
    import _testcapi
except ImportError:  # this Python has no test modules
    _testcapi = None

LOGARITHM_EPS = 2.5  # not proven: one call in 10^5 exceeds the other tests' 2 eps
# The same: one float64 gradient of a loss or a divergence in 10^4 exceeds the other tests' 4 eps.
LOSS_EPS = 5
LEAK_BYTES = 64 << 20  # a worker's memory may grow by this much after the first tenth of its time


def arrays(rng, dtypes=INPUT_DTYPES):
    """An array of random shape, values and layout, an axis, and a where or a scale."""
    dtype = dtypes[rng.integers(len(dtypes))]
    x = random_layout(rng, random_values(rng, random_shape(rng), dtype))
    options = {}
    if rng.random() < 0.3:
        options["where"] = random_operand(rng, x.shape, lambda shape: rng.random(shape) < 0.7)
    if rng.random() < 0.3:
        options["scale"] = float(rng.choice([0.5, -1.0, 0.1, 0.0]))
    return x, random_axis(rng, x.ndim), options


def native(x):
    """The array as the oracle takes it: integers are float64."""
    return x.astype(float) if x.dtype.kind in "ib" else x.astype(x.dtype.newbyteorder("="))


def method_of(rng, operation, x):
    without = {"naive", "exact"} if oracle.compute_type(native(x).dtype) == np.float64 else {"naive"}
    known = {m.name for m in ons.methods("cpu", operation=operation)}
    return str(rng.choice(["auto", "invariant", *sorted(known - without)]))


def logarithms(seed, operation):
    rng = np.random.default_rng(seed)
    x, axis, options = arrays(rng)
    keywords = {"method": method_of(rng, operation, x), "num_threads": int(rng.integers(1, 4)), **options}
    exact = getattr(oracle, operation)(native(x), axis, **options)
    y = getattr(ons, operation)(x, axis, **keywords)
    if np.shape(y) != exact.shape:
        return f"{operation} {x.dtype} {x.shape} {axis}: shape {np.shape(y)}"
    far = oracle.far_from(y, exact, oracle.compute_type(native(x).dtype), LOGARITHM_EPS)
    return (
        f"{operation} {x.dtype} {x.shape} {axis} {keywords.keys()}: {far.sum()} wrong" if far.any() else None
    )


def gradients(seed, operation):
    rng = np.random.default_rng(seed)
    x, axis, options = arrays(rng, DTYPES)
    forward = getattr(ons, operation.removesuffix("_backward"))
    output = forward(x, axis, **options)
    grad = random_layout(rng, (3 * rng.standard_normal(x.shape)).astype(output.dtype))
    keywords = {"method": method_of(rng, operation, x), "num_threads": int(rng.integers(1, 4)), **options}
    exact, size = oracle.gradient(operation, native(grad), output, axis, **options)
    dx = getattr(ons, operation)(grad, output, axis, **keywords)
    far = oracle.far_from_gradient(dx, exact, size, oracle.compute_type(output.dtype, native(grad).dtype))
    return (
        f"{operation} {x.dtype} {x.shape} {axis} {keywords.keys()}: {far.sum()} wrong" if far.any() else None
    )


def topk(seed, operation):
    rng = np.random.default_rng(seed)
    x, _, options = arrays(rng)
    if x.ndim == 0 or 0 in x.shape:
        return None
    axis = int(rng.integers(x.ndim))
    k = int(rng.integers(1, x.shape[axis] + 1))
    log = bool(rng.random() < 0.3)
    keywords = {
        "log": log,
        "method": method_of(rng, operation, x),
        "num_threads": int(rng.integers(1, 4)),
        **options,
    }
    values, indices = ons.softmax_topk(x, k, axis, **keywords)
    places = oracle.topk(native(x), k, axis, **options)
    like = "exact" if keywords["method"] == "exact" else "online"
    whole = (ons.log_softmax if log else ons.softmax)(x, axis, method=like, **options)
    right = (indices == places).all() and same_bits(values, np.take_along_axis(whole, places, axis))
    return None if right else f"softmax_topk {x.dtype} {x.shape} {axis} k={k} {keywords.keys()}"


def parts(seed, operation):
    """A row cut anywhere and merged in two orders has the same bits, and the row's logsumexp."""
    rng = np.random.default_rng(seed)
    x, _, _ = arrays(rng)
    if x.ndim == 0 or x.shape[-1] == 0:
        return None
    cuts = np.sort(rng.integers(0, x.shape[-1] + 1, int(rng.integers(0, 5))))
    each = [ons.normalizer(part) for part in np.split(x, cuts, axis=-1)]
    one, other = (merged([each[i] for i in rng.permutation(len(each))]) for _ in range(2))
    if one.packed.tobytes() != other.packed.tobytes():
        return f"normalizer {x.dtype} {x.shape} cut at {cuts}: other bits in another order"
    exact = oracle.logsumexp(native(x), -1)
    far = oracle.far_from(one.logsumexp(), exact, oracle.compute_type(native(x).dtype), largest=4)
    return f"normalizer {x.dtype} {x.shape} cut at {cuts}: {far.sum()} wrong" if far.any() else None


def merged(normalizers):
    first, *others = normalizers
    for other in others:
        first = first.merge(other)
    return first


def rows_of(rng):
    """The type and the shape of rows along the last axis. Few are so long that threads share them."""
    dtype = DTYPES[rng.integers(len(DTYPES))]
    N = int(rng.choice([n for n in [*LENGTHS, *LONG] if n]))
    if rng.random() < 0.01:
        return dtype, (1, int(rng.integers(65536, 70000)))
    most = max(1, 4000 // N)
    outer = [int(rng.integers(rng.random() > 0.02, 1 + min(most, 9))) for _ in range(rng.integers(0, 4))]
    while np.prod(outer) > most:
        outer.pop()
    return dtype, (*outer, N)


def checked(seed, operation, check):
    """check(rng, dtype, shape) asserts that a call is right."""
    rng = np.random.default_rng(seed)
    dtype, shape = rows_of(rng)
    try:
        check(rng, dtype, shape)
    except AssertionError as error:
        return f"{operation} {dtype} {shape}: {error}"
    return None


def losses(seed, operation):
    checks = loss_checks if operation == "cross_entropy" else logprob_checks
    check = lambda rng, dtype, shape: checks.check_random(ons, rng, dtype, shape[-1], shape[:-1])  # noqa: E731
    return checked(seed, operation, check)


def divergences(seed, operation):
    kind = operation.removesuffix("_divergence")
    check = lambda rng, dtype, shape: divergence_checks.check_random(ons, rng, dtype, shape, kind)  # noqa: E731
    return checked(seed, operation, check)


def routes(seed, operation):
    logits, k, terms = route_checks.random_case(seed)
    try:
        route_checks.check_route(logits, k, ons.route(logits, k, **terms), **terms)
    except AssertionError as error:
        return f"route {logits.dtype} {logits.shape} k={k} {terms}: {error}"
    return None


def samples(seed, operation):
    logits, terms = sample_checks.random_case(seed)
    try:
        sample_checks.check_sample(logits, ons.sample(logits, **terms), **terms)
    except AssertionError as error:
        return f"sample {logits.dtype} {logits.shape} {terms}: {error}"
    return None


def filtered(seed, operation):
    logits, terms = sample_checks.random_case(seed)
    filters = sample_checks.filters_of(terms)
    try:
        sample_checks.check_filtered(logits, ons.filtered_softmax(logits, **filters), **filters)
    except AssertionError as error:
        return f"filtered_softmax {logits.dtype} {logits.shape} {filters}: {error}"
    return None


CASES = {
    "softmax": lambda seed, _: random_cases.is_wrong(seed),
    "log_softmax": logarithms,
    "logsumexp": logarithms,
    "softmax_backward": gradients,
    "log_softmax_backward": gradients,
    "softmax_topk": topk,
    "normalizer": parts,
    "cross_entropy": losses,
    "logprob": losses,
    "kl_divergence": divergences,
    "js_divergence": divergences,
    "route": routes,
    "sample": samples,
    "filtered_softmax": filtered,
}


def one_case(seed):
    """Makes one call. Returns the function's name, and what is wrong, or None."""
    operation = random.Random(seed).choice([*CASES])
    try:
        return operation, CASES[operation](seed, operation)
    except Exception as error:
        return operation, f"{operation}: {error!r}"


# ------- faults around a call


def small_call(seed):
    """A function that calls softmax and returns whether the answer is right. Faults happen around it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((int(rng.integers(1, 40)), int(rng.integers(1, 3000))), dtype=np.float32)
    method = str(rng.choice([name for name in METHODS if name != "naive"]))
    expected = oracle.softmax(x)
    return lambda: (
        not oracle.wrong_places(ons.softmax(x, method=method, num_threads=2), expected, x.dtype).any()
    )


def without_memory(seed):
    """The n-th of Python's allocations fails, and so do all after it."""
    rng = random.Random(seed)
    x = np.random.default_rng(seed).standard_normal((7, 300), dtype=np.float32)
    classes = np.arange(7)
    calls = [
        lambda: ons.softmax(x),
        lambda: ons.logsumexp(x, 0),
        lambda: ons.softmax_topk(x, 3),
        lambda: ons.normalizer(x).merge(ons.normalizer(x)),
        lambda: ons.softmax_backward(x, x),
        lambda: ons.cross_entropy_with_grad(x, classes),
        lambda: ons.logprob(x, classes, entropy=True, argmax=True),
        lambda: ons.kl_divergence_with_grad(x, x),
        lambda: ons.js_divergence(x, x, where=x > 0),
        lambda: ons.route(x, 3, groups=4, top_groups=2),
        lambda: ons.sample(x, temperature=x[:, 0] ** 2, top_p=0.5, seed=0, return_valid=True),
        lambda: ons.plan(x),
    ]
    call = rng.choice(calls)
    if _testcapi is None:
        return None
    _testcapi.set_nomemory(rng.randrange(60), 0)
    try:
        call()
        raised = MemoryError
    except BaseException as error:
        raised = type(error)  # only the type: the traceback needs memory, and there is none yet
    finally:
        _testcapi.remove_mem_hooks()
    if raised is not MemoryError:
        return f"an allocation failed: {raised}"
    return None if small_call(seed)() else "wrong after an allocation that failed"


class InterruptedCallError(Exception):
    pass


def with_signal(seed):
    """A signal comes in the middle of a call. Its handler raises, or does not."""
    rng = random.Random(seed)
    raises = rng.random() < 0.5

    def handler(number, frame):
        if raises:
            raise InterruptedCallError

    call = small_call(seed)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 2e-4))
        try:
            right = call()
        except InterruptedCallError:
            right = True
        signal.setitimer(signal.ITIMER_REAL, 0)
    except InterruptedCallError:  # the signal came at the very end
        right = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None if right and call() else "wrong where a signal came"


def in_a_child(seed):
    """A forked child makes calls, with threads of its own."""
    call = small_call(seed)
    child = os.fork()
    if child == 0:
        os._exit(0 if call() else 1)
    _, status = os.waitpid(child, 0)
    return None if status == 0 and call() else f"wrong in or after a fork: status {status}"


def by_threads(seed):
    """Four Python threads call at once."""
    found = []
    threads = [
        threading.Thread(target=lambda s=s: found.append(one_case(s)[1]))
        for s in range(4 * seed, 4 * seed + 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wrong = [what for what in found if what]
    return None if len(found) == 4 and not wrong else f"by four threads: {wrong}"


FAULTS = {"memory": without_memory, "signal": with_signal, "fork": in_a_child, "threads": by_threads}
CALLS_A_FAULT = 50


# ------- the run


def memory_in_use():
    """Bytes in use, without the free memory between the blocks of the C library's heap."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def work(seed, seconds, calls, note):
    """Makes calls until the time is over or the number is reached. Returns counts and wrong calls. Writes
    each call's seed to a file."""
    counts, wrong, start = collections.Counter(), [], time.monotonic()
    before = None
    loss_checks.LIMIT_EPS = LOSS_EPS
    while (time.monotonic() - start < seconds) if not calls else sum(counts.values()) < calls:
        with open(note, "w") as file:
            file.write(str(seed))
        if not calls and seed % CALLS_A_FAULT == 0:
            name = [*FAULTS][seed // CALLS_A_FAULT % len(FAULTS)]
            what = FAULTS[name](seed)
        else:
            name, what = one_case(seed)
        counts[name] += 1
        if what:
            wrong.append(what if what.startswith("seed") else f"seed {seed}: {what}")
        seed += 1
        if before is None and time.monotonic() - start > seconds / 10:
            before = memory_in_use()
    if before and memory_in_use() - before > LEAK_BYTES:
        wrong.append(f"memory grew by {(memory_in_use() - before) >> 20} MiB")
    return {"counts": counts, "wrong": wrong}


def worker_options(seconds, seed):
    return ["--seconds", str(seconds), "--seed", str(seed)]


def run(seconds, seed):
    """Runs a worker for each processor. A worker that crashed counts as wrong."""
    processors = len(os.sched_getaffinity(0))
    # Arenas of threads that ended would keep free memory, and memory_in_use would count it.
    env = environment(MALLOC_ARENA_MAX="1")
    with tempfile.TemporaryDirectory() as folder:
        workers = []
        for i in range(processors):
            note = os.path.join(folder, str(i))
            command = [sys.executable, __file__, *worker_options(seconds, seed + i * 10**9), "--note", note]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=HERE, env=env)
            workers.append((process, note))
        counts, wrong = collections.Counter(), []
        for worker, note in workers:
            printed, _ = worker.communicate()
            if worker.returncode != 0:
                last = Path(note).read_text() if os.path.exists(note) else "none"
                wrong.append(f"seed {last}: the process ended with {worker.returncode}")
                continue
            found = json.loads(printed)
            counts.update(found["counts"])
            wrong += found["wrong"]
    faults = {name: counts.pop(name, 0) for name in FAULTS}
    total = sum(counts.values())
    return {
        "date": time.strftime("%Y-%m-%d"),
        "seconds": seconds,
        "processes": processors,
        "calls": total,
        "calls_an_hour": round(3600 * total / seconds),
        "by_function": dict(sorted(counts.items())),
        "faults": faults,
        "wrong": wrong,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 10**6 % 10**8)
    parser.add_argument("--calls", type=int, default=0, help="of one process, in place of a time; no faults")
    parser.add_argument("--json", metavar="FILE", help="the figures")
    parser.add_argument("--note", help=argparse.SUPPRESS)  # for a worker
    options = parser.parse_args()
    if options.note or options.calls:
        note = options.note or os.devnull
        print(json.dumps(work(options.seed, options.seconds, options.calls, note)))
        return 0
    found = run(options.seconds, options.seed)
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        with open(options.json, "w") as file:
            file.write(text + "\n")
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
