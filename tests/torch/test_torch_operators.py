"""torch's operators of our functions on the CPU: gradients, transforms, torch.compile."""

import copy
import io
import math
import subprocess
import sys

import pytest

import onsoftmax as ons

torch = pytest.importorskip("torch")
checks = pytest.importorskip("torch_operator_checks")


def test_gradients():
    checks.check_gradients("cpu")


def test_operators():
    checks.check_operators("cpu")


def test_samples_of_torch():
    assert checks.check_samples("cpu") >= 100


def test_transforms():
    checks.check_transforms("cpu")


def test_compiled_graphs():
    checks.check_compiled("cpu", "aot_eager")


def test_compiled_code():
    checks.check_bits_compiled("cpu", "inductor")


def test_rows_of_the_profiler():
    checks.check_profiled("cpu")


def test_torch_compile_if_torch_is_imported_first():
    """test_threads.py imports onsoftmax first."""
    source = """
import torch._dynamo
import torch, onsoftmax as ons
compiled = torch.compile(lambda x: ons.softmax(x) + 1, fullgraph=True, backend="eager")
x = torch.ones(3, requires_grad=True)
assert torch.equal(compiled(x), ons.softmax(x) + 1)
"""
    subprocess.run([sys.executable, "-c", source], check=True)


def test_what_no_operator_takes_under_torch_compile():
    """A call without an operator runs outside the graphs."""
    import numpy as np

    def both(x, row):
        more = ons.softmax_topk(x, 2, return_normalizer=True)
        plain = ons.softmax(row), ons.softmax([1.0, 2.0]), ons.cross_entropy(row, 1), ons.logprob(row, 1)
        plain += ons.route(row, 2)
        return ons.softmax(x) * 2, *plain, more.normalizer.m, more.values

    x, row = torch.randn(3), np.arange(3.0)
    for ours, plain in zip(torch.compile(both, backend="eager")(x, row), both(x, row), strict=True):
        assert type(ours) is type(plain) and bool((ours == plain).all())


def test_the_import_takes_no_torch():
    source = (
        "import sys, onsoftmax; assert not any(name.partition('.')[0] == 'torch' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", source], check=True)


def test_export():
    class Model(torch.nn.Module):
        def forward(self, x):
            return ons.softmax(x, 0)

    program = torch.export.export(Model(), (torch.ones(3, 4),))
    assert "onsoftmax.softmax" in program.graph_module.code
    x = torch.randn(3, 4)
    assert torch.equal(program.module()(x), ons.softmax(x, 0))


def test_where_they_are_called():
    """A call uses an operator only if torch needs one. All other calls stay plain."""
    x = torch.randn(3, 4)
    assert ons.softmax(x).grad_fn is None
    assert "OnsoftmaxLogSoftmax" in str(ons.log_softmax(x.clone().requires_grad_()).grad_fn)
    from torch.testing._internal.two_tensor import TwoTensor

    y = ons.softmax(TwoTensor(x, 2 * x))
    assert type(y) is TwoTensor and torch.equal(y.b, ons.softmax(2 * x))
    with torch.no_grad():
        assert ons.softmax(x.clone().requires_grad_()).grad_fn is None
    for keywords in (
        {"dtype": torch.float64},
        {"dtype": "float16"},
        {"where": x.numpy() > 0},
        {"scale": x[:, :1].numpy()},
    ):
        assert torch.equal(ons.softmax(x.clone().requires_grad_(), **keywords), ons.softmax(x, **keywords))
    out = torch.empty(3, 4, dtype=torch.float64)
    assert ons.softmax(x.clone().requires_grad_(), out=out) is out
    assert torch.equal(out.detach(), ons.softmax(x, dtype=torch.float64))


