"""The checks of torch/test_torch_operators.py on the CPU, and of gpu/test_torch_operators.py on a GPU."""

import functools
import warnings
from math import prod

import pytest
import torch

import onsoftmax as ons
import onsoftmax.torch  # defines the operators

OPS = torch.ops.onsoftmax


def rows(shape, device, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype).to(device).requires_grad_()


def mask(shape, device):
    where = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.3
    where[..., 0] = True
    return where.to(device)


def loss_arguments(shape, device, axis=-1):
    """Targets of which one is ignored, and the weights of the classes."""
    shape, N = list(shape), shape[axis]
    del shape[axis]
    target = torch.arange(prod(shape), device=device).view(shape) % N
    target.view(-1)[-1] = -100
    return target, torch.linspace(0.5, 2, N, device=device, dtype=torch.float64)


LOSSES = {
    "mean": {},
    "every term": {"label_smoothing": 0.2, "z_loss": 0.1},
    "sum": {"reduction": "sum", "z_loss": 0.1},
    "none": {"reduction": "none", "label_smoothing": 0.2},
}


def logprob_arguments(shape, device):
    """For each form of a call: its name, the indices and the keywords. The first call has one result."""
    several = torch.arange(prod(shape[:-1]) * 2, device=device).view(*shape[:-1], 2) % shape[-1]
    columns = (torch.arange(prod(shape[1:]), device=device) % shape[0]).view(shape[1:])
    yield "alone", several[..., 0], {}
    yield "entropy", several[..., 1].int(), {"entropy": True}
    yield "several", several, {"entropy": True, "lse": True, "argmax": True}
    yield "@0", columns, {"axis": 0, "lse": True, "rank": True, "topk": 2}


def real(found):
    """The results of logprob that have gradients."""
    if isinstance(found, torch.Tensor):
        return (found,)
    values = None if found.topk is None else found.topk.values
    return tuple(x for x in (*found[:3], values) if x is not None)


def divergence_terms(shape, device, axis=-1):
    """For each form of a call: its name, the function and the keywords."""
    shape = list(shape)
    where = mask(shape, device)
    shape[axis] = 1
    scale = torch.linspace(0.5, 2, prod(shape), device=device, dtype=torch.float64).view(shape)
    yield "kl", ons.kl_divergence, {}
    yield "kl of all", ons.kl_divergence, {"where": where, "scale": 0.5, "reduction": "mean"}
    yield "js", ons.js_divergence, {"scale": scale, "reduction": "sum"}
    yield "js of all", ons.js_divergence, {"where": where, "scale": 2, "beta": 0.2}


SCORES = ("softmax", "sigmoid", "sqrtsoftplus", "none")


def routers(device):
    """For each form of a router of 6 experts: its name and the keywords."""
    bias = torch.tensor([0.5, -0.5, 0.2, 0.0, 0.1, -0.3], device=device, dtype=torch.float64)
    groups = {"groups": 3, "top_groups": 2, "bias": bias}
    for score in SCORES:
        for renormalize in (True, False):
            terms = {"score": score, "renormalize": renormalize}
            yield f"{score} {renormalize}", terms
            yield (
                f"{score} {renormalize} with groups",
                terms | groups | {"where": mask((6,), device), "scale": 2.5},
            )


