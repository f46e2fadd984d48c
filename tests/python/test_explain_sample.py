"""explain of sample: the worked row number by number, and tokens that are those of sample."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_checks import DTYPES, philox, random_case, words

import onsoftmax as ons
from onsoftmax._explain.steps_sample import random_bits
from onsoftmax._sample_arguments import PARAMETERS

ROW = [1, 2, 3, 6, 2, 1]
ALL = {"seed": 7, "temperature": 2, "top_k": 4, "top_p": 0.9, "min_p": 0.05}


def explained(row, **options):
    return ons.explain(row, operation="sample", **options)


def by_kind(trace, kind):
    return [step for step in trace.steps if step.kind == kind]


def test_a_draw_from_the_worked_row():
    trace = explained(ROW, **ALL)
    first, second = by_kind(trace, "statistics")
    assert first.scaled == (0.5, 1, 1.5) and (first.m, second.m) == (1.5, 3)
    assert second.d == pytest.approx(1.657971, abs=5e-7)
    first, second = by_kind(trace, "order")
    assert (first.tokens, second.tokens) == ((3, 2, 1), (4, 0, 5))  # of equal logits, the lower index first
    assert first.exponentials == pytest.approx(np.exp([0, -1.5, -2]), rel=1e-14)
    assert first.p == pytest.approx((0.603147, 0.134580, 0.081627), abs=5e-7)
    assert first.running + second.running == pytest.approx(np.cumsum(first.p + second.p), rel=1e-14)
    top_k, top_p, min_p = by_kind(trace, "filter")
    assert (top_k.filter, top_k.limit, top_k.kept_tokens, top_k.mass) == ("top_k", 4, 4, second.running[0])
    assert (top_p.filter, top_p.of, top_p.kept_tokens, top_p.mass) == (
        "top_p",
        top_k.mass,
        3,
        first.running[2],
    )
    assert top_p.limit == pytest.approx(0.9 * top_k.mass, rel=1e-15)
    assert (min_p.filter, min_p.of, min_p.limit) == ("min_p", first.p[0], 0.05 * first.p[0])
    assert min_p.kept_tokens == 3
    (kept,) = by_kind(trace, "renormalize")
    assert kept.tokens == (3, 2, 1) and kept.p == pytest.approx(np.array(first.p) / top_p.mass, rel=1e-14)
    assert kept.running == pytest.approx(np.cumsum(kept.p), rel=1e-14) and kept.running[-1] == 1
    (draw,) = by_kind(trace, "draw")
    assert draw.u == pytest.approx(0.750152, abs=5e-7) and kept.running[0] <= draw.u < kept.running[1]
    assert draw.tokens == trace.indices == (2,)
    assert draw.written == trace.result == (math.log(first.p[1]),)
    assert draw.filtered_logprob == pytest.approx(math.log(kept.p[1]), rel=1e-14)
    assert (trace.passes, trace.bytes_read, trace.bytes_written) == (1, 48, 16)


def test_the_order_of_the_filters():
    """top_p is a share of the mass that top_k keeps, or of the whole mass."""
    logits = np.log([0.45, 0.25, 0.2, 0.1])
    first = explained(logits, seed=0, top_k=2, top_p=0.6)
    joint = explained(logits, seed=0, top_k=2, top_p=0.6, filter_apply_order="joint")
    assert [step.kept_tokens for step in by_kind(first, "filter")] == [2, 1]
    assert [step.kept_tokens for step in by_kind(joint, "filter")] == [2, 2]
    assert [by_kind(trace, "filter")[1].of for trace in (first, joint)] == pytest.approx([0.7, 1])
    assert "top_k 2, top_p 0.6, joint\n" in str(joint) and "joint" not in str(first)


def test_a_row_without_filters_is_in_the_order_of_indices():
    trace = explained(ROW, seed=7)
    assert [step.tokens for step in by_kind(trace, "order")] == [(0, 1, 2), (3, 4, 5)]
    assert not by_kind(trace, "filter") and not by_kind(trace, "renormalize")
    assert "no filters" in str(trace) and "z" not in str(trace).split()
    draw = trace.steps[-1]
    assert draw.tokens == (3,) and draw.filtered_logprob == pytest.approx(draw.written[0], rel=1e-14)


def test_a_greedy_draw():
    trace = explained([1, 2, 2], seed=0, temperature=0, top_p=0.5)
    assert [(step.filter, step.kept_tokens) for step in by_kind(trace, "filter")] == [
        ("temperature", 1),
        ("top_p", 1),
    ]
    assert trace.indices == (1,) and trace.steps[-1].filtered_logprob == 0
    assert trace.result == pytest.approx(ons.log_softmax([1.0, 2.0, 2.0])[1:2])  # at temperature 1


@pytest.mark.parametrize("row", [[1, math.nan], [1, math.inf], [-math.inf, -math.inf]], ids=str)
@pytest.mark.parametrize("filters", [{}, {"top_k": 1}], ids=str)
def test_a_row_that_is_not_valid(row, filters):
    trace = explained(row, seed=0, **filters)
    assert trace.indices == (-1,) and math.isnan(trace.result[0])
    assert trace.steps[-1].note == "the row is not valid: its largest logit is not finite"
    assert str(trace) and trace.to_html() and json.loads(trace.to_json())["result"] == ["nan"]


@given(st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_the_random_bits_are_those_of_philox(seed, offset, row):
    numbers = (np.array(number % 2**64, np.uint64) for number in (offset, row, seed))
    counter_low, counter_high, key = (words(number) for number in numbers)
    low, high, *_ = philox([*counter_low, *counter_high], key)
    assert random_bits(seed, offset, row) == int(high) << 32 | int(low)


def check_tokens(row, terms, **how):
    """The trace, compared with the results of sample."""
    trace = explained(row, **terms, **how)
    token, logprob = ons.sample(row, **terms, return_logprob=True)
    filtered = ons.sample(row, **terms, return_logprob="filtered")[1]
    assert trace.indices == (int(token),), terms
    np.testing.assert_array_equal(np.array(trace.result, logprob.dtype), logprob)
    eps = np.finfo(logprob.dtype).eps
    np.testing.assert_allclose(trace.steps[-1].filtered_logprob, filtered, rtol=4 * eps, atol=2.0**-50)
    assert math.isnan(trace.result[0]) or trace.error <= 20 * eps
    return trace


def test_tokens_are_those_of_sample(rng):
    tried = 0
    for case in range(400):
        logits, terms = random_case(case, rows=1)
        terms = {name: np.ravel(value)[0].item() for name, value in terms.items() if name in PARAMETERS} | {
            "filter_apply_order": terms["filter_apply_order"]
        }
        if not all(0 <= terms.get(name, 0) < math.inf for name in ("temperature", "top_p", "min_p")):
            continue
        method, tile = str(rng.choice(["online", "fused", "split"])), int(rng.integers(1, 200))
        trace = check_tokens(logits[0], terms, method=method, tile=tile, parts=3)
        if trace.indices != (-1,):
            tried += 1
            assert sum(len(step.tokens) for step in by_kind(trace, "order")) == logits.size
    assert tried > 200


@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.5, -3.0, -math.inf]) | st.floats(-30, 30), min_size=1, max_size=40),
    st.sampled_from(DTYPES),
    st.sampled_from([0.0, 0.3, 0.7, 1.0, 5.0]),
    st.integers(0, 42),
    st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 2**32),
    st.sampled_from(["top_k_first", "joint"]),
)
def test_a_trace_shows_itself(row, dtype, temperature, top_k, top_p, min_p, seed, offset, order):
    terms = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
        "offset": offset,
        "filter_apply_order": order,
    }
    trace = check_tokens(np.array(row).astype(dtype), terms)
    data = json.loads(trace.to_json())
    assert data["operation"] == "sample" and data["sampling"]["top_k"] == top_k
    assert str(trace) and trace.to_html()


@pytest.mark.parametrize("method", ["online", "fused", "split"])
def test_the_text_is_narrow_and_has_the_numbers(method):
    text = str(explained(ROW, **ALL, method=method))
    assert all(len(line) <= 80 for line in text.splitlines()) and "-----\n#  " not in text
    for shown in (
        "temperature 2, top_k 4, top_p 0.9, min_p 0.05\n",
        "u by Philox from seed 7, offset 0, row 0\n",
        "z = x / temperature\n",
        "the first 4 tokens",
        "p >= 0.05 * 0.603147 = 0.030157",
        "0.750152",
        "token   2\n",
        "logprob -2.005594\n",
    ):
        assert shown in text, shown


def test_html_and_figure():
    trace = explained(ROW, **ALL)
    html = trace.to_html()
    assert "top_k keeps the first 4 tokens: 4 so far" in html and "u = 0.750152" in html
    assert html.count("&larr; write") == 1 and html.count("read 24 B") == 2
    pytest.importorskip("matplotlib")
    unfiltered, not_valid = explained(ROW, seed=7), explained([math.nan], seed=7)
    for shown, bars in ((trace, 6 + 3), (unfiltered, 6), (not_valid, 0)):
        panel = shown.plot().axes[2]
        assert len(panel.patches) == bars
        (drawn,) = panel.lines
        assert list(drawn.get_xdata()) == [token for token in shown.indices if token >= 0]


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"operation": "sample"}, TypeError, "of sample needs seed"),
        ({"seed": 1}, TypeError, "softmax takes no seed: operation='sample' does"),
        ({"top_p": 0.5}, TypeError, "softmax takes no top_p: operation='sample' does"),
        ({"filter_apply_order": "joint"}, TypeError, "takes no filter_apply_order"),
        ({**ALL, "operation": "sample", "k": 2}, TypeError, "sample takes no k"),
        (
            {**ALL, "operation": "sample", "temperature": -1},
            ValueError,
            "temperature is -1: expected a finite",
        ),
        (
            {**ALL, "operation": "sample", "top_p": 1.5},
            ValueError,
            "top_p is 1.5: expected a number from 0 to",
        ),
        ({**ALL, "operation": "sample", "top_k": 1.5}, TypeError, "top_k is 1.5: expected an int"),
        (
            {**ALL, "operation": "sample", "seed": [1, 2]},
            TypeError,
            r"seed is \[1, 2\]: expected a number, sin",
        ),
        (
            {**ALL, "operation": "sample", "min_p": np.zeros(6)},
            TypeError,
            "min_p is array.*: expected a number",
        ),
        (
            {**ALL, "operation": "sample", "filter_apply_order": "first"},
            ValueError,
            "filter_apply_order is 'fir",
        ),
        (
            {**ALL, "operation": "sample", "method": "safe"},
            ValueError,
            "method of sample is 'safe': expected",
        ),
    ],
)
def test_bad_arguments(options, error, text):
    with pytest.raises(error, match=text):
        ons.explain(ROW, **options)
