"""out, where, scale and dtype."""

import numpy as np
import oracle
import pytest
from support import BFLOAT16, DTYPES, STABLE_METHODS, Changes, lay_out, same_bits

import onsoftmax as ons

each_method = pytest.mark.parametrize("method", STABLE_METHODS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def make(rng, shape=(7, 300), dtype=np.float32):
    return (3 * rng.standard_normal(shape)).astype(np.float32).astype(dtype)


def assert_right(y, x, axis=-1, where=None, scale=1.0):
    compute = oracle.compute_type(x.dtype, y.dtype)
    wrong = oracle.wrong_places(y, oracle.softmax(x, axis, where, scale, compute), compute)
    assert not wrong.any(), np.argwhere(wrong)[:5]


# ---------------------------------------------------------------- out


@each_dtype
@each_method
def test_out_is_filled_and_returned(dtype, method, rng):
    for axis in (-1, 0, None):
        for of in DTYPES:
            x = make(rng, dtype=of)
            strided = lay_out(x.astype(dtype), steps=(-2, 3), byte_offset=1)
            for out in (np.empty(x.shape, dtype), np.empty(x.shape, dtype, "F"), strided):
                assert ons.softmax(x, axis, method=method, out=out) is out
                assert_right(out, x, axis)
                assert same_bits(out.copy(), ons.softmax(x, axis, method=method, dtype=dtype).copy())


@each_dtype
@pytest.mark.parametrize("method", [*STABLE_METHODS, "naive"])
def test_in_place(dtype, method, rng):
    where = rng.random((50, 2600)) < 0.5
    for keywords in ({}, {"where": where}, {"scale": 0.3}, {"where": where, "scale": -1.1}):
        for axis in (-1, 0, None):
            for order in "CF":
                x = np.array(make(rng, where.shape, dtype), order=order)
                expected = ons.softmax(x, axis, method=method, **keywords)
                assert ons.softmax(x, axis, method=method, out=x, **keywords) is x
                assert same_bits(x, expected)


@each_dtype
@each_method
def test_overlap(dtype, method, rng):
    """out and the input share memory in all other ways. The result is as if they did not."""
    buffer = make(rng, 8000, dtype)
    views = [
        (lambda b: b[:4000], lambda b: b[1:4001]),
        (lambda b: b[1:4001], lambda b: b[:4000]),
        (lambda b: b[:4000], lambda b: b[3999::-1]),
        (lambda b: b[:4000:2], lambda b: b[:2000]),
        (lambda b: b[:4000:2], lambda b: b[1:4001:2]),
        (lambda b: b[:3600].reshape(60, 60), lambda b: b[:3600].reshape(60, 60).T),
        (lambda b: b[:3600].reshape(60, 60), lambda b: b[60:3660].reshape(60, 60)),
        (lambda b: np.broadcast_to(b[:100], (40, 100)), lambda b: b[:4000].reshape(40, 100)),
    ]
    for take_x, take_out in views:
        for axis in (-1, 0):
            memory = buffer.copy()
            expected = ons.softmax(take_x(memory).copy(), axis, method=method)
            out = take_out(memory)
            ons.softmax(take_x(memory), axis, method=method, out=out)
            assert same_bits(out.copy("C"), expected.copy("C"))


@each_dtype
@pytest.mark.parametrize("method", [*STABLE_METHODS, "naive"])
def test_rows_of_out_that_are_no_number_of_elements_apart(dtype, method, rng):
    """The fields of packed records lie so."""
    for N in (1, 2, 3, 8, 16, 17, 31, 32, 33, 64, 100, 513):
        x = make(rng, (70, N), dtype)
        expected = ons.softmax(x, method=method)
        for before in (1, 3, 5):
            records = np.zeros(70, [("a", "u1", (before,)), ("b", dtype, (N,)), ("c", "u1", (2,))])
            ons.softmax(x, out=records["b"], method=method)
            assert same_bits(records["b"].copy(), expected)
            assert not records["a"].any() and not records["c"].any()
            records["b"] = x
            assert same_bits(ons.softmax(records["b"], method=method), expected)


def test_overlap_with_another_type(rng):
    for narrow, wide in ((np.float16, np.float32), (np.float32, np.float64), (np.float16, np.float64)):
        memory = np.zeros(1000, wide)
        x = memory.view(narrow)[:1000]
        x[...] = make(rng, 1000, narrow)
        expected = ons.softmax(x.copy(), dtype=wide)
        assert same_bits(ons.softmax(x, out=memory), expected)
        memory[...] = make(rng, 1000, wide)
        expected = ons.softmax(memory.copy(), dtype=narrow)
        assert same_bits(ons.softmax(memory, out=memory.view(narrow)[:1000]), expected)


def test_overlap_with_where_and_scale(rng):
    x = make(rng, (6, 80))
    out = np.zeros((6, 80), np.float32)
    where = out.view(bool)[:, :80]
    where[...] = rng.random(x.shape) < 0.5
    expected = ons.softmax(x, where=where.copy())
    assert same_bits(ons.softmax(x, where=where, out=out), expected)
    out = np.zeros((6, 80))
    out[:, 0] = rng.uniform(0.5, 2, 6)
    expected = ons.softmax(x, scale=out[:, :1].copy(), dtype=float)
    assert same_bits(ons.softmax(x, scale=out[:, :1], out=out), expected)


# ---------------------------------------------------------------- where


@each_dtype
@each_method
def test_where_broadcasts(dtype, method, rng):
    x = make(rng, (4, 3, 5, 70), dtype)
    for shape in ((4, 3, 5, 70), (4, 1, 5, 70), (1, 1, 1, 70), (70,), (5, 1), (4, 1, 1, 1), (), (1,)):
        where = rng.random(shape) < 0.7
        for mask in (where, np.asfortranarray(where), where[..., ::-1] if where.ndim else where):
            for axis in (-1, 0, 2, (1, 3), None):
                for array in (x, x.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)):
                    y = ons.softmax(array, axis, where=mask, method=method)
                    assert_right(y, x, axis, where=mask)