def test_gradient_keeps_what_it_needs():
    """softmax and log_softmax keep their result, not the array."""
    import weakref

    x = torch.randn(3, 4, requires_grad=True)
    for function, kept in ((ons.softmax, False), (ons.log_softmax, False), (ons.logsumexp, True)):
        given = 2 * x
        y, gone = function(given), weakref.ref(given.untyped_storage()._cdata and given)
        del given
        assert (gone() is not None) == kept
        y.sum().backward()
    y = ons.softmax(x)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_masks_and_scales_that_change():
    """Autograd keeps masks and scales. A backward step raises an error if one of them has changed."""
    import weakref

    x, target = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    changes = {"where": torch.ones(3, 4, dtype=torch.bool), "scale": torch.ones(3, 1)}
    for name, value in changes.items():
        y = ons.softmax(x, **{name: value})
        value.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            (y * target).sum().backward()
    array = changes["where"].numpy() | True
    y = ons.softmax(x, where=array)  # NumPy does not record changes, so the mask is copied
    array[:] = False
    (grad,) = torch.autograd.grad((y * target).sum(), x)
    torch.testing.assert_close(grad, torch.autograd.grad((ons.softmax(x) * target).sum(), x)[0])
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.dtype) or t, lambda t: t):
        mask = torch.ones(4, dtype=torch.bool)
        y, gone = ons.softmax(x, where=mask), weakref.ref(mask)
    del mask
    assert packed == [torch.float32, torch.bool] and gone() is not None
    y.sum().backward()
    assert gone() is None


