"""kl_divergence and js_divergence of torch tensors on the CPU. test_torch_operators.py tests derivatives,
transforms and graphs, together with the other operators."""

import pytest

import onsoftmax
import onsoftmax as ons

torch = pytest.importorskip("torch")
pytest.importorskip("onsoftmax.torch")


def arguments(dtype=torch.float32, shape=(6, 50)):
    """Two arrays of logits that require grad."""
    generator = torch.Generator().manual_seed(0)
    both = 3 * torch.randn((2, *shape), generator=generator, dtype=torch.float64)
    return tuple(each.to(dtype).requires_grad_() for each in both)


def kl_of_torch(p_logits, q_logits, axis=-1, *, scale=1.0, where=None):
    """The value of each row by torch alone."""
    log_p, log_q = (_log_softmax(x, axis, scale, where) for x in (p_logits, q_logits))
    return (log_p.exp() * (log_p - log_q)).sum(axis)


def js_of_torch(p_logits, q_logits, axis=-1, *, beta=0.5, scale=1.0, where=None):
    log_p, log_q = (_log_softmax(x, axis, scale, where) for x in (p_logits, q_logits))
    log_r = (beta * log_p.exp() + (1 - beta) * log_q.exp()).log()
    sums = [(log.exp() * (log - log_r)).sum(axis) for log in (log_p, log_q)]
    return beta * sums[0] + (1 - beta) * sums[1]


def _log_softmax(x, axis, scale, where):
    x = x * scale
    # -500 instead of -inf: -inf - -inf is no number, and exp(-500) counts for nothing
    return torch.log_softmax(x if where is None else x.masked_fill(~where, -500), axis)


def values_and_gradients(function, given, *arguments, **keywords):
    """The gradients of `given` if the values have gradients that differ from row to row."""
    values = function(*arguments, **keywords)
    factors = torch.linspace(-1, 2, values.numel()).view(values.shape).to(values)
    return values.detach(), torch.autograd.grad(values, given, factors)


