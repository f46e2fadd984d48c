"""softmax_backward and log_softmax_backward on a GPU: every method, type and form, at lengths around each
threshold, with every option."""

import itertools

import numpy as np
import oracle
import pytest
from gpu_support import (
    DEVICE,
    DTYPES,
    Complaints,
    compute_type,
    each_dtype,
    generator,
    name,
    same_bits,
    torch,
)

import onsoftmax as ons

METHODS = ("fused_warp", "fused_block", "cluster", "split", "fused", "auto")
LENGTHS = (
    *(1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513),
    *(1000, 1023, 1024, 1025, 2049, 4096, 4097, 8191, 8192, 8193, 16384, 16385, 32000, 50257, 65536, 100_003),
    *(131_071, 131_072, 131_073, 200_001, 262_144, 262_145, 1 << 20),
)
each_operation = pytest.mark.parametrize("operation", ("softmax_backward", "log_softmax_backward"))


def inputs(operation, shape, dtype, axis=-1, seed=0):
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    x = torch.randn(shape, device=DEVICE, generator=generator(seed), dtype=wide) * 3
    grad = torch.randn(shape, device=DEVICE, generator=generator(seed + 1), dtype=wide) * 3
    forward = torch.softmax if operation == "softmax_backward" else torch.log_softmax
    return grad.to(dtype), forward(x, axis).to(dtype)


def complaint(operation, dx, grad, output, axis=-1, where=None, scale=1.0):
    """None, or what is wrong. It allows 4 eps of the larger of a result's two terms, in the arithmetic's
    type, and half a place of dx's own type if that is narrower."""
    compute = compute_type(output.dtype, grad.dtype)
    if compute is torch.float64:
        given = [a.double().cpu().numpy() for a in (grad, output)]
        mask = None if where is None else where.cpu().numpy()
        factor = scale.cpu().numpy() if torch.is_tensor(scale) else scale
        exact, size = oracle.gradient(operation, *given, axis, mask, factor)
        ours = dx.double().cpu().numpy()
        if dx.dtype is torch.float64:
            far = oracle.far_from_gradient(ours, exact, size, np.dtype(np.float64))
            return f"{far.sum()} of {far.size} wrong" if far.any() else None
        exact, size = (torch.from_numpy(a.astype(np.float64)).to(DEVICE) for a in (exact, size))
    else:
        dy, y = grad.double(), output.double()
        if where is not None:
            dy, y = dy.masked_fill(~where, 0), y.masked_fill(~where, 0)
        weight = y if operation == "softmax_backward" else y.exp()
        terms = dy * y if operation == "softmax_backward" else dy
        total = terms.sum(oracle.axes_of(axis, y.ndim), keepdim=True)
        least = torch.finfo(compute).smallest_normal
        exact = scale * (terms - weight * total)
        size = torch.maximum(weight.abs().clamp(min=least) * total.abs(), terms.abs()).clamp(min=least)
        size = size * abs(scale)
        if where is not None:
            exact = exact.masked_fill(~where, 0)
    known = exact.nan_to_num(0)
    bound = 4 * torch.finfo(compute).eps * size.nan_to_num(0)
    if dx.dtype != compute:
        info = torch.finfo(dx.dtype)
        exponent = torch.exp2(torch.floor(torch.log2(known.abs().clamp(min=info.smallest_normal))))
        bound = bound + 0.5 * info.eps * exponent
    wrong = torch.where(exact.isnan(), ~dx.isnan(), ~((dx.double() - known).abs() <= bound))
    if not wrong.any():
        return None
    at = tuple(i.item() for i in wrong.nonzero()[0])
    return (
        f"{wrong.sum().item()} of {dx.numel()} wrong, at {at}: {dx[at].item():.9g} for {exact[at].item():.9g}"
    )


def run(operation, grad, output, axis=-1, **options):
    """The result. None if the method refuses a row of this length."""
    try:
        dx = getattr(ons, operation)(grad, output, axis, **options)
        torch.cuda.synchronize()
        return dx
    except ValueError as error:
        assert "holds rows of at most" in str(error), error
        return None


