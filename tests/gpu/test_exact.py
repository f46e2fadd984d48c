"""method="exact" on a GPU: the bits of the CPU, which tests/results/test_exact.py compares with mpmath."""

import itertools
import math

import gpu_random_cases as random_cases
import numpy as np
import pytest
from exact_checks import NEAR
from gpu_support import (
    DEVICE,
    DTYPES,
    NARROW_DTYPES,
    Complaints,
    generator,
    name,
    random_rows,
    same_bits,
    spread_out,
    torch,
)

import onsoftmax as ons

TYPES = tuple(dtype for dtype in DTYPES if dtype is not torch.float64)
FUNCTIONS = ("softmax", "log_softmax", "logsumexp")
LENGTHS = (1, 2, 3, 7, *(n + d for n in (32, 128, 256, 512, 1024, 4096, 16384, 65536) for d in (-1, 0, 1)))
# Of lanes, a warp, a block, clusters and several passes.
FEW_LENGTHS = (2, 33, 100, 257, 1000, 5000, 20_001, 140_000, 262_145)
each_type = pytest.mark.parametrize("dtype", TYPES, ids=name)
each_function = pytest.mark.parametrize("function", FUNCTIONS)


def rows_of(N, dtype, seed=0):
    """Rows on the CPU. 21 rows have each spread with each offset."""
    return random_rows(21 if N < 5000 else 7, N, dtype, seed=seed + N, spreads=(0.1, 3, 30)).cpu()


def given(x):
    """An argument on the GPU."""
    return x.to(DEVICE) if torch.is_tensor(x) else x


def check(complaints, what, function, x, axis=-1, there=None, **options):
    """Compares a call on the GPU with the call on the CPU. `there` has the elements of x on the GPU."""
    expected = getattr(ons, function)(x, axis, method="exact", **options)
    there = given(x) if there is None else there
    y = getattr(ons, function)(
        there, axis, method="exact", **{key: given(value) for key, value in options.items()}
    )
    add(complaints, f"{function} {name(x.dtype)} {tuple(x.shape)} {axis=} {what}", y, expected)


def add(complaints, what, y, expected):
    y = y.cpu()
    if same_bits(y, expected):
        complaints.add(what, None)
    elif (y.dtype, y.shape) != (expected.dtype, expected.shape):
        complaints.add(what, f"{y.dtype} {tuple(y.shape)} for {expected.dtype} {tuple(expected.shape)}")
    else:
        differ = (y != expected) & ~(y.isnan() & expected.isnan())
        differ |= y.signbit() != expected.signbit()
        at = tuple(differ.nonzero()[0].tolist())
        pair = f"{y[at].item()!r} for {expected[at].item()!r}"
        complaints.add(what, f"{differ.sum().item()} of {y.numel()} differ, first at {at}: {pair}")


@each_type
@each_function
def test_lengths(function, dtype):
    with Complaints() as complaints:
        for N in (*LENGTHS, 131_073, 262_145):
            check(complaints, "", function, rows_of(N, dtype))


@pytest.mark.parametrize("function", FUNCTIONS[:2])
@each_type
def test_place_and_type_of_the_result(function, dtype):
    with Complaints() as complaints:
        for N in FEW_LENGTHS:
            x = rows_of(N, dtype)
            for result in TYPES:
                check(complaints, f"to {name(result)}", function, x, dtype=result)
            expected = getattr(ons, function)(x, method="exact")
            for offset, gap in ((0, 0), (1, 0), (3, 5)):
                inside = spread_out(given(x), gap, offset)
                getattr(ons, function)(inside, method="exact", out=inside)
                add(complaints, f"{function} {name(dtype)} {N} in place, {offset} {gap}", inside, expected)
                out = spread_out(torch.zeros_like(given(x)), gap, offset)
                getattr(ons, function)(given(x), method="exact", out=out)
                add(complaints, f"{function} {name(dtype)} {N} to out, {offset} {gap}", out, expected)


@each_type
@each_function
def test_where_and_scale(function, dtype):
    with Complaints() as complaints:
        for N in FEW_LENGTHS:
            x = rows_of(N, dtype)
            allowed = torch.rand(x.shape, generator=torch.Generator().manual_seed(N)) < 0.7
            check(complaints, "where", function, x, where=allowed)
            check(complaints, "where of all rows", function, x, where=allowed[0])
            for scale in (0.7, -2.0):
                check(complaints, f"scale {scale}", function, x, scale=scale)
            a_row = torch.linspace(-1, 1, len(x)).unsqueeze(1)
            check(complaints, "a scale a row, where", function, x, scale=a_row, where=allowed)


