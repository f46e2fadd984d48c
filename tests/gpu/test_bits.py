"""By a named method, the same row has the same bits in all runs, rows, places and kinds of memory."""

import pytest
from gpu_support import (
    DEVICE,
    NAMED_METHODS,
    NARROW_DTYPES,
    Complaints,
    Refused,
    each_dtype,
    each_named_method,
    generator,
    name,
    random_rows,
    same_bits,
    softmax,
    spread_out,
    torch,
)

import onsoftmax as ons

LENGTHS = (3, 31, 100, 257, 1000, 1025, 2049, 5000, 20_001, 70_000)


def rows_of(N, dtype, rows=140):
    return random_rows(min(rows, 4_000_000 // N), N, dtype, seed=N, offsets=(0, 90, -200))


def each_length(method, dtype, check):
    with Complaints() as complaints:
        for N in LENGTHS:
            x = rows_of(N, dtype)
            try:
                y = softmax(x, method=method)
            except Refused:
                continue
            for what, same in check(x, y):
                complaints.expect(f"{method} {name(dtype)} N={N} rows={len(x)}: {what}", same, "other bits")


def agrees(expected, x, axis=-1, **keywords):
    """Whether a call gives these bits. A method may refuse a long row if its elements are apart."""
    try:
        return same_bits(softmax(x, axis, **keywords), expected)
    except Refused:
        return True


@each_dtype
@each_named_method
class TestSameBits:
    def test_over_runs(self, method, dtype):
        def check(x, y):
            again = [ons.softmax(x, method=method) for _ in range(10)]  # without waiting in between
            for run, other in enumerate(again):
                yield f"run {run}", same_bits(other, y)

        each_length(method, dtype, check)

    def test_over_rows_and_places(self, method, dtype):
        def check(x, y):
            rows = len(x)
            for begin, end in ((0, 1), (1, 2), (3, 8), (5, 38), (rows - 1, rows), (rows // 2, rows)):
                part = slice(begin, end)
                yield f"rows {begin} to {end}", agrees(y[part], x[part], method=method)
                alone = x[part].clone()
                yield f"rows {begin} to {end} copied", agrees(y[part], alone, method=method)
            order = torch.randperm(rows, device=DEVICE, generator=generator(1))
            yield "shuffled rows", agrees(y[order], x[order], method=method)
            one = x[0].clone()
            yield "a row alone", agrees(y[0], one, method=method)

        each_length(method, dtype, check)

    def test_over_alignments_and_strides(self, method, dtype):
        def check(x, y):
            for offset in range(8):
                for gap in (0, 1, 2, 5, 8):
                    view = spread_out(x[:7], gap, offset)
                    yield f"gap {gap} offset {offset}", agrees(y[:7], view, method=method)
                    out = spread_out(x[:7], gap, offset)
                    same = agrees(y[:7], x[:7], method=method, out=out)
                    yield f"out with gap {gap} offset {offset}", same
            every_second = torch.empty(7, x.shape[1], 2, device=DEVICE, dtype=dtype)[..., 1]
            every_second.copy_(x[:7])
            yield "every second", agrees(y[:7], every_second, method=method)
            batch = x[:6].view(2, 3, -1).transpose(0, 1)
            expected = y[:6].view(2, 3, -1).transpose(0, 1)
            yield "batches swapped", agrees(expected, batch, method=method)
            same = agrees(y[:1].expand(9, -1), x[:1].expand(9, -1), method=method)
            yield "one row 9 times", same
            inside = x.clone()
            yield "in place", agrees(y, inside, method=method, out=inside)

        each_length(method, dtype, check)

    def test_of_columns(self, method, dtype):
        """Along axis 0, for any number, place and distance of columns. A single column is a row."""
        with Complaints() as complaints:
            for N in (3, 33, 257, 1000, 3001):
                x = rows_of(N, dtype, rows=150).T.contiguous()
                try:
                    y = softmax(x, 0, method=method)
                except Refused:
                    continue
                count = x.shape[1]
                what = f"{method} {name(dtype)} N={N}: columns"
                for begin, end in ((0, 2), (1, 4), (3, 8), (5, 38), (1, 130), (count - 2, count)):
                    part = x[:, begin:end]
                    same = agrees(y[:, begin:end], part, 0, method=method)
                    complaints.expect(f"{what} {begin} to {end}", same, "other bits")
                    same = agrees(y[:, begin:end], part.contiguous(), 0, method=method)
                    complaints.expect(f"{what} {begin} to {end} copied", same, "other bits")
                for again in range(5):
                    complaints.expect(f"{what} again {again}", agrees(y, x, 0, method=method), "other bits")

    def test_masked_and_scaled(self, method, dtype):
        """A mask or scale without effect changes no bits. Others give the same bits in every layout."""

        def check(x, y):
            x, y = x[:9], y[:9]
            every = torch.ones_like(x, dtype=torch.bool)
            yield "where everything", agrees(y, x, method=method, where=every)
            yield "scale 1", agrees(y, x, method=method, scale=torch.ones(9, 1, device=DEVICE))
            where = torch.rand(x.shape, device=DEVICE, generator=generator(2)) < 0.6
            scale = torch.rand(9, 1, device=DEVICE, generator=generator(3)) + 0.2
            try:
                expected = softmax(x, method=method, where=where, scale=scale)
            except Refused:
                return
            for gap, offset in ((0, 1), (1, 0), (3, 2), (8, 8)):
                view, mask = spread_out(x, gap, offset), spread_out(where, offset, gap)
                same = agrees(expected, view, method=method, where=mask, scale=scale)
                yield f"masked and scaled, gap {gap} offset {offset}", same
            same = agrees(expected[3:5], x[3:5], method=method, where=where[3:5], scale=scale[3:5])
            yield "masked and scaled, some rows", same
            if dtype in NARROW_DTYPES and method != "fused":
                wide = softmax(x, method=method, where=where, scale=scale, dtype=torch.float32)
                same = agrees(wide, x.float(), method=method, where=where, scale=scale)
                yield "masked and scaled, to float32", same

        each_length(method, dtype, check)


@pytest.mark.parametrize("dtype", NARROW_DTYPES, ids=name)
@each_named_method
def test_whole_stretches_off_alignment(method, dtype):
    """Rows that end with a warp's chunks, or one element before or after. They begin at every place in a
    word."""
    with Complaints() as complaints:
        for N in (
            127,
            128,
            129,
            511,
            512,
            513,
            1023,
            1024,
            1025,
            1535,
            1536,
            1537,
            2047,
            2048,
            2049,
            3073,
            4096,
            4097,
            6143,
            6145,
            8191,
            8193,
            13_231,
            16_383,
            65_535,
            65_536,
            65_537,
        ):
            x = rows_of(N, dtype, rows=6)
            try:
                y = softmax(x, method=method)
            except Refused:
                continue
            for offset in range(4):
                for gap in (1, 4):
                    view, out = spread_out(x, gap, offset), spread_out(x, gap, 3 - offset)
                    same = agrees(y, view, method=method, out=out)
                    what = f"{method} {name(dtype)} N={N} gap {gap} offset {offset} to {3 - offset}"
                    complaints.expect(what, same, "other bits")


@each_dtype
def test_few_rows_of_a_cluster(dtype):
    """Few rows get more blocks and warps each, the more the fewer they are. Their bits stay the same."""
    with Complaints() as complaints:
        for N in (1500, 4097, 9000, 16_385, 32_000, 32_769, 50_257, 128_256, 128_259):
            x = rows_of(N, dtype)
            try:
                y = softmax(x, method="cluster")
            except Refused:
                continue
            for rows in (1, 2, 5, 8, 9, 16, 20, 26, 30):
                for offset, gap in ((0, 0), (3, 0), (1, 4)):
                    view = spread_out(x[:rows], gap, offset)
                    same = agrees(y[:rows], view, method="cluster")
                    what = f"{name(dtype)} N={N} rows={rows} gap {gap} offset {offset}"
                    complaints.expect(what, same, "other bits")


def test_long_rows_of_one_value():
    """Every group of elements has the same sum, so that the rounding errors of the sums add up."""
    with Complaints() as complaints:
        for N in (4096, 8192, 12_288, 16_384, 32_768):
            values = torch.linspace(-3, 3, 500, device=DEVICE)
            for method in ("fused_block", "cluster"):
                y = softmax(values[:, None].expand(-1, N).contiguous(), method=method)
                worst = ((y * N - 1).abs().max() / torch.finfo(torch.float32).eps).item()
                complaints.expect(f"{method} N={N}", worst <= 4, f"{worst} eps")


@each_dtype
def test_rows_that_come_as_a_span(dtype):
    """Neighbouring short rows are taken together. Each has the bits that it has alone, and nothing beside
    them is written. The lengths just fill blocks, lanes and chunks, or have one element more."""
    lengths = (1, 2, 3, 4, 5, 7, 8, 9, 13, 17, 20, 29, 32, 33, 37, 64, 65, 81, 128, 129, 161, 250, 256, 257)
    longer = (319, 322, 383, 385, 447, 449, 511, 513, 575, 639, 641, 642, 767, 769, 897, 1023)
    with Complaints() as complaints:
        for N, count in [(N, 131) for N in lengths] + [(N, rows) for N in longer for rows in (9, 8195)]:
            x = random_rows(count, N, dtype, seed=N, offsets=(0, 90, -200))
            try:
                expected = softmax(spread_out(x, 8, 0), method="fused_warp")
            except Refused:
                continue
            for offset, rows in ((0, count), (1, count), (3, 2), (7, count - 1)):
                what = f"{name(dtype)} {rows}x{N}, offset {offset}"
                memory = torch.full((offset + rows * N + 9,), 7, device=DEVICE, dtype=dtype)
                out = memory[offset : offset + rows * N].view(rows, N)
                same = agrees(expected[:rows], spread_out(x[:rows], 0, offset), method="fused_warp", out=out)
                complaints.expect(what, same, "other bits")
                beside = torch.cat([memory[:offset], memory[offset + rows * N :]])
                complaints.expect(what, bool((beside == 7).all()), "written beside")
                inside = spread_out(x[:rows], 0, offset)
                same = agrees(expected[:rows], inside, method="fused_warp", out=inside)
                complaints.expect(f"{what} in place", same, "other bits")


@pytest.mark.parametrize("narrow", NARROW_DTYPES, ids=name)
@pytest.mark.parametrize("method", [m for m in NAMED_METHODS if m != "fused"])  # fused may choose by type
def test_16_bits_as_float32(method, narrow):
    """A 16-bit row gives the result of the same row in float32, rounded."""
    with Complaints() as complaints:
        for N in LENGTHS:
            x = rows_of(N, narrow)
            try:
                expected = softmax(x.float(), method=method)
                y = softmax(x, method=method, dtype=torch.float32)
                narrow_y = softmax(x, method=method)
                narrowed = softmax(x.float(), method=method, dtype=narrow)
            except Refused:
                continue
            what = f"{method} {name(narrow)} N={N} rows={len(x)}"
            complaints.expect(f"{what} to float32", same_bits(y, expected), "not what float32 gives")
            complaints.expect(
                what, same_bits(narrow_y, expected.to(narrow)), "not what float32 gives, rounded"
            )
            complaints.expect(f"{what} from float32", same_bits(narrowed, narrow_y), "not what 16 bits give")
            try:
                columns = softmax(x.T.contiguous(), 0, method=method, dtype=torch.float32)
            except Refused:
                continue
            same = agrees(columns, x.float().T.contiguous(), 0, method=method)
            complaints.expect(f"{what} columns", same, "not what float32 gives")
