"""The checks of cross_entropy and logprob of onsoftmax.distributed on one rank of a group, started as
distributed_checks.py is."""

import os
import time

import loss_checks
import torch
import torch.distributed as dist
from distributed_checks import (
    DEVICE,
    DTYPES,
    RANK,
    RANKS,
    TIMEOUT,
    assert_raises,
    assert_same_bits,
    cuts_of,
    mine_of,
    rows,
    run,
    with_special_rows,
)

import onsoftmax as ons
from onsoftmax import distributed
from onsoftmax._torch import ranks as _ranks

TERMS = (
    {},
    {"label_smoothing": 0.1},
    {"z_loss": 1e-3},
    {"weight": True, "reduction": "sum"},
    {"weight": True, "label_smoothing": 0.3, "z_loss": 1e-2, "reduction": "none"},
    {"ignore_index": 0, "reduction": "none"},
)


def each_cut(N):
    """The places where rows are cut. The ranks then compare the lengths of their parts."""
    for cuts in cuts_of(N):
        distributed.softmax(torch.zeros(1, 1, device=DEVICE))
        yield cuts


def target_of(x, axis, ignored=-100):
    """Targets in all parts of the rows, of which one is ignored."""
    shape, N = x.movedim(axis, -1).shape[:-1], x.shape[axis]
    target = torch.arange(shape.numel()) * 7 % N
    target[-1] = ignored
    return target.view(shape).to(DEVICE)


def numbers(tensor):
    return tensor.detach().double().cpu().numpy()


def check_loss_of(x, axis, every_term=True):
    """Loss and gradient against the exact values. The loss has the bits of all other cuts."""
    name = str(x.dtype).removeprefix("torch.")
    whole = x.movedim(axis, -1)
    weight = torch.linspace(0.5, 1.5, x.shape[axis], dtype=torch.float64, device=DEVICE)
    for keywords in TERMS if every_term else TERMS[:2]:
        keywords = dict(keywords, weight=weight.float() if "weight" in keywords else None)
        target = target_of(x, axis, keywords.get("ignore_index", -100))
        reduction = keywords.pop("reduction", "mean")
        wanted = keywords | {"weight": None if keywords["weight"] is None else numbers(keywords["weight"])}
        terms = loss_checks.Terms(**wanted)
        before = None
        for cuts in each_cut(x.shape[axis]):
            mine = mine_of(x, cuts, axis).clone().requires_grad_()
            loss, lse = distributed.cross_entropy(
                mine, target, axis=axis, reduction=reduction, return_lse=True, **keywords
            )
            loss.sum().backward()
            parts = [None] * RANKS
            dist.all_gather_object(parts, mine.grad.movedim(axis, -1).cpu())
            gradient = torch.cat(parts, -1)
            assert gradient.dtype == x.dtype and not lse.requires_grad
            loss_checks.check(
                numbers(whole), target.cpu().numpy(), terms, reduction, numbers(loss), numbers(gradient), name
            )
            torch.testing.assert_close(lse, torch.logsumexp(whole.to(lse.dtype), -1))
            if before is not None and not keywords.get("label_smoothing"):
                assert_same_bits(loss.detach(), before, keywords, cuts)
            before = loss.detach()


def results(found):
    return [found.logprob, found.entropy, found.lse]


