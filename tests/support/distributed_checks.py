"""The checks of onsoftmax.distributed on one rank of a group. test_distributed.py starts the ranks.

    python tests/support/distributed_checks.py RANK RANKS FILE DEVICE CHECK...

The ranks meet in FILE. All ranks make the same arrays, and each takes its part of them.
"""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

import onsoftmax as ons
from onsoftmax import distributed
from onsoftmax._torch import ranks as _ranks

TIMEOUT = 8.0  # the group's timeout in seconds
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
RANK, RANKS, FILE, DEVICE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
FUNCTIONS = ["softmax", "log_softmax", "logsumexp"]


def cuts_of(N):
    """The places where rows of N elements are cut: evenly, unevenly, and with empty parts."""
    even = [N * rank // RANKS for rank in range(1, RANKS)]
    yield even
    if RANKS > 1:
        yield [1] * (RANKS - 1)
        yield [0] * (RANKS - 2) + [N - 1]
        yield [N] * (RANKS - 1)
        yield [0] * (RANKS - 1)


def parts_of(x, cuts, axis):
    return list(torch.tensor_split(x, cuts, dim=axis))


def mine_of(x, cuts, axis):
    return parts_of(x, cuts, axis)[RANK]


def rows(shape, dtype, scale=3.0, offset=0.0):
    torch.manual_seed(7)
    return (scale * torch.randn(shape, dtype=torch.float64) + offset).to(dtype).to(DEVICE)


def assert_same_bits(a, b, *what):
    kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    a, b = a.contiguous(), b.contiguous()
    same = (a.view(kind) == b.view(kind)) | (a.isnan() & b.isnan())
    assert a.shape == b.shape and same.all(), (*what, (~same).sum().item())


def group_of_one():
    return [dist.new_group([rank]) for rank in range(RANKS)][RANK]


def check_bits_of(x, axis, alone, functions=FUNCTIONS):
    """The result has the bits of a group of one rank that has the whole rows, and torch's values."""
    for name in functions:
        function = getattr(distributed, name)
        whole = function(x, alone, axis)
        exact = getattr(torch, name)(x.double(), axis)
        # torch's own values in float64 have errors too
        eps = torch.finfo(x.dtype).eps * {2: 1, 4: 5, 8: 40}[x.element_size()]
        difference = (whole.double() - exact).abs() / (1 if name == "softmax" else exact.abs().clamp(min=1))
        assert (difference.nan_to_num(0, 0, 0) <= eps).all(), (name, x.dtype, axis)
        assert (whole.isnan() == exact.isnan()).all(), (name, x.dtype, axis)
        for cuts in cuts_of(x.shape[axis]):
            y = function(mine_of(x, cuts, axis), axis=axis)
            wanted = whole if name == "logsumexp" else mine_of(whole, cuts, axis)
            assert_same_bits(y, wanted, name, x.dtype, axis, cuts)


def check_exact_bits_of(x, axis):
    """With method="exact" the result has the bits of a call with the whole rows."""
    for name in FUNCTIONS:
        function, whole = getattr(distributed, name), getattr(ons, name)(x, axis, method="exact")
        for cuts in cuts_of(x.shape[axis]):
            y = function(mine_of(x, cuts, axis), axis=axis, method="exact")
            wanted = whole if name == "logsumexp" else mine_of(whole, cuts, axis)
            assert_same_bits(y, wanted, name, x.dtype, axis, cuts, "exact")


def check_invariant_of(x):
    """On the CPU all methods have the same bits, in the backward step too."""
    found = []
    for method in ("auto", "invariant"):
        part = x.clone().requires_grad_()
        y = distributed.softmax(part, method=method)
        y.backward(x)
        found.append((y.detach(), part.grad))
    for made, wanted in zip(*found, strict=True):
        assert_same_bits(made, wanted, x.dtype, "invariant")


def with_special_rows(x):
    """x with NaN, inf and -inf, each in one place of a row, and with a row of -inf alone."""
    x[0, 3], x[1, -2], x[2, 0], x[3] = torch.nan, torch.inf, -torch.inf, -torch.inf
    return x


def check_smoke():
    alone = group_of_one()
    check_bits_of(with_special_rows(rows((6, 777), torch.float32)), -1, alone)
    check_bits_of(rows((300, 9), torch.bfloat16), 0, alone, ["softmax"])
    check_exact_bits_of(with_special_rows(rows((6, 777), torch.float32)), -1)
    check_exact_bits_of(rows((300, 9), torch.bfloat16, 30.0, 1000.0), 0)
    check_gradients_of(rows((5, 100), torch.float64), -1)
    check_invariant_of(rows((5, 100), torch.float32))
    check_hessian_of(rows((2, 4), torch.float64, 1.0), -1)


def check_bits():
    alone = group_of_one()
    for dtype in DTYPES:
        for shape, axis in [((6, 3001), -1), ((5, 700, 4), 1), ((900, 33), 0), ((40, 3), 1)]:
            check_bits_of(rows(shape, dtype), axis, alone)
        check_bits_of(with_special_rows(rows((6, 500), dtype)), -1, alone)
        if dtype != torch.float64:
            check_exact_bits_of(with_special_rows(rows((6, 3001), dtype)), -1)
        for scale, offset in [(40, 16384), (40, -16384), (500, 1e6), (100, 2.5e6), (1e8, 1e9), (1e4, 0)]:
            if dtype != torch.float16 or offset + 5 * scale < 6e4:
                check_bits_of(rows((4, 1000), dtype, scale, offset), -1, alone, ["softmax"])


def check_order():
    """The result does not depend on which rank has which part."""
    x = rows((9, 1234), torch.float32)
    parts = parts_of(x, [100 * rank for rank in range(1, RANKS)], -1)
    y = distributed.softmax(parts[RANK])
    turned = distributed.softmax(parts[RANKS - 1 - RANK])
    gathered = [None] * RANKS
    dist.all_gather_object(gathered, turned.cpu())
    assert_same_bits(y.cpu(), gathered[RANKS - 1 - RANK])


def check_gradients_of(x, axis):
    grad = rows(x.shape, x.dtype, 1.0, 0.1)
    for name in FUNCTIONS:
        values = name == "logsumexp"
        whole = x.double().clone().requires_grad_()
        dy = grad.double().select(axis, 0) if values else grad.double()
        getattr(torch, name)(whole, axis).backward(dy)
        for cuts in cuts_of(x.shape[axis]):
            mine = mine_of(x, cuts, axis).clone().requires_grad_()
            y = getattr(distributed, name)(mine, axis=axis)
            y.backward(dy.to(x.dtype) if values else mine_of(grad, cuts, axis))
            wanted = mine_of(whole.grad, cuts, axis)
            # log_softmax also has the rounding of y, which the backward step takes
            times = x.shape[axis] ** 0.5 if name == "log_softmax" else 8
            eps = torch.finfo(x.dtype).eps * (64 if x.dtype == torch.float64 else times)
            assert mine.grad.dtype == x.dtype
            torch.testing.assert_close(mine.grad.double(), wanted, rtol=eps, atol=eps)


def check_gradients():
    for dtype in DTYPES:
        for shape, axis in [((5, 1001), -1), ((4, 300, 3), 1), ((200, 7), 0)]:
            check_gradients_of(rows(shape, dtype), axis)


class EachPart(torch.autograd.Function):
    """An array that all ranks have. Its gradient is the sum of the ranks' gradients."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return Total.apply(grad)


class Total(torch.autograd.Function):
    """The sum of all ranks' arrays. The gradient is the same on all ranks."""

    @staticmethod
    def forward(ctx, mine):
        total = mine.contiguous().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, grad):
        return EachPart.apply(grad)