@each_operation
@each_dtype
def test_lengths(operation, dtype):
    with Complaints() as complaints:
        for N in LENGTHS:
            rows = min(max((1 << (15 if dtype is torch.float64 else 18)) // N, 3), 1000)
            grad, output = inputs(operation, (rows, N), dtype, seed=N)
            for method in METHODS:
                dx = run(operation, grad, output, method=method)
                what = f"{method} {N}"
                if dx is None:
                    complaints.expect(what, method not in ("auto", "split"), "refused")
                    continue
                complaints.add(what, complaint(operation, dx, grad, output))
                if method != "auto":
                    alone = run(operation, grad[1:2], output[1:2], method=method)
                    complaints.expect(what, same_bits(alone[0], dx[1]), "a row alone has other bits")
                    for i in range(2):
                        pair = [grad.clone(), output.clone()]
                        in_place = run(operation, *pair, method=method, out=pair[i])
                        complaints.expect(what, same_bits(in_place, dx), f"in place {i}")


@each_operation
@each_dtype
def test_places(operation, dtype):
    """Rows at any place, with gaps and backwards. Columns, masks, scales, several axes."""
    with Complaints() as complaints:
        for N in (1, 3, 17, 64, 130, 1000, 1025, 5000, 40_000, 140_001):
            rows = min(max((1 << 15) // N, 3), 300)
            grad, output = inputs(operation, (rows, N), dtype, seed=N)
            where = torch.rand(rows, N, device=DEVICE, generator=generator(1)) < 0.7
            where[0] = False
            scales = torch.randn(rows, 1, device=DEVICE, generator=generator(2), dtype=torch.float64)
            plain = run(operation, grad, output, method="split")

            def laid(a, begin, step, rows=rows, N=N):
                memory = torch.zeros(rows, begin + N * abs(step), device=DEVICE, dtype=a.dtype)
                view = memory[:, begin:][:, :: abs(step)][:, :N]
                view.copy_(a)
                return view

            for begin, other, step in itertools.product((0, 1, 3), (0, 2), (1, 2)):
                dx = run(operation, laid(grad, begin, step), laid(output, other, step), method="split")
                complaints.expect(f"{N} {begin} {other} {step}", same_bits(dx, plain), "other bits")
            for method in METHODS:
                reference = run(operation, grad, output, method=method)
                if reference is not None:
                    for begin in (1, 2, 3):
                        dx = run(operation, laid(grad, begin, 1), laid(output, begin, 1), method=method)
                        complaints.expect(
                            f"{method} {N} from {begin}", same_bits(dx, reference), "other bits"
                        )
                    dx = run(operation, laid(grad, 0, 2), laid(output, 0, 2), method=method)
                    if dx is not None:
                        complaints.expect(f"{method} {N} gaps", same_bits(dx, reference), "other bits")
                for options in ({"where": where}, {"scale": -0.3}, {"scale": scales, "where": where}):
                    dx = run(operation, grad, output, method=method, **options)
                    if dx is not None:
                        what = f"{method} {N} {sorted(options)}"
                        complaints.add(what, complaint(operation, dx, grad, output, **options))
                        if "where" in options:
                            complaints.expect(what, not dx[~where].any(), "excluded")
                columns = [a.t().contiguous() for a in (grad, output)]
                dx = run(operation, *columns, 0, method=method)
                if dx is not None:
                    complaints.add(f"{method} {N} columns", complaint(operation, dx.t(), grad, output))
        grad, output = inputs(operation, (6, 7, 40), dtype)
        for axis in (None, (0, 2), 1):
            dx = run(operation, grad, output, axis)
            complaints.add(f"axis {axis}", complaint(operation, dx, grad, output, axis))


@each_operation
@each_dtype
def test_many_short_rows(operation, dtype):
    """Lanes take several of the shortest rows. A row has the same bits alone, and at any place of a pack."""
    with Complaints() as complaints:
        for N in range(1, 34):
            grad, output = inputs(operation, (1_200_001 if N < 9 else 300_001, N), dtype, seed=N)
            dx = run(operation, grad, output)
            some = slice(-999, None)
            complaints.add(f"{N}", complaint(operation, dx[some], grad[some], output[some]))
            for few in (slice(0, 1), slice(-7, None), slice(300, 5000), slice(3, None)):
                part = run(operation, grad[few], output[few])
                complaints.expect(f"{N} {few}", same_bits(part, dx[few]), "other bits")


def off_by_one(a):
    """A copy that begins inside a pack."""
    memory = torch.zeros(*a.shape[:-1], a.shape[-1] + 1, device=DEVICE, dtype=a.dtype)
    return memory[..., 1:].copy_(a)


def apart(a):
    """The same values, without two columns side by side."""
    return torch.stack((a, torch.full_like(a, torch.nan)), -1)[..., 0]


@each_operation
@each_dtype
def test_columns_in_packs(operation, dtype):
    """Columns that lie side by side have the bits of columns with gaps, at any width and any address."""
    lengths = (2, 3, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 131, 256, 300, 1000, 4097)
    with Complaints() as complaints:
        for N, width, slices in itertools.product(lengths, (4, 7, 33, 60, 261), (1, 37)):
            if N > 300 and slices > 1:  # they take long, and are no new shape
                continue
            grad, output = inputs(operation, (slices, N, width), dtype, axis=1, seed=N)
            what = f"{slices} {N} {width}"
            dx = run(operation, grad, output, 1)
            complaints.add(what, complaint(operation, dx, grad, output, 1))
            for how, other in (("at any place", off_by_one), ("one by one", apart)):
                same = same_bits(run(operation, other(grad), other(output), 1), dx)
                complaints.expect(what, same, f"{how}: other bits")
                same = same_bits(run(operation, grad, other(output), 1, out=other(grad)), dx)
                complaints.expect(what, same, f"{how}, one input: other bits")
            memory = torch.full((slices + 2, N + 2, width + 9), 7.0, device=DEVICE, dtype=dtype)
            out = memory[1:-1, 1:-1, 3 : 3 + width]
            complaints.expect(what, same_bits(run(operation, grad, output, 1, out=out), dx), "beside others")
            out.fill_(7)
            complaints.expect(what, (memory == 7).all(), "written beside")
            scaled = run(operation, grad, output, 1, scale=0.7)
            complaints.add(what, complaint(operation, scaled, grad, output, 1, scale=0.7))
            for i in range(2):
                pair = [grad.clone(), output.clone()]
                in_place = run(operation, *pair, 1, out=pair[i])
                complaints.expect(what, same_bits(in_place, dx), f"in place {i}")


@each_operation
def test_types(operation):
    with Complaints() as complaints:
        for a, b in itertools.product(DTYPES, DTYPES):
            grad, output = inputs(operation, (5, 300), a)[0], inputs(operation, (5, 300), b)[1]
            dx = run(operation, grad, output)
            wanted = a if a is b else compute_type(a, b)
            complaints.expect(f"{name(a)} {name(b)}", dx.dtype is wanted, f"type {dx.dtype}")
            complaints.add(f"{name(a)} {name(b)}", complaint(operation, dx, grad, output))
            for result in DTYPES:
                dx = run(operation, grad, output, dtype=result)
                complaints.expect(f"{name(a)} {name(b)}", dx.dtype is result, f"type {dx.dtype}")


@each_operation
@each_dtype
def test_edges(operation, dtype):
    inf, nan = torch.inf, torch.nan
    with Complaints() as complaints:
        for N in (1, 2, 5, 40, 300, 3000, 20_000, 200_000):
            x = torch.linspace(-3, 3, N, device=DEVICE, dtype=torch.float64).repeat(6, 1)
            x[0], x[1, 0], x[2, -1] = -inf, nan, -inf
            grad = torch.ones(6, N, device=DEVICE, dtype=dtype)
            grad[3, 0], grad[4, -1] = inf, nan
            forward = torch.softmax if operation == "softmax_backward" else torch.log_softmax
            output = forward(x, -1).to(dtype)
            for method in METHODS:
                dx = run(operation, grad, output, method=method)
                if dx is not None:
                    rows = [0, 1, 2, 4, 5]
                    what = complaint(operation, dx[rows], grad[rows], output[rows])
                    complaints.add(f"{method} {N}", what)
                    complaints.expect(f"{method} {N}", bool(dx[:2].isnan().all()), "a row of NaN is not NaN")
                    complaints.expect(f"{method} {N}", not dx[3].isfinite().any(), "an infinite sum")
        for shape in ((0, 3), (3, 0)):
            empty = torch.zeros(shape, device=DEVICE, dtype=dtype)
            complaints.expect(shape, run(operation, empty, empty).shape == shape, "empty")


@each_operation
def test_cancelling(operation):
    """The terms of a sum cancel. The rest is right, even if some results are tiny beside others."""
    for dtype, N in itertools.product((torch.float32, torch.float64), (1000, 5000, 100_000, 300_000)):
        output = torch.full((1, N), 0.5 / N, device=DEVICE, dtype=dtype)
        output[0, 0] = 0.5
        grad = torch.randn(1, N, device=DEVICE, generator=generator(0), dtype=dtype)
        grad[0, 1::2] = -grad[0, 0 : N - 1 : 2]
        grad[0, :2] = 0
        output = output if operation == "softmax_backward" else output.log()
        for method in METHODS:
            dx = run(operation, grad, output, method=method)
            if dx is not None:
                assert complaint(operation, dx, grad, output) is None, (method, dtype, N)


def test_streams_and_libraries():
    grad, output = inputs("softmax_backward", (50, 1000), torch.float32)
    expected = ons.softmax_backward(grad, output)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    dx = ons.softmax_backward(grad, output, stream=stream)
    stream.synchronize()
    assert same_bits(dx, expected)
    with pytest.raises(ValueError, match="grad is on the CPU"):
        ons.softmax_backward(grad.cpu(), output)
    cupy = pytest.importorskip("cupy")
    dx = ons.softmax_backward(cupy.asarray(grad), cupy.asarray(output))
    assert isinstance(dx, cupy.ndarray) and np.array_equal(dx.get(), expected.cpu().numpy())


def test_more_than_int32():
    """One row of more than 2^31 elements."""
    N = (1 << 31) + 1000
    if torch.cuda.mem_get_info()[0] < 6 * N:
        pytest.skip("not enough memory")
    output = torch.zeros(1, N, device=DEVICE, dtype=torch.bfloat16)
    grad = torch.zeros(1, N, device=DEVICE, dtype=torch.bfloat16)
    output[0, 3], output[0, -1], grad[0, -1] = 0.25, 0.75, 2
    dx = ons.softmax_backward(grad, output, out=grad)
    assert dx[0, 3].item() == -0.375 and dx[0, -1].item() == 0.375 and not dx[0, 4:-1].any()


@pytest.mark.parametrize("N", (2, 33, 700, 5000, 60_000, 300_000))
def test_what_is_subnormal_before_it_is_scaled(N):
    """Products keep their digits: y of 1e-43 times a scale of 1e10, and e^-104 times a sum of 1e30."""
    grad, output, dx = (torch.zeros(3, N, dtype=torch.float64) for _ in range(3))
    grad[:, 1], output[:, 0], output[:, 1] = 1 / 3, 1, 1e-43
    grad, output = grad.float(), output.float()
    total = (grad.double() * output).sum(1, keepdim=True)
    dx = 1e10 * output.double() * (grad.double() - total)
    logs, large = torch.full((3, N), -torch.inf), torch.zeros(3, N)
    logs[:, 0], logs[:, 1], large[:, 0] = 0, -104, 1e30
    of_logs = large.double() - logs.double().exp() * float(large[0, 0])
    of_logs[:, 0] = 0
    for transposed in (False, True):
        for y, g, exact, operation, scale in (
            (output, grad, dx, ons.softmax_backward, 1e10),
            (logs, large, of_logs, ons.log_softmax_backward, 1.0),
            (logs, large * 1e-10, of_logs, ons.log_softmax_backward, 1e10),
        ):
            y, g = (a.T.contiguous().to(DEVICE).T if transposed else a.to(DEVICE) for a in (y, g))
            found = operation(g, y, scale=scale).cpu().double()
            assert ((found - exact).abs() <= 1e-6 * exact.abs()).all(), (operation, transposed)
