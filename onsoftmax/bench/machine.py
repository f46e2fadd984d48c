"""What a run says about the machine, and what keeps it from using a GPU."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import __version__, _core

PACKAGES = ("numpy", "scipy", "torch", "onnx", "onnxruntime", "ml_dtypes")
GPU_PACKAGES = ["torch", "triton", "quack-kernels", "liger-kernel", "numpy", "nvidia-cutlass-dsl"]
GPU_PACKAGES += ["jax", "cupy-cuda13x", "cupy-cuda12x", "flashinfer-python"]


def versions(names: Sequence[str] = PACKAGES) -> dict[str, str]:
    """The versions of the packages that are installed."""
    present = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    return {name: present[name] for name in names if name in present}


def processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.*)", info.read_text()) if info.exists() else None
    return found[1] if found else "unknown"


def load() -> float:
    """The work of other processes. Figures from a busy machine are slower than from an idle one."""
    return round(os.getloadavg()[0], 2)


def about_cpu() -> dict[str, Any]:
    """When a run on the CPU was made, on which machine and with which versions, and the load before it."""
    config = _core.config()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor(),
        "processors": config["processors"],
        "isa": config["isa"],
        "compiler": config["compiler"],
        "versions": {"onsoftmax": __version__, "python": platform.python_version(), **versions()},
        "load_before": load(),
    }


def driver() -> str:
    """The NVIDIA driver's version."""
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def about_gpu() -> dict[str, Any]:
    """When a run on a GPU was made, on which GPU and with which versions."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    ours = {"onsoftmax": __version__, "python": platform.python_version()}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "cache_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        "driver": driver(),
        "cuda": torch.version.cuda,
        "versions": ours | versions(GPU_PACKAGES),
    }


def obstacle() -> str:
    """Why nothing can be measured on a GPU here. Empty if it can."""
    try:
        import torch
    except ImportError:
        return "needs torch, built for CUDA"
    if not torch.cuda.is_available():
        return "torch finds no CUDA GPU here"
    built = str(_core.config()["cuda"])
    return f"onsoftmax's part for GPUs is {built}" if built.startswith("not built") else ""
