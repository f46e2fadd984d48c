"""The exact divergences and their gradients, and a comparison with them, for tests on the CPU and on a GPU.
As a program it checks random divergences on the instruction set of ONSOFTMAX_ISA."""

from typing import NamedTuple

import numpy as np
from loss_checks import REDUCTIONS, ROUNDING, assert_near

KINDS = ("kl", "js")


class Expected(NamedTuple):
    """The value of each row, the gradient of each value, and the sizes of the largest terms of both."""

    values: np.ndarray
    gradient: np.ndarray
    value_size: np.ndarray
    gradient_size: np.ndarray

    def reduced(self, reduction):
        """The value and its gradient, and the sizes of both."""
        share = 1.0 / max(self.values.size, 1) if reduction == "mean" else 1.0
        gradient, size = self.gradient * share, self.gradient_size * share
        if reduction == "none":
            return self.values, gradient, self.value_size, size
        mean_of_none = np.nan if reduction == "mean" and self.values.size == 0 else 0.0
        return self.values.sum() * share + mean_of_none, gradient, self.value_size.sum() * share, size


def log_softmax(x, where):
    """With the size of the largest term. log(d) is at least rounded as 1 is."""
    with np.errstate(all="ignore"):
        x = np.where(where, x, -np.inf)
        m = x.max(-1, keepdims=True, initial=-np.inf)
        e = np.where(where, np.exp(x - m), 0)
        log_d = np.log(e.sum(-1, keepdims=True))
        size = np.maximum(1, np.where(where, np.abs(x - m), 0) + np.abs(log_d))
        return np.where(where, (x - m) - log_d, -np.inf), size


def expected(p_logits, q_logits, wrt, beta=None, scale=1.0, where=True, least=0.0):
    """For rows along the last axis, in longdouble. beta: None for KL. A p below `least` counts as 0."""
    real = np.float64 if p_logits.dtype == np.float64 else np.float32
    x, y = (np.longdouble(logits.astype(real) * real(scale)) for logits in (p_logits, q_logits))
    where = np.broadcast_to(where, x.shape)
    (log_p, p_size), (log_q, q_size) = log_softmax(x, where), log_softmax(y, where)
    with np.errstate(all="ignore"):
        p, q = np.exp(log_p), np.exp(log_q)
        p, q = np.where(p < least, 0, p), np.where(q < least, 0, q)

        def total(weight, log_ratio, size):
            # the values of the rows, their sizes, and the terms
            terms = np.where(weight == 0, 0, weight * log_ratio)
            sizes = np.where(weight == 0, 0, weight * size)
            return terms.sum(-1, keepdims=True), sizes.sum(-1, keepdims=True), log_ratio

        if beta is None:
            value, size, log_ratio = total(p, log_p - log_q, p_size + q_size)
            if wrt == "p":
                gradient, gradient_size = p * (log_ratio - value), p * (p_size + q_size + size)
            else:
                gradient, gradient_size = q - p, q * (1 + 0 * q_size) + p
        else:
            beta = np.longdouble(beta)
            r = beta * p + (1 - beta) * q
            log_r = np.log(r)
            size = p_size + q_size
            of_p, p_sum, p_ratio = total(p, log_p - log_r, size)
            of_q, q_sum, q_ratio = total(q, log_q - log_r, size)
            value, size = beta * of_p + (1 - beta) * of_q, beta * p_sum + (1 - beta) * q_sum
            share, mine, ratio, mean, own = (
                (beta, p, p_ratio, of_p, p_sum) if wrt == "p" else (1 - beta, q, q_ratio, of_q, q_sum)
            )
            gradient, gradient_size = share * mine * (ratio - mean), share * mine * (p_size + q_size + own)
        weight = q if (wrt == "q" and beta is not None) else p
        if wrt == "p" or beta is not None:
            gradient = np.where(weight == 0, 0, gradient)
        gradient = np.where(where, gradient, 0) * scale
        gone = ~where.any(-1)
        return Expected(
            np.where(gone, 0, value[..., 0]),
            np.where(gone[..., None], 0, gradient),
            np.where(gone, 0, size[..., 0]),
            np.abs(np.where(gone[..., None], 0, gradient_size) * scale),
        )


