"""Errors for easy mistakes: what was given, what was expected, and often what was meant."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

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
    (lambda: ons.softmax(x, method="onlin"), ValueError, "exact; did you mean online?"),
    (lambda: ons.softmax(x, method="FUSED"), ValueError, "exact; did you mean fused?"),
    (
        lambda: ons.softmax(x, method="flash"),
        ValueError,
        "'flash': expected one of auto, invariant, naive, safe, online",
    ),
    (lambda: ons.softmax(x, method=""), ValueError, "method is '': expected one of auto"),
    (
        lambda: ons.softmax_topk(x, 2, method="cluster"),
        ValueError,
        "is on the CPU: use one of auto, invariant, online, split",
    ),
    (
        lambda: ons.softmax_topk(x, 2, method="grid"),
        ValueError,
        "method 'grid' cannot compute softmax_topk: use",
    ),
    (
        lambda: ons.softmax_topk(x, 2, method="foo"),
        ValueError,
        "'foo': expected one of auto, invariant, online, split",
    ),
    (
        lambda: ons.softmax_backward(x, x, method="safe"),
        ValueError,
        "method 'safe' cannot compute softmax_backward: use one of auto, invariant, online, fused, split",
    ),
    (
        lambda: ons.plan((64, 50257), operation="softmax_backward", device="H200", method="online"),
        ValueError,
        "'online' cannot compute softmax_backward on a GPU: use one of auto, invariant, split, cluster",
    ),
    (lambda: ons.softmax_backward(x, x + 0j), TypeError, "output: dtype complex64 is not supported"),
    (lambda: ons.softmax_backward(x + 0j, x), TypeError, "grad: dtype complex64 is not supported"),
    (lambda: ons.plan(x, operation="sofmax"), ValueError, "did you mean softmax?"),
    (lambda: ons.explain([1, 2], method="onlin"), ValueError, "did you mean online?"),
    (lambda: ons.softmax(None), TypeError, "got None: expected an array, a number, or numbers in lists"),
    (lambda: ons.softmax({"a": 1}), TypeError, "got an object of type dict: expected an array"),
    (lambda: ons.softmax(i for i in range(3)), TypeError, "got an object of type generator"),
    (lambda: ons.softmax({1.0, 2.0}), TypeError, "got an object of type set"),
    (lambda: ons.softmax([1, None]), TypeError, "got None in a list: expected an array, a number, or"),
    (lambda: ons.softmax([[1.0, "b"], [2, 3]]), TypeError, "got str in a list: expected an array"),
    (lambda: ons.softmax([2**70, 1]), TypeError, "got an int of over 64 bits in a list: expected floats, or"),
    (
        lambda: ons.softmax(2**70),
        TypeError,
        "got an int of over 64 bits: expected floats, or ints of at most",
    ),
    (lambda: ons.softmax(Fraction(1, 2)), TypeError, "got a Fraction: expected floats, or ints"),
    (
        lambda: ons.logsumexp(((1, 2), (3, Decimal(4)))),
        TypeError,
        "got a Decimal in a tuple: expected floats",
    ),
    (
        lambda: ons.softmax_topk([1.0, object()], 1),
        TypeError,
        "got an object of type object in a list",
    ),
    (lambda: ons.softmax(x, scale=Fraction(1, 2)), TypeError, "scale: got a Fraction: expected floats"),
    (lambda: ons.softmax(x, scale=[[None]] * 3), TypeError, "scale: got None in a list: expected a real"),
    (lambda: ons.softmax(), TypeError, "softmax() needs an array as its first argument"),
    (
        lambda: ons.logsumexp(array=x),
        TypeError,
        "logsumexp() needs an array as its first argument, by position",
    ),
    (lambda: ons.softmax_topk(k=2), TypeError, "softmax_topk() needs an array as its first argument"),
    (lambda: ons.softmax_topk(x), TypeError, "softmax_topk() needs k as its second argument: the number of"),
    (lambda: ons.softmax_backward(), TypeError, "softmax_backward() needs grad and output as its first two"),
    (
        lambda: ons.log_softmax_backward(x, output=x),
        TypeError,
        "needs grad and output as its first two arguments, by position",
    ),
    (
        lambda: ons.softmax(x, -1, 2),
        TypeError,
        "softmax() takes an array and an axis by position, but 3 values",
    ),
    (lambda: ons.softmax("1 2 3"), TypeError, "got str: expected an array"),
    (lambda: ons.softmax(x, out=np.empty((3, 4), int)), TypeError, "out has dtype int64: expected float16"),
    (lambda: ons.softmax(x, out=np.empty((4, 3))), ValueError, "out has shape (4, 3): expected (3, 4)"),
    (lambda: ons.softmax(x, out={}), TypeError, "out is of type dict"),
    (lambda: ons.softmax(x, dtype="float8"), TypeError, "dtype is 'float8': expected float16, bfloat16"),
    (lambda: ons.softmax(x, dtype=int), TypeError, "dtype is int64: expected float16, bfloat16"),
    (lambda: ons.softmax(x, where="all"), TypeError, "where: got str: expected a mask of bool"),
    (
        lambda: ons.softmax([[1.0, 2.0], [3.0]]),
        ValueError,
        "got lists of different lengths: expected rows of",
    ),
    (lambda: ons.logsumexp(x, dtype=float), TypeError, "argument 'dtype': convert the array first"),
    (lambda: ons.plan(x, k=2), TypeError, "plan() of softmax takes no k: operation='softmax_topk' does"),
    (
        lambda: ons.explain([1, 2], grad=[1, 2]),
        TypeError,
        "explain() of softmax takes no grad: operation='softmax_backward' does",
    ),
    (
        lambda: ons.plan(x).seconds("1 GB/s"),
        TypeError,
        "bandwidth is '1 GB/s': expected bytes a second, a number",
    ),
    (
        lambda: ons.explain([1, 2], operation="softmax_backward", method="naive", grad=[1, 2]),
        ValueError,
        "method of softmax_backward is 'naive': expected one of online, fused, split",
    ),
    (lambda: ons.softmax(x, where=[1, 0, 1, 0]), TypeError, "where has dtype int64: expected a mask of bool"),
    (lambda: ons.plan(4096), TypeError, "got 4096: expected an array, or a shape as a tuple: (4096,)"),
    (lambda: ons.plan(np.int32(7)), TypeError, "expected an array, or a shape as a tuple: (7,)"),
    (
        lambda: ons.plan("4096x32000"),
        TypeError,
        "plan() got the string '4096x32000'. Pass a shape as a tuple: plan((4096, 32000))",
    ),
    (lambda: ons.plan("4096"), TypeError, "Pass a shape as a tuple: plan((4096,))"),
    (
        lambda: ons.plan("8X4@0"),
        TypeError,
        "got the string '8X4@0'. Pass a shape as a tuple: plan((8, 4), 0)",
    ),
    (lambda: ons.plan("large"), TypeError, "Pass a shape as a tuple: plan((4096, 32000))"),
    (lambda: ons.plan([4096, 32000]), TypeError, "a shape as a tuple, (4096, 32000)"),
    (lambda: ons.plan((2.0, 3)), TypeError, "the shape is (2.0, 3): expected a tuple of ints"),
    (lambda: ons.plan((4, 4), device="H20"), ValueError, "device is 'H20'"),
    (
        lambda: ons.plan((1, 2**33), operation="softmax_topk", k=4, device="L4"),
        ValueError,
        "method 'auto' holds rows of at most 4294901760 elements of this type on this GPU, and these rows "
        "have 8589934592: no method takes them",
    ),
    (
        lambda: ons.plan((1, 2**19), method="fused_block", device="H100"),
        ValueError,
        "rows have 524288: use one of auto, invariant, naive, safe, online, split, exact, cluster, grid",
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


def test_a_name_that_is_not_there():
    """Python's traceback adds: Did you mean: 'softmax'?"""
    with pytest.raises(AttributeError) as raised:
        ons.sofmax  # noqa: B018
    assert raised.value.name == "sofmax" and raised.value.obj is ons


