"""kl_divergence and js_divergence on a GPU: exact results from every kernel and layout, edges, streams."""

import divergence_checks
import numpy as np
import pytest
from divergence_checks import call
from gpu_support import DEVICE, OnlyDlpack, each_dtype, name, torch

import onsoftmax as ons

NAN, INF = np.nan, np.inf
# Lengths around the limits of the shapes of a warp, of a block, and of a cluster.
LENGTHS = (1, 3, 4, 5, 31, 32, 33, 127, 128, 129, 500, 512, 513, 1000, 1023, 1024, 1025, 4097, 8192, 8193)
LONG = (16385, 32000, 50257, 65537, 131072, 151936, 262144, 262145, 400001)


def to_numpy(tensor):
    """As NumPy's type of the same name, in which the oracle computes products with the scale."""
    array = tensor.double().cpu().numpy()
    return array if tensor.dtype == torch.float64 else array.astype(np.float32)


def checked(x, y, made, reduction, wrt, **terms):
    value, gradient = made
    assert value.is_cuda and (gradient is None or gradient.dtype == x.dtype)
    divergence_checks.check(
        to_numpy(x),
        to_numpy(y),
        (to_numpy(value), None if gradient is None else to_numpy(gradient)),
        reduction,
        name(x.dtype),
        wrt or "p",
        **terms,
    )


def random_rows(rng, dtype, rows, N, layout):
    both = divergence_checks.random_rows(rng, np.float64, (rows, N + 1))
    both = [torch.tensor(one, device=DEVICE).to(dtype) for one in both]
    return [{"plain": x[:, :N].contiguous(), "pitched": x[:, :N], "odd": x[:, 1:]}[layout] for x in both]


@each_dtype
@pytest.mark.parametrize("layout", ["plain", "pitched", "odd"])
@pytest.mark.parametrize("lengths", [LENGTHS, LONG], ids=["short", "long"])
def test_every_length(rng, dtype, layout, lengths):
    for N in lengths:
        x, y = random_rows(rng, dtype, 7 if N < 1000 else 2, N, layout)
        reduction = str(rng.choice(divergence_checks.REDUCTIONS))
        for kind, terms in (("kl", {}), ("js", {"beta": float(rng.choice([0.5, 0.1]))})):
            for wrt in ("p", "q") if kind == "kl" else (str(rng.choice(["p", "q"])),):
                made = call(ons, kind, x, y, wrt, reduction=reduction, **terms)
                checked(x, y, made, reduction, wrt, **terms)
            alone, _ = call(ons, kind, x, y, reduction=reduction, **terms)
            checked(x, y, (alone, None), reduction, "p", **terms)


@each_dtype
def test_masks_scales_and_other_axes(rng, dtype):
    for _ in range(12):
        shape = (*rng.integers(1, 5, rng.integers(1, 3)), int(rng.choice([3, 100, 1500])))
        kind, wrt = str(rng.choice(divergence_checks.KINDS)), str(rng.choice(["p", "q"]))
        axis, reduction = int(rng.integers(-len(shape), len(shape))), str(rng.choice(["none", "mean"]))
        both = divergence_checks.random_rows(rng, np.float64, shape)
        x, y = (torch.tensor(one, device=DEVICE).to(dtype) for one in both)
        terms = divergence_checks.random_terms(rng, kind, shape)
        where = terms["where"]
        moved = None if where is True else torch.tensor(where, device=DEVICE).movedim(-1, axis)
        p, q = (one.movedim(-1, axis) for one in (x, y))
        if rng.random() < 0.5:
            p = p.contiguous()
        keywords = terms | {"where": moved, "axis": axis, "reduction": reduction}
        value, gradient = call(ons, kind, p, q, wrt, **keywords)
        checked(x, y, (value, gradient.movedim(axis, -1)), reduction, wrt, **terms)


EDGES = [
    ([1.0, 2.0, 3.0], [65.0, 66.0, 67.0]),
    ([0.0, 0.0, 0.0], [0.0, -INF, 0.0]),
    ([0.0, -INF, 0.0], [0.0, 0.0, 0.0]),
    ([0.0, -INF, 0.0], [0.0, -INF, 0.0]),
    ([0.0, -INF, -INF], [-INF, 0.0, 0.0]),
    ([0.0, -1000.0, 0.0], [0.0, -INF, 0.0]),
    ([0.0, 0.0, 0.0], [0.0, -1000.0, 0.0]),
    ([0.0, NAN, 0.0], [0.0, 0.0, 0.0]),
    ([0.0, 0.0, 0.0], [0.0, NAN, 0.0]),
    ([0.0, INF, 0.0], [0.0, 0.0, 0.0]),
    ([0.0, 0.0, 0.0], [0.0, INF, 0.0]),
    ([-INF, -INF, -INF], [0.0, 0.0, 0.0]),
    ([0.0, 0.0, 0.0], [-INF, -INF, -INF]),
]


