"""log_softmax and logsumexp on a GPU: every method, type and form, at lengths around each threshold, with
every option. Until a row's (m, d) is known, a method works as in softmax, which other files test."""

import itertools
import math

import numpy as np
import oracle
import pytest
from gpu_support import (
    DEVICE,
    DTYPES,
    METHODS,
    NAMED_METHODS,
    NARROW_DTYPES,
    STABLE_METHODS,
    Complaints,
    Refused,
    compute_type,
    each_dtype,
    generator,
    name,
    random_rows,
    run,
    same_bits,
    spread_out,
    torch,
)

import onsoftmax as ons

OPERATIONS = ("log_softmax", "logsumexp")
LENGTHS = (
    *(1, 2, 3, 4, 5, 16, 17, 31, 64, 65, 127, 128, 129, 256, 257, 513, 1000, 1024, 1025, 1280, 1536, 1537),
    *(2049, 4096, 4097, 8192, 16384, 16385, 32000, 50257, 65536, 131072, 262145, 1 << 20),
)
each_operation = pytest.mark.parametrize("operation", OPERATIONS)
each_method = pytest.mark.parametrize("method", STABLE_METHODS)


def exact(operation, x, axis=-1, where=None, scale=1.0, compute=None):
    """The exact result in float64. For float64 arithmetic, in longdouble, rounded."""
    compute = compute or compute_type(x.dtype)
    if compute is torch.float64 or (torch.is_tensor(scale) or scale != 1.0):
        given = [torch.as_tensor(a, dtype=torch.float64).cpu().numpy() for a in (x, scale)]
        mask = None if where is None else where.cpu().numpy()
        found = getattr(oracle, operation)(given[0], axis, mask, given[1], np.dtype(name(compute)))
        return torch.from_numpy(np.asarray(found, np.float64)).to(DEVICE)
    z = x.double()
    if where is not None:
        z = z.masked_fill(~where, -torch.inf)
    axes = oracle.axes_of(axis, x.ndim)
    m = z.amax(axes, keepdim=True) if x.numel() else z.sum(axes, keepdim=True) - torch.inf
    shifted = z - m
    log_d = shifted.exp().sum(axes, keepdim=True).log()
    if operation == "logsumexp":
        return torch.where(m.isinf(), m, m + log_d).squeeze(axes)
    y = shifted - log_d
    return y if where is None else y.masked_fill(~where, -torch.inf)


def complaint(y, expected, compute, largest=2.5):
    """None, or what is wrong. It allows `largest` eps of max(1, the result's size), and half a place of y's
    own type if that is narrower. This is a little more than on the CPU, because the GPU's powers of two have
    larger errors."""
    if y.shape != expected.shape:
        return f"shape {tuple(y.shape)} for {tuple(expected.shape)}"
    known = torch.where(expected.isfinite(), expected, 0)
    bound = largest * torch.finfo(compute).eps * known.abs().clamp(min=1)
    if y.dtype != compute:
        least = round(math.log2(torch.finfo(y.dtype).smallest_normal))
        exponent = (torch.frexp(known)[1] - 1).clamp(min=least)
        bound += 0.5 * torch.finfo(y.dtype).eps * torch.exp2(exponent.double())
    error = (y.double() - known).abs()
    wrong = torch.where(expected.isinf(), y.double() != expected, ~(error <= bound))
    wrong = torch.where(expected.isnan(), ~y.isnan(), wrong)
    if not wrong.any():
        return None
    where = tuple(i.item() for i in wrong.nonzero()[0])
    worst = (error / (known.abs().clamp(min=1) * torch.finfo(compute).eps)).nan_to_num(torch.inf).max()
    return (
        f"{wrong.sum().item()} of {y.numel()} wrong, worst {worst:.2f} eps, "
        f"first at {where}: {y[where].item():.9g} for {expected[where].item():.9g}"
    )


