"""Checks random calls against the oracle: shape, stride, dtype, axis, where, scale, method and out.

python tests/support/random_cases.py --cases 20000 --seed 1

Prints one line for each wrong case, with the seed that repeats it alone, and how many were wrong.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import oracle
from support import BFLOAT16, DTYPES, STABLE_METHODS, lay_out

import onsoftmax as ons

INPUT_DTYPES = [*DTYPES, np.dtype(np.float32), np.dtype(np.int32), np.dtype(bool)]
LENGTHS = [0, 1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 64, 65]
LONG = [127, 129, 255, 256, 257, 513, 2047, 2048, 2049, 4100]


def random_shape(rng):
    if rng.random() < 0.15:
        N = int(rng.choice(LONG))
        shape = [N, int(rng.integers(1, 20 if N < 400 else 3))][: rng.integers(1, 3)]
        return tuple(rng.permutation(shape).tolist())
    ndim = int(rng.integers(0, 9))
    shape = [int(rng.choice(LENGTHS)) for _ in range(ndim)]
    while np.prod([max(n, 1) for n in shape]) > 4000:  # a length of 0 counts as 1: a mask may lack it
        shape[int(np.argmax(shape))] //= 2
    return tuple(shape)


def random_axis(rng, ndim):
    kind = rng.integers(0, 8)
    if kind == 0 or ndim == 0:
        return None if kind % 2 == 0 else -1
    if kind == 1:
        return ()
    if kind in (2, 3):
        count = int(rng.integers(1, ndim + 1))
        return tuple(int(a) - (ndim if rng.random() < 0.5 else 0) for a in rng.permutation(ndim)[:count])
    return int(rng.integers(-ndim, ndim))


def random_values(rng, shape, dtype):
    if dtype.kind in "ib":
        return rng.integers(0, 2 if dtype.kind == "b" else 60, shape).astype(dtype)
    spread = rng.choice([0.1, 1, 3, 10, 30])
    offset = rng.choice([0, 0, 0, 1000, -1000, 30000, -30000])
    x = (spread * rng.standard_normal(shape) + offset).astype(np.float32 if dtype.itemsize == 2 else dtype)
    for special in (-np.inf, np.inf, np.nan):
        if rng.random() < 0.07:
            x = np.where(rng.random(shape) < 0.1, np.array(special, x.dtype), x)
    return x.astype(dtype)


def random_layout(rng, values, may_broadcast=True):
    """The values at a random place in memory. Some may be repeated."""
    ndim = values.ndim
    swapped = values.dtype.kind in "fi" and values.dtype != BFLOAT16 and may_broadcast and rng.random() < 0.1
    steps = [int(rng.choice([1, 1, 1, -1, 2, -2, 3])) for _ in range(ndim)]
    permutation = tuple(rng.permutation(ndim)) if rng.random() < 0.7 else tuple(range(ndim))
    x = lay_out(values, permutation, steps, int(rng.choice([0, 0, 1, 3])), swapped)
    if may_broadcast and ndim and values.size and rng.random() < 0.15:
        dim = int(rng.integers(ndim))
        x = np.broadcast_to(x[(slice(None),) * dim + (slice(0, 1),)], x.shape)
    return x


def random_operand(rng, shape, fill):
    kept = tuple(1 if rng.random() < 0.3 else n for n in shape)
    kept = kept[int(rng.integers(0, len(kept) + 1)) if rng.random() < 0.2 else 0 :]
    return random_layout(rng, fill(kept), may_broadcast=False)


def random_out(rng, x, dtype):
    """(x, out). out is None, new, the array itself, or overlaps it."""
    kind = rng.integers(0, 6)
    if kind == 0:
        return x, random_layout(rng, np.zeros(x.shape, dtype), may_broadcast=False)
    if x.dtype in DTYPES and x.dtype.isnative and x.flags.writeable and x.size:
        if kind == 1:
            return x, x
        if kind == 2:
            memory = np.zeros(2 * x.size + 8, x.dtype)
            inside = memory[: x.size].reshape(x.shape)
            inside[...] = x
            start = int(rng.integers(0, x.size))
            return inside, memory[start : start + x.size].reshape(x.shape)
    return x, None


def is_wrong(seed):
    """Makes one random call. Returns None if it is right, otherwise a description of the call."""
    rng = np.random.default_rng(seed)
    dtype = INPUT_DTYPES[rng.integers(len(INPUT_DTYPES))]
    values = random_values(rng, random_shape(rng), dtype)
    x = random_layout(rng, values)
    axis, method = random_axis(rng, x.ndim), str(rng.choice([*STABLE_METHODS, "auto", "invariant"]))
    keywords = {"method": method, "num_threads": int(rng.integers(1, 4))}
    result_dtype = x.dtype.newbyteorder("=") if dtype.kind not in "ib" else np.dtype(float)
    if rng.random() < 0.25:
        keywords["dtype"] = result_dtype = DTYPES[rng.integers(len(DTYPES))]
    x, out = random_out(rng, x, result_dtype)
    if out is not None:
        keywords["out"] = out
        if out.dtype != result_dtype:
            del keywords["dtype"]
        result_dtype = out.dtype
    if rng.random() < 0.35:
        keywords["where"] = random_operand(rng, x.shape, lambda shape: rng.random(shape) < 0.7)
    if rng.random() < 0.2:
        keywords["scale"] = float(rng.choice([0.5, 2.0, -1.0, 0.0, 0.1, rng.uniform(-2, 2)]))
    elif rng.random() < 0.15:
        axes = oracle.axes_of(axis, x.ndim)
        of = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        keywords["scale"] = random_operand(rng, of, lambda shape: rng.uniform(-1, 1.5, shape))
    copied = x.astype(float) if dtype.kind in "ib" else x.astype(x.dtype.newbyteorder("="))
    copied = copied.copy()
    compute = oracle.compute_type(copied.dtype, result_dtype)
    exact = oracle.softmax(copied, axis, keywords.get("where"), keywords.get("scale", 1.0), compute)
    what = f"seed {seed}: {x.dtype} {x.shape} strides {x.strides} axis={axis} {sorted(keywords)} {method}"
    try:
        y = ons.softmax(x, axis, **keywords)
    except Exception as error:
        return f"{what}: {error!r}"
    if y.dtype != result_dtype or y.shape != x.shape or (out is not None and y is not out):
        return f"{what}: {y.dtype} {y.shape}"
    wrong = oracle.wrong_places(y, exact, compute)
    return f"{what}: {wrong.sum()} wrong elements" if wrong.any() else None


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1, help="of the first case; the others follow it")
    given = parser.parse_args(arguments)
    wrong = 0
    for seed in range(given.seed, given.seed + given.cases):
        found = is_wrong(seed)
        if found:
            wrong += 1
            print(found)
    print(f"{given.cases} cases, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
