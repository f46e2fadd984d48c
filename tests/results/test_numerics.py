"""The accuracy of the results, and the same bits for the same row. isa_checks.numerics has the errors on
every instruction set at the contract's lengths. test_methods.py runs it."""

import numpy as np
import oracle
import pytest
from support import BFLOAT16, DTYPES, NARROW_DTYPES, STABLE_METHODS, WIDE_DTYPES, bits, lay_out, same_bits

import onsoftmax as ons

ids = {"ids": str}


def assert_exact(y, x, axis=-1, **keywords):
    compute = keywords.get("compute") or oracle.compute_type(x.dtype, y.dtype)
    wrong = oracle.wrong_places(y, oracle.softmax(x, axis, **keywords), compute)
    assert not wrong.any(), np.argwhere(wrong)[:5]


def test_oracle_against_mpmath(rng):
    """Checks the oracle itself: longdouble against 60 digits."""
    for scale, offset in ((1, 0), (30, -1000), (200, 1e6)):
        x = scale * rng.standard_normal(50) + offset
        exact = oracle.softmax_mpmath(x)
        pairs = zip(exact, oracle.softmax(x), strict=True)
        found = [float((v - float(y)) / v) for v, y in pairs if v > 1e-300]
        assert max(map(abs, found)) < 2.0**-52  # float(y) alone has an error of 2^-53


@pytest.mark.parametrize("dtype", WIDE_DTYPES, **ids)
@pytest.mark.parametrize("method", STABLE_METHODS)
def test_errors_against_mpmath(dtype, method, rng):
    found = []
    for N in (1, 2, 6, 31, 300):
        for scale, offset in ((1, 0), (3, 1000), (30, -1000), (10, 1e5), (10, -1e6)):
            x = (scale * rng.standard_normal(N) + offset).astype(dtype)
            exact, y = oracle.softmax_mpmath(x), ons.softmax(x, method=method)
            normal = float(np.finfo(dtype).smallest_normal)
            found += [abs((float(a) - b) / b) for a, b in zip(y, exact, strict=True) if b > normal]
    found = np.array(found, float) / np.finfo(dtype).eps
    assert found.max() <= 4 and found.mean() <= 1


ONE_WAY = (
    "c220a8d6 c22313ea c220a7b6 c220a8af c220a9c1 c22050d2 c2204e03 c2204f78 "
    "c2236f77 c220a86c c220a691 c220a9ef c220a948 c2203f3c c220a8fe c220aa7d"
)


@pytest.mark.parametrize("method", STABLE_METHODS)
def test_errors_that_all_go_one_way(method):
    """A search found this float32 row: the last element errs in one direction, all others in the other. Its
    error was 4.69 eps with AVX-512 and 4.02 with AVX2."""
    others = np.array([int(word, 16) for word in ONE_WAY.split()], np.uint32)
    x = np.append(np.repeat(others, 16), np.uint32(0xC24491C5)).view(np.float32)
    found = [
        abs(float(y) / e - 1)
        for y, e in zip(ons.softmax(x, method=method), oracle.softmax_mpmath(x), strict=True)
    ]
    assert max(found) <= 2 * np.finfo(np.float32).eps


@pytest.mark.parametrize("dtype", WIDE_DTYPES, **ids)
def test_a_row_of_2_to_the_24(dtype, rng):
    x = (10 * rng.standard_normal(1 << 24, dtype=np.float32) + 500).astype(dtype)
    y = ons.softmax(x)
    z = x.astype(np.float64) - x.max()
    d = np.exp(z).astype(np.longdouble).sum()
    some = rng.integers(0, x.size, 200_000)
    exact = np.exp(z[some].astype(np.longdouble)) / d
    error = oracle.errors(y[some], exact)
    assert error.max() <= 4 and error.mean() <= 1
    for method in STABLE_METHODS:
        assert same_bits(ons.softmax(x, method=method), y), method


@pytest.mark.parametrize("dtype", WIDE_DTYPES, **ids)
def test_subnormal_results_are_kept(dtype):
    depth = np.array(-np.log(np.finfo(dtype).smallest_normal) + np.arange(-3, 16, 0.37), dtype)
    x = np.concatenate([[0], -depth, -depth[:1] - 40]).astype(dtype)
    exact = oracle.softmax(x)
    for method in STABLE_METHODS:
        y = ons.softmax(x, method=method)
        subnormal = (y > 0) & (y < np.finfo(dtype).smallest_normal)
        assert subnormal.sum() > 30 and y[-1] == 0
        assert not oracle.wrong_places(y, exact, dtype).any()
    for narrow in NARROW_DTYPES:
        x = np.linspace(-100, 0, 600).astype(narrow)
        y = ons.softmax(x)
        assert ((bits(y) > 0) & (bits(y) < 16)).any(), "no subnormal of the shorter type"
        assert same_bits(y, ons.softmax(x.astype(np.float32)).astype(narrow))


