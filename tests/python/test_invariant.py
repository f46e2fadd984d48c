"""method="invariant" and the setting that makes it the default, without a GPU. gpu/test_invariant.py has the
bits on a GPU, core/invariant_plans.c every layout, and stand_in_checks.py what runs."""

import threading

import numpy as np
import pytest
from support import run_python, same_bits

import onsoftmax as ons
from onsoftmax import _core

GPUS = ("H100", "H200", "B200", "A100", "L4", "RTX 4090")
OPERATIONS = [
    *[(name, None) for name in ("softmax", "log_softmax", "logsumexp", "normalizer")],
    *[(name, None) for name in ("softmax_backward", "log_softmax_backward")],
    *[("softmax_topk", k) for k in (1, 300, 1500)],
]


@pytest.fixture
def by_default():
    before = ons.set_batch_invariant(True)
    yield
    ons.set_batch_invariant(before)


@pytest.mark.parametrize("gpu", GPUS)
def test_the_method_of_a_gpu_depends_on_the_length_and_the_type(gpu):
    for operation, k in OPERATIONS:
        for dtype in ("bfloat16", "float32", "float64"):
            for N in (1, 1025, 1500, 8193, 16_384, 32_000, 128_256, 262_145, 2_000_000):
                if k and k > N:
                    continue
                methods = {
                    _core.plan(
                        shape, axis, dtype=dtype, device=gpu, method="invariant", operation=operation, k=k
                    )["method"]
                    for rows in (1, 3, 64, 8192, 1_000_000)
                    for shape, axis in (((rows, N), -1), ((N, rows), 0))
                }
                assert len(methods) == 1, (operation, dtype, N, methods)


def test_a_plan_says_why():
    plan = ons.plan((1, 16_384), device="H100", method="invariant")
    assert plan.method == "fused_block" != ons.plan((1, 16_384), device="H100").method
    assert plan.reason == "it gives a row the same bits in any batch and layout" and plan.measured == ""
    here = ons.plan((4, 100), method="invariant")
    assert here.method == ons.plan((4, 100)).method


def test_the_setting():
    assert ons.get_batch_invariant() is False is ons.set_batch_invariant(True)
    try:
        assert ons.set_batch_invariant(True) is True is ons.get_batch_invariant()
        assert ons.show_config()["batch_invariant"] is True
        seen = []
        other = threading.Thread(target=lambda: seen.append(ons.get_batch_invariant()))
        other.start()
        other.join()
        assert seen == [True]
    finally:
        assert ons.set_batch_invariant(False) is True
    assert ons.get_batch_invariant() is False


@pytest.mark.parametrize("wrong", [1, None, "yes", np.True_])
def test_the_setting_refuses(wrong):
    with pytest.raises(TypeError, match=r"invariant is .*: expected a bool"):
        ons.set_batch_invariant(wrong)
    assert ons.get_batch_invariant() is False


def test_the_setting_counts_for_auto_alone(by_default):
    for rows in (1, 8192):
        plan = ons.plan((rows, 16_384), device="H100")
        assert plan.method == "fused_block" and "same bits" in str(plan)
    assert ons.plan((1, 16_384), device="H100", method="auto").method == "fused_block"
    assert ons.plan((1, 16_384), device="H100", method="cluster").method == "cluster"


ASK = ["-c", "import onsoftmax as ons; print(ons.get_batch_invariant())"]


def test_the_environment():
    for text, expected in (("1", "True"), ("0", "False"), ("", "False"), (None, "False")):
        assert run_python(ASK, ONSOFTMAX_BATCH_INVARIANT=text).stdout.split() == [expected]
    for text in ("yes", "True", "2"):
        done = run_python(ASK, ONSOFTMAX_BATCH_INVARIANT=text)
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 1
        assert last == f"ValueError: ONSOFTMAX_BATCH_INVARIANT is '{text}': expected 0 or 1"


def test_every_function_takes_it(rng):
    """bit_checks.py compares its bits on the CPU."""
    x = rng.standard_normal((3, 40)).astype(np.float32)
    y, how = ons.softmax(x), {"method": "invariant"}
    for function, arrays in (
        (ons.softmax, [x]),
        (ons.log_softmax, [x]),
        (ons.logsumexp, [x]),
        (ons.softmax_backward, [x, y]),
        (ons.log_softmax_backward, [x, y]),
    ):
        assert same_bits(function(*arrays, **how), function(*arrays))
    for made, right in zip(ons.softmax_topk(x, 5, **how), ons.softmax_topk(x, 5), strict=True):
        assert same_bits(made, right)
    row = ons.normalizer(x, **how)
    assert (
        row.method == "invariant" == row.update(x).method
        and row.merge(ons.normalizer(x)).method == row.method
    )
    assert ons.normalizer(x).merge(row).method == "auto" == ons.Normalizer.from_packed(row.packed).method
    assert same_bits(row.packed, ons.normalizer(x).packed)
    found = ons.softmax_topk(x, 5, return_normalizer=True, **how)
    assert found.normalizer.method == "invariant"


def test_the_errors_name_it():
    with pytest.raises(ValueError, match=r"method is 'invariante': expected one of auto, invariant, naive, .*"
                       r"did you mean invariant\?"):  # fmt: skip
        ons.softmax([1.0], method="invariante")
    with pytest.raises(ValueError, match="use one of auto, invariant, online"):
        ons.softmax_backward([1.0], [1.0], method="naive")
    with pytest.raises(ValueError, match="expected 'auto', 'invariant' or 'exact'"):
        ons.normalizer([1.0], method="online")
