"""Functions that the GPU tests share: the device, the oracle on the GPU, and texts for wrong results.

They need torch. If the arithmetic is float32, torch's float64 is the oracle. If it is float64, oracle.py's
longdouble is. With ONSOFTMAX_REQUIRE_GPU=1 in the environment, tests fail instead of being skipped."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import oracle
import pytest

import onsoftmax as ons
from onsoftmax import _core

torch = pytest.importorskip("torch")

DEVICE = "cuda"
METHODS = (
    "naive",
    "safe",
    "online",
    "fused",
    "fused_warp",
    "fused_block",
    "online_block",
    "split",
    "cluster",
    "grid",
    "auto",
)
STABLE_METHODS = METHODS[1:]
NAMED_METHODS = STABLE_METHODS[:-1]  # each of these gives a row the same bits in every call
ANY_LENGTH = ("naive", "safe", "online", "split", "auto", "invariant")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NARROW_DTYPES = DTYPES[:2]
WIDE_DTYPES = DTYPES[2:]

_MANTISSA = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23, torch.float64: 52}
_SMALLEST = {torch.float16: -14, torch.bfloat16: -126, torch.float32: -126, torch.float64: -1022}
_LIFT = 200  # exact results are kept times 2^200, so that float64 has room for subnormal results


def name(dtype):
    return str(dtype).removeprefix("torch.")


each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=name)
each_method = pytest.mark.parametrize("method", STABLE_METHODS)
each_named_method = pytest.mark.parametrize("method", NAMED_METHODS)


class OnlyDlpack:
    """A tensor that shows itself only by DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


# ------- data -------


def generator(seed):
    return torch.Generator(DEVICE).manual_seed(seed)


def random_rows(
    rows, N, dtype, seed=0, spreads=(3, 10, 1, 30, 0.1), offsets=(0, 1000, -1000, 1e5, -1e6, 0, 90)
):
    """Normal logits. The rows take the spreads and offsets of the lists in turn."""
    x = torch.randn(rows, N, device=DEVICE, generator=generator(seed), dtype=torch.float32)
    row = torch.arange(rows, device=DEVICE)
    most = 3e4 if dtype is torch.float16 else 1e38
    offset = torch.tensor(offsets, device=DEVICE).clamp(-most, most)[row % len(offsets)]
    x = x.to(torch.float64 if dtype is torch.float64 else torch.float32)
    x *= torch.tensor(spreads, device=DEVICE)[row % len(spreads), None]
    x += offset[:, None]
    return x.to(dtype)


def spread_out(x, gap, offset):
    """The rows of x. Each begins `gap` elements after the end of the row before."""
    rows, N = x.shape
    memory = torch.empty(rows * (N + gap) + offset, device=DEVICE, dtype=x.dtype)
    view = memory[offset:].view(rows, N + gap)[:, :N]
    view.copy_(x)
    return view


def plain_rows(rows, N, dtype, seed=0):
    return random_rows(rows, N, dtype, seed, spreads=(4,), offsets=(0,))


def bits(x):
    """The bit patterns. Every NaN has the same pattern."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return torch.where(x.isnan(), -1, x.contiguous().view(integers))


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


# ------- the oracle -------


def compute_type(x_dtype, y_dtype=None):
    return torch.float64 if torch.float64 in (x_dtype, y_dtype) else torch.float32


_known = {}  # exact results by their arguments: longdouble is slow, and many methods get the same call


def _on_cpu(x, axis, where, scale, compute):
    scale = torch.as_tensor(scale, dtype=torch.float64)
    given = [x.double(), torch.as_tensor(True if where is None else where), scale]
    given = [np.asarray(a.cpu().numpy(), order="C") for a in given]
    digest = hashlib.blake2b(str((axis, compute, [a.shape for a in given])).encode())
    for array in given:
        digest.update(array.tobytes())
    key = digest.digest()
    if key not in _known:
        if len(_known) > 5000:
            _known.clear()
        numbers, mask, factor = given
        exact = oracle.softmax(numbers, axis, mask, factor, np.dtype(name(compute)))
        exact = np.asarray(np.ldexp(exact, _LIFT))
        first = exact.astype(np.float64)
        rest = np.asarray(exact - first, np.float64)
        _known[key] = torch.from_numpy(first).to(DEVICE), torch.from_numpy(rest).to(DEVICE)
    return _known[key]


def _product(x, scale):
    """x * scale rounded once to float32, for x of 24 bits. The exact product is a sum of two float64. The
    first one is rounded to odd, so that the second rounding is right. (x * 0.7 has many ties.)"""
    scale = torch.as_tensor(scale, dtype=torch.float64, device=DEVICE)
    upper = scale.float().double()
    a, b = x * upper, x * (scale - upper)  # both exact
    p = torch.where(x.isfinite(), a + b, x * scale)
    rest = (a - p) + b
    beside = torch.nextafter(p, rest.sign() * torch.inf)
    inexact = rest.isfinite() & (rest != 0) & (p.view(torch.int64) % 2 == 0)
    return torch.where(inexact, beside, p).float()


def _on_gpu(x, axis, where, scale):
    axes = oracle.axes_of(axis, x.ndim)
    z = x.double()
    if torch.is_tensor(scale) or scale != 1.0:
        z = _product(z, scale).double()
    if where is not None:
        z = z.masked_fill(~where, -torch.inf)
    z = z.unsqueeze(-1)
    z = z.amax((*axes, -1), keepdim=True).neg().add(z).exp_()
    z /= z.sum((*axes, -1), keepdim=True)
    z = z.squeeze(-1)
    if where is not None:
        z = z.masked_fill(~where, 0)
    return z * 2.0**_LIFT, None


def exact(x, axis=-1, where=None, scale=1.0, compute=None):
    """softmax(scale * x) times 2^200 as an unevaluated sum of two float64, or of one if that is enough."""
    compute = compute or compute_type(x.dtype)
    if x.numel() == 0:
        return x.double(), None
    if compute is torch.float64:
        return _on_cpu(x, axis, where, scale, compute)
    return _on_gpu(x, axis, where, scale)


def _half_place(lifted, dtype):
    """Half the distance of the dtype's numbers around exact results, also subnormal ones."""
    exponent = (torch.frexp(lifted)[1].long() - 1).clamp(min=_SMALLEST[dtype] + _LIFT)
    return (exponent - _MANTISSA[dtype] - 1 + 1023 << 52).view(torch.float64)