@pytest.mark.parametrize("narrow", NARROW_DTYPES, **ids)
def test_float64_arithmetic_is_rounded_once(narrow, rng):
    """float64 input and a 16-bit result. Rounding to float32 in between would round twice."""
    x = rng.standard_normal((2000, 40))
    assert_exact(ons.softmax(x, dtype=narrow), x, compute=np.float64)
    y32 = ons.softmax(x, dtype=np.float32)
    assert_exact(y32, x, compute=np.float64)
    assert same_bits(y32, ons.softmax(x).astype(np.float32))
    # 1/2 - 2^-40 lies below the middle of two float16 results, by less than float32 shows
    x = np.log(np.array([0.5 + 2.0**-13 - 2.0**-45, 0.5 - 2.0**-13 + 2.0**-45]))
    assert_exact(ons.softmax(x, dtype=narrow), x, compute=np.float64)


@pytest.mark.parametrize("method", STABLE_METHODS)
def test_float64_to_16_bits_is_the_float64_result_rounded_once(method, rng):
    """To the last bit, as docs/contract.md says. It is not the float32 result rounded."""
    x = 3 * rng.standard_normal((2000, 400))
    wide = ons.softmax(x, method=method)
    assert same_bits(ons.softmax(x, method=method, dtype=np.float16), wide.astype(np.float16))
    assert not same_bits(wide.astype(np.float32).astype(np.float16), wide.astype(np.float16))
    if BFLOAT16:  # 7 of float64's 52 bits, to nearest even; ml_dtypes rounds to float32 first
        wide_bits = bits(wide)
        kept = (wide_bits + (1 << 44) - 1 + (wide_bits >> 45 & 1)) >> 45 << 45
        once = kept.view(np.float64).astype(BFLOAT16)
        assert same_bits(ons.softmax(x, method=method, dtype=BFLOAT16), once)
        assert not same_bits(wide.astype(np.float32).astype(BFLOAT16), once)


@pytest.mark.parametrize("method", STABLE_METHODS)
@pytest.mark.parametrize("dtype", WIDE_DTYPES, **ids)
class TestHugeLogits:
    """Rows whose |m| is too large for the exponential to take without shifting."""

    @pytest.mark.parametrize("offset", [16383.5, 16385.0, -16383.5, -16385.0, 1e5, -1e6, 4e6, -4e6])
    def test_offsets(self, dtype, method, offset, rng):
        for N in (5, 300, 5000):
            x = (10 * rng.standard_normal((4, N)) + offset).astype(dtype)
            y = ons.softmax(x, method=method)
            assert_exact(y, x)
            columns = ons.softmax(np.ascontiguousarray(x.T), 0, method=method)
            assert same_bits(np.ascontiguousarray(columns.T), y)

    def test_one_huge_row_beside_small_ones(self, dtype, method, rng):
        """A row's bits do not depend on the other rows in a strip of columns."""
        x = (3 * rng.standard_normal((40, 700))).astype(dtype)
        alone = np.stack([ons.softmax(row, method=method) for row in x])
        for row, offset in ((0, 1e5), (17, -3e5), (39, 2e4), (20, np.inf), (21, np.nan), (22, -np.inf)):
            x[row] += dtype.type(offset)
            alone[row] = ons.softmax(x[row], method=method)
        assert_exact(alone, x)
        assert same_bits(ons.softmax(x, method=method), alone)
        columns = ons.softmax(np.ascontiguousarray(x.T), 0, method=method)
        assert same_bits(np.ascontiguousarray(columns.T), alone)

    def test_largest_finite(self, dtype, method):
        top = np.finfo(dtype).max
        rows = [[top, -top], [top, top], [-top, -top], [top, 0], [-top, 0], [top, np.nextafter(top, 0)]]
        for row in rows:
            for copies in (1, 40, 3000):
                x = np.repeat(np.array(row, dtype), copies)
                assert_exact(ons.softmax(x, method=method), x)
                x = np.array(row * copies, dtype)
                assert_exact(ons.softmax(x, method=method), x)
                columns = np.ascontiguousarray(np.stack([x, np.zeros_like(x)], 1))
                assert_exact(ons.softmax(columns, 0, method=method), columns, 0)

    def test_early_tiles_far_below_the_rest(self, dtype, method):
        """The running maximum of the first tile may be any number. It leaves no trace. The methods take turns
        at the exponents."""
        top, step = (37, 0.25) if dtype == np.float32 else (307, 1.25)
        turn = STABLE_METHODS.index(method)
        for exponent in np.arange(3 + turn * step, top, len(STABLE_METHODS) * step):
            for sign, rest in ((-1, 0.999), (1, 1.0), (-1, 1.0)):
                x = np.full(2049, sign * rest * 10.0**exponent, dtype)
                x[5], x[2048] = sign * 10.0**exponent, 2 * 10.0**exponent
                assert_exact(ons.softmax(x, method=method), x)

    def test_from_the_lowest_to_the_highest(self, dtype, method):
        """All magnitudes, ascending and descending, over many tiles and blocks of split."""
        ladder = np.logspace(-3, np.log10(np.finfo(dtype).max) - 0.1, 35000)
        for x in (ladder, -ladder, np.concatenate([-ladder[::-1], ladder]), -ladder[::-1]):
            x = x.astype(dtype)
            assert_exact(ons.softmax(x, method=method), x)


