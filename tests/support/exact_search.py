"""Compares method="exact" with long double over many random elements. Where long double cannot decide, mpmath
decides in some of the rows. Prints what it found; exits with 1 if a result is wrong.

python exact_search.py ELEMENTS [SEED] [cuda]
"""

from __future__ import annotations

import sys

import numpy as np
from exact_checks import exact
from support import BFLOAT16

import onsoftmax as ons

FRACTION = {np.float32: 23, np.float16: 10, BFLOAT16: 7}
LEAST = {np.float32: -149, np.float16: -24, BFLOAT16: -133}
SURE = 2.0**-36  # of a unit in the last place: long double is nearer than that to the exact result


def far_from(results, exact, dtype):
    """Whether each result is wrong, and where long double cannot decide."""
    unit = np.ldexp(np.longdouble(1), np.maximum(np.frexp(exact)[1] - 1 - FRACTION[dtype], LEAST[dtype]))
    error = abs(results.astype(np.longdouble) - exact) / unit
    return error > 0.5 + SURE, abs(error - 0.5) <= SURE


def calls(name, device):
    """A function of onsoftmax that takes and gives NumPy's arrays, and computes on the device."""

    def call(x):
        if device == "cpu":
            return getattr(ons, name)(x, method="exact")
        import torch

        bits = torch.from_numpy(x.view(f"i{x.itemsize}")).to(device)
        y = getattr(ons, name)(bits.view(getattr(torch, x.dtype.name)), method="exact")
        return y.view(bits.dtype).cpu().numpy().view(x.dtype)

    return call


def main(elements, seed, device):
    rng = np.random.default_rng(seed)
    types = [t for t in FRACTION if t]
    functions = [calls(name, device) for name in ("softmax", "log_softmax", "logsumexp")]
    done = undecided = decided = wrong = 0
    while done < elements:
        dtype = types[0] if rng.random() < 0.6 else types[rng.integers(len(types))]
        n = int(2 ** rng.uniform(1, 17))
        rows = max(1, 2**18 // n)
        spread, offset = 10 ** rng.uniform(-1, 1.5), rng.choice([0, 0, 10, -1000, 1e6])
        x = (spread * rng.standard_normal((rows, n)) + (offset if dtype == np.float32 else 0)).astype(dtype)
        wide = x.astype(np.longdouble)
        m = wide.max(1, keepdims=True)
        e = np.exp(wide - m)
        d = e.sum(1, keepdims=True)
        log = np.where(d < 2, np.log1p(d - 1), np.log(d))
        for number, of_it in enumerate((e / d, wide - m - log, m + log)):
            y = functions[number](x).reshape(of_it.shape)
            bad, close = far_from(y, of_it, dtype)
            # near 0 a logarithm of long double has too few digits
            decides = of_it != 0 if number == 0 else abs(of_it) > 0.25
            bad &= decides
            close &= decides
            undecided += int(close.sum())
            wrong += int(bad.sum())
            # mpmath decides in few rows, and says what is right where a result is wrong
            rows_to_check = [*np.flatnonzero(bad.any(1))[:3], *np.flatnonzero(close.any(1))[:3]]
            for row in rows_to_check:
                found = np.atleast_1d(functions[number](x[row])).astype(float)
                wanted = np.atleast_1d(exact(x[row], dtype)[number])
                decided += int(close[row].sum())
                for place in np.flatnonzero((bad | close)[row]):
                    if found[place] != wanted[place]:
                        wrong += not bad[row, place]
                        print("wrong", number, np.dtype(dtype), n, place, found[place], wanted[place])
        done += x.size
    print(f"{done} elements, {undecided} undecided, {decided} of them decided by mpmath, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    _, elements, seed, device, *_ = *sys.argv, *("1", "cpu")[len(sys.argv) - 2 :]
    sys.exit(main(int(float(elements)), int(seed), device))