class AllParts(torch.autograd.Function):
    """All ranks' parts side by side. The gradient is the same on all ranks."""

    @staticmethod
    def forward(ctx, mine):
        parts = [torch.empty_like(mine) for _ in range(RANKS)]
        dist.all_gather(parts, mine.contiguous())
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx, grad):
        return EachPart.apply(grad).tensor_split(RANKS, -1)[RANK].contiguous()


def check_gradcheck():
    x = rows((3, 4 * RANKS), torch.float64).requires_grad_()
    for name in FUNCTIONS:

        def whole(x, name=name):
            y = getattr(distributed, name)(EachPart.apply(x).tensor_split(RANKS, -1)[RANK])
            return y if name == "logsumexp" else AllParts.apply(y)

        assert torch.autograd.gradcheck(whole, x)
        assert torch.autograd.gradgradcheck(whole, x)


def check_hessian_of(x, axis):
    """Each rank's columns of the Hessian of a sum over the ranks. The terms differ between ranks. The first
    rank's term is linear, so the gradient of its result is constant."""

    def loss(y, rank):
        return (y * 3).sum() if rank == 0 else (y * 2).sin().sum()

    def whole(x, name, cuts):
        y = getattr(torch, name)(x, axis)
        parts = [(y, 1)] if name == "logsumexp" else zip(parts_of(y, cuts, axis), range(RANKS), strict=True)
        return sum(loss(*part) for part in parts)

    for name in FUNCTIONS:
        for cuts in cuts_of(x.shape[axis]):
            wanted = torch.autograd.functional.hessian(lambda x, n=name, c=cuts: whole(x, n, c), x)
            mine = mine_of(x, cuts, axis).clone().requires_grad_()
            y = getattr(distributed, name)(mine, axis=axis)
            (dx,) = torch.autograd.grad(loss(y, 1 if name == "logsumexp" else RANK), mine, create_graph=True)
            for place in range(x.numel()):
                unit = torch.zeros(x.numel()).index_fill(0, torch.tensor(place), 1).view(x.shape).to(x)
                (row,) = torch.autograd.grad(dx, mine, mine_of(unit, cuts, axis), retain_graph=True)
                exact = mine_of(wanted.flatten(0, x.ndim - 1)[place], cuts, axis)
                eps = torch.finfo(x.dtype).eps * 16
                torch.testing.assert_close(row, exact, rtol=eps, atol=eps, msg=lambda m, n=name: f"{n} {m}")


