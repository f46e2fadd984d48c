"""plan of calls that are more than a method: losses, log-probabilities, divergences, routers, samplers."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest

import onsoftmax as ons
from onsoftmax._cli import plan as cli_plan
from onsoftmax._plan import terms

DEVICES = ["cpu", "H100", "A100"]
LOGITS = 4096, 32000
WITH_K = {"route": {"k": 8}}
NAMES = [*terms._TAKES]
CASES = [
    ("cross_entropy", {}),
    ("cross_entropy", {"label_smoothing": 0.1, "weight": True, "reduction": "none"}),
    ("cross_entropy_with_grad", {}),
    ("cross_entropy_with_grad", {"label_smoothing": 0.1}),
    ("logprob", {}),
    ("logprob", {"entropy": True, "rank": True, "topk": 4}),
    ("kl_divergence", {"reduction": "mean"}),
    ("kl_divergence_with_grad", {"wrt": "q"}),
    ("js_divergence", {}),
    ("js_divergence_with_grad", {"scale": 0.5}),
    ("route", {"k": 8}),
    ("route", {"k": 8, "bias": True, "groups": 8, "top_groups": 4}),
    ("sample", {}),
    ("sample", {"top_k": 50, "top_p": 0.9}),
]


def plan_of(operation, shape=LOGITS, **keywords):
    return ons.plan(shape, operation=operation, **{**WITH_K.get(operation, {}), **keywords})


def passes(plan):
    """The reads and the writes of all steps."""
    return sum(step.reads for step in plan.steps), sum(step.writes for step in plan.steps)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("operation, given", CASES)
def test_bytes_are_those_of_the_steps(operation, given, device):
    """The rest are the results, of at most 16 bytes a row and an expert or token."""
    for shape in ((4096, 256), LOGITS, (3, 600000)):
        plan = plan_of(operation, shape, device=device, dtype="bfloat16", **given)
        a_row = 16 * max(plan.k or 1, given.get("topk", 0))
        rest = plan.bytes_moved - sum(passes(plan)) * 2 * shape[0] * shape[1]
        assert 0 < rest <= 2 * a_row * shape[0]
        assert {step.method for step in plan.steps} >= {plan.method}
        (own,) = plan.others
        assert own.method == plan.method and own.bytes_moved == plan.bytes_moved
        text = " ".join(str(plan).split())
        assert f"{operation} " in text and all(step.what.split()[0] in text for step in plan.steps)
        data = plan.to_dict()
        assert json.loads(json.dumps(data, allow_nan=False)) == data
        assert [ons.PlanStep(**step) for step in data["steps"]] == [*plan.steps]
        assert "what runs in turn" in plan.to_html()


@pytest.mark.parametrize(
    "operation, given, on_cpu, on_gpu, long_on_gpu",
    [
        ("cross_entropy", {}, (1, 0), (1, 0), (1, 0)),
        ("cross_entropy", {"label_smoothing": 0.1}, (2, 0), (2, 0), (2, 0)),
        ("cross_entropy_with_grad", {}, (2, 1), (1, 1), (2, 1)),
        ("cross_entropy_with_grad", {"label_smoothing": 0.1}, (3, 1), (3, 1), (3, 1)),
        ("logprob", {}, (1, 0), (1, 0), (1, 0)),
        ("logprob", {"entropy": True}, (2, 0), (1, 0), (1, 0)),
        ("logprob", {"topk": 3}, (2, 0), (2, 0), (2, 0)),
        ("kl_divergence", {}, (3, 0), (2, 0), (2, 0)),
        ("kl_divergence_with_grad", {}, (3, 1), (2, 1), (4, 1)),
        ("kl_divergence_with_grad", {"wrt": "q"}, (4, 1), (2, 1), (4, 1)),
        ("js_divergence", {}, (2, 0), (2, 0), (4, 0)),
        ("js_divergence_with_grad", {}, (2, 1), (2, 1), (6, 1)),
        ("route", {}, (1, 0), (1, 0), (1, 0)),
        ("route", {"bias": True}, (1, 0), (2, 0), (2, 0)),
        ("route", {"bias": True, "score": "sigmoid"}, (1, 0), (1, 0), (1, 0)),
        ("route", {"groups": 4, "top_groups": 2, "renormalize": False}, (2, 0), (2, 0), (2, 0)),
        ("sample", {}, (1, 0), (1, 0), (1, 0)),
        ("sample", {"top_k": 50}, (1, 0), (1, 0), (1, 0)),
        ("sample", {"top_k": 5000}, (1, 0), (1, 0), (1, 0)),
        ("sample", {"top_k": 5000, "top_p": 0.9, "min_p": 0.1}, (1, 0), (1, 0), (1, 0)),
    ],
)
def test_reads_and_writes(operation, given, on_cpu, on_gpu, long_on_gpu):
    """The numbers of the kernels' files."""
    shape = (64, 32000)
    assert passes(plan_of(operation, shape, num_threads=1, **given)) == on_cpu
    assert passes(plan_of(operation, shape, device="H100", **given)) == on_gpu
    assert passes(plan_of(operation, (64, 2**20), device="H100", **given)) == long_on_gpu


