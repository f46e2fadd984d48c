"""Rows of `cluster` that exceed the registers of its usual blocks. Larger blocks hold up to half as much
again. Longer rows, and all such float64 rows, lie in shared memory. The tests have lengths around each limit,
any alignment, few rows, more rows than clusters, and rows with special values."""

import pytest
from gpu_support import (
    DEVICE,
    DTYPES,
    NARROW_DTYPES,
    Complaints,
    Refused,
    complaint,
    each_dtype,
    exact,
    name,
    random_rows,
    same_bits,
    softmax,
    torch,
)

import onsoftmax as ons

METHOD = "cluster"


@pytest.fixture(scope="module", autouse=True)
def memory_given_back():
    yield
    torch.cuda.empty_cache()


@pytest.fixture(scope="module")
def longest():
    """The longest float32 row that the registers of a cluster's usual blocks hold, and the longest that a
    cluster holds."""
    x = torch.zeros(8, 64, device=DEVICE)
    whole = ons.plan(x, method=METHOD).longest_row
    registers = ons.plan(x[:, ::2], method=METHOD).longest_row
    if whole <= registers:
        pytest.skip("on this GPU no row comes to shared memory")
    return registers, whole


def lengths(longest, dtype):
    """Around lengths that just fill the registers, one tile more, all tiles of 8 blocks, and all tiles of
    16."""
    less = 2 if dtype is torch.float64 else 1
    edges = {longest[0] // less, longest[0] // less * 3 // 2, 2 * longest[0] // less, longest[1] // less}
    return sorted({edge + by for edge in edges for by in (-1, 0, 1, 5)} | {300_007 // less, 700_000 // less})


def spread_out(x, gap, offset):
    rows, N = x.shape
    memory = torch.empty(rows * (N + gap) + offset, device=DEVICE, dtype=x.dtype)
    view = memory[offset:].view(rows, N + gap)[:, :N]
    view.copy_(x)
    return view


@each_dtype
def test_lengths(longest, dtype):
    with Complaints() as complaints:
        for N in lengths(longest, dtype):
            x = random_rows(1 if dtype is torch.float64 else 5, N, dtype, seed=N)
            what = f"{name(dtype)} N={N}"
            try:
                y = softmax(x, method=METHOD)
            except Refused as refused:
                complaints.expect(what, refused.limit < N, f"refused, with a limit of {refused.limit}")
                continue
            complaints.add(what, complaint(y, exact(x), mean=1))
            if dtype in NARROW_DTYPES:
                wide = softmax(x, method=METHOD, dtype=torch.float32)
                complaints.add(f"{what} to float32", complaint(wide, exact(x), mean=1))
                complaints.expect(what, same_bits(y, wide.to(dtype)), "not the float32 result rounded")
                same = same_bits(wide, softmax(x.float(), method=METHOD))
                complaints.expect(what, same, "not what float32 gives")


@each_dtype
def test_bits_at_any_place(longest, dtype):
    """The same bits in all runs, rows and alignments, and in place."""
    less = 2 if dtype is torch.float64 else 1
    with Complaints() as complaints:
        for N in (
            longest[0] // less + 1,
            longest[0] // less + 1024,
            longest[0] // less * 3 // 2,
            longest[0] // less * 3 // 2 + 1,
            2 * longest[0] // less - 8,
            longest[1] // less,
        ):
            x = random_rows(40, N, dtype, seed=N, offsets=(0, 90, -200))
            y = softmax(x, method=METHOD)
            what = f"{name(dtype)} N={N}"
            complaints.expect(f"{what} again", same_bits(softmax(x, method=METHOD), y), "other bits")
            for begin, end in ((0, 1), (1, 2), (3, 8), (20, 40)):
                part = softmax(x[begin:end].clone(), method=METHOD)
                complaints.expect(
                    f"{what} rows {begin} to {end}", same_bits(part, y[begin:end]), "other bits"
                )
            for offset, gap in ((0, 1), (1, 0), (3, 2), (1, 8), (8, 5), (7, 7)):
                view = spread_out(x[:9], gap, offset)
                place = f"{what} gap {gap} offset {offset}"
                complaints.expect(place, same_bits(softmax(view, method=METHOD), y[:9]), "other bits")
                out = spread_out(x[:9], gap, offset)
                ons.softmax(x[:9], method=METHOD, out=out)
                complaints.expect(f"{place} of out", same_bits(out, y[:9]), "other bits")
                ons.softmax(view, method=METHOD, out=view)
                complaints.expect(f"{place} in place", same_bits(view, y[:9]), "other bits")
            alike = softmax(x[:1].expand(20, -1), method=METHOD)
            complaints.expect(
                f"{what} one row 20 times", same_bits(alike, y[:1].expand(20, -1)), "other bits"
            )


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=name)
def test_many_rows(longest, dtype):
    """So many rows that every cluster takes several. The results overwrite every NaN."""
    for N in (longest[0] + 3, 2 * longest[0] - 3, longest[1] - 1):
        x = random_rows(150, N, dtype, seed=N)
        y = torch.full_like(x, torch.nan)
        ons.softmax(x, method=METHOD, out=y)
        assert complaint(y, exact(x), mean=1) is None


@each_dtype
@pytest.mark.parametrize("more", [70_001, 200_001])
def test_special_rows(longest, dtype, more):
    N = longest[0] // (2 if dtype is torch.float64 else 1) + more
    x = random_rows(9, N, dtype, seed=3, offsets=(0,))
    x[0, N - 1] = torch.nan
    x[1, 5] = torch.inf
    x[2] = -torch.inf
    x[3, ::2] = -torch.inf
    x[4] = -torch.inf
    x[4, N - 2] = 7
    x[5] = 3
    x[6, N - 3] = 60_000  # all other elements give 0, though each warp has its own sums
    x[7] = torch.linspace(-80, 80, N, device=DEVICE, dtype=torch.float64).to(dtype)  # ascending
    x[8] = torch.linspace(80, -80, N, device=DEVICE, dtype=torch.float64).to(dtype)
    y = softmax(x, method=METHOD)
    assert y[:3].isnan().all()
    assert (y[3, ::2] == 0).all() and (y[3, 1::2] != 0).any()
    assert y[4, N - 2] == 1 and y[4].count_nonzero() == 1
    assert (y[5] == y[5, 0]).all()
    assert y[6, N - 3] == 1 and y[6].count_nonzero() == 1
    finite = x[[3, 5, 7, 8]]
    assert complaint(y[[3, 5, 7, 8]], exact(finite)) is None


def test_in_a_graph(longest):
    N = longest[0] * 3 // 2 + 1
    x = random_rows(40, N, torch.float32)
    y = torch.empty_like(x)
    ons.softmax(x, method=METHOD, out=y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ons.softmax(x, method=METHOD, out=y)
    x.copy_(random_rows(40, N, torch.float32, seed=9))
    y.fill_(torch.nan)
    graph.replay()
    assert complaint(y, exact(x)) is None


@pytest.mark.small
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=name)
def test_small(longest, dtype):
    """Few rows, for the sanitizers: aligned, and off by one up to the end of the allocation."""
    held = longest[0] // (2 if dtype is torch.float64 else 1)
    for offset, N in (
        (0, held + 1000),
        (0, held * 3 // 2 + 1000),
        (1, held * 3 // 2 + 1),
        (3, held * 3 // 2 + 997),
    ):
        memory = torch.zeros(2 * N + offset, device=DEVICE, dtype=dtype)
        memory[offset:] = random_rows(1, 2 * N, dtype, seed=N)[0]
        x = memory[offset:].view(2, N)
        y = ons.softmax(x, method=METHOD)
        assert complaint(y, (torch.softmax(x.double(), -1) * 2.0**200, None)) is None
