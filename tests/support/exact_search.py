"""Compares method="exact" with long double over many random elements, and with mpmath where long double
cannot decide. Prints what it found; exits with 1 if a result is wrong.

python exact_search.py ELEMENTS [SEED]
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


def main(elements, seed):
    rng = np.random.default_rng(seed)
    types = [t for t in FRACTION if t]
    done = undecided = wrong = 0
    while done < elements:
        dtype = types[0] if rng.random() < 0.6 else types[rng.integers(len(types))]
        n = int(2 ** rng.uniform(1, 17))
        rows = max(1, 2**18 // n)
        spread, offset = 10 ** rng.uniform(-1, 1.5), rng.choice([0, 0, 10, -1000, 1e6])
        x = (spread * rng.standard_normal((rows, n)) + (offset if dtype == np.float32 else 0)).astype(dtype)
        wide = x.astype(np.longdouble)
        u = wide - wide.max(1, keepdims=True)
        e = np.exp(u)
        d = e.sum(1, keepdims=True)
        log = np.where(d < 2, np.log1p(d - 1), np.log(d))
        for number, (function, of_it) in enumerate(((ons.softmax, e / d), (ons.log_softmax, u - log))):
            bad, close = far_from(function(x, method="exact"), of_it, dtype)
            close &= of_it != 0
            if number == 1:
                close &= of_it < -0.25  # nearer to 0 long double has too few digits
                bad &= of_it < -0.25
            undecided += int(close.sum())
            for row in np.flatnonzero((bad | close).any(1))[:3]:
                y = function(x[row], method="exact").astype(float).tolist()
                places = np.flatnonzero((bad | close)[row])
                wanted = exact(x[row], dtype)[number]
                for place in places:
                    if y[place] != wanted[place]:
                        wrong += 1
                        print("wrong", function.__name__, np.dtype(dtype), n, place, y[place], wanted[place])
            done += x.size
    print(f"{done} elements, {undecided} decided by mpmath, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main(int(float(sys.argv[1])), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
