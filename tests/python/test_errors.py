"""Errors for wrong arguments: the exception, and a text that says what was given and what was expected."""

import re

import numpy as np
import pytest

import onsoftmax as ons

X = np.zeros((3, 4), np.float32)
READ_ONLY = np.zeros((3, 4), np.float32)
READ_ONLY.flags.writeable = False
AxisError = getattr(np, "exceptions", np).AxisError


class Masked:
    """Its __array__ returns a masked array."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.ma.array(self.values)


ERRORS = [  # arguments, keywords, exception, words of the text
    ((), {}, TypeError, ["array"]),
    ((X, 0, 1), {}, TypeError, ["position", "3"]),
    ((X,), {"axes": 0}, TypeError, ["unexpected", "axes"]),
    ((X, 0), {"axis": 0}, TypeError, ["multiple", "axis"]),
    ((X, 2), {}, AxisError, ["axis 2", "dimension 2"]),
    ((X, -3), {}, AxisError, ["axis -3", "dimension 2"]),
    ((X, (0, 5)), {}, AxisError, ["axis 5", "dimension 2"]),
    ((X, 10**30), {}, AxisError, ["axis 1000000", "dimension 2"]),
    ((1.0, 1), {}, AxisError, ["axis 1", "dimension 0"]),
    ((X, (0, 0)), {}, ValueError, ["axis 0", "twice"]),
    ((X, (1, -1)), {}, ValueError, ["axis -1", "twice"]),
    ((X, 1.0), {}, TypeError, ["axis is 1.0", "int", "tuple", "None"]),
    ((X, [0, 1]), {}, TypeError, ["axis is [0, 1]", "tuple"]),
    ((X, "0"), {}, TypeError, ["axis is '0'", "int"]),
    (
        (X,),
        {"method": "quick"},
        ValueError,
        ["'quick'", "auto, invariant, naive, safe, online, fused, split, exact"],
    ),
    ((X,), {"method": ""}, ValueError, ["''", "naive"]),
    ((X,), {"method": "safe\0"}, ValueError, ["safe", "naive"]),
    ((X,), {"method": 3}, TypeError, ["method is 3", "string"]),
    ((X,), {"method": None}, TypeError, ["method is None", "string"]),
    (
        (X,),
        {"method": "cluster"},
        ValueError,
        ["cluster", "CUDA", "CPU", "auto, invariant, naive, safe, online, fused"],
    ),
    ((X,), {"method": "fused_warp"}, ValueError, ["'fused_warp'", "CUDA", "fused"]),
    ((X,), {"dtype": "float128"}, TypeError, ["float16, bfloat16, float32 or float64"]),
    ((X,), {"dtype": np.longdouble}, TypeError, ["float16, bfloat16, float32 or float64"]),
    ((X,), {"dtype": int}, TypeError, ["int", "float16, bfloat16, float32 or float64"]),
    ((X,), {"dtype": "complex64"}, TypeError, ["complex64", "float16, bfloat16, float32 or float64"]),
    ((X,), {"dtype": "no such type"}, TypeError, ["no such type"]),
    ((X,), {"out": np.zeros((4, 3), np.float32)}, ValueError, ["out", "(4, 3)", "(3, 4)"]),
    ((X,), {"out": np.zeros(12, np.float32)}, ValueError, ["out", "(12,)", "(3, 4)"]),
    ((X,), {"out": READ_ONLY}, ValueError, ["out", "read-only"]),
    ((X,), {"out": np.zeros((3, 4), int)}, TypeError, ["int64", "float16, bfloat16, float32 or float64"]),
    ((X,), {"out": np.zeros((3, 4), bool)}, TypeError, ["out", "bool", "float32"]),
    ((X,), {"out": np.zeros((3, 4), ">f4")}, ValueError, ["out", ">f4", "native"]),
    ((X,), {"out": np.zeros((3, 4), np.longdouble)}, TypeError, ["float16, bfloat16, float32 or float64"]),
    ((X,), {"out": [[0.0] * 4] * 3}, TypeError, ["out", "list", "array"]),
    ((X,), {"out": np.zeros((3, 4)), "dtype": "float32"}, ValueError, ["out", "float64", "float32"]),
    ((X,), {"where": np.ones((3, 4), int)}, TypeError, ["where", "int64", "bool"]),
    ((X,), {"where": "yes"}, TypeError, ["where", "bool"]),
    ((X,), {"where": np.ones((4, 3), bool)}, ValueError, ["where", "(4, 3)", "(3, 4)"]),
    ((X,), {"where": np.ones((2, 3, 4), bool)}, ValueError, ["where", "(2, 3, 4)", "(3, 4)"]),
    ((X,), {"scale": np.ones((3, 4))}, ValueError, ["scale", "(3, 4)", "length 1 along axis"]),
    ((X,), {"scale": np.ones(3)}, ValueError, ["scale", "(3,)", "(3, 4)", "(3, 1)"]),
    ((X, None), {"scale": np.ones((3, 1))}, ValueError, ["scale", "(3, 1)", "(3, 4)"]),
    ((X,), {"scale": "2"}, TypeError, ["scale", "real number"]),
    ((X,), {"scale": None}, TypeError, ["scale", "real number"]),
    ((X,), {"scale": 1j}, TypeError, ["scale", "complex", "real number"]),
    ((X,), {"scale": 10**400}, ValueError, ["scale", "int", "too large", "1.8e308"]),
    ((X,), {"scale": -(10**5000)}, ValueError, ["scale", "int", "too large", "1.8e308"]),
    ((X,), {"scale": [10**400]}, TypeError, ["scale: got an int of over 64 bits in a list"]),
    ((X,), {"where": np.ma.array(X == 0, mask=X == 1)}, TypeError, ["where", "masked", ".data"]),
    ((X,), {"scale": np.ma.array([[2.0]], mask=[[True]])}, TypeError, ["scale", "masked", ".data"]),
    ((X,), {"scale": np.ma.masked}, TypeError, ["scale", "masked"]),
    ((X,), {"out": np.ma.array(X)}, TypeError, ["out", "masked", ".data"]),
    ((Masked(X),), {}, TypeError, ["masked", "where"]),
    ((X,), {"where": Masked(X == 0)}, TypeError, ["where", "masked", ".data"]),
    ((X,), {"scale": Masked(2.0)}, TypeError, ["scale", "masked", ".data"]),
    ((X,), {"stream": 0}, ValueError, ["stream", "CPU"]),
    ((X,), {"num_threads": 0}, ValueError, ["num_threads is 0", "at least 1"]),
    ((X,), {"num_threads": -4}, ValueError, ["num_threads is -4", "at least 1"]),
    ((X,), {"num_threads": 1.5}, TypeError, ["num_threads is 1.5", "int"]),
    ((np.zeros(3, np.longdouble),), {}, TypeError, ["float16, bfloat16, float32 or float64"]),
    ((np.zeros(3, complex),), {}, TypeError, ["complex128", "float16, bfloat16, float32 or float64"]),
    ((np.zeros(3, object),), {}, TypeError, ["object", "float16, bfloat16, float32 or float64"]),
    ((np.zeros(3, "U4"),), {}, TypeError, ["U4", "float16, bfloat16, float32 or float64"]),
    ((np.zeros(3, "M8[s]"),), {}, TypeError, ["datetime64", "float16, bfloat16, float32 or float64"]),
    ((np.zeros(3, "f4,f4"),), {}, TypeError, ["f0", "float16, bfloat16, float32 or float64"]),
    ((np.ma.array([1.0, 2.0], mask=[0, 1]),), {}, TypeError, ["masked", "where"]),
    ((["a", "b"],), {}, TypeError, ["got str in a list: expected an array"]),
    (("text",), {}, TypeError, ["got str: expected an array"]),
    ((b"bytes",), {}, TypeError, ["got bytes: expected an array"]),
    ((None,), {}, TypeError, ["got None: expected an array"]),
    ((1j,), {}, TypeError, ["complex128", "float16, bfloat16, float32 or float64"]),
    (([1j, 2],), {}, TypeError, ["complex128", "float16, bfloat16, float32 or float64"]),
    (([[1, 2], [3]],), {}, ValueError, ["different lengths"]),
    ((10**400,), {}, TypeError, ["got an int of over 64 bits"]),
    ((object(),), {}, TypeError, ["got an object of type object"]),
]


@pytest.mark.parametrize("case", ERRORS, ids=map(str, range(len(ERRORS))))
def test_errors(case):
    arguments, keywords, exception, names = case
    before = READ_ONLY.copy()
    with pytest.raises(exception) as caught:
        ons.softmax(*arguments, **keywords)
    assert type(caught.value) is exception
    missing = [name for name in names if not re.search(re.escape(name), str(caught.value))]
    assert not missing, str(caught.value)
    assert np.array_equal(READ_ONLY, before)


def test_out_with_elements_in_one_place():
    memory = np.zeros(40, np.float32)
    for out in (np.broadcast_to(memory[:4], (3, 4)), np.lib.stride_tricks.as_strided(memory, (3, 4), (0, 4))):
        with pytest.raises(ValueError, match=r"out is (broadcast|read-only)"):
            ons.softmax(X, out=out)
    assert not memory.any()


def places_of(shape, strides):
    """The distances in bytes from an array's first element to each element, sorted."""
    places = np.zeros(1, int)
    for n, step in zip(shape, strides, strict=True):
        places = np.add.outer(places, np.arange(n) * step)
    return np.sort(places, None)