def cases(device):
    """For each function: a name, a call on tensors that gradients flow to, and the tensors."""
    x, column = rows((3, 4, 5), device), torch.tensor([[[0.5]], [[2.0]], [[-1.0]]], device=device)
    where = mask((3, 4, 5), device)
    for name in ("softmax", "log_softmax", "logsumexp"):
        function = getattr(ons, name)
        options = {
            "": {},
            "@0": {"axis": 0},
            "@(0,2)": {"axis": (0, 2)},
            "@None": {"axis": None},
            "@()": {"axis": ()},
            "where": {"where": where},
            "scale": {"scale": 0.5},
            "scales": {"scale": column},
            "online": {"method": "online"},
        }
        if name == "logsumexp":
            options["keepdims"] = {"axis": 1, "keepdims": True}
        if name == "log_softmax":  # -inf - -inf is not a number
            del options["where"]
            yield "log_softmax where", lambda t: ons.log_softmax(t, where=where).masked_fill(~where, 0), (x,)
        for label, keywords in options.items():
            yield f"{name} {label}", lambda t, f=function, k=keywords: f(t, **k), (x,)
        yield f"{name} 0-d", function, (rows((), device),)
        yield f"{name} of nothing", function, (rows((0, 3), device),)
    for name in ("softmax_backward", "log_softmax_backward"):
        forward = torch.softmax if name == "softmax_backward" else torch.log_softmax
        function, grad = getattr(ons, name), rows((3, 4, 5), device, 1)
        for axis in (-1, 0, ()):
            y = forward(x.detach(), axis or -1).requires_grad_()
            yield f"{name} @{axis}", lambda g, y, f=function, a=axis: f(g, y, a), (grad, y)
        y = forward(x.detach(), -1).requires_grad_()
        yield f"{name} where scale", lambda g, y, f=function: f(g, y, where=where, scale=0.5), (grad, y)
    for label, keywords in LOSSES.items():
        for axis, weighted in ((-1, False), (0, True)):
            target, weight = loss_arguments(x.shape, device, axis)
            given = keywords | {"axis": axis, "weight": weight if weighted else None}
            yield f"loss, {label} @{axis}", lambda t, g=target, k=given: ons.cross_entropy(t, g, **k), (x,)
    for label, index, keywords in logprob_arguments(x.shape, device):
        yield f"logprob {label}", lambda t, i=index, k=keywords: real(ons.logprob(t, i, **k)), (x,)
    other = rows((3, 4, 5), device, 1)
    for axis in (-1, 0):
        for label, function, keywords in divergence_terms(x.shape, device, axis):
            yield f"{label} @{axis}", lambda t, o, f=function, k=keywords, a=axis: f(t, o, a, **k), (x, other)
    logits = rows((3, 6), device)
    for label, keywords in routers(device):
        yield f"route {label}", lambda t, k=keywords: ons.route(t, 3, **k).weights, (logits,)
    yield "route @0", lambda t: ons.route(t.mT, 3, 0, where=mask((6, 1), device)).weights, (logits,)
    for keywords in ({}, {"log": True}, {"axis": 0}, {"where": where, "scale": 2}, {"sorted": False}):
        yield f"topk {keywords}", lambda t, k=keywords: ons.softmax_topk(t, 2, **k).values, (x,)
    yield "topk 0-d", lambda t: ons.softmax_topk(t, 1).values, (rows((), device),)


def check_gradients(device):
    """Gradients agree with finite differences. So do second derivatives, along a random direction."""
    count = 0
    for name, call, given in cases(device):
        assert torch.autograd.gradcheck(call, given), name
        assert torch.autograd.gradgradcheck(call, given, fast_mode=True), name
        count += 1
    assert count == 85