def check_hessian():
    for dtype in DTYPES:
        check_hessian_of(rows((2, 4), dtype, 1.0), -1)
    check_hessian_of(rows((4, 2), torch.float64, 1.0), 0)


def check_bytes():
    """Each step has one collective: 40 bytes per row and rank forward, 16 backward. The second backward step
    has two. One exchanges the sums of a gradient's gradient, the other the sums of the gradient after it."""
    sent, all_gather = [], _ranks._all_gather

    def counted(everything, mine, group):
        sent.append(mine.numel() * mine.element_size())
        assert everything.numel() == RANKS * mine.numel()
        return all_gather(everything, mine, group=group)

    _ranks._all_gather = counted
    try:
        for name, backward, again in [
            ("softmax", 16, [16, 16]),
            ("log_softmax", 16, [16, 16]),
            ("logsumexp", 0, [4, 16]),
        ]:
            x = rows((11, 3, 50), torch.bfloat16).requires_grad_()
            y = getattr(distributed, name)(x)
            assert sent == [40 * 33], (name, sent)
            (dx,) = torch.autograd.grad((y**2).sum(), x, create_graph=True)
            assert sent == [40 * 33] + [backward * 33] * (backward > 0), (name, sent)
            sent.clear()
            (dx**2).sum().backward()
            assert sorted(sent) == [each * 33 for each in again], (name, sent)
            sent.clear()
    finally:
        _ranks._all_gather = all_gather


def assert_raises(error, words, call):
    try:
        call()
    except error as caught:
        assert words in str(caught), str(caught)
        return
    raise AssertionError(f"no {error.__name__}: {words}")


def check_refused():
    x = rows((4, 10), torch.float32)
    assert_raises(
        TypeError, "local is of type list: expected a torch.Tensor", lambda: distributed.softmax([1.0])
    )
    assert_raises(TypeError, "axis is None: expected an int", lambda: distributed.softmax(x, axis=None))
    assert_raises(IndexError, "axis 2 is out of bounds", lambda: distributed.softmax(x, axis=2))
    words = "method is 'split': expected 'auto', 'invariant' or 'exact'"
    assert_raises(ValueError, words, lambda: distributed.softmax(x, method="split"))
    assert_raises(TypeError, "complex64", lambda: distributed.softmax(x.to(torch.complex64)))
    if RANKS == 1:
        return
    alone = dist.new_group([0])
    if RANK > 0:
        assert_raises(ValueError, "this process is not in the group", lambda: distributed.softmax(x, alone))
    for other in (x[:3], x.double(), x.T.contiguous(), x[:, :, None]):
        distributed.softmax(x[:1])  # so that x is new for both ranks
        begun = time.monotonic()
        words = "expected the same on all ranks, except for the length along the axis, *"
        assert_raises(ValueError, words, lambda o=other: distributed.softmax(o if RANK == 1 else x))
        assert time.monotonic() - begun < TIMEOUT
        distributed.softmax(x)
    method = "exact" if RANK == 1 else "auto"
    distributed.softmax(x[:1])
    assert_raises(ValueError, "by method 'exact'", lambda: distributed.softmax(x, method=method))