def test_where_of_other_kinds(rng):
    x = make(rng, (2, 3))
    where = [[True, False, True], [False, True, True]]
    expected = ons.softmax(x, where=np.array(where))
    assert same_bits(ons.softmax(x, where=where), expected)
    assert same_bits(ons.softmax(x, where=tuple(map(tuple, where))), expected)
    assert same_bits(ons.softmax(x, where=True), ons.softmax(x))
    assert same_bits(ons.softmax(x, where=None), ons.softmax(x))
    assert (ons.softmax(x, where=np.False_) == 0).all()
    torch = pytest.importorskip("torch")
    assert same_bits(ons.softmax(x, where=torch.tensor(where)), expected)
    assert np.array_equal(ons.softmax(torch.from_numpy(x), where=np.array(where)).numpy(), expected)


def test_where_of_pandas_and_jax(rng):
    x = make(rng, 4)
    expected = ons.softmax(x, where=[True, True, False, True])
    pandas = pytest.importorskip("pandas")
    assert same_bits(ons.softmax(x, where=pandas.Series([True, True, False, True])), expected)
    jax = pytest.importorskip("jax")
    assert same_bits(ons.softmax(x, where=jax.numpy.array([True, True, False, True])), expected)


# ---------------------------------------------------------------- scale


@each_dtype
@each_method
def test_scale_numbers(dtype, method, rng):
    """The product is rounded once, even if the scale is no float32."""
    x = make(rng, (5, 400), dtype)
    plain = (1, 2, 0.5, 0.1, 1 / 3, -1, -0.7, 0, 0.0, -0.0, 1e-40, 1e-300, 17.3)
    for scale in (*plain, np.float32(0.1), np.float16(3)):
        y = ons.softmax(x, scale=scale, method=method)
        assert_right(y, x, scale=float(scale))
        columns = ons.softmax(np.asfortranarray(x), scale=scale, method=method)
        assert same_bits(columns.copy("C"), y)


def test_scale_is_not_rounded_first():
    """0.1 in float32 is another number. Large logits show the difference."""
    x = (4e6 + np.arange(100)).astype(np.float32)
    rounded_first = ons.softmax(x * np.float32(0.1))
    y = ons.softmax(x, scale=0.1)
    assert_right(y, x, scale=0.1)
    assert np.abs(y / rounded_first - 1).max() > 1e-3


@each_dtype
@each_method
def test_scale_arrays(dtype, method, rng):
    x = make(rng, (4, 6, 50), dtype)
    of_one_axis = [((4, 6, 1), -1), ((6, 1), 2), ((4, 1, 1), 1), ((1, 1, 50), 0), ((), 0)]
    for shape, axis in (*of_one_axis, ((4, 1, 1), (1, 2))):
        for scale in (rng.uniform(-2, 2, shape), rng.uniform(0.1, 1, shape).astype(np.float32)):
            y = ons.softmax(x, axis, scale=scale, method=method)
            assert_right(y, x, axis, scale=scale)
    temperatures = np.broadcast_to(rng.uniform(0.5, 2, (4, 1, 1)), (4, 6, 1))[::-1]
    assert_right(ons.softmax(x, scale=temperatures, method=method), x, scale=temperatures)


def test_scale_of_other_kinds(rng):
    x = make(rng, (3, 40))
    expected = ons.softmax(x, scale=np.array([[1.0], [2.0], [0.5]]))
    for scale in ([[1.0], [2.0], [0.5]], [[1], [2], [0.5]], np.array([[1], [2], [0.5]], np.float16)):
        assert same_bits(ons.softmax(x, scale=scale), expected)
    integers = ons.softmax(x, scale=np.array([[1], [2], [3]]))
    assert same_bits(integers, ons.softmax(x, scale=[[1.0], [2.0], [3.0]]))
    assert same_bits(ons.softmax(x, scale=True), ons.softmax(x))
    if BFLOAT16:
        assert same_bits(ons.softmax(x, scale=np.array([[1], [2], [0.5]], BFLOAT16)), expected)
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert same_bits(ons.softmax(x, scale=torch.tensor([[1], [2], [0.5]], dtype=dtype)), expected)


