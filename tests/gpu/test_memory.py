"""What kernels write and do not write, what memory they keep, and calls after errors."""

import gc

import pytest
from gpu_support import (
    DEVICE,
    METHODS,
    Complaints,
    Refused,
    complaint,
    each_dtype,
    each_method,
    exact,
    limit_of,
    name,
    plain_rows,
    softmax,
    torch,
)

import onsoftmax as ons

GUARD = 1234.0  # softmax never gives this number
SLACK = 8 << 20  # tolerance in the driver's figure, since other processes use memory too


def memory_used():
    """(bytes that torch has given out, bytes in use on the whole GPU)"""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return torch.cuda.memory_allocated(), total - free


def guarded(N, rows, gap, offset, step, dtype):
    """(memory full of GUARD, rows in it full of NaN)"""
    width = N * step + gap
    memory = torch.full((rows * width + offset + 67,), GUARD, device=DEVICE, dtype=dtype)
    out = memory[offset : offset + rows * width].view(rows, width)[:, : N * step : step]
    out.fill_(torch.nan)
    return memory, out


@each_dtype
@each_method
def test_writes_all_of_out_and_nothing_else(method, dtype):
    places = [
        (0, 0, 1),
        (0, 1, 1),
        (0, 3, 1),
        (1, 0, 1),
        (3, 5, 1),
        (8, 8, 1),
        (16, 2, 1),
        (0, 0, 2),
        (1, 1, 3),
    ]
    with Complaints() as complaints:
        for N in (1, 2, 5, 33, 100, 1000, 1027, 4099, 9001, 70_001):
            x = plain_rows(5, N, dtype, seed=N)
            expected = exact(x)
            for gap, offset, step in places:
                for axis in (-1, 0):
                    memory, out = guarded(N, 5, gap, offset, step, dtype)
                    given, target = (x, out) if axis else (x.T.contiguous(), out.T)
                    try:
                        softmax(given, axis, method=method, out=target)
                    except Refused:
                        continue
                    what = f"{method} {name(dtype)} N={N} gap {gap} offset {offset} step {step} axis={axis}"
                    complaints.add(what, complaint(out.clone(), expected))
                    out.fill_(GUARD)
                    complaints.expect(what, (memory == GUARD).all().item(), "wrote beside out")


@each_dtype
@each_method
def test_writes_all_of_columns_and_nothing_else(method, dtype):
    """out's columns have other columns between them."""
    with Complaints() as complaints:
        for N in (2, 33, 1000, 4099):
            for columns in (1, 3, 32, 45, 130):
                x = plain_rows(columns, N, dtype, seed=N).T.contiguous()
                for gap, offset in ((0, 0), (1, 0), (3, 1), (8, 8)):
                    memory, out = guarded(columns, N, gap, offset, 1, dtype)
                    try:
                        softmax(x, 0, method=method, out=out)
                    except Refused:
                        continue
                    what = f"{method} {name(dtype)} N={N} columns={columns} gap {gap} offset {offset}"
                    complaints.add(what, complaint(out.clone(), exact(x, 0)))
                    out.fill_(GUARD)
                    complaints.expect(what, (memory == GUARD).all().item(), "wrote beside out")


def test_a_result_is_written_whole():
    """The memory of a result was full of NaN before."""
    with Complaints() as complaints:
        for method in METHODS[1:]:
            for shape, axis in (((50, 1000), -1), ((1000, 50), 0), ((3, 70_001), -1), ((20, 30, 40), 1)):
                x = torch.randn(shape, device=DEVICE)
                poison = torch.full(shape, torch.nan, device=DEVICE)
                del poison
                try:
                    complaints.add(
                        f"{method} {shape} {axis}", complaint(softmax(x, axis, method=method), exact(x, axis))
                    )
                except Refused:
                    continue


