"""softmax_topk on a GPU: the places of a stable sort, and softmax's values."""

import itertools

import numpy as np
import oracle
import pytest

import onsoftmax as ons

torch = pytest.importorskip("torch")
DTYPES = ["float16", "bfloat16", "float32", "float64"]
EPS = {
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float32": 4 * 2.0**-23,
    "float64": 128 * 2.0**-52,
}  # torch's own error in float64


def rows(shape, dtype, seed=5, spread=3.0):
    torch.manual_seed(seed)
    return (spread * torch.randn(shape, device="cuda", dtype=torch.float64)).to(getattr(torch, dtype))


def wanted(x, k, axis=-1, log=False, where=None, scale=1.0):
    """Values in float64, and places. A stable sort of the elements takes NaN as the largest. A stable sort of
    the mask then puts allowed elements first."""
    computed = x if x.dtype == torch.float64 else x.float()
    numbers = computed.cpu().numpy()
    taken = torch.from_numpy(oracle.product(numbers, scale, numbers.dtype)).to(x.device)
    kept = torch.ones_like(x, dtype=torch.bool) if where is None else where.expand(x.shape)
    taken = torch.where(kept, taken, -torch.inf)
    order = torch.sort(taken, dim=axis, descending=True, stable=True).indices
    allowed = torch.sort(kept.gather(axis, order).byte(), dim=axis, descending=True, stable=True)
    places = order.gather(axis, allowed.indices).narrow(axis, 0, k)
    function = torch.log_softmax if log else torch.softmax
    values = function(taken.double(), axis)
    values = torch.where(kept, values, -torch.inf if log else 0.0)
    return values.gather(axis, places), places


def check(x, k, axis=-1, log=False, where=None, scale=1.0, tolerance=None, **options):
    values, places = ons.softmax_topk(x, k, axis, log=log, where=where, scale=scale, **options)
    exact, order = wanted(x, k, axis, log, where, scale)
    assert values.dtype == x.dtype and places.dtype == torch.int64
    assert values.shape == places.shape == exact.shape
    assert torch.equal(places, order), (x.dtype, x.shape, k, (places != order).nonzero()[:5])
    eps = tolerance or EPS[str(x.dtype).removeprefix("torch.")]
    size = exact.abs().clamp(min=1.0) if log else exact.abs()
    least = 2.0**-25 if x.dtype == torch.float16 else 0.0
    same = (values.double() == exact) | (torch.isnan(values) & torch.isnan(exact))
    far = ~same & ~((values.double() - exact).abs() <= eps * size + least)
    assert not far.any(), (x.dtype, x.shape, k, values[far][:5], exact[far][:5])


@pytest.mark.small
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape, k",
    [((1, 1), 1), ((5, 7), 7), ((130, 64), 8), ((33, 129), 8), ((7, 256), 200), ((9, 257), 40),
     ((11, 384), 8), ((3000, 321), 24), ((3, 1000), 1000), ((4, 1025), 5), ((3, 5001), 64),
     ((2, 40000), 1000), ((2, 131073), 64)],
)  # fmt: skip
def test_rows(dtype, shape, k):
    x = rows(shape, dtype)
    check(x, k)
    check(x, 1, log=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape, k",
    [((70000, 256), 8), ((16384, 128), 8), ((3000, 512), 33), ((300, 32000), 5), ((64, 128256), 64),
     ((1, 128256), 5), ((1, 151936), 64), ((40, 50257), 50), ((2, 262144), 1024), ((3, 524289), 300),
     ((1, 3000001), 64), ((1, 500000), 1000)],
)  # fmt: skip
def test_many_and_long_rows(dtype, shape, k):
    x = rows(shape, dtype)
    check(x, k)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "method, shape, ks",
    [
        ("cluster", (64, 50257), (128, 160, 700, 1000)),  # in the last block, few threads have elements
        ("cluster", (3, 151936), (444, 445, 1024)),
        ("online", (130, 131072), (128, 129, 224, 256, 257)),  # a warp's least maxima lie far below
        ("online", (200, 32000), (255, 500, 501, 1024)),  # 16-bit tiles become short
        ("online", (200, 16385), (1024,)),
        ("fused_block", (300, 1100), (17, 18, 32, 171, 172)),
        ("fused_block", (300, 8192), (96, 128, 129, 1024)),
    ],
)
def test_where_another_bound_begins(dtype, method, shape, ks):
    x = rows(shape, dtype)
    for k in ks:
        check(x, k, method=method)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("N", [8, 200, 1024, 5000, 128256, 600000])
