"""Neighbouring columns, of which a thread takes several at a time. They are right, and have the bits that
they have alone, at any place."""

import pytest
from gpu_support import (
    DEVICE,
    Complaints,
    Refused,
    complaint,
    compute_type,
    exact,
    name,
    random_rows,
    same_bits,
    softmax,
    torch,
)

import onsoftmax as ons
from onsoftmax import _core

# Around lengths where a kernel holds more packs, takes another warp or block, or leaves the last one part
# empty.
LENGTHS = {
    "fused_warp": (2, 3, 4, 5, 8, 13, 16, 17, 31, 32),
    "fused_block": (2, 31, 32, 33, 64, 65, 300, 511, 512),
    "online": (2, 16, 17, 255, 257, 1025, 9001),
    "cluster": (2, 64, 65, 256, 257, 1000, 1024, 1025, 4096, 4099, 8192),
}
WIDTHS = (2, 3, 4, 8, 12, 31, 32, 33, 34, 36, 64, 100, 129, 259, 385)
TYPES = [(t, t) for t in (torch.float16, torch.bfloat16, torch.float32)]
TYPES += [(t, torch.float32) for t in (torch.float16, torch.bfloat16)]

each_method = pytest.mark.parametrize("method", LENGTHS)
each_types = pytest.mark.parametrize("types", TYPES, ids=lambda t: f"{name(t[0])} to {name(t[1])}")


def columns(N, count, dtype):
    """Rows of every kind as the columns of an (N, count) array."""
    return random_rows(count, N, dtype, seed=N).T.contiguous()


def apart(x):
    """The same values, without two columns side by side."""
    return torch.stack((x, torch.full_like(x, torch.nan)), -1)[..., 0]


def placed(x, offset, gap):
    """The same values, `offset` elements into memory, with `gap` elements between their rows."""
    N, count = x.shape
    memory = torch.full((N * (count + gap) + offset,), torch.nan, device=DEVICE, dtype=x.dtype)
    view = memory[offset:].view(N, count + gap)[:, :count]
    view.copy_(x)
    return view


@each_types
@each_method
def test_same_bits_as_one_by_one(method, types):
    x_type, y_type = types
    with Complaints() as complaints:
        for N in LENGTHS[method]:
            whole = columns(N, max(WIDTHS), x_type)
            expected = softmax(apart(whole), 0, method=method, dtype=y_type)
            what = f"{method} {name(x_type)} to {name(y_type)} N={N}"
            compute = compute_type(x_type, y_type)
            complaints.add(what, complaint(expected, exact(whole, 0, compute=compute), compute))
            for width in WIDTHS:
                part = whole[:, :width].contiguous()
                same = same_bits(softmax(part, 0, method=method, dtype=y_type), expected[:, :width])
                complaints.expect(f"{what} {width} columns", same, "other bits")


@each_types
@each_method
def test_same_bits_wherever_they_lie(method, types):
    x_type, y_type = types
    N = LENGTHS[method][-3]
    with Complaints() as complaints:
        for width in (36, 33):
            x = columns(N, width, x_type)
            expected = softmax(apart(x), 0, method=method, dtype=y_type)
            for offset, gap in ((0, 0), (0, 4), (1, 0), (2, 0), (0, 1), (3, 2)):
                out = placed(expected * 0, offset, gap)
                softmax(placed(x, offset, gap), 0, method=method, out=out)
                what = f"{method} {name(x_type)} to {name(y_type)} {width} columns, {offset} in, {gap} apart"
                complaints.expect(what, same_bits(out, expected), "other bits")
                softmax(x, 0, method=method, out=out)
                complaints.expect(f"{what}, the result alone", same_bits(out, expected), "other bits")
            if x_type is y_type:
                inside = x.clone()
                softmax(inside, 0, method=method, out=inside)
                complaints.expect(
                    f"{method} {name(x_type)} in place", same_bits(inside, expected), "other bits"
                )