def check(p_logits, q_logits, made, reduction, dtype, wrt="p", **terms):
    """made: the value and the gradient or None, for rows along the last axis, as NumPy arrays of any type."""
    eps = 2.0**-52 if dtype == "float64" else 2.0**-23
    least = 0.0 if dtype == "float64" else 2.0**-126
    value, gradient, value_size, gradient_size = expected(p_logits, q_logits, wrt, **terms).reduced(reduction)
    assert_near(made[0], value, value_size + least * 100, eps)
    if made[1] is not None:
        # a GPU computes gradients of 16 bits within 8 eps of float32, and then rounds
        rounded = 2 if dtype in ROUNDING else 1
        assert_near(made[1], gradient, gradient_size + least * 100 / eps, rounded * eps, dtype)


def call(ons, kind, p_logits, q_logits, wrt=None, **keywords):
    """The value and the gradient, or the value and None without wrt."""
    if wrt is None:
        return getattr(ons, f"{kind}_divergence")(p_logits, q_logits, **keywords), None
    return getattr(ons, f"{kind}_divergence_with_grad")(p_logits, q_logits, wrt=wrt, **keywords)


def random_rows(rng, dtype, shape):
    """Two arrays of logits. They are far apart, near each other, or equal in parts."""
    size = rng.choice([0.1, 3.0, 30.0])
    x = rng.standard_normal(shape) * size + rng.choice([0.0, 0.0, 50.0, -1000.0])
    y = rng.standard_normal(shape) * size
    kind = rng.integers(3)
    if kind == 1:
        y = x + rng.standard_normal(shape) * 0.01
    if kind == 2:
        y = np.where(rng.random(shape) < 0.5, x, y)
    return x.astype(dtype), y.astype(dtype)


def random_terms(rng, kind, shape):
    where = rng.random(shape) < 0.7 if rng.random() < 0.3 else True
    terms = {"scale": float(rng.choice([1.0, 1.0, 0.5, 2.5])), "where": where}
    return terms | ({"beta": float(rng.choice([0.5, 0.1, 0.9]))} if kind == "js" else {})


def check_random(ons, rng, dtype, shape, kind=None):
    """One random call on NumPy arrays of any layout, in place or not. kind: None for either."""
    kind, axis = kind or str(rng.choice(KINDS)), int(rng.integers(-len(shape), len(shape)))
    wrt = [None, "p", "q"][rng.integers(3)]
    reduction = str(rng.choice(REDUCTIONS))
    x, y = random_rows(rng, dtype, shape)
    terms = random_terms(rng, kind, shape)
    p, q = (np.moveaxis(a.copy(), -1, axis) for a in (x, y))
    if rng.random() < 0.3:
        p, q = np.repeat(p, 2, axis)[(slice(None),) * (axis % len(shape)) + (slice(None, None, 2),)], q[...]
    keywords = terms | ({} if terms["where"] is True else {"where": np.moveaxis(terms["where"], -1, axis)})
    keywords["where"] = None if keywords["where"] is True else keywords["where"]
    out = (p if wrt == "p" else q) if wrt and rng.random() < 0.3 else None
    made = call(
        ons,
        kind,
        p,
        q,
        wrt,
        axis=axis,
        reduction=reduction,
        **keywords,
        **({} if out is None else {"grad_out": out}),
    )
    assert out is None or made[1] is out
    gradient = None if made[1] is None else np.moveaxis(made[1], axis, -1)
    check(x, y, (made[0], gradient), reduction, str(np.dtype(dtype)), wrt or "p", **terms)


if __name__ == "__main__":
    from support import BFLOAT16, DTYPES

    import onsoftmax as ons

    rng = np.random.default_rng(7)
    for i in range(600):
        N = int(rng.choice([1, 2, 3, 7, 8, 9, 31, 64, 100, 257, 1000]))
        shape = (*rng.integers(1, 4, rng.integers(0, 3)), N)
        check_random(ons, rng, DTYPES[i % len(DTYPES)] if i % 5 else BFLOAT16, shape)
