"""Numbers of rows and elements from zero to more than 2^31 on the GPU."""

import gc

import pytest
from gpu_support import (
    DEVICE,
    Complaints,
    Refused,
    complaint,
    each_dtype,
    each_method,
    exact,
    generator,
    name,
    plain_rows,
    softmax,
    torch,
)

BEYOND = 1 << 31
ROW = BEYOND + 13
CHUNK = 1 << 26


@pytest.fixture(autouse=True)
def memory_given_back():
    yield
    gc.collect()
    torch.cuda.empty_cache()


def is_tried(method, dtype, rows, N):
    """Leaves out cases whose oracle is slow. grid takes rows one after the other, so it gets very many rows
    only once."""
    if method == "grid" and rows > 5000:
        return (rows, N) == (65_537, 7)
    return rows * N <= (200_000 if dtype is torch.float64 else 1 << 23) or (rows, N) == (1_000_000, 1)


@each_dtype
@each_method
def test_rows(method, dtype):
    """From one row to a million, with more rows than a grid has in its second and third dimension."""
    counts = (
        1,
        2,
        3,
        7,
        31,
        32,
        33,
        131,
        132,
        133,
        264,
        1000,
        4097,
        65_535,
        65_536,
        65_537,
        200_003,
        1_000_000,
    )
    with Complaints() as complaints:
        for rows in counts:
            for N in (1, 2, 7, 32, 33, 200, 1500):
                if not is_tried(method, dtype, rows, N):
                    continue
                x = plain_rows(rows, N, dtype, seed=N)
                expected = exact(x)
                what = f"{method} {name(dtype)} rows={rows} N={N}"
                try:
                    complaints.add(what, complaint(softmax(x, method=method), expected))
                    y = softmax(x.T.contiguous(), 0, method=method)
                    complaints.add(f"{what} as columns", complaint(y.T, expected))
                except Refused:
                    continue


def random_bits(shape):
    x = torch.empty(shape, device=DEVICE, dtype=torch.float16)
    return x.normal_(0, 3, generator=generator(int(shape[0])))


MANY = [
    ("fused_warp", (1 << 22) + 3, 512),
    ("fused_block", (1 << 20) + 3, 2048),
    ("online_block", (1 << 20) + 3, 2048),
    ("fused", (1 << 19) + 1, 4097),
    ("naive", 70_001, 32_000),
    ("safe", 70_001, 32_000),
    ("online", 70_001, 32_000),
    ("cluster", 65_537, 32_769),
    ("split", 2_049, 1 << 20),
    ("grid", 2_049, 1 << 20),
    ("auto", 1_000_003, 2_200),
    ("auto", (1 << 30) + 1, 2),
    ("auto", 3, 1 << 30),
]


@pytest.mark.parametrize(("method", "rows", "N"), MANY)
def test_more_than_2_to_the_31_elements(method, rows, N):
    assert rows * N > BEYOND
    x = random_bits((rows, N))
    if method == "naive":
        x.clamp_(max=1)  # so that the float16 sum stays below 65504
    try:
        y = softmax(x, method=method)
    except Refused as refused:
        pytest.skip(f"{method} holds {refused.limit}")
    step = max(CHUNK // N, 1)
    with Complaints() as complaints:
        for begin in range(0, rows, step):
            given, result = x[begin : begin + step], y[begin : begin + step]
            what = f"{method} rows {begin} to {begin + step}"
            if method == "naive":
                expected = torch.softmax(given.float(), -1)
                near = ((result.float() - expected).abs() <= 0.02 * expected + 2e-7).all().item()
                complaints.expect(what, near, "far from softmax")
            else:
                complaints.add(what, complaint(result, exact(given)))


@pytest.mark.parametrize(("N", "columns"), [(1000, 2_200_001), (2_200_001, 1000)])
def test_more_than_2_to_the_31_elements_in_columns(N, columns):
    x = random_bits((N, columns))
    y = softmax(x, 0)
    step = max(CHUNK // N, 1)
    with Complaints() as complaints:
        for begin in range(0, columns, step):
            part = slice(begin, begin + step)
            complaints.add(f"columns {part}", complaint(y[:, part], exact(x[:, part], 0)))


@pytest.fixture(scope="module")
def row():
    """Logits of which a few are so high that float16 holds their results."""
    x = random_bits((ROW,))
    x.clamp_(max=9)
    high = torch.randint(0, ROW, (4000,), device=DEVICE, generator=generator(1))
    high[:3] = torch.tensor([0, ROW - 1, BEYOND])
    x[high] = 20 + torch.rand(4000, device=DEVICE, generator=generator(2)).half()
    m, d = x.max().double(), 0.0
    for chunk in x.split(CHUNK):
        d = d + (chunk.double() - m).exp_().sum()
    return x, high, m, d


def exact_part(chunk, m, d):
    return (chunk.double() - m).exp_() / d * 2.0**200, None


@pytest.mark.parametrize("method", ["safe", "online", "split", "grid", "auto"])
def test_a_row_beyond_2_to_the_31(row, method):
    x, high, m, d = row
    try:
        y = softmax(x, method=method)
    except Refused as refused:
        pytest.skip(f"{method} holds {refused.limit}")
    with Complaints() as complaints:
        for i, (given, result) in enumerate(zip(x.split(CHUNK), y.split(CHUNK), strict=True)):
            complaints.add(f"{method} from {i * CHUNK}", complaint(result, exact_part(given, m, d)))
    assert complaint(y[high], exact_part(x[high], m, d)) is None
    assert (y[high] > 1e-5).all()


@pytest.mark.parametrize("method", ["online", "split", "grid", "auto"])
def test_a_row_beyond_2_to_the_31_to_float32(row, method):
    """Each element is within 4 eps, and all add up to 1."""
    x, _, m, d = row
    try:
        y = softmax(x, method=method, dtype=torch.float32)
    except Refused as refused:
        pytest.skip(f"{method} holds {refused.limit}")
    total = 0.0
    with Complaints() as complaints:
        for i, (given, result) in enumerate(zip(x.split(CHUNK), y.split(CHUNK), strict=True)):
            complaints.add(f"{method} from {i * CHUNK}", complaint(result, exact_part(given, m, d)))
            total += result.sum(dtype=torch.float64).item()
    assert abs(total - 1) < 6e-7


def test_long_strides(row):
    """Strides of 2^31 bytes."""
    x = row[0]
    some = x[: BEYOND + 2].view(2, -1)[:, ::7]
    y = softmax(some, 0)
    assert complaint(y[:, -CHUNK:], exact(some[:, -CHUNK:], 0)) is None
    apart = x[:: (1 << 30) - 5]
    assert complaint(softmax(apart), exact(apart)) is None
