"""Rows over the ranks of a torch.distributed group: gloo on the CPU, one process per rank."""

import pytest
from ranks import run_ranks

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch without torch.distributed"
)

LOSSES = "distributed_loss_checks.py"


def test_two_ranks(tmp_path):
    run_ranks(tmp_path, 2, "smoke", "bytes")


@pytest.mark.parametrize("ranks, check", [(2, "losses"), (1, "dtensor_losses")])
def test_losses(tmp_path, ranks, check):
    run_ranks(tmp_path, ranks, check, program=LOSSES)


def test_a_group_that_is_not_there():
    from onsoftmax import distributed

    with pytest.raises(ValueError, match="there is no default group: call torch"):
        distributed.softmax(torch.zeros(2, 3))
    with pytest.raises(TypeError, match="group is of type int: expected a ProcessGroup"):
        distributed.softmax(torch.zeros(2, 3), 0)


def test_second_derivatives_of_one_rank():
    """A gradient penalty and the Hessian of torch's own functions, also for a DTensor."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    from onsoftmax import distributed

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        x = torch.linspace(-1, 2, 10, dtype=torch.float64).view(2, 5)
        for name in ("softmax", "log_softmax", "logsumexp"):
            ours, theirs = getattr(distributed, name), getattr(torch, name)
            for axis in (0, 1):
                found, wanted = (
                    torch.autograd.functional.hessian(lambda x, f=f, axis=axis: f(x, dim=axis).sin().sum(), x)
                    for f in (lambda x, dim, f=ours: f(x, axis=dim), theirs)
                )
                torch.testing.assert_close(found, wanted)
            for placement in (Shard(1), Shard(0), Replicate()):
                penalties = []
                for f, given in ((ours, distribute_tensor(x, mesh, [placement])), (theirs, x.clone())):
                    given = given.detach().requires_grad_()
                    y = f(given, axis=1) if f is ours else f(given, 1)
                    (dx,) = torch.autograd.grad((y**2).sum(), given, create_graph=True)
                    penalties.append(torch.autograd.grad((dx**2).sum(), given)[0])
                torch.testing.assert_close(penalties[0].full_tensor(), penalties[1])
    finally:
        torch.distributed.destroy_process_group()


def test_torch_compile_breaks_its_graph():
    from onsoftmax import distributed

    compiled = torch.compile(lambda x: distributed.softmax(x + 1) * 2, backend="eager")
    with pytest.raises(ValueError, match="there is no default group"):  # as without torch.compile
        compiled(torch.zeros(2, 3))
    for name in ("cross_entropy", "logprob"):
        function = getattr(distributed, name)
        compiled = torch.compile(lambda x, f=function: f(x + 1, torch.zeros(2).long()) * 2, backend="eager")
        with pytest.raises(ValueError, match="there is no default group"):
            compiled(torch.zeros(2, 3))


@pytest.mark.long("ranks")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(
    "check", ["bits", "order", "gradients", "hessian", "gradcheck", "bytes", "refused", "dtensor"]
)
def test_whole(tmp_path, ranks, check):
    run_ranks(tmp_path, ranks, check, seconds=500)


@pytest.mark.long("ranks")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("check", ["losses", "all_losses", "dtensor_losses"])
def test_all_losses(tmp_path, ranks, check):
    run_ranks(tmp_path, ranks, check, program=LOSSES, seconds=500)


@pytest.mark.long("ranks")
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("check", ["gone_from_the_collective", "gone_from_the_comparison", "changed_alone"])
def test_a_rank_that_is_gone(tmp_path, ranks, check):
    run_ranks(tmp_path, ranks, check)


@pytest.mark.long("ranks")
def test_a_length_that_changes_alone(tmp_path):
    run_ranks(tmp_path, 2, "length_changed_alone", program=LOSSES)