def test_rows_that_hurt(dtype, N):
    kind = getattr(torch, dtype)
    up = torch.linspace(-20, 20, N, device="cuda", dtype=torch.float64)
    some = torch.randint(8, (N,), device="cuda").double()
    few = torch.full((N,), -torch.inf, device="cuda", dtype=torch.float64)
    few[N // 3 :: max(1, N // 3)] = 1.0
    late = few.clone()
    late[-1] = torch.inf
    nan = some.clone()
    nan[N // 2 :: 2] = torch.nan
    zeros = torch.where(some > 4, 0.0, -0.0)
    large = up + 1e6
    all_rows = [up, up.flip(0), some, torch.ones_like(up), few, late, nan, zeros, large, -torch.inf + 0 * up]
    x = torch.stack(all_rows).to(kind)
    methods = ["auto"] if N <= 1024 else ["auto", "split", "online"]
    methods += ["cluster"] if 1024 < N <= 200000 else []
    for k, method in itertools.product(sorted({1, min(5, N), min(64, N), min(1000, N)}), methods):
        check(x, k, tolerance=1e-6 if dtype == "float32" else None, method=method)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("N", [4, 60, 129, 256, 500, 512, 1023, 1025, 1100, 2049, 5000, 8192])
def test_any_k(dtype, N):
    """Rows whose bounds come from counting: few distinct numbers, one far away, all exponents, and NaN."""
    x = rows((50, N), "float64", spread=1.0)
    x[10:20] = (2 * x[10:20]).round()
    x[20:30, N // 3] = 1e4
    x[25:30, N // 2] = -1e4
    x[30:35] *= torch.exp(8 * torch.randn_like(x[30:35]))
    x[35:40] -= 20
    x[40:45, : 3 * N // 4] = -torch.inf
    x[45:, ::3] = torch.nan
    x = x.to(getattr(torch, dtype))
    for k in sorted({k for k in (1, 20, N // 8, N // 3, N // 2, N - 1, N) if 1 <= k <= min(N, 1024)}):
        check(x, k, tolerance=2.0**-18 if dtype == "float32" else None)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("N", [9, 16, 31, 32, 33, 64, 100, 130, 255, 256])
def test_many_short_rows(dtype, N):
    """So many rows that a few lanes share one: equal elements, special numbers, and sorted rows."""
    x = rows((20000, N), dtype, spread=1.0)
    x[::7] = (2 * x[::7]).round()
    x[1::7] = x[1::7].sort(-1).values
    x[2::7] = x[2::7].sort(-1, descending=True).values
    x[3::7, ::3] = -torch.inf
    x[4::14, N // 2 :: 5] = torch.nan
    x[11::14, 1 :: N // 3] = torch.inf
    x[5::7] = torch.where(x[5::7] > 0, 0.0, -0.0)
    for k in (1, 3, 4, 5, 8, 9):
        check(x, k, tolerance=2.0**-18 if dtype == "float32" else None)


@pytest.mark.parametrize("N", [7, 32, 64, 100, 128, 256])
def test_numbers_that_differ_in_their_last_bits(N):
    """A short row's keys lack these last bits. The numbers fill whole rows, or lie inside and at the end of
    the k largest."""
    x = rows((60, N), "float32", spread=1.0)
    x[:10] = 1 + 1e-6 * x[:10]
    x[10:20] = -1 - 1e-6 * x[10:20]
    x[20:40] = x[20:40].bfloat16().float() * (1 + 1e-7 * torch.randint(3, (20, N), device="cuda"))
    x[40:50] = 1e-40 * x[40:50]
    x[50:, N // 2 :] = torch.inf
    for k in sorted({k for k in (1, 2, 4, 8, 9, 16, 31, 64, N // 2, N) if 1 <= k <= N}):
        check(x, k, tolerance=2.0**-18)
        check(x.T.contiguous().T, k, tolerance=2.0**-18)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_ties_in_clusters(dtype):
    """The last of the equal elements lies in some block, warp and chunk."""
    x = rows((6, 100003), dtype)
    x = (x / 2).round()
    x[0] = 0
    x[1, 7::1000] = 30
    for k in [1, 50, 77, 100, 101, 333, 1000]:
        check(x, k, tolerance=2.0**-18 if dtype == "float32" else None, method="cluster")


@pytest.mark.parametrize("method", ["fused_warp", "fused_block", "cluster", "split", "online"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_methods(method, dtype):
    longest = 512 if dtype == "float64" else 1024
    for N, k in [(5, 2), (300, 20), (longest, 7), (longest, 500)]:
        check(rows((6, N), dtype), k, method=method)
    if method != "fused_warp":
        check(rows((3, 8000), dtype), 50, method=method)
    if method == "online":
        check(rows((300, 9000), dtype), 5000, method=method)
        check(torch.ones((3, 9000), device="cuda"), 5000, method=method)
    elif method != "fused_warp":
        with pytest.raises(ValueError, match=r"method .* gives at most 1024 of each row, and k is 1025"):
            ons.softmax_topk(rows((2, 5000), dtype), 1025, method=method)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts(dtype):
    x = rows((12, 40, 30), dtype)
    check(x, 7, 1)
    check(x.transpose(0, 2), 5, 0)
    check(x[:, ::2, 1:], 9)
    check(rows((4, 3000), dtype)[:, 1:], 30)
    check(rows((3000, 4), dtype), 30, 0)
    where = torch.rand(x.shape, device="cuda") > 0.3
    check(x, 20, where=where)
    check(x, 20, 1, where=where, log=True)
    check(rows((5, 9000), dtype), 20, where=torch.arange(9000, device="cuda") % 500 == 3)
    if dtype in ("float32", "float64"):
        check(x, 6, scale=-0.7)
    wide = ons.softmax_topk(rows((6, 700), "float16"), 4, dtype=torch.float64).values
    exact = wanted(rows((6, 700), "float16").double(), 4)[0]
    assert wide.dtype == torch.float64 and torch.allclose(wide, exact, rtol=1e-15, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("N", [1, 7, 16, 60, 200, 500, 1000, 3000, 8192, 20000, 200000])
def test_excluded_elements_come_last(dtype, N):
    """They come after allowed elements of -inf too, whatever their values are. Few or many elements are
    allowed."""
    x = rows((9, N), "float64", spread=1.0)
    where = torch.rand_like(x) < 0.5
    x[torch.rand_like(x) < 0.6] = -torch.inf
    x[0, 1:], where[1], x[2] = -torch.inf, False, -torch.inf
    where[3, : N - N // 3], x[3, N // 2 :] = False, -torch.inf
    x[4] = torch.where(torch.rand_like(x[4]) < 0.3, torch.nan, -torch.inf)
    where[5:7] = torch.rand_like(x[5:7]) < 8 / N
    where[7], x[7, N // 2] = True, torch.inf
    others = torch.rand_like(x)
    x[~where & (others < 0.5)] = torch.nan
    x[~where & (others < 0.2)] = torch.inf
    x = x.to(getattr(torch, dtype))
    longest = 512 if dtype == "float64" else 1024
    methods = {"fused_warp": longest, "fused_block": 16 * longest, "cluster": 1 << 17, "split": 1 << 30}
    methods = [method for method, most in methods.items() if most >= N]
    for k in sorted({k for k in (1, 5, 20, N // 3, N - 1, N) if 1 <= k <= min(N, 20000)}):
        for method in ["auto", "online", *(methods if k <= 1024 else [])]:
            check(x, k, where=where, method=method)
        check(x, k, where=where[:1], log=True, scale=0.5)
        check(x, k, where=where[:, :1])
        columns = x.T.contiguous(), where.T.contiguous()
        check(columns[0], k, 0, where=columns[1])
        check(columns[0].T, k, where=columns[1].T)
        check(x[::2, N // 4 :], min(k, N - N // 4), where=where[::2, N // 4 :])


@pytest.mark.parametrize("dtype", DTYPES)
def test_aligned_rows_with_masks_and_scales(dtype):
    x = rows((300, 33328), dtype)
    mask = torch.rand_like(x, dtype=torch.float32) < 0.6
    for scale in (1.0, 0.5, 0.7, -0.7):
        for where in (None, mask, mask[:1], mask[:, :1]):
            check(x, 9, where=where, scale=scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, k", [((9, 3000), 20), ((5, 9001), 30), ((300, 33333), 5), ((2, 700001), 64)])
def test_gaps_change_no_bits_of_scaled_and_masked_rows(dtype, shape, k):
    """A kernel that knows that rows have no gaps takes the first array. Another kernel takes the second."""
    x = rows(shape, dtype)
    with_gaps = torch.stack([x, x], -1)[..., 0]
    mask = torch.rand_like(x, dtype=torch.float32) < 0.6
    rare = torch.arange(shape[1], device="cuda") % 29 == 0
    scales = torch.rand((shape[0], 1), device="cuda", dtype=torch.float64) + 0.5
    for scale in (1.0, 0.7, 0.5, -0.7, scales):
        for where in (None, mask, rare, mask[:, :1]):
            own = ons.softmax_topk(x, k, where=where, scale=scale, return_normalizer=True)
            other = ons.softmax_topk(with_gaps, k, where=where, scale=scale, return_normalizer=True)
            assert torch.equal(own.indices, other.indices), (scale, where)
            assert torch.equal(own.values, other.values), (scale, where)
            assert torch.equal(own.normalizer.packed, other.normalizer.packed), (scale, where)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(50, 100), (9, 5000), (4, 200000), (2, 700000)])
def test_pairs_and_bits(dtype, shape):
    x = rows(shape, dtype)
    one = ons.softmax_topk(x, 3, return_normalizer=True)
    alone = ons.softmax_topk(x[1:2], 3)
    assert torch.equal(one.values[1:2], alone.values) and torch.equal(one.indices[1:2], alone.indices)
    total = ons.logsumexp(x.double())
    logs = ons.softmax_topk(x.double(), 1, log=True).values[:, 0]
    assert torch.allclose(x.double().amax(-1) - logs, total, rtol=1e-12)
    whole = ons.softmax(x).gather(-1, one.indices)
    assert torch.allclose(one.values.double(), whole.double(), rtol=EPS[dtype] / 2, atol=2.0**-25)


def test_streams_and_other_libraries():
    x = rows((64, 9000), "float32")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        a = ons.softmax_topk(x, 9)
    b = ons.softmax_topk(x, 9, stream=side)
    side.synchronize()
    assert torch.equal(a.indices, b.indices) and torch.equal(a.values, b.values)
    cupy = pytest.importorskip("cupy")
    c = ons.softmax_topk(cupy.from_dlpack(x), 9)
    assert isinstance(c.indices, cupy.ndarray) and c.indices.dtype == np.int64
    assert (c.indices.get() == a.indices.cpu().numpy()).all()
    jax = pytest.importorskip("jax")
    with torch.cuda.device(x.device):  # with several GPUs JAX may have made another one current
        shown = jax.dlpack.from_dlpack(x)
    j = ons.softmax_topk(shown, 9)
    assert isinstance(j.indices, jax.Array) and (np.asarray(j.indices) == a.indices.cpu().numpy()).all()


def test_graphs_take_it():
    x = rows((8, 128256), "float32")
    ons.softmax_topk(x, 64)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ons.softmax_topk(x, 64)
    x.copy_(rows((8, 128256), "float32", seed=9))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result.indices, wanted(x, 64)[1])
