"""filtered_softmax on the CPU: its probabilities by the definition of sample, and beside its draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_checks import check_filtered, filters_of, random_case
from support import same_bits

import onsoftmax as ons


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_calls(seed: int) -> None:
    logits, terms = random_case(seed)
    filters = filters_of(terms)
    check_filtered(logits, ons.filtered_softmax(logits, **filters), **filters)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("N", [257, 4097, 50257])
def test_filters_that_end_far_from_the_first_tokens(rng: np.random.Generator, N: int, dtype: str) -> None:
    x = (rng.standard_normal((3, N)) * [[1], [0.01], [4]]).astype(dtype)
    for terms in (
        {"top_k": N - 1},
        {"top_k": [300, N // 2, 4096]},
        {"top_p": 0.99},
        {"min_p": 1e-3},
        {"top_k": N // 2, "top_p": 0.9, "min_p": 1e-4},
        {"top_k": N // 3, "top_p": 0.5, "filter_apply_order": "joint"},
    ):
        check_filtered(x, ons.filtered_softmax(x, **terms), **terms)


def test_without_filters_it_is_softmax(rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, 1000)).astype(np.float32)
    assert same_bits(ons.filtered_softmax(x), ons.softmax(x))
    hot = ons.filtered_softmax(x, temperature=[1, 2, 3, 4, 5])
    np.testing.assert_allclose(hot, ons.softmax(x, scale=1 / np.arange(1, 6)[:, None]), 1e-6)


def test_equal_logits_keep_the_first_tokens() -> None:
    for N in (6, 700):
        y = ons.filtered_softmax(np.zeros(N), top_k=4)
        assert y.tolist() == [0.25] * 4 + [0.0] * (N - 4)
    x = np.array([0, 0, 1, 1, 1], np.float32)
    assert ons.filtered_softmax(x, top_k=2).tolist() == [0, 0, 0.5, 0.5, 0]
    assert ons.filtered_softmax(x, temperature=0).tolist() == [0, 0, 1, 0, 0]
    assert ons.filtered_softmax(x, top_p=0.0).tolist() == [0, 0, 1, 0, 0]
    assert np.count_nonzero(ons.filtered_softmax(x, min_p=1.0)) == 3


def test_a_draw_has_its_probability(rng: np.random.Generator) -> None:
    """Every token that sample draws has the probability that its filtered log-probability says."""
    x = (3 * rng.standard_normal((4, 3000))).astype(np.float32)
    for filters in ({}, {"top_k": 40}, {"top_p": 0.7}, {"min_p": 0.02, "temperature": 2.0}, {"top_p": 0.999}):
        y = ons.filtered_softmax(x, **filters)
        for seed in range(20):
            token, logprob = ons.sample(x, seed=seed, return_logprob="filtered", **filters)
            p = np.take_along_axis(y, token[:, None], -1)[:, 0]
            np.testing.assert_allclose(np.log(p), logprob, rtol=1e-5, atol=1e-5)


def test_axes_layouts_and_masks(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4, 40)).astype(np.float32)
    where = rng.random((4, 40)) < 0.5
    terms: dict[str, Any] = {"top_k": np.arange(12).reshape(3, 4), "top_p": 0.9, "where": where}
    right = ons.filtered_softmax(x, **terms)
    assert not right[:, ~where].any()
    for axis in (0, 1):
        moved = np.moveaxis(x, -1, axis)
        terms["where"] = np.moveaxis(np.broadcast_to(where, x.shape), -1, axis)
        for form in (moved, np.ascontiguousarray(moved), np.asfortranarray(moved)):
            y = ons.filtered_softmax(form, axis=axis, **terms)
            assert same_bits(np.moveaxis(y, axis, -1), right)
    assert ons.filtered_softmax(x[:, :0]).shape == (3, 0, 40)
    assert ons.filtered_softmax([1, 1]).tolist() == [0.5, 0.5]


def test_rows_that_are_not_valid() -> None:
    x = np.array([[1, 2], [np.nan, 1], [-np.inf, -np.inf], [np.inf, 1], [1, 2], [1, 2]])
    y = ons.filtered_softmax(x, top_p=[0.9, 0.9, 0.9, 0.9, 1.5, 0.9], temperature=[1, 1, 1, 1, 1, -1])
    assert np.isnan(y).all(-1).tolist() == [False, True, True, True, True, True]
    assert np.isnan(ons.filtered_softmax(x)).all(-1).tolist() == [False, True, True, True, False, False]


@pytest.mark.parametrize(
    ("error", "words", "terms"),
    [
        (ValueError, "top_p is 2: expected a number from 0 to 1", {"top_p": 2}),
        (ValueError, "method is 'online': .* since filtered_softmax has one", {"method": "online"}),
        (ValueError, "filter_apply_order is 'both'", {"filter_apply_order": "both"}),
        (ValueError, r"top_k has shape \(3,\): expected \(\)", {"top_k": [1, 2, 3]}),
        (TypeError, "unexpected keyword argument 'seed'", {"seed": 0}),
    ],
)
def test_errors(error: type[Exception], words: str, terms: dict[str, Any]) -> None:
    with pytest.raises(error, match=words):
        ons.filtered_softmax(np.ones(3), **terms)
