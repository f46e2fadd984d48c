"""Checks random calls on the GPU against the oracle: shape, stride, dtype, axis, where, scale, method, out.

python tests/support/gpu_random_cases.py --cases 2000 --seed 1

Prints one line for each wrong case, with the seed that repeats it alone, and how many were wrong.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter

import numpy as np
import oracle
from gpu_support import (
    DEVICE,
    DTYPES,
    STABLE_METHODS,
    Refused,
    complaint,
    compute_type,
    exact,
    generator,
    name,
    softmax,
    torch,
)

LENGTHS = (0, 1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100)
LONG = (127, 129, 255, 256, 257, 513, 1000, 1024, 1025, 2048, 2049, 4100, 8192, 8200, 32_768, 50_257, 131_073)
GUARD = 1234.0


def random_shape(rng, most):
    if rng.random() < 0.4:
        N = int(rng.choice(LONG))
        rows = int(2 ** rng.uniform(0, math.log2(max(most // N, 2))))
        shape = [N, rows] if rows % 3 or rows < 9 else [N, rows // 3, 3]
        return tuple(rng.permutation(shape).tolist())
    shape = [int(rng.choice(LENGTHS)) for _ in range(int(rng.integers(0, 9)))]
    while np.prod([max(n, 1) for n in shape]) > most:
        shape[int(np.argmax(shape))] //= 2
    return tuple(shape)


def random_axis(rng, ndim):
    kind = int(rng.integers(0, 10))
    if ndim == 0:
        return None if kind % 2 else -1
    if kind == 0:
        return None
    if kind == 1:
        return ()
    if kind in (2, 3):
        count = int(rng.integers(1, ndim + 1))
        return tuple(int(a) - (ndim if rng.random() < 0.5 else 0) for a in rng.permutation(ndim)[:count])
    return int(rng.integers(-ndim, ndim)) if kind < 7 else -1


def random_values(rng, shape, dtype, seed):
    x = torch.randn(shape, device=DEVICE, generator=generator(seed), dtype=torch.float32)
    offsets = [0, 0, 0, 1000, -1000, 30000, -30000]
    offsets += [] if dtype is torch.float16 else [1e5, -1e6, 1 << 22, -(1 << 22), 1e30]
    x = float(rng.choice([0.1, 1, 3, 10, 30])) * x.double() + float(rng.choice(offsets))
    for special in (-math.inf, math.inf, math.nan):
        if rng.random() < 0.07:
            x[torch.rand(shape, device=DEVICE, generator=generator(seed + 1)) < 0.1] = special
    return x.to(dtype)


def room_for(rng, shape, dtype, plain):
    """(memory, an array in it). The array has any order of dimensions, gaps, steps and an offset."""
    ndim = len(shape)
    order = list(range(ndim)) if plain or rng.random() < 0.5 else rng.permutation(ndim).tolist()
    steps = [1 if plain else int(rng.choice([1, 1, 1, 1, 2, 3])) for _ in range(ndim)]
    if math.prod(shape) > 100_000 or ndim > 6:
        steps = [1] * ndim
    gaps = [0 if plain or rng.random() < 0.6 or ndim > 6 else int(rng.integers(1, 9)) for _ in range(ndim)]
    lengths = [shape[i] * steps[i] + gaps[i] for i in order]
    offset = 0 if plain else int(rng.choice([0, 0, 1, 2, 3, 5, 8]))
    memory = torch.zeros(math.prod(lengths) + offset + 5, device=DEVICE, dtype=dtype)
    view = memory[offset : offset + math.prod(lengths)].view(lengths).permute(np.argsort(order).tolist())
    cuts = tuple(slice(0, n * step, step) for n, step in zip(shape, steps, strict=True))
    return memory, view[cuts]


def random_layout(rng, values, may_broadcast=True):
    x = room_for(rng, values.shape, values.dtype, rng.random() < 0.4)[1].copy_(values)
    if may_broadcast and x.ndim and x.numel() and rng.random() < 0.12:
        dim = int(rng.integers(x.ndim))
        x = x.narrow(dim, 0, 1).expand(x.shape)
    return x


def random_operand(rng, shape, fill):
    kept = tuple(1 if rng.random() < 0.3 else n for n in shape)
    kept = kept[int(rng.integers(0, len(kept) + 1)) if rng.random() < 0.2 else 0 :]
    return random_layout(rng, fill(kept), may_broadcast=False)


def random_out(rng, x, dtype):
    """(x, out, memory of out that must stay). out is None, new, the array itself, or overlaps it."""
    kind = int(rng.integers(0, 6))
    if kind == 0:
        memory, out = room_for(rng, x.shape, dtype, False)
        memory.fill_(GUARD)
        out.fill_(math.nan)
        return x, out, memory
    broadcast = any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride(), strict=True))
    if kind == 1 and not broadcast:
        return x, x, None
    if kind == 2 and x.numel():
        memory = torch.zeros(2 * x.numel() + 8, device=DEVICE, dtype=x.dtype)
        inside = memory[: x.numel()].view(x.shape).copy_(x)
        start = int(rng.integers(0, x.numel()))
        return inside, memory[start : start + x.numel()].view(x.shape), None
    return x, None, None


def is_wrong(seed, counts):
    """Makes one random call. Returns None if it is right, otherwise a description of the call."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[rng.integers(4)]
    result_dtype = DTYPES[rng.integers(4)] if rng.random() < 0.25 else dtype
    slow = torch.float64 in (dtype, result_dtype)  # the oracle is slow for these
    x = random_layout(rng, random_values(rng, random_shape(rng, 1 << 15 if slow else 1 << 19), dtype, seed))
    axis, method = random_axis(rng, x.ndim), str(rng.choice([*STABLE_METHODS, "invariant"]))
    x, out, memory = random_out(rng, x, result_dtype)
    keywords = {"method": method}
    if out is not None:
        keywords["out"], result_dtype = out, out.dtype
    elif result_dtype is not dtype:
        keywords["dtype"] = result_dtype
    if rng.random() < 0.35:
        allowed = float(rng.choice([0.7, 0.7, 0.1, 1.0]))
        keywords["where"] = random_operand(
            rng,
            x.shape,
            lambda shape: torch.rand(shape, device=DEVICE, generator=generator(seed + 2)) < allowed,
        )
    if rng.random() < 0.2:
        keywords["scale"] = float(rng.choice([0.5, 2.0, -1.0, 0.0, 0.1, rng.uniform(-2, 2)]))
    elif rng.random() < 0.15:
        axes, kind = oracle.axes_of(axis, x.ndim), DTYPES[rng.integers(4)]
        of = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        keywords["scale"] = random_operand(
            rng,
            of,
            lambda shape: (torch.rand(shape, device=DEVICE, generator=generator(seed + 3)) * 2.5 - 1).to(
                kind
            ),
        )
    compute = compute_type(dtype, result_dtype)
    expected = exact(x.clone(), axis, keywords.get("where"), keywords.get("scale", 1.0), compute)
    given = sorted(set(keywords) - {"method"})
    what = f"seed {seed}: {method} {name(dtype)} to {name(result_dtype)}"
    what += f" {tuple(x.shape)} strides {x.stride()} {axis=} {given}"
    try:
        y = softmax(x, axis, **keywords)
    except Refused:
        counts["refused"] += 1
        return None
    except Exception as error:
        if "CUDA error" in str(error):  # after it, nothing works in this process
            raise SystemExit(f"{what}: {error!r}") from error
        return f"{what}: {error!r}"
    counts[method] += 1
    if y.dtype != result_dtype or (out is not None and y is not out):
        return f"{what}: a result of {name(y.dtype)}"
    found = complaint(y.clone(), expected, compute)
    if memory is not None and found is None:
        out.fill_(GUARD)
        found = None if (memory == GUARD).all() else "wrote beside out"
    return None if found is None else f"{what}: {found}"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1, help="of the first case; the others follow it")
    given = parser.parse_args(arguments)
    wrong, counts = 0, Counter()
    for seed in range(given.seed, given.seed + given.cases):
        found = is_wrong(seed, counts)
        if found:
            wrong += 1
            print(found)
    print(", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))
    print(f"{given.cases} cases, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
