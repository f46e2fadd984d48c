"""linear_cross_entropy and LinearCrossEntropyLoss of torch tensors on the CPU."""

import copy
import pickle
from itertools import product

import pytest

import onsoftmax

torch = pytest.importorskip("torch")
pytest.importorskip("onsoftmax.torch")
from torch.nn import functional  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from onsoftmax._torch import chunks  # noqa: E402

LinearCrossEntropyLoss = onsoftmax.torch.LinearCrossEntropyLoss
linear_cross_entropy = onsoftmax.torch.linear_cross_entropy
REDUCTIONS = ("mean", "sum", "none")
TERMS = ({}, {"label_smoothing": 0.1}, {"z_loss": 0.01, "ignore_index": 3}, {"weight": True})
N, HIDDEN = 50, 16


def arguments(dtype=torch.float32, tokens=(3, 7), bias=True):
    """x, weight and bias that require grad, and targets of which one is ignored."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((*tokens, HIDDEN), (N, HIDDEN), *([(N,)] if bias else []))
    arrays = [torch.randn(shape, generator=generator, dtype=torch.float64) / 2 for shape in shapes]
    target = torch.randint(N, tokens, generator=generator)
    if target.numel() > 1:
        target.view(-1)[-2] = -100
    arrays = [each.to(dtype).requires_grad_() for each in arrays]
    return arrays if bias else [*arrays, None], target


def call(arrays, target, **terms):
    x, weight, bias = arrays
    return linear_cross_entropy(x, weight, target, linear_bias=bias, **terms)


def reference(arrays, target, reduction="mean", z_loss=0.0, chunk=None, **terms):
    """torch's loss in float64. It has no z_loss."""
    logits = functional.linear(*(None if each is None else each.double() for each in arrays))
    rows, target = logits.reshape(-1, N), target.reshape(-1)
    if terms.get("weight") is not None:
        terms = terms | {"weight": terms["weight"].double()}
    losses = functional.cross_entropy(rows, target, reduction="none", **terms)
    counts = target != terms.get("ignore_index", -100)
    losses = losses + (z_loss * rows.logsumexp(-1) ** 2).masked_fill(~counts, 0)
    if reduction == "none":
        return losses.reshape(logits.shape[:-1])
    own = counts.double()
    if terms.get("weight") is not None:
        own = terms["weight"][target.clamp(0)].masked_fill(~counts, 0)
    return losses.sum() / own.sum() if reduction == "mean" else losses.sum()


def value_and_gradients(function, arrays, target, factor=1.5, **terms):
    loss = function(arrays, target, **terms)
    given = [each for each in arrays if each is not None]
    weights = torch.linspace(0.5, factor, loss.numel()).to(loss.dtype)
    scaled = (loss * weights.reshape(loss.shape)).sum() if loss.ndim else loss * factor
    return loss.detach(), torch.autograd.grad(scaled, given)


def check(arrays, target, **terms):
    loss, gradients = value_and_gradients(call, arrays, target, **terms)
    theirs, expected = value_and_gradients(reference, arrays, target, **terms)
    dtype = arrays[0].dtype
    eps = torch.finfo(dtype).eps
    assert loss.dtype == torch.promote_types(dtype, torch.float32) and loss.shape == theirs.shape
    torch.testing.assert_close(loss.double(), theirs, rtol=16 * eps, atol=16 * eps, equal_nan=True)
    for ours, wanted, array in zip(gradients, expected, [a for a in arrays if a is not None], strict=True):
        assert ours.dtype == dtype and ours.shape == array.shape
        size = wanted.double().norm()
        assert (ours.double() - wanted.double()).norm() <= 8 * eps * size, terms


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=lambda dtype: str(dtype)[6:]
)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_beside_torch(dtype, reduction):
    """Several chunks of which the last one is shorter, one chunk, and a chunk that is longer than all tokens.
    4 tokens in a chunk are too many chunks for a sum that is rounded in 16 bits."""
    for terms, (chunk, bias) in product(
        TERMS, ((4, True), (8, False), (21, True), (100, True), (None, False))
    ):
        arrays, target = arguments(dtype, bias=bias)
        given = terms | ({"weight": torch.linspace(0.5, 2, N)} if "weight" in terms else {})
        if "ignore_index" in given:
            target = target.clamp(0)
        check(arrays, target, reduction=reduction, chunk=chunk, **given)


