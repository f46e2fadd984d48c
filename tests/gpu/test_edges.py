"""The contract's table of edges on the GPU, and logits of every magnitude."""

import math

import pytest
from gpu_support import (
    DEVICE,
    DTYPES,
    NARROW_DTYPES,
    STABLE_METHODS,
    WIDE_DTYPES,
    Complaints,
    Refused,
    complaint,
    each_dtype,
    each_method,
    exact,
    generator,
    name,
    plain_rows,
    same_bits,
    softmax,
    torch,
)

import onsoftmax as ons

NAN, INF = math.nan, math.inf
LENGTHS = (1, 2, 9, 33, 300, 1025, 5000, 40_000)


def both_forms(complaints, what, x, expected=None, **keywords):
    """Checks rows of x along the last axis, and as columns."""
    expected = exact(x, where=keywords.get("where")) if expected is None else expected
    what = f"{keywords['method']} {name(x.dtype)} {what} {tuple(x.shape)}"
    try:
        complaints.add(what, complaint(softmax(x, **keywords), expected))
        if "where" in keywords:
            keywords["where"] = keywords["where"].T.contiguous()
        y = softmax(x.T.contiguous(), 0, **keywords)
        complaints.add(f"{what} as columns", complaint(y.T, expected))
    except Refused:
        return


