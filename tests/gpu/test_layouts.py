"""Arrays in every kind of GPU memory: alignment, strides, axes, masks, scales, types and out."""

import itertools
from collections import Counter

import gpu_random_cases
import pytest
from gpu_support import (
    DEVICE,
    DTYPES,
    Complaints,
    Refused,
    complaint,
    compute_type,
    each_dtype,
    each_method,
    exact,
    generator,
    name,
    plain_rows,
    random_rows,
    softmax,
    torch,
)

import onsoftmax as ons

LENGTHS = (1, 2, 5, 33, 100, 257, 1000, 1027, 3001, 9000)


def check(complaints, what, x, axis=-1, expected=None, **keywords):
    """Compares one call with the oracle. A row that is too long for the method is no complaint."""
    compute = compute_type(x.dtype, keywords.get("dtype"))
    if expected is None:
        expected = exact(x, axis, keywords.get("where"), keywords.get("scale", 1.0), compute)
    try:
        y = softmax(x, axis, **keywords)
    except Refused:
        return
    wrong_type = y.dtype != keywords.get("dtype", x.dtype)
    what = (
        f"{keywords.get('method')} {name(x.dtype)} {what} {tuple(x.shape)} strides {x.stride()} axis={axis}"
    )
    complaints.add(what, f"a result of {name(y.dtype)}" if wrong_type else complaint(y, expected, compute))


@each_dtype
@each_method
def test_rows_anywhere_in_memory(method, dtype):
    """Unaligned bases, rows an odd distance apart, every second element, and one row repeated."""
    with Complaints() as complaints:
        for N in LENGTHS:
            x = random_rows(5, N, dtype, seed=N)
            expected = exact(x)
            for offset in range(1, 8):
                memory = torch.empty(5 * N + 8, device=DEVICE, dtype=dtype)
                view = memory[offset : offset + 5 * N].view(5, N)
                view.copy_(x)
                check(complaints, f"offset {offset}", view, expected=expected, method=method)
            for gap, offset in itertools.product((1, 2, 3, 7), (0, 1)):
                memory = torch.empty(5, N + gap + offset, device=DEVICE, dtype=dtype)
                view = memory[:, offset : offset + N]
                view.copy_(x)
                check(complaints, f"gap {gap + offset}", view, expected=expected, method=method)
            for step in (2, 3):
                view = torch.empty(5, N, step, device=DEVICE, dtype=dtype)[..., step - 1]
                view.copy_(x)
                check(complaints, f"step {step}", view, expected=expected, method=method)
            check(complaints, "one row 5 times", x[:1].expand(5, N), method=method)
            check(complaints, "one element N times", x[:, :1].expand(5, N), method=method)


@each_dtype
@each_method
def test_columns(method, dtype):
    """The axis is the first of two, or the middle one of three."""
    with Complaints() as complaints:
        few = dtype is torch.float64  # the oracle is slow for float64
        for N, columns in itertools.product(LENGTHS, (1, 8, 33) if few else (1, 2, 3, 8, 31, 33, 130)):
            x = random_rows(columns, N, dtype, seed=N).T.contiguous()
            check(complaints, "columns", x, 0, method=method)
            if N < 3000:
                memory = torch.empty(3, N, columns + 3, device=DEVICE, dtype=dtype)
                view = memory[..., 1 : columns + 1]
                view.copy_(x + torch.arange(3, device=DEVICE)[:, None, None])
                check(complaints, "middle", view, 1, method=method)
        for N, columns in ((2, 100_000), (40, 70_000), (9_000, 100), (70_000, 5)):
            if few and N * columns > 500_000:
                continue
            spread = torch.randn(N, columns, device=DEVICE, generator=generator(1)) * 4
            check(complaints, "columns", spread.to(dtype), 0, method=method)


