"""The exact losses and gradients of cross_entropy, and a comparison with them, for tests on the CPU and on a
GPU. As a program it checks random losses on the instruction set of ONSOFTMAX_ISA."""

from typing import NamedTuple

import numpy as np

REDUCTIONS = ("none", "sum", "mean")
LIMIT_EPS = 4
# What a 16-bit gradient is rounded to, and its least number.
ROUNDING = {"float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 2.0**-134)}


class Terms(NamedTuple):
    """The arguments of a loss besides logits and targets."""

    ignore_index: int = -100
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    weight: np.ndarray | None = None

    def keywords(self):
        return self._asdict()


class Expected(NamedTuple):
    """The loss of each row, the gradient of each loss, the weight of each row, and for both results the size
    of the largest term."""

    losses: np.ndarray
    gradient: np.ndarray
    weights: np.ndarray
    loss_size: np.ndarray
    gradient_size: np.ndarray

    def reduced(self, reduction):
        """The loss and its gradient, and the sizes of both."""
        total = {"none": 1.0, "sum": 1.0, "mean": self.weights.sum()}[reduction]
        with np.errstate(all="ignore"):
            factor = np.where(self.weights == 0, 0.0, 1.0 / total)[..., None]
            gradient, size = self.gradient * factor, self.gradient_size * factor
            if reduction == "none":
                return self.losses, gradient, self.loss_size, size
            return self.losses.sum() / total, gradient, self.loss_size.sum() / total, size


def expected(x, target, terms):
    """For rows along the last axis, in longdouble."""
    x = np.asarray(x, np.longdouble)
    N = x.shape[-1]
    counts = target != terms.ignore_index
    at = np.where(counts, target, 0)[..., None]
    w = np.ones(N, np.longdouble) if terms.weight is None else np.asarray(terms.weight, np.longdouble)
    a = terms.label_smoothing
    with np.errstate(all="ignore"):
        m = x.max(-1, keepdims=True)
        e = np.exp(x - m)
        d = e.sum(-1, keepdims=True)
        p, lse = e / d, m + np.log(d)
        own = (1 - a) * w[at]
        near = (m - np.take_along_axis(x, at, -1)) + np.log(d)
        smooth = a / N * (w * (lse - x)).sum(-1, keepdims=True) if a else 0.0 * own
        z = terms.z_loss * lse**2
        losses = own * near + smooth + z
        size = np.abs(own) * np.maximum(1, np.abs(m - np.take_along_axis(x, at, -1)) + np.log(d)) + np.abs(z)
        if a:
            size = size + a / N * (np.abs(w * m) + np.abs(w * x) + np.abs(w * np.log(d))).sum(
                -1, keepdims=True
            )
        factor = own + a * w.sum() / N + 2 * terms.z_loss * lse
        gradient = factor * p - a / N * w
        gradient_size = np.abs(factor) * p + a / N * np.abs(w) + np.zeros_like(x)
    np.put_along_axis(gradient, at, np.take_along_axis(gradient, at, -1) - own, -1)
    np.put_along_axis(gradient_size, at, np.take_along_axis(gradient_size, at, -1) + own, -1)
    gone = ~counts[..., None]
    return Expected(
        np.where(gone, 0, losses)[..., 0],
        np.where(gone, 0, gradient),
        np.where(counts, w[at[..., 0]], 0),
        np.where(gone, 0, size)[..., 0],
        np.where(gone, 0, gradient_size),
    )


def assert_near(made, wanted, size, eps, dtype=None):
    """Within LIMIT_EPS of the largest term, and rounded once to a 16-bit type."""
    made = np.asarray(made, np.longdouble)
    rounded, least = ROUNDING.get(dtype, (0.0, 0.0))
    with np.errstate(all="ignore"):
        bound = LIMIT_EPS * eps * size + rounded * np.abs(wanted) + least + 2.0**-149
        error = np.abs(made - wanted)
    same = (made == wanted) | (np.isnan(made) & np.isnan(wanted))
    bad = ~(same | (error <= bound))
    assert not bad.any(), (made[bad].ravel()[:3], np.asarray(wanted)[bad].ravel()[:3], np.argwhere(bad)[:3])


def check(x, target, terms, reduction, loss, gradient, dtype):
    """Results for rows along the last axis, as NumPy arrays of any type."""
    eps = 2.0**-52 if dtype == "float64" else 2.0**-23
    wanted_loss, wanted_gradient, loss_size, gradient_size = expected(x, target, terms).reduced(reduction)
    assert_near(loss, wanted_loss, loss_size, eps)
    if gradient is not None:
        assert_near(gradient, wanted_gradient, gradient_size, eps, dtype)


def random_terms(rng, N, dtype):
    """Terms, most of them plain."""
    real = np.float64 if dtype == "float64" else np.float32
    return Terms(
        ignore_index=int(rng.choice([-100, 0])),
        label_smoothing=float(rng.choice([0.0, 0.0, 0.1])),
        z_loss=float(rng.choice([0.0, 0.0, 1e-3])),
        weight=None if rng.random() < 0.6 else (rng.random(N) + 0.5).astype(real),
    )


def check_random(ons, rng, dtype, N, rows):
    """One random call on NumPy arrays: any layout, in place or not."""
    offset = float(rng.choice([0.0, 0.0, 50.0, -1000.0]))
    x = (rng.standard_normal((*rows, N)) * rng.choice([0.1, 3.0, 30.0]) + offset).astype(dtype)
    target = rng.integers(0, N, rows).astype(rng.choice(["int32", "int64"]))
    target[rng.random(rows) < 0.1] = -100
    terms = random_terms(rng, N, dtype)
    target[(target == -100) & (terms.ignore_index != -100)] = terms.ignore_index
    reduction = str(rng.choice(REDUCTIONS))
    axis = int(rng.integers(0, x.ndim))
    given = np.moveaxis(x, -1, axis) if rng.random() < 0.5 else np.moveaxis(x, -1, axis).copy()
    out = given.copy() if rng.random() < 0.3 else None
    keywords = terms.keywords() | {"axis": axis, "reduction": reduction}
    loss, gradient = ons.cross_entropy_with_grad(
        given if out is None else out, target, grad_out=out, **keywords
    )
    check(x, target, terms, reduction, loss, np.moveaxis(gradient, axis, -1), np.dtype(dtype).name)
    alone = ons.cross_entropy(given, target, **keywords)
    check(x, target, terms, reduction, alone, None, np.dtype(dtype).name)


if __name__ == "__main__":
    import ml_dtypes

    import onsoftmax

    generator = np.random.default_rng(0)
    for case in range(240):
        kind = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16][case % 4]
        length = int(generator.choice([1, 2, 7, 8, 9, 31, 32, 33, 64, 100, 257, 1024, 5000]))
        check_random(onsoftmax, generator, kind, length, [(3,), (1,), (2, 5), ()][case % 3])