@pytest.mark.parametrize("tokens", [(), (1,), (0,), (2, 0), (5,), (2, 3, 2)], ids=str)
def test_shapes(tokens):
    for reduction, dtype in product(REDUCTIONS, (torch.float32, torch.float16)):
        check(*arguments(dtype, tokens=tokens), reduction=reduction, chunk=2)


def test_layouts():
    """Views of other memory, and targets of other types."""
    (x, weight, bias), target = arguments()
    views = (
        x.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_(),
        weight.detach().T.contiguous().T.requires_grad_(),
        torch.stack([bias.detach()] * 2, 1)[:, 0].requires_grad_(),
    )
    wanted = value_and_gradients(call, (x, weight, bias), target, chunk=5)
    for given in (target, target.int(), target.tolist(), target.numpy(), target.T.contiguous().T):
        torch.testing.assert_close(value_and_gradients(call, views, given, chunk=5), wanted)


def test_nothing_counts():
    arrays, target = arguments()
    nothing = torch.full_like(target, -100)
    for dtype, reduction in product((torch.float32, torch.float16), REDUCTIONS):
        cast = [each.detach().to(dtype).requires_grad_() for each in arrays]
        loss, gradients = value_and_gradients(call, cast, nothing, reduction=reduction, chunk=5)
        assert loss.isnan().all() if reduction == "mean" else not loss.any()
        assert not any(each.any() for each in gradients)


def test_gradients_that_are_wanted():
    """The arrays that need no gradient get none, and the other gradients are the same."""
    arrays, target = arguments()
    _, expected = value_and_gradients(call, arrays, target, chunk=5, factor=1.0)
    for wanted in product((False, True), repeat=3):
        for reduction in ("mean", "none"):
            given = [each.detach().requires_grad_(want) for each, want in zip(arrays, wanted, strict=True)]
            loss = call(given, target, chunk=5, reduction=reduction)
            assert loss.requires_grad == any(wanted)
            if not any(wanted):
                continue
            (loss.sum() / (1 if reduction == "mean" else 20)).backward()
            for each, want, other in zip(given, wanted, expected, strict=True):
                assert (each.grad is None) != want
                if want:
                    torch.testing.assert_close(each.grad, other)
    with torch.no_grad():
        assert not call(arrays, target).requires_grad


def test_gradcheck():
    arrays, target = arguments(torch.float64, tokens=(5,))
    for reduction in REDUCTIONS:
        terms = {"reduction": reduction, "chunk": 2, "label_smoothing": 0.2, "z_loss": 0.1}
        if reduction == "none":  # the backward steps of the other reductions run once
            assert torch.autograd.gradcheck(lambda *given, terms=terms: call(given, target, **terms), arrays)
        check(arrays, target, **terms)


