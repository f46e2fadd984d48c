"""By method="invariant", a row has the same bits in every batch, at every place and in every layout."""

import pytest
from gpu_support import (
    DEVICE,
    NARROW_DTYPES,
    Complaints,
    bits,
    each_dtype,
    generator,
    name,
    random_rows,
    spread_out,
    torch,
)

import onsoftmax as ons

# Short rows, lengths around all thresholds of the methods, and lengths of vocabularies.
LENGTHS = (1, 9, 33, 127, 257, 512, 1000, 1024, 1025, 1400, 1536, 1537, 2048, 4096, 4097, 8192, 8193, 12_288)
LONG = (16_384, 16_385, 32_000, 50_257, 65_537, 128_256, 131_073, 151_936, 262_144, 262_145, 300_000)
BATCHES = (1, 3, 64, 8192, 100_000)
MOST_ELEMENTS = 2**24  # of a batch
DISTINCT = 7  # rows


def pair_of(x, axis, **keywords):
    made = ons.normalizer(x, axis, **keywords)
    return made.packed, made.update(x).packed, made.logsumexp().unsqueeze(axis)


def parts_of(x, axis, where=None, scale=1.0, **keywords):
    made = ons.normalizer(x, axis, where=where, scale=scale, **keywords)
    return made.softmax(x, where=where), made.log_softmax(x, where=where)


def selected(k):
    return lambda x, axis, **keywords: tuple(ons.softmax_topk(x, min(k, x.shape[axis]), axis, **keywords))


def with_normalizer(x, axis, **keywords):
    found = ons.softmax_topk(x, 1, axis, return_normalizer=True, **keywords)
    return found.normalizer.packed


def widened(x, axis, **keywords):
    return ons.softmax(x, axis, dtype=torch.float32, **keywords)


FUNCTIONS = {
    "softmax": ons.softmax,
    "softmax to float32": widened,
    "log_softmax": ons.log_softmax,
    "logsumexp": lambda *given, **keywords: ons.logsumexp(*given, keepdims=True, **keywords),
    "softmax_backward": ons.softmax_backward,
    "log_softmax_backward": ons.log_softmax_backward,
    "softmax_topk": selected(50),
    "softmax_topk of many": selected(600),
    "normalizer of softmax_topk": with_normalizer,
    "normalizer": pair_of,
    "Normalizer": parts_of,
}
each_function = pytest.mark.parametrize("function", FUNCTIONS)


def arrays_of(function, N, dtype):
    """The distinct rows: one array, or a gradient and the result of the forward step."""
    x = random_rows(DISTINCT, N, dtype, seed=N, offsets=(0, 90, -200))
    if not function.endswith("backward"):
        return [x]
    forward = ons.log_softmax if function.startswith("log") else ons.softmax
    return [random_rows(DISTINCT, N, dtype, seed=N + 1, spreads=(1, 1e-3), offsets=(0,)), forward(x)]


def results(function, arrays, axis=-1, method="invariant", **keywords):
    """The results as a list. The rows come first in each."""
    if method:
        keywords["method"] = method
    found = FUNCTIONS[function](*arrays, axis, **keywords)
    found = list(found) if isinstance(found, tuple) else [found]
    packed = [made.dtype is torch.float64 and made.shape[-1] == 5 for made in found]  # has no axis
    return [made if axis == -1 or state else made.T for made, state in zip(found, packed, strict=True)]


def same(found, expected):
    pairs = zip(found, expected, strict=True)
    return all(a.shape == b.shape and torch.equal(integers(a), integers(b)) for a, b in pairs)


def integers(x):
    return x if x.dtype is torch.int64 else bits(x)


def alone(function, arrays, **keywords):
    """The results of each row in a batch of one."""
    each = [
        results(function, [a[i : i + 1].clone() for a in arrays], **keywords) for i in range(len(arrays[0]))
    ]
    return [torch.cat(parts) for parts in zip(*each, strict=True)]


def columns(x):
    return x.T.contiguous()


def every_second(x):
    return torch.stack([x, x], -1)[..., 1]


LAYOUTS = {
    "gap 1": lambda x: spread_out(x, 1, 0),
    "gap 8": lambda x: spread_out(x, 8, 0),
    "gap 4 offset 2": lambda x: spread_out(x, 4, 2),
    "offset 1": lambda x: spread_out(x, 0, 1),
    "every second": every_second,
    "columns in memory": lambda x: columns(x).T,
}


def ways(arrays):
    """(name, arrays, keywords) of calls on the distinct rows."""
    rows, N = arrays[0].shape
    for what, lay_out in LAYOUTS.items():
        yield what, [lay_out(a) for a in arrays], {}
    yield "axis 0", [columns(a) for a in arrays], {"axis": 0}
    yield "axis 0, gap 1", [spread_out(columns(a), 1, 0) for a in arrays], {"axis": 0}
    every = torch.ones(rows, N, dtype=torch.bool, device=DEVICE)
    yield "a mask of everything", arrays, {"where": every}
    yield "a mask of rows", [spread_out(a, 3, 1) for a in arrays], {"where": every[:, :1]}
    yield "a mask along axis 0", [columns(a) for a in arrays], {"axis": 0, "where": columns(every)}
    yield "scale 1", arrays, {"scale": torch.ones(rows, 1, device=DEVICE)}