class Wrapped(torch.Tensor):
    """A tensor that wraps another tensor and passes every operation to it."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, given=(), keywords=None):
        def inner(value):
            return value.inner if isinstance(value, cls) else value

        result = function(*map(inner, given), **{k: inner(v) for k, v in (keywords or {}).items()})
        return cls(result) if isinstance(result, torch.Tensor) else result


def test_subclasses_in_any_place():
    x, y = torch.randn(3, 4), torch.softmax(torch.randn(3, 4), -1)
    mask = x > 0
    for wrapped, plain in [
        (ons.softmax(x, where=Wrapped(mask)), ons.softmax(x, where=mask)),
        (ons.softmax(x, scale=Wrapped(y[:, :1])), ons.softmax(x, scale=y[:, :1])),
        (ons.softmax_backward(x, Wrapped(y)), ons.softmax_backward(x, y)),
        (ons.softmax_backward(Wrapped(x), y), ons.softmax_backward(x, y)),
    ]:
        assert type(wrapped) is Wrapped and torch.equal(wrapped.inner, plain)
    leaf = x.clone().requires_grad_()
    ons.softmax(leaf, where=Wrapped(mask)).backward(Wrapped(y))
    expected = ons.softmax_backward(y, ons.softmax(x, where=mask), where=mask)
    assert torch.equal(leaf.grad.inner, expected)


def test_modes():
    """A TorchDispatchMode sees the operators. A call without an operator stays plain."""
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    seen = []

    class Listing(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, given=(), keywords=None):
            seen.append(str(function).partition(".")[2].removesuffix(".default"))
            return function(*given, **(keywords or {}))

    x = torch.randn(3, 4)
    leaf, where, ones = x.clone().requires_grad_(), x > 0, torch.ones(3, 4)
    target = torch.arange(3)
    with Listing():
        y = ons.softmax(x, where=where)
        ons.log_softmax(leaf).backward(ones)
        ons.softmax_topk(x, 2), ons.normalizer(x), ons.softmax_topk(x, 2, return_normalizer=True)
        for t in (x, leaf):
            ons.cross_entropy(t, target), ons.logprob(t, target, entropy=True), ons.kl_divergence(x, t)
            ons.route(t, 2), ons.sample(t, seed=0)
    assert [name for name in seen if name != "detach"] == [
        "softmax",
        "log_softmax",
        "log_softmax_backward",
        "softmax_topk",
        *(2 * ["cross_entropy", "logprob", "kl_divergence", "route", "sample"]),
    ]
    assert torch.equal(y, ons.softmax(x, where=where))
    for above_autograd in (False, True):
        graph = make_fx(lambda t: ons.softmax(t) + t, pre_dispatch=above_autograd)(x)
        assert torch.equal(graph(ones), ons.softmax(ones) + 1)

    def policy(context, operator, *given, **keywords):
        seen.append(operator)
        return CheckpointPolicy.MUST_SAVE

    def contexts():
        return create_selective_checkpoint_contexts(policy)

    checkpoint(ons.softmax, leaf, use_reentrant=False, context_fn=contexts).backward(ones)
    assert torch.ops.onsoftmax.softmax.default in seen


def test_symbolic_trace():
    import onsoftmax.torch

    layers = torch.nn.Sequential(torch.nn.Linear(4, 5), onsoftmax.torch.LogSoftmax())
    traced, x = torch.fx.symbolic_trace(layers), torch.randn(3, 4)
    assert "log_softmax" in traced.code and torch.equal(traced(x), layers(x))
    traced = torch.fx.symbolic_trace(lambda x, target: ons.cross_entropy(x, target))
    assert torch.equal(traced(x, [0, 1, 2]), ons.cross_entropy(x, [0, 1, 2]))
    traced = torch.fx.symbolic_trace(lambda x, weight: ons.cross_entropy(x, [0, 1, 2], weight=weight))
    weight = torch.tensor([1.0, 2, 3, 4])
    assert torch.equal(traced(x, weight), ons.cross_entropy(x, [0, 1, 2], weight=weight))
    traced = torch.fx.symbolic_trace(lambda other: ons.js_divergence(x, other, scale=0.5))
    assert torch.equal(traced(2 * x), ons.js_divergence(x, 2 * x, scale=0.5))
    traced = torch.fx.symbolic_trace(lambda x, bias: ons.route(x, 2, bias=bias).indices)
    assert torch.equal(traced(x, x[0]), ons.route(x, 2, bias=x[0]).indices)
    traced = torch.fx.symbolic_trace(lambda x, seed: ons.sample(x, seed=seed, top_k=3))
    assert torch.equal(traced(x, 5), ons.sample(x, seed=5, top_k=3))
    traced = torch.fx.symbolic_trace(lambda x, index: ons.logprob(x, index, lse=True).lse)
    assert torch.equal(traced(x, [0, 1, 2]), ons.logprob(x, [0, 1, 2], lse=True).lse)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_jit_trace():
    """The trace records operators, not results. This includes plain tensors."""
    import onsoftmax.torch

    x, other, where = torch.randn(2, 5), torch.randn(3, 4), torch.tensor([True, False, True, True])
    for call in (
        ons.softmax,
        lambda t: ons.log_softmax(t, 0, scale=0.5, dtype=torch.float64),
        lambda t: ons.logsumexp(t, None),
        lambda t: tuple(ons.softmax_topk(t, 2, log=True)),
        lambda t: ons.softmax_backward(t, t.exp()),
        lambda t: ons.cross_entropy(t, t.argmin(-1), z_loss=0.1),
        lambda t: ons.logprob(t, t.argmin(-1), entropy=True, rank=True)[:2],
        lambda t: ons.kl_divergence(t, t.neg(), scale=t.detach()[:, :1].abs()),
        lambda t: tuple(ons.route(t, 2, bias=t.detach()[0], where=t > -3, scale=2.5)),
        lambda t: ons.sample(t, seed=t.argmin(-1), temperature=t.detach()[:, 0].abs(), where=t > -3),
        lambda t: ons.js_divergence_with_grad(t.detach(), t.detach().neg(), beta=0.1, where=t > -1),
        lambda t: ons.softmax(t, where=t > 0, scale=t.detach()[:, :1]),
        lambda t: ons.softmax(t, out=torch.empty_like(t)),
        torch.vmap(ons.log_softmax),
        onsoftmax.torch.Softmax(0),
    ):
        for given in (x, x.clone().requires_grad_()):
            traced = torch.jit.trace(call, (given,))
            torch.testing.assert_close(traced(other), call(other), rtol=0, atol=0)
    traced = torch.jit.trace(lambda t, w: ons.softmax(t, where=w), (other, where))
    assert torch.equal(traced(other, ~where), ons.softmax(other, where=~where))
    for call in (
        lambda t: ons.normalizer(t).logsumexp(),
        ons.normalizer(x).softmax,
        lambda t: ons.softmax_topk(t, 2, return_normalizer=True).values,
    ):
        with pytest.raises((RuntimeError, ValueError), match=r"under torch\.jit\.trace|normalizer is given"):
            torch.jit.trace(call, (x,))
    with pytest.raises(RuntimeError, match="onsoftmax::softmax"):  # the call was once recorded as a constant
        torch.onnx.export(onsoftmax.torch.Softmax(), (x,), io.BytesIO(), dynamo=False)


def test_numbers_that_vary_in_compiled_code():
    """Two graphs, as with torch.topk: one for the first number, one for any other number."""
    x = torch.randn(4, 50, requires_grad=True)
    for call in (
        lambda k: ons.softmax_topk(x, k, log=True).values,
        lambda k: ons.softmax_topk(x.detach(), k=k).indices,
        lambda k: ons.route(x, k, score="sigmoid", scale=2.5).weights,
        lambda k: ons.sample(x, top_k=k, seed=k, offset=2**63 + k),
        lambda k: ons.sample(x, temperature=k / 3, top_p=k / 20, min_p=k / 100, seed=0),
        lambda k: ons.softmax(x.detach(), num_threads=k),
        lambda k: ons.softmax_backward(x, x, num_threads=k),
        lambda k: ons.logsumexp(x, num_threads=k, scale=k),
    ):
        torch._dynamo.reset()
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        for k in range(2, 15):
            assert torch.equal(compiled(k), call(k))
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 2


WRONG_ROUTERS = (  # of 4 experts
    (ValueError, "k is 5: expected 1 to 4, the length of axis 1", {"k": 5}),
    (ValueError, "k is 0: expected 1 to 4", {"k": 0}),
    (ValueError, "groups is 3: expected a divisor of the 4 experts", {"k": 1, "groups": 3}),
    (ValueError, "groups is 0: expected a divisor", {"k": 1, "groups": 0}),
    (ValueError, "top_groups is 3: expected 1 to 2, the number of", {"k": 1, "groups": 2, "top_groups": 3}),
    (ValueError, "top_groups is 0: expected", {"k": 1, "groups": 2, "top_groups": 0}),
    (ValueError, "k is 3, and 1 groups of 2 experts have 2", {"k": 3, "groups": 2, "top_groups": 1}),
    (ValueError, "score is 'relu': expected 'softmax', 'sigmoid'", {"k": 1, "score": "relu"}),
    (ValueError, "method is 'online': expected 'auto' or 'invariant'", {"k": 1, "method": "online"}),
    (TypeError, "index_dtype is torch.int16: expected int32 or int64", {"k": 1, "index_dtype": torch.int16}),
    (IndexError, "axis 2 is out of bounds", {"k": 1, "axis": 2}),
)
WRONG_SAMPLERS = (
    (ValueError, "temperature is -1: expected a finite number", {"temperature": -1}),
    (ValueError, "top_k is -1: expected an int of at least 0", {"top_k": -1}),
    (TypeError, r"top_k is 2\.5: expected an int", {"top_k": 2.5}),
    (TypeError, "min_p is None: expected a number", {"min_p": None}),
    (ValueError, "return_logprob is 'x': expected a bool, 'unfilt", {"return_logprob": "x"}),
    (ValueError, "filter_apply_order is 'x': expected 'top_k_first'", {"filter_apply_order": "x"}),
    (ValueError, "method is 'online': expected 'auto' or 'invariant'", {"method": "online"}),
    (IndexError, "axis 2 is out of bounds", {"axis": 2}),
)


def test_tensors_without_values_are_checked():
    """Meta tensors, fake tensors and tensors in torch.compile get the same checks as tensors with values."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, wrong = (
        torch.ones(3, 4),
        [
            (ValueError, "k is 5: expected 1 to 4", lambda x: ons.softmax_topk(x, 5)),
            (ValueError, "k is 0: expected 1 to 4", lambda x: ons.softmax_topk(x, 0)),
            (ValueError, "expected one axis", lambda x: ons.softmax_topk(x, 1, (0, 1))),
            (ValueError, "where has shape", lambda x: ons.softmax(x, where=x[:, :3] > 0)),
            (TypeError, "where has dtype float32", lambda x: ons.softmax(x, where=x)),
            (ValueError, "with length 1 along axis", lambda x: ons.logsumexp(x, scale=x)),
            (TypeError, "scale has dtype complex64", lambda x: ons.softmax(x, scale=x[:, :1] + 0j)),
            (TypeError, "complex64 is not supported", lambda x: ons.softmax(x + 0j)),
            (ValueError, "grad has shape", lambda x: ons.softmax_backward(x[0], x)),
            (TypeError, "expected the indices of classes", lambda x: ons.cross_entropy(x, x[:, 0])),
            (ValueError, "target has shape", lambda x: ons.cross_entropy(x, x[0].int())),
            (ValueError, "weight has shape", lambda x: ons.cross_entropy(x, x[0].int(), 0, weight=x[0])),
            (ValueError, r"logits has shape \(\)", lambda x: ons.cross_entropy(x[0, 0], x[0, 0].int())),
            (IndexError, "axis 2", lambda x: ons.cross_entropy_with_grad(x, x[0].int(), 2)),
            (ValueError, "index has shape", lambda x: ons.logprob(x, x[0].int())),
            (ValueError, "2 elements of each row", lambda x: ons.logprob(x, x[:, :2].int(), rank=True)),
            (ValueError, "0 elements of each row", lambda x: ons.logprob(x, x[:, :0].int())),
            (TypeError, "expected the indices of elements", lambda x: ons.logprob(x, x[:, 0])),
            (ValueError, "the other array of logits has shape", lambda x: ons.kl_divergence(x, x[:, :3])),
            (TypeError, "float32, the other has float64", lambda x: ons.js_divergence(x, x.double())),
            (ValueError, "where has shape", lambda x: ons.js_divergence(x, x, where=x[:, :3] > 0)),
            (ValueError, "wrt is 'x'", lambda x: ons.kl_divergence_with_grad(x, x, wrt="x")),
            (ValueError, "beta is 1", lambda x: ons.js_divergence(x, x, beta=1)),
            (ValueError, "z_loss is inf", lambda x: ons.cross_entropy(x, x[0].int(), 0, z_loss=math.inf)),
            *((error, words, lambda x, k=k: ons.route(x, **k)) for error, words, k in WRONG_ROUTERS),
            (ValueError, r"bias has shape \(3,\): expected \(4,\)", lambda x: ons.route(x, 2, bias=x[:, 0])),
            (TypeError, "bias has dtype bool", lambda x: ons.route(x, 2, bias=x[0] > 0)),
            (ValueError, "where has shape", lambda x: ons.route(x, 2, where=x[:, :3] > 0)),
            (TypeError, "where has dtype float32", lambda x: ons.route(x, 2, where=x)),
            (TypeError, "complex64 is not supported", lambda x: ons.route(x + 0j, 2)),
            *((e, words, lambda x, k=k: ons.sample(x, **{"seed": 0} | k)) for e, words, k in WRONG_SAMPLERS),
            (ValueError, "rows of length 0", lambda x: ons.sample(x[:, :0], seed=0)),
            (
                ValueError,
                r"top_p has shape \(4,\): expected \(3,\)",
                lambda x: ons.sample(x, seed=0, top_p=x[0]),
            ),
            (TypeError, "seed has dtype float32: expected integers, int32", lambda x: ons.sample(x, seed=x)),
            (TypeError, "min_p has dtype bool: expected real", lambda x: ons.sample(x, seed=0, min_p=x > 0)),
            (ValueError, "where has shape", lambda x: ons.sample(x, seed=0, where=x[:, :3] > 0)),
            (TypeError, "where has dtype float32", lambda x: ons.sample(x, seed=0, where=x)),
        ],
    )
    with FakeTensorMode() as mode:
        fake = torch.ones(3, 4)
    for error, words, call in wrong:
        for given in (x, x.to("meta"), fake):
            with pytest.raises(error, match=words):
                call(given)
        torch._dynamo.reset()  # otherwise numbers that vary become symbols, without their values
        with pytest.raises(Exception, match=words):
            torch.compile(call, backend="eager", fullgraph=True)(x)
    for given in (x.to("meta"), fake):
        assert ons.plan(given) == ons.plan(x) and ons.plan(given, 0, dtype="float64") == ons.plan(
            x, 0, dtype="float64"
        )
        assert ons.plan(given.T) == ons.plan(x.T) and ons.plan(given.bfloat16()) == ons.plan(x.bfloat16())
        assert ons.plan(given, device="H100") == ons.plan((3, 4), device="H100")
    del mode