@each_dtype
@each_method
def test_axes(method, dtype):
    """One axis, several axes and all axes of arrays whose dimensions do not join."""
    whole = plain_rows(1, 5 * 6 * 7 * 8, dtype).view(5, 6, 7, 8)
    arrays = (
        whole,
        whole.permute(2, 0, 3, 1),
        whole[::2, :, 1:6:2],
        whole[:, 1:5, 2:, 1::3].permute(3, 1, 0, 2),
        whole[:, :1].expand(5, 6, 7, 8),
        whole[:, :, None, :, None],
        whole[2, 3, 4, 5],
    )
    with Complaints() as complaints:
        for x in arrays:
            n = x.ndim
            axes = [None, *(a for k in range(1, 4) for a in itertools.combinations(range(n), k))]
            axes += [*range(n), *range(-n, 0), (-1, 0)] if n > 1 else []
            for axis in axes:
                check(complaints, "axes", x, axis, method=method)


def test_seven_dimensions_that_do_not_join():
    x = torch.randn(8, 6, 8, 6, 8, 6, 8, device=DEVICE, generator=generator(5))[
        ::2, ::3, ::2, ::3, ::2, ::3, ::2
    ]
    with Complaints() as complaints:
        for axis in (-1, 0, 3, (1, 4), (0, 2, 4, 6), None):
            check(complaints, "dimensions", x, axis, method="auto")
            check(complaints, "dimensions", x.permute(3, 1, 6, 0, 2, 5, 4), axis, method="auto")


@each_dtype
@each_method
def test_where(method, dtype):
    with Complaints() as complaints:
        for N in LENGTHS[:-1]:
            x = random_rows(24, N, dtype, seed=N, offsets=(0, 90, -1000)).view(2, 3, 4, N)
            full = torch.rand(x.shape, device=DEVICE, generator=generator(N)) < 0.6
            rows = full.clone()
            rows[0, 1] = rows[1, 2, 3] = False
            masks = {
                "full": full,
                "rows of nothing": rows,
                "(B,1,1,N)": full[:, :1, :1],
                "(1,S,N)": full[:1, 0],
                "(N,)": full[0, 0, 0],
                "a column": full[..., :1],
                "all": torch.ones(1, device=DEVICE, dtype=torch.bool),
                "nothing": torch.zeros((), device=DEVICE, dtype=torch.bool),
                "strided": torch.rand(2, 3, 4, 2 * N, device=DEVICE, generator=generator(7))[..., ::2] < 0.3,
                "transposed": full.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
            }
            hidden = torch.where(full, x, torch.nan)
            for kind, where in masks.items():
                check(complaints, f"where {kind}", x, where=where, method=method)
            check(complaints, "where hides NaN", hidden, where=full, method=method)
            check(
                complaints,
                "where of columns",
                x.transpose(1, 3),
                1,
                where=rows.transpose(1, 3),
                method=method,
            )
            columns = x.transpose(1, 3).contiguous()
            check(
                complaints,
                "where of columns",
                columns,
                1,
                where=full[:, :1, :1].transpose(1, 3),
                method=method,
            )


@each_dtype
@each_method
def test_scale(method, dtype):
    with Complaints() as complaints:
        for N in LENGTHS[:-1]:
            x = random_rows(12, N, dtype, seed=N, spreads=(4, 1), offsets=(0, 20, -50)).view(3, 4, N)
            for scale in (0.5, 0.1, -1.0, 0.0, 2, 1 / 3, -0.7):
                check(complaints, f"scale {scale}", x, scale=scale, method=method)
            a_row = torch.rand(3, 4, 1, device=DEVICE, generator=generator(N)) * 2 - 0.5
            where = torch.rand(x.shape, device=DEVICE, generator=generator(N)) < 0.6
            for scale in (a_row, a_row[:, :1], a_row[0], a_row.to(torch.float64), a_row.to(torch.float16)):
                what = f"scale {name(scale.dtype)} {tuple(scale.shape)}"
                check(complaints, what, x, scale=scale, method=method)
                check(complaints, f"{what} where", x, scale=scale, where=where, method=method)
            columns, scale = x.transpose(1, 2).contiguous(), a_row.transpose(1, 2)
            check(complaints, "scale of columns", columns, 1, scale=scale, method=method)
            check(complaints, "scale and where", columns, 1, scale=-0.3, where=where.mT, method=method)


