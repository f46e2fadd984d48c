"""Imported first: says what a signal does while a command line still imports the other modules."""

from __future__ import annotations

import os
import signal
import sys
import threading


def end_quietly() -> None:
    """Lets Ctrl-C end the process without a traceback, until cli.py handles signals itself."""
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    is_command = program == "onsoftmax" or (program == "-m" and sys.orig_argv[-len(sys.argv)] == "onsoftmax")
    if (
        is_command
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, signal.SIG_DFL)


end_quietly()
