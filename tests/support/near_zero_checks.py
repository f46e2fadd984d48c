"""Logarithms near 0 by method="safe", compared with mpmath. Run as a program, it checks this processor's
instruction set (ONSOFTMAX_ISA)."""

import mpmath
import numpy as np

import onsoftmax as ons


def exact_results(row):
    """(logsumexp, log_softmax) of a row of numbers, as mpmath's numbers."""
    with mpmath.workprec(400):
        x = [mpmath.mpf(float(v)) for v in row]
        m = max(x)
        equal = sum(v == m for v in x)
        others = sum((mpmath.exp(v - m) for v in x if v != m), mpmath.mpf(0))
        log = mpmath.log1p(equal - 1 + others)
        return m + log, [(v - m) - log for v in x]


def places(y, exact):
    """The distance of y from an exact number in units in the last place of y's type."""
    if not np.isfinite(y):
        return 0 if exact == float(y) else np.inf
    with mpmath.workprec(400):
        unit = np.spacing(abs(y.dtype.type(float(exact))))
        return float(abs(mpmath.mpf(float(y)) - exact) / float(unit))


def rows(rng, kind, N, dtype):
    """Rows whose results are near 0. The logsumexp of "cancelling" rows is not 0 only by the rounding of
    their elements."""
    if kind == "peaked":
        x = rng.standard_normal((3, N)) * 10 - rng.choice([20, 40, 700], (3, 1))
        x[:, rng.integers(N)] = rng.choice([0, 1e-20, -1e-3, 0.3])
    elif kind == "cancelling":
        x = rng.standard_normal((3, N)) * rng.choice([0.1, 1, 10], (3, 1))
        x -= np.log(np.exp(x).sum(1, keepdims=True))
    elif kind == "far":
        x = rng.standard_normal((3, N)) * 20 + 1e5
        x[:, rng.integers(N)] += 300
    else:
        x = rng.random((3, N)) * -750
        x[:, 0] = rng.choice([0, 1e-300, -1e-18])
    return x.astype(dtype)


KINDS = ("peaked", "cancelling", "far", "wide")
LENGTHS = (1, 2, 3, 7, 33, 300, 2049)
TYPES = (np.float64, np.float32)


def layouts(x):
    """(what, array, mask, axis) with the elements of x in rows, in columns, with gaps and with a mask."""
    yield "rows", x, None, 1
    yield "columns", np.ascontiguousarray(x.T), None, 0
    yield "gaps", np.repeat(x, 2, axis=1)[:, ::2], None, 1
    beside = np.full((len(x), 2 * x.shape[1]), 1e3, x.dtype)
    beside[:, ::2] = x
    mask = np.zeros(beside.shape, bool)
    mask[:, ::2] = True
    yield "mask", beside, mask, 1


def faults(logsumexp, log_softmax, seed=0):
    """Yields each result near 0 that is off by more than 4 units in the last place. A logsumexp must also be
    off by 1e-28. The functions take (array, axis, where)."""
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        for N in LENGTHS:
            for dtype in TYPES:
                x = rows(rng, kind, N, dtype)
                exact = [exact_results(row) for row in x]
                for what, array, where, axis in layouts(x):
                    values = logsumexp(array, axis, where)
                    y = log_softmax(array, axis, where)
                    y = y.T if what == "columns" else y[:, ::2] if what == "mask" else y
                    for i, (value, logs) in enumerate(exact):
                        given = f"{kind} {what} N = {N} {np.dtype(dtype)} seed {seed} row {i}"
                        if abs(value) < 0.5:
                            near = abs(float(values[i]) - float(value)) < 1e-28
                            if places(values[i], value) > 4 and not near:
                                yield f"{given}: logsumexp {values[i]!r} for {mpmath.nstr(value, 20)}"
                        largest = int(np.argmax(x[i]))
                        for j in {0, N - 1, largest} if logs[largest] > -0.5 else ():
                            if places(y[i, j], logs[j]) > 4:
                                yield f"{given}: log_softmax {j} {y[i, j]!r} for {mpmath.nstr(logs[j], 20)}"


if __name__ == "__main__":
    found = list(
        faults(
            lambda x, axis, where: ons.logsumexp(x, axis, where=where, method="safe"),
            lambda x, axis, where: ons.log_softmax(x, axis, where=where, method="safe"),
        )
    )
    assert not found, f"{len(found)}: " + "\n".join(found[:10])