CASES = {
    "kl": (ons.kl_divergence, kl_of_torch, {}),
    "kl, scale": (ons.kl_divergence, kl_of_torch, {"scale": 0.5, "where": True}),
    "js": (ons.js_divergence, js_of_torch, {"beta": 0.2}),
    "js, columns": (ons.js_divergence, js_of_torch, {"axis": 0, "scale": 2.0, "where": True}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("ours", "theirs", "keywords"), CASES.values(), ids=CASES)
def test_beside_torch(ours, theirs, keywords, dtype):
    """torch's own results are in float64. Our gradient is rounded once more to 16 bits."""
    given = arguments(dtype)
    if "where" in keywords:
        keywords = keywords | {"where": torch.arange(300).view(6, 50) % 3 != 1}
    values, gradients = values_and_gradients(ours, given, *given, **keywords)
    wide = [x.detach().double().requires_grad_() for x in given]
    expected, wanted = values_and_gradients(theirs, wide, *wide, **keywords)
    real, eps = torch.promote_types(dtype, torch.float32), torch.finfo(dtype).eps
    assert values.dtype == real
    torch.testing.assert_close(values.double(), expected, rtol=2e-6, atol=0)
    for side, of_torch in zip(gradients, wanted, strict=True):
        assert side.dtype == dtype
        torch.testing.assert_close(side.double(), of_torch, rtol=eps, atol=16 * torch.finfo(real).eps)


@pytest.mark.parametrize("name", ["kl_divergence", "js_divergence"])
def test_each_side(name):
    """A side that needs no gradient costs none. If both sides are one tensor, the gradients add up."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Backward(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, given=(), keywords=None):
            if function.name().startswith(f"onsoftmax::{name}_backward"):
                seen.append((keywords or {}).get("wrt", "p"))
            return function(*given, **(keywords or {}))

    function, with_grad, (x, y) = getattr(ons, name), getattr(ons, f"{name}_with_grad"), arguments()
    plain, seen = (x.detach(), y.detach()), []
    wanted = {wrt: with_grad(*plain, wrt=wrt) for wrt in "pq"}
    for sides, given in (("pq", (x, y)), ("p", (x, plain[1])), ("q", (plain[0], y))):
        value = function(*given)
        assert torch.equal(value, function(*plain)) and torch.equal(value, wanted["p"][0])
        seen.clear()
        with Backward():
            gradients = torch.autograd.grad(value.sum(), [t for t in given if t.requires_grad])
        assert seen == list(sides)
        for side, gradient in zip(sides, gradients, strict=True):
            assert torch.equal(gradient, wanted[side][1])
    value, (gradient,) = values_and_gradients(lambda t: function(t, t), [x], x)
    assert torch.equal(value, torch.zeros(6)) and gradient.abs().max() < 1e-6
    other = x.detach().clone().requires_grad_()
    _, (both,) = values_and_gradients(lambda t: function(t, 2 * t), [x], x)
    _, apart = values_and_gradients(lambda t, o: function(t, 2 * o), [x, other], x, other)
    torch.testing.assert_close(both, sum(apart))
    with torch.no_grad():
        assert function(x, y).grad_fn is None


def test_what_a_gradient_keeps():
    """The logits, and the mask and the scale if they are given."""
    x, y = arguments()
    where, scale = torch.ones(50, dtype=torch.bool), torch.ones(6, 1)
    for more in ({}, {"where": where, "scale": scale}):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, k=kept: k.append(t) or t, lambda t: t):
            value = ons.js_divergence(x, y, reduction="mean", **more)
        assert [t.data_ptr() for t in kept] == [t.data_ptr() for t in (x, y, *more.values())]
        assert value.grad_fn.name() == "OnsoftmaxJsDivergenceBackward"
    for written in (x, y, where, scale):  # torch does not check what hooks have kept
        value = ons.js_divergence(x, y, where=where, scale=scale)
        written.detach().fill_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            value.sum().backward()
    x, y = arguments()
    teacher, mask = x.detach().numpy().copy(), where.numpy().copy()
    value = ons.kl_divergence(teacher, y, where=mask)  # NumPy does not record changes, so they are copied
    teacher[:], mask[:] = 0, False
    (gradient,) = torch.autograd.grad(value.sum(), y)
    assert torch.equal(gradient, ons.kl_divergence_with_grad(x.detach(), y.detach(), wrt="q")[1])


@pytest.mark.parametrize("name", ["kl_divergence_with_grad", "js_divergence_with_grad"])
def test_with_grad(name):
    function, by_operator, (x, y) = getattr(ons, name), getattr(onsoftmax.torch, name), arguments()
    plain = x.detach(), y.detach()
    for given in ((x, y), (x, plain[1]), (plain[0], y)):
        with pytest.raises(RuntimeError, match=r"requires grad.*pass tensor\.detach\(\)"):
            function(*given)
    wanted = function(*plain, wrt="q", reduction="mean")

    def in_its_place(p, q):
        q = q.clone()
        return *function(p, q, wrt="q", reduction="mean", grad_out=q), q

    compiled = torch.compile(in_its_place, fullgraph=True, backend="aot_eager")
    for call in (in_its_place, compiled):
        value, gradient, written = call(*plain)
        assert torch.equal(value, wanted[0])
        assert torch.equal(gradient, wanted[1]) and torch.equal(written, gradient)
    for wrong in (plain[0][0], plain[0].double()):
        with pytest.raises(ValueError, match="grad_out has shape"):
            by_operator(*plain, grad_out=wrong)


def test_subclasses_and_empty_rows():
    from torch.testing._internal.two_tensor import TwoTensor

    x, y = (t.detach() for t in arguments())
    for sides in ((TwoTensor(x, y), TwoTensor(y, y)), (x, TwoTensor(y, x)), (TwoTensor(x, y), y)):
        value = ons.kl_divergence(*sides)
        assert type(value) is TwoTensor
        expected = (ons.kl_divergence(*(getattr(t, part, t) for t in sides)) for part in "ab")
        assert all(map(torch.equal, (value.a, value.b), expected))
    for shape in ((0, 5), (2, 0)):
        for reduction in ("none", "sum", "mean"):
            given = [torch.ones(shape, requires_grad=True) for _ in range(2)]
            value = ons.js_divergence(*given, reduction=reduction)
            plain = ons.js_divergence(*(t.detach() for t in given), reduction=reduction)
            assert torch.equal(value.nan_to_num(7), plain.nan_to_num(7))
            assert all(t.shape == shape for t in torch.autograd.grad(value.sum(), given))


def test_distillation():
    """A student learns as with torch's own functions, in 16 bits under torch.autocast too."""
    x, y = arguments(shape=(40, 5))
    for dtype in (torch.float32, torch.bfloat16):
        losses = []
        for forward, generalized in (
            (ons.kl_divergence, ons.js_divergence),
            (kl_of_torch, js_of_torch),
        ):
            torch.manual_seed(0)
            student = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 5))
            optimizer = torch.optim.AdamW(student.parameters(), lr=0.1)
            for _ in range(5):
                with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                    logits = student(x.detach())
                    teacher = y.detach().to(logits.dtype)
                    loss = 4 * forward(teacher, logits, scale=0.5).mean()
                    loss = loss + generalized(teacher, logits, beta=0.1).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append(loss.detach().float())
        torch.testing.assert_close(*losses, rtol=1e-5 if dtype == torch.float32 else 0.05, atol=0)


def test_errors():
    x, y = arguments()
    scale = torch.ones(6, 1, requires_grad=True)
    without = "scale requires grad, and no gradient flows to it: multiply the array by it first"
    for error, words, call in (
        (RuntimeError, without, lambda: ons.kl_divergence(x, y, scale=scale)),
        (RuntimeError, without, lambda: ons.js_divergence(x.detach(), y.detach(), scale=scale)),
        (ValueError, "reduction is 'avg'", lambda: ons.kl_divergence(x, y, reduction="avg")),
        (ValueError, "beta is 0", lambda: ons.js_divergence(x, y, beta=0)),
        (ValueError, r"the other array of logits has shape \(5, 50\)", lambda: ons.kl_divergence(x, y[1:])),
        (TypeError, "the other has float64", lambda: ons.js_divergence(x, y.double())),
        (TypeError, "q_logits is of type str", lambda: ons.kl_divergence(x, "a")),
        (TypeError, "expected a mask of bool", lambda: ons.kl_divergence(x, y, where=torch.ones(50))),
        (ValueError, "with torch.cuda.stream", lambda: ons.kl_divergence(x, y, stream=1)),
        (IndexError, "axis 2 is out of bounds", lambda: ons.js_divergence(x, y, 2)),
        (RuntimeError, "jvp", lambda: torch.func.jvp(ons.kl_divergence, (x, y), (x, y))),
    ):
        with pytest.raises(error, match=words):
            call()