@each_method
@pytest.mark.parametrize("N", [3, 130, 1000, 1001, 5000])
def test_types_in_and_out(method, N):
    with Complaints() as complaints:
        for given, wanted in itertools.product(DTYPES, DTYPES):
            x = random_rows(6, N, given, seed=N, spreads=(4, 1), offsets=(0, 20, -50))
            for array, axis in ((x, -1), (x.T.contiguous(), 0), (x[:, 1:], -1)):
                check(complaints, f"to {name(wanted)}", array, axis, dtype=wanted, method=method)


@each_dtype
@each_method
def test_in_place_and_overlapping(method, dtype):
    with Complaints() as complaints:
        for N in LENGTHS:
            x = plain_rows(6, N, dtype, seed=N)
            expected = exact(x)
            for shift in (0, 1, 2, 4, 8, N // 2, N, 2 * N + 1):
                for forwards in (True, False):
                    memory = torch.zeros(6 * N + shift, device=DEVICE, dtype=dtype)
                    places = (memory[: 6 * N].view(6, N), memory[shift:].view(6, N))
                    inside, out = places if forwards else places[::-1]
                    inside.copy_(x)
                    what = (
                        f"{method} {name(dtype)} N={N} out shifted by {shift} {'up' if forwards else 'down'}"
                    )
                    try:
                        assert softmax(inside, method=method, out=out) is out
                    except Refused:
                        continue
                    complaints.add(what, complaint(out, expected))
            square = plain_rows(min(N, 300), min(N, 300), dtype, seed=N)
            for axis in (0, 1):
                for transposed in (False, True):
                    inside = square.clone()
                    out = inside.T if transposed else inside
                    try:
                        softmax(inside, axis, method=method, out=out)
                    except Refused:
                        continue
                    what = f"{method} {name(dtype)} {tuple(inside.shape)} in place, axis={axis} {transposed=}"
                    complaints.add(what, complaint(out.clone(), exact(square, axis)))


@each_dtype
def test_out_over_its_mask_and_its_scale(dtype):
    """out may lie on the mask or the scale. Their old values count."""
    memory = torch.rand(4, 600, device=DEVICE, generator=generator(1)).to(dtype)
    x, kept = plain_rows(4, 600, dtype), memory[:, :1].clone()
    y = softmax(x, scale=memory[:, :1], out=memory)
    assert complaint(y, exact(x, scale=kept)) is None
    where = memory.view(torch.uint8)[:, :600].view(torch.bool)
    where.copy_(torch.rand(4, 600, device=DEVICE, generator=generator(2)) < 0.5)
    kept = where.clone()
    assert complaint(softmax(x, where=where, out=memory), exact(x, where=kept)) is None


def test_negative_strides():
    cupy = pytest.importorskip("cupy")
    with Complaints() as complaints:
        for dtype in (torch.float16, torch.float32, torch.float64):
            for N in (3, 33, 1000, 5000):
                values = random_rows(40, N, dtype, seed=N)
                x = cupy.asarray(values)
                for cut in (
                    (slice(None), slice(None, None, -1)),
                    (slice(None, None, -1),),
                    (..., slice(None, None, -3)),
                ):
                    for axis in (-1, 0):
                        y = ons.softmax(x[cut], axis)
                        expected = exact(torch.as_tensor(cupy.ascontiguousarray(x[cut]), device=DEVICE), axis)
                        what = f"{name(dtype)} N={N} strides {x[cut].strides} axis={axis}"
                        found = complaint(torch.as_tensor(cupy.ascontiguousarray(y), device=DEVICE), expected)
                        complaints.add(what, found)
                out = cupy.empty_like(x)[:, ::-1]
                assert ons.softmax(x, out=out) is out
                found = complaint(torch.as_tensor(cupy.ascontiguousarray(out), device=DEVICE), exact(values))
                complaints.add(f"{name(dtype)} N={N} out backwards", found)


def test_random_cases():
    with Complaints() as complaints:
        for seed in range(1, 601):
            complaints.add("random", gpu_random_cases.is_wrong(seed, Counter()))