def check_logprob_of(x, axis, several):
    """Results and gradients against the call with the whole rows."""
    N, exact = x.shape[axis], x.double().clone().requires_grad_()
    index = target_of(x, axis, N - 1)
    if several:
        index = torch.stack([index, (index + N // 2) % N, index], -1)
    wants = {"entropy": True, "lse": True, "argmax": True}
    wanted = ons.logprob(exact, index, axis, **wants)
    factors = [
        torch.linspace(-1, 2, r.numel(), device=DEVICE).double().view(r.shape) for r in results(wanted)
    ]
    sum((r * f).sum() for r, f in zip(results(wanted), factors, strict=True)).backward()
    eps = torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps
    for cuts in each_cut(N):
        mine = mine_of(x, cuts, axis).clone().requires_grad_()
        found = distributed.logprob(mine, index, axis=axis, **wants)
        assert torch.equal(found.argmax, wanted.argmax) and found.rank is None
        for made, should in zip(results(found), results(wanted), strict=True):
            torch.testing.assert_close(made.double(), should, rtol=8 * eps, atol=8 * eps)
        sum((r * f).sum() for r, f in zip(results(found), factors, strict=True)).backward()
        of_type = torch.finfo(x.dtype).eps
        torch.testing.assert_close(
            mine.grad.double(), mine_of(exact.grad, cuts, axis), rtol=of_type, atol=32 * eps
        )
        alone = distributed.logprob(mine, index, axis=axis)
        assert_same_bits(alone.detach(), found.logprob.detach(), cuts)


def check_special_rows():
    """Rows with NaN and inf, and rows of -inf alone, as the call with the whole rows has them."""
    x = with_special_rows(rows((6, 50), torch.float32))
    target = target_of(x, -1)
    index = target.clamp(0)
    index[2] = 0  # an element of -inf
    whole = ons.logprob(x, index, entropy=True, lse=True, argmax=True)
    losses = ons.cross_entropy(x, index, reduction="none")
    for cuts in each_cut(50):
        mine = mine_of(x, cuts, -1).clone().requires_grad_()
        found = distributed.logprob(mine, index, entropy=True, lse=True, argmax=True)
        for made, wanted in zip(found, whole, strict=True):
            if made is not None:
                torch.testing.assert_close(made.detach(), wanted, equal_nan=True)
        loss = distributed.cross_entropy(mine, index, reduction="none")
        torch.testing.assert_close(loss.detach(), losses, equal_nan=True)
        assert loss[2] == torch.inf
        gone = torch.full_like(index, -100)
        loss = distributed.cross_entropy(mine, gone, reduction="sum", z_loss=0.1, label_smoothing=0.1)
        (gradient,) = torch.autograd.grad(loss, mine)
        assert loss == 0 and (gradient == 0).all()
        assert distributed.cross_entropy(mine, gone).isnan()


def check_losses():
    check_loss_of(rows((6, 301), torch.float32), -1)
    check_loss_of(rows((4, 120), torch.bfloat16, 3.0, 50.0), -1, every_term=False)
    check_logprob_of(rows((3, 101, 2), torch.float32), 1, several=True)
    check_logprob_of(rows((4, 200), torch.bfloat16), -1, several=False)
    check_special_rows()
    check_collectives()
    check_loss_errors()


def check_all_losses():
    for dtype in DTYPES:
        for shape, axis in [((5, 1001), -1), ((4, 300, 3), 1), ((200, 7), 0), ((33,), 0)]:
            check_loss_of(rows(shape, dtype), axis)
            for several in (False, True):
                check_logprob_of(rows(shape, dtype), axis, several)
        if dtype != torch.float16:
            check_loss_of(rows((4, 500), dtype, 30.0, 2e4), -1)
            check_loss_of(rows((4, 500), dtype, 1.0, -1e6), -1)
    for shape in ((0, 10), (2, 0, 10)):
        x = rows(shape, torch.float32).requires_grad_()
        index = torch.zeros(shape[:-1], dtype=torch.int32, device=DEVICE)
        assert distributed.cross_entropy(x, index).isnan()
        found = distributed.logprob(x, index, entropy=True)
        assert found.entropy.shape == found.logprob.shape == index.shape
        found.logprob.sum().backward()
        assert x.grad.shape == x.shape


def check_collectives():
    """One all_gather a call, nothing in the backward step, and no comparison if the rows are as before."""
    sent, compared, all_gather, agreed = [], [], _ranks._all_gather, _ranks._agreed

    def counted(everything, mine, group):
        sent.append(mine.numel() * mine.element_size() // 33)
        return all_gather(everything, mine, group=group)

    x = rows((11, 3, 50), torch.bfloat16).requires_grad_()
    index = target_of(x, -1, 149)[..., None].expand(11, 3, 4) % (50 * RANKS)
    wants = {"entropy": True, "lse": True, "argmax": True}
    _ranks._all_gather = counted
    try:
        for call, size in (
            (lambda: distributed.cross_entropy(x, index[..., 0], z_loss=1.0), 48),
            (lambda: distributed.cross_entropy(x, index[..., 0], label_smoothing=0.1), 56),
            (lambda: distributed.logprob(x, index[..., 0]), 48),
            (lambda: distributed.logprob(x, index, **wants)[0].sum(), 40 + 4 * 8 + 16),
        ):
            for _ in range(2):
                compared.append(agreed[dist.group.WORLD][1] if dist.group.WORLD in agreed else 0)
                call().sum().backward()
                assert sent == [size], sent
                sent.clear()
            assert agreed[dist.group.WORLD][1] == compared[-1]
        assert compared[-1] == compared[0] + 4
    finally:
        _ranks._all_gather = all_gather


def check_loss_errors():
    x = rows((4, 10), torch.float32)
    good, N = torch.tensor([0, 9, 3, -100], device=DEVICE), 10 * RANKS
    loss, logprob = distributed.cross_entropy, distributed.logprob
    for error, words, call in (
        (TypeError, "local is of type list", lambda: loss([[1.0]], good)),
        (TypeError, "target is of type list", lambda: loss(x, [1, 2, 3, 4])),
        (TypeError, "expected the indices of classes", lambda: loss(x, good.float())),
        (TypeError, "dtype int64 is not supported: expected float16", lambda: loss(x.long(), good)),
        (ValueError, "target has shape (3,): expected (4,)", lambda: loss(x, good[:3])),
        (
            ValueError,
            "index has shape (1, 4): expected (4,), or one more dimension",
            lambda: logprob(x, good[None]),
        ),
        (ValueError, "index has 0 elements of each row", lambda: logprob(x, good[:, None][:, :0])),
        (ValueError, "reduction is 'avg'", lambda: loss(x, good, reduction="avg")),
        (ValueError, "label_smoothing is 2", lambda: loss(x, good, label_smoothing=2)),
        (IndexError, "axis 2 is out of bounds", lambda: loss(x, good, axis=2)),
        (ValueError, f"weight has shape (3,): expected ({N},)", lambda: loss(x, good, weight=x[0, :3])),
        (
            TypeError,
            "weight is of type list: expected a torch.Tensor",
            lambda: loss(x, good, weight=[1.0] * N),
        ),
        (
            ValueError,
            "weight is on meta: expected ",
            lambda: loss(x, good, weight=torch.ones(N, device="meta")),
        ),
        (ValueError, "target is on meta: expected ", lambda: loss(x, good.to("meta"))),
        (RuntimeError, "weight requires grad", lambda: loss(x, good, weight=x.new_ones(N).requires_grad_())),
    ):
        assert_raises(error, words, call)
    part = x.clone().requires_grad_()
    for name, made in (("cross_entropy", loss(part, good)), ("logprob", logprob(part, good.clamp(0)))):
        words = f"create_graph is given, and {name} has no second derivative"
        assert_raises(RuntimeError, words, lambda y=made: y.sum().backward(create_graph=True))
    wrong = good.clone()
    wrong[2] = N
    if DEVICE == "cpu":
        words = f"target {N} of row 2 is no class: expected 0 to {N - 1}, or ignore_index, which is -100"
        assert_raises(IndexError, words, lambda: loss(x, wrong))
        words = f"index {N} of row 2 is no element: expected 0 to {N - 1}"
        assert_raises(IndexError, words, lambda: logprob(x, wrong.clamp(0)[:, None].expand(4, 2)))
    else:
        for made in (loss(part, wrong, reduction="none"), logprob(part, wrong.clamp(0))):
            (gradient,) = torch.autograd.grad(made.sum(), part)
            assert made.isnan().tolist() == gradient.isnan().any(-1).tolist() == [False, False, True, False]
    if RANKS > 1:  # the ranks call in different ways
        loss(x[:1], good[:1])
        begun = time.monotonic()
        words = "expected the same on all ranks, except for the length along the axis, *"
        assert_raises(ValueError, words, lambda: loss(x, good, label_smoothing=0.1 * RANK))
        assert time.monotonic() - begun < TIMEOUT


def check_length_changed_alone():
    """Only the length of one rank's part changes. Each rank gets an error in time."""
    x, target = rows((4, 10), torch.float32), torch.zeros(4, dtype=torch.int64, device=DEVICE)
    distributed.cross_entropy(x, target)
    begun = time.monotonic()
    try:
        distributed.cross_entropy(x[:, :9] if RANK == 0 else x, target)
    except RuntimeError as error:
        assert RANK > 0 or "or came with other rows than rank 0" in str(error), error
    else:
        raise AssertionError("no error where the length of one part changes")
    assert time.monotonic() - begun < TIMEOUT + 5
    os._exit(0)  # the group can no longer be used


def check_dtensor_losses():
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh(DEVICE, (RANKS,))
    square = init_device_mesh(DEVICE, (2, RANKS // 2) if RANKS % 2 == 0 else (1, RANKS))
    x = rows((6, 10 * RANKS + 1, 3), torch.float64)
    target = target_of(x, 1)
    index = target.clamp(0)[..., None].expand(6, 3, 2)
    for on, placements in (
        *((mesh, [placement]) for placement in (Shard(1), Shard(0), Shard(2), Replicate())),
        *((square, pair) for pair in ([Shard(1), Shard(1)], [Shard(0), Shard(1)], [Replicate(), Shard(1)])),
    ):
        whole_batch = all(p in (Replicate(), Shard(1)) for p in placements)
        given = distribute_tensor(x, on, placements)
        same = [Replicate()] * len(placements)
        of_targets = {"plain": target, "DTensor": distribute_tensor(target, on, same)}
        for reduction in ("none", "mean") if whole_batch else ("none",):
            wanted = x.clone().requires_grad_()
            expected = ons.cross_entropy(wanted, target, axis=1, label_smoothing=0.1, reduction=reduction)
            expected.sum().backward()
            for kind, targets in of_targets.items():
                leaf = given.detach().requires_grad_()
                loss = distributed.cross_entropy(
                    leaf, targets, axis=1, label_smoothing=0.1, reduction=reduction
                )
                assert isinstance(loss, DTensor), (kind, placements)
                torch.testing.assert_close(loss.full_tensor(), expected)
                loss.sum().backward()
                torch.testing.assert_close(leaf.grad.full_tensor(), wanted.grad)
        leaf, wanted = given.detach().requires_grad_(), x.clone().requires_grad_()
        found = distributed.logprob(leaf, index, axis=1, entropy=True, argmax=True)
        expected = ons.logprob(wanted, index, axis=1, entropy=True, argmax=True)
        for made, should in zip(found, expected, strict=True):
            if should is not None:
                torch.testing.assert_close(made.full_tensor(), should)
        (found.logprob.sum() + found.entropy.sum()).backward()
        (expected.logprob.sum() + expected.entropy.sum()).backward()
        torch.testing.assert_close(leaf.grad.full_tensor(), wanted.grad)
    given = distribute_tensor(x, mesh, [Shard(0)])
    words = "reduction is 'mean', and local is also sharded along another axis: expected 'none'"
    assert_raises(ValueError, words, lambda: distributed.cross_entropy(given, target, axis=1))
    replicated = distribute_tensor(target, mesh, [Replicate()])
    for name, call in (
        ("target", lambda: distributed.cross_entropy(x, replicated, axis=1)),
        (
            "weight",
            lambda: distributed.cross_entropy(given, target, axis=1, weight=replicated, reduction="none"),
        ),
    ):
        assert_raises(ValueError, f"{name} is a DTensor: expected {name}.full_tensor()", call)


if __name__ == "__main__":
    run(globals())
