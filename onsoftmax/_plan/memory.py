"""How much memory is free."""

from __future__ import annotations

import math
import os
import resource


def _of_system() -> float:
    """The kernel's MemAvailable, or else the free pages."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * int(line.split()[1])
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError):
        return math.inf


def _of_cgroup() -> float:
    """The memory that the limits of this process's cgroup (version 2) and of the cgroups above it leave."""
    least = math.inf
    try:
        with open("/proc/self/cgroup") as file:
            group = next((line.strip()[3:] for line in file if line.startswith("0::")), "/")
    except OSError:
        return least
    while True:
        directory = "/sys/fs/cgroup" + group.rstrip("/")
        try:
            with open(f"{directory}/memory.max") as limit, open(f"{directory}/memory.current") as current:
                least = min(least, float(limit.read().replace("max", "inf")) - float(current.read()))
        except (OSError, ValueError):
            pass
        if group in ("", "/"):
            return least
        group = os.path.dirname(group)


def _of_limits() -> float:
    """The memory that ulimit -v and ulimit -d leave."""
    try:
        with open("/proc/self/statm") as file:
            pages = [int(field) for field in file.read().split()]
    except OSError:
        return math.inf
    left = math.inf
    for which, used in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
        soft, _ = resource.getrlimit(which)
        if soft != resource.RLIM_INFINITY:
            left = min(left, soft - used * resource.getpagesize())
    return left


def free_memory() -> float:
    """Bytes: the least that the system, the cgroup and the process's own limits leave."""
    return min(_of_system(), _of_cgroup(), _of_limits())
