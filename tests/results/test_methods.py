"""Every method on every instruction set of this processor, and the list of methods."""

import re
import typing

import numpy as np
import oracle
import pytest
from support import METHODS, isas, run_python

import onsoftmax as ons
from onsoftmax import _explain, _types

CHECKS = ["lengths", "places", "guard", "large", "strips", "numerics", "narrow", "scales"]


@pytest.mark.timeout(300)  # the sanitizers make the checks ten times slower
@pytest.mark.parametrize("isa", isas())
def test_instruction_set(isa):
    done = run_python(["isa_checks.py", *CHECKS], ONSOFTMAX_ISA=isa)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.splitlines() == [f"{isa} {check} passed" for check in CHECKS]


@pytest.mark.parametrize("isa", isas())
def test_the_bits_of_a_row_in_any_array(isa):
    done = run_python(["bit_checks.py", "--cases", "600"], ONSOFTMAX_ISA=isa)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


def test_the_log_of_one_row_and_of_many():
    """The sum is a tie between two floats. The logarithm of one row once rounded differently than that of
    many."""
    row = np.r_[-np.ones(12), np.zeros(5)]
    for f in (ons.log_softmax, ons.logsumexp):
        for dtype in (np.float32, np.float64):
            for method in ("safe", "online", "fused", "split"):
                alone = f(row.astype(dtype), method=method)
                for rows in (2, 5, 6, 8, 20):
                    x = np.tile(row.astype(dtype), (rows, 1))
                    assert (f(x, method=method) == alone).all()
                    assert (alone == f(x.T.copy(), 0, method=method).T).all()


def test_checks_can_fail():
    from isa_checks import check_result

    x = np.arange(300, dtype=np.float32)[None] / 50
    y = ons.softmax(x)
    check_result(y, x, -1, "safe", ())
    y[0, 7] *= 1 + 6 * np.finfo(np.float32).eps
    with pytest.raises(AssertionError, match="wrong at"):
        check_result(y, x, -1, "safe", ())


def test_methods_lists_what_runs_here():
    here = ons.methods("cpu")
    assert [m.name for m in here] == ["naive", "safe", "online", "fused", "split", "exact"]
    assert [(m.reads, m.writes) for m in here] == [(2, 1), (3, 1), (2, 1), (1, 1), (2, 1), (3, 1)]
    assert all(m.summary and m.passes == m.reads for m in here)
    assert all(m.devices == ("cpu", "cuda") for m in here)
    assert {m.name: m.keeps for m in here}["fused"] == "row"


def test_methods_of_other_devices():
    """The list is the same on every machine."""
    on_gpu = ons.methods("cuda")
    on_cpu = ons.methods("cpu")
    assert ons.methods() == on_gpu and on_gpu[: len(on_cpu)] == on_cpu
    further = on_gpu[len(on_cpu) :]
    assert [m.name for m in further] == ["fused_warp", "fused_block", "online_block", "cluster", "grid"]
    assert all(m.devices == ("cuda",) and (m.reads, m.writes) == (1, 1) for m in further)
    with pytest.raises(ValueError, match=r"'tpu'.*'cpu', 'cuda'"):
        ons.methods("tpu")
    with pytest.raises(ValueError, match="operation is 'topk': expected one of softmax, "):
        ons.methods(operation="topk")


def test_the_types_have_all_names():
    methods = typing.get_args(_types.MethodName)
    assert methods == ("auto", "invariant", *(method.name for method in ons.methods()))
    with pytest.raises(ValueError, match="expected one of") as raised:
        ons.methods(operation="none")
    assert set(str(raised.value).partition("one of ")[2].split(", ")) == {
        *typing.get_args(_types.OperationName)
    }
    assert typing.get_args(_types.ExplainedMethod) == tuple(_explain.METHODS)
    assert typing.get_args(_types.ExplainedOperation) == tuple(_explain.OPERATIONS)