def test_any_number_of_threads():
    x = torch.randn(3, 4)
    for count in (2**31, 2**63, 2**70):
        assert torch.equal(torch.vmap(lambda t, n=count: ons.softmax(t, num_threads=n))(x), ons.softmax(x))


def test_compiled_scales_and_transforms():
    x = torch.randn(3, 4)
    options = {"fullgraph": True, "backend": "aot_eager"}
    scaled = torch.compile(lambda t, s: ons.softmax(t, scale=s.item()), **options)
    assert torch.equal(scaled(x, torch.tensor(0.5)), ons.softmax(x, scale=0.5))

    def gradient(t):
        return torch.func.grad(lambda row: ons.softmax(row)[0])(t)

    torch.testing.assert_close(torch.compile(gradient, **options)(x[0]), gradient(x[0]))


def test_integers_and_mixed_types():
    x = torch.randn(3, 8, requires_grad=True)
    y = ons.softmax(x, dtype=torch.float64)
    (grad,) = torch.autograd.grad(y, x, torch.ones_like(y).cumsum(-1))
    theirs = torch.softmax(x, -1, dtype=torch.float64)
    (expected,) = torch.autograd.grad(theirs, x, torch.ones_like(y).cumsum(-1))
    assert grad.dtype == torch.float32
    torch.testing.assert_close(grad, expected)
    output = ons.softmax(x.detach().numpy())
    (grad,) = torch.autograd.grad(ons.softmax_backward(x, output).sum(), x)
    torch.testing.assert_close(grad, ons.softmax_backward(torch.ones(3, 8), torch.from_numpy(output)))


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_modules(name):
    import onsoftmax.torch

    x = torch.randn(3, 4, 5)
    for dim in (-1, 0, 1):
        ours, theirs = getattr(onsoftmax.torch, name)(dim), getattr(torch.nn, name)(dim)
        assert repr(ours) == repr(theirs) and list(ours.parameters()) == []
        torch.testing.assert_close(copy.deepcopy(ours)(x), theirs(x))
    model = torch.nn.Sequential(torch.nn.Linear(5, 5), getattr(onsoftmax.torch, name)(dim=(0, 2)))
    model(x).sum().backward()
    assert model[0].weight.grad is not None


