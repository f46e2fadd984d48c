"""Normalizer: parts of rows merge to the same bits in any order, and finish like the whole row."""

import doctest
import functools
import pickle
import sys
from copy import deepcopy

import hypothesis.extra.numpy as arrays
import ml_dtypes
import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import run_python, same_bits

import onsoftmax as ons
import onsoftmax._normalizer as module
from onsoftmax import Normalizer

TYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
EPS = {np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7, np.float32: 2.0**-23, np.float64: 2.0**-52}
each_type = pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)


def merged(parts):
    return functools.reduce(Normalizer.merge, parts)


def exact(x, axis, where=True):
    """m and d = sum(exp(x - m)) in longdouble."""
    x = np.where(where, x.astype(np.longdouble), -np.inf)
    m = x.max(axis, initial=-np.inf, keepdims=True)
    with np.errstate(invalid="ignore"):
        d = np.exp(x - np.where(m == -np.inf, 0, m)).sum(axis)
    return m.reshape(d.shape), d


def cut(x, cuts):
    return np.split(x, sorted(cuts), -1)


def test_examples():
    failed, tried = doctest.testmod(module)
    assert failed == 0 and tried > 20


@each_type
@pytest.mark.parametrize(
    "axis, shape", [(-1, (5, 300)), (1, (3, 500, 4)), ((0, 2), (40, 3, 5)), (None, (999,))]
)
def test_m_and_d(dtype, axis, shape):
    rng = np.random.default_rng(1)
    x = (3 * rng.standard_normal(shape)).astype(dtype)
    where = rng.random(shape) > 0.2
    for keywords in ({}, {"where": where}):
        row = ons.normalizer(x, axis, **keywords)
        m, d = exact(x, axis, **keywords)
        np.testing.assert_array_equal(row.m, m)
        np.testing.assert_allclose(row.d, d.astype(float), rtol=4 * min(EPS[dtype], 2.0**-23))
        assert row.shape == row.m.shape == d.shape and row.dtype == np.dtype(dtype).name and row.axis == axis
        assert same_bits(row.softmax(x, **keywords), ons.softmax(x, axis, **keywords)) or dtype == np.float64
        assert same_bits(row.logsumexp(), ons.logsumexp(x, axis, **keywords)) or dtype == np.float64


@given(
    x=arrays.arrays(np.float64, st.tuples(st.just(2), st.integers(0, 40)), elements=st.floats()),
    dtype=st.sampled_from(TYPES),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    data=st.data(),
)
def test_no_order_and_no_grouping_shows(x, dtype, cuts, data):
    """Not even in the packed bits, for NaN, inf, both zeros and all other numbers except float64 beyond
    2^40."""
    with np.errstate(over="ignore"):
        x = (np.where(np.abs(x) > 2.0**40, np.sign(x) * 2.0**40, x) if dtype == np.float64 else x).astype(
            dtype
        )
    parts = [ons.normalizer(part) for part in cut(x, cuts)]
    wanted = merged(parts).packed.tobytes()  # the sign of a NaN too
    waiting = data.draw(st.permutations(parts))
    assert Normalizer.merge_all(np.stack([part.packed for part in waiting])).packed.tobytes() == wanted
    while len(waiting) > 1:
        i = data.draw(st.integers(0, len(waiting) - 2))
        waiting[i : i + 2] = [waiting[i + 1].merge(waiting[i])]
    assert waiting[0].packed.tobytes() == wanted


@pytest.mark.parametrize("offset", [0, 1000, -16384, 20000, 1e6, -1e9])
def test_no_order_shows_in_long_rows(offset):
    rng = np.random.default_rng(2)
    x = offset + 20 * rng.standard_normal((4, 5000)) - np.linspace(0, 300, 5000)
    parts = [ons.normalizer(part) for part in cut(x, rng.integers(0, 5000, 300))]
    wanted = merged(parts)
    for _ in range(3):
        rng.shuffle(parts)
        halves = merged(parts[:77]), merged(parts[77:])
        assert same_bits(halves[0].merge(halves[1]).packed, wanted.packed)
    np.testing.assert_array_equal(wanted.m, x.max(-1))
    d = exact(x, -1)[1]
    assert (np.abs(wanted.d - d) <= (5 if abs(offset) > 2e4 else 3) * 2.0**-52 * d).all()