def test_out_whose_elements_overlap(rng):
    """Whatever its strides are, out is refused if its elements overlap, and only then."""
    counts = {True: 0, False: 0}
    for _ in range(3000):
        ndim, unit = rng.integers(1, 5), rng.choice([1, 4])
        shape = tuple(map(int, rng.integers(0 if rng.random() < 0.05 else 1, 5, ndim)))
        strides = tuple(int(unit * step) for step in rng.integers(-6, 16, ndim) * (rng.random(ndim) < 0.9))
        places = places_of(shape, strides)
        memory = np.zeros(1000, np.uint8)
        out = np.ndarray(shape, np.float32, memory, 500, strides)
        overlaps = places.size > 1 and bool(np.diff(places).min() < out.itemsize)
        counts[overlaps] += 1
        x = rng.standard_normal(shape).astype(np.float32)
        if overlaps:
            with pytest.raises(ValueError, match="out is broadcast, or strided so that its elements overlap"):
                ons.softmax(x, out=out)
            assert not memory.any()
        else:
            assert ons.softmax(x, out=out) is out
            assert np.array_equal(out, ons.softmax(x))
    assert min(counts.values()) > 300


def test_out_whose_elements_lie_between_each_other():
    """The longer stride does not reach past the shorter ones, but no two elements overlap."""
    memory = np.zeros(8, np.float32)
    out = np.lib.stride_tricks.as_strided(memory, (2, 3), (12, 8))  # elements 0 2 4 and 3 5 7
    assert ons.softmax(np.ones((2, 3), np.float32), out=out) is out
    assert np.array_equal(memory != 0, [True, False, True, True, True, True, False, True])


def test_no_memory_is_a_memory_error():
    """The input is one number. Its result is larger than any memory."""
    x = np.broadcast_to(np.float32(1), (1 << 20, 1 << 20, 1 << 10))
    with pytest.raises(MemoryError):
        ons.softmax(x)


def test_errors_of_plan():
    with pytest.raises(ValueError, match="'quick'"):
        ons.plan((3, 4), method="quick")
    with pytest.raises(AxisError):
        ons.plan((3, 4), 2)
    with pytest.raises(ValueError, match="negative"):
        ons.plan((3, -4))
    for shape in ((1 << 40, 1 << 40), (1 << 61,), (1 << 62, 1), (1 << 70,), (1 << 48, 2)):
        with pytest.raises(ValueError, match=r"shape.*expected at most 2\^48 elements"):
            ons.plan(shape)
    with pytest.raises(ValueError, match="'tpu'"):
        ons.plan((3, 4), device="tpu")
    with pytest.raises(ValueError, match=r"'cuda'.*the CPU"):
        ons.plan(X, device="cuda")
