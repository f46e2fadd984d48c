"""Checks that the bits of a row depend only on its values, N, types, method and processor.

It computes the same rows one by one and together, along any axis, anywhere in memory, on any number of
threads.

python tests/support/bit_checks.py --cases 2000 --seed 1

Prints a line for each difference, with the seed that repeats this case.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from support import DTYPES, STABLE_METHODS, bits, lay_out, same_bits

import onsoftmax as ons

LENGTHS = [1, 2, 3, 5, 8, 11, 16, 17, 24, 31, 33, 64, 65, 100, 128, 130, 257, 520, 2049]
MERGING = ["auto", "invariant", "online", "split"]


def largest(**keywords):
    return lambda x, axis, **more: ons.softmax_topk(x, min(5, x.shape[axis]), axis, **keywords, **more)


def pairs(x, axis, **keywords):
    packed = ons.normalizer(x, axis, **keywords).packed
    return np.moveaxis(packed, -1, axis % x.ndim)


FUNCTIONS = {
    "softmax": (ons.softmax, [*STABLE_METHODS, "auto", "invariant"]),
    "log_softmax": (ons.log_softmax, [*STABLE_METHODS, "auto", "invariant"]),
    "logsumexp": (
        lambda x, axis, **more: ons.logsumexp(x, axis, keepdims=True, **more),
        [*STABLE_METHODS, "auto", "invariant"],
    ),
    "softmax_topk": (lambda *a, **b: largest()(*a, **b).values, MERGING),
    "log_softmax_topk": (lambda *a, **b: largest(log=True)(*a, **b).values, MERGING),
    "indices of softmax_topk": (lambda *a, **b: largest()(*a, **b).indices, MERGING),
    "normalizer": (pairs, ["auto", "invariant"]),
    "softmax_backward": (ons.softmax_backward, [*MERGING, "fused"]),
    "log_softmax_backward": (ons.log_softmax_backward, [*MERGING, "fused"]),
}


def values(rng, shape, dtype, cancels=True):
    """Few different values, so that roundings are ties, or many. Sometimes one value sends its row another
    way."""
    wide = np.float64 if dtype == np.float64 else np.float32
    with np.errstate(over="ignore"):
        kind = rng.integers(5)
        if kind == 2 and not cancels:
            kind = 3
        if kind == 0:
            x = rng.choice(rng.choice([-1.0, 0.0, -0.0, 1.0, 2.0, 0.5, -3.0, 1 / 3], 3), shape)
        elif kind == 1:
            x = rng.choice([-120.0, -60.0, 45.0, 41.0, 39.5, 0.0, -1.0, 88.0], shape)
        elif kind == 2:  # terms that cancel
            x = rng.choice([1.0, -1.0, 3.0, 1e4, -1e4, 7e8, -7e8, 1e17, -1e17, 1e30, -1e30], shape)
        else:
            x = rng.standard_normal(shape) * rng.choice([0.01, 1, 4, 30]) + rng.choice([0, 0, 700, -2e4])
        if rng.random() < 0.2:
            odd = rng.choice([np.inf, -np.inf, np.nan, 3e4, -3e4, 1e-40, 1e-310])
            x[rng.random(shape) < rng.choice([0.01, 0.3])] = odd
        return x.astype(wide).astype(dtype)


def operands(rng, name, shape, dtype):
    x = values(rng, shape, dtype)
    if not name.endswith("backward"):
        return [x]
    with np.errstate(all="ignore"):
        forward = ons.softmax if name == "softmax_backward" else ons.log_softmax
        output = forward(x) if rng.random() < 0.5 else values(rng, shape, dtype, False)
    return [values(rng, shape, dtype, False), output]


def difference(seed):
    """Compares some rows alone with the same rows among others. Returns None or the difference in bits."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(list(FUNCTIONS)))
    function, methods = FUNCTIONS[name]
    dtype, N = DTYPES[rng.integers(len(DTYPES))], int(rng.choice(LENGTHS))
    rows = int(rng.choice([2, 3, 5, 6, 9, 17, 40]))
    arrays = operands(rng, name, (rows, N), dtype)
    method = methods[rng.integers(len(methods))]
    options = {"method": str(method)}
    masks, scales = None, None
    if rng.random() < 0.3:
        masks = rng.random((rows, N)) < rng.choice([0.3, 0.9])
    if rng.random() < 0.3:
        scales = rng.choice([1.0, -1.0, 0.3, 1 / 7, 2.0, 1e3], (rows, 1))
    if name in ("softmax", "log_softmax") and rng.random() < 0.3:
        options["dtype"] = DTYPES[rng.integers(len(DTYPES))]

    def of(lay, some, axis=-1, threads=1):
        keywords = dict(options, num_threads=threads)
        if masks is not None:
            keywords["where"] = lay(masks[some])
        if scales is not None:
            keywords["scale"] = scales[some] if axis == -1 else scales[some].T
        result = function(*(lay(a[some]) for a in arrays), axis, **keywords)
        return np.ascontiguousarray(result if axis == -1 else np.moveaxis(result, 0, -1))

    every = np.arange(rows)
    expected = np.concatenate([of(np.array, every[i : i + 1]) for i in range(rows)])
    offset, step = int(rng.integers(1, 70)), int(rng.choice([2, 3, -1, -2]))
    repeated = np.tile(every, int(rng.choice([3, 20])))
    ways = {
        "all rows": (np.array, every),
        f"{len(repeated)} rows, 2 threads": (np.array, repeated, -1, 2),
        "columns": (lambda a: np.ascontiguousarray(a.T), every, 0),
        f"{len(repeated)} columns": (lambda a: np.ascontiguousarray(a.T), repeated, 0, 2),
        "columns in rows' memory": (lambda a: np.ascontiguousarray(a).T, every, 0),
        "rows in columns' memory": (np.asfortranarray, every),
        f"{offset} bytes off": (lambda a: lay_out(a, byte_offset=offset), every),
        f"steps of {step}": (lambda a: lay_out(a, steps=(1, step), byte_offset=offset), every),
    }
    for way, how in ways.items():
        got, wanted = of(*how), expected[how[1]]
        if not same_bits(got, wanted):
            differ = (bits(got) != bits(wanted)) & ~(np.isnan(got) & np.isnan(wanted))
            row, place = np.argwhere(differ)[0]
            call = (
                f"{name} {dtype} {(rows, N)} {options} where={masks is not None} scale={scales is not None}"
            )
            values_there = f"{got[row, place]!r}, not {wanted[row, place]!r}"
            return f"seed {seed}: {call}: {way} have at {row, place} {values_there}"
    return None


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1, help="of the first case; the others follow it")
    given = parser.parse_args(arguments)
    found = [*filter(None, map(difference, range(given.seed, given.seed + given.cases)))]
    print(*found, f"{given.cases} cases, {len(found)} differ", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
