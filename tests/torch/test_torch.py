"""torch tensors on the CPU: results, and what is refused."""

import contextlib
import functools
import gc
import subprocess
import sys

import numpy as np
import oracle
import pytest
from support import Changes

import onsoftmax as ons

VALUES = np.linspace(-4, 4, 60).reshape(3, 4, 5).astype(np.float32)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_torch_types(torch):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.from_numpy(VALUES).to(dtype)
        for axis in (-1, 0, (0, 2), None):
            y = ons.softmax(x, axis)
            assert type(y) is torch.Tensor and y.dtype == dtype and y.shape == x.shape
            compute = np.float64 if dtype is torch.float64 else np.float32
            exact = oracle.softmax(x.double().numpy(), axis, compute=compute)
            if dtype is torch.bfloat16:
                wide = ons.softmax(x, axis, dtype=torch.float32)
                assert torch.equal(y, wide.to(dtype))
                y = wide
            assert not oracle.wrong_places(y.numpy(), exact, compute).any()
        assert ons.softmax(x, dtype=torch.float64).dtype == torch.float64
        assert ons.softmax(x, dtype="bfloat16").dtype == torch.bfloat16


def test_torch_integers_take_the_default_type(torch):
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool):
        x = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
        assert ons.softmax(x).dtype == torch.get_default_dtype()
        torch.testing.assert_close(ons.softmax(x), torch.softmax(x.float(), -1))
        assert ons.softmax(x, dtype=torch.float16).dtype == torch.float16
    torch.set_default_dtype(torch.float64)
    try:
        assert ons.softmax(torch.arange(3)).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_torch_layouts(torch):
    x = torch.from_numpy(VALUES)
    channels_last = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    strided = [x.permute(2, 0, 1), x[::2, :, ::3], x.expand(2, 3, 4, 5), channels_last]
    for view in (x, *strided, x[1:], x[:0], x[0, 0, 0]):
        for axis in {-1, 0} if view.ndim else {-1}:
            y, expected = ons.softmax(view, axis), torch.softmax(view, axis)
            assert y.stride() == expected.stride() and y.shape == expected.shape
            torch.testing.assert_close(y, expected)


def test_torch_views_that_are_not_what_they_point_to(torch):
    z = torch.complex(torch.from_numpy(VALUES), torch.from_numpy(-VALUES))
    negated = z.conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(ons.softmax(negated), torch.softmax(negated, -1))
    with pytest.raises(ValueError, match="negated"):
        ons.softmax(negated.clone(), out=negated)
    with pytest.raises(TypeError, match="complex"):
        ons.softmax(z)
    with pytest.raises(TypeError, match=r"sparse.*to_dense"):
        ons.softmax(torch.from_numpy(VALUES[0]).to_sparse())
    with pytest.raises(TypeError, match="float16, bfloat16, float32 or float64"):
        ons.softmax(torch.zeros(3, dtype=torch.float8_e4m3fn))


def test_torch_tensors_without_memory(torch):
    """Some tensors have no memory, but have the type torch.Tensor, and DLPack may show an address. They are
    refused without a crash."""
    zero = torch._efficientzerotensor((4, 3))
    functional = torch._to_functional_tensor(torch.ones(4, 3))
    resized = torch.zeros(12)
    resized.untyped_storage().resize_(0)
    meta = torch.empty(4, 3, device="meta")
    for tensor in (zero, zero[1:], functional, resized):
        with pytest.raises(BufferError, match="no data"):
            ons.softmax(tensor)
        with pytest.raises(BufferError, match="no data"):
            ons.softmax(torch.zeros(tensor.shape), out=tensor)
    assert ons.softmax(meta).is_meta and ons.logsumexp(meta).shape == (4,)
    with pytest.raises(IndexError, match="axis 7 is out of bounds"):
        ons.softmax(meta, 7)
    for call in (
        lambda: ons.softmax_backward(meta, torch.zeros(4, 3)),
        lambda: ons.softmax(torch.zeros(4, 3), scale=meta),
        lambda: ons.softmax(torch.zeros(4, 3), out=meta),
    ):
        with pytest.raises(ValueError, match="is on meta, but the array is on cpu"):
            call()
    with pytest.raises(TypeError, match="a tensor on meta"):
        ons.normalizer(meta)
    with pytest.raises(RuntimeError):
        torch.func.jvp(ons.softmax, (torch.ones(3),), (torch.ones(3),))
    assert ons.softmax(torch.zeros(0, 3)).shape == (0, 3)