def check_operators(device):
    """torch's own checks: schema, fakes with shapes that vary, autograd's registration, AOTAutograd."""
    x, y = rows((3, 4, 5), device), torch.softmax(rows((3, 4, 5), device, 1), -1).detach().requires_grad_()
    where, scale = mask((3, 4, 5), device), torch.ones((1, 4, 1), device=device)
    integers = torch.arange(12, device=device).view(3, 4)
    narrow = x.detach().to(torch.bfloat16)
    # These functions share their code. So each form of a call is checked for one of them.
    on_cpu = {"scale_by": 0.5, "num_threads": 1} if device == "cpu" else {}
    for name, given, keywords in [
        ("softmax", (x, [-1]), {}),
        ("softmax", (narrow, [1]), {}),
        ("softmax", (x.permute(2, 0, 1), [0]), on_cpu),
        ("log_softmax", (x, [0, 2], where, scale), {"method": "online"} if device == "cpu" else {}),
        ("log_softmax", (integers, [-1]), {}),
        ("log_softmax", (x, [0]), {"dtype": torch.float32}),
        ("logsumexp", (x, [0, 2], where, scale), {}),
        ("logsumexp", (x, [0]), {"keepdims": True}),
        ("logsumexp", (narrow, [1]), {}),
        ("softmax_backward", (x, y, [-1]), {}),
        ("softmax_backward", (x.detach().float(), y.detach().bfloat16(), [0]), {}),
        ("log_softmax_backward", (x, y, [0], where, scale), {}),
    ]:
        torch.library.opcheck(getattr(OPS, name).default, given, keywords)
    for keywords in ({}, {"log": True}, {"dtype": torch.float32}):
        torch.library.opcheck(OPS.softmax_topk.default, (x, 2, [-1]), keywords)
    torch.library.opcheck(OPS.softmax_topk.default, (x, 3, [1], where))
    for keywords in LOSSES.values():
        target, weight = loss_arguments(x.shape, device, 1)
        loss = OPS.cross_entropy(x, target, 1, weight, **keywords)[0].detach().requires_grad_()
        torch.library.opcheck(OPS.cross_entropy.default, (x, target, 1, weight), keywords)
        torch.library.opcheck(OPS.cross_entropy_backward.default, (loss, x, target, 1, weight), keywords)
    torch.library.opcheck(OPS.cross_entropy.default, (narrow, target.int(), -2), keywords)
    torch.library.opcheck(OPS.cross_entropy_with_grad.default, (narrow, target, 1, weight), keywords)
    for _, index, keywords in logprob_arguments(x.shape, device):
        axis = keywords.get("axis", -1)
        wanted = {name: True for name in ("entropy", "argmax", "rank") if name in keywords}
        torch.library.opcheck(OPS.logprob.default, (x, index, axis), wanted)
        if keywords.get("lse"):
            chosen, slope, lse, *_, moments = (t.detach() for t in OPS.logprob(x, index, axis, **wanted))
            grads = (each.requires_grad_() if each.numel() else None for each in (chosen, slope, lse))
            torch.library.opcheck(OPS.logprob_backward.default, (x, index, moments, *grads, axis))
    torch.library.opcheck(OPS.logprob.default, (narrow, index, axis), wanted)
    other = rows((3, 4, 5), device, 1)
    for kind, reduction in (("kl", "none"), ("js", "mean")):
        by_side, keywords = getattr(OPS, f"{kind}_divergence_backward").default, {"reduction": reduction}
        value = getattr(OPS, f"{kind}_divergence")(x, other, 1, **keywords).detach().requires_grad_()
        for suffix in ("", "_with_grad"):
            operator = getattr(OPS, f"{kind}_divergence{suffix}").default
            given = (x, other) if suffix == "" else (x.detach(), other.detach())
            torch.library.opcheck(operator, (*given, 1), keywords)
            torch.library.opcheck(operator, (narrow, narrow.neg(), 0, where[0]), {"scale_by": 0.5})
        for wrt, terms in (("p", ()), ("q", (where, scale[:, :1]))):
            torch.library.opcheck(by_side, (value, x, other, 1, *terms), {"wrt": wrt, **keywords})
    logits = rows((2, 3, 6), device)
    for label, keywords in routers(device):
        if label in (
            "softmax True",
            "softmax False with groups",
            "sigmoid True with groups",
        ):
            others = [keywords.get(name) for name in ("bias", "where")]
            terms = {key: value for key, value in keywords.items() if key not in ("bias", "where")}
            torch.library.opcheck(OPS.route.default, (logits, 3, -1, *others), terms)
    torch.library.opcheck(OPS.route.default, (narrow, 2, 0), {"index_dtype": torch.int32})
    seed, temperature = torch.arange(6, device=device).view(2, 3), logits.detach()[..., 0].abs()
    torch.library.opcheck(
        OPS.sample.default,
        (logits, -1, temperature, None, None, None, seed, None, mask((6,), device)),
        {"top_k_of_all": 4, "return_logprob": "filtered", "return_valid": True},
    )
    torch.library.opcheck(OPS.sample.default, (narrow, 0), {"filter_apply_order": "joint"})