def test_no_tensor():
    torch = pytest.importorskip("torch")
    for call in (
        lambda: ons.torch.softmax(x),
        lambda: ons.softmax(x, scale=torch.ones(1, requires_grad=True)),
    ):
        with pytest.raises(TypeError, match=r"the array is of type ndarray.*: expected a tensor"):
            call()


def test_devices_by_other_names():
    plan = ons.plan((3, 4), device="cuda")
    assert ons.plan((3, 4), device="gpu") == ons.plan((3, 4), device="cuda:0") == plan
    assert ons.methods("gpu") == ons.methods("cuda:1") == ons.methods("cuda")
    torch = pytest.importorskip("torch")
    assert ons.plan((3, 4), device=torch.device("cuda", 0)) == plan
    assert ons.plan((3, 4), device=torch.device("cpu")).device == "cpu"


def test_tables_show_themselves():
    """At the prompt, they print as tables."""
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
    """In Python, True is the int 1."""
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


class Index:
    def __init__(self, error):
        self.error = error

    def __index__(self):
        raise self.error


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt("mine"), ZeroDivisionError("mine")])
def test_what_an_index_raises_comes_through(error):
    for call in (
        lambda: ons.softmax(x, num_threads=Index(error)),
        lambda: ons.plan(x, num_threads=Index(error)),
        lambda: ons.set_num_threads(Index(error)),
        lambda: ons.softmax(x, Index(error)),
        lambda: ons.softmax_topk(x, Index(error)),
    ):
        with pytest.raises(type(error), match="mine"):
            call()
    with pytest.raises(TypeError, match=r"num_threads is .*: expected an int of at least 1"):
        ons.softmax(x, num_threads=Index(TypeError("mine")))


