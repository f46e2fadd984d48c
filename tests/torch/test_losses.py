"""cross_entropy and CrossEntropyLoss of torch tensors on the CPU. test_torch_operators.py tests derivatives,
transforms and graphs, together with the other operators."""

import copy
import pickle

import loss_checks
import pytest

import onsoftmax
import onsoftmax as ons

torch = pytest.importorskip("torch")
pytest.importorskip("onsoftmax.torch")
CrossEntropyLoss = onsoftmax.torch.CrossEntropyLoss


def arguments(dtype=torch.float32, rows=(6,), N=50):
    """Logits that require grad, targets of which the last is ignored, and weights."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((*rows, N), generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    target = torch.randint(N, rows, generator=generator)
    if rows:
        target.view(-1)[-1] = -100
    return x, target, torch.rand(N, generator=generator, dtype=torch.float64)


TERMS = ({}, {"label_smoothing": 0.1}, {"weight": True}, {"weight": True, "label_smoothing": 0.3})


def each_terms(weight):
    for terms in TERMS:
        for reduction in loss_checks.REDUCTIONS:
            given = {"weight": weight} if "weight" in terms else {}
            yield terms | given | {"reduction": reduction}


def value_and_gradient(function, x, target, factor=1.5, **terms):
    loss = function(x, target, **terms)
    (gradient,) = torch.autograd.grad((loss * factor).sum(), x)
    return loss.detach(), gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_beside_torch(dtype):
    """torch's own result is in float64. Ours is rounded once more to 16 bits."""
    x, target, weight = arguments(dtype)
    wide = x.detach().double().requires_grad_()
    eps = torch.finfo(dtype).eps
    for terms in each_terms(weight):
        loss, gradient = value_and_gradient(ons.cross_entropy, x, target, **terms)
        theirs, expected = value_and_gradient(torch.nn.functional.cross_entropy, wide, target, **terms)
        assert gradient.dtype == dtype and loss.dtype == torch.promote_types(dtype, torch.float32)
        torch.testing.assert_close(loss.double(), theirs, rtol=1e-6, atol=0)
        torch.testing.assert_close(gradient.double(), expected, rtol=eps, atol=4 * eps * expected.abs().max())


def test_what_a_gradient_keeps():
    x, target, weight = arguments()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.data_ptr()) or t, lambda t: t):
        loss, lse = ons.cross_entropy(x, target, weight=weight, return_lse=True)
    assert kept == [each.data_ptr() for each in (x, target, weight)]
    assert loss.requires_grad and not lse.requires_grad
    loss = ons.cross_entropy(x, target)  # torch does not check what hooks have kept
    target[0] = 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    indices = target.numpy().copy()  # NumPy does not record changes, so the targets are copied
    results = []
    for change in (0, 5):
        loss = ons.cross_entropy(x, indices)
        indices[1] += change
        results.append(torch.autograd.grad(loss, x)[0])
    assert torch.equal(*results)


def test_with_grad():
    x, target, _ = arguments()
    with pytest.raises(RuntimeError, match="requires grad"):
        ons.cross_entropy_with_grad(x, target)
    plain = x.detach().clone()
    wanted = value_and_gradient(ons.cross_entropy, x, target, factor=1.0)

    def in_its_place(logits):
        y = logits.clone()
        return *ons.cross_entropy_with_grad(y, target, grad_out=y), y

    for wrong in (plain[0], plain.double()):
        with pytest.raises(ValueError, match="grad_out has shape"):
            onsoftmax.torch.cross_entropy_with_grad(plain, target, grad_out=wrong)
    compiled = torch.compile(in_its_place, fullgraph=True, backend="aot_eager")
    for function in (in_its_place, compiled):
        loss, gradient, y = function(plain)
        assert torch.equal(loss, wanted[0]) and torch.equal(gradient, y)
        torch.testing.assert_close(gradient, wanted[1])


# ---------------------------------------------------------------- the module


@pytest.mark.parametrize("rows", [(), (4,), (2, 3)], ids=str)
def test_module(rows):
    x, target, weight = arguments(rows=rows, N=7)
    x = x.movedim(-1, 1) if len(rows) > 1 else x
    keywords = {"weight": weight.float(), "label_smoothing": 0.1, "reduction": "sum"}
    ours, theirs = CrossEntropyLoss(**keywords), torch.nn.CrossEntropyLoss(**keywords)
    assert ours.state_dict().keys() == theirs.state_dict().keys() and not list(ours.parameters())
    for module in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours).half()):
        torch.testing.assert_close(module(x, target), theirs(x, target), rtol=1e-3, atol=0)
    words = "ignore_index=-100, label_smoothing=0.0, reduction='mean', z_loss=0.5, in_place=False"
    assert repr(CrossEntropyLoss(z_loss=0.5)) == f"CrossEntropyLoss({words})"