@each_type
def test_bits_of_online(dtype):
    """The parts have multiples of 128 elements. d may differ by float64 roundings, which show in one of 2^27
    elements."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 5, (8, 20000)).astype(dtype)
    parts = cut(x, 128 * rng.integers(0, 150, 7))
    row = merged([ons.normalizer(part) for part in parts[::-1]])
    made = np.concatenate([row.softmax(part) for part in parts], -1)
    wanted = ons.softmax(x, method="online")
    if dtype == np.float64:
        assert (np.abs(made - wanted) <= 2 * EPS[dtype] * wanted).all()
    else:
        np.testing.assert_allclose(row.d, ons.normalizer(x).d, rtol=2.0**-51)
        assert same_bits(made, wanted)


@given(
    x=arrays.arrays(
        np.float64,
        st.tuples(st.just(2), st.integers(1, 300)),
        elements=st.floats(-1e5, 1e5),
        fill=st.nothing(),
    ),
    near=st.booleans(),
    dtype=st.sampled_from(TYPES),
    cuts=st.lists(st.integers(0, 300), max_size=4),
)
def test_any_cuts_keep_the_bounds(x, near, dtype, cuts):
    with np.errstate(over="ignore"):
        x = (x / 1e4 if near or dtype == np.float16 else x).astype(dtype)
    parts = cut(x, cuts)
    row = merged([ons.normalizer(part) for part in parts])
    made = np.concatenate([row.softmax(part) for part in parts], -1)
    largest = 4 if dtype != np.float64 else 5 if near else 8
    assert not oracle.wrong_places(made, oracle.softmax(x), oracle.compute_type(dtype), largest).any()
    made = np.concatenate([row.log_softmax(part) for part in parts], -1)
    largest = 5 if dtype == np.float64 else 3
    assert not oracle.far_from(made, oracle.log_softmax(x), oracle.compute_type(dtype), largest).any()
    assert not oracle.far_from(
        row.logsumexp(), oracle.logsumexp(x), oracle.compute_type(dtype), largest
    ).any()


def test_beyond_the_largest_place():
    """float64 rows whose reference is their own m."""
    x = 2.0**45 + np.array([[0.0, -1, 3, -700, 2, 5], [0, 1, 2, 3, -1e5, 0.5]])
    row = merged([ons.normalizer(part) for part in cut(x, [2, 3, 5])])
    np.testing.assert_array_equal(row.m, x.max(-1))
    np.testing.assert_allclose(row.d, exact(x, -1)[1].astype(float), rtol=4e-16)
    for far in (1e30, -1e30, np.finfo(float).max, -np.finfo(float).max):
        x = np.array([far, far, 0.0])
        row = ons.normalizer(x[:1]).merge(ons.normalizer(x[2:])).merge(ons.normalizer(x[1:2]))
        assert row.m == x.max() and row.d == (x == x.max()).sum()
        np.testing.assert_array_equal(row.softmax(x), ons.softmax(x))


def test_special_rows():
    x = np.array([[np.nan, 1], [1, np.inf], [-np.inf, -np.inf], [-np.inf, 2], [np.inf, np.nan]])
    row = ons.normalizer(x[:, :1]).update(x[:, 1:])
    np.testing.assert_array_equal(row.m, [np.nan, np.inf, -np.inf, 2, np.nan])
    np.testing.assert_array_equal(row.d, [np.nan, np.nan, 0, row.d[3], np.nan])
    np.testing.assert_array_equal(row.softmax(x), ons.softmax(x))
    np.testing.assert_array_equal(row.log_softmax(x), ons.log_softmax(x))
    np.testing.assert_array_equal(row.logsumexp(), ons.logsumexp(x))


def test_empty():
    empty = Normalizer.empty((2,), like=np.zeros(1, np.float32))
    both = empty.merge(empty)
    np.testing.assert_array_equal([both.m, both.d, both.logsumexp()], [[-np.inf] * 2, [0] * 2, [-np.inf] * 2])
    assert np.isnan(both.softmax(np.full((2, 3), -np.inf, np.float32))).all()
    x = np.float32([[1, 2], [-np.inf, -np.inf]])
    row = ons.normalizer(x)
    assert same_bits(row.merge(both).packed, row.packed) and same_bits(both.update(x).packed, row.packed)
    none = Normalizer.merge_all(np.zeros((0, 2, 5)))
    assert same_bits(none.packed, both.packed) and ons.normalizer(np.zeros((2, 0))).d.tolist() == [0, 0]
    assert Normalizer.empty(3, like=[1], dtype="float16", axis=0).logsumexp().dtype == np.float16
    assert Normalizer.empty((), like=x).m == -np.inf and Normalizer.empty([2, 3], like=x).shape == (2, 3)
    assert ons.normalizer(np.zeros((2, 0, 3))).packed.shape == (2, 0, 5)  # no rows


def test_options_are_kept():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((6, 200)).astype(np.float32)
    where = x > -1
    for scale in (0.7, -2, np.linspace(0.5, 2, 6)[:, None]):
        row = ons.normalizer(x[:, :64], where=where[:, :64], scale=scale)
        row = row.update(x[:, 64:], where=where[:, 64:])
        out = np.empty_like(x)
        assert row.softmax(x, where=where, out=out) is out
        np.testing.assert_allclose(out, ons.softmax(x, where=where, scale=scale), rtol=3e-7)
        wide = row.log_softmax(x, where=where, dtype="float64", num_threads=1)
        np.testing.assert_allclose(wide, ons.log_softmax(x, where=where, scale=scale), rtol=1e-6)
    columns = ons.normalizer(x.T, 0).merge(ons.normalizer(x))
    assert columns.axis == 0 and columns.softmax(x.T).shape == (200, 6)


def test_packed_goes_anywhere():
    x = np.random.default_rng(5).standard_normal((3, 4, 50)).astype(np.float32)
    row = ons.normalizer(x, scale=2)
    back = np.frombuffer(row.packed.tobytes()).reshape(row.packed.shape)
    other = Normalizer.from_packed(back, scale=2.0, dtype=np.float32)
    assert same_bits(other.packed, row.packed) and not np.shares_memory(other.packed, back)
    assert same_bits(other.merge(row).d, row.d * 2)
    copy = pickle.loads(pickle.dumps(row))
    assert repr(copy) == repr(row) and same_bits(copy.merge(row).packed, other.merge(row).packed)
    swapped = Normalizer.from_packed(back.astype(">f8"))
    bytes_off = np.frombuffer(b"-" + row.packed.tobytes(), np.uint8)[1:].view(np.float64).reshape(3, 4, 5)
    for same in (swapped, Normalizer.from_packed(bytes_off), Normalizer.from_packed(back.tolist())):
        assert same_bits(same.packed, row.packed) and same.dtype is None
    for axis in (0, 1, -1, (0, 1), None):
        parts = back[:, ::2].transpose(1, 0, 2)
        many, m = Normalizer.merge_all(parts, axis), parts[..., 0]
        np.testing.assert_array_equal(many.m, m.max(axis))
        np.testing.assert_allclose(many.logsumexp(), ons.logsumexp(m + np.log(row.d[:, ::2].T), axis))


def test_a_packed_state_takes_the_type_of_what_comes():
    x = np.random.default_rng(5).standard_normal((3, 50)).astype(np.float32)
    whole, row = ons.normalizer(x).update(x), ons.normalizer(x)
    for sent in (Normalizer.from_packed(row.packed), Normalizer.merge_all(row.packed[None])):
        assert sent.logsumexp().dtype == np.float64 and sent.merge(sent).dtype is None
        for other in (sent.update(x), sent.merge(row), row.merge(sent)):
            assert other.dtype == "float32" and same_bits(other.packed, whole.packed)
            assert same_bits(other.logsumexp(), whole.logsumexp())
        assert sent.update([[1], [2], [3]]).dtype == "float64"
        with pytest.raises(
            ValueError, match=r"chunk is of float64: expected this Normalizer's type, float32"
        ):
            sent.update(x).update(x.astype(float))


@pytest.mark.parametrize("rows", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("scale", [3.7, np.array([3.7, -0.3])])
def test_chunks_of_another_type_have_the_products_of_the_rows(rows, scale):
    """If a product of 10^4 were rounded differently, each element would change by up to 5e-4."""
    kind = np.dtype(ml_dtypes.bfloat16) if rows == "bfloat16" else np.dtype(rows)
    x = (2700 + 0.03 * np.random.default_rng(6).standard_normal((2, 500))).astype(kind)
    row = ons.normalizer(x, scale=np.reshape(scale, (-1, 1)) if np.ndim(scale) else scale)
    exact = row.softmax(x).astype(float)
    for chunk in (x, x.astype(np.float32), x.astype(np.float64)):
        if not np.array_equal(chunk.astype(kind), x) or not np.array_equal(chunk, x):
            continue  # float32 does not hold the float64 rows
        for dtype in (None, "float32", "float64"):
            y = row.softmax(chunk, dtype=dtype)
            eps = max(float(ml_dtypes.finfo(kind).eps), float(ml_dtypes.finfo(y.dtype).eps))
            assert y.dtype == (dtype or chunk.dtype)
            np.testing.assert_allclose(y.astype(float), exact, rtol=4 * eps, atol=2.0**-25)
            logs = row.log_softmax(chunk, dtype=dtype).astype(float)
            np.testing.assert_allclose(np.exp(logs), exact, rtol=40 * eps, atol=2.0**-20)


def test_a_value_never_changes():
    x = np.random.default_rng(6).standard_normal((3, 40))
    scale = np.ones((3, 1))
    row = ons.normalizer(x, scale=scale)
    before = row.softmax(x)
    scale[:] = 5
    assert same_bits(row.softmax(x), before) and row.scale.max() == 1
    for copy in (row, pickle.loads(pickle.dumps(row)), deepcopy(row), row.merge(row)):
        for array in (copy.packed, copy.scale):
            with pytest.raises(ValueError, match="read-only"):
                array[0, 0] = 99


def test_scales_are_compared_by_value():
    """However a scale is stored: another list, an array or tensor of equal numbers, or a copy by pickle."""
    x = np.random.default_rng(7).standard_normal((3, 40))
    column = [[1.0], [2.0], [np.nan]]
    scales = [column, np.array(column)]
    numbers = [2, 2.0, np.float32(2), np.array(2.0)]
    if torch := sys.modules.get("torch"):
        scales.append(torch.tensor(column))
        numbers.append(torch.tensor(2))
    for alike in (scales, numbers, [np.nan, np.array(np.nan)]):
        rows = [ons.normalizer(x, scale=scale) for scale in alike]
        rows += [pickle.loads(pickle.dumps(row)) for row in rows] + [deepcopy(row) for row in rows]
        assert same_bits(merged(rows).packed, Normalizer.merge_all([row.packed for row in rows]).packed)
    with pytest.raises(ValueError, match="other has scale"):
        rows[0].merge(ons.normalizer(x, scale=column))


def test_chunks_without_a_floating_type():
    """update takes them in the rows' type. softmax gives them the type of any list."""
    for dtype in TYPES:
        row = ons.normalizer(np.ones((2, 3), dtype))
        wanted = row.update(np.array([[1, 2], [3, 4]], dtype)).packed
        for chunk in ([[1, 2], [3.0, 4]], ((1, 2), (3, 4)), np.array([[1, 2], [3, 4]], "i2")):
            assert same_bits(row.update(chunk).packed, wanted)
    assert Normalizer.empty((), like=np.float32(0)).update(3).m == 3
    assert row.softmax([[1, 2], [3, 4]]).dtype == np.float64


