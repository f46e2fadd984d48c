"""route in longdouble, row by row, as the formulas of the models have it, and what a result may differ by."""

from __future__ import annotations

from typing import Any

import numpy as np

EPS = {"float32": 2.0**-23, "float64": 2.0**-52}
# Keys of float32 carry a few roundings of the score and of the sum. Experts whose keys are nearer may swap.
NEAR = {"float32": 8 * EPS["float32"], "float64": 8 * EPS["float64"]}


def scores_of(x: Any, score: str, allowed: Any) -> Any:
    """The scores of a row. Experts that are not allowed have 0."""
    with np.errstate(all="ignore"):
        if score == "softmax":
            some = np.where(allowed, x, -np.inf)
            p = np.exp(some - some.max())
            return np.where(allowed, p / p.sum(), 0.0)
        if score == "sigmoid":
            return 1 / (1 + np.exp(-x))
        if score == "sqrtsoftplus":
            return np.sqrt(
                np.where(x > 0, x + np.log1p(np.exp(-np.abs(x))), np.log1p(np.exp(np.minimum(x, 0))))
            )
        return x


def in_order(keys: Any, classes: Any) -> list[int]:
    """Indices by class, then by key, largest first, NaN before all others, then by index."""
    return sorted(
        range(len(keys)),
        key=lambda i: (classes[i], not np.isnan(keys[i]), -keys[i] if not np.isnan(keys[i]) else 0.0, i),
    )


def route_row(
    x: Any,
    k: int,
    allowed: Any,
    *,
    score: str = "softmax",
    bias: Any = None,
    groups: int = 1,
    top_groups: int | None = None,
) -> tuple[Any, Any, Any]:
    """(indices, keys, scores) of a row in longdouble."""
    scores = scores_of(x, score, allowed)
    with np.errstate(invalid="ignore"):
        keys = x if bias is None else scores + bias
    chosen = np.ones(len(x), bool)
    if top_groups is not None and top_groups < groups:
        n = len(x) // groups
        counts, classes = [], []
        for g in range(groups):
            own = keys[g * n : (g + 1) * n][allowed[g * n : (g + 1) * n]]
            best = [own[i] for i in in_order(own, np.zeros(len(own)))[:2]]
            with np.errstate(invalid="ignore"):
                counts.append(-np.inf if not best else sum(best) if bias is not None else best[0])
            classes.append(0 if best else 1)
        chosen[:] = False
        for g in in_order(counts, classes)[:top_groups]:
            chosen[g * n : (g + 1) * n] = True
    classes = np.where(chosen, np.where(allowed, 0, 1), 2)
    keys = np.where(allowed, keys, 0.0)
    return np.array(in_order(keys, classes)[:k]), keys, scores


def weights_of(
    x: Any, scores: Any, indices: Any, allowed: Any, *, score: str, renormalize: bool, scale: float
) -> Any:
    """The weights of the chosen experts of a row in longdouble."""
    own, counts = scores[indices], allowed[indices]
    with np.errstate(all="ignore"):
        if renormalize and score == "none":
            some = np.where(counts, own, -np.inf)
            own = np.exp(some - some.max()) if counts.any() else own
        elif (
            renormalize
            and score == "softmax"
            and not np.isnan(own[counts]).any()
            and (x[indices][counts] > -np.inf).any()
        ):
            some = np.where(counts, x[indices], -np.inf)  # d cancels, and nothing underflows
            own = np.exp(some - some.max())
        own = np.where(counts, own, 0.0)
        if renormalize and own.sum() != 0:
            own = own / own.sum()
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
    **terms: Any,
) -> int:
    """Compares a result for rows of logits (NumPy, rows along the last axis) with the formulas. Returns the
    number of rows in which experts with nearly equal keys changed places."""
    weights, indices = (np.asarray(a) for a in found)
    N = logits.shape[-1]
    rows = np.asarray(logits, np.longdouble).reshape(-1, N)
    masks = np.broadcast_to(True if where is None else where, logits.shape).reshape(-1, N)
    assert weights.shape == indices.shape == (*logits.shape[:-1], k)
    real = "float64" if logits.dtype == np.float64 else "float32"
    assert weights.dtype == real
    eps, near, swapped = EPS[real], NEAR[real], 0
    limit = (4 if score == "softmax" else 8) * (2 if renormalize else 1) * eps
    wide = None if bias is None else np.asarray(bias, np.longdouble)
    for x, allowed, w, i in zip(rows, masks, weights.reshape(-1, k), indices.reshape(-1, k), strict=True):
        wanted, keys, scores = route_row(x, k, allowed, score=score, bias=wide, **terms)
        if not np.array_equal(i, wanted):
            assert bias is not None, (x, i, wanted)  # without a bias the order is exact
            assert len(set(i.tolist())) == k, i
            if terms.get("top_groups") is None:
                own, best = keys[i], keys[wanted]
                with np.errstate(invalid="ignore"):
                    same = (np.abs(own - best) <= near * np.maximum(1, np.abs(best))) | (own == best)
                assert (same | (np.isnan(own) & np.isnan(best))).all(), (x, i, wanted, own)
            swapped += 1
        exact = weights_of(x, scores, i, allowed, score=score, renormalize=renormalize, scale=scale)
        with np.errstate(invalid="ignore"):
            error = np.abs(w - exact)
        good = (error <= limit * np.abs(exact) + 2.0**-149) | (w == exact) | (np.isnan(w) & np.isnan(exact))
        assert good.all(), (x, i, w, exact, error / np.abs(exact) / eps)
    return swapped


SCORES = ("softmax", "sigmoid", "sqrtsoftplus", "none")


def logits_of(rng: Any, kind: str, shape: tuple[int, ...], dtype: Any) -> Any:
    x = rng.standard_normal(shape) * 3
    if kind == "ties":
        x = np.round(x)
    elif kind == "edges":
        x = rng.choice([-np.inf, np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 88.0, -120.0, 1e30], shape)
    elif kind == "masked":
        x = np.where(rng.random(shape) < 0.5, -np.inf, x)
    elif kind == "equal":
        x = np.zeros(shape)
    return x.astype(dtype)


def random_case(seed: int) -> tuple[Any, int, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 1, 2, 4, 8]))
    N = groups * int(rng.choice([1, 2, 3, 8, 16, 31, 32, 50]))
    dtype = rng.choice([np.float16, np.float32, np.float64])
    kind = str(rng.choice(["normal", "ties", "edges", "masked", "equal"]))
    logits = logits_of(rng, kind, (int(rng.integers(1, 7)), N), dtype)
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