def rows_for(N, dtype):
    return min(max((1 << (15 if dtype is torch.float64 else 17)) // N, 3), 3000)


@each_operation
@each_dtype
def test_lengths(operation, dtype):
    with Complaints() as complaints:
        for N in LENGTHS:
            x = random_rows(rows_for(N, dtype), N, dtype, seed=N)
            expected = exact(operation, x)
            results = {}
            for method in STABLE_METHODS:
                what = f"{method} {name(dtype)} {tuple(x.shape)}"
                try:
                    y = results[method] = run(operation, x, method=method)
                except Refused as refused:
                    complaints.expect(what, refused.limit < N, f"refused, with a limit of {refused.limit}")
                    continue
                complaints.add(what, complaint(y, expected, compute_type(dtype)))
                if method != "auto":
                    alone = run(operation, x[1:2], method=method)
                    complaints.expect(what, same_bits(alone[0], y[1]), "a row alone has other bits")
                if operation == "log_softmax" and dtype in NARROW_DTYPES and method != "auto":
                    wide = run(operation, x, method=method, dtype=torch.float32)
                    rounded = same_bits(wide.to(dtype), y)
                    complaints.expect(what, rounded, "not the float32 result rounded")
            chosen = ons.plan(x, operation=operation).method
            complaints.expect(f"{chosen} {N}", same_bits(results["auto"], results[chosen]), "not auto's bits")


@each_operation
@each_dtype
def test_columns(operation, dtype):
    shapes = [
        ((7, 5), 0),
        ((33, 130), 0),
        ((100, 96), 0),
        ((6, 700, 9), 1),
        ((3000, 40), 0),
        ((2, 40_000, 3), 1),
    ]
    with Complaints() as complaints:
        for shape, axis in shapes:
            x = random_rows(1, int(np.prod(shape)), dtype, seed=len(shape)).reshape(shape)
            expected = exact(operation, x, axis)
            for method in STABLE_METHODS:
                try:
                    y = run(operation, x, axis, method=method)
                except Refused:
                    continue
                complaints.add(
                    f"{method} {name(dtype)} {shape} {axis}", complaint(y, expected, compute_type(dtype))
                )


@each_operation
@each_dtype
def test_options(operation, dtype):
    """Masks, scales, strides, several axes, results in place and of another type, by every method."""
    compute = compute_type(dtype)
    with Complaints() as complaints:
        for shape, method in itertools.product([(5, 33), (3, 1000), (4, 6000)], STABLE_METHODS):
            x = random_rows(*shape, dtype, seed=1, offsets=(0, 20))
            where = torch.rand(shape, device=DEVICE, generator=generator(2)) < 0.7
            where[0] = False
            scale = torch.rand(shape[0], 1, device=DEVICE, generator=generator(3), dtype=torch.float64)
            for options in ({"where": where}, {"scale": 0.3}, {"scale": scale, "where": where}):
                what = f"{method} {name(dtype)} {shape} {[*options]}"
                try:
                    y = run(operation, x, method=method, **options)
                except Refused:
                    continue
                complaints.add(what, complaint(y, exact(operation, x, **options), compute))
                if operation == "log_softmax":
                    complaints.expect(
                        what, (y[~where] == -torch.inf).all() or "where" not in options, "excluded"
                    )
                    out = x.clone()
                    ons.log_softmax(out, method=method, out=out, **options)
                    complaints.expect(what, same_bits(out, y), "in place")
            spread = x.repeat_interleave(2, 1)[:, ::2]
            apart = torch.empty(shape[0], shape[1] + 1, device=DEVICE, dtype=dtype)[:, 1:].copy_(x)
            for laid in (spread, apart, x.T.contiguous().T):
                try:
                    y = run(operation, laid, method=method)
                except Refused:
                    continue
                complaints.add(f"{method} {laid.stride()}", complaint(y, exact(operation, x), compute))
            if operation == "log_softmax" and (method != "fused_warp" or shape[1] < 1025):
                for result in DTYPES:
                    wide = compute_type(dtype, result)
                    try:
                        y = run(operation, x, method=method, dtype=result)
                    except Refused:
                        continue
                    text = complaint(y, exact(operation, x, compute=wide), wide)
                    complaints.add(f"{method} {shape} to {name(result)}", text)


@pytest.mark.parametrize("dtype", NARROW_DTYPES)
def test_products_of_16_bits(dtype):
    """A product of a scale and a 16-bit number is rounded once. In a row with 0, log_softmax of a product far
    below 0 is the product."""
    x = torch.from_numpy(np.arange(-(1 << 15), 1 << 15, dtype=np.int16)).view(dtype)
    x = x[x.isfinite()]
    exact = x.float().numpy().astype(np.longdouble)  # its products with a scale are exact too
    scales = [0.7, -0.7, 1 / 3, 80**-0.5, -(80**-0.5), 1.1, 2**-9 / 3, 1 + 2**-24, 1 + 2**-24 + 2**-25]
    scales += [1 + 2**-52, 1.5 + 2**-25 + 2**-40, math.pi * 2**20, math.nextafter(2, 0), 1e5, 1e19]
    scales += [-1e30, 1e-20]
    for scale in scales:
        with np.errstate(over="ignore"):
            product = (exact * np.longdouble(scale)).astype(np.float32)
        far = product < -20
        rows = torch.stack([torch.zeros_like(x), x], dim=1).to(DEVICE)
        y = ons.log_softmax(rows, scale=scale, dtype=torch.float32)[:, 1].cpu().numpy()
        np.testing.assert_array_equal(y[far], product[far], err_msg=str(scale))


@each_dtype
def test_shapes_of_values(dtype):
    x = random_rows(4 * 5, 6, dtype, seed=5).reshape(4, 5, 6)
    with Complaints() as complaints:
        for axis in (None, (0, 2), (0, 1, 2), 1, 0, -1):
            expected = exact("logsumexp", x, axis)
            for keepdims in (False, True):
                y = ons.logsumexp(x, axis, keepdims=keepdims)
                shape = torch.sum(x.float(), axis, keepdim=keepdims).shape
                complaints.expect(f"{axis} {keepdims}", y.shape == shape and y.dtype == dtype, f"{y.shape}")
                text = complaint(y.reshape(expected.shape), expected, compute_type(dtype))
                complaints.add(f"{axis} {keepdims}", text)


@each_operation
@each_dtype
def test_rows_that_come_as_a_span(operation, dtype):
    """Neighbouring short rows are taken together. Each has the bits that it has alone, and nothing beside the
    results is written."""
    lengths = (1, 2, 5, 9, 17, 20, 33, 49, 65, 97, 129, 191, 200, 250, 257, 383, 385, 513, 769, 1301, 1537)
    with Complaints() as complaints:
        for N, count, offset in itertools.product(lengths, (131, 8195), (0, 1, 6)):
            x = random_rows(count, N, dtype, seed=N, offsets=(0, 90, -200))
            try:
                expected = run(operation, spread_out(x, 8, 0), method="fused_warp")
            except Refused:
                continue
            memory = torch.full((offset + count * N + 9,), 7, device=DEVICE, dtype=dtype)
            out = memory[offset : offset + count * N].view(count, N)
            into = {"out": out} if operation == "log_softmax" else {}
            y = run(operation, spread_out(x, 0, offset), method="fused_warp", **into)
            beside = torch.cat([memory[:offset], memory[offset + count * N :]])
            what = f"{count}x{N}, offset {offset}"
            complaints.expect(what, same_bits(y, expected), "other bits")
            complaints.expect(what, bool((beside == 7).all()), "written beside")


@each_method
@each_dtype
def test_edges(method, dtype):
    """NaN, infinities, rows that are all -inf or excluded, one element, empty rows."""
    inf, nan = np.inf, np.nan
    with Complaints() as complaints:
        for N in (1, 2, 5, 40, 300, 1024, 3000, 9000):
            rows = np.zeros((9, N))
            rows[:] = np.linspace(-3, 3, N)
            rows[0, N // 2], rows[1, 0], rows[2, -1], rows[3] = nan, inf, -inf, -inf
            rows[4, 0], rows[4, -1] = inf, nan
            far = 3e4 if dtype is torch.float16 else 1e30
            rows[5], rows[6], rows[7, N // 2] = far, -far, far
            x = torch.from_numpy(rows).to(DEVICE, dtype)
            where = torch.ones(x.shape, dtype=torch.bool, device=DEVICE)
            where[8], where[0, N // 2], where[1, 0] = False, False, False
            for operation, options in itertools.product(OPERATIONS, ({}, {"where": where})):
                for axis in (-1, 0):
                    a = x if axis == -1 else x.T.contiguous()
                    mask = {k: v if axis == -1 else v.T.contiguous() for k, v in options.items()}
                    what = f"{operation} {N} {axis} {[*options]}"
                    try:
                        y = run(operation, a, axis, method=method, **mask)
                    except Refused:
                        continue
                    text = complaint(y, exact(operation, a, axis, **mask), compute_type(dtype))
                    complaints.add(what, text)
        one = torch.tensor([[3.0], [-inf], [inf], [nan], [-7.5]], device=DEVICE, dtype=dtype)
        zeros = torch.tensor([[0], [nan], [nan], [nan], [0]], device=DEVICE, dtype=dtype)
        complaints.expect("one", same_bits(run("log_softmax", one, method=method), zeros), "not 0")
        complaints.expect("one", same_bits(run("logsumexp", one, method=method), one[:, 0]), "not itself")
        for shape in ((0, 3), (3, 0), (0, 0)):
            empty = torch.zeros(shape, device=DEVICE, dtype=dtype)
            y = run("logsumexp", empty, method=method)
            complaints.expect(f"{shape}", y.tolist() == [-inf] * shape[0], f"{y}")
            complaints.expect(f"{shape}", run("log_softmax", empty, method=method).shape == shape, "shape")


@each_dtype
def test_naive_is_the_formula(dtype):
    x = torch.randn(50, 777, device=DEVICE, generator=generator(7), dtype=torch.float64).to(dtype)
    total = x.double().exp().to(dtype).double().sum(1, keepdim=True).to(dtype).double().log()
    eps = torch.finfo(dtype).eps
    y, value = ons.log_softmax(x, method="naive"), ons.logsumexp(x, method="naive")
    assert ((y.double() - (x.double() - total)).abs() <= 16 * eps).all()
    assert ((value.double() - total[:, 0]).abs() <= 16 * eps).all()


@each_operation
def test_large_arrays(operation):
    """More rows than a grid has threads, rows of 2^25 elements, and more than 2^31 elements in all."""
    with Complaints() as complaints:
        for shape in [(3_000_000, 7), (1, 1 << 25), (2, (1 << 24) + 3)]:
            x = random_rows(*shape, torch.float32, seed=9, offsets=(0,))
            complaints.add(f"{shape}", complaint(run(operation, x), exact(operation, x), torch.float32))
        x = torch.full((1 << 11, (1 << 20) + 4), 2.0, dtype=torch.bfloat16, device=DEVICE)
        x[-1, -1] = 30.0
        y = run(operation, x)
        expected = exact(operation, x[-1:])
        complaints.add("the last row of 2^31", complaint(y[-1:], expected, torch.float32))


@each_operation
def test_named_methods_give_a_row_its_bits(operation):
    """At any place: beside other rows, unaligned, with gaps."""
    with Complaints() as complaints:
        for dtype, N in itertools.product((torch.float32, torch.bfloat16), (30, 500, 1000, 5003)):
            x = random_rows(9, N, dtype, seed=N)
            for method in NAMED_METHODS:
                try:
                    y = run(operation, x, method=method)
                    off = torch.empty(9 * N + 1, device=DEVICE, dtype=dtype)[1:].view(9, N).copy_(x)
                    gaps = torch.empty(9, 3 * N, device=DEVICE, dtype=dtype)[:, ::3].copy_(x)
                    for what, laid in (("off alignment", off), ("with gaps", gaps)):
                        other = run(operation, laid, method=method)
                        complaints.expect(f"{method} {name(dtype)} {N}", same_bits(other, y), what)
                except Refused:
                    continue


def test_methods_are_those_of_softmax():
    x = torch.zeros(3, 8, device=DEVICE)
    for method in METHODS:
        for operation in OPERATIONS:
            run(operation, x, method=method)
    with pytest.raises(ValueError, match="nonsense"):
        ons.logsumexp(x, method="nonsense")


def test_kinds_of_results():
    x = random_rows(5, 70, torch.float32, seed=3)
    expected = torch.logsumexp(x.double(), -1)
    y = ons.logsumexp(x)
    assert isinstance(y, torch.Tensor) and y.device == x.device
    assert ons.logsumexp(x, None).shape == () and ons.logsumexp(x, None).is_cuda
    cupy = pytest.importorskip("cupy")
    for array in (cupy.asarray(x), cupy.asarray(x).T):
        axis = -1 if array.shape == (5, 70) else 0
        values, logs = ons.logsumexp(array, axis), ons.log_softmax(array, axis)
        assert isinstance(values, cupy.ndarray) and isinstance(logs, cupy.ndarray)
        assert values.shape == (5,) and logs.shape == array.shape
        assert complaint(torch.as_tensor(values, device=DEVICE), expected, torch.float32) is None
    described = type("Described", (), {"__cuda_array_interface__": x.__cuda_array_interface__})()
    values = ons.logsumexp(described, keepdims=True)
    assert isinstance(values, ons.DeviceArray) and values.shape == (5, 1)


def test_jax():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX without a GPU")
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((5, 70), np.float32))
    y = ons.logsumexp(x)
    assert isinstance(y, jax.Array) and y.shape == (5,)
    np.testing.assert_allclose(y, jax.nn.logsumexp(x, -1), rtol=1e-6)
    np.testing.assert_allclose(ons.log_softmax(x), jax.nn.log_softmax(x), rtol=1e-5, atol=1e-6)