def test_torch_kinds_of_tensors(torch):
    x = torch.from_numpy(VALUES)
    expected = torch.softmax(x, -1)

    class Sub(torch.Tensor):
        pass

    for given in (torch.nn.Parameter(x, requires_grad=False), x.as_subclass(Sub), x.clone().share_memory_()):
        torch.testing.assert_close(ons.softmax(given).as_subclass(torch.Tensor), expected)
    assert type(ons.softmax(torch.nn.Parameter(x, requires_grad=False))) is torch.Tensor
    with torch.inference_mode():
        made = ons.softmax(x)
        assert made.is_inference() and ons.softmax(x, out=made) is made
    torch.testing.assert_close(made, expected)
    torch.set_default_device("meta")  # a new tensor has this device; a result takes its input's device
    try:
        assert ons.softmax(x).device.type == "cpu"
    finally:
        torch.set_default_device(None)


def test_torch_is_told_what_was_written(torch):
    """A backward step raises an error if it needs values that softmax has overwritten."""
    x, weight = torch.ones(3), torch.ones(3, requires_grad=True)
    product = (weight * x).sum()
    ons.softmax(torch.zeros(3), out=x)
    with pytest.raises(RuntimeError, match="inplace"):
        product.backward()


OLDER = """
import os

import torch
import onsoftmax as ons

several, shortcuts = torch._C._increment_version, torch._C._dynamo.guards

def of_one(tensor):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError("expected a tensor")
    several((tensor,))

torch._C._increment_version = torch.autograd.graph.increment_version = of_one
for name in ("_empty_strided_cpu", "_empty_strided_cuda"):
    if hasattr(shortcuts, name):
        delattr(shortcuts, name)
other = os.fork()
if other:
    torch.Tensor.__dlpack_c_exchange_api__ = None
x = torch.randn(3, 5)
for given in (x, x.T, x[:, ::2]):
    y = ons.softmax(given)
    torch.testing.assert_close(y, torch.softmax(given, -1))
    assert y.is_contiguous() and ons.softmax(given, dtype=torch.float64).dtype == torch.float64
    version = y._version
    assert ons.softmax(given, out=y) is y and y._version > version
assert not other or os.waitpid(other, 0)[1] == 0
"""


