"""explain: every number of the worked row, overflow where it happens, and steps that agree with the
kernels."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import BFLOAT16, DTYPES

import onsoftmax as ons
from onsoftmax import _core, _explain
from onsoftmax._explain import trace_text as _trace_text
from onsoftmax._plan.table import Table

ROW = [1, 2, 3, 6, 2, 1]
PAIRED = ["safe", "online", "fused", "split"]
METHODS = ["naive", *PAIRED]
EMPTY = (-math.inf, 0.0, 0.0, 0.0)
EPS = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}
NORMAL = {"float16": 2**-14, "bfloat16": 2**-126, "float32": 2**-126, "float64": 2**-1022}  # least normal
BACKWARD = {"operation": "softmax_backward", "grad": ROW}
LOSS = {"operation": "cross_entropy", "target": 3}
OF_TARGET = ["cross_entropy", "cross_entropy_with_grad", "logprob"]

finite = st.floats(-1e3, 1e3)
rows = st.lists(finite | st.sampled_from([-math.inf, 2e4, -2e4, 1e300]), min_size=1, max_size=40)


def by_kind(trace, kind):
    return [step for step in trace.steps if step.kind == kind]


# ------------------------------------------------ the worked row, number by number


def test_safe_on_the_worked_row():
    trace = ons.explain(ROW, tile=3, method="safe")
    first, second = by_kind(trace, "maximum")
    assert (first.own_m, first.m_before, first.m) == (3, -math.inf, 3)
    assert (second.own_m, second.m_before, second.m) == (6, 3, 6)
    first, second = by_kind(trace, "sum")
    assert first.exponentials == pytest.approx((0.006738, 0.018316, 0.049787), abs=5e-7)
    assert first.added == pytest.approx(0.074841, abs=5e-7)
    assert second.exponentials == pytest.approx((1, 0.018316, 0.006738), abs=5e-7)
    assert second.added == pytest.approx(1.025054, abs=5e-7)
    assert second.d_before == first.d == first.added
    assert second.d == pytest.approx(1.099895, abs=1e-6)  # the text adds rounded parts
    first, second = by_kind(trace, "divide")
    assert first.written == pytest.approx((0.006126, 0.016652, 0.045266), abs=1e-6)
    assert second.written == pytest.approx((0.909177, 0.016652, 0.006126), abs=2e-6)  # rounded too
    assert np.round(trace.result, 4).tolist() == [0.0061, 0.0167, 0.0453, 0.9092, 0.0167, 0.0061]
    assert sum(trace.result) == pytest.approx(1, abs=1e-15)
    assert trace.passes == 3


def test_online_on_the_worked_row():
    trace = ons.explain(ROW, tile=3, method="online")
    first, second = by_kind(trace, "statistics")
    assert (first.m_before, first.d_before, first.rescale) == (-math.inf, 0, 0)
    assert (first.own_m, first.m) == (3, 3) and not first.rescaled
    assert first.exponentials == pytest.approx((0.1353, 0.3679, 1), abs=5e-5)
    assert first.d == first.added == pytest.approx(1.5032, abs=5e-5)
    assert (second.m_before, second.own_m, second.m) == (3, 6, 6) and second.rescaled
    assert second.d_before == first.d
    assert second.rescale == pytest.approx(0.04979, abs=5e-6)
    assert second.d_before * second.rescale == pytest.approx(0.07484, abs=5e-6)
    assert second.exponentials == pytest.approx((1, 0.01832, 0.00674), abs=5e-6)
    assert second.added == pytest.approx(1.02506, abs=1e-5)
    assert second.d == pytest.approx(1.0999, abs=5e-5)
    assert np.round(trace.result, 4).tolist() == [0.0061, 0.0167, 0.0453, 0.9092, 0.0167, 0.0061]
    assert trace.passes == 2


def test_online_on_the_worked_row_element_by_element():
    steps = by_kind(ons.explain(ROW, tile=1, method="online"), "statistics")
    assert [step.m for step in steps] == [1, 2, 3, 6, 6, 6]
    assert [round(step.d, 4) for step in steps] == [1, 1.3679, 1.5032, 1.0748, 1.0932, 1.0999]
    assert [step.rescaled for step in steps] == [False, True, True, True, False, False]
    assert [round(step.rescale, 4) for step in steps] == [0, 0.3679, 0.3679, 0.0498, 1, 1]


def test_the_texts_hold_the_numbers():
    """The numbers of the worked example, as `onsoftmax explain` prints them."""
    in_all = "0.006738 0.018316 0.049787 0.074841 1.025054 1.099894 0.006126 0.016652 0.045265 0.909178"
    texts = {method: str(ons.explain(ROW, method=method)) for method in ("safe", "online", "split")}
    for text in texts.values():
        assert all(number in text for number in in_all.split())
        assert all(len(line) <= 80 for line in text.splitlines())
    assert all(number in texts["online"] for number in ("0.135335", "0.367879", "1.503215"))


def test_split_merges_the_parts():
    trace = ons.explain(ROW, tile=3, method="split", parts=2)
    assert [step.part for step in by_kind(trace, "statistics")] == [0, 1]
    first, second = by_kind(trace, "merge")
    assert (first.own_m, first.own_d, first.m) == (3, pytest.approx(1.503215, abs=5e-7), 3)
    assert (second.own_m, second.own_d, second.m) == (6, pytest.approx(1.025054, abs=5e-7), 6)
    assert second.rescale == pytest.approx(0.049787, abs=5e-7) and second.own_rescale == 1
    assert second.d == pytest.approx(1.099894, abs=5e-7)
    assert trace.parts == 2
    assert ons.explain(ROW, tile=3, method="split", parts=9).parts == 2
    assert ons.explain(range(10), tile=2, method="split", parts=4).parts == 3


def test_topk_on_the_worked_row():
    """Algorithm 4: the elements of each tile above the bound, and the k largest after the tile."""
    trace = ons.explain(ROW, operation="softmax_topk", k=2, tile=3)
    first, second, select = trace.steps
    assert (first.bound, first.passed, first.kept, first.kept_at) == (None, 3, (3, 2), (2, 1))
    assert (second.bound, second.passed, second.kept, second.kept_at) == (2, 1, (6, 3), (3, 2))
    assert second.rescale == pytest.approx(0.04979, abs=5e-6) and second.rescaled
    assert select.kind == "select" and select.d == pytest.approx(1.099894, abs=5e-7)
    assert trace.result == pytest.approx((0.909178, 0.045265), abs=5e-7) and trace.indices == (3, 2)
    by_one = ons.explain(ROW, operation="softmax_topk", k=2, tile=1).steps
    assert [step.passed for step in by_one[:-1]] == [1, 1, 1, 1, 0, 0]
    assert [step.bound for step in by_one[:-1]] == [None, None, 1, 2, 3, 3]
    text = str(trace)
    assert all(number in text for number in ("0.909178", "0.045265", "1.099894", "0.049787"))
    assert all(len(line) <= 80 for line in text.splitlines())


def test_topk_merges_the_parts():
    trace = ons.explain(ROW, operation="softmax_topk", k=3, method="split", parts=2)
    first, second = by_kind(trace, "merge")
    assert (first.kept, first.kept_at) == ((3, 2, 1), (2, 1, 0))
    assert (second.kept, second.kept_at) == ((6, 3, 2), (3, 2, 1))  # of the two 2s, the first
    assert second.d == pytest.approx(1.099894, abs=5e-7)
    assert by_kind(trace, "statistics")[1].kept_at == (3, 4, 5)


@given(rows, st.integers(1, 9), st.integers(1, 5), st.integers(1, 40), st.sampled_from(["online", "split"]))
def test_topk_is_that_of_softmax_topk(row, tile, parts, k, method):
    row = np.array([*row, math.nan] if k == 1 else row)
    k = min(k, len(row))
    trace = ons.explain(row, operation="softmax_topk", k=k, tile=tile, parts=parts, method=method)
    values, indices = ons.softmax_topk(row, k)
    assert trace.indices == tuple(indices.tolist())
    np.testing.assert_allclose(trace.result, values, rtol=1e-14, atol=1e-310)
    plan = ons.plan(row, operation="softmax_topk", k=k, method=method)
    assert trace.bytes_read + trace.bytes_written == plan.bytes_moved and trace.passes == 1
    for step in trace.steps[:-1]:
        if step.kind == "statistics" and step.bound is not None:
            assert step.passed == sum(not x <= step.bound for x in step.read)
    assert str(trace) and trace.to_html() and json.loads(trace.to_json())


def test_naive_in_float16_overflows_where_it_does():
    row = np.array([2, 4, 12], np.float16)
    trace = ons.explain(row, method="naive")
    step = trace.steps[0]
    assert step.exponentials == (7.390625, 54.59375, math.inf)
    assert step.exact == pytest.approx((7.389056, 54.598150, 162754.791), rel=1e-6)
    assert step.d == math.inf and step.exact_d == pytest.approx(162816.779, rel=1e-6)
    assert step.note == "exp(12) = 162754.79 is above 65504, the largest float16: inf"
    assert trace.result[:2] == (0, 0) and math.isnan(trace.result[2])
    assert trace.steps[-1].note == "inf / inf is NaN" and math.isnan(trace.error)
    assert "[0 0 nan]" not in str(trace) and "0 0 nan" in str(trace)
    element = ons.explain(row, tile=1, method="naive").steps
    assert [bool(step.note) for step in element] == [False, False, True, False, False, True]
    for method in PAIRED:
        assert ons.explain(row, method=method).result == pytest.approx((4.5e-5, 3.35e-4, 0.99962), rel=1e-2)


def test_naive_overflows_in_the_sum():
    trace = ons.explain(np.full(4, 10, np.float16), tile=1, method="naive")
    assert [step.note for step in trace.steps[:4]] == [
        "",
        "",
        "the sum is above 65504, the largest float16: inf",
        "",
    ]


def test_the_other_row_of_the_text():
    """The row [1, 2, 12]. The text prints its result under [2, 4, 12]."""
    trace = ons.explain([1, 2, 12], method="safe", dtype="float32")
    assert trace.result == pytest.approx((1.67e-5, 4.54e-5, 0.9999379), rel=1e-3)
    assert trace.steps[1].d == pytest.approx(1.0000621, abs=5e-8)


# ------------------------------------------------ the steps are the kernels'


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tile", [1, 4, 100])
def test_the_result_is_that_of_softmax(method, dtype, tile, rng):
    row = (5 * rng.standard_normal(37)).astype(dtype)
    trace = ons.explain(row, tile=tile, method=method)
    y = ons.softmax(row, method=method)
    bound = 3 * EPS[dtype.name] * (4 if method == "naive" else 1)
    np.testing.assert_allclose(trace.result, y.astype(np.float64), rtol=bound)
    assert trace.dtype == dtype.name and trace.row == tuple(row.astype(float))


SPECIAL = [
    [math.nan, 1.0, 2.0],
    [math.inf, 1.0, math.inf],
    [-math.inf, -math.inf],
    [-math.inf, 0.0, 3.0],
    [20000.0, 19999.0, 3.0],
    [1e30, 1.0, -1e30],
    [-1e30, -2e30],
    [-20000.0, -20001.0, 5.0 - 20000],
    [0.0],
]


@pytest.mark.parametrize("row", SPECIAL, ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_rows(row, method, dtype):
    x = np.array(row, dtype)
    for tile in (1, 2):
        trace = ons.explain(x, tile=tile, method=method)
        np.testing.assert_allclose(trace.result, ons.softmax(x, method=method), rtol=1e-6)
        if method != "naive" and not math.isnan(x.max()):
            assert trace.steps[-1].m == x.max()
        assert str(trace) and trace.to_html() and json.loads(trace.to_json())


@given(rows, st.integers(1, 9), st.integers(1, 5), st.sampled_from(["online", "split"]), st.booleans())
def test_tiles_and_parts_do_not_show(row, tile, parts, method, in_float):
    """The final (m, d) has the bits of the undivided row, because rescaling is exact."""
    dtype = np.float32 if in_float else np.float64
    with np.errstate(over="ignore"):
        row = np.array(row, dtype)
    last = ons.explain(row, tile=tile, method=method, parts=parts).steps[-1]
    whole = ons.explain(row, tile=len(row), method="online").steps[-1]
    assert (last.m, last.d) == (whole.m, whole.d) or math.isnan(whole.d)


@given(st.lists(finite, max_size=20), st.lists(finite, max_size=20), st.lists(finite, max_size=20))
def test_merge_is_commutative_and_associative(a, b, c):
    pairs = [_core.pair_of(tuple(part), False) for part in (a, b, c)]
    merge = _core.pair_merge
    assert merge(pairs[0], pairs[1])[:2] == merge(pairs[1], pairs[0])[:2]
    left = merge(merge(pairs[0], pairs[1]), pairs[2])
    right = merge(pairs[0], merge(pairs[1], pairs[2]))
    assert left[:2] == right[:2]
    assert _core.pair_d(left) == pytest.approx(_core.pair_d(right), rel=1e-15)
    for same in (merge(pairs[0], EMPTY), merge(EMPTY, pairs[0])):
        assert (same[0], _core.pair_d(same)) == (pairs[0][0], _core.pair_d(pairs[0]))


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=30))
def test_the_pair_of_a_row(row):
    pair = _core.pair_of(tuple(row), False)
    assert pair[0] == max(row) and pair[1] == math.ceil(max(row) * math.log2(math.e))
    assert _core.pair_d(pair) == pytest.approx(math.fsum(math.exp(x - max(row)) for x in row), rel=1e-14)


def test_pair_functions_refuse_what_is_no_pair():
    with pytest.raises(TypeError, match="tuple"):
        _core.pair_merge((1.0, 2.0, 3.0, 4.0), [1.0])
    with pytest.raises(TypeError):
        _core.pair_d((1.0, 2.0))
    with pytest.raises(ValueError, match="does not belong"):
        _core.pair_merge((1.0, 1e300, 1.0, 0.0), EMPTY)
    with pytest.raises(TypeError):
        _core.pair_of(("a",), False)
    with pytest.raises(TypeError):
        _core.pair_anchor("a")
    assert _core.pair_of((), True) == EMPTY and _core.pair_d(EMPTY) == 0
    assert [_core.pair_anchor(m) for m in (16384.0, 16385.0, -16385.0, math.inf)] == [0, 16385, -16385, 0]


# ------------------------------------------------ what is counted


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tile", [1, 4, 50])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_bytes_are_those_of_the_table(method, tile, dtype):
    row = np.zeros(17, dtype)
    trace = ons.explain(row, tile=tile, method=method)
    (facts,) = (m for m in ons.methods("cpu") if m.name == method)
    assert trace.passes == facts.passes
    assert trace.bytes_read == facts.reads * row.nbytes
    assert trace.bytes_written == facts.writes * row.nbytes
    assert trace.bytes_read + trace.bytes_written == ons.plan(row, method=method).bytes_moved
    assert sum(len(step.read) for step in trace.steps) == facts.reads * len(row)
    assert sum(len(step.written) for step in trace.steps) == facts.writes * len(row)
    counted = [(step.passes, step.bytes_read, step.bytes_written) for step in trace.steps]
    assert counted == sorted(counted)
    covered = [j for step in trace.steps if step.kind == "divide" for j in range(step.start, step.stop)]
    assert covered == list(range(len(row)))


# ------------------------------------------------ in and out


def test_plain_data():
    trace = ons.explain(np.array([2, 4, 12], np.float16), method="naive")
    data = json.loads(trace.to_json())
    assert data["result"] == [0.0, 0.0, "nan"] and data["steps"][0]["d"] == "inf"
    assert data["steps"][0]["m"] is None
    assert [step["kind"] for step in trace.to_dict()["steps"]] == ["sum", "divide"]
    assert ons.Trace(**{f.name: getattr(trace, f.name) for f in dataclasses.fields(trace)}) is not trace
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.tile = 4
    assert repr(trace) == str(trace)


@pytest.mark.parametrize("method", METHODS)
def test_html_shows_every_read_and_write(method):
    trace = ons.explain(ROW, method=method)
    html = trace._repr_html_()
    assert html.count("read 24 B") == 2 * trace.bytes_read // 48
    assert html.count("write 24 B") == 2
    page = trace.to_html()
    assert page.startswith("<!DOCTYPE html>") and html in page
    assert "<script" not in page and "http" not in page
    assert re.findall(r"<h4>([^<]*)", html)[0].startswith("Pass 1 of")
    long = ons.explain(np.arange(100.0), tile=10, method=method)._repr_html_()
    assert "x[10:20]" in long


@pytest.mark.parametrize(
    ("method", "row"),
    [
        *((method, ROW) for method in METHODS),
        ("online", list(range(60))),
        ("split", [math.nan, 1]),
        ("safe", [-math.inf]),
        ("naive", [-math.inf]),
    ],
)
def test_plot(method, row):
    pytest.importorskip("matplotlib")
    trace = ons.explain(row, method=method)
    figure = trace.plot()
    assert len(figure.axes) == 3
    bars = figure.axes[2]
    assert [patch.get_height() for patch in bars.patches] == [0 if math.isnan(y) else y for y in trace.result]
    assert len(figure.axes[0].lines) == (method != "naive" and math.isfinite(max(row))) + sum(
        step.rescaled for step in trace.steps
    )
    png = figure._repr_png_()  # for notebooks
    assert png[:4] == b"\x89PNG" and len(png) > 1000


def test_formulas_name_columns_that_are_there():
    for options in ({}, {"operation": "log_softmax"}, BACKWARD):
        heading, *tables = _trace_text.parts(ons.explain(ROW, method="split", **options))
        heads = {name for table in tables if isinstance(table, Table) for name in table.head}
        names = ("d_old * rescale", "its rescale", "its m", "its d", "its s", "sum")
        named = {name for name in names if name in heading}
        assert named and named <= heads


def test_topk_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    trace = ons.explain(ROW, operation="softmax_topk", k=2, method="split")
    figure = trace.plot()
    bars = figure.axes[2].patches
    assert [patch.get_height() for patch in bars] == list(trace.result)
    assert [patch.get_x() + patch.get_width() / 2 for patch in bars] == [3, 2]
    html = trace.to_html()
    assert html.count("write 32 B") == 1 and "0.909178 at 3" in html and "largest: 6, 3" in html


# ------------------------------------------------ other operations than softmax


def test_logarithms_of_the_worked_row():
    trace = ons.explain(ROW, operation="log_softmax")
    assert by_kind(trace, "statistics") == by_kind(ons.explain(ROW), "statistics")
    first = by_kind(trace, "subtract")[0]
    assert (first.m, first.log_d) == (6, pytest.approx(0.095214, abs=5e-7))
    assert first.written == pytest.approx((-5.095214, -4.095214, -3.095214), abs=5e-7)
    assert trace.passes == 2 and "y = x - m - log(d)" in str(trace)
    trace = ons.explain(ROW, operation="logsumexp", method="safe")
    (value,) = by_kind(trace, "value")
    assert value.written == trace.result == (pytest.approx(6.095214, abs=5e-7),)
    assert trace.passes == 2 and "y = m + log(d)" in str(trace)


def test_a_gradient_of_the_worked_row():
    y = ons.explain(ROW).result
    trace = ons.explain(y, operation="softmax_backward", grad=[0, 0, 1, 2, 0, 0])
    first, second = by_kind(trace, "total")
    assert first.products == (0, 0, y[2]) and first.s == first.added == y[2]
    assert (second.s_before, second.added) == (y[2], 2 * y[3])
    assert second.s == pytest.approx(0.045265 + 2 * 0.909178, abs=2e-6)
    assert by_kind(trace, "gradient")[1].written[0] == pytest.approx((2 - second.s) * y[3])
    text = str(trace)
    assert "s_new = s_old + sum" in text and "dx = (g - s) * y" in text
    assert "2 passes over y and g in memory: 192 bytes read, 48 written" in text
    merge = by_kind(ons.explain(y, operation="log_softmax_backward", grad=ROW, method="split"), "merge")
    assert [(step.own_s, step.s) for step in merge] == [(6, 6), (9, 15)]


def test_a_loss_of_the_worked_row():
    trace = ons.explain(ROW, operation="cross_entropy_with_grad", target=3)
    assert by_kind(trace, "statistics") == by_kind(ons.explain(ROW), "statistics")
    (loss,) = by_kind(trace, "loss")
    assert (loss.m, loss.log_d) == (6, pytest.approx(0.095214, abs=5e-7))
    assert loss.lse == 6 + loss.log_d and loss.written == (trace.loss,) == (loss.log_d,)
    assert (loss.bytes_read, loss.bytes_written) == (48, 8)  # from one read
    first, second = by_kind(trace, "gradient")
    softmax = ons.explain(ROW).result
    assert first.written == softmax[:3] and second.written == (softmax[3] - 1, *softmax[4:])
    assert trace.result == first.written + second.written and trace.passes == 2
    alone = ons.explain(ROW, operation="cross_entropy", target=3)
    assert alone.result == (trace.loss,) and alone.loss is None and alone.passes == 1
    text = str(trace)
    assert text.startswith("online: cross_entropy_with_grad of 6 float64 numbers, target 3, in tiles of 3\n")
    assert "loss = lse - x[target], lse = m + log(d)" in text and "x[3]" in text
    assert "dx = exp(x - m) / d, and 1 less at the target" in text and "loss    0.095214\n" in text
    text = str(ons.explain(ROW, operation="cross_entropy_with_grad", target=3, z_loss=0.5))
    assert "+ z_loss * lse^2" in text and "1 + 2 * z_loss * lse" in text and "z_loss 0.5" in text


def test_a_smoothed_loss_of_the_worked_row():
    trace = ons.explain(ROW, operation="cross_entropy_with_grad", target=3, label_smoothing=0.1)
    first, second = by_kind(trace, "sum_of_logits")
    assert (first.added, first.s, second.added, second.s) == (6, 6, 9, 15)
    (loss,) = by_kind(trace, "loss")
    lse = 6 + loss.log_d
    assert loss.s == 15 and trace.loss == pytest.approx(0.9 * (lse - 6) + 0.1 * (lse - 15 / 6), rel=1e-15)
    smoothed = np.full(6, 0.1 / 6) + np.array([0, 0, 0, 0.9, 0, 0])
    assert trace.result == pytest.approx(np.array(ons.explain(ROW).result) - smoothed, rel=1e-14)
    text = str(trace)
    assert "label_smoothing\n  a = 0.1, in tiles of 3" in text and "the sum s of x\n" in text
    assert "loss = (1 - a) * (lse - x[target]) + a * (lse - s / N)\n" in text
    assert "dx = exp(x - m) / d, a / N less, and 1 - a less at the target\n" in text


def test_a_log_probability_of_the_worked_row():
    trace = ons.explain(ROW, operation="logprob", target=2, entropy=True)
    assert trace.result == (pytest.approx(-3.095214, abs=5e-7),)
    first, second = by_kind(trace, "second_sum")
    assert first.products == pytest.approx([-5 * np.exp(-5), -4 * np.exp(-4), -3 * np.exp(-3)], rel=1e-14)
    assert (second.s_before, second.s) == (first.s, first.s + second.added) and second.products[0] == 0
    (entropy,) = by_kind(trace, "entropy")
    assert entropy.written == (trace.entropy,) == (pytest.approx(0.425487, abs=5e-7),)
    assert "entropy 0.425487" in str(trace) and trace.passes == 2
    alone = ons.explain(ROW, operation="logprob", target=2)
    assert alone.result == trace.result and alone.entropy is None and alone.passes == 1


@given(
    st.lists(finite | st.sampled_from([-math.inf, 2e4, -2e4, 1e30]), min_size=1, max_size=40),
    st.sampled_from([None, None, math.nan, math.inf]),
    st.integers(0, 40),
    st.integers(1, 9),
    st.integers(1, 5),
    st.sampled_from(["online", "fused", "split"]),
    st.sampled_from([0.0, 1e-4, -0.25]),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from(DTYPES),
)
def test_losses_are_those_of_the_functions(row, special, at, tile, parts, method, z_loss, smoothing, dtype):
    with np.errstate(over="ignore"):
        x = np.array([*row, *([] if special is None else [special])]).astype(dtype)
    target, how = at % len(x), {"tile": tile, "parts": parts, "method": method}

    def explained(operation, **options):
        """The trace. Its bits do not depend on tiles and parts."""
        trace = ons.explain(x, operation=operation, target=target, **options, **how)
        whole = ons.explain(x, operation=operation, target=target, **options, tile=len(x))
        assert repr((trace.result, trace.loss)) == repr((whole.result, whole.loss))
        assert str(trace) and trace.to_html() and json.loads(trace.to_json())["target"] == target
        return trace

    def agree(found, expected, size):
        assert np.shape(found) == np.shape(expected)
        # z_loss multiplies softmax, and what rounding took from its subnormal numbers
        least = NORMAL[expected.dtype.name] * np.sum(size)
        bound = 12 * EPS[expected.dtype.name] * np.maximum(size, least)
        expected = expected.astype(float)
        with np.errstate(invalid="ignore"):
            near = (found == expected) | (np.abs(found - expected) <= bound)
        assert (near | (np.isnan(found) & np.isnan(expected))).all(), (found, expected)

    terms = {"z_loss": z_loss, "label_smoothing": smoothing}
    loss, gradient = ons.cross_entropy_with_grad(x, target, **terms)
    trace = explained("cross_entropy", **terms)
    agree(trace.result[0], ons.cross_entropy(x, target, **terms), trace.size[0])
    with_gradient = explained("cross_entropy_with_grad", **terms)
    agree(with_gradient.loss, loss, trace.size[0])
    agree(with_gradient.result, gradient, with_gradient.size)
    expected = ons.logprob(x, target, entropy=True)
    trace = explained("logprob", entropy=True)
    agree(trace.result[0], expected.logprob, trace.size[0])
    agree(trace.entropy, expected.entropy, max(1, trace.entropy))


def test_naive_logarithms_overflow_too():
    row = np.array([2, 4, 12], np.float16)
    trace = ons.explain(row, operation="log_softmax", method="naive")
    assert trace.result == (-math.inf,) * 3 and trace.error == math.inf
    assert "y = x - log(d)" in str(trace)
    assert ons.explain(row, operation="logsumexp", method="naive").result == (math.inf,)


ROWS = [[*ROW, -30.0, 2.5] * 4, [20000.0, 19999.0, 3.0], [-math.inf, 1.0], [-math.inf]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "operation", [each for each in _explain.OPERATIONS if each not in (*OF_TARGET, "sample")]
)
def test_every_operation_gives_what_its_function_gives(operation, dtype, rng):
    """Values, bytes and passes, by each method."""
    facts = {m.name: m for m in ons.methods("cpu", operation=operation)}
    assert set(_explain.OPERATIONS[operation]) == set(facts) - (
        {"exact"} if operation == "softmax_topk" else set()
    )
    if operation == "softmax_topk" or dtype == np.float64:
        facts.pop("exact", None)
    for row in ROWS:
        x, function = np.array(row).astype(dtype), getattr(ons, operation)
        options, arguments = {}, [x]
        if operation.endswith("_backward"):
            x = getattr(ons, operation.removesuffix("_backward"))(x)
            options["grad"] = rng.standard_normal(len(x)).astype(dtype)
            arguments = [options["grad"], x]
        elif operation == "softmax_topk":
            options["k"] = 1
            arguments = [x, 1]
        for method in facts:
            trace = ons.explain(x, operation=operation, method=method, **options)
            expected = function(*arguments, method=method)
            expected = np.asarray(getattr(expected, "values", expected)).astype(float).reshape(-1)
            same = (trace.result == expected) | (np.isnan(expected) & np.isnan(trace.result))
            with np.errstate(invalid="ignore"):
                near = np.abs(trace.result - expected) <= 12 * EPS[dtype.name] * np.array(trace.size)
            assert (same | near).all(), (method, trace.result, expected)
            plan = ons.plan(x, operation=operation, method=method, k=options.get("k"))
            assert trace.bytes_read + trace.bytes_written == plan.bytes_moved
            assert trace.passes == facts[method].reads
            assert json.loads(trace.to_json())["operation"] == operation
            assert str(trace) and trace.to_html()


def arguments_of(operation):
    if operation.endswith("_backward"):
        return {"grad": ROW}
    return {"target": 3} if operation in OF_TARGET else {}


@pytest.mark.parametrize(
    "operation", ["log_softmax", "logsumexp", "softmax_backward", "log_softmax_backward", *OF_TARGET]
)
def test_the_texts_of_other_operations_are_narrow(operation):
    for method in _explain.OPERATIONS[operation]:
        text = str(ons.explain(ROW, operation=operation, method=method, **arguments_of(operation)))
        assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("operation", ["log_softmax", "logsumexp", "softmax_backward", *OF_TARGET])
def test_other_operations_are_drawn(operation):
    pytest.importorskip("matplotlib")
    trace = ons.explain(ROW, operation=operation, **arguments_of(operation))
    figure = trace.plot()
    assert len(figure.axes) == (2 if trace.grad else 3)
    bars = figure.axes[-1]
    assert [patch.get_height() for patch in bars.patches] == list(trace.result)
    assert bars.get_ylabel() == operation
    assert figure.axes[0].get_ylabel() == ("s" if trace.grad else "m")
    html = trace.to_html()
    assert html.count("read 48 B") + html.count("read 24 B") == len(
        [step for step in trace.steps if step.read]
    )
    assert html.count("&larr; write") == len([step for step in trace.steps if step.written])


def test_any_row_will_do():
    assert ons.explain(ROW).dtype == "float64"
    assert ons.explain((True, False)).row == (1, 0)
    assert ons.explain(np.arange(6)[::2]).row == (0, 2, 4)
    assert ons.explain(np.arange(3, dtype=">f4")).dtype == "float32"
    assert ons.explain(ROW, dtype=np.float16).dtype == "float16"
    assert len(ons.explain(np.zeros(_explain.LONGEST), tile=1000).row) == _explain.LONGEST
    if BFLOAT16:
        trace = ons.explain(ROW, dtype="bfloat16", method="naive")
        assert (trace.dtype, trace.compute) == ("bfloat16", "float32")
        assert trace.steps[0].exponentials[0] == 2.71875
        assert "3.3895e+38" in ons.explain([100.0], dtype="bfloat16", method="naive").steps[0].note


@pytest.mark.parametrize(
    "row, options, error, text",
    [
        ([], {}, ValueError, "empty"),
        ([[1, 2], [3, 4]], {}, ValueError, r"shape \(2, 2\)"),
        (3.0, {}, ValueError, r"shape \(\)"),
        (np.zeros(5000), {}, ValueError, "5000 elements.*4096"),
        (["a"], {}, TypeError, "got str in a list"),
        ([1j], {}, TypeError, "complex"),
        ([None], {}, TypeError, "got None in a list"),
        (np.ma.array([1.0], mask=[True]), {}, TypeError, "masked"),
        (ROW, {"tile": 0}, ValueError, "tile is 0"),
        (ROW, {"tile": -3}, ValueError, "tile is -3"),
        (ROW, {"tile": 1.5}, TypeError, "tile is 1.5"),
        (ROW, {"parts": 0}, ValueError, "parts is 0"),
        (ROW, {"method": "auto"}, ValueError, "naive, safe, online, fused, split"),
        (ROW, {"method": ["online"]}, ValueError, "naive, safe, online, fused, split"),
        (ROW, {"dtype": "int32"}, TypeError, "int32"),
        (np.zeros(3), {"method": "exact"}, ValueError, "float16 and bfloat16, and here the array is float64"),
        (ROW, {"method": "exact", "dtype": "float64"}, ValueError, "here the array is float64"),
        (ROW, {"operation": "softmax_topk", "k": 1, "method": "exact"}, ValueError, "one of online, split"),
        (ROW, {**BACKWARD, "method": "exact"}, ValueError, "expected one of online, fused, split"),
        (
            ROW,
            {"operation": "log_sotfmax"},
            ValueError,
            "expected one of softmax, .*; did you mean log_softmax",
        ),
        (ROW, {"operation": None}, ValueError, "operation is None: expected one of softmax, log_softmax"),
        (ROW, {"operation": "softmax_backward"}, TypeError, "softmax_backward needs grad"),
        (ROW, {"grad": ROW}, TypeError, "softmax takes no grad"),
        (
            ROW,
            {**BACKWARD, "method": "safe"},
            ValueError,
            "of softmax_backward is 'safe': expected one of online, fused",
        ),
        (ROW, {**BACKWARD, "grad": [1, 2]}, ValueError, "grad has length 2: expected 6, the length"),
        (ROW, {**BACKWARD, "grad": [[1]]}, ValueError, r"grad has shape \(1, 1\)"),
        (ROW, {**BACKWARD, "grad": ["a"]}, TypeError, "got str in a list"),
        (ROW, {"operation": "cross_entropy"}, TypeError, "of cross_entropy needs target"),
        (ROW, {"target": 3}, TypeError, "softmax takes no target: operation='cross_entropy' does"),
        (ROW, {**LOSS, "target": 6}, ValueError, "target is 6: expected the index of an element, 0 to 5"),
        (ROW, {**LOSS, "target": -100}, ValueError, "target is -100: expected the index of an element, 0"),
        (ROW, {**LOSS, "target": 3.0}, TypeError, "target is 3.0: expected the index of an element, 0"),
        (ROW, {**LOSS, "target": [3]}, TypeError, r"target is \[3\]: expected the index of an element"),
        (ROW, {**LOSS, "z_loss": math.nan}, ValueError, "z_loss is nan: expected a finite number"),
        (ROW, {"z_loss": 0.1}, TypeError, "softmax takes no z_loss: operation='cross_entropy' does"),
        (ROW, {**LOSS, "label_smoothing": 1.5}, ValueError, "label_smoothing is 1.5: expected a number from"),
        (ROW, {**LOSS, "entropy": True}, TypeError, "takes no entropy: operation='logprob' does"),
        (ROW, {**LOSS, "grad": ROW}, TypeError, "cross_entropy takes no grad"),
        (ROW, {**LOSS, "method": "naive"}, ValueError, "'naive': expected one of online, fused, split"),
        (ROW, {"operation": "softmax_topk"}, TypeError, "softmax_topk needs k"),
        (ROW, {"k": 2}, TypeError, "softmax takes no k"),
        (ROW, {"operation": "softmax_topk", "k": 7}, ValueError, "k is 7: expected 1 to 6, the length"),
        (ROW, {"operation": "softmax_topk", "k": 0}, ValueError, "k is 0: expected 1 to 6"),
        (ROW, {"operation": "softmax_topk", "k": True}, TypeError, "k is True: expected an int"),
        (ROW, {"operation": "softmax_topk", "k": 1, "method": "safe"}, ValueError, "online, split"),
    ],
)
def test_bad_input(row, options, error, text):
    with pytest.raises(error, match=text):
        ons.explain(row, **options)


def test_rows_of_other_libraries():
    """Types and errors are softmax's."""
    torch = pytest.importorskip("torch")
    values = [0.1, 2.0, -3.0, 300.0, 299.0]
    for dtype in DTYPES:
        row = torch.tensor(values, dtype=getattr(torch, dtype.name))
        for x in (row, row.expand(2, 5)[1], torch.nn.Parameter(row, requires_grad=False)):
            trace = ons.explain(x)
            assert trace.dtype == dtype.name and trace.row == tuple(row.tolist())
            assert trace == ons.explain(np.array(values).astype(dtype))
    assert ons.explain(torch.arange(3)).dtype == "float32"  # like softmax
    negated = torch.complex(torch.ones(3), torch.arange(3.0)).conj().imag
    assert ons.explain(negated).row == (0, -1, -2)
    with pytest.raises(RuntimeError, match="requires grad"):
        ons.explain(torch.ones(3, requires_grad=True))
    with pytest.raises(ValueError, match="expected one dimension"):
        ons.explain(torch.ones(3, 2))


def test_rows_by_dlpack():
    class Given:
        def __init__(self, row):
            self.row = row

        def __dlpack__(self, **keywords):
            return self.row.__dlpack__(**keywords)

    for row in (np.float32([1, 2, 3]), np.arange(5)[::-2]):
        assert ons.explain(Given(row)) == ons.explain(row)


@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")  # NumPy before 1.24: an object array
def test_lists_of_different_lengths():
    with pytest.raises((ValueError, TypeError), match=r"not one row|object"):
        ons.explain([[1], [2, 3]])
