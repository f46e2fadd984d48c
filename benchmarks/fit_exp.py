"""Fit the polynomials of csrc/cpu/exponential_tmpl.h: p(r) ~ e^r for |r| <= ln(2) / (2 * parts).

    python benchmarks/fit_exp.py

prints, for each type, ln(2) / parts in two parts and the coefficients, lowest degree first; for float32 also
the table of 2^(k / parts). p(0) = 1 is held and the largest relative error minimised by a linear program.
Each coefficient is rounded to the type in turn, from the constant term up, and those above it are fitted
again, so that their roundings cancel. Needs mpmath and SciPy.
"""

import mpmath as mp
import numpy as np
from scipy.optimize import linprog

mp.mp.dps = 60


def relative_error(coefficients, r):
    return sum(c * r**k for k, c in coefficients.items()) / mp.e**r - 1


def minimax(known, free, reach):
    """`known`, and the coefficients of degrees `free` that make the largest relative error smallest."""
    nodes = [reach * mp.cos(mp.pi * (i + 0.5) / 400) for i in range(400)]
    start = {**{k: 1 / mp.factorial(k) for k in free}, **known}
    errors = [relative_error(start, r) for r in nodes]
    unit = max(abs(e) for e in errors)
    # unknowns: each free coefficient's correction in units of `unit`, then the bound t on |error|
    basis = np.array([[float((r / reach) ** k / mp.e**r) for k in free] for r in nodes])
    target = np.array([float(e / unit) for e in errors])
    ones = np.ones((len(nodes), 1))
    solved = linprog(
        [0.0] * len(free) + [1.0],
        A_ub=np.block([[basis, -ones], [-basis, -ones]]),
        b_ub=np.concatenate([-target, target]),
        bounds=[(None, None)] * len(free) + [(0, None)],
    )
    found = zip(free, solved.x[:-1], strict=True)
    return {**start, **{k: start[k] + mp.mpf(v) * unit / reach**k for k, v in found}}


def fit(dtype, degree, parts, bits_of_high_part, held):
    # a little beyond the half: n = rint(x * log2(e) * parts) errs by the rounding of the product
    reach = mp.log(2) / (2 * parts) * mp.mpf("1.01")
    known = {k: mp.mpf(1) for k in range(held)}
    for k in range(held, degree + 1):
        best = minimax(known, list(range(k, degree + 1)), reach)
        known[k] = mp.mpf(float(dtype(mp.nstr(best[k], 40))))
    error = max(abs(relative_error(known, reach * (mp.mpf(i) / 500 - 1))) for i in range(1001))
    scale = mp.mpf(2) ** bits_of_high_part
    step = mp.log(2) / parts
    high = mp.nint(step * scale) / scale
    print(f"{dtype.__name__}: degree {degree}, largest error {float(error / np.finfo(dtype).eps):.3f} eps")
    print(f"  ln2 / {parts} = {float(high).hex()} + {float(dtype(mp.nstr(step - high, 40))).hex()}")
    print(f"  log2(e) * {parts} = {float(dtype(mp.nstr(parts / mp.log(2), 40))).hex()}")
    for k in range(degree + 1):
        print(f"  c{k} = {float(known[k]).hex()}")


def table(parts):
    """Bits of 2^(k / parts) less k at their fraction's top, which the exponential's shift adds back."""
    for k in range(parts):
        bits = int(np.float32(mp.nstr(mp.mpf(2) ** (mp.mpf(k) / parts), 40)).view(np.uint32))
        print(f"  {bits - k * (1 << 23) // parts:#x}")


if __name__ == "__main__":
    fit(np.float32, 3, 8, 27, held=1)
    table(8)
    fit(np.float32, 2, 32, 29, held=1)
    table(32)
    fit(np.float64, 11, 1, 38, held=1)