def test_torch_of_older_versions(torch):
    """An older torch works without features that only later versions have: shortcuts, version counters of
    several tensors and, in one of two processes, the exchange API."""
    done = subprocess.run([sys.executable, "-c", OLDER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_torch_where_and_scale(torch):
    x, mask, scale = torch.from_numpy(VALUES), torch.from_numpy(VALUES > -2), torch.full((3, 1, 1), 0.5)
    expected = torch.softmax((x * 0.5).masked_fill(~mask, -torch.inf), -1)
    for kind in (scale, scale.double(), scale.bfloat16()):
        torch.testing.assert_close(ons.softmax(x, where=mask, scale=kind), expected.nan_to_num())
    torch.testing.assert_close(ons.softmax(x, scale=torch.tensor(2)), torch.softmax(2 * x, -1))
    with pytest.raises(TypeError, match=r"where.*float32"):
        ons.softmax(x, where=x)


def test_torch_does_not_leak(torch):
    x, out = torch.ones(2, 30), torch.empty(2, 30)
    negated = torch.complex(x, x).conj().imag
    calls = [
        lambda: ons.softmax(x),
        lambda: ons.softmax(x.T, dtype=torch.bfloat16),
        lambda: ons.softmax(x, out=out, where=x > 0),
        lambda: ons.softmax(negated),
        lambda: ons.softmax(torch.arange(3)),
        lambda: ons.softmax(x, out=torch.empty(3)),
        lambda: ons.softmax(x, stream=3),
        lambda: ons.softmax(torch._efficientzerotensor((2, 3))),
        lambda: ons.softmax(x.to_sparse()),
    ]

    def repeat(times):
        for _ in range(times):
            for call in calls:
                with contextlib.suppress(ValueError, TypeError, BufferError):
                    call()

    repeat(100)
    gc.collect()
    before, counts = sys.getallocatedblocks(), [sys.getrefcount(each) for each in (x, out, negated)]
    repeat(500)
    gc.collect()
    assert sys.getallocatedblocks() - before < 400  # one block left in each round would be 500
    assert [sys.getrefcount(each) for each in (x, out, negated)] == counts


def test_torch_gradients(torch):
    """test_torch_operators.py checks the gradients themselves."""
    x = torch.from_numpy(VALUES.copy()).requires_grad_()
    for given in (x, torch.nn.Parameter(torch.zeros(3)), 2 * x):
        assert ons.softmax(given).requires_grad
        with pytest.raises(RuntimeError, match=r"requires grad.*detach"):
            ons.normalizer(given)
        with torch.no_grad():
            assert not ons.softmax(given).requires_grad
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):  # torch's own words
        ons.softmax(torch.zeros(3, 4, 5), out=x)


def test_torch_tangents(torch):
    """A dual tensor has a tangent that would be lost. Like a tensor that requires grad, it is refused."""
    forward = torch.autograd.forward_ad
    x, ones = torch.from_numpy(VALUES.copy()), torch.ones(VALUES.shape)
    expected = torch.softmax(x, -1)
    with forward.dual_level():
        dual, scale = forward.make_dual(x, ones), forward.make_dual(torch.ones(3, 1, 1), torch.ones(3, 1, 1))
        calls = [((given,), {}) for given in (dual, 2 * dual)]
        calls += [((x,), {"out": dual}), ((x,), {"scale": scale}), ((VALUES,), {"scale": scale})]
        for arguments, keywords in calls:
            with pytest.raises(RuntimeError, match=r"dual tensor.*no tangent flows.*detach"):
                ons.softmax(*arguments, **keywords)
        with torch.no_grad(), pytest.raises(RuntimeError, match="dual tensor"):  # keeps tangents
            ons.softmax(dual)
        torch.testing.assert_close(x, torch.from_numpy(VALUES))
        for plain in (x, dual.detach(), forward.unpack_dual(dual).primal):
            torch.testing.assert_close(ons.softmax(plain), expected)
        with torch.inference_mode():  # torch has no tangents in this mode either
            torch.testing.assert_close(ons.softmax(dual), expected)
        out = torch.empty_like(x)
        assert ons.softmax(x, out=out, scale=0.5) is out
    torch.testing.assert_close(ons.softmax(x), expected)


def test_torch_transforms(torch):
    """vmap and similar transforms pass a tensor that is not plain. If no operator takes it, there is an
    error, whichever argument it is."""
    x = torch.from_numpy(VALUES[0])
    for call in (ons.softmax, lambda t: ons.softmax(x, scale=t[..., :1])):
        with pytest.raises((RuntimeError, BufferError)):
            torch.func.jvp(call, (x.clone(),), (torch.ones_like(x),))
    calls = [
        lambda t: ons.normalizer(t).m,
        lambda t: ons.normalizer(2 * t).m,
        lambda t: ons.normalizer(x, scale=t[..., :1]).m,
        lambda t: ons.softmax(x.numpy(), scale=t[..., :1]),
    ]
    for call in calls:
        with pytest.raises((RuntimeError, BufferError)):
            torch.func.jvp(call, (x.clone(),), (torch.ones_like(x),))
        for transformed in (torch.func.grad(lambda t, call=call: call(t).sum()), torch.vmap(call)):
            with pytest.raises((RuntimeError, BufferError, TypeError)):
                transformed(torch.from_numpy(VALUES.copy()))
    with pytest.raises((RuntimeError, BufferError)):
        torch.vmap(lambda mask: ons.normalizer(x, where=mask).m)(torch.from_numpy(VALUES > 0))


def test_torch_subclasses_that_give_something_else(torch):
    """The result of a tensor's own method is checked before it is used."""

    class Numpy(torch.Tensor):
        def numpy(self, **keywords):
            return 5

    class Like(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            if function is torch.empty_like:
                return torch.empty(2)
            return super().__torch_function__(function, types, arguments, keywords or {})

    x = torch.from_numpy(VALUES)
    with pytest.raises(TypeError, match=r"scale is of type Numpy, which gives 5: expected a NumPy array"):
        ons.softmax(x, scale=torch.ones(()).as_subclass(Numpy))
    with pytest.raises(TypeError, match=r"where is of type Numpy, which gives 5: expected a NumPy array"):
        ons.softmax(x, where=(x > 0).as_subclass(Numpy))
    with pytest.raises(ValueError, match=r"the new result has shape \(2,\): expected \(3, 4, 5\)"):
        ons.softmax(x.as_subclass(Like))


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.set_(t.new_ones(7, 3)),
        lambda t: t.resize_(3, 7),
        lambda t: t.t_(),
        lambda t: t.untyped_storage().resize_(0),
    ],
    ids=["set_", "resize_", "t_", "without memory"],
)
def test_torch_tensors_that_another_argument_changes(torch, change):
    ons.softmax(torch.ones(3))  # torch is known from here on
    for name, value in (("scale", np.array(2.0)), ("where", np.array(True))):
        x = torch.rand(1000, 2000)
        with pytest.raises(RuntimeError, match=r"^the array was reshaped, resized.*expected it to stay"):
            ons.softmax(x, **{name: Changes(functools.partial(change, x), value)})
    x = torch.rand(1000, 2000)
    axis = Changes(functools.partial(change, x), 0)
    try:
        y = ons.softmax(x, axis)
    except BufferError as error:
        assert "no data" in str(error) and x.untyped_storage().nbytes() == 0
    else:
        torch.testing.assert_close(y, torch.softmax(x, 0))