def test_errors():
    x = torch.randn(3, 4, requires_grad=True)
    for error, words, call in [
        (RuntimeError, "scale requires grad", lambda: ons.softmax(x, scale=x[:, :1])),
        (ValueError, "with torch.cuda.stream", lambda: ons.softmax(x, stream=1)),
        (TypeError, "did you mean axis", lambda: ons.softmax(x, dim=0)),
        (TypeError, "dtype is int32", lambda: ons.softmax(x, dtype=torch.int32)),
        (IndexError, "axis 5 is out of bounds", lambda: ons.softmax(x, 5)),
        (ValueError, "method is 'x'", lambda: ons.softmax(x, method="x")),
        (ValueError, "k is 9", lambda: ons.softmax_topk(x, 9)),
        (
            ValueError,
            "call softmax_topk without it",
            lambda: ons.softmax_topk(x, 2, return_normalizer=True),
        ),
        (TypeError, "scale is of type str", lambda: ons.softmax(x, scale="a")),
        (ValueError, "where has shape", lambda: ons.softmax(x, where=torch.ones(5) > 0)),
        (TypeError, "where has dtype", lambda: ons.softmax(x, where=torch.ones(4))),
        (TypeError, "axis is 1.5", lambda: ons.softmax(x, 1.5)),
        *(
            (TypeError, "axis is .*True.*: expected an int, a tuple", lambda f=f, axis=axis: f(axis))
            for axis in (True, (0, True))
            for f in (
                lambda axis: ons.softmax(x, axis),
                lambda axis: ons.softmax(x.detach(), axis),
                lambda axis: torch.vmap(lambda t: ons.logsumexp(t, axis))(x),
                lambda axis: torch.compile(lambda t: ons.softmax(t, axis), backend="eager")(x),
            )
        ),
        (ValueError, "out has shape", lambda: ons.softmax(x, out=torch.empty(4))),
        (ValueError, "out has dtype", lambda: ons.softmax(x, out=torch.empty(3, 4), dtype=torch.float64)),
        (TypeError, "out is of type ndarray", lambda: ons.softmax(x, out=torch.empty(3, 4).numpy())),
        (ValueError, "scale is an int that is too large", lambda: ons.softmax(x, scale=10**400)),
        (TypeError, "axis is None", lambda: ons.softmax_topk(x, 2, axis=None)),
        (TypeError, "to_dense", lambda: ons.softmax(x.to_sparse())),
        (RuntimeError, "softmax_backward|jvp", lambda: torch.func.jvp(ons.softmax, (x,), (x,))),
    ]:
        with pytest.raises(error, match=words):
            call()


def test_invariant_counts_for_the_backward_step():
    """Another method's name counts for the forward step alone."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, given=(), keywords=None):
            if function.namespace == "onsoftmax":
                found.append((keywords or {}).get("method", "auto"))
            return function(*given, **(keywords or {}))

    x, found = torch.randn(3, 8, requires_grad=True), []
    for call, steps in (
        (ons.softmax, 2),
        (ons.log_softmax, 2),
        (ons.logsumexp, 2),
        (lambda x, **how: ons.softmax_topk(x, 2, **how).values, 3),
        (lambda x, **how: ons.softmax_backward(x, x.detach(), **how), 2),
    ):
        for method, again in (("invariant", "invariant"), ("split", "auto"), ("auto", "auto")):
            found.clear()
            with Calls():
                call(x, method=method).sum().backward()
            assert found == [method, *[again] * (steps - 1)], (found, method)