@each_dtype
@each_method
class TestSpecialValues:
    def test_nan_and_inf(self, method, dtype):
        """NaN and inf make their own row NaN, and no other row. -inf gives exactly 0."""
        with Complaints() as complaints:
            for N in LENGTHS:
                x = plain_rows(24, N, dtype, seed=N)
                row = 0
                for special in (NAN, -NAN, INF, -INF):
                    for place in (0, N // 2, N - 1):
                        x[row, place] = special
                        row += 2  # every second row stays as it is
                x[19, : N // 2], x[21], x[23, N // 2 :] = -INF, -INF, -INF
                both_forms(complaints, "specials", x, method=method)
                try:
                    y = softmax(x, method=method)
                except Refused:
                    continue
                right = y[:18:2].isnan().all() and y[21].isnan().all() and not y[1:19:2].isnan().any()
                if N > 2:
                    right = (
                        right and not y[x == -INF].nan_to_num(0).any() and (y[18, x[18] == -INF] == 0).all()
                    )
                complaints.expect(f"{method} {name(dtype)} N={N}", right, "NaN or 0 elsewhere")

    def test_where_hides_what_it_excludes(self, method, dtype):
        with Complaints() as complaints:
            for N in LENGTHS[1:]:
                x = plain_rows(10, N, dtype, seed=N)
                where = torch.rand(x.shape, device=DEVICE, generator=generator(N)) < 0.5
                where[:, N // 3], where[7], where[4, : N // 2], where[4, -1] = False, False, False, True
                try:
                    expected = softmax(x, where=where, method=method)
                except Refused:
                    continue
                right = exact(x, where=where)
                for hidden in (NAN, INF, -INF, 6e4):
                    masked = torch.where(where, x, hidden)
                    both_forms(complaints, f"hides {hidden}", masked, right, where=where, method=method)
                    same = same_bits(softmax(masked, where=where, method=method), expected)
                    complaints.expect(f"{method} {name(dtype)} N={N} hides {hidden}", same, "other bits")
                zero = (expected[~where] == 0).all() and not expected[~where].signbit().any()
                complaints.expect(f"{method} {name(dtype)} N={N}", zero, "not 0 where nothing is allowed")

    def test_one_element_and_equal_elements(self, method, dtype):
        """A single finite element gives 1. Equal elements give equal results: in 16 bits, 1 / N rounded."""
        with Complaints() as complaints:
            for value in (
                0,
                1,
                -1,
                0.1,
                1000,
                -1000,
                6e4,
                -6e4,
                torch.finfo(dtype).max,
                torch.finfo(dtype).min,
            ):
                for N in LENGTHS:
                    x = torch.full((2, N), value, device=DEVICE, dtype=dtype)
                    what = f"equal to {value}"
                    both_forms(complaints, what, x, method=method)
                    try:
                        y = softmax(x, method=method)
                    except Refused:
                        continue
                    right = same_bits(y, y[:1, :1].expand(2, N))
                    if N == 1 or dtype in NARROW_DTYPES:
                        quotient = torch.tensor(1 / N, dtype=torch.float64).to(dtype).item()
                        right = right and (y == quotient).all()
                    complaints.expect(f"{method} {name(dtype)} N={N} {what}", right, f"{y[0, 0].item()!r}")
            x = torch.full((5, 500), -INF, device=DEVICE, dtype=dtype)
            x[:, 333] = -5
            complaints.expect(f"{method} one finite", (softmax(x, method=method)[:, 333] == 1).all(), "not 1")


@pytest.mark.parametrize("dtype", (torch.bfloat16, *WIDE_DTYPES), ids=name)
@each_method
class TestHugeLogits:
    """Rows whose maximum is too large for the exponential to take without shifting."""

    def test_offsets(self, method, dtype):
        """Around the magnitudes where kernels change their method, and far beyond."""
        around = [
            sign * (bound + more) for bound in (16384, 1 << 22) for sign in (1, -1) for more in (-20, 0, 20)
        ]
        offsets = [*around, 1e5, -1e5, 1e6, -1e6, 1 << 23, -(1 << 24), 1e9, -1e9, 1e30, -1e30, 3e38, -3e38]
        with Complaints() as complaints:
            for N in LENGTHS[:-1]:
                x = plain_rows(len(offsets), N, torch.float64, seed=N) * 3
                x = (x + torch.tensor(offsets, device=DEVICE, dtype=torch.float64)[:, None]).to(dtype)
                both_forms(complaints, "offsets", x, method=method)

    @pytest.mark.parametrize("bound", [16384, 1 << 22])
    def test_rows_on_both_sides_of_a_bound(self, method, dtype, bound):
        """In one row, the maximum of one warp lies below the bound and another's above. Neighbouring rows
        differ too."""
        with Complaints() as complaints:
            for N in (40, 300, 1025, 5000, 40_000):
                ladder = torch.linspace(-6, 6, N, device=DEVICE, dtype=torch.float64)
                shuffled = ladder[torch.randperm(N, device=DEVICE, generator=generator(N))]
                place = torch.arange(N, device=DEVICE)
                sides = [
                    torch.where(place // width % 2 == 0, ladder - 7, shuffled + 7)
                    for width in (1, 4, 32, 256)
                ]
                kinds = [ladder, ladder.flip(0), shuffled, *sides, shuffled - 7, ladder / 24, shuffled + 7]
                kinds += [torch.where(place == at, 0.5, shuffled - 8) for at in (0, N // 2, N - 1)]
                kinds = torch.stack(kinds)
                x = torch.cat([kinds + bound, kinds - bound, kinds])[torch.randperm(3 * len(kinds))]
                both_forms(complaints, f"around {bound}", x.to(dtype), method=method)

    def test_one_huge_row_beside_small_ones(self, method, dtype):
        """A row's bits do not depend on its neighbours."""
        offsets = {0: 1e5, 17: -3e5, 39: 2e4, 20: INF, 21: NAN, 22: -INF, 30: 5e6, 31: -5e6}
        with Complaints() as complaints:
            for N in (7, 40, 300, 1025, 5000):
                x = plain_rows(40, N, dtype, seed=N)
                for axis in (-1, 0):
                    try:
                        before = softmax(x if axis else x.T.contiguous(), axis, method=method)
                    except Refused:
                        continue
                    huge = x.clone()
                    for row, offset in offsets.items():
                        huge[row] += offset
                    after = softmax(huge if axis else huge.T.contiguous(), axis, method=method)
                    before, after = (before, after) if axis else (before.T, after.T)
                    what = f"{method} {name(dtype)} N={N} axis={axis}"
                    complaints.add(what, complaint(after, exact(huge)))
                    others = [row for row in range(40) if row not in offsets]
                    complaints.expect(what, same_bits(after[others], before[others]), "neighbours changed")

    def test_largest_finite(self, method, dtype):
        top = torch.finfo(dtype).max
        below = torch.nextafter(torch.tensor(top, dtype=dtype), torch.zeros((), dtype=dtype)).item()
        pairs = [(top, -top), (top, top), (-top, -top), (top, 0), (-top, 0), (top, below), (-top, -below)]
        rows = torch.tensor(pairs, dtype=dtype, device=DEVICE)
        with Complaints() as complaints:
            for copies in (1, 20, 500, 2600, 20_000):
                both_forms(complaints, "in turns", rows.repeat(1, copies), method=method)
                both_forms(
                    complaints, "one, then the other", rows.repeat_interleave(copies, 1), method=method
                )

    def test_from_the_lowest_to_the_highest(self, method, dtype):
        """All magnitudes, ascending and descending. Elements far below the rest leave no trace."""
        high = math.log10(torch.finfo(dtype).max) - 0.1
        with Complaints() as complaints:
            for N in (900, 4000, 35_000):
                ladder = torch.logspace(-3, high, N // 2, device=DEVICE, dtype=torch.float64)
                both = torch.cat([-ladder.flip(0), ladder])
                x = torch.stack([both, both.flip(0), -both.abs(), both.abs(), -both.abs().flip(0)])
                both_forms(complaints, "ladder", x.to(dtype), method=method)
                exponents = torch.arange(
                    3, int(high), max(int(high) // 30, 1), device=DEVICE, dtype=torch.float64
                )
                for sign, rest in ((-1, 0.999), (1, 1.0), (-1, 1.0)):
                    x = (sign * rest * 10.0**exponents)[:, None].repeat(1, N)
                    x[:, 5], x[:, -1] = sign * 10.0**exponents, 2 * 10.0**exponents
                    both_forms(complaints, "a last high step", x.to(dtype), method=method)


@each_method
class TestSubnormalResults:
    def test_are_kept(self, method):
        with Complaints() as complaints:
            for dtype in WIDE_DTYPES:
                depth = -math.log(torch.finfo(dtype).smallest_normal)
                for N in (64, 1000, 5000):
                    x = -depth + 3 - torch.linspace(0, 19, N, device=DEVICE, dtype=torch.float64)
                    x[N // 3], x[-1] = 0, -depth - 60
                    x = (x[None] + torch.tensor([[0.0], [100.0], [-1000.0]], device=DEVICE)).to(dtype)
                    both_forms(complaints, "subnormal", x, method=method)
                    try:
                        y = softmax(x, method=method)
                    except Refused:
                        continue
                    kept = ((y > 0) & (y < torch.finfo(dtype).smallest_normal)).sum().item()
                    complaints.expect(f"{method} {name(dtype)} N={N}", kept > N, f"{kept} subnormal results")

    def test_of_16_bits(self, method):
        with Complaints() as complaints:
            for dtype in NARROW_DTYPES:
                x = torch.linspace(-103, 0, 500, device=DEVICE).to(dtype).expand(3, 500)
                wide, y = softmax(x, method=method, dtype=torch.float32), softmax(x, method=method)
                kept = ((y > 0) & (y < torch.finfo(dtype).smallest_normal)).sum().item()
                complaints.expect(f"{method} {name(dtype)}", kept > 60, f"{kept} subnormal results")
                complaints.expect(
                    f"{method} {name(dtype)}", same_bits(y, wide.to(dtype)), "not float32's, rounded"
                )
                both_forms(complaints, "subnormal", x, method=method)


@each_dtype
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (0,), (3, 0, 4), (0, 3, 4)], ids=str)
def test_nothing_to_do(dtype, shape):
    x = torch.empty(shape, device=DEVICE, dtype=dtype)
    for method in ("naive", *STABLE_METHODS):
        for axis in (*range(len(shape)), None):
            y = ons.softmax(x, axis, method=method)
            assert y.shape == x.shape and y.dtype == dtype and y.device == x.device
            assert ons.softmax(x, axis, method=method, out=y) is y


def test_no_dimensions():
    for dtype in DTYPES:
        for value, result in ((3, 1), (-6e4, 1), (INF, NAN), (-INF, NAN), (NAN, NAN)):
            y = ons.softmax(torch.tensor(value, device=DEVICE, dtype=dtype))
            assert y.shape == () and (y.item() == result or (math.isnan(result) and y.isnan()))


@pytest.mark.parametrize("method", ["fused_warp", "fused_block"])
def test_equal_elements(method):
    """All chunks of such a row have the same digits in fixed point. No row has larger sums."""
    with Complaints() as complaints:
        x = torch.arange(256, device=DEVICE)[:, None] / 256
        for N in range(1021, 12_000, 24 if method == "fused_block" else 4):
            try:
                y = softmax(x.half().repeat(1, N + 1)[:, 1:], method=method)  # unaligned, and with gaps
            except Refused:
                break
            error = (y[:, 0].double() * N - 1).abs().max().item()
            complaints.expect(f"{method} N={N}", error <= 2**-11 * (1 + 2**-8), f"{error * 2**11} half eps")
