"""No process, and no child of it, outlives the test that started it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """From now on a process whose parent ends becomes a child of this process, not of init."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid="self"):
    """The processes that any thread of this process has started or adopted."""
    found = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found |= {int(word) for word in file.read().split()}
    return found


def end(pid):
    """Ends a process and then all processes below it. The process can start no others by then."""
    below = children(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    for child in below:
        end(child)


def end_all_but(kept):
    """Ends the children that are not among `kept`, and the processes that these leave behind."""
    while left := children() - kept:
        for pid in left:
            end(pid)
