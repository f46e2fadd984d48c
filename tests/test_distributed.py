"""Rows over the ranks of a torch.distributed group: gloo on the CPU, each rank a process."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch without torch.distributed"
)

HERE = Path(__file__).parent


def run_ranks(folder, ranks, *checks, device="cpu", seconds=100):
    """All checks on each rank; what a rank prints shows where it fails."""
    around = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    around |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "ONSOFTMAX_NUM_THREADS": "1"}
    started, written = [], []
    for rank in range(ranks):
        command = [
            sys.executable,
            HERE / "distributed_checks.py",
            rank,
            ranks,
            folder / "meet",
            device,
            *checks,
        ]
        written.append(folder / f"rank{rank}.txt")
        with open(written[-1], "w") as file:
            started.append(subprocess.Popen([*map(str, command)], stdout=file, stderr=file, env=around))
    end = time.monotonic() + seconds
    try:
        codes = [process.wait(max(0.1, end - time.monotonic())) for process in started]
    except subprocess.TimeoutExpired:
        codes = ["none within the limit"]
    finally:
        for process in started:
            process.kill()
            process.wait()
    told = "\n".join(f"--- rank {rank}\n{file.read_text()[-4000:]}" for rank, file in enumerate(written))
    assert codes == [0] * ranks, f"exit codes {codes}\n{told}"


def test_two_ranks(tmp_path):
    run_ranks(tmp_path, 2, "smoke", "bytes")


def test_a_group_that_is_not_there():
    from onsoftmax import distributed

    with pytest.raises(ValueError, match="there is no default group: call torch"):
        distributed.softmax(torch.zeros(2, 3))
    with pytest.raises(TypeError, match="group is of type int: expected a ProcessGroup"):
        distributed.softmax(torch.zeros(2, 3), 0)


def test_torch_compile_breaks_its_graph():
    from onsoftmax import distributed

    compiled = torch.compile(lambda x: distributed.softmax(x + 1) * 2, backend="eager")
    with pytest.raises(ValueError, match="there is no default group"):  # as without torch.compile
        compiled(torch.zeros(2, 3))


@pytest.mark.long("ranks")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("check", ["bits", "order", "gradients", "gradcheck", "bytes", "refused", "dtensor"])
def test_whole(tmp_path, ranks, check):
    run_ranks(tmp_path, ranks, check, seconds=500)


@pytest.mark.long("ranks")
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("check", ["gone_from_the_collective", "gone_from_the_comparison", "changed_alone"])
def test_a_rank_that_is_gone(tmp_path, ranks, check):
    run_ranks(tmp_path, ranks, check)
