"""route in longdouble, as the formulas of the models have it, and what a result may differ by."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

EPS = {"float32": 2.0**-23, "float64": 2.0**-52}
# Keys of float32 carry a few roundings of the score and of the sum. Experts whose keys are nearer may swap.
NEAR_EPS = 8


def scores_of(x: Any, score: str, allowed: Any) -> Any:
    """The scores of rows. Experts that are not allowed have 0."""
    with np.errstate(all="ignore"):
        if score == "softmax":
            some = np.where(allowed, x, -np.inf)
            p = np.exp(some - some.max(-1, keepdims=True))
            return np.where(allowed, p / p.sum(-1, keepdims=True), 0.0)
        if score == "sigmoid":
            return 1 / (1 + np.exp(-x))
        if score == "sqrtsoftplus":
            return np.sqrt(
                np.where(x > 0, x + np.log1p(np.exp(-np.abs(x))), np.log1p(np.exp(np.minimum(x, 0))))
            )
        return x


def in_order(keys: Any, classes: Any) -> Any:
    """Indices by class, then by key, largest first, NaN before all others, then by index."""
    missing = np.isnan(keys)
    return np.lexsort((-np.where(missing, 0, keys), ~missing, classes), -1)


class Order(NamedTuple):
    """The choice of rows, and what it is made of."""

    indices: Any
    keys: Any
    scores: Any
    has_near_groups: Any
    """Whether the last group that was chosen and the next one count nearly the same."""


def is_near(a: Any, b: Any, eps: float) -> Any:
    with np.errstate(invalid="ignore"):
        near = (np.abs(a - b) <= NEAR_EPS * eps * np.maximum(1, np.abs(b))) | (a == b)
    return near | (np.isnan(a) & np.isnan(b))


def order_rows(
    x: Any,
    k: int,
    allowed: Any,
    eps: float,
    *,
    score: str = "softmax",
    bias: Any = None,
    groups: int = 1,
    top_groups: int | None = None,
) -> Order:
    rows, N = x.shape
    scores = scores_of(x, score, allowed)
    with np.errstate(invalid="ignore"):
        keys = x if bias is None else scores + bias
    keys = np.where(allowed, keys, 0.0)
    chosen, has_near_groups = np.ones(x.shape, bool), np.zeros(rows, bool)
    if top_groups is not None and top_groups < groups:
        own, counted = keys.reshape(rows, groups, -1), allowed.reshape(rows, groups, -1)
        two = np.take_along_axis(own, in_order(own, ~counted)[..., :2], -1)
        members = counted.sum(-1)
        with np.errstate(invalid="ignore"):
            both = two.sum(-1) if bias is not None else two[..., 0]
        counts = np.where(members == 0, -np.inf, np.where(members == 1, two[..., 0], both))
        ranked = in_order(counts, members == 0)
        is_open = np.zeros((rows, groups), bool)
        np.put_along_axis(is_open, ranked[:, :top_groups], True, -1)
        chosen = is_open.repeat(N // groups, -1)
        last, following = (
            np.take_along_axis(counts, ranked[:, at, None], -1)[:, 0] for at in (top_groups - 1, top_groups)
        )
        has_near_groups = is_near(last, following, 2 * eps)  # the sum of two keys
    classes = np.where(chosen, np.where(allowed, 0, 1), 2)
    return Order(in_order(keys, classes)[:, :k], keys, scores, has_near_groups)


def weights_of(
    x: Any, scores: Any, indices: Any, allowed: Any, *, score: str, renormalize: bool, scale: float
) -> Any:
    """The weights of the chosen experts of rows in longdouble."""
    own, logits, counts = (np.take_along_axis(each, indices, -1) for each in (scores, x, allowed))

    def any_of(which: Any) -> Any:
        return (which & counts).any(-1, keepdims=True)

    with np.errstate(all="ignore"):
        some = np.where(counts, logits, -np.inf)
        apart = np.exp(some - some.max(-1, keepdims=True))
        if renormalize and score == "none":
            own = np.where(any_of(counts), apart, own)
        elif renormalize and score == "softmax":  # d cancels, and nothing underflows
            own = np.where(~any_of(np.isnan(own)) & any_of(logits > -np.inf), apart, own)
        own = np.where(counts, own, 0.0)
        total = own.sum(-1, keepdims=True)
        if renormalize:
            own = np.where(total != 0, own / total, own)
        return np.where(counts, own * scale, 0.0)


def check_route(
    logits: Any,
    k: int,
    found: Any,
    *,
    where: Any = None,
    score: str = "softmax",
    renormalize: bool = True,
    scale: float = 1.0,
    bias: Any = None,
    flushes: bool = False,
    **terms: Any,
) -> int:
    """Compares a result for rows of logits (NumPy, rows along the last axis) with the formulas. Returns the
    number of rows in which experts with nearly equal keys changed places. flushes: scores below the smallest
    normal number may count as 0, as on a GPU."""
    weights, indices = (np.asarray(a) for a in found)
    N = logits.shape[-1]
    x = np.asarray(logits, np.longdouble).reshape(-1, N)
    allowed = np.broadcast_to(True if where is None else where, logits.shape).reshape(-1, N)
    assert weights.shape == indices.shape == (*logits.shape[:-1], k)
    real = "float64" if logits.dtype == np.float64 else "float32"
    assert weights.dtype == real
    weights, indices, eps = weights.reshape(-1, k), indices.reshape(-1, k), EPS[real]
    assert ((indices >= 0) & (indices < N)).all(), indices
    wide = None if bias is None else np.asarray(bias, np.longdouble)
    wanted = order_rows(x, k, allowed, eps, score=score, bias=wide, **terms)

    def require(good: Any, *shown: Any) -> None:
        """All rows must be good. Shows the first other one."""
        if not good.all():
            at = int(np.argmin(good))
            raise AssertionError(f"row {at}: {[each[at] for each in (x, indices, wanted.indices, *shown)]}")

    swapped = (indices != wanted.indices).any(-1)
    require(~swapped if bias is None else (np.diff(np.sort(indices, -1), axis=-1) > 0).all(-1))
    own, best = (np.take_along_axis(wanted.keys, each, -1) for each in (indices, wanted.indices))
    require(~swapped | wanted.has_near_groups | is_near(own, best, eps).all(-1), own, best)
    options: Any = {"score": score, "renormalize": renormalize, "scale": scale}
    exact = weights_of(x, wanted.scores, indices, allowed, **options)
    limit = (4 if score == "softmax" else 8) * (2 if renormalize else 1) * eps
    with np.errstate(invalid="ignore"):
        good = (np.abs(weights - exact) <= limit * np.abs(exact) + 2.0**-149) | (weights == exact)
    if flushes and score in ("sigmoid", "sqrtsoftplus"):
        chosen = np.take_along_axis(wanted.scores, indices, -1)
        good |= (chosen < np.finfo(real).tiny).any(-1, keepdims=True)
    require((good | (np.isnan(weights) & np.isnan(exact))).all(-1), weights, exact)
    return int(swapped.sum())


SCORES = ("softmax", "sigmoid", "sqrtsoftplus", "none")
KINDS = ("normal", "ties", "edges", "masked", "equal", "equal groups")


def logits_of(rng: Any, kind: str, shape: tuple[int, int], groups: int, dtype: Any) -> Any:
    x = rng.standard_normal(shape) * 3
    if kind == "ties":
        x = np.round(x)
    elif kind == "edges":
        x = rng.choice([-np.inf, np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 88.0, -120.0, 1e30], shape)
    elif kind == "masked":
        x = np.where(rng.random(shape) < 0.5, -np.inf, x)
    elif kind == "equal":
        x = np.zeros(shape)
    elif kind == "equal groups":
        x = np.tile(x[:, : shape[1] // groups], groups)
    with np.errstate(over="ignore"):  # float16 has no 1e30
        return x.astype(dtype)


def random_case(seed: int, rows: int = 0) -> tuple[Any, int, dict[str, Any]]:
    """Logits, k and the other arguments of a call. By default there are few rows."""
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 1, 2, 4, 8, 20]))
    N = groups * int(rng.choice([1, 2, 3, 8, 16, 31, 32, 50, *([256, 384, 896] if groups == 1 else [])]))
    dtype = rng.choice([np.float16, np.float32, np.float64])
    logits = logits_of(rng, str(rng.choice(KINDS)), (rows or int(rng.integers(1, 7)), N), groups, dtype)
    terms: dict[str, Any] = {
        "score": str(rng.choice(SCORES)),
        "renormalize": bool(rng.integers(2)),
        "scale": float(rng.choice([1.0, 2.5, -1.0])),
    }
    if rng.random() < 0.5:
        # multiples of 1/8 keep sums with rounded logits exact, so that ties are ties
        terms["bias"] = (rng.integers(-8, 9, N) / 8).astype(np.float64 if dtype is np.float64 else np.float32)
    if groups > 1:
        terms |= {"groups": groups, "top_groups": int(rng.integers(1, groups + 1))}
    if rng.random() < 0.3:
        terms["where"] = rng.random(logits.shape if rng.random() < 0.5 else (N,)) < 0.6
    k = int(rng.integers(1, N // groups * terms.get("top_groups", 1) + 1))
    return logits, min(k, int(rng.choice([1, 2, 8, k]))), terms