def test_rows_beyond_the_caches_are_read_twice_by_softmax():
    for operation, reads in (("kl_divergence", 6), ("js_divergence", 4), ("sample", 2)):
        plan = plan_of(operation, (64, 2**20), num_threads=1)
        assert passes(plan) == (reads, 0) and plan.method == "online"


@pytest.mark.parametrize(
    "operation, N, method",
    [
        ("cross_entropy_with_grad", 1024, "fused_warp"),
        ("cross_entropy_with_grad", 8192, "fused_block"),
        ("cross_entropy_with_grad", 32000, "cluster"),
        ("cross_entropy_with_grad", 2**20, "online"),
        ("kl_divergence", 32000, "cluster"),
        ("js_divergence", 32000, "cluster"),
        ("route", 1024, "fused_warp"),
        ("route", 1025, "online"),
    ],
)
def test_the_method_on_a_gpu(operation, N, method):
    plan = plan_of(operation, (4096, N), dtype="bfloat16", device="H100")
    assert plan.method == method and method in str(plan)
    cliffs = plan.cliffs()
    limits = [0, *(cliff.N for cliff in cliffs), 2**30]
    names = [cliff.method for cliff in cliffs] + [cliffs[-1].then if cliffs else method]
    (own,) = (name for name, low, high in zip(names, limits, limits[1:], strict=False) if low < N <= high)
    assert own == method


def test_why_a_loss_is_found_before_its_gradient():
    held = plan_of("cross_entropy_with_grad", device="H100")
    assert len(held.steps) == 1 and "one read" in held.reason
    for given, words in (
        ({"label_smoothing": 0.1, "device": "H100"}, "label_smoothing needs a sum of each row"),
        ({"dtype": "float64", "device": "H100"}, "no kernel holds such rows"),
        ({"method": "invariant", "device": "H100"}, "the same bits in any batch"),
        ({}, "two reads"),
    ):
        plan = plan_of("cross_entropy_with_grad", **given)
        assert words in plan.reason and plan.steps[-1].what == "the gradient"


def test_cliffs_of_groups():
    """Lengths are multiples of the number of groups."""
    plan = plan_of("route", (64, 252), groups=12, top_groups=3, bias=True, device="H100")
    assert [(cliff.N, cliff.method, cliff.then) for cliff in plan.cliffs()] == [
        (1020, "fused_warp", "online")
    ]
    assert "auto takes it for rows of 36 to 1020" in str(plan)


def test_a_batch_has_no_effect_on_invariant():
    for operation in NAMES:
        for N in (600, 40000):
            methods = {
                plan_of(operation, (rows, N), method="invariant", device="H100").method
                for rows in (1, 64, 10000)
            }
            assert len(methods) == 1


@pytest.mark.parametrize("operation", NAMES)
def test_defaults_are_those_of_the_call(operation):
    """weight and bias are arrays in a call, and True or False in a plan."""
    call = inspect.signature(getattr(ons, operation)).parameters
    for name, default in terms.defaults_of(operation).items():
        assert default == (False if name in ("weight", "bias") else call[name].default)


