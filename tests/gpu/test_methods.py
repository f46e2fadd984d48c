"""Every method and type on the GPU at lengths around each threshold: accuracy, and the longest row."""

from functools import cache

import pytest
from gpu_support import (
    ANY_LENGTH,
    DEVICE,
    METHODS,
    NARROW_DTYPES,
    STABLE_METHODS,
    Complaints,
    Refused,
    complaint,
    compute_type,
    each_dtype,
    each_method,
    exact,
    generator,
    limit_of,
    name,
    random_rows,
    same_bits,
    softmax,
    torch,
)

import onsoftmax as ons

LENGTHS = (
    *(1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000, 1023, 1024, 1025, 2047, 2048, 2049),
    *(4095, 4096, 4097, 8192, 16384, 32000, 32768, 32769, 50257, 65536, 128256, 131072, 262144),
    *((1 << 20) + 1, 1 << 24),
)


def rows_for(N, dtype):
    """About 2^18 elements. Fewer of float64, because its oracle is slow."""
    if N == 1 << 24:
        return 1 if dtype is torch.float64 else 2
    return min(max((1 << (16 if dtype is torch.float64 else 18)) // N, 3), 5000)


@pytest.fixture(scope="module", autouse=True)
def memory_given_back():
    yield
    case.cache_clear()
    torch.cuda.empty_cache()


@cache
def case(dtype, N):
    x = random_rows(rows_for(N, dtype), N, dtype, seed=N)
    return x, exact(x)


@each_dtype
@each_method
def test_lengths(method, dtype):
    """float32 and float64: within 4 eps, and within 1 eps on average. 16 bits: the float32 result,
    rounded."""
    with Complaints() as complaints:
        for N in LENGTHS:
            x, expected = case(dtype, N)
            what = f"{method} {name(dtype)} N={N} rows={len(x)}"
            try:
                y = softmax(x, method=method)
                complaints.add(what, complaint(y, expected, mean=1))
                if dtype in NARROW_DTYPES:
                    wide = softmax(x, method=method, dtype=torch.float32)
                    complaints.add(f"{what} to float32", complaint(wide, expected, mean=1))
                    rounded = method == "auto" or same_bits(y, wide.to(dtype))
                    complaints.expect(what, rounded, "not the float32 result rounded")
            except Refused as refused:
                complaints.expect(what, refused.limit < N, f"refused, with a limit of {refused.limit}")


@each_dtype
def test_complaints_can_be_made(dtype):
    """complaint notices one element that is slightly off, NaN, and errors that are too large on average."""
    x = random_rows(4, 1000, dtype)
    y, expected = ons.softmax(x), exact(x)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    assert complaint(y, expected) is None
    wrong = y.clone()
    wrong[1, 7] = torch.nextafter(wrong[1, 7], torch.ones((), device=DEVICE, dtype=dtype))
    if dtype is wide:
        wrong[1, 7] = y[1, 7] * (1 + 6 * torch.finfo(dtype).eps)
    assert "first at (1, 7)" in complaint(wrong, expected)
    wrong = y.clone()
    wrong[2, 3] = torch.nan
    assert "first at (2, 3)" in complaint(wrong, expected)
    all_larger = ons.softmax(x, dtype=wide) * (1 + 2 * torch.finfo(wide).eps)
    assert "mean" in complaint(all_larger, expected, largest=8, mean=1)


@each_dtype
def test_naive_is_the_formula(dtype):
    """exp, sum, divide. Each is rounded to the array's own type."""
    eps, least = torch.finfo(dtype).eps, torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    with Complaints() as complaints:
        for N in LENGTHS:
            x = torch.randn(
                min(rows_for(N, dtype), 200), N, device=DEVICE, generator=generator(N), dtype=torch.float64
            )
            x = x.to(dtype)
            y = softmax(x, method="naive").double()
            e = x.double().exp().to(dtype).double()
            expected = (e / e.sum(-1, keepdim=True).to(dtype).double()).to(dtype).double()
            far = (
                ((y - expected).abs() / (16 * eps * expected + 2 * least)).nan_to_num(torch.inf).max().item()
            )
            complaints.expect(
                f"naive {name(dtype)} N={N} rows={len(x)}", far <= 1, f"{far:.2f} times too far"
            )


def test_naive_overflows_by_design():
    y = ons.softmax(torch.tensor([2, 4, 12], device=DEVICE, dtype=torch.float16), method="naive")
    assert y[:2].tolist() == [0, 0] and y[2].isnan()
    for dtype, over in ((torch.float32, 89.0), (torch.float64, 710.0), (torch.bfloat16, 89.0)):
        x = torch.tensor([0, over], device=DEVICE, dtype=dtype)
        assert ons.softmax(x, method="naive")[1].isnan()
        assert ons.softmax(x - 2, method="naive").isfinite().all()
    x = torch.full((200,), 10, device=DEVICE, dtype=torch.float16)  # only the sum overflows
    assert (ons.softmax(x, method="naive") == 0).all()
    x = torch.full((3,), -200, device=DEVICE, dtype=torch.float32)  # 0 / 0
    assert ons.softmax(x, method="naive").isnan().all()


@each_dtype
@pytest.mark.parametrize("method", [m for m in STABLE_METHODS if m not in ANY_LENGTH])
def test_limit(method, dtype):
    """A method holds the longest row that it names, and no longer one. plan names the same length."""
    limit = limit_of(method, dtype)
    if limit is None:
        pytest.skip(f"{method} has no limit below 2^25")
    assert limit >= 512, f"{method} {name(dtype)} holds {limit}"
    for N in (limit + 1, limit + 2, 2 * limit, (1 << 26) + 1):
        with pytest.raises(Refused) as refused:
            softmax(torch.zeros(2, N, device=DEVICE, dtype=dtype), method=method)
        assert refused.value.limit == limit
    with Complaints() as complaints:
        for N in (limit, limit - 1, limit // 2 + 1, limit // 2, limit // 4 + 1):
            x = random_rows(3, N, dtype, seed=N)
            expected = exact(x)
            complaints.add(
                f"{method} {name(dtype)} N={N}", complaint(softmax(x, method=method), expected, mean=1)
            )
            plan = ons.plan(x, method=method)
            if plan.method == method:  # and not the method that `fused` takes
                text = f"plan says {plan.longest_row}, not {limit}"
                complaints.expect(f"{method} {name(dtype)} N={N}", plan.longest_row == limit, text)
    with pytest.raises(ValueError, match=str(limit)):
        ons.plan(torch.zeros(2, limit + 1, device=DEVICE, dtype=dtype), method=method)


@each_dtype
def test_fused_is_whichever_fits(dtype):
    if "fused_warp" not in METHODS:
        pytest.skip("one kind of fused alone")
    # 16 bits take the same way as float32, so that they give its result, rounded
    warp = limit_of("fused_warp", compute_type(dtype))
    block, either = (limit_of(method, dtype) for method in ("fused_block", "fused"))
    assert warp < block == either
    for N, method in ((warp, "fused_warp"), (block, "fused_block")):
        x = random_rows(3, N, dtype)
        chosen = ons.plan(x, method="fused").method
        assert chosen in ("fused", method)
        assert same_bits(softmax(x, method="fused"), softmax(x, method=method)) or warp == N


@each_dtype
def test_auto_takes_any_length(dtype):
    """Lengths between the listed ones, with few rows and with many."""
    numbers = torch.rand(40, generator=torch.Generator().manual_seed(3)).tolist()
    with Complaints() as complaints:
        for i, number in enumerate(numbers):
            N = int(2 ** (1 + 20 * number))
            for rows in (1, 2, 140, (1 << 21) // N):
                if rows == 0 or rows * N > 1 << 23 or (dtype is torch.float64 and rows * N > 1 << 20):
                    continue
                x = random_rows(rows, N, dtype, seed=i)
                what = f"auto ({ons.plan(x).method}) {name(dtype)} N={N} rows={rows}"
                complaints.add(what, complaint(softmax(x), exact(x), mean=1))


def test_methods_lists_what_runs_here():
    found = [method.name for method in ons.methods(DEVICE)]
    assert sorted(found) == sorted({*METHODS, "exact"} - {"auto"})
    for method in found:
        plan = ons.plan(torch.zeros(4, 256, device=DEVICE), method=method)
        assert plan.method == method or (method == "fused" and plan.method.startswith("fused"))
        assert (plan.rows, plan.N) == (4, 256) and plan.reason


def test_unknown_method():
    with pytest.raises(ValueError, match=r"'quick'.*naive.*online") as caught:
        ons.softmax(torch.zeros(3, device=DEVICE), method="quick")
    assert not [method for method in METHODS if method not in str(caught.value)]