def test_torch_out_that_overlaps_itself(torch):
    memory = torch.zeros(40)
    for strides in ((1, 1), (2, 1), (3, 1), (1, 2), (0, 1)):
        with pytest.raises(ValueError, match="out is broadcast, or strided so that its elements overlap"):
            ons.softmax(torch.ones(3, 4), out=memory.as_strided((3, 4), strides))
    assert not memory.any()
    for strides in ((4, 1), (1, 3), (1, 5), (7, 2)):
        out = memory.as_strided((3, 4), strides)
        assert ons.softmax(torch.ones(3, 4), out=out) is out and (out == 0.25).all()


def test_torch_out(torch):
    x = torch.from_numpy(VALUES.copy())
    expected = torch.softmax(x, -1)
    for out in (torch.empty_like(x), torch.empty(5, 4, 3).permute(2, 1, 0), torch.empty(6, 4, 5)[::2]):
        assert ons.softmax(x, out=out) is out
        torch.testing.assert_close(out, expected)
    as_numpy = np.empty(x.shape, np.float32)
    assert ons.softmax(x, out=as_numpy) is as_numpy
    assert np.array_equal(as_numpy, ons.softmax(x).numpy())
    out = torch.empty(x.shape, dtype=torch.bfloat16)
    assert ons.softmax(VALUES, out=out) is out
    assert torch.equal(out, ons.softmax(x, dtype=torch.bfloat16))
    assert ons.softmax(x, out=x) is x
    torch.testing.assert_close(x, expected)
    with pytest.raises(ValueError, match=r"\(4, 5\).*\(3, 4, 5\)"):
        ons.softmax(x, out=torch.empty(4, 5))
    with pytest.raises(ValueError, match="broadcast"):
        ons.softmax(x, out=torch.empty(4, 5).expand(3, 4, 5))
    with pytest.raises(TypeError, match="float16, bfloat16, float32 or float64"):
        ons.softmax(x, out=torch.empty(3, 4, 5, dtype=torch.int32))


def test_torch_memory_lives_on(torch):
    y = ons.softmax(torch.from_numpy(VALUES.copy()))
    kept = y[1:, 2]
    del y
    np.testing.assert_array_equal(kept.numpy(), ons.softmax(VALUES)[1:, 2])
