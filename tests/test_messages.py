"""What is said to mistakes that are easy to make: what was given, what was expected, often what was meant."""

from __future__ import annotations

import numpy as np
import pytest

import onsoftmax as ons

x = np.ones((3, 4), np.float32)

MISTAKES = [
    (lambda: ons.softmax(x, dim=1), TypeError, "'dim': did you mean axis?"),
    (lambda: ons.softmax(x, axes=1), TypeError, "'axes': did you mean axis?"),
    (lambda: ons.softmax(x, temperature=2), TypeError, "did you mean scale=1 / temperature?"),
    (
        lambda: ons.log_softmax(x, mask=x > 0),
        TypeError,
        "did you mean where? It is True where elements count",
    ),
    (lambda: ons.softmax(x, keepdims=True), TypeError, "the result has all dimensions of the array"),
    (lambda: ons.softmax(x, keepdim=True), TypeError, "the result has all dimensions of the array"),
    (lambda: ons.logsumexp(x, keepdim=True), TypeError, "'keepdim': did you mean keepdims?"),
    (lambda: ons.logsumexp(x, out=x), TypeError, "'out': the result is always a new array"),
    (lambda: ons.softmax(x, methd="online"), TypeError, "'methd': did you mean method?"),
    (
        lambda: ons.softmax_topk(x, 2, dim=1),
        TypeError,
        "softmax_topk() got an unexpected keyword argument 'dim'",
    ),
    (lambda: ons.softmax(x, nothing=1), TypeError, "unexpected keyword argument 'nothing'"),
    (lambda: ons.softmax(x, method="onlin"), ValueError, "split; did you mean online?"),
    (lambda: ons.softmax(x, method="FUSED"), ValueError, "split; did you mean fused?"),
    (
        lambda: ons.softmax(x, method="flash"),
        ValueError,
        "'flash': expected one of auto, naive, safe, online",
    ),
    (lambda: ons.softmax(x, method=""), ValueError, "method is '': expected one of auto"),
    (
        lambda: ons.softmax_topk(x, 2, method="cluster"),
        ValueError,
        "is on the CPU: use one of auto, online, split",
    ),
    (lambda: ons.softmax_topk(x, 2, method="grid"), ValueError, "method 'grid' does no softmax_topk: use"),
    (lambda: ons.softmax_topk(x, 2, method="foo"), ValueError, "'foo': expected one of auto, online, split"),
    (
        lambda: ons.softmax_backward(x, x, method="safe"),
        ValueError,
        "method 'safe' does no softmax_backward: use one of auto, online, fused, split",
    ),
    (
        lambda: ons.plan((64, 50257), operation="softmax_backward", device="H200", method="online"),
        ValueError,
        "method 'online' does no softmax_backward on a GPU: use one of auto, split, cluster",
    ),
    (lambda: ons.softmax_backward(x, x + 0j), TypeError, "output: dtype complex64 is not supported"),
    (lambda: ons.softmax_backward(x + 0j, x), TypeError, "grad: dtype complex64 is not supported"),
    (lambda: ons.plan(x, operation="sofmax"), ValueError, "did you mean softmax?"),
    (lambda: ons.explain([1, 2], method="onlin"), ValueError, "did you mean online?"),
    (lambda: ons.softmax(None), TypeError, "got None: expected an array, a number, or numbers in lists"),
    (lambda: ons.softmax({"a": 1}), TypeError, "got an object of type dict: expected an array"),
    (lambda: ons.softmax(i for i in range(3)), TypeError, "got an object of type generator"),
    (lambda: ons.softmax({1.0, 2.0}), TypeError, "got an object of type set"),
    (lambda: ons.softmax([1, None]), TypeError, "got list, and something in it is no number"),
    (lambda: ons.softmax("1 2 3"), TypeError, "got str: expected an array"),
    (lambda: ons.softmax(x, out=np.empty((3, 4), int)), TypeError, "out has dtype int64: expected float16"),
    (lambda: ons.softmax(x, out=np.empty((4, 3))), ValueError, "out has shape (4, 3): expected (3, 4)"),
    (lambda: ons.softmax(x, out={}), TypeError, "out is of type dict"),
    (lambda: ons.softmax(x, dtype="float8"), TypeError, "dtype is 'float8': expected float16, bfloat16"),
    (lambda: ons.softmax(x, dtype=int), TypeError, "dtype is int64: expected float16, bfloat16"),
    (lambda: ons.softmax(x, where=[1, 0, 1, 0]), TypeError, "where has dtype int64: expected a mask of bool"),
    (lambda: ons.plan(4096), TypeError, "got 4096: expected an array, or a shape as a tuple: (4096,)"),
    (lambda: ons.plan(np.int32(7)), TypeError, "expected an array, or a shape as a tuple: (7,)"),
    (lambda: ons.plan([4096, 32000]), TypeError, "a shape as a tuple, (4096, 32000)"),
    (lambda: ons.plan((2.0, 3)), TypeError, "the shape is (2.0, 3): expected a tuple of ints"),
    (lambda: ons.plan((4, 4), device="H20"), ValueError, "device is 'H20'"),
    (
        lambda: ons.plan((1, 2**33), operation="softmax_topk", k=4, device="L4"),
        ValueError,
        "method 'auto' holds rows of at most 4294901760 elements of this type on this GPU, and these have "
        "8589934592: no method takes them",
    ),
    (
        lambda: ons.plan((1, 2**19), method="fused_block", device="H100"),
        ValueError,
        "and these have 524288: use one of auto, naive, safe, online, split, cluster, grid",
    ),
]