@each_type
@each_function
def test_layouts(function, dtype):
    with Complaints() as complaints:
        for N in FEW_LENGTHS:
            x = rows_of(N, dtype)[:6]
            for offset, gap in itertools.product((0, 1, 2, 5), (0, 1, 8)):
                there = spread_out(given(x), gap, offset)
                check(complaints, f"offset {offset}, gap {gap}", function, x, there=there)
            every_second = torch.empty(*x.shape, 2, device=DEVICE, dtype=dtype)[..., 1].copy_(x)
            check(complaints, "every second", function, x, there=every_second)
            check(complaints, "one row 6 times", function, x[:1].expand(6, N))
            check(complaints, "columns", function, x.T.contiguous(), 0)
            check(complaints, "columns of 3", function, x.view(2, 3, N).transpose(1, 2).contiguous(), 1)
            check(complaints, "two axes", function, x.view(2, 3, N), (0, 2))
            check(complaints, "all axes", function, x, None)


@pytest.mark.small
@each_type
@each_function
def test_special_rows(function, dtype):
    """NaN, +inf, nothing but -inf, one finite element, equal elements."""
    inf, nan = math.inf, math.nan
    three = torch.tensor([[nan, 0, 1], [inf, 0, 1], [-inf] * 3, [-inf, 3, -inf], [5] * 3], dtype=dtype)
    with Complaints() as complaints:
        for N in (3, 300, 5000, 20_001):
            x = torch.full((5, N), -inf, dtype=dtype)
            x[:, N - 3 :], x[4] = three, 5
            check(complaints, "", function, x)
        check(complaints, "rows without elements", function, x[:, :0])


@each_function
def test_results_near_the_middle_of_two_numbers(function):
    """A double cannot decide these results, so two doubles do."""
    pairs = torch.tensor([[0, float.fromhex(place)] for place in NEAR[function].split()])
    with Complaints() as complaints:
        for N in (2, 9, 100, 513, 1025, 5000, 16385, 70_000):
            for at in {0, 1, N - 2} - {N - 1}:
                x = torch.full((len(pairs), N), -math.inf)
                x[:, at : at + 2] = pairs
                check(complaints, f"at {at}", function, x)
                if function != "logsumexp":
                    expected, inside = getattr(ons, function)(x, method="exact"), given(x)
                    getattr(ons, function)(inside, method="exact", out=inside)
                    add(complaints, f"{function} {N} at {at} in place", inside, expected)


