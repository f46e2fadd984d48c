"""Every class of NaN in every type, conversion, method and form. It makes its own row NaN, and no other
row."""

import pytest
from gpu_support import DEVICE, DTYPES, METHODS, Complaints, Refused, generator, name, softmax, torch

FORMATS = {torch.float16: (10, 5), torch.bfloat16: (7, 8), torch.float32: (23, 8), torch.float64: (52, 11)}
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
LENGTHS = (1, 3, 10, 64, 250, 530, 1500, 9000)


def nans(dtype):
    """Quiet and signalling NaN of both signs, with the payload in high bits, in low bits, or in all."""
    fraction, exponent = FORMATS[dtype]
    quiet, sign = 1 << fraction - 1, 1 << fraction + exponent
    inf = sign - (1 << fraction)
    payloads = (1, 0x7A2 & (quiet - 1), (1 << fraction // 2) - 1, quiet - 1)
    patterns = [inf | p | q | s for p in payloads for q in (0, quiet) for s in (0, sign)]
    signed = [p - 2 * sign if p & sign else p for p in patterns]
    return torch.tensor(signed, device=DEVICE, dtype=INTEGERS[dtype.itemsize]).view(dtype)


def with_nans(N, dtype, seed):
    """Rows of which every second one has a NaN of the next class. And a mask of these elements."""
    bad = nans(dtype)
    x = torch.randn(2 * len(bad), N, device=DEVICE, generator=generator(seed)).to(dtype)
    rows = torch.arange(0, len(x), 2, device=DEVICE)
    place = torch.randint(N, rows.shape, device=DEVICE, generator=generator(seed))
    integers = x.view(INTEGERS[dtype.itemsize])  # a copy as numbers might make a NaN quiet
    integers[rows, place] = bad.view(integers.dtype)
    is_nan = torch.zeros(x.shape, dtype=torch.bool, device=DEVICE)
    is_nan[rows, place] = True
    return x, is_nan


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_every_class_of_nan(method, dtype):
    with Complaints() as complaints:
        for N in LENGTHS:
            x, is_nan = with_nans(N, dtype, seed=N)
            where = torch.rand(x.shape, device=DEVICE, generator=generator(N)) < 0.7
            where |= is_nan
            where[:16] &= ~is_nan[:16]  # in these rows a mask excludes the NaN
            for result in DTYPES:
                for scale in (1.0, 0.7):
                    for mask in (None, where):
                        keywords = {"method": method, "dtype": name(result), "scale": scale}
                        check(complaints, f"{name(dtype)} to {name(result)}", x, is_nan, mask, keywords)
    assert complaints.cases


def check(complaints, what, x, is_nan, mask, keywords):
    included = torch.ones_like(is_nan) if mask is None else mask
    expected = (is_nan & included).any(1) | ~included.any(1)
    what = f"{what} {tuple(x.shape)} {keywords} {'masked' if mask is not None else ''}"
    try:
        rows = softmax(x, **keywords, **({} if mask is None else {"where": mask}))
        of_columns = {} if mask is None else {"where": mask.T.contiguous()}
        columns = softmax(x.T.contiguous(), 0, **keywords, **of_columns).T
    except Refused:
        complaints.cases += 1
        return
    for form, y in (("rows", rows), ("columns", columns)):
        right = torch.where(included, y.isnan() == expected[:, None], y == 0)
        complaints.expect(f"{what} {form}", right.all(), f"row {(~right).any(1).nonzero().tolist()[:1]}")
