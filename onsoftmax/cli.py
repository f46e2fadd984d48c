"""The command line: `onsoftmax` shows what the library does. Its commands explain, plan, measure and
apply softmax.

The exit code is 0 after success. It is 2 for a request that cannot be carried out: one line on stderr says
why. After an interruption it is 128 + the signal's number.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from . import __version__, show_config
from ._cli import explain, plan, topk
from ._cli.arguments import HelpFormatter, parse_scale
from ._cli.files import CommandError
from ._cli.interrupt import Interrupted, interruptible
from ._cli.streams import usable_streams
from ._describe import found_config
from .apply import apply
from .bench import command as bench
from .demo import demo

DESCRIPTION = """Softmax, with each method under its own name. Without a
command, the demo runs."""
DEMO = "a row by every method, then a large array timed against NumPy"
EPILOG = """examples:
  onsoftmax demo
  onsoftmax explain 1 2 3 6 2 1 --tile 3
  onsoftmax plan 2048x131072 --device cuda
  onsoftmax bench
  onsoftmax topk logits.npy -k 5
  onsoftmax apply in.npy out.npy

onsoftmax COMMAND --help says more about a command.
"""


class _Parser(argparse.ArgumentParser):
    """The parser of the program. argparse makes the commands' parsers from the same class."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # argparse itself would take -1e3, -inf and -1,0 as options
        self._negative_number_matcher = re.compile(r"-\.?\d|-(inf|nan)", re.IGNORECASE)

    def error(self, message: str) -> NoReturn:
        raise CommandError(message)

    def parse_known_args(self, *given: Any) -> Any:  # type: ignore[override]
        options, unknown = super().parse_known_args(*given)
        if unknown:
            near = difflib.get_close_matches(unknown[0], self._option_string_actions, n=1)
            meant = f": did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return options, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        near = difflib.get_close_matches(str(value), names, n=1)
        meant = f"did you mean {near[0]}? Expected" if near else "expected"
        raise argparse.ArgumentError(action, f"{value!r}: {meant} one of {', '.join(names)}")


def _axis(text: str) -> int | tuple[int, ...] | None:
    """The value of --axis: -1, or 0,2, or none."""
    if text.strip().lower() == "none":
        return None
    try:
        axes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an axis: expected an int, ints with commas between them, or none"
        ) from None
    return axes[0] if len(axes) == 1 else axes


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="onsoftmax",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"onsoftmax {__version__}")
    parser.set_defaults(run=_demo)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    _command(commands, "demo", DEMO, DEMO_EPILOG, f"The demo: {DEMO}.").set_defaults(run=_demo)
    explain.add(commands)
    plan.add(commands)
    bench.add(commands)
    topk.add(commands)
    _add_apply(commands)
    about = "versions, instruction sets, threads, GPUs"
    one = _command(commands, "info", about, INFO_EPILOG)
    one.add_argument("--json", action="store_true", help="prints the same as JSON")
    one.set_defaults(run=_info)
    one = _command(
        commands,
        "completion",
        "prints a shell script: the tab key then completes commands",
        COMPLETION_EPILOG,
    )
    one.add_argument("shell", choices=["bash", "zsh", "tcsh", "fish"])
    one.set_defaults(run=_completion)
    return parser


APPLY_EPILOG = """examples:
  onsoftmax apply in.npy out.npy
  onsoftmax apply in.npy in.npy --axis 0               in place; in.npy is replaced at the end
  onsoftmax apply in.npy out.npy --scale 0.7 --dtype float32
  onsoftmax apply - - <in.npy >out.npy                 in a pipe; the whole array is in memory
"""
DEMO_EPILOG = """examples:
  onsoftmax
  onsoftmax demo
"""
INFO_EPILOG = """examples:
  onsoftmax info
  onsoftmax info --json
"""
COMPLETION_EPILOG = """examples:
  onsoftmax completion bash >~/.local/share/bash-completion/completions/onsoftmax
  onsoftmax completion zsh >~/.zfunc/_onsoftmax
  onsoftmax completion fish >~/.config/fish/completions/onsoftmax.fish
"""


def _command(commands: Any, name: str, help_: str, epilog: str, description: str | None = None) -> Any:
    return commands.add_parser(
        name,
        help=help_,
        description=description or f"{help_[0].upper()}{help_[1:]}.",
        epilog=epilog,
        formatter_class=HelpFormatter,
    )


def _add_apply(commands: Any) -> None:
    one = _command(
        commands,
        "apply",
        "softmax of a .npy file into another",
        APPLY_EPILOG,
        "Writes the softmax of the array in IN to OUT. Both are .npy files. They may be larger\n"
        "than memory, and may be the same file. OUT is replaced at the end, as a whole.",
    )
    one.add_argument("input", metavar="IN", help="a .npy file of floats, integers or bools; - for stdin")
    one.add_argument(
        "output", metavar="OUT", help="the .npy file to write, replaced if it exists; - for stdout"
    )
    one.add_argument(
        "--axis",
        type=_axis,
        default=-1,
        help="an int, several as --axis=-2,-1, or none for all (default: -1)",
    )
    one.add_argument(
        "--method",
        default="auto",
        help="auto (the default), invariant, naive, safe, online, fused, split or exact (not for float64)",
    )
    one.add_argument(
        "--dtype",
        help="type of OUT: float16, float32 or float64 (default: IN's, or float64 for integers)",
    )
    one.add_argument("--scale", type=parse_scale, default=1.0, help="multiplies the input first (default: 1)")
    one.set_defaults(run=_apply)


def _apply(options: argparse.Namespace) -> int:
    apply(
        options.input,
        options.output,
        axis=options.axis,
        method=options.method,
        dtype=options.dtype,
        scale=options.scale,
    )
    return 0


def _completion(options: argparse.Namespace) -> int:
    try:
        import shtab  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise CommandError("completion needs the package shtab: pip install shtab") from error
    if options.shell not in shtab.SUPPORTED_SHELLS:
        raise CommandError(f"shtab {shtab.__version__} knows no {options.shell}: pip install -U shtab")
    print(shtab.complete(_parser(), shell=options.shell))
    return 0


def _info(options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(found_config(), indent=2))
    else:
        show_config()
    return 0


def _demo(options: argparse.Namespace) -> int:
    demo()
    return 0


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}" if str(error) else "not enough memory"
    return str(error)


def _run(argv: Sequence[str] | None) -> int:
    try:
        with interruptible(process_ends=argv is None):
            try:
                options = _parser().parse_args(argv)
            except SystemExit:
                sys.stdout.flush()
                raise
            code: int = options.run(options)
            sys.stdout.flush()
    except Interrupted as interruption:
        print(f"onsoftmax: {interruption}", file=sys.stderr)
        return 128 + interruption.signal
    except BrokenPipeError:  # the reader of our output has gone: there is nobody to tell
        return 0
    except (CommandError, OSError, MemoryError) as error:
        print(f"onsoftmax: error: {_in_words(error)}", file=sys.stderr)
        return 2
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line given, or the process's own, and returns the exit code.

    `--help` and `--version` leave by SystemExit, as in argparse. After the process's own command line,
    signals no longer change the exit code.
    """
    with usable_streams():
        return _run(argv)