@each_types
@each_method
def test_slices_behind_one_another(method, types):
    """The axis is in the middle. Slices follow each other directly, or with a gap. A block may have several
    narrow slices, or a part of a wide slice."""
    x_type, y_type = types
    cases = [(LENGTHS[method][-2], 3, width) for width in (3, 4, 20, 32, 33, 40, 68)]
    cases += [(LENGTHS[method][4], 29, width) for width in (3, 20, 77, 150, 259)]
    with Complaints() as complaints:
        for N, slices, width in cases:
            x = torch.stack([columns(N, width, x_type) + i for i in range(slices)])
            expected = torch.stack([softmax(apart(part), 0, method=method, dtype=y_type) for part in x])
            spread = torch.zeros(2 * slices - 1, N, width, device=DEVICE, dtype=x_type)[::2]
            spread.copy_(x)
            for how, given in (("next", x), ("apart", spread)):
                y = softmax(given, 1, method=method, dtype=y_type)
                what = f"{method} {name(x_type)} to {name(y_type)} {slices} slices of {N}x{width}, {how}"
                complaints.expect(what, same_bits(y, expected), "other bits")


@each_types
@each_method
def test_elements_far_below_their_maximum(method, types):
    """Elements whose exponentials are at the edge of nothing, below maxima on both sides of 1024."""
    x_type, y_type = types
    maxima = torch.tensor(
        [0, 3, -600, 1016, 1024, 1032, -1016, -1024, -1032, 2100, -2100, 2e4], device=DEVICE
    )
    below = torch.tensor([1, 60, 86, 90, 104, 110, 117, 118, 119, 126, 140, 200, torch.inf], device=DEVICE)
    compute = compute_type(x_type, y_type)
    with Complaints() as complaints:
        for N in LENGTHS[method][1:7:2]:
            generator = torch.Generator(DEVICE).manual_seed(N)
            picked = torch.randint(0, len(below), (N, 4 * len(maxima)), device=DEVICE, generator=generator)
            x = maxima.repeat_interleave(4) - below[picked]
            x[N // 2] = maxima.repeat_interleave(4)
            x = x.to(x_type)
            y, alone = (softmax(each, 0, method=method, dtype=y_type) for each in (x, apart(x)))
            what = f"{method} {name(x_type)} to {name(y_type)} N={N}"
            complaints.add(what, complaint(y, exact(x, 0, compute=compute), compute))
            complaints.expect(what, same_bits(y, alone), "other bits")


@each_types
@each_method
def test_same_bits_beside_others(method, types):
    """The columns in another order, so that different kinds share a strip. No column affects another one's
    bits."""
    x_type, y_type = types
    with Complaints() as complaints:
        for N in LENGTHS[method][1::2]:
            for width in (33, 128):
                x = columns(N, width, x_type)
                x[0, 5], x[-1, 9], x[:, 13] = torch.nan, torch.inf, -torch.inf
                x[0, 20], x[:, 22] = -torch.inf, 6e4 if x_type is torch.float16 else 1e7
                y = softmax(x, 0, method=method, dtype=y_type)
                mixed = torch.arange(width, device=DEVICE) * 37 % width
                same = same_bits(softmax(x[:, mixed], 0, method=method, dtype=y_type), y[:, mixed])
                what = f"{method} {name(x_type)} to {name(y_type)} N={N} {width} columns"
                complaints.expect(what, same, "other bits")


@each_method
def test_many_slices(method):
    """Very many slices, narrow or with odd numbers of packs. Kernels compute a slice's number from a
    column's."""
    shapes = ((70_001, 4), (70_001, 5), (30_011, 12), (30_011, 7), (301, 2052), (301, 2051))
    cases = [(LENGTHS[method][0], *shape) for shape in shapes]
    cases += [(LENGTHS[method][4], slices // 10, width) for slices, width in shapes]
    for N, slices, width in cases:
        x = columns(N, slices * width, torch.float32).view(N, slices, width).transpose(0, 1).contiguous()
        y = softmax(x, 1, method=method)
        expected = softmax(x.transpose(1, 2).contiguous(), -1, method="fused").transpose(1, 2)
        assert torch.allclose(y, expected, rtol=1e-6, atol=1e-44, equal_nan=True), (method, slices, N, width)


@each_method
def test_nothing_beside_them_is_written(method):
    N = LENGTHS[method][-3]
    for dtype in (torch.bfloat16, torch.float32):
        for width in (36, 33):
            memory = torch.full((N + 2, width + 9), 7.0, device=DEVICE, dtype=dtype)
            out = memory[1:-1, 3 : 3 + width]
            softmax(columns(N, width, dtype), 0, method=method, out=out)
            out.fill_(7)
            assert (memory == 7).all()


@each_types
def test_auto_beyond_what_holds_them(types):
    """In packs and one by one, few columns and many."""
    x_type, y_type = types
    with Complaints() as complaints:
        for N, width in ((8193, 64), (8193, 4096), (20_000, 33), (20_000, 1024)):
            x = columns(N, width, x_type)
            compute = compute_type(x_type, y_type)
            y = softmax(x, 0, dtype=y_type)
            what = f"{name(x_type)} to {name(y_type)} {N}x{width}"
            complaints.add(what, complaint(y, exact(x, 0, compute=compute), compute))


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=name)
@pytest.mark.parametrize("method", ("fused_warp", "online"))
def test_one_value_a_column(method, dtype):
    """logsumexp and pairs of columns in packs have the bits of columns one by one. Some lengths lie where one
    more warp shares a column."""
    with Complaints() as complaints:
        for N in (*LENGTHS[method], *((128, 129, 256, 2049, 2100) if method == "online" else ())):
            whole = columns(N, max(WIDTHS), dtype)
            expected = ons.logsumexp(apart(whole), 0, method=method)
            what = f"{method} {name(dtype)} N={N}"
            single = ons.logsumexp(apart(whole).float(), 0, method=method)
            near = torch.allclose(
                single.double(), whole.double().logsumexp(0), rtol=1e-6, atol=1e-6, equal_nan=True
            )
            complaints.expect(what, near, "not near")
            complaints.expect(what, same_bits(expected, single.to(dtype)), "not the rounded float32 result")
            pairs = _core.normalizer(apart(whole), 0, method=method)
            for width in WIDTHS:
                part = whole[:, :width].contiguous()
                for how, x in (("", part), (", apart", placed(part, 4, 8))):
                    found = ons.logsumexp(x, 0, method=method)
                    complaints.expect(
                        f"{what} {width} columns{how}", same_bits(found, expected[:width]), "other bits"
                    )
                found = _core.normalizer(part, 0, method=method)
                complaints.expect(f"{what} {width} pairs", same_bits(found, pairs[:width]), "other bits")


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float32), ids=name)
@pytest.mark.parametrize("method", ("fused_warp", "online"))
def test_one_value_a_column_of_slices(method, dtype):
    """Many slices give the bits of one slice: side by side, with gaps, and with swapped dimensions."""
    for N, slices, width in ((21, 70_001, 4), (300, 301, 32), (32, 301, 2052), (2, 29, 40), (1000, 7, 68)):
        if method == "fused_warp" and LENGTHS[method][-1] < N:
            continue
        x = columns(N, slices * width, dtype).view(N, slices, width).transpose(0, 1).contiguous()
        x[:, 0, 0] = torch.nan
        expected = ons.logsumexp(apart(x.transpose(0, 1)), 0, method=method)
        assert same_bits(ons.logsumexp(x, 1, method=method), expected), (N, slices, width)
        spread = torch.zeros(2 * slices - 1, N, width, device=DEVICE, dtype=dtype)[::2]
        spread.copy_(x)
        assert same_bits(ons.logsumexp(spread, 1, method=method), expected), (N, slices, width)
        swapped = x.permute(2, 0, 1)
        assert same_bits(ons.logsumexp(swapped, 2, method=method), expected.T), (N, slices, width)
        pairs = _core.normalizer(apart(x.transpose(0, 1)), 0, method=method)
        assert same_bits(_core.normalizer(swapped, 2, method=method), pairs.transpose(0, 1)), (
            N,
            slices,
            width,
        )


@pytest.mark.parametrize(
    ("shape", "method"),
    [
        *(((400, 150, 1000), "online"), ((400, 150, 999), "fused_block"), ((400, 30, 1000), "fused_warp")),
        *(((2, 20_000, 640), "split"), ((2, 100, 64), "fused_block")),
    ],
)
def test_method_of_one_value_a_column(shape, method):
    x = torch.randn(shape, device=DEVICE)
    assert ons.plan(x, 1, operation="logsumexp").method == method
    found = ons.logsumexp(x, 1)
    assert torch.allclose(found.double(), x.double().logsumexp(1), rtol=1e-6, atol=1e-6)


def test_too_long_for_them():
    for method, lengths in LENGTHS.items():
        if method == "online":  # it takes columns of any length
            continue
        with pytest.raises(Refused):
            softmax(columns(lengths[-1] + 1, 33, torch.float32), 0, method=method)