def check_layouts(function, dtype, N, complaints):
    arrays = arrays_of(function, N, dtype)
    expected = alone(function, arrays)
    for what, given, keywords in ways(arrays):
        found = results(function, given, **keywords)
        complaints.expect(f"{function} {name(dtype)} N={N}: {what}", same(found, expected), "other bits")
    if function in ("softmax", "log_softmax", "softmax_backward", "log_softmax_backward"):
        for lay_out, axis in ((torch.clone, -1), (columns, 0)):
            given = [lay_out(a) for a in arrays]
            found = results(function, given, axis, out=given[0])
            what = f"{function} {name(dtype)} N={N}: in place, axis {axis}"
            complaints.expect(what, same(found, expected), "other bits")


def check_batches(function, dtype, N, complaints):
    arrays = arrays_of(function, N, dtype)
    expected = alone(function, arrays)
    most = MOST_ELEMENTS // N
    for rows in sorted({min(rows, most) for rows in BATCHES}):
        for begin in (0, 3):  # so that each place gets another row
            which = (torch.arange(rows, device=DEVICE) + begin) % DISTINCT
            found = results(function, [a[which] for a in arrays])
            what = f"{function} {name(dtype)} N={N}: {rows} rows from {begin} on"
            complaints.expect(what, same(found, [part[which] for part in expected]), "other bits")


@each_dtype
@each_function
class TestSameBits:
    def test_in_every_layout(self, function, dtype):
        with Complaints() as complaints:
            for N in (*LENGTHS, *LONG):
                check_layouts(function, dtype, N, complaints)

    def test_in_every_batch(self, function, dtype):
        with Complaints() as complaints:
            for N in (*LENGTHS, *LONG):
                check_batches(function, dtype, N, complaints)


@pytest.mark.small
def test_short():
    with Complaints() as complaints:
        for function in FUNCTIONS:
            for N in (33, 1025):
                check_layouts(function, torch.bfloat16, N, complaints)


@each_dtype
def test_masked_and_scaled(dtype):
    """Rows whose elements a mask excludes in part have the same bits in every batch and layout too."""
    with Complaints() as complaints:
        for N in (100, 1400, 5000, 20_001, 140_000):
            x = random_rows(DISTINCT, N, dtype, seed=N)
            where = torch.rand(x.shape, device=DEVICE, generator=generator(2)) < 0.6
            scale = torch.rand(DISTINCT, 1, device=DEVICE, generator=generator(3)) + 0.2
            for function in ("softmax", "logsumexp", "softmax_topk", "normalizer"):
                how = {} if function == "normalizer" else {"where": where}
                one_by_one = [
                    results(function, [x[i : i + 1]], **{key: value[i : i + 1] for key, value in how.items()},
                            scale=scale[i : i + 1]) for i in range(DISTINCT)
                ]  # fmt: skip
                expected = [torch.cat(parts) for parts in zip(*one_by_one, strict=True)]
                for what, lay_out in LAYOUTS.items():
                    laid = {key: lay_out(value) for key, value in how.items()}
                    found = results(function, [lay_out(x)], **laid, scale=scale)
                    text = f"{function} {name(dtype)} N={N}: {what}"
                    complaints.expect(text, same(found, expected), "other bits")
                laid = {key: columns(value) for key, value in how.items()}
                found = results(function, [columns(x)], 0, **laid, scale=scale.T)
                text = f"{function} {name(dtype)} N={N}: axis 0"
                complaints.expect(text, same(found, expected), "other bits")


@each_dtype
def test_the_setting_reaches_autograd_and_compiled_programs(dtype):
    """Each call that names no method has the bits of the call by `invariant`, also in the backward step."""
    compiled = torch.compile(lambda x: ons.softmax(x), backend="aot_eager")
    N, grads = 16_384, random_rows(64, 16_384, dtype, seed=5, spreads=(1,), offsets=(0,))
    x = random_rows(64, N, dtype, seed=4, offsets=(0,))
    compiled(x[:1].clone())  # before the setting
    before = ons.set_batch_invariant(True)
    try:
        y = ons.softmax(x)
        dx = ons.softmax_backward(grads, y)
        with Complaints() as complaints:
            for i in (0, 31, 63):
                one = x[i : i + 1].clone().requires_grad_()
                result = ons.softmax(one)
                result.backward(grads[i : i + 1])
                complaints.expect(f"row {i}", same([result.detach()], [y[i : i + 1]]), "other bits")
                complaints.expect(f"gradient of row {i}", same([one.grad], [dx[i : i + 1]]), "other bits")
                found = compiled(one.detach())
                complaints.expect(f"row {i}, compiled", same([found], [y[i : i + 1]]), "other bits")
            for function in FUNCTIONS:
                arrays = arrays_of(function, N, dtype)
                expected = alone(function, arrays)
                by_setting = alone(function, arrays, method=None)
                complaints.expect(function, same(by_setting, expected), "other bits by the setting")
    finally:
        ons.set_batch_invariant(before)


@pytest.mark.parametrize("narrow", NARROW_DTYPES, ids=name)
def test_gradients_by_name_are_invariant(narrow):
    """method="invariant" of the forward step counts for the backward step too."""
    x = random_rows(200, 20_000, narrow, seed=1, offsets=(0,))
    grads = random_rows(200, 20_000, narrow, seed=2, spreads=(1,), offsets=(0,))
    for forward in (ons.softmax, ons.log_softmax):
        whole = x.clone().requires_grad_()
        forward(whole, method="invariant").backward(grads)
        for i in (0, 99, 199):
            column = x[i : i + 1].T.contiguous().requires_grad_()
            forward(column, 0, method="invariant").backward(grads[i : i + 1].T.contiguous())
            assert torch.equal(bits(column.grad.T), bits(whole.grad[i : i + 1])), (forward.__name__, i)