def check_changed_alone():
    """Only one rank's rows change. Each rank gets an error in time."""
    x = rows((4, 10), torch.float32)
    distributed.softmax(x)
    begun = time.monotonic()
    try:
        distributed.softmax(x.double() if RANK == 0 else x)
    except RuntimeError as error:
        told = f"{list(range(1, RANKS))} did not come within 0:00:08, or came with other rows than rank 0"
        assert RANK > 0 or told in str(error), error
    else:
        raise AssertionError("no error where the rows of one rank change")
    assert time.monotonic() - begun < TIMEOUT + 5
    os._exit(0)  # the group can no longer be used


def check_dtensor():
    from torch.distributed.tensor import (
        DTensor,
        Partial,
        Replicate,
        Shard,
        distribute_tensor,
        init_device_mesh,
    )

    mesh = init_device_mesh(DEVICE, (RANKS,))
    square = init_device_mesh(DEVICE, (1, RANKS), mesh_dim_names=("a", "b"))
    x = rows((6, 10 * RANKS + 1, 3), torch.float64)
    cases = [
        *((mesh, [placement]) for placement in (Shard(1), Shard(0), Shard(2), Replicate(), Partial())),
        *((square, pair) for pair in ([Shard(1), Shard(1)], [Shard(0), Shard(1)], [Replicate(), Shard(1)])),
    ]
    for on, placements in cases:
        for name in FUNCTIONS:
            whole = x.clone().requires_grad_()
            if placements == [Partial()]:
                given = DTensor.from_local(whole / RANKS, on, placements)
            else:
                given = distribute_tensor(whole, on, placements)
            y = getattr(distributed, name)(given, axis=1)
            wanted = getattr(torch, name)(x, 1)
            assert isinstance(y, DTensor) and y.shape == wanted.shape, (name, placements)
            if name != "logsumexp" and placements != [Partial()]:
                assert list(y.placements) == placements
            torch.testing.assert_close(y.full_tensor(), wanted)
            if placements == [Partial()]:
                continue
            leaf = given.detach().requires_grad_()
            other = x.clone().requires_grad_()
            y, z = getattr(distributed, name)(leaf, axis=1), getattr(torch, name)(other, 1)
            (dx,) = torch.autograd.grad((y**2).sum(), leaf, create_graph=True)
            (dz,) = torch.autograd.grad((z**2).sum(), other, create_graph=True)
            assert isinstance(dx, DTensor), (name, placements)
            torch.testing.assert_close(dx.full_tensor(), dz)
            (dx**2).sum().backward()
            (dz**2).sum().backward()
            assert isinstance(leaf.grad, DTensor), (name, placements)
            torch.testing.assert_close(leaf.grad.full_tensor(), other.grad)
    refused = distribute_tensor(x, mesh, [Shard(1)])
    words = "group is given beside a DTensor"
    assert_raises(ValueError, words, lambda: distributed.softmax(refused, dist.group.WORLD))


def leave(known):
    """The last rank leaves. The other ranks get an error within the group's timeout."""
    x = rows((4, 10), torch.float32)
    distributed.softmax(x)
    dist.barrier()
    if RANK == RANKS - 1:
        os._exit(0)
    begun = time.monotonic()
    try:
        distributed.softmax(x if known else x[:2])
        if DEVICE == "cuda":
            torch.cuda.synchronize()
    except RuntimeError as error:
        assert known or f"[{RANKS - 1}] did not come within" in str(error), error
    else:
        raise AssertionError("no error where a rank is gone")
    assert time.monotonic() - begun < TIMEOUT + 5
    os._exit(0)  # a normal end would wait for the rank that left


def check_gone_from_the_collective():
    leave(known=True)


def check_gone_from_the_comparison():
    leave(known=False)


def run(checks):
    """The checks that the command line names, in a group of all ranks."""
    if DEVICE == "cuda":
        torch.cuda.set_device(RANK)
    dist.init_process_group(
        "nccl" if DEVICE == "cuda" else "gloo",
        init_method=f"file://{FILE}",
        rank=RANK,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=TIMEOUT),
    )
    for check in sys.argv[5:]:
        checks[f"check_{check}"]()
    dist.destroy_process_group()


if __name__ == "__main__":
    run(globals())
