"""What bounds `auto` on a CUDA GPU: bytes, instructions and waits of each call, counted by Nsight Compute.

    python benchmarks/gpu_bounds.py                            # needs ncu, and the right to read the counters
    python benchmarks/gpu_bounds.py --dtypes bfloat16 --lengths 4096,50257 --json bounds.json

ncu counts one call of each case, with arrays that are not in the caches, at the clock that the GPU has. If a
method has several kernels, their counts are added up. Shares are averaged, weighted by duration.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_options import listed
from gpu_report import markdown

from onsoftmax._types import DTYPES
from onsoftmax.bench.document import write

TOTAL = 2**28
LENGTHS = [1024, 32768, 50257, 131072, 151936, 262144, 262145, 524288, 2**20, 2**22, 2**24]
EXTRAS = ["where", "scale per row", "both off by one"]

DURATION, ISSUE = "gpu__time_duration.sum", "smsp__issue_active.avg.pct_of_peak_sustained_active"
READ, WRITTEN, EXECUTED = "dram__bytes_read.sum", "dram__bytes_write.sum", "smsp__inst_executed.sum"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
MEMORY = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
WAIT = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
WAITS = {
    WAIT.format(name): name.replace("_", " ")
    for name in (
        "long_scoreboard",
        "short_scoreboard",
        "barrier",
        "membar",
        "wait",
        "math_pipe_throttle",
        "mio_throttle",
        "lg_throttle",
        "not_selected",
        "dispatch_stall",
        "sleeping",
        "no_instruction",
        "branch_resolving",
        "drain",
    )
}
METRICS = [DURATION, READ, WRITTEN, EXECUTED, ISSUE, WARPS, MEMORY, *WAITS]


def cases(options: argparse.Namespace) -> Iterator[Any]:
    from gpu_cases import OTHER_AXES, OTHER_ROWS

    from onsoftmax.bench.case import Case

    for dtype in options.dtypes:
        for N in options.lengths:
            yield Case("bands", (max(1, TOTAL // N), N), dtype)
        for shape, axis in OTHER_AXES:
            yield Case("other", shape, dtype, axis=axis)
        for extra in EXTRAS:
            yield Case("other", OTHER_ROWS, dtype, extra=extra)


def call_each(options: argparse.Namespace) -> None:
    """Calls each case once for ncu to count. A kernel of torch's before each case marks its beginning."""
    import torch

    import onsoftmax as ons
    from onsoftmax.bench.gpu_case import DEVICE, make_tensors

    mark, profiler = torch.empty(1, device=DEVICE), torch.cuda.cudart()
    for case in cases(options):
        tensors = make_tensors(case)
        extra = {"where": tensors.get("mask"), "scale": tensors.get("scale")}
        given = {name: tensor for name, tensor in extra.items() if tensor is not None}
        for count in (False, True):
            if count:
                profiler.cudaProfilerStart()
                mark.fill_(1)
            ons.softmax(tensors["x"], case.axis, out=tensors["y"], **given)
            torch.cuda.synchronize()
        profiler.cudaProfilerStop()


def counted(table: str) -> list[list[dict[str, str]]]:
    """The kernels of each case, from ncu's table. It has a head, a line of units, and a line per kernel."""
    lines = list(csv.reader(line for line in table.splitlines() if line.startswith('"')))
    found: list[list[dict[str, str]]] = []
    for row in lines[2:]:
        kernel = dict(zip(lines[0], row, strict=True))
        if "elementwise" in kernel["Kernel Name"]:  # torch's kernel that marks a case
            found.append([])
        else:
            found[-1].append(kernel)
    return found


def sum_up(case: Any, kernels: list[dict[str, str]]) -> dict[str, Any]:
    number = [{key: float(kernel[key].replace(",", "")) for key in METRICS} for kernel in kernels]
    duration = sum(each[DURATION] for each in number)
    total = {key: sum(each[key] for each in number) for key in (READ, WRITTEN, EXECUTED)}
    mean = {key: sum(each[key] * each[DURATION] for each in number) / duration for key in METRICS}
    waits = sorted(((mean[key], said) for key, said in WAITS.items()), reverse=True)
    return {
        "dtype": case.dtype,
        "label": case.label,
        "kernels": [kernel["Kernel Name"] for kernel in kernels],
        "us": round(duration / 1e3, 2),
        "x_bytes": round((total[READ] + total[WRITTEN]) / case.bytes, 3),
        "instructions_an_element": round(total[EXECUTED] * 32 / case.elements, 2),
        "issue_percent": round(mean[ISSUE], 1),
        "warps_percent": round(mean[WARPS], 1),
        "dram_percent": round(mean[MEMORY], 1),
        "warps_waiting_an_issue": {said: round(share, 2) for share, said in waits[:3]},
    }


def line(case: dict[str, Any]) -> list[str]:
    waits = ", ".join(f"{name} {share}" for name, share in case["warps_waiting_an_issue"].items())
    figures = [case[key] for key in ("us", "x_bytes", "dram_percent", "instructions_an_element")]
    figures += [case["issue_percent"], case["warps_percent"], waits]
    return [f"{case['label']} {case['dtype']}", *map(str, figures)]


COLUMNS = [
    "case",
    "us",
    "bytes, x least",
    "DRAM %",
    "instructions an element",
    "issue slots %",
    "warps %",
    "warps that wait, for each that issues",
]


def count(options: argparse.Namespace, arguments: list[str]) -> list[dict[str, Any]]:
    """Runs this file again under ncu."""
    command = [options.ncu, "--csv", "--page", "raw", "--print-units", "base"]
    command += ["--print-kernel-base", "function", "--clock-control", "none", "--profile-from-start", "off"]
    command += ["--metrics", ",".join(METRICS), sys.executable, __file__, "--call", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or '"ID"' not in done.stdout:
        raise OSError(f"ncu failed ({done.returncode}): {(done.stdout + done.stderr)[-1000:]}")
    wanted, found = list(cases(options)), counted(done.stdout)
    if len(found) != len(wanted):
        raise OSError(f"ncu told of {len(found)} of {len(wanted)} cases: {done.stderr[-1000:]}")
    return [sum_up(*pair) for pair in zip(wanted, found, strict=True)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--dtypes", type=listed(*DTYPES), default=["float32", "bfloat16"], metavar="A,B")
    add("--lengths", type=listed(), default=LENGTHS, metavar="N,N")
    add("--ncu", default=shutil.which("ncu") or "/usr/local/cuda/bin/ncu", help="its path")
    add("--json", type=Path, metavar="FILE")
    add("--call", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.call:
        call_each(options)
        return 0
    from bench_cuda import about

    try:
        found = count(options, arguments)
    except OSError as e:
        print(f"gpu_bounds.py: {e}", file=sys.stderr)
        return 2
    print(markdown([COLUMNS, *map(line, found)]))
    if options.json:
        document = {**about(options), "cases": found}
        write(document, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
