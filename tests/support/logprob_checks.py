"""The exact log-probabilities, entropies and gradients of logprob, and a comparison with them, for tests on
the CPU and on a GPU. As a program it checks random calls on the instruction set of ONSOFTMAX_ISA."""

from typing import NamedTuple

import numpy as np
from loss_checks import assert_near

from onsoftmax import _core


class Expected(NamedTuple):
    """What logprob gives, and the size of the largest term of the log-probabilities and the entropies."""

    logprob: np.ndarray
    entropy: np.ndarray
    lse: np.ndarray
    argmax: np.ndarray
    rank: np.ndarray
    logprob_size: np.ndarray
    entropy_size: np.ndarray


def _statistics(x):
    with np.errstate(all="ignore"):
        m = x.max(-1, keepdims=True)
        e = np.exp(x - m)
        d = e.sum(-1, keepdims=True)
        apart = np.where(x == -np.inf, 0, x - m)
        return m, e / d, np.log(d), apart, (e / d * apart).sum(-1, keepdims=True)


def expected(x, index):
    """For rows along the last axis, in longdouble. index has the elements of each row in its last
    dimension."""
    x = np.asarray(x, np.longdouble)
    m, _, log_d, _, mean = _statistics(x)
    chosen = np.take_along_axis(x, index, -1)
    with np.errstate(all="ignore"):
        size = np.maximum(1, np.abs(m - chosen) + log_d)
        is_nan = np.isnan(m) | np.isinf(m)
        return Expected(
            np.where(is_nan, np.nan, (chosen - m) - log_d),
            np.where(is_nan, np.nan, log_d - mean)[..., 0],
            np.where(np.isinf(m), m, m + log_d)[..., 0],
            np.where(np.isnan(x), np.inf, x).argmax(-1) if not np.isnan(x).any() else np.isnan(x).argmax(-1),
            (x > chosen[..., :1]).sum(-1),
            size,
            np.maximum(1, log_d - mean)[..., 0],
        )


def gradient(x, index, of_logprob, of_entropy, of_lse):
    """The gradient of the logits, and the size of its largest term."""
    x = np.asarray(x, np.longdouble)
    _, p, _, apart, mean = _statistics(x)
    all_of_row = of_lse[..., None] - of_logprob.sum(-1, keepdims=True)
    slope = of_entropy[..., None]
    with np.errstate(all="ignore"):
        made = p * (all_of_row - slope * (apart - mean))
        size = np.maximum(p, 2.0**-126) * (  # a smaller p has fewer digits
            np.abs(of_lse[..., None])
            + np.abs(of_logprob).sum(-1, keepdims=True)
            + np.abs(slope) * (np.abs(apart) + np.abs(mean))
        )
    for k in range(index.shape[-1]):
        at, more = index[..., k : k + 1], of_logprob[..., k : k + 1]
        np.put_along_axis(made, at, np.take_along_axis(made, at, -1) + more, -1)
        np.put_along_axis(size, at, np.take_along_axis(size, at, -1) + np.abs(more), -1)
    return made, size


def check(x, index, found, dtype):
    """found: logprob, entropy, lse, argmax and rank as NumPy arrays. rank may be None."""
    eps = 2.0**-52 if dtype == "float64" else 2.0**-23
    wanted = expected(x, index)
    assert_near(np.reshape(found[0], index.shape), wanted.logprob, wanted.logprob_size, eps)
    assert_near(found[1], wanted.entropy, wanted.entropy_size, eps)
    assert_near(found[2], wanted.lse, np.maximum(1, np.abs(wanted.lse)), eps)
    assert np.array_equal(found[3], wanted.argmax), (found[3], wanted.argmax)
    assert found[4] is None or np.array_equal(np.reshape(found[4], wanted.rank.shape), wanted.rank)


def check_random(ons, rng, dtype, N, rows):
    """One random call on NumPy arrays of any layout, and its gradient."""
    name = np.dtype(dtype).name
    offset = float(rng.choice([0.0, 0.0, 50.0, -1000.0]))
    x = (rng.standard_normal((*rows, N)) * rng.choice([0.1, 3.0, 30.0]) + offset).astype(dtype)
    if N > 2 and rng.random() < 0.3:
        x[..., rng.integers(0, N)] = -np.inf
    several = int(rng.choice([0, 0, 1, 3]))
    index = rng.integers(0, N, (*rows, several or 1)).astype(rng.choice(["int32", "int64"]))
    given_index = index if several else index[..., 0]
    axis = int(rng.integers(0, x.ndim))
    given = np.moveaxis(x, -1, axis)
    given = given if rng.random() < 0.5 else given.copy()
    found = ons.logprob(given, given_index, axis, entropy=True, lse=True, argmax=True, rank=several < 2)
    check(x, index, found[:5], name)
    real = np.float64 if name == "float64" else np.float32
    given_gradients = [rng.standard_normal(shape).astype(real) for shape in (index.shape, rows, rows)]
    moments = _core.logprob(given, given_index, axis, True, False, False, False, True, None, None)[5]
    of_logprob = given_gradients[0].reshape(given_index.shape)
    made = _core.logprob_backward(
        given, given_index, axis, moments, of_logprob, *given_gradients[1:], None, None
    )
    wanted, size = gradient(x, index, *given_gradients)
    assert_near(np.moveaxis(made, axis, -1), wanted, size, 2.0**-52 if name == "float64" else 2.0**-23, name)


if __name__ == "__main__":
    import ml_dtypes

    import onsoftmax

    generator = np.random.default_rng(0)
    for case in range(200):
        kind = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16][case % 4]
        length = int(generator.choice([1, 2, 7, 8, 9, 31, 32, 33, 64, 100, 257, 1024, 2049, 5000]))
        check_random(onsoftmax, generator, kind, length, [(3,), (1,), (2, 5), ()][case % 3])