def test_values_that_do_not_change():
    for value in (ons.normalizer(x), ons.plan(x), ons.methods()[0], ons.explain([1, 2])):
        for name in ("nothing", dataclasses.fields(value)[0].name):
            with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
                setattr(value, name, 1)
            with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
                delattr(value, name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ons.normalizer(x).m = 1
    assert not hasattr(ons.normalizer(x), "__dict__")


def test_no_operator_takes_over():
    """torch and NumPy raise their own errors for such arrays. The errors keep no type of ours."""
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError, match="requires grad") as raised:
        ons.normalizer(torch.ones(3, requires_grad=True))
    assert type(raised.value) is RuntimeError
    with pytest.raises(TypeError, match="a tensor on meta"):
        ons.normalizer(torch.ones(3, device="meta"))


def test_nested_tensors():
    torch = pytest.importorskip("torch")
    plain = torch.ones(3, 4)
    for layout, grad in ((torch.strided, False), (torch.jagged, False), (torch.jagged, True)):
        rows = [torch.ones(3), torch.ones(4)]
        nested = torch.nested.nested_tensor(rows, layout=layout, requires_grad=grad)
        for call in (
            lambda t: ons.softmax(t),
            lambda t: ons.softmax_topk(t, 2),
            lambda t: ons.log_softmax_backward(plain, t),
            lambda t: ons.normalizer(t),
            lambda t: ons.plan(t),
            lambda t: ons.softmax(plain, out=t),
            lambda t: ons.softmax(plain, where=t),
            lambda t: ons.softmax(plain.clone().requires_grad_(), out=t),
        ):
            with pytest.raises(TypeError, match=r"got a nested tensor.*not supported.*unbind\(\)"):
                call(nested)


def test_forward_mode():
    torch = pytest.importorskip("torch")
    t = torch.ones(3, 4)
    for function in (ons.softmax, ons.logsumexp, lambda v: ons.softmax_topk(v, 2).values):
        for call in (lambda f: torch.func.jvp(f, (t,), (t,)), lambda f: torch.func.jacfwd(f)(t)):
            with pytest.raises(RuntimeError, match=r"has no forward-mode derivative \(jvp, jacfwd\)"):
                call(function)


AGAIN = """
import sys, types
import torch, onsoftmax

told = []
def substitute(function, **_):
    assert not any(function is each for each in told), "torch refuses a function that it knows"
    told.append(function)
    return lambda traced: traced

# torch's own takes seconds to import
sys.modules["torch._dynamo"] = types.SimpleNamespace(
    substitute_in_graph=substitute,
    trace_rules=types.SimpleNamespace(add=str),
    disable=lambda function: function,
)
onsoftmax._torch_compile.prepare()
row = torch.ones(2, requires_grad=True)
first = [name for name in sys.modules if name.partition(".")[0] == "onsoftmax"]
for names in (["onsoftmax"], ["onsoftmax", "onsoftmax._core"], ["onsoftmax._core"], first):
    for name in names:
        sys.modules.pop(name, None)
    import onsoftmax as again
    assert again.softmax([0.0, 0.0]).tolist() == onsoftmax.softmax([0.0, 0.0]).tolist() == [0.5, 0.5]
    print(again.softmax(row).tolist(), flush=True)
"""


def test_a_second_import():
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True)
    assert done.stdout == "[0.5, 0.5]\n" * 3, done.stderr
    # torch keeps the operators of the first import
    assert "RuntimeError: onsoftmax is imported a second time in this process" in done.stderr
