"""Starts a program of checks in a process for each rank of a group."""

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def run_ranks(folder, ranks, *checks, device="cpu", seconds=100, program="distributed_checks.py"):
    """Runs all checks on each rank. A rank's output shows where it fails."""
    around = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    around |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "ONSOFTMAX_NUM_THREADS": "1"}
    started, written = [], []
    for rank in range(ranks):
        command = [
            sys.executable,
            HERE / program,
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