def test_ten_thousand_calls_keep_no_memory():
    x = torch.randn(8, 500, device=DEVICE, dtype=torch.float16)
    longer = torch.randn(2, 20_000, device=DEVICE)
    columns, where = x[:, :16].T.contiguous(), x > -1
    scale, out = torch.rand(8, 1, device=DEVICE), torch.empty_like(x)
    limits = {method: limit_of(method, torch.float32, at_least=1 << 26) for method in METHODS}
    too_long = torch.zeros(1, 1 << 26, device=DEVICE)

    def calls():
        for method in METHODS:
            ons.softmax(x, method=method)
            ons.softmax(x, method=method, dtype=torch.float64)
            ons.softmax(x, method=method, out=out)
            ons.softmax(x, method=method, where=where, scale=scale)
            ons.softmax(columns, 0, method=method)
            if (limits[method] or 20_000) >= 20_000:
                ons.softmax(longer, method=method)
            if limits[method]:
                with pytest.raises(ValueError):
                    ons.softmax(too_long, method=method)

    for _ in range(5):
        calls()
    before = memory_used()
    for _ in range(10_000 // (6 * len(METHODS)) + 1):
        calls()
    after = memory_used()
    assert after[0] == before[0]
    assert after[1] - before[1] < SLACK


def test_out_of_memory():
    """A result larger than the GPU fails. Later calls work."""
    x = torch.randn(40, 1000, device=DEVICE)
    expected = exact(x)
    before = memory_used()[0]
    for method in METHODS:
        for dtype in (None, torch.float64):
            with pytest.raises((MemoryError, RuntimeError), match=r"(?i)memory"):
                ons.softmax(x[:1, :16].expand(1 << 38, 16), method=method, dtype=dtype)
            with pytest.raises((MemoryError, RuntimeError), match=r"(?i)memory"):
                ons.softmax(x[:1, :16].expand(1 << 38, 16).T, 0, method=method, dtype=dtype)
    assert memory_used()[0] == before
    for method in METHODS[1:]:
        assert complaint(softmax(x, method=method), expected) is None


def test_out_of_memory_for_a_copy():
    """The GPU is so full that the copy of overlapping arrays does not fit."""
    x = torch.randn(1 << 28, device=DEVICE)  # 1 GiB
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    filling = [torch.empty(free - (256 << 20), device=DEVICE, dtype=torch.uint8)]
    kept = x[:1000].clone()
    try:
        with pytest.raises((MemoryError, RuntimeError), match=r"(?i)memory"):
            ons.softmax(x[:-8].view(8, -1), out=x[8:].view(8, -1))
        assert torch.equal(x[:1000], kept)
        small = torch.randn(40, 1000, device=DEVICE)
        assert complaint(softmax(small), exact(small)) is None
    finally:
        filling.clear()
        torch.cuda.empty_cache()


def test_errors_leave_all_as_it_was():
    """Wrong arguments raise the right exception, and nothing is written."""
    x = torch.randn(30, 400, device=DEVICE)
    out = torch.full_like(x, GUARD)
    wrong = [
        (ValueError, {"out": out[:5]}),
        (ValueError, {"out": out.T}),
        (ValueError, {"out": torch.empty(30, 400)}),
        (ValueError, {"out": out[:1].expand(30, 400)}),
        (ValueError, {"out": out, "dtype": torch.float16}),
        (TypeError, {"out": torch.zeros(30, 400, device=DEVICE, dtype=torch.int32)}),
        (ValueError, {"out": out, "where": torch.ones(30, 400, dtype=torch.bool)}),
        (ValueError, {"out": out, "where": torch.ones(400, 30, device=DEVICE, dtype=torch.bool)}),
        (TypeError, {"out": out, "where": torch.ones(30, 400, device=DEVICE)}),
        (ValueError, {"out": out, "scale": torch.ones(30, 400, device=DEVICE)}),
        (ValueError, {"out": out, "scale": torch.ones(30, device=DEVICE)}),
        (TypeError, {"out": out, "scale": "2"}),
        (ValueError, {"out": out, "num_threads": 2}),
        (ValueError, {"out": out, "method": "quick"}),
        (TypeError, {"out": out, "dtype": torch.int32}),
        (IndexError, {"out": out, "axis": 2}),
    ]
    with Complaints() as complaints:
        for exception, keywords in wrong:
            what = str({key: getattr(value, "shape", value) for key, value in keywords.items()})
            try:
                ons.softmax(x, **keywords)
                complaints.add(what, "no exception")
            except Exception as error:
                complaints.expect(what, isinstance(error, exception), f"{type(error).__name__}: {error}")
    assert (out == GUARD).all()
    assert complaint(softmax(x, out=out), exact(x)) is None


def steps_in_a_chain(method, x, y, rows):
    """Calls of which each reads or overwrites data of an earlier one. A wrong order shows in the results."""
    last = y[-rows:]
    return [
        lambda: torch.mul(x, 0.5, out=y),  # a kernel of torch's; it writes the last rows last
        lambda: ons.softmax(last, method=method),
        lambda: ons.logsumexp(y, method=method),
        lambda: ons.softmax(x, out=y, method=method),  # overwrites what earlier calls read
        lambda: ons.log_softmax(last, out=last, method=method),
        lambda: ons.softmax_backward(last, y[:rows], out=last),
        lambda: torch.mul(x, 2.0, out=y),
        lambda: ons.softmax_topk(last, 5),
        lambda: ons.log_softmax(y, out=y, method=method),
        lambda: torch.add(last, 1.0),
    ]


@each_method
@pytest.mark.parametrize("in_graph", [False, True])
def test_each_kernel_waits_for_the_work_ahead(method, in_graph):
    """A kernel may be launched before the work ahead of it has ended."""
    rows = 3
    for M, N in ((40000, 256), (2000, 8192)):
        if method == "grid":
            M = 50
        try:
            ons.plan((M, N), dtype="float32", device="cuda", method=method)
        except ValueError:
            continue  # the row is too long
        x = torch.randn(M, N, device=DEVICE)
        y = torch.empty_like(x)
        steps = steps_in_a_chain(method, x, y, rows)

        def run(wait, steps=steps, y=y):
            results = []
            for step in steps:
                results.append(step())
                if wait:
                    torch.cuda.synchronize()
            kept = [result for result in results if result is not y and result is not None]
            return [r for result in kept for r in (result if isinstance(result, tuple) else (result,))]

        expected = [r.clone() for r in run(True)]
        if in_graph:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found = run(False)
        for turn in range(5):
            y.fill_(torch.nan)
            if in_graph:
                graph.replay()
            else:
                found = run(False)
            torch.cuda.synchronize()
            for step, (a, b) in enumerate(zip(found, expected, strict=True)):
                assert torch.equal(a, b), (method, M, N, turn, step)
