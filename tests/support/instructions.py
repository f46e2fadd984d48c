"""Instructions per element of the CPU's primitives, counted by valgrind. Unlike times, counts are repeatable.

python tests/support/instructions.py           prints the counts beside the recorded ones
python tests/support/instructions.py --record  writes them to instructions_budget.json, for this compiler
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
from glob import escape, glob

import core
from core import Missing

BUDGET = os.path.join(core.PROGRAMS, "instructions_budget.json")


def counts(folder):
    """(compiler and processor, {measurement: instructions per unit}), from a program built in the folder.
    Raises Missing if a tool is missing."""
    core.require("valgrind")
    program = core.build("instructions", folder)
    out = os.path.join(folder, "counts")
    options = ["--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={out}"]
    said, status = core.run("valgrind", "-q", *options, program)
    if status != 0:
        raise RuntimeError(f"valgrind failed:\n{said[-3000:]}")
    compiler, *lines = said.splitlines()
    totals = {}
    for path in glob(f"{escape(out)}.*"):
        with open(path) as file:
            text = file.read()
        name = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.M)
        if name:
            totals[name[1]] = int(re.search(r"^totals: (\d+)$", text, re.M)[1])
    units = {name: int(unit) for unit, name in (line.split(" ", 1) for line in lines)}
    if units.keys() != totals.keys():
        raise RuntimeError(f"callgrind did not count {units.keys() ^ totals.keys()}")
    made = {name: round(totals[name] / unit, 3) for name, unit in units.items()}
    return f"{compiler}, {platform.machine()}", made


def read_budget():
    if not os.path.exists(BUDGET):
        return {}
    with open(BUDGET) as file:
        return json.load(file)


def record(compiler, made):
    budget = {**read_budget(), compiler: made}
    with open(BUDGET, "w") as file:
        json.dump(budget, file, indent=2)
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            compiler, made = counts(folder)
    except Missing as missing:
        sys.exit(str(missing))
    recorded = read_budget().get(compiler, {})
    print(f"instructions, {compiler}; in brackets what is recorded")
    for name, count in made.items():
        print(f"{count:10.3f} {f'({recorded[name]})' if name in recorded else '':>12}  {name}")
    if options.record:
        record(compiler, made)


if __name__ == "__main__":
    main()