# For each of torch's operators: our call with the arguments of torch's own tests.
def _softmax(function):
    return lambda x, dim, dtype=None, **_: function(x, dim, dtype=dtype)


SAMPLES = {
    "softmax": _softmax(ons.softmax),
    "log_softmax": _softmax(ons.log_softmax),
    "logsumexp": lambda x, dim, keepdim=False: ons.logsumexp(x, dim, keepdims=keepdim),
    "topk": None,
}


def _topk(x, k, dim=-1, *_):
    return ons.softmax_topk(x, k, dim).values


def _expected_topk(x, k, dim=-1, *_):
    """The values at our places of the largest elements. Of equal elements torch may take any."""
    places = ons.softmax_topk(x.detach(), k, dim).indices
    if x.ndim:
        assert torch.equal(x.gather(dim, places), x.topk(k, dim).values)
    y = torch.softmax(x, dim)
    return y.gather(dim, places) if x.ndim else y


def samples(device):
    """torch's own samples (OpInfo): pairs of calls, ours and torch's, and the tensors that they take."""
    pytest.importorskip("expecttest")  # torch's samples import it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    for info in op_db:
        if info.name not in SAMPLES or info.aten_name not in SAMPLES:
            continue
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64):
            if dtype not in info.supported_dtypes(torch.device(device).type):
                continue
            for sample in info.sample_inputs(device, dtype, requires_grad=dtype.is_floating_point):
                x, given, keywords = sample.input, sample.args, sample.kwargs
                if info.name != "topk":
                    calls = SAMPLES[info.name], info.op
                elif dtype.is_floating_point and keywords.get("largest", True) and all(given[2:]):
                    calls = _topk, _expected_topk
                else:
                    continue
                yield *(lambda t, f=f, g=given, k=keywords: f(t, *g, **k) for f in calls), x


def _value_and_gradient(call, x):
    leaf = x.detach().clone().requires_grad_(x.requires_grad)
    y = call(leaf)
    if not y.requires_grad:
        return [y]
    weights = torch.linspace(-1, 1, y.numel(), device=x.device).view(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, leaf, weights)]


def _assert_close(ours, theirs, exact):
    """Ours is as near to the float64 result as torch's, or within two eps of the weights, which reach 1."""
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    if ours.dtype == torch.float64 or ours.numel() == 0:
        torch.testing.assert_close(ours, theirs)
        return
    off, allowed = ((each.double() - exact).abs().max() for each in (ours, theirs))
    assert off <= max(1.2 * allowed, 2 * torch.finfo(ours.dtype).eps * exact.abs().max().clamp(min=1))


def check_samples(device):
    """Compares values and gradients on torch's samples. Returns the number of samples."""
    count = 0
    for ours, theirs, x in samples(device):
        exact = x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x
        results = [
            _value_and_gradient(call, given) for call, given in ((ours, x), (theirs, x), (theirs, exact))
        ]
        for three in zip(*results, strict=True):
            _assert_close(*three)
        count += 1
    return count


def _hessian_of_one(function):
    return torch.func.jacrev(torch.func.grad(lambda t: function(t)[1]))


def _topk_of_all(x):
    return ons.softmax_topk(x, x.shape[-1]).values if x.ndim else ons.softmax_topk(x, 1).values


