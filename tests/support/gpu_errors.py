"""The largest errors of the exponentials on a GPU, and the largest error of a result that a search finds.
docs/how-it-works.md adds up how large an error may be.

    python tests/support/gpu_errors.py SECONDS    searches this long for each method, and prints its finds
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time

import numpy as np
from cubin import tool
from gpu_support import DEVICE, Refused, softmax, torch

HERE = os.path.dirname(os.path.abspath(__file__))

METHODS = ("fused_warp", "fused_block", "cluster", "grid", "online", "online_block", "split", "safe")


def build(folder):
    """Builds gpu_errors.cu as a library for this machine's GPU."""
    library = os.path.join(folder, "gpu_errors.so")
    source = os.path.join(HERE, "gpu_errors.cu")
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    flags = ["-O2", "-std=c++17", f"-arch={arch}", "-shared", "-Xcompiler", "-fPIC"]
    subprocess.run([tool("nvcc"), *flags, "-o", library, source], check=True)
    return ctypes.CDLL(library)


def exponentials(library, x, m):
    """(e^x * 2^-c, not lifted, as the GPU computes it for a row with the maximum m; c)"""
    e, c = torch.empty_like(x), torch.empty(1, device=DEVICE, dtype=torch.float64)
    real, call, lift = {
        torch.float32: (ctypes.c_float, library.exponentials_of_floats, 64),
        torch.float64: (ctypes.c_double, library.exponentials_of_doubles, 128),
    }[x.dtype]
    torch.cuda.synchronize()
    addresses = [ctypes.c_void_p(a.data_ptr()) for a in (e, c, x)]
    assert call(*addresses, ctypes.c_int64(x.numel()), real(m)) == 0
    return e.double() * 2.0**-lift, c.item()


LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42fefap-1"), float.fromhex("0x1.cf79abc9e3b3ap-40")


def exact(x, c):
    """e^x * 2^-c in float64, for x of float32."""
    return torch.exp((x.double() - c * LN2_HIGH) - c * LN2_LOW)


def spread_of_floats(library):
    """The spread of the errors over all float32, each relative to its own c and the next one, in eps."""
    found = torch.tensor([1 << 62, 0], device=DEVICE)
    torch.cuda.synchronize()
    assert library.range_of_all_floats(ctypes.c_void_p(found.data_ptr())) == 0
    least, most = found.view(torch.float64).tolist()
    return (most / least - 1) * 2.0**23, least, most


def spread_of_doubles(library, count, seed=0):
    """The spread of the errors over random float64, in eps. NumPy's longdouble resolves a tenth of an eps."""
    rng, least, most = np.random.default_rng(seed), np.inf, 0
    high, low = np.longdouble(LN2_HIGH), np.longdouble(LN2_LOW)
    for _ in range(count):
        top = np.ldexp(rng.uniform(-1, 1), rng.integers(-4, 21))
        x = top - 4 * rng.random(1 << 18)
        e, c = exponentials(library, torch.from_numpy(x).to(DEVICE), top)
        quotient = e.cpu().numpy() / np.exp((x - c * high) - c * low)
        least, most = min(least, quotient.min()), max(most, quotient.max())
    return float((most / least - 1) * 2.0**52)


# ------- the search -------

ROWS, KEPT = 2048, 256


def candidates(library, rng):
    """Two lists of (x, exact e^x) from a small range: exponentials that err most in one direction, and in the
    other."""
    top, reach = rng.uniform(-50, 50), rng.uniform(0.2, 3)
    x = (top - reach * torch.rand(1 << 20, device=DEVICE, dtype=torch.float64)).float()
    e, c = exponentials(library, x, x.max().item())
    right = exact(x, c)
    order = (e / right).argsort()
    return [(x[of], right[of]) for of in (order[:KEPT], order[-KEPT:])]


def errors(x, right, method, columns):
    """The errors of element 0 of every row, in eps."""
    y = softmax(x.T.contiguous(), 0, method=method)[0] if columns else softmax(x, method=method)[:, 0]
    return (y.double() * right.sum(1) / right[:, 0] - 1).abs() * 2.0**23


def climb(library, rng, N, method, columns, steps):
    """The largest error of rows whose element 0 errs in one direction and whose other elements err in the
    other. A step changes neighbours, or elements a power of two apart. It stays if the error grows."""
    sides = candidates(library, rng)
    if rng.random() < 0.5:
        sides.reverse()

    def of_side(side, *shape):
        which = torch.randint(KEPT, shape, device=DEVICE)
        return [a[which] for a in sides[side]]

    (x, right), (first, of_first) = of_side(1, ROWS, N), of_side(0, ROWS)
    if rng.random() < 0.5:  # begin with equal elements
        x, right = x[:, :1].repeat(1, N), right[:, :1].repeat(1, N)
    x[:, 0], right[:, 0] = first, of_first
    largest = errors(x, right, method, columns)
    place = torch.arange(N, device=DEVICE)
    for _ in range(steps):
        period = 2 ** torch.randint(0, 12, (ROWS, 1), device=DEVICE)
        length = 2 ** torch.randint(0, 8, (ROWS, 1), device=DEVICE)
        begin = torch.randint(N, (ROWS, 1), device=DEVICE)
        changed = (place - begin) % period < length.clamp(max=period)
        changed &= place > 0
        new_x, new_right = (a[:, None] for a in of_side(1, ROWS))
        next_x, next_right = torch.where(changed, new_x, x), torch.where(changed, new_right, right)
        error = errors(next_x, next_right, method, columns)
        better = error >= largest
        x[better], right[better], largest[better] = next_x[better], next_right[better], error[better]
    return largest.max().item()


def search(library, seconds, method, seed=0):
    """(largest error, N, columns, number of climbs)"""
    rng, end, found, climbs = np.random.default_rng(seed), time.monotonic() + seconds, (0.0, 0, False), 0
    torch.manual_seed(seed)
    while climbs < 2 or time.monotonic() < end:
        N = int(rng.choice([2, 5, 17, 33, 65, 129, 257, 513, 1024, 1025, 2049, 4097, 8192]))
        columns = bool(rng.random() < 0.3)
        try:
            found = max(found, (climb(library, rng, N, method, columns, 60), N, columns))
        except Refused:  # the row is too long for the method
            continue
        climbs += 1
    return (*found, climbs)


def main(seconds):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        library = build(folder)
    found, least, most = spread_of_floats(library)
    print(f"float32: exponentials within {found:.4f} eps of each other, {least.hex()} to {most.hex()}")
    print(f"float64: exponentials within {spread_of_doubles(library, 100):.4f} eps of each other")
    for method in METHODS:
        error, N, columns, climbs = search(library, seconds, method)
        print(
            f"{method}: {error:.3f} eps, N = {N}, {'columns' if columns else 'rows'}, {climbs} climbs",
            flush=True,
        )


if __name__ == "__main__":
    main(float(sys.argv[1]))
