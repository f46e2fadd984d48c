"""explain(method="exact"): the bits of softmax, and intervals that have the exact values."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from support import BFLOAT16

import onsoftmax as ons
from onsoftmax._explain import trace_text as _trace_text

mpmath = pytest.importorskip("mpmath")
import exact_checks  # noqa: E402, it needs mpmath

ROW = [1, 2, 3, 6, 2, 1]


def test_exact_on_the_worked_row():
    trace = ons.explain(ROW, method="exact")
    assert [step.kind for step in trace.steps] == ["maximum"] * 2 + ["sum"] * 2 + ["divide"] * 6
    assert trace.steps[3].d == pytest.approx(1.0998942401435034, rel=1e-15)
    largest = trace.steps[7]
    assert largest.in_double == pytest.approx(0.9091783223353638, rel=1e-15)
    assert [(end / largest.in_double - 1) * 2**48 for end in largest.interval] == pytest.approx([-1, 1], 0.1)
    assert largest.ends == (trace.result[3],) * 2 and trace.result[3] == np.float32(0.9091783223353638)
    assert (trace.dtype, trace.compute, trace.passes) == ("float32", "float64", 3)
    text = str(trace)
    assert all(number in text for number in ("1.0998942401435", "0.9091783223353638", "0.909178317"))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "interval: 0.9091783223353606 0.909178322335367" in trace.to_html()


def exact_values(operation, row):
    """The exact results, as many digits as exact_checks sets."""
    x = [mpmath.mpf(float(value)) for value in row]
    e = [mpmath.exp(value - max(x)) for value in x]
    log_d = mpmath.log(mpmath.fsum(e))
    if operation == "logsumexp":
        return [max(x) + log_d]
    return [
        a / mpmath.fsum(e) if operation == "softmax" else b - max(x) - log_d
        for a, b in zip(e, x, strict=True)
    ]


def is_exact(operation, row):
    """The trace, which has the result of `exact` bit by bit, and intervals around the exact values."""
    trace = ons.explain(row, operation=operation, method="exact", tile=2)
    expected = np.atleast_1d(getattr(ons, operation)(row, method="exact")).astype(float)
    assert np.array(trace.result).tobytes() == expected.tobytes(), (operation, row)
    tested = [step for step in trace.steps if step.ends]
    for step, value in zip(tested, exact_values(operation, row), strict=True):
        low, high = map(mpmath.mpf, step.interval)
        assert low <= value <= high, (operation, row, step)
        low_text, high_text = _trace_text.doubles(*step.interval).split()
        assert mpmath.mpf(low_text) <= value <= mpmath.mpf(high_text), (operation, row, step)
        assert step.ends == tuple(exact_checks.rounded(end, row.dtype) for end in (low, high))
        assert (step.written == ()) == (step.ends[0] != step.ends[1])
    return trace


@pytest.mark.parametrize("operation", ["softmax", "log_softmax", "logsumexp"])
def test_exact_has_the_bits_of_softmax_and_its_intervals_are_right(operation, rng):
    kinds = ["normal", "integers", "equal", "one far above", "odd", "powers", "steps"]
    for turn in range(70):
        row = exact_checks.row_of(kinds[turn % len(kinds)], int(rng.integers(1, 30)), rng)
        row = np.clip(row, -6e4, 6e4).astype(exact_checks.TYPES[turn % 3])
        is_exact(operation, row)


@pytest.mark.parametrize("operation", exact_checks.NEAR)
def test_two_doubles_decide_what_a_double_does_not(operation):
    for place in exact_checks.NEAR[operation].split():
        trace = is_exact(operation, np.array([0, float.fromhex(place)], np.float32))
        undecided = [step for step in trace.steps if step.ends and not step.written]
        first = next(step for step in trace.steps if step.kind == "two_sum")
        decided = [step for step in trace.steps if step.kind == "two_doubles"]
        assert trace.passes == first.passes == 3 + (operation != "logsumexp")
        values, html = exact_values(operation, trace.row), trace.to_html()
        for step, before in zip(decided, undecided, strict=True):
            assert step.written[0] in before.ends
            assert abs(sum(map(mpmath.mpf, step.two_doubles)) / values[step.start] - 1) < 1e-30
            assert f"in two doubles: {step.two_doubles[0]:.16g}" in html
        assert decided and "y in two doubles" in str(trace)


def test_the_others_decide_a_tie():
    """x - m lies in the middle of two bfloat16 numbers, and log(d) is e^-1052672."""
    if BFLOAT16:
        row = np.array([-(2.0**20), 2.0**12], BFLOAT16)
        trace = ons.explain(row, operation="log_softmax", method="exact")
        assert trace.steps[-1].kind == "two_doubles" and trace.result == (-(2.0**20) - 2**13, 0)
        assert ons.log_softmax(row, method="exact").astype(float).tolist() == list(trace.result)


SPECIAL = [
    [math.nan, 1.0],
    [math.inf, 1.0, math.inf],
    [-math.inf, -math.inf],
    [-math.inf, 2053.0],
    [-math.inf, 0.0, 3.0],
    [20000.0, 19999.0, 3.0],
    [3e38, -3e38, 0.0],
    [-1e30, -2e30],
]


@pytest.mark.parametrize("row", SPECIAL, ids=str)
def test_special_rows_by_exact(row):
    for operation in ("softmax", "log_softmax", "logsumexp"):
        for dtype in exact_checks.TYPES:
            with np.errstate(over="ignore"):
                x = np.array(row).astype(dtype)
            trace = ons.explain(x, operation=operation, method="exact", tile=1)
            expected = np.atleast_1d(getattr(ons, operation)(x, method="exact")).astype(float)
            np.testing.assert_array_equal(trace.result, expected)
            assert str(trace) and trace.to_html() and json.loads(trace.to_json())


def test_exact_is_drawn():
    pytest.importorskip("matplotlib")
    for operation, places in exact_checks.NEAR.items():
        row = [0, float.fromhex(places.split()[0])]
        trace = ons.explain(row, operation=operation, method="exact", tile=1)
        assert [patch.get_height() for patch in trace.plot().axes[2].patches] == list(trace.result)
