"""route on the CPU against the formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onsoftmax as ons
from route_checks import check_route

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


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_routes_are_those_of_the_formulas(seed: int) -> None:
    logits, k, terms = random_case(seed)
    check_route(logits, k, ons.route(logits, k, **terms), **terms)