def test_an_array_has_the_plan_of_its_shape():
    x = np.zeros((6, 500), np.float32)
    for operation in NAMES:
        assert plan_of(operation, x) == plan_of(operation, x.shape)
    assert plan_of("cross_entropy", (500, 6), axis=0).form == "column"


def test_arrays_as_arguments():
    given = plan_of("route", (8, 64), bias=np.zeros(64))
    assert given == plan_of("route", (8, 64), bias=True) and given.arguments["bias"] is True
    given = plan_of("sample", (8, 64), top_k=np.arange(8), device="H100")
    assert given == plan_of("sample", (8, 64), top_k=None, device="H100")
    assert given.arguments["top_k"] is None and any("more tokens" in step.what for step in given.steps)


@pytest.mark.parametrize(
    "error, words, operation, given",
    [
        (ValueError, "operation is 'rout': expected one of .*; did you mean route", "rout", {}),
        (ValueError, "did you mean kl_divergence_with_grad", "kl_divergence_with_gra", {}),
        (ValueError, "expected one of", "logprob_backward", {}),
        (TypeError, "plan\\(\\) of softmax got the argument 'groups'", "softmax", {"groups": 8}),
        (TypeError, "its plan takes label_smoothing, weight and reduction", "cross_entropy", {"beta": 1}),
        (TypeError, "plan\\(\\) of sample takes no k", "sample", {"k": 1}),
        (TypeError, "plan\\(\\) of route needs k", "route", {"k": None}),
        (ValueError, "k is 0", "route", {"k": 0}),
        (ValueError, "groups is 7: expected a divisor of the 32000 experts", "route", {"groups": 7}),
        (ValueError, "top_groups is 9", "route", {"groups": 8, "top_groups": 9}),
        (ValueError, "score is 'relu'", "route", {"score": "relu"}),
        (ValueError, "top_p is 2", "sample", {"top_p": 2}),
        (ValueError, "label_smoothing is 3", "cross_entropy", {"label_smoothing": 3}),
        (ValueError, "wrt is 'r'", "kl_divergence_with_grad", {"wrt": "r"}),
        (ValueError, "topk is -1", "logprob", {"topk": -1}),
        (ValueError, "method is 'cluster': expected 'auto' or 'invariant'", "route", {"method": "cluster"}),
        (TypeError, "axis is None: expected an int", "logprob", {"axis": None}),
    ],
)
def test_arguments_that_are_refused(error, words, operation, given):
    with pytest.raises(error, match=words):
        plan_of(operation, **given)


def test_arrays_that_are_refused():
    with pytest.raises(ValueError, match="expected at least one dimension"):
        plan_of("cross_entropy", ())
    with pytest.raises(TypeError, match="takes no dtype with an array"):
        plan_of("cross_entropy", np.zeros((2, 3)), dtype="float32")
    with pytest.raises(ValueError, match="rows of length 0"):
        plan_of("sample", (3, 0))


def test_rows_of_no_number_or_length():
    for operation in NAMES:
        for device in DEVICES:
            assert plan_of(operation, (0, 64), device=device).bytes_moved == 0
    for operation in ("cross_entropy", "logprob", "kl_divergence"):
        assert passes(plan_of(operation, (5, 0))) > (0, 0)


def test_the_command(capsys):
    import argparse

    parser = argparse.ArgumentParser()
    cli_plan.add(parser.add_subparsers())
    line = (
        "plan 4096x256 --operation route -k 8 --device H100 --json --with groups=8 top_groups=4 score=sigmoid"
    )
    options = parser.parse_args(line.split())
    assert options.run(options) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["arguments"] == {
        "score": "sigmoid",
        "bias": False,
        "groups": 8,
        "top_groups": 4,
        "renormalize": True,
    }
    with pytest.raises(SystemExit):
        parser.parse_args(["plan", "3x4", "--with", "groups"])
    assert "expected a name and a value" in capsys.readouterr().err