@pytest.mark.parametrize("dtype", DTYPES, **ids)
class TestSameBits:
    def test_all_methods_agree(self, dtype, rng):
        for N in (3, 100, 2049, 70000):
            for scale, offset in ((1, 0), (25, 90), (3, -200)):
                x = (scale * rng.standard_normal((3, N)) + offset).astype(np.float32).astype(dtype)
                results = [ons.softmax(x, method=method) for method in [*STABLE_METHODS, "auto"]]
                assert all(same_bits(y, results[0]) for y in results)

    @pytest.mark.parametrize("method", STABLE_METHODS)
    def test_of_a_row_in_any_place(self, dtype, method, rng):
        row = (4 * rng.standard_normal(1531)).astype(np.float32).astype(dtype)
        expected = ons.softmax(row, method=method)
        for count, place in ((1, 0), (7, 3), (200, 199), (131, 130)):
            x = np.zeros((count, row.size), dtype)
            x[place] = row
            assert same_bits(ons.softmax(x, method=method)[place], expected)
            columns = ons.softmax(np.asfortranarray(x), method=method)
            assert same_bits(columns[place].copy(), expected)
        for offset in range(0, 65, 1):
            assert same_bits(ons.softmax(lay_out(row, byte_offset=offset), method=method), expected)
        for step in (2, 3, -1, -5):
            assert same_bits(ons.softmax(lay_out(row, steps=(step,)), method=method), expected)

    @pytest.mark.parametrize("method", STABLE_METHODS)
    def test_over_runs_and_threads(self, dtype, method, rng):
        x = (4 * rng.standard_normal((3, 150_000))).astype(np.float32).astype(dtype)
        one = ons.softmax(x, method=method, num_threads=1)
        for threads in (1, 2, 3, 4, 2, 4):
            assert same_bits(ons.softmax(x, method=method, num_threads=threads), one)
        columns = np.ascontiguousarray(x[:, :3000].T)
        one = ons.softmax(columns, 0, method=method, num_threads=1)
        many = np.ascontiguousarray(np.tile(columns, 200))
        for threads in (1, 2, 4):
            y = ons.softmax(many, 0, method=method, num_threads=threads)
            assert same_bits(y, np.tile(one, 200))

    def test_transposed_axis_0_is_the_last_axis(self, dtype, rng):
        x = (4 * rng.standard_normal((37, 520))).astype(np.float32).astype(dtype)
        for method in STABLE_METHODS:
            last = ons.softmax(x, method=method)
            first = ons.softmax(x.T, 0, method=method)
            copied = ons.softmax(np.ascontiguousarray(x.T), 0, method=method)
            assert same_bits(np.ascontiguousarray(first.T), last)
            assert same_bits(np.ascontiguousarray(copied.T), last)

    def test_masked_and_scaled_in_both_forms(self, dtype, rng):
        x = (4 * rng.standard_normal((37, 520))).astype(np.float32).astype(dtype)
        where, scale = rng.random(x.shape) < 0.6, rng.uniform(0.2, 3, (37, 1))
        results = [
            ons.softmax(array, method=method, where=where, scale=scale)
            for method in STABLE_METHODS
            for array in (x, np.asfortranarray(x), lay_out(x, steps=(2, -3), byte_offset=1))
        ]
        assert all(same_bits(np.ascontiguousarray(y), np.ascontiguousarray(results[0])) for y in results)


def test_offsets_leave_errors_as_they_are(rng):
    """The logits are integers, so adding a constant is exact. The answer must stay the same to rounding."""
    x = rng.integers(-20, 20, (50, 200)).astype(np.float32)
    y = ons.softmax(x)
    for offset in (1000, -1000, 2.0**20, -(2.0**22)):
        np.testing.assert_allclose(ons.softmax(x + np.float32(offset)), y, rtol=5e-7)
