"""route on the CPU against the formulas in float64."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from route_checks import check_route, random_case

import onsoftmax as ons


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_routes_are_those_of_the_formulas(seed: int) -> None:
    logits, k, terms = random_case(seed)
    check_route(logits, k, ons.route(logits, k, **terms), **terms)