def complaint(y, exact, compute=None, largest=4, mean=None):
    """None, or what is wrong with y by the contract. It allows 4 eps of the compute type, half a place if the
    result is subnormal there, and half a place of y's own type if that is narrower. `mean` bounds the mean
    error in eps. It needs many different elements."""
    compute = compute or compute_type(y.dtype)
    first, rest = exact
    if y.shape != first.shape:
        return f"shape {tuple(y.shape)} for {tuple(first.shape)}"
    if y.numel() == 0:
        return None
    nan = first.isnan()
    first = first.nan_to_num(0)
    error = y.double() * 2.0**_LIFT - first
    if rest is not None:
        error -= rest.nan_to_num(0)
    error.abs_()
    subnormal = first < 2.0 ** (_SMALLEST[y.dtype] + _LIFT)
    bound = first * (largest * 2.0 ** -_MANTISSA[compute])
    bound += (first < 2.0 ** (_SMALLEST[compute] + _LIFT)) * _half_place(first, compute)
    if y.dtype != compute:
        bound += _half_place(first, y.dtype)
    wrong = torch.where(nan, ~y.isnan(), ~(error <= bound) | (y < 0))
    error = torch.where(nan | subnormal, 0, error / first * 2.0 ** _MANTISSA[y.dtype])
    if wrong.any():
        where = tuple(i.item() for i in wrong.nonzero()[0])
        expected = "nan" if nan[where] else f"{first[where].item() * 2.0**-_LIFT:.9g}"
        worst = error.nan_to_num(torch.inf).max().item()
        return (
            f"{wrong.sum().item()} of {y.numel()} wrong, worst {worst:.2f} eps, "
            f"first at {where}: {y[where].item():.9g} for {expected}"
        )
    normal = (~(nan | subnormal)).sum().item()
    average = error.sum().item() / max(normal, 1)
    if mean is not None and y.dtype == compute and normal >= 1000 and average > mean:
        return f"mean error {average:.3f} eps, largest {error.max().item():.2f}"
    return None


# ------- methods with a longest row -------


class Refused(Exception):
    """A method says that it cannot hold the row. `limit` is the longest row that it holds."""

    def __init__(self, limit):
        super().__init__(limit)
        self.limit = limit


NO_CLUSTERS = "no thread-block clusters"


def has_clusters():
    """Whether this GPU has machine code with clusters. Code that its driver compiles has none."""
    return torch.cuda.get_device_capability() >= (9, 0) and "machine code" in _core.config()["cuda"]


def softmax(x, axis=-1, **keywords):
    return run("softmax", x, axis, **keywords)


def run(operation, x, axis=-1, **keywords):
    """Calls ons.<operation>. If the method cannot hold a row, checks the error's text and raises Refused."""
    method, axes = keywords.get("method", "auto"), oracle.axes_of(axis, x.ndim)
    N = int(np.prod([x.shape[i] for i in axes], dtype=np.int64))
    try:
        y = getattr(ons, operation)(x, axis, **keywords)
        torch.cuda.synchronize()  # so that a kernel's failure shows here
        return y
    except RuntimeError as error:
        shape = f"{name(x.dtype)} {tuple(x.shape)} strides {x.stride()} axis={axis} {sorted(keywords)}"
        raise RuntimeError(f"{operation} {method} {shape}: {error}") from error
    except ValueError as error:
        text = str(error)
        if method in ANY_LENGTH:
            raise
        if NO_CLUSTERS in text and not has_clusters():
            raise Refused(0) from error
        numbers = [int(re.sub("[,_]", "", n)) for n in re.findall(r"\b\d[\d,_]*\b", text)]
        below = [n for n in numbers if 0 < n < N]
        assert method in text and below, f"{method}, N={N}: no limit in {text!r}"
        others = set(re.findall(r"\w+", text)) & set(METHODS) - {method}
        assert others, f"{method}, N={N}: no method that can in {text!r}"
        raise Refused(max(below)) from error


def limit_of(method, dtype, at_least=1 << 25, **keywords):
    """The longest row that the method holds, from its error. None if it takes any row."""
    try:
        softmax(torch.zeros(1, at_least, device=DEVICE, dtype=dtype), method=method, **keywords)
    except Refused as refused:
        return refused.limit
    return None


class Complaints:
    """Collects what was wrong over a loop of cases, so that one failure does not hide the others.

    with Complaints() as complaints: complaints.add(f"{method} {N}", text or None)"""

    def __init__(self):
        self.found, self.cases = [], 0

    def add(self, what, text):
        self.cases += 1
        if text is not None:
            self.found.append(f"{what}: {text}")

    def expect(self, what, right, text):
        self.add(what, None if right else text)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        more = len(self.found) - 20
        lines = "\n".join(self.found[:20] + ([f"and {more} more"] if more > 0 else []))
        if kind is None and self.found:
            pytest.fail(f"{len(self.found)} of {self.cases} wrong\n{lines}", pytrace=False)
        elif self.found:  # pytest prints it with the exception
            print(f"before that {len(self.found)} of {self.cases} wrong\n{lines}")