def check_transforms(device):
    """torch.func's transforms of each function, compared with a loop and with torch."""
    check_vjp(device)
    check_batched_gradients(device)
    check_mapped_edges(device)
    check_mapped_losses(device)
    check_mapped_logprob(device)
    check_mapped_divergences(device)
    check_mapped_routers(device)
    x, where = rows((4, 3, 5), device).detach(), mask((4, 3, 5), device)
    for function, expected in ((ons.softmax, torch.softmax), (ons.log_softmax, torch.log_softmax)):
        for axis in (-1, 0, -2):
            mapped = torch.vmap(lambda t, f=function, a=axis: f(t, a), in_dims=1, out_dims=1)(x)
            torch.testing.assert_close(mapped, torch.stack([expected(t, axis) for t in x.unbind(1)], 1))
        torch.testing.assert_close(torch.vmap(torch.vmap(function))(x), expected(x, -1))
        for transform in (torch.func.jacrev, _hessian_of_one):
            jacobian = torch.vmap(transform(lambda t, f=function: f(t, -1)))(x[0])
            theirs = torch.vmap(transform(lambda t, f=expected: f(t, -1)))(x[0])
            torch.testing.assert_close(jacobian, theirs)
    each = torch.stack([ons.softmax(t, where=w) for t, w in zip(x, where, strict=True)])
    assert torch.equal(torch.vmap(lambda t, w: ons.softmax(t, where=w))(x, where), each)
    assert torch.equal(
        torch.vmap(lambda w: ons.softmax(x[0], where=w))(where)[2], ons.softmax(x[0], where=where[2])
    )
    each = torch.stack([ons.softmax(t, scale=s) for t, s in zip(x, x[:, :, :1], strict=True)])
    assert torch.equal(torch.vmap(lambda t, s: ons.softmax(t, scale=s))(x, x[:, :, :1]), each)
    assert torch.equal(torch.vmap(ons.logsumexp)(x), ons.logsumexp(x))
    values, indices = torch.vmap(lambda t: tuple(ons.softmax_topk(t, 2)))(x)
    assert torch.equal(values, ons.softmax_topk(x, 2).values) and indices.shape == (4, 3, 2)
    grads = torch.vmap(torch.func.grad(lambda t: ons.logsumexp(t, None)))(x)
    torch.testing.assert_close(grads, torch.softmax(x.flatten(1), -1).view_as(x))


def check_vjp(device):
    """The second function of vjp runs after the transform has ended."""
    x, where = rows((3, 5), device).detach(), mask((3, 5), device)
    weights = torch.linspace(-1, 1, 15, device=device, dtype=x.dtype).view(3, 5)
    for ours, theirs, given in [
        (ons.softmax, lambda t: torch.softmax(t, -1), weights),
        (lambda t: ons.log_softmax(t, scale=0.5), lambda t: torch.log_softmax(0.5 * t, -1), weights),
        (ons.logsumexp, lambda t: torch.logsumexp(t, -1), weights[:, 0]),
        (_topk_of_all, lambda t: torch.softmax(t, -1).sort(descending=True).values, weights),
    ]:
        (y, pull), (expected, pull_expected) = torch.func.vjp(ours, x), torch.func.vjp(theirs, x)
        torch.testing.assert_close(y, expected)
        ((grad,), (expected,)) = pull(given), pull_expected(given)
        torch.testing.assert_close(grad, expected)
        assert not grad.requires_grad
    _, pull = torch.func.vjp(lambda t: ons.softmax(t, where=where), x)
    torch.testing.assert_close(pull(weights)[0], ons.softmax_backward(weights, ons.softmax(x, where=where)))


