"""Fit the constants of csrc/cpu/kernel/exponential.h: p(r) ~ e^r for |r| <= ln(2) / (2 * steps).

    python benchmarks/fit_exp.py [--tries N]

float64: whole powers of two and degree 11. p(0) = 1 is fixed, and a linear program minimises the largest
relative error. Each coefficient is rounded in turn, from the constant term up. After each rounding the higher
coefficients are fitted again, so that they cancel its error. The same for sixteenths and for 32nds of a power
of two from a table, with p(r) = 1 + r + ... (the method `exact`).

float32: eighths of a power of two from a table, and p(r) = 1 + r + square * r^2 + cubic * r^3. A factor that
all exponentials share cancels in a quotient. So the program minimises the spread of the relative errors, from
the least to the largest. One factor of p is free, and one factor of the table, `one`. The program tries N
random values of `one`. An entry's worst error is its own rounding error plus the last rounding, which is
worst if the entry's products lie just above a power of two. The value whose worst entry is best wins. Then
the program moves the coefficients by a few units while the spread falls, in the arithmetic of the code. The
constants in the code come from a longer search. tests/core/errors.c finds the spread over all numbers.

Needs mpmath and SciPy.
"""

import argparse

import mpmath as mp
import numpy as np
from scipy.optimize import linprog

mp.mp.dps = 60
EPS = float(np.finfo(np.float32).eps)
STEPS = 8  # entries of float32's table


def relative_error(coefficients, r):
    return sum(c * r**k for k, c in coefficients.items()) / mp.e**r - 1


def minimax(known, free, reach):
    """`known`, plus coefficients of the degrees in `free` that make the largest relative error smallest."""
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


def reach_of(steps):
    # a little beyond the half: the product that n = rint(x * log2(e) * steps) rounds has an error
    return mp.log(2) / (2 * steps) * mp.mpf("1.01")


def fit_double(degree=11, steps=1, bits_of_high_part=38):
    reach = reach_of(steps)
    known = {0: mp.mpf(1)} if steps == 1 else {0: mp.mpf(1), 1: mp.mpf(1)}
    for k in range(len(known), degree + 1):
        best = minimax(known, list(range(k, degree + 1)), reach)
        known[k] = mp.mpf(float(mp.nstr(best[k], 40)))
    error = max(abs(relative_error(known, reach * (mp.mpf(i) / 500 - 1))) for i in range(1001))
    print(f"float64: degree {degree}, largest error {float(error / np.finfo(float).eps):.4f} eps")
    print_step(steps, bits_of_high_part, np.float64)
    for k in range(degree + 1):
        print(f"  c{k} = {float(known[k]).hex()}")


def print_step(steps, bits_of_high_part, dtype):
    scale = mp.mpf(2) ** bits_of_high_part
    step = mp.log(2) / steps
    high = mp.nint(step * scale) / scale
    print(f"  ln2 / {steps} = {float(high).hex()} + {float(dtype(mp.nstr(step - high, 40))).hex()}")


def square_and_cubic():
    """The coefficients of the p with a multiple nearest to e^r. The factor multiplies 1 + r too."""
    r = float(reach_of(STEPS)) * np.cos(np.pi * (np.arange(2000) + 0.5) / 2000)
    # unknowns: changes of the factor and of its products with the coefficients, from 1, 1/2 and 1/6; then the
    # bound
    basis = np.stack([1 + r, r**2, r**3], 1) * np.exp(-r)[:, None]
    size = np.abs(basis).max(0)
    rest = 1 - basis @ [1, 1 / 2, 1 / 6]
    unit = np.abs(rest).max()
    A, b, ones = basis / size, rest / unit, np.ones((len(r), 1))
    solved = linprog(
        [0, 0, 0, 1],
        A_ub=np.block([[A, -ones], [-A, -ones]]),
        b_ub=np.concatenate([b, -b]),
        bounds=[(None, None)] * 3 + [(0, None)],
    )
    factor, square, cubic = np.array([1, 1 / 2, 1 / 6]) + solved.x[:3] * unit / size
    print(f"float32: p within {solved.x[3] * unit / EPS:.3f} eps of a multiple of e^r")
    return np.float32(square / factor), np.float32(cubic / factor)


def best_one(tries):
    """The random factor from 1 to 2^(1/8) whose table is best. The first candidate is 1.0, with an infinite
    error."""
    rng, best = np.random.default_rng(1), (np.inf, 1.0)
    for _ in range(max(1, tries // 10_000)):
        one = 2 ** (rng.random(10_000) / STEPS)
        exact = one[:, None] * 2 ** (np.arange(STEPS) / STEPS)
        ulp = np.where(exact >= 2, 2, 1) * EPS
        own = np.abs(np.rint(exact / ulp) * ulp / exact - 1) / EPS
        least = exact * 2 ** (-0.5 / STEPS)  # an entry's least product; a power of two if they reach one
        reaches = np.floor(np.log2(least)) < np.floor(np.log2(least * 2 ** (1 / STEPS)))
        above = np.where(reaches, 2 ** np.ceil(np.log2(least)), least)
        last = 0.5 * 2 ** np.floor(np.log2(above)) / above
        worst = (own + last).max(1)
        best = min(best, (float(worst.min()), float(one[worst.argmin()])))
    return best[1]


def spread(one, square, cubic, n, r, exact):
    """The spread of the relative errors in eps. e = fma(T, fma(r * r, fma(cubic, r, square), r), T) in
    float32."""
    wide, single = np.float64, np.float32
    table = (one * 2 ** (np.arange(STEPS) / STEPS)).astype(single)
    p = (wide(cubic) * r + square).astype(single)
    p = (wide(r * r) * p + r).astype(single)
    T = table[n % STEPS]
    e = (wide(T) * p + T).astype(single)
    quotient = e / exact
    return (quotient.max() / quotient.min() - 1) / EPS


def fit_single(tries):
    square, cubic = square_and_cubic()
    print_step(STEPS, 27, np.float32)
    rng = np.random.default_rng(2)
    x = (rng.random(1_000_000) * 2 - 1).astype(np.float32) * 10
    n = np.rint(x * np.float64(STEPS / np.log(2))).astype(int)
    r = (x - n * (np.log(2) / STEPS)).astype(np.float32)
    exact = np.exp(x.astype(np.float64)) / 2.0 ** (n // STEPS)
    for one in (1.0, best_one(tries)):
        best = spread(one, square, cubic, n, r, exact), square, cubic
        for _ in range(60):
            moves = rng.integers(-8, 9), rng.integers(-64, 65)
            moved = [c + np.float32(np.spacing(c) * k) for c, k in zip(best[1:], moves, strict=True)]
            best = min(best, (spread(one, *moved, n, r, exact), *moved))
        found, a, b = best
        print(f"  one = {one.hex()}: errors within {found:.3f} eps of each other")
        print(f"    square = {float(a).hex()}, cubic = {float(b).hex()}")
        print("    the table, less what the shift adds:")
        for k in range(STEPS):
            bits = int(np.float32(one * 2 ** (k / STEPS)).view(np.uint32))
            print(f"    {bits - k * (1 << 23) // STEPS:#x}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--tries", type=int, default=10_000_000)
    fit_single(parser.parse_args().tries)
    fit_double()
    fit_double(6, 16, 33)
    fit_double(5, 32, 34)
    fit_double(6, 32, 34)