def test_rounding_in_16_bits():
    """The gradient of weight has about the error of torch's one product, with many chunks too."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1024, 64, generator=generator).bfloat16()
    weight = (torch.randn(500, 64, generator=generator) / 3).bfloat16()
    target = torch.randint(500, (1024,), generator=generator)

    def gradient(loss, dtype=torch.bfloat16):
        leaf = weight.to(dtype).requires_grad_()
        return torch.autograd.grad(loss(x.to(dtype), leaf), leaf)[0].double()

    def in_torch(x, weight):
        return functional.cross_entropy(functional.linear(x, weight), target)

    exact = gradient(in_torch, torch.float64)
    allowed = 1.25 * (gradient(in_torch) - exact).norm()
    for chunk in (1024, 512, 256, 128, 16):
        found = gradient(lambda x, weight, chunk=chunk: linear_cross_entropy(x, weight, target, chunk=chunk))
        assert (found - exact).norm() < allowed


def test_memory():
    """No tensor has an element for each logit, and all chunks share one buffer."""
    arrays, target = arguments(tokens=(120,))
    buffers, sizes = set(), []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, given=(), keywords=None):
            result = function(*given, **(keywords or {}))
            for each in result if isinstance(result, tuple) else (result,):
                if isinstance(each, torch.Tensor):
                    sizes.append(each.untyped_storage().nbytes() // each.itemsize)
                    if each.shape == (10, N):
                        buffers.add(each.untyped_storage().data_ptr())
            return result

    for reduction in REDUCTIONS:
        buffers.clear()
        with Sizes():
            loss = call(arrays, target, chunk=10, reduction=reduction)
            assert len(buffers) == 1
            loss.sum().backward()
        assert len(buffers) <= 2  # with "none", the backward step has a buffer too
    assert 10 * N <= max(sizes) < 120 * N / 2


def test_gradients_are_handed_over(monkeypatch):
    """Without a copy, and without a product if the gradient of the loss is 1."""
    made = []

    def spy(gradient, grad_loss, times=chunks.times):
        made.append((gradient.data_ptr(), gradient._version))
        result = times(gradient, grad_loss)
        made.append((gradient.data_ptr(), gradient._version))
        return result

    monkeypatch.setattr(chunks, "times", spy)
    arrays, target = arguments(tokens=(21,))
    for factor in (1, 3):
        for each in arrays:
            each.grad = None
        made.clear()
        (call(arrays, target, chunk=5) * factor).backward()
        assert [each.grad.data_ptr() for each in arrays] == [pointer for pointer, _ in made[::2]]
        assert (made[::2] == made[1::2]) == (factor == 1)


def test_backward_again():
    """A second backward step raises an error or has the right gradients, and no tensor in use changes."""
    arrays, target = arguments()
    loss = call(arrays, target)
    first = torch.autograd.grad(loss, arrays, retain_graph=True)
    kept = [each.clone() for each in first]
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(loss * 2, arrays)
    assert all(map(torch.equal, first, kept))
    losses = call(arrays, target, reduction="none", chunk=4)
    first = torch.autograd.grad(losses.sum(), arrays, retain_graph=True)
    second = torch.autograd.grad(2 * losses.sum(), arrays, retain_graph=True)
    torch.testing.assert_close(second, tuple(2 * each for each in first))
    with torch.no_grad():
        arrays[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        losses.sum().backward()
    for reduction in REDUCTIONS:
        loss = call(arrays, target, reduction=reduction).sum()
        with pytest.raises(RuntimeError, match="create_graph is given"):
            torch.autograd.grad(loss, arrays, create_graph=True)


def test_small_gradients_in_float16():
    """The scale of a GradScaler multiplies the loss before gradients are rounded to float16."""
    arrays, target = arguments(torch.float16, tokens=(400,))
    arrays[0] = (arrays[0].detach() / 2**12).requires_grad_()
    scaled = value_and_gradients(call, arrays, target, factor=2.0**14, chunk=90)
    expected = value_and_gradients(reference, arrays, target, factor=2.0**14)
    for ours, theirs in zip(scaled[1], expected[1], strict=True):
        assert (ours - theirs).norm() <= 0.01 * theirs.norm()


def test_chunk():
    """The default fits shapes of all kinds."""
    for tokens, classes, hidden, count in (
        (8192, 128256, 4096, 2),
        (8192, 151936, 8192, 1),
        (65536, 128256, 4096, 16),
        (2**20, 32000, 4096, 4),
        (2**20, 128256, 4096, 32),
        (16384, 128256, 4096, 4),
        (32768, 128256, 4096, 4),  # twice as many logits, in place of 8 chunks
        (100000, 768, 768, 1),
        (100000, 1000, 768, 2),
        (8192, 50257, 768, 4),
        (1, 128256, 4096, 1),
        (0, 10, 4, 0),
        (512, 10**6, 64, 1),
        (8192, 10**6, 64, 4),
        (4, 0, 4, 1),
    ):
        chunk = chunks.tokens_of_chunk(tokens, classes, hidden)
        assert chunk % 256 == 0 and -(-tokens // chunk) == count, (tokens, classes, hidden, chunk)
        largest = max(tokens * hidden, classes * hidden, 2**25)
        assert chunk <= 4096 or chunk * classes <= 2 * largest + 256 * classes
    with pytest.raises(TypeError, match="chunk is of type str: expected a number of tokens"):
        call(*arguments(), chunk="8")
    for chunk in (0, -1, True):
        with pytest.raises(ValueError, match=r"chunk is .*: expected a number of tokens"):
            call(*arguments(), chunk=chunk)


def test_errors():
    (x, weight, bias), target = arguments()
    wrong = target.clone()
    wrong[2, 3] = N
    plain = x.detach()

    def loss(*given, **terms):
        return lambda: linear_cross_entropy(*given, **terms)

    for error, words, run in (
        (
            ValueError,
            r"x has shape \(3, 7, 16\), and linear_weight has \(16, 50\)",
            loss(x, weight.T, target),
        ),
        (ValueError, r"expected \(..., hidden\)", loss(x[0, 0, 0], weight, target)),
        (ValueError, r"target has shape \(7, 3\): expected \(3, 7\)", loss(x, weight, target.T)),
        (
            ValueError,
            r"linear_bias has shape \(49,\): expected \(50,\)",
            loss(x, weight, target, linear_bias=bias[1:]),
        ),
        (
            ValueError,
            r"weight has shape \(16,\): expected \(50,\)",
            loss(x, weight, target, weight=plain[0, 0]),
        ),
        (ValueError, "reduction is 'avg'", loss(x, weight, target, reduction="avg")),
        (ValueError, "label_smoothing is 2", loss(x, weight, target, label_smoothing=2)),
        (TypeError, "linear_weight has dtype bfloat16: expected float32", loss(x, weight.bfloat16(), target)),
        (TypeError, "linear_bias has dtype float64", loss(x, weight, target, linear_bias=bias.double())),
        (TypeError, "x has dtype int64: expected float16", loss(target, weight, target)),
        (
            TypeError,
            "target has dtype float32: expected the indices of classes",
            loss(x, weight, plain[..., 0]),
        ),
        (TypeError, "x is of type list: expected a tensor", loss([1.0], weight, target)),
        (TypeError, "linear_weight is of type Linear", loss(x, torch.nn.Linear(2, 2), target)),
        (TypeError, "got a nested tensor", loss(torch.nested.nested_tensor([plain]), weight, target)),
        (TypeError, "on meta", loss(x.to("meta"), weight, target)),
        (
            IndexError,
            f"target {N} of row 17 is no class: expected 0 to {N - 1}",
            loss(x, weight, wrong, chunk=4),
        ),
        (RuntimeError, "pass weight.detach", loss(x, weight, target, weight=bias)),
        (
            RuntimeError,
            "inside vmap, grad",
            lambda: torch.func.grad(lambda x: linear_cross_entropy(x, weight, target))(plain),
        ),
        (
            RuntimeError,
            "inside vmap, grad or another",
            lambda: torch.func.jvp(lambda x: linear_cross_entropy(x, weight, target), (plain,), (plain,)),
        ),
    ):
        with pytest.raises(error, match=words):
            run()


def test_compile():
    """The call is outside of the graph."""
    arrays, target = arguments()
    wanted = value_and_gradients(call, arrays, target, chunk=5)

    def model(x, weight, bias):
        return call((x * 1, weight, bias), target, chunk=5) * 1

    compiled = torch.compile(model, backend="aot_eager")
    found = value_and_gradients(lambda arrays, _: compiled(*arrays), arrays, target)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("bias", [False, True])
def test_module(bias):
    """A model learns as with torch's layer and loss, also in 16 bits under torch.autocast."""
    x, target = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 7
    terms = {"bias": bias, "weight": torch.linspace(1, 2, 7), "label_smoothing": 0.1}
    for dtype in (torch.float32, torch.bfloat16):
        losses = []
        for kind in (LinearCrossEntropyLoss, getattr(torch.nn, "LinearCrossEntropyLoss", None)):
            torch.manual_seed(0)
            if kind is None:  # an older torch
                continue
            body, head = torch.nn.Linear(5, 8), kind(8, 7, **terms)
            optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=0.1)
            for _ in range(5):
                with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                    loss = head(torch.tanh(body(x)), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append((loss.detach().float(), {*head.state_dict()}))
        if len(losses) == 2:
            torch.testing.assert_close(
                losses[0][0], losses[1][0], rtol=1e-5 if dtype == torch.float32 else 0.02, atol=0
            )
            assert losses[0][1] == losses[1][1]
    head = LinearCrossEntropyLoss(5, 7, z_loss=0.5, chunk=3)
    for other in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert torch.equal(other(x, target), head(x, target))
    words = "ignore_index=-100, label_smoothing=0.0, z_loss=0.5, reduction='mean', chunk=3"
    assert repr(head).split("\n")[1].strip() == words
