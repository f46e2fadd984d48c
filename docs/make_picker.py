"""Makes docs/picker.html from docs/picker/: one file that holds the planner of csrc/ as WebAssembly.

`make picker` runs this. The package ziglang has the compiler (pip install -e '.[picker]'). --keep-planner
keeps the planner that the page has. Then a change of the page alone needs no compiler.
"""

from __future__ import annotations

import argparse
import base64
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = HERE / "picker"
PAGE = HERE / "picker.html"
CSRC = HERE.parent / "csrc"

# The sources that a plan needs. The linker leaves out the functions that nothing here calls.
SOURCES = [
    PARTS / "planner.c",
    *sorted(CSRC.glob("plan/*.c")),
    CSRC / "api" / "tables.c",
    CSRC / "api" / "coalesce.c",
    CSRC / "cuda" / "driver" / "absent.c",
    *(CSRC / "cpu" / name for name in ("run.c", "strip/strip.c", "strip/candidates.c", "split.c")),
]
FLAGS = ["-target", "wasm32-wasi", "-mexec-model=reactor", "-std=c11", "-Os", "-s", "-Wl,--import-symbols"]


def compiled_planner() -> str:
    """Compiles the planner to WebAssembly. Returns it in base64."""
    with tempfile.TemporaryDirectory() as folder:
        wasm = Path(folder, "planner.wasm")
        command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, "-o", wasm, *SOURCES]
        if subprocess.run(command).returncode:
            sys.exit("the planner was not compiled: pip install -e '.[picker]' has the compiler")
        return base64.b64encode(wasm.read_bytes()).decode()


def planner_of(page: str) -> str:
    return re.search(r'id="planner">([^<]*)<', page)[1]


def make_page(planner: str) -> str:
    """The page, with the parts in their places."""

    def part(match: re.Match[str]) -> str:
        name = match[1]
        return planner if name == "planner.wasm" else (PARTS / name).read_text().rstrip("\n")

    return re.sub(r"\{\{([\w.]+)\}\}", part, (PARTS / "page.html").read_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keep-planner", action="store_true", help="do not compile the planner again")
    keep = parser.parse_args().keep_planner
    PAGE.write_text(make_page(planner_of(PAGE.read_text()) if keep else compiled_planner()))
    print(f"{PAGE}: {PAGE.stat().st_size} bytes")