def test_scale_at_the_edges():
    x = np.array([[1, 2, 3], [-np.inf, 0, 1], [1, np.inf, 0]], np.float32)
    assert np.isnan(ons.softmax(x, scale=np.nan)).all()
    y = ons.softmax(x, scale=0)
    np.testing.assert_allclose(y[0], 1 / 3, rtol=1e-6)
    assert np.isnan(y[1:]).all()  # 0 * inf
    y = ons.softmax(x, scale=-1)
    assert np.isnan(y[1]).all() and y[2, 1] == 0 and y[2, 2] > y[2, 0]
    where = np.isfinite(x)
    assert_right(ons.softmax(x, scale=0, where=where), x, scale=0.0, where=where)
    assert np.isnan(ons.softmax(np.array([1e38, 1], np.float32), scale=1e3)).all()  # the product is inf


# ---------------------------------------------------------------- dtype


@each_dtype
@each_method
def test_dtype_of_the_result(dtype, method, rng):
    for of in (*DTYPES, np.dtype(np.int32)):
        x = make(rng, (6, 90), of)
        for axis in (-1, 0):
            y = ons.softmax(x, axis, dtype=dtype, method=method)
            assert y.dtype == dtype
            assert_right(y, x.astype(float) if of.kind == "i" else x, axis)


def test_dtype_spellings():
    x = np.arange(4, dtype=np.float32)
    for given in (np.float64, "float64", "f8", float, np.dtype(float), ">f8"):
        assert ons.softmax(x, dtype=given).dtype == np.dtype(np.float64)
    assert ons.softmax(x, dtype="half").dtype == np.float16
    if BFLOAT16:
        assert ons.softmax(x, dtype="bfloat16").dtype == ons.softmax(x, dtype=BFLOAT16.type).dtype == BFLOAT16
    out = np.empty(4, np.float16)
    assert ons.softmax(x, dtype="float16", out=out) is out


# ---------------------------------------------------------------- arguments that change arrays


def changes_of(array):
    """Changes that Python code can make to an array in place. resize returns its memory to the system."""

    def reshape():
        array.shape = array.shape[::-1]

    def resize():
        array.resize((3, 5), refcheck=False)

    def replace():
        array.__setstate__((1, (5, 3), array.dtype, False, bytes(15 * array.itemsize)))

    return reshape, resize, replace


LARGE = (1000, 2000)  # when freed, an array of this size returns its memory to the system at once


kinds = pytest.mark.parametrize("kind", range(3), ids=["reshape", "resize", "replace"])


@kinds
@pytest.mark.parametrize("name", ["axis", "axes", "dtype", "num_threads"])
def test_arguments_are_converted_before_the_array_is_looked_at(name, kind, rng):
    def keywords_that_change(x):
        changes = Changes(changes_of(x)[kind], "f4" if name == "dtype" else 1)
        return {"axis": (0, changes)} if name == "axes" else {name: changes}

    x = make(rng, LARGE)
    y = ons.softmax(x, **keywords_that_change(x))
    assert y.shape == x.shape != LARGE
    assert_right(y, x, None if name == "axes" else -1)
    x = make(rng, LARGE)
    plan = ons.plan(x, **keywords_that_change(x))
    assert plan.rows * plan.N == x.size


@kinds
@pytest.mark.parametrize("which", ["the array", "where", "out"])
def test_arrays_that_another_argument_changes_are_refused(which, kind, rng):
    """The conversion of one argument can change arrays that were checked before."""
    values = {"where": np.array(True), "scale": np.array(2.0), "out": np.zeros(LARGE, np.float32)}
    for name in {"the array": ["where", "scale", "out"], "where": ["scale", "out"], "out": []}[which]:
        x, where = make(rng, LARGE), np.ones(LARGE, bool)
        changed = x if which == "the array" else where
        keywords = {"where": where, name: Changes(changes_of(changed)[kind], values[name])}
        with pytest.raises(RuntimeError, match=rf"^{which} was reshaped, resized.*expected it to stay"):
            ons.softmax(x, **keywords)
        assert not values["out"].any()
    if which == "out":  # out is checked last
        x, out = make(rng, LARGE), np.zeros(LARGE, np.float32)
        scale = Changes(changes_of(out)[kind], np.array(2.0))
        with pytest.raises(ValueError, match=r"out has shape \(\d+, \d+\): expected \(1000, 2000\)"):
            ons.softmax(x, scale=scale, out=out)