@pytest.mark.parametrize("call, error, text", MISTAKES, ids=[text for _, _, text in MISTAKES])
def test_mistakes(call, error, text):
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value)


def test_names_that_nobody_can_guess():
    for name in ("\ud800", "x" * 1000, "\0"):
        with pytest.raises(ValueError, match="expected one of auto"):
            ons.softmax(x, method=name)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        ons.softmax(x, **{"x" * 1000: 1})


def test_devices_by_other_names():
    plan = ons.plan((3, 4), device="cuda")
    assert ons.plan((3, 4), device="gpu") == ons.plan((3, 4), device="cuda:0") == plan
    assert ons.methods("gpu") == ons.methods("cuda:1") == ons.methods("cuda")
    torch = pytest.importorskip("torch")
    assert ons.plan((3, 4), device=torch.device("cuda", 0)) == plan
    assert ons.plan((3, 4), device=torch.device("cpu")).device == "cpu"


def test_tables_show_themselves():
    """At the prompt."""
    for shown in (ons.plan((3, 4)), ons.methods(), ons.explain([1, 2])):
        assert repr(shown) == str(shown) and "\n" in repr(shown)


def test_transforms_of_torch():
    torch = pytest.importorskip("torch")
    t = torch.ones(3, 4)
    for call in (
        lambda: torch.vmap(lambda v: ons.normalizer(v).m)(t),
        lambda: torch.func.functionalize(lambda v: ons.normalizer(v).m)(t),
    ):
        with pytest.raises(RuntimeError, match="inside vmap, grad or another transform of"):
            call()


def test_k_by_name():
    assert ons.softmax_topk(x, k=2).values.shape == ons.softmax_topk(x, 2, 1).values.shape == (3, 2)


@pytest.mark.parametrize("axis", [True, False, np.True_, (0, True), (np.False_,)], ids=repr)
def test_a_bool_is_no_axis(axis):
    """Python counts True among the ints, as 1."""
    packed = np.zeros((2, 2, 5))
    for call in (
        lambda: ons.softmax(x, axis),
        lambda: ons.logsumexp(x, axis),
        lambda: ons.log_softmax_backward(x, x, axis),
        lambda: ons.softmax_topk(x, 1, axis),
        lambda: ons.normalizer(x, axis),
        lambda: ons.plan((3, 4), axis),
        lambda: ons.Normalizer.from_packed(packed, axis),
        lambda: ons.Normalizer.merge_all(packed, axis),
        lambda: ons.Normalizer.empty((2,), like=x, axis=axis),
    ):
        with pytest.raises(TypeError, match=r"^axis is .*(True|False).*: expected an int, a tuple"):
            call()