def check_batched_gradients(device):
    """Batched gradients use the vmap of torch.autograd."""
    x, where = rows((2, 4), device), mask((2, 4), device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it maps by a loop
        for call in (
            lambda t: ons.softmax(t, where=where, scale=0.5),
            lambda t: ons.log_softmax(t, 0),
            ons.logsumexp,
            lambda t: ons.softmax_topk(t, 2).values,
        ):
            assert torch.autograd.gradcheck(call, (x,), check_batched_grad=True)
        hessians = [
            torch.autograd.functional.hessian(lambda t, f=f: f(t)[0, 0], x.detach(), vectorize=True)
            for f in (ons.softmax, lambda t: torch.softmax(t, -1))
        ]
    torch.testing.assert_close(*hessians)


def check_mapped_edges(device):
    """Rows of one element, calls and arrays without an axis, and axes out of bounds."""
    x = rows((5,), device).detach()
    for function in (ons.softmax, ons.log_softmax, ons.logsumexp):
        alone = torch.func.jacrev(lambda t, f=function: f(t[:, None]).view(5))(x)
        assert torch.equal(torch.func.jacrev(lambda t, f=function: f(t, ()))(x), alone)
        mapped = torch.vmap(lambda t, f=function: f(t, ()))(x[None])
        assert torch.equal(mapped, function(x[None], ()))
    for function in (ons.softmax, ons.logsumexp, _topk_of_all, lambda t: ons.logsumexp(t, keepdims=True)):
        mapped = torch.vmap(function)(x)
        assert torch.equal(mapped, torch.stack([function(t) for t in x]))
    for axis in (7, -2):
        with pytest.raises(IndexError, match=f"axis {axis} is out of bounds for array of dimension 1"):
            torch.vmap(lambda t, a=axis: ons.softmax(t, a))(x[None])


def check_mapped_losses(device):
    """Each mapped element is reduced by itself. The results, and first and second derivatives, are like a
    loop's."""
    x, (target, weight) = rows((3, 4, 5), device).detach(), loss_arguments((3, 4, 5), device)
    weights = torch.stack([weight, weight * 2, weight.flip(0)])

    def derivatives(x, target, weight, **keywords):
        value = lambda t: ons.cross_entropy(t, target, weight=weight, **keywords).square().sum()  # noqa: E731
        with_grad = ons.cross_entropy_with_grad(x, target, weight=weight, return_lse=True, **keywords)
        return *with_grad, torch.func.grad(value)(x), torch.func.jacrev(torch.func.grad(value))(x)

    for keywords in LOSSES.values():
        for places, given in (
            ((0, 0, None), (x, target, weight)),
            ((1, None, None), (x, target[:, 0], None)),
            ((None, 0, None), (x[0], target, None)),
            ((None, None, 0), (x[0], target[0], weights)),
        ):
            mapped = torch.vmap(lambda *g, k=keywords: derivatives(*g, **k), places)(*given)
            size = next(g.shape[dim] for g, dim in zip(given, places, strict=True) if dim is not None)
            for i in range(size):
                mine = (g if dim is None else g.select(dim, i) for g, dim in zip(given, places, strict=True))
                for part, alone in zip(mapped, derivatives(*mine, **keywords), strict=True):
                    torch.testing.assert_close(part[i], alone)


def check_mapped_logprob(device):
    """The results, and first and second derivatives, are like a loop's."""
    x = rows((3, 4, 5), device).detach()

    def derivatives(x, index, **keywords):
        value = lambda t: sum(y.square().sum() for y in real(ons.logprob(t, index, **keywords)))  # noqa: E731
        found = ons.logprob(x, index, **keywords)
        results = [found] if isinstance(found, torch.Tensor) else [y for y in found[:5] if y is not None]
        return *results, torch.func.grad(value)(x), torch.func.jacrev(torch.func.grad(value))(x)

    for _, index, keywords in logprob_arguments((4, 5), device):
        for places, given in (
            ((0, None), (x, index)),
            ((2, None), (x.movedim(0, 2), index)),
            ((None, 0), (x[0], torch.stack([index, index.flip(0), index * 0]))),
        ):
            mapped = torch.vmap(lambda *g, k=keywords: derivatives(*g, **k), places)(*given)
            for i in range(3):
                mine = (g if dim is None else g.select(dim, i) for g, dim in zip(given, places, strict=True))
                for part, alone in zip(mapped, derivatives(*mine, **keywords), strict=True):
                    torch.testing.assert_close(part[i], alone)
    target = torch.arange(4, device=device)
    mapped = torch.func.grad(lambda t: torch.vmap(ons.logprob)(t, target).sum())(x[0])
    torch.testing.assert_close(mapped, torch.func.grad(lambda t: ons.logprob(t, target).sum())(x[0]))


def check_mapped_divergences(device):
    """Each mapped element is reduced by itself. The results, and first and second derivatives, are like a
    loop's."""
    x, y = (rows((3, 4, 5), device, seed).detach() for seed in (0, 1))
    where, of_all = mask((3, 4, 5), device), torch.linspace(0.5, 2, 3, device=device)

    def derivatives(x, y, where, scale, call, **keywords):
        keywords |= {"where": where, "scale": scale}
        value = lambda *sides: call(*sides, **keywords).square().sum()  # noqa: E731
        first = torch.func.grad(value, (0, 1))
        with_grad = getattr(ons, f"{call.__name__}_with_grad")
        results = [part for wrt in ("p", "q") for part in with_grad(x, y, wrt=wrt, **keywords)]
        return (
            call(x, y, **keywords),
            *results,
            *first(x, y),
            *sum(torch.func.jacrev(first, (0, 1))(x, y), ()),
        )

    for _, function, keywords in divergence_terms((4, 5), device):
        terms = {key: value for key, value in keywords.items() if key not in ("where", "scale")}
        call = functools.partial(derivatives, call=function, **terms)
        for places, given in (
            ((0, 0, None, None), (x, y, None, 0.5)),
            ((1, None, None, None), (x.movedim(0, 1), y[0], where[0], 1.0)),
            ((None, 0, 0, 0), (x[0], y, where, of_all)),
            ((0, 2, 0, 0), (x, y.movedim(0, 2), where[:, 0], of_all[:, None, None])),
        ):
            mapped = torch.vmap(call, places)(*given)
            for i in range(3):
                mine = (g if dim is None else g.select(dim, i) for g, dim in zip(given, places, strict=True))
                for part, alone in zip(mapped, call(*mine), strict=True):
                    torch.testing.assert_close(part[i], alone)


def check_mapped_routers(device):
    """The results, and first and second derivatives, are like a loop's."""
    x, where = rows((3, 4, 6), device).detach(), mask((3, 4, 6), device)
    biases = torch.linspace(-1, 1, 18, device=device, dtype=torch.float64).view(3, 6).sin()

    def derivatives(x, bias, where, **keywords):
        keywords |= {"bias": bias, "where": where}
        value = lambda t: ons.route(t, 2, **keywords).weights.sin().sum()  # noqa: E731
        return (
            *ons.route(x, 2, **keywords),
            torch.func.grad(value)(x),
            torch.func.jacrev(torch.func.grad(value))(x),
        )

    forms = [
        ((0, None, None), (x, None, None)),
        ((1, None, 0), (x.movedim(0, 1), biases[0], where[:, 0])),
        ((None, 0, None), (x[0], biases, where[0])),
        ((2, 0, 1), (x.movedim(0, 2), biases, where.movedim(0, 1))),
    ]
    for number, (_, keywords) in enumerate(routers(device)):
        terms = {key: value for key, value in keywords.items() if key not in ("bias", "where")}
        call = functools.partial(derivatives, **terms)
        places, given = forms[(number + number // 4) % 4]  # each score meets each form once
        mapped = torch.vmap(call, places)(*given)
        for i in range(3):
            mine = (g if dim is None else g.select(dim, i) for g, dim in zip(given, places, strict=True))
            for part, alone in zip(mapped, call(*mine), strict=True):
                torch.testing.assert_close(part[i], alone)
    jacobian = torch.func.jacrev(lambda row: ons.route(row, 6, score="sigmoid", renormalize=False).weights)
    p, order = torch.sigmoid(x[0, 0]), x[0, 0].argsort(descending=True)
    torch.testing.assert_close(jacobian(x[0, 0]), torch.diag(p * (1 - p))[order])


def loss(x, where, target):
    """A loss of every function. No result is a sum of rounding errors."""
    y = ons.softmax(x) * ons.softmax(x, 0, scale=0.5, where=where)
    largest = ons.softmax_topk(x, 3, log=True).values
    nll = -ons.log_softmax(x).gather(-1, target).mean()
    terms = {"label_smoothing": 0.1, "z_loss": 1e-3, "reduction": "none"}
    losses = ons.cross_entropy(x, target.squeeze(-1), ignore_index=-100, **terms)
    mean, lse = ons.cross_entropy(x, target.squeeze(-1), weight=x.detach()[0].abs(), return_lse=True)
    policy = ons.logprob(x, target.squeeze(-1), entropy=True, rank=True)
    kept = losses.sum(), mean, lse.square().mean(), policy.logprob.mean(), policy.entropy.square().mean()
    distances = ons.kl_divergence(x, x * 0.5, reduction="mean"), ons.js_divergence(x, -x.detach(), beta=0.1)
    kept += distances[0], distances[1].square().sum(), ons.kl_divergence(x, y, 0, where=where).mean()
    weights, experts = ons.route(x, 2, score="sigmoid", bias=x.detach()[0], where=where, scale=2.5)
    kept += (weights * experts).mean(), ons.route(x, 4, renormalize=False).weights.square().sum()
    return y.sum(), nll, largest.mean(), ons.logsumexp(x, keepdims=True).square().mean(), *kept


def check_compiled(device, backend, **options):
    """A compiled call has no graph break, takes varying shapes in one graph, and has the bits of a plain
    call."""
    torch._dynamo.reset()
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend=backend, **options)
    for shape in ((4, 33), (5, 64), (17, 100), (2, 1000)):
        x, where = rows(shape, device, dtype=torch.float32), mask(shape, device)
        target = torch.zeros((shape[0], 1), dtype=torch.int64, device=device)
        results = []
        for function in (loss, compiled):
            values = function(x, where, target)
            results.append((*values, *torch.autograd.grad(sum(values), x)))
        torch.testing.assert_close(results[1], results[0])
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1


def check_bits_compiled(device, backend, **options):
    """The operators' results have the same bits. A compiler may round as it likes between them."""
    torch._dynamo.reset()
    calls = [
        lambda x: ons.softmax(x),
        lambda x: ons.log_softmax(x, 0),
        lambda x: ons.logsumexp(x, scale=2.0),
        lambda x: ons.softmax_topk(x, 3).values,
        lambda x: ons.softmax(x, dtype=torch.float64),
    ]
    for call in calls:
        compiled = torch.compile(call, fullgraph=True, backend=backend, **options)
        for dtype in (torch.float32, torch.bfloat16):
            x = rows((5, 300), device, dtype=dtype).detach()
            for _ in range(3):  # the second call records a CUDA graph, and later calls run it
                y = compiled(x)
                assert y.dtype == call(x).dtype and torch.equal(y, call(x))


def check_profiled(device):
    """Every call has one row in torch's profiler, whichever way it takes."""
    x = torch.randn(8, 50, device=device)
    with_gradient = x.clone().requires_grad_()
    with torch.profiler.profile() as profiler:
        y = ons.softmax(x)
        ons.softmax(x, out=torch.empty_like(x), axis=0, method="online")
        ons.softmax_backward(x, y)
        ons.softmax_topk(x, 3)
        torch.ops.onsoftmax.softmax(x, [-1])
        ons.log_softmax(with_gradient)
    on_host = torch.autograd.DeviceType.CPU
    events = [event for event in profiler.events() if event.device_type == on_host]
    names = [event.name for event in events if "onsoftmax" in event.name.lower()]
    calls = ["softmax", "softmax", "softmax_backward", "softmax_topk", "softmax"]
    assert names == [*(f"onsoftmax::{name}" for name in calls), "OnsoftmaxLogSoftmax"]
