"""route on the CPU against the formulas in longdouble."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from route_checks import check_route, random_case
from route_search import search

import onsoftmax as ons
from onsoftmax._types import Score


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_routes_are_those_of_the_formulas(seed: int) -> None:
    logits, k, terms = random_case(seed)
    check_route(logits, k, ons.route(logits, k, **terms), **terms)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("score", ["sigmoid", "sqrtsoftplus"])
def test_scores_far_below_0_keep_their_digits_and_their_order(dtype: type, score: Score) -> None:
    far = -90.0 if dtype is np.float32 else -700.0
    logits = np.linspace(far, far + 15, 64, dtype=dtype).reshape(2, 32)
    for terms in ({}, {"bias": np.zeros(32, dtype)}):
        found = ons.route(logits, 8, score=score, **terms)
        assert (found.indices == np.arange(31, 23, -1)).all()
        check_route(logits, 8, found, score=score, **terms)


def test_a_search_finds_wrong_weights_and_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are a little too large are found, and so is another expert of the last row."""
    right = search(5000, 0, "cpu")
    assert right["rows"] == 5000 and right["cases"] == 10 and right["wrong"] == []
    route = ons.route

    def with_other_weights(logits: np.ndarray, k: int, **terms: Any) -> Any:
        found = route(logits, k, **terms)
        return found.weights * (1 + 2.0 ** -(40 if found.weights.dtype == np.float64 else 18)), found.indices

    def with_other_experts(logits: np.ndarray, k: int, **terms: Any) -> Any:
        found = route(logits, k, **terms)
        found.indices[-1, 0] = found.indices[-1, -1] if k > 1 else logits.shape[-1]
        return found

    for spoiled in (with_other_weights, with_other_experts):
        monkeypatch.setattr(ons, "route", spoiled)
        wrong = search(5000, 0, "cpu")["wrong"]
        assert len(wrong) > 5  # a case can have weights that are all 0 or NaN