@each_dtype
@pytest.mark.parametrize("N", [3, 500, 5000, 40000])
def test_edges(dtype, N):
    """As on the CPU, also where the infinities are in one warp of many."""
    for fill in (-INF, -2.0):
        rows = np.full((2, len(EDGES), N), fill)
        rows[..., -3:] = np.array(EDGES).transpose(1, 0, 2)
        x, y = (torch.tensor(side).to(dtype) for side in rows)
        for kind in divergence_checks.KINDS:
            for wrt in (None, "p", "q"):
                value, gradient = call(ons, kind, x.to(DEVICE), y.to(DEVICE), wrt)
                wanted, its_gradient = call(ons, kind, x, y, wrt)
                assert torch.allclose(value.cpu(), wanted, rtol=2e-6, atol=2e-6, equal_nan=True), kind
                if wrt:
                    ok = wanted.isfinite()
                    assert torch.allclose(gradient.cpu()[ok], its_gradient[ok], rtol=1e-2, atol=1e-6)
                    assert (gradient.cpu()[wanted.isnan()].isnan().any(-1)).all()


@pytest.mark.parametrize("beta", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("N", [3, 500, 50257, 200001])
def test_nearly_equal_rows(rng, beta, N):
    """The value keeps its digits, although its terms are far larger."""
    x = torch.tensor(rng.standard_normal((3, N)) * 3, dtype=torch.float32, device=DEVICE)
    value, gradient = call(ons, "js", x, x.clone(), "p", beta=beta)
    assert not value.any() and gradient.abs().max() < 1e-6
    for apart in (0.1, 0.01):
        y = x + apart * torch.randn(x.shape, device=DEVICE)
        value, _ = call(ons, "js", x, y, beta=beta)
        wanted = divergence_checks.expected(to_numpy(x), to_numpy(y), "p", beta).values
        np.testing.assert_allclose(to_numpy(value), np.float64(wanted), rtol=1e-3)


@pytest.mark.parametrize("size", [1e30, -1e30, 1e10, -1e10, 3e6])
def test_huge_logits(size):
    for N in (3, 300, 5000):
        x = torch.full((2, N), -size if size < 0 else 0.0)
        x[:, 0] = size
        y = torch.zeros(2, N)
        for p, q in ((x, y), (y, x), (x, x)):
            for wrt in "pq":
                value, gradient = call(ons, "kl", p.to(DEVICE), q.to(DEVICE), wrt)
                wanted, its_gradient = call(ons, "kl", p, q, wrt)
                assert torch.allclose(value.cpu(), wanted, rtol=1e-5, equal_nan=True)
                if wrt == "q":
                    assert torch.allclose(gradient.cpu(), its_gradient, atol=1e-6)


def test_no_rows_and_no_elements():
    none, empty = torch.empty(0, 5, device=DEVICE), torch.empty(2, 0, device=DEVICE)
    for kind in divergence_checks.KINDS:
        assert call(ons, kind, none, none, reduction="mean")[0].isnan()
        assert call(ons, kind, none, none, reduction="sum")[0] == 0
        assert call(ons, kind, none, none, "q")[1].shape == (0, 5)
        value, gradient = call(ons, kind, empty, empty, "p")
        assert value.tolist() == [0, 0] and gradient.shape == (2, 0)


@each_dtype
def test_a_gradient_in_place_of_either_side(rng, dtype):
    for N in (100, 3000, 50257):
        x, y = random_rows(rng, dtype, 3, N, "plain")
        for kind in divergence_checks.KINDS:
            for wrt in "pq":
                wanted = call(ons, kind, x, y, wrt)
                for out in (0, 1):
                    both = [x.clone(), y.clone()]
                    value, gradient = call(ons, kind, *both, wrt, grad_out=both[out])
                    assert gradient is both[out]
                    assert torch.equal(value, wanted[0]) and torch.equal(gradient, wanted[1])


def test_a_stream_and_an_array_by_dlpack_alone(rng):
    x, y = random_rows(rng, torch.float32, 4, 3000, "plain")
    wanted = ons.kl_divergence(x, y)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert torch.equal(ons.kl_divergence(x, y), wanted)
    made = torch.from_dlpack(ons.kl_divergence(OnlyDlpack(x), OnlyDlpack(y), stream=stream.cuda_stream))
    torch.cuda.synchronize()
    assert torch.equal(made, wanted)


def test_the_same_bits_in_any_batch(rng):
    before = ons.set_batch_invariant(True)
    try:
        for N in (100, 3000, 50257):
            x, y = random_rows(rng, torch.bfloat16, 65, N, "plain")
            pitched = [torch.nn.functional.pad(one, (0, 3))[:, :N] for one in (x, y)]
            many = call(ons, "kl", x, y, "q")
            for some in (
                call(ons, "kl", x[7:8], y[7:8], "q"),
                [a[7:8] for a in call(ons, "kl", *pitched, "q")],
            ):
                assert torch.equal(some[0], many[0][7:8]) and torch.equal(some[1], many[1][7:8])
    finally:
        ons.set_batch_invariant(before)


def test_many_rows_and_a_long_row(rng):
    x, y = random_rows(rng, torch.float32, 200_001, 5, "plain")
    checked(x, y, call(ons, "kl", x, y, "q", reduction="sum"), "sum", "q")
    x, y = random_rows(rng, torch.bfloat16, 1, 3_000_000, "plain")
    checked(x, y, call(ons, "kl", x, y, "p"), "none", "p")