def test_a_torch_tensor():
    torch = pytest.importorskip("torch")
    x = torch.randn(5, 300, dtype=torch.bfloat16)
    row = ons.normalizer(x[:, :128]).update(x[:, 128:])
    for array in (row.m, row.d, row.packed):
        assert isinstance(array, torch.Tensor) and array.dtype == torch.float64
    assert torch.equal(row.softmax(x), ons.softmax(x, method="online"))
    assert row.logsumexp().dtype == torch.bfloat16 and row.dtype == "bfloat16"
    numpy = ons.normalizer(x[:, :128].float().numpy().astype(ml_dtypes.bfloat16))
    both = row.merge(numpy)
    assert isinstance(both.packed, torch.Tensor)
    assert same_bits(numpy.merge(row).packed, both.packed.numpy())
    sent = Normalizer.from_packed(row.packed.t().contiguous().t(), dtype=torch.bfloat16)
    assert torch.equal(sent.merge(Normalizer.empty(5, like=x)).packed, row.packed)


JAX = """
import jax, numpy as np, pytest
import onsoftmax as ons
x = jax.numpy.linspace(-4, 4, 12).reshape(3, 4)
with pytest.raises(TypeError, match="float64.*jax_enable_x64"):
    ons.normalizer(x)
for call in (
    lambda: ons.softmax_topk(x, 2, return_normalizer=True),
    lambda: ons.Normalizer.empty((3,), like=x, dtype="float32"),
):
    with pytest.raises(TypeError, match="x64', True.*, or pass numpy.asarray of the array$"):
        call()
jax.config.update("jax_enable_x64", True)
row = ons.normalizer(x[:, :2]).update(x[:, 2:])
assert all(isinstance(array, jax.Array) for array in (row.m, row.d, row.packed, row.softmax(x)))
assert row.logsumexp().dtype == "float32" and row.d.dtype == "float64"
assert np.array_equal(row.m, x.max(-1)) and np.allclose(row.softmax(x), jax.nn.softmax(x))
assert ons.Normalizer.empty((3,), like=x).merge(row).merge(row).d[0] == 2 * row.d[0]
"""


