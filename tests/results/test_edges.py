"""The contract's table of edges, all kinds of axes, and arrays in all kinds of memory."""

import itertools

import numpy as np
import oracle
import pytest
from support import BFLOAT16, DTYPES, METHODS, STABLE_METHODS, bits, lay_out, same_bits

import onsoftmax as ons

NAN, INF = np.nan, np.inf
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_method = pytest.mark.parametrize("method", STABLE_METHODS)


def assert_right(y, x, axis=-1, **keywords):
    exact = oracle.softmax(x, axis, **keywords)
    wrong = oracle.wrong_places(y, exact, oracle.compute_type(x.dtype, y.dtype))
    assert not wrong.any(), np.argwhere(wrong)[:5]


@each_dtype
@each_method
class TestSpecialValues:
    LENGTHS = (1, 2, 9, 40, 300, 2500)

    def check(self, dtype, method, length, special, result):
        """Puts `special` among ordinary numbers: first, in the middle and last, in row and column form."""
        for place in {0, length // 2, length - 1}:
            x = np.linspace(-3, 3, length).astype(dtype)
            x[place] = special
            y = ons.softmax(x, method=method)
            result(y, x, place)
            columns = ons.softmax(np.stack([x, np.zeros_like(x), x], 1), 0, method=method)
            assert same_bits(columns[:, 0].copy(), columns[:, 2].copy())
            result(columns[:, 0], x, place)
            np.testing.assert_allclose(columns[:, 1].astype(float), 1 / length, rtol=1e-2)

    @pytest.mark.parametrize("special", [NAN, -NAN, INF])
    def test_nan_and_inf_make_the_row_nan(self, dtype, method, special):
        def result(y, x, place):
            assert np.isnan(y.astype(float)).all()

        for length in self.LENGTHS:
            self.check(dtype, method, length, special, result)

    def test_every_class_of_nan(self, dtype, method):
        """Quiet and signalling NaN of both signs. The payload is low, high, all ones, or R's NA.
        core_checks.c has them in every conversion, with masks and scales."""
        size = np.dtype(dtype).itemsize
        integers, fraction = np.dtype(f"u{size}"), {2: 10, 4: 23, 8: 52}[size]
        if dtype == BFLOAT16:
            fraction = 7
        inf, sign = int(bits(np.array([INF]).astype(dtype))[0]), 1 << 8 * size - 1
        payloads = (1, 1 << fraction - 1, (1 << fraction) - 1, 0x7A2 & (1 << fraction) - 1)
        for bad in (inf | payload | of for payload in payloads for of in (0, sign)):
            for length in self.LENGTHS:
                x = np.ones((3, length), dtype)
                x.view(integers)[1, length // 2] = bad
                y = ons.softmax(x, method=method).astype(float)
                columns = ons.softmax(x.T.copy(), 0, method=method).T.astype(float)
                assert np.isnan(y[1]).all() and np.isnan(columns[1]).all(), hex(bad)
                assert not np.isnan(y[::2]).any() and not np.isnan(columns[::2]).any(), hex(bad)

    def test_minus_inf_beside_finite(self, dtype, method):
        def result(y, x, place):
            assert y[place] == 0
            assert_right(y, x)

        for length in self.LENGTHS[1:]:
            self.check(dtype, method, length, -INF, result)

    def test_all_minus_inf(self, dtype, method):
        for length in self.LENGTHS:
            x = np.full((3, length), -INF, dtype)
            x[1] = 1
            for array, axis in ((x, -1), (np.ascontiguousarray(x.T), 0)):
                y = ons.softmax(array, axis, method=method).astype(float)
                y = y if axis else y.T
                assert np.isnan(y[[0, 2]]).all()
                np.testing.assert_allclose(y[1], 1 / length, rtol=1e-2)

    def test_a_first_tile_of_minus_inf(self, dtype, method):
        for length in (257, 2049, 40000):
            x = np.full(length, -INF, dtype)
            x[-1] = 3
            expected = np.zeros(length)
            expected[-1] = 1
            np.testing.assert_array_equal(ons.softmax(x, method=method).astype(float), expected)
            np.testing.assert_array_equal(ons.softmax(x[::-1], method=method).astype(float), expected[::-1])

    def test_where_hides_what_it_excludes(self, dtype, method, rng):
        x = rng.standard_normal((5, 700)).astype(np.float32).astype(dtype)
        where = rng.random(x.shape) < 0.5
        where[:, 3] = False
        expected = ons.softmax(x, where=where, method=method)
        assert_right(expected, x, where=where)
        hidden = x.copy()
        for value in (NAN, INF, -INF, 1e4):
            hidden[~where] = value
            assert same_bits(ons.softmax(hidden, where=where, method=method), expected)
            columns = ons.softmax(np.asfortranarray(hidden), where=where, method=method)
            assert same_bits(columns.copy("C"), expected)
        assert (expected[~where] == 0).all() and not np.signbit(expected[~where].astype(float)).any()

    def test_where_allows_nothing_or_a_row_without_softmax(self, dtype, method):
        x = np.array([[1, 2, 3], [NAN, 1, INF], [-INF, -INF, 4], [NAN, 1, 2]], dtype)
        where = np.array([[0, 0, 0], [0, 0, 0], [1, 1, 0], [1, 1, 0]], bool)
        expected = [[0, 0, 0], [0, 0, 0], [NAN, NAN, 0], [NAN, NAN, 0]]
        for axis, array, mask in ((-1, x, where), (0, x.T.copy(), where.T.copy())):
            y = ons.softmax(array, axis, where=mask, method=method).astype(float)
            np.testing.assert_array_equal(y if axis else y.T, expected)


def test_naive_does_what_the_formula_does():
    x = np.array([[1, NAN], [1, INF], [-INF, -INF], [-INF, 3], [1, 1]], np.float32)
    expected = np.array([[NAN, NAN], [0, NAN], [NAN, NAN], [0, 1], [0.5, 0.5]], np.float32)
    np.testing.assert_array_equal(ons.softmax(x, method="naive"), expected)
    np.testing.assert_array_equal(ons.softmax(x.T.copy(), 0, method="naive").T, expected)


@each_dtype
@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_empty(dtype, method):
    for shape in ((0,), (3, 0), (0, 3), (2, 0, 4), (0, 0)):
        for axis in (*range(-len(shape), len(shape)), None, tuple(range(len(shape))), ()):
            y = ons.softmax(np.zeros(shape, dtype), axis, method=method)
            assert y.shape == shape and y.dtype == dtype
    out = np.zeros((3, 0), dtype)
    assert ons.softmax(np.zeros((3, 0), dtype), out=out) is out


@each_dtype
@each_method
def test_zero_dimensional(dtype, method):
    for axis in (-1, 0, None, (), (0,), (-1,)):
        for value, expected in ((5, 1), (-1e4, 1), (NAN, NAN), (INF, NAN), (-INF, NAN)):
            y = ons.softmax(np.array(value, dtype), axis, method=method)
            assert isinstance(y, np.ndarray) and y.shape == () and y.dtype == dtype
            np.testing.assert_array_equal(y.astype(float), expected)
    assert ons.softmax(np.array(NAN, dtype), where=False, method=method) == 0


@each_dtype
@each_method
def test_rows_of_one_element_are_1(dtype, method, rng):
    x = (20 * rng.standard_normal((50, 1))).astype(dtype)
    for axis in (-1, ()):
        assert (ons.softmax(x, axis, method=method) == 1).all()
    assert (ons.softmax(x.T.copy(), 0, method=method) == 1).all()
    assert all(ons.softmax(value, method=method) == 1 for value in x[:, 0])


@each_method
def test_every_axis(method, rng):
    x = (3 * rng.standard_normal((3, 4, 5, 2))).astype(np.float32)
    tuples = [axes for count in (1, 2, 3, 4) for axes in itertools.permutations(range(4), count)]
    for axis in [None, (), *range(-4, 4), *tuples]:
        assert_right(ons.softmax(x, axis, method=method), x, axis)
    assert_right(ons.softmax(x, (-1, 1), method=method), x, (1, 3))
    assert_right(ons.softmax(x, np.int64(1), method=method), x, 1)
    assert same_bits(ons.softmax(x, (3, 0), method=method), ons.softmax(x, (0, 3), method=method))


@each_dtype
@each_method
def test_axes_that_do_not_join(dtype, method, rng):
    """The elements of a row lie in several pieces of memory. Rows exceed tiles and blocks."""
    x = (3 * rng.standard_normal((6, 5, 70, 9))).astype(np.float32).astype(dtype)
    for axis in ((0, 2), (1, 3), (0, 1, 3), (0, 3)):
        for array in (x, x[::-1, ::2, ::-3], x.transpose(2, 0, 3, 1), x[:, :1]):
            assert_right(ons.softmax(array, axis, method=method), array, axis)


@each_method
def test_more_dimensions_than_six(method, rng):
    for shape in ((2, 3, 1, 2, 3, 2, 2, 3), (2,) * 12, (1,) * 32, (2,) + (1,) * 30 + (3,)):
        x = rng.standard_normal(shape).astype(np.float32)
        shuffled = x.transpose(rng.permutation(len(shape)))
        for array in (x, shuffled, x[::-1], np.broadcast_to(x, (2, *shape)) if len(shape) < 32 else x):
            for axis in (-1, 0, len(shape) // 2, None, tuple(range(0, len(shape), 2))):
                assert_right(ons.softmax(array, axis, method=method), array, axis)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="NumPy 1 has at most 32 dimensions")
def test_as_many_dimensions_as_numpy_has():
    x = np.arange(8.0).reshape((2,) + (1,) * 30 + (2,) + (1,) * 31 + (2,))
    assert x.ndim == 64
    for axis in (0, 31, 63, 1, None, (0, 63)):
        assert_right(ons.softmax(x, axis), x, axis)


@each_dtype
@pytest.mark.parametrize("swapped", [False, True], ids=["native", "swapped"])
def test_layouts(dtype, swapped, rng):
    if swapped and dtype.kind == "V":
        pytest.skip("ml_dtypes has no swapped bfloat16")
    values = (3 * rng.standard_normal((6, 7, 40))).astype(np.float32).astype(dtype)
    for permutation in itertools.permutations(range(3)):
        for steps in ((1, 1, 1), (-1, 1, 1), (1, -2, 1), (2, 1, -1), (-3, -1, 2)):
            for byte_offset in (0, 1):
                x = lay_out(values, permutation, steps, byte_offset, swapped)
                before = x.copy()
                for axis in (0, 1, 2, (0, 2), None):
                    y = ons.softmax(x, axis)
                    assert y.dtype == dtype and y.dtype.isnative
                    assert y.strides == np.empty_like(x, dtype=dtype, order="K").strides
                    assert_right(y, values, axis)
                assert np.array_equal(x, before)


def test_memory_order_of_converted_inputs():
    """Integers, and inputs whose result has another type, keep their memory order."""
    for x in (np.zeros((3, 4, 5), int).transpose(1, 2, 0), np.zeros((3, 4, 5), bool).transpose(2, 0, 1)):
        assert ons.softmax(x).strides == np.empty_like(x, np.float64).strides
    x = np.zeros((3, 4, 5), np.float32).transpose(1, 2, 0)
    assert ons.softmax(x, dtype=np.float64).strides == np.empty_like(x, np.float64).strides


@each_dtype
@each_method
def test_zero_strides(dtype, method, rng):
    row = (3 * rng.standard_normal(60)).astype(np.float32).astype(dtype)
    for small, shape in ((row, (5, 60)), (row[:, None], (60, 9)), (row[3], (4, 6))):
        x = np.broadcast_to(small, shape)
        for axis in (0, 1, None):
            y = ons.softmax(x, axis, method=method)
            assert y.shape == x.shape and 0 not in y.strides
            assert_right(y, x, axis)


@pytest.mark.parametrize("code", "?bBhHiIlLqQ")
def test_integers_and_bool_are_float64(code, rng):
    x = rng.integers(0, 2 if code == "?" else 100, (4, 30)).astype(code)
    for array in (x, x[:, ::-2], x.astype(x.dtype.newbyteorder())):
        y = ons.softmax(array)
        assert y.dtype == np.float64
        assert_right(y, array.astype(float))
    assert ons.softmax(x, dtype=np.float16).dtype == np.float16


def test_subclasses_come_back_as_arrays(tmp_path):
    values = np.arange(12.0).reshape(3, 4)

    class Sub(np.ndarray):
        pass

    mapped = np.memmap(tmp_path / "x", float, "w+", shape=(3, 4))
    mapped[...] = values
    for x in (values.view(Sub), np.asmatrix(values), mapped, np.rec.array(values)):
        y = ons.softmax(x)
        assert type(y) is np.ndarray
        assert_right(y, values)


def test_the_input_is_never_written():
    x = np.arange(300_000, dtype=np.float32).reshape(3, -1) / 1000
    x.flags.writeable = False
    before = x.copy()
    for method in METHODS:
        for axis in (0, 1, None):
            ons.softmax(x, axis, method=method)
    assert np.array_equal(x, before)