def test_methods_of_an_operation():
    """The methods that plan takes for an operation, and how often they read and write the array."""
    assert [m.name for m in ons.methods("cpu", operation="softmax_topk")] == ["online", "split", "exact"]
    assert [m.name for m in ons.methods("cpu", operation="softmax_backward")] == ["online", "fused", "split"]
    on_gpu = ons.methods("cuda", operation="softmax_topk")
    own = {"online", "fused", "split", "fused_warp", "fused_block", "cluster"}
    assert {m.name for m in on_gpu} == {*own, "exact"}
    assert all((m.reads, m.writes) == (1, 0) for m in on_gpu if m.name in own)
    assert {m.name: m.reads for m in ons.methods(operation="logsumexp")}["safe"] == 2
    assert "naive" not in {m.name for m in ons.methods(operation="normalizer")}
    for device in ("cpu", "cuda"):
        for operation in ("softmax", "log_softmax", "logsumexp", "softmax_topk", "softmax_backward"):
            k = 1 if operation == "softmax_topk" else None
            known = {m.name: m for m in ons.methods(device, operation=operation)}
            for name in (m.name for m in ons.methods(device)):
                options = {"device": device, "operation": operation, "method": name, "k": k}
                if name not in known:
                    with pytest.raises(ValueError, match=f"method '{name}' cannot compute {operation}"):
                        ons.plan((1, 64), **options)
                    continue
                arrays = ons.plan((1, 64), **options).bytes_moved // 256
                inputs = 1 + operation.endswith("_backward")
                held = (device, name) == ("cuda", "exact") and operation != "softmax_topk"
                assert arrays == inputs * (1 if held else known[name].reads) + known[name].writes
    assert "softmax_topk has no pass that divides" in " ".join(str(on_gpu).split())


def test_summaries_are_true_of_every_operation():
    """All operations share the summaries."""
    for operation in typing.get_args(_types.OperationName):
        for method in ons.methods(operation=operation):
            assert not re.search("divide|exponential|two passes|three passes", method.summary)


def test_naive_overflows_by_design():
    y = ons.softmax(np.array([2, 4, 12], np.float16), method="naive")
    np.testing.assert_array_equal(y, np.array([0, 0, np.nan], np.float16))
    for dtype, over in ((np.float32, 89.0), (np.float64, 710.0)):
        assert np.isnan(ons.softmax(np.array([0, over], dtype), method="naive")[1])
        assert np.isfinite(ons.softmax(np.array([0, over - 1.5], dtype), method="naive")).all()
    # the exponentials are finite, but their sum overflows
    np.testing.assert_array_equal(ons.softmax(np.full(200, 10, np.float16), method="naive"), 0)
    # every element underflows, and 0 / 0 is NaN
    assert np.isnan(ons.softmax(np.full(3, -200, np.float32), method="naive")).all()
    for method in set(METHODS) - {"naive"}:
        np.testing.assert_allclose(ons.softmax(np.full(3, -200, np.float32), method=method), 1 / 3, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.5, 7.0, 60.0])
def test_naive_is_the_formula(dtype, scale, rng):
    x = (scale * rng.uniform(-1, 1, (20, 300))).astype(dtype)
    expected = oracle.naive(x)
    least = np.finfo(dtype).smallest_subnormal
    np.testing.assert_allclose(ons.softmax(x, method="naive"), expected, 6 * np.finfo(dtype).eps, 2 * least)


def test_plan_names_a_method_and_its_cost():
    x = np.zeros((64, 1000), np.float32)
    plan = ons.plan(x)
    assert plan.method in METHODS and plan.reason
    assert (plan.rows, plan.N, plan.form, plan.compute) == (64, 1000, "row", "float32")
    assert ons.plan(x, 0).form == "column"
    assert (ons.plan(x, 0).rows, ons.plan(x, 0).N) == (1000, 64)
    for method in ons.methods("cpu"):
        plan = ons.plan(x, method=method.name)
        assert plan.method == method.name
        assert plan.bytes_moved == x.nbytes * (method.reads + method.writes)
        assert method.name in str(plan)


def test_plan_of_a_shape_is_that_of_an_array():
    for shape, axis in (((5, 7), -1), ((5, 7), 0), ((1 << 18,), -1), ((3, 4, 5), (0, 2)), ((2, 0), 1)):
        for dtype in (np.float32, np.float64):
            assert ons.plan(shape, axis, dtype=dtype) == ons.plan(np.zeros(shape, dtype), axis)
    assert ons.plan((8, 8)).compute == "float32"
    assert ons.plan(np.zeros((8, 8)), dtype="float32").compute == "float64"
    assert ons.plan((1 << 20, 1 << 20)).rows == 1 << 20  # plan allocates nothing
    assert ons.plan((1 << 20,), num_threads=1).threads == 1


@pytest.mark.parametrize("form", ["row", "column"])
def test_plan_chooses_by_shape(form):
    """Short rows stay in the caches, a few long rows are split, and many long rows take two reads."""
    shapes = [(100, 100), (1000, 1 << 19)] + ([(1, 1 << 22)] if form == "row" else [])
    plans = [ons.plan(s if form == "row" else s[::-1], -1 if form == "row" else 0) for s in shapes]
    assert [p.method for p in plans] == ["fused", "online", "split"][: len(plans)]
    assert {p.form for p in plans} == {form}