def test_errors():
    module, (x, target, weight) = CrossEntropyLoss(), arguments()
    for error, words, call in (
        (ValueError, "reduction is 'avg'", lambda: CrossEntropyLoss(reduction="avg")(x, target)),
        (ValueError, "label_smoothing is 2", lambda: CrossEntropyLoss(label_smoothing=2)(x, target)),
        (TypeError, "expected the indices of classes", lambda: module(x, torch.softmax(x, -1))),
        (TypeError, "target is of type str", lambda: module(x, "a")),
        (IndexError, "of row 0 is no class", lambda: module(x, target + 50)),
        (
            RuntimeError,
            "pass weight.detach",
            lambda: ons.cross_entropy(x, target, weight=weight.requires_grad_()),
        ),
        (ValueError, "with torch.cuda.stream", lambda: ons.cross_entropy(x, target, stream=1)),
        (RuntimeError, "jvp", lambda: torch.func.jvp(lambda x: module(x, target), (x,), (x,))),
    ):
        with pytest.raises(error, match=words):
            call()


# ---------------------------------------------------------------- in place

MODELS = {
    "linear": lambda x: x * 2,
    "a view": lambda x: (x * 2).view(2, 3, 50).flatten(0, 1),
    "columns first": lambda x: (x * 2).T.contiguous().T,
    "pitched": lambda x: (x[:, [*range(50), 0, 1]] * 2)[:, :50],
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_in_place(model):
    x, target, weight = arguments()
    for terms in each_terms(weight.float()):
        for factor in (1.0, 3.0):
            results = []
            for in_place in (False, True):
                logits = model(x)
                kept, loss = (
                    logits.detach().clone(),
                    CrossEntropyLoss(in_place=in_place, **terms)(logits, target),
                )
                assert torch.equal(kept, logits) != in_place
                results.append((loss.detach(), *torch.autograd.grad((loss * factor).sum(), x)))
            for plain, ours in zip(*results, strict=True):
                torch.testing.assert_close(ours, plain)


def test_in_place_multiplies_only_if_it_must():
    x, target, _ = arguments()
    for factor in (1, 2):
        logits = x + 0  # hands its gradient on as it is
        loss = CrossEntropyLoss(in_place=True)(logits, target)
        version = logits._version
        (gradient,) = torch.autograd.grad(loss * factor, x)
        assert (logits._version > version) == (factor == 2) and gradient.data_ptr() == logits.data_ptr()
        torch.testing.assert_close(gradient, value_and_gradient(ons.cross_entropy, x, target, factor)[1])


def test_in_place_leaves_other_logits_alone():
    """Without a gradient, and where more than autograd sees the call."""
    x, target, _ = arguments()
    module, plain = CrossEntropyLoss(in_place=True), x.detach().clone()
    options = {"fullgraph": True, "backend": "aot_eager"}
    compiled = torch.compile(lambda *given: CrossEntropyLoss(in_place=True)(*given), **options)
    wanted = CrossEntropyLoss()(plain, target)
    with torch.no_grad():
        assert torch.equal(module(x, target), wanted)
    for call, logits in ((module, plain), (compiled, x), (compiled, x * 1)):
        assert torch.equal(call(logits, target), wanted)
        assert torch.equal(logits, x)
    gradient = torch.func.grad(module)(plain, target)
    torch.testing.assert_close(gradient, value_and_gradient(ons.cross_entropy, x, target, 1.0)[1])
    assert torch.equal(plain, x)


def test_in_place_gives_no_wrong_gradient():
    x, target, _ = arguments()
    module = CrossEntropyLoss(in_place=True)
    for leaf in (x, x.view(6, 50)):
        with pytest.raises(
            RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"
        ):
            module(leaf, target)

    def written_after(logits):
        loss = module(logits, target)
        logits.add_(1)
        return loss

    for model, use in (
        (torch.exp, lambda logits: module(logits, target)),
        (torch.relu, lambda logits: module(logits, target)),
        (MODELS["linear"], written_after),
        (MODELS["linear"], lambda logits: module(logits, target) + module(logits, target)),
        (MODELS["linear"], lambda logits: logits.square().mean() + module(logits, target)),
    ):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            use(model(x)).backward()
    loss = module(x * 2, target) * 2
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with pytest.raises(RuntimeError, match="create_graph is given"):
        torch.autograd.grad(module(x * 2, target), x, create_graph=True)
    with pytest.raises(ValueError, match="is broadcast"):
        module((x[:1] * 2).expand(6, 50), target)


@pytest.mark.parametrize("in_place", [False, True])
def test_training(in_place):
    """A model learns as with torch's loss, in 16 bits under torch.autocast too."""
    x, target, _ = arguments(rows=(40,), N=5)
    for dtype in (torch.float32, torch.bfloat16):
        losses = []
        for loss in (CrossEntropyLoss(in_place=in_place), torch.nn.CrossEntropyLoss()):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 5))
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            for _ in range(5):
                with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                    value = loss(model(x.detach()), target)
                optimizer.zero_grad()
                value.backward()
                optimizer.step()
            losses.append(value.detach())
        assert losses[0].dtype == torch.float32
        torch.testing.assert_close(*losses, rtol=1e-5 if dtype == torch.float32 else 0.02, atol=0)