def test_jax():
    pytest.importorskip("jax")
    done = run_python(["-c", JAX], JAX_ENABLE_X64=None)
    assert done.returncode == 0, done.stderr


ROW = ons.normalizer(np.ones((3, 5), np.float32))


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: ROW.merge(ROW.packed), TypeError, "other is of type ndarray: expected a Normalizer"),
        (lambda: ROW.merge(ons.normalizer(np.ones((3, 5)))), ValueError, "float64 rows: .* type, float32"),
        (lambda: ROW.update(np.ones((2, 5), "f4")), ValueError, r"rows have shape \(2,\): expected \(3,\)"),
        (
            lambda: ROW.softmax(np.ones((2, 5), "f4")),
            ValueError,
            r"^the chunk's rows have shape \(2,\): expected \(3,\)$",
        ),
        (lambda: ROW.update(np.ones((3, 5))), ValueError, "chunk is of float64: expected this Normalizer's"),
        (lambda: ROW.update(np.ma.array([[1] * 5] * 3, mask=True)), TypeError, "masked array"),
        (lambda: ROW.update([["a"] * 5] * 3), TypeError, "got str in a list: expected"),
        (
            lambda: ROW.merge(ons.normalizer(np.ones((3, 5), "f4"), scale=2)),
            ValueError,
            r"other has scale 2: expected this Normalizer's scale, 1\.0",
        ),
        (lambda: ROW.update(np.ones((3, 5), "f4"), stream=7), ValueError, "stream is given, but"),
        (
            lambda: ROW.softmax(np.ones((3, 5), "f4"), method="safe"),
            TypeError,
            r"softmax\(\) got an unexpected keyword",
        ),
        (
            lambda: Normalizer.from_packed(np.ones((3, 2))),
            ValueError,
            r"packed has shape \(3, 2\).*followed by 5",
        ),
        (
            lambda: Normalizer.from_packed(ROW.packed.astype("f4")),
            ValueError,
            "dtype float32: expected float64",
        ),
        (
            lambda: Normalizer.from_packed(np.zeros((3, 5), int)),
            ValueError,
            "packed is of int64: expected float64",
        ),
        (lambda: Normalizer.from_packed(1.0), ValueError, r"packed has shape \(\)"),
        (lambda: Normalizer.from_packed(ROW.packed, 1.5), TypeError, "axis is 1.5: expected an int"),
        (
            lambda: Normalizer.from_packed(ROW.packed, dtype=int),
            TypeError,
            "dtype is int64: expected float16",
        ),
        (lambda: Normalizer.merge_all(ROW.packed, 1), np.exceptions.AxisError, "axis 1 is out of bounds"),
        (lambda: Normalizer.empty(-1, like=1.0), ValueError, "shape is -1: expected lengths of at least 0"),
        (lambda: Normalizer.empty("ab", like=1.0), TypeError, "shape is 'ab': expected an int, or a tuple"),
        (lambda: Normalizer.empty(2.0, like=1.0), TypeError, "shape is 2.0: expected an int"),
        (lambda: setattr(ROW, "scale", 2), AttributeError, "cannot assign to field 'scale'"),
        (lambda: ons._core.merge(ROW.packed, gives="c"), ValueError, "gives is 'c': expected 'packed'"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


@each_type
def test_equal_elements_have_d_their_number(dtype):
    """d is relative to the arithmetic's own e^m. It was once 0.99999998 for a single float32 element."""
    rng = np.random.default_rng(1)
    for value in (0, 50, -3.3, 0.1, 1e4, 2e4, -3e4, *(20 * rng.standard_normal(9))):
        for count in (1, 2, 3, 7, 49, 1000):
            x = np.full(count, value).astype(dtype)
            parts = [ons.normalizer(part) for part in cut(x, [count // 3, count // 2])]
            merged = parts[2].merge(parts[0]).merge(parts[1]).merge(ons.Normalizer.empty((), like=x))
            assert ons.normalizer(x).d == merged.d == count


@each_type
def test_no_logarithm_is_above_0(dtype):
    """It once was above 0 where m is alone, because packing and unpacking the state rounded."""
    rng = np.random.default_rng(1)
    for m in (0, 50, -3.3, 0.1, 1e4, 2e4, -3e4, *(20 * rng.standard_normal(200))):
        for others in ([], [-np.inf], m - rng.uniform(20, 60, 3), [m - 1e-3]):
            x = np.r_[m, others].astype(dtype)
            row = ons.normalizer(x[1:]).merge(ons.normalizer(x[:1]))
            logs = row.log_softmax(x)
            assert (logs <= 0).all()
            if len(x) == 1 or x[1] == -np.inf:
                assert logs[0] == 0 and row.softmax(x)[0] == 1 and row.logsumexp() == x[0]
            if dtype == np.float32:
                assert (row.log_softmax(x.astype(float)) <= 0).all()