@each_type
@each_function
def test_rows_that_a_sum_of_powers_does_not_decide(function, dtype):
    """Rows around the limits of a sum of e^x, rows with one large element, and rows of equal elements."""
    offsets = torch.tensor([-700, -400, -215, -208, -203, 203, 247, 255, 259, 260, 261, 400, 700.0])
    largest = torch.tensor([9, 12, 14, 17, 20, 30, 40, 60, 90, 250, 262.0])
    with Complaints() as complaints:
        for N in (3, 33, 256, 1000, 8192, 20_001, 131_072):
            x = rows_of(N, dtype)[:1].float()
            check(complaints, "offsets", function, (x + offsets.unsqueeze(1)).to(dtype))
            x = x.repeat(len(largest), 1)
            x[:, N // 2] = largest
            check(complaints, "one large element", function, x.to(dtype))
            x[:, -1] = largest
            check(complaints, "two large elements", function, x.to(dtype))
            check(complaints, "equal elements", function, largest.unsqueeze(1).repeat(1, N).to(dtype))


@each_function
def test_maxima_that_lie_far_apart(function):
    """The later parts of a long row have elements far above the earlier ones."""
    with Complaints() as complaints:
        for apart in (1, 500, 620, 690, 710, 900, 1100, 1e5, 3e6):
            x = rows_of(300_001, torch.float32)
            x[:, 10_000:] += apart
            x[1, 200_000:] += apart
            check(complaints, f"{apart=}", function, x)


def test_a_sum_that_always_rounds_down():
    """Two elements are 0, and e^x of many others is 2^-52. If a thread adds these to the first two one by
    one, and then lanes and warps add theirs, each addition is rounded down by half a place of the sum. The
    logarithm then has an error above 2^-48, and the exact one lies near the middle of two floats."""
    small = float.fromhex("-0x1.205968p+5")
    x = torch.full((1, 16384), -math.inf)
    for place in (*range(4), *range(128, 132), *range(256, 260), *range(384, 388)):  # of the first thread
        x[0, place] = small
    for place in (4, 8, 16, 32, *(512 * warp for warp in (1, 2, 4, 8, 16))):
        x[0, place] = small
    x[0, :2], x[0, 64], x[0, 65] = 0, float.fromhex("-0x1.095c28p+4"), float.fromhex("-0x1.50d4b2p+4")
    with Complaints() as complaints:
        check(complaints, "", "log_softmax", x)
        check(complaints, "", "logsumexp", x)


@pytest.mark.parametrize("dtype", NARROW_DTYPES, ids=name)
def test_16_bit_results_in_the_middle_of_two_numbers(dtype):
    """x - m lies in the middle of two results, or e^x does not have the digits of a normal float."""
    x = torch.arange(-5000.0, 0, 0.5)
    with Complaints() as complaints:
        for m, other in itertools.product((0, 2000), (-math.inf, -3e38, -70)):
            rows = torch.stack([m + x, torch.full_like(x, m), torch.full_like(x, m + other)], 1)
            check(complaints, f"{m=} {other=}", "log_softmax", rows, dtype=dtype)
        rows = torch.stack([torch.zeros(1 << 17), torch.linspace(-105, -8, 1 << 17)], 1)
        check(complaints, "small results", "softmax", rows, dtype=dtype)
        check(complaints, "small results, rounded to 16 bits first", "softmax", rows.to(dtype))


@each_type
@pytest.mark.parametrize("function", FUNCTIONS[:2])
def test_many_elements(function, dtype):
    """Several million elements, so a double cannot decide some of them."""
    with Complaints() as complaints:
        for rows, N in ((40_000, 50), (4000, 1000), (1000, 4096), (50, 50_257)):
            x = 4 * torch.randn(rows, N, device=DEVICE, generator=generator(N))
            check(complaints, "", function, x.to(dtype).cpu())


def check_topk(complaints, what, x, k, axis=-1, there=None, **options):
    """softmax_topk on the GPU against the CPU: the same indices, the same bits of the values."""
    expected = ons.softmax_topk(x, k, axis, method="exact", **options)
    there = given(x) if there is None else there
    options = {key: given(value) for key, value in options.items()}
    result = ons.softmax_topk(there, k, axis, method="exact", **options)
    what = f"softmax_topk {name(x.dtype)} {tuple(x.shape)} {k=} {axis=} {what}"
    add(complaints, f"indices of {what}", result.indices, expected.indices)
    add(complaints, f"values of {what}", result.values, expected.values)


@pytest.mark.parametrize("log", (False, True))
@each_type
def test_topk(dtype, log):
    with Complaints() as complaints:
        for N in FEW_LENGTHS:
            x = rows_of(N, dtype)
            for k in (1, 2, 8, 100, 1500):
                if k <= N:
                    check_topk(complaints, "", x, k, log=log)
            for result in TYPES:
                check_topk(complaints, f"to {name(result)}", x, 2, log=log, dtype=result)
            allowed = torch.rand(x.shape, generator=torch.Generator().manual_seed(N)) < 0.7
            check_topk(complaints, "where", x, min(N, 40), log=log, where=allowed)
            check_topk(complaints, "scale", x, 2, log=log, scale=-0.7)
            check_topk(complaints, "columns", x.T.contiguous(), 2, 0, log=log)
            check_topk(complaints, "not aligned", x, 2, log=log, there=spread_out(given(x), 3, 1))
        x = rows_of(300, dtype)
        x[0, 5], x[1, 7], x[2], x[3], x[3, 9] = math.nan, math.inf, -math.inf, -math.inf, 3
        for where in (True, torch.arange(300) % 3 > 0, torch.arange(300) < 2):
            check_topk(complaints, "special rows", x, 30, log=log, where=where)
        function = "log_softmax" if log else "softmax"
        pairs = torch.tensor([[0, float.fromhex(place)] for place in NEAR[function].split()], dtype=dtype)
        for N in (2, 100, 5000, 70_000):
            x = torch.full((len(pairs), N), -math.inf, dtype=dtype)
            x[:, -2:] = pairs
            check_topk(complaints, "near the middle of two numbers", x, 2, log=log)


@pytest.mark.parametrize("where_from", ("cpu", "gpu"))
@each_type
def test_rows_in_parts(dtype, where_from):
    """The states come from a GPU and from the CPU. Both give the bits of whole rows."""
    with Complaints() as complaints:
        for N in FEW_LENGTHS:
            x = rows_of(N, dtype)
            cuts = [N // 3, N // 3 + 1, N // 2 + 1]
            parts = x.tensor_split(cuts, 1)
            states = [
                ons.normalizer(given(part) if where_from == "gpu" else part, method="exact").packed.cpu()
                for part in parts
            ]
            for place in (lambda value: value, given):
                row = ons.Normalizer.merge_all(place(torch.stack(states[::-1])), dtype=dtype)
                for function in FUNCTIONS[:2]:
                    y = torch.cat([getattr(row, function)(place(part)).cpu() for part in parts], 1)
                    what = f"{function} {N}, {place(x).device}"
                    add(complaints, what, y, getattr(ons, function)(x, method="exact"))
                add(complaints, f"logsumexp {N}", row.logsumexp(), ons.logsumexp(x, method="exact"))
        row = ons.normalizer(given(x).T, 0, method="exact")
        inside = given(x).T.clone()
        row.softmax(inside, out=inside)
        add(complaints, "columns in place", inside, ons.softmax(x.T, 0, method="exact"))
        allowed = torch.arange(N) % 3 > 0
        row = ons.normalizer(given(x), where=given(allowed), scale=0.7, method="exact")
        wanted = ons.softmax(x, where=allowed, scale=0.7, method="exact")
        add(complaints, "where, scale", row.softmax(given(x), where=given(allowed)), wanted)


def random_case(complaints, seed):
    """A random shape, layout, axis, mask, scale and place of the result."""
    rng = np.random.default_rng(seed)
    dtype, result = (TYPES[i] for i in rng.integers(len(TYPES), size=2))
    function = str(rng.choice(FUNCTIONS))
    shape = random_cases.random_shape(rng, 1 << 18)
    x = random_cases.random_layout(rng, random_cases.random_values(rng, shape, dtype, seed))
    axis, options = random_cases.random_axis(rng, x.ndim), {}
    if rng.random() < 0.4:
        options["where"] = random_cases.random_operand(
            rng, x.shape, lambda shape: torch.rand(shape, device=DEVICE, generator=generator(seed)) < 0.7
        )
    if rng.random() < 0.3:
        options["scale"] = float(rng.choice([0.5, -1.0, 0.1, rng.uniform(-2, 2)]))
    out = {}
    if function != "logsumexp" and rng.random() < 0.5:
        x, place, _ = random_cases.random_out(rng, x, result)
        out = {"dtype": result} if place is None else {"out": place}
    of_cpu = {key: value.cpu() if torch.is_tensor(value) else value for key, value in options.items()}
    result = out["out"].dtype if "out" in out else out.get("dtype", dtype)
    if function != "logsumexp":
        of_cpu["dtype"] = result
    expected = getattr(ons, function)(x.cpu().clone(), axis, method="exact", **of_cpu)
    what = f"seed {seed}: {function} {name(dtype)} to {name(result)} {tuple(x.shape)} strides {x.stride()}"
    what += f" {axis=} {sorted({**options, **out})}"
    y = getattr(ons, function)(x, axis, method="exact", **options, **out)
    add(complaints, what, y, expected)


def test_random_cases():
    with Complaints() as complaints:
        for seed in range(1, 101):
            random_case(complaints, seed)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_float64_is_refused(function):
    x = torch.zeros(2, 3, device=DEVICE, dtype=torch.float64)
    message = "method 'exact' takes and gives float32, float16 and bfloat16, and here the array is float64"
    with pytest.raises(ValueError, match=message):
        getattr(ons, function)(x, method="exact")


def test_other_functions_have_no_exact():
    x = torch.zeros(2, 3, device=DEVICE)
    with pytest.raises(ValueError, match="method 'exact' cannot compute softmax_backward: use one of"):
        ons.softmax_backward(x, x, method="exact")
