"""What the compiler made of the GPU's kernels: registers and stack of each, without a GPU, by cuobjdump.

python tests/cubin.py            a table: the most that any instance of a kernel takes
python tests/cubin.py --record   writes it to cubin_budget.json, for the architectures of this build
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from glob import escape, glob
from typing import NamedTuple

BUDGET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cubin_budget.json")


class Missing(Exception):
    """Says why there is nothing to look at."""


class Function(NamedTuple):
    arch: str  # sm_90
    name: str  # demangled
    registers: int
    stack: int  # bytes of a thread: spills, and arrays that did not fit in registers

    @property
    def kernel(self):
        """The name alone: no namespace, template arguments, parameters."""
        head = re.split(r"[<(]", self.name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
        return re.split(r"::|\s", head)[-1]


def tool(*names):
    for name in names:
        homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
        homes += [home for place in sys.path for home in glob(os.path.join(escape(place), "nvidia", "cu*"))]
        found = [shutil.which(name), *(shutil.which(os.path.join(home, "bin", name)) for home in homes)]
        if any(found):
            return next(filter(None, found))
    raise Missing(f"{' and '.join(names)}: not found")


def functions(library):
    """Every function of our own on the GPU that a built module holds, for each of its architectures."""
    cuobjdump, demangle = tool("cuobjdump"), tool("cu++filt", "c++filt")
    done = subprocess.run([cuobjdump, "-res-usage", library], capture_output=True, text=True)
    if "does not contain device code" in done.stdout + done.stderr:
        raise Missing("this build is without CUDA")
    assert done.returncode == 0, done.stderr
    text = subprocess.run([demangle], input=done.stdout, capture_output=True, text=True, check=True).stdout
    found, arch = [], ""
    for line in text.splitlines():
        if match := re.match(r"arch = (\w+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function (.*):$", line):
            name = match[1]
        elif match := re.match(r"\s*REG:(\d+) STACK:(\d+) .*\bLOCAL:(\d+)", line):
            found.append(Function(arch, name, int(match[1]), int(match[2]) + int(match[3])))
    return [function for function in found if not re.search(r"\b(cub|thrust)::", function.name)]


def summary(found):
    """{arch: {kernel: {"registers": most, "stack": most}}}"""
    result = {}
    for function in sorted(found, key=lambda f: (int(re.sub(r"\D", "", f.arch)), f.kernel)):
        most = result.setdefault(function.arch, {}).setdefault(function.kernel, {"registers": 0, "stack": 0})
        most["registers"] = max(most["registers"], function.registers)
        most["stack"] = max(most["stack"], function.stack)
    return result


def read_budget():
    if not os.path.exists(BUDGET):
        return {}
    with open(BUDGET) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true")
    record = parser.parse_args().record
    from onsoftmax import _core

    try:
        found = functions(_core.__file__)
    except Missing as missing:
        sys.exit(f"cubin.py: {missing}")
    made = summary(found)
    for arch, kernels in made.items():
        for kernel, most in kernels.items():
            count = sum(f.arch == arch and f.kernel == kernel for f in found)
            taken = f"{most['registers']:3} registers  {most['stack']:4} bytes of stack"
            print(f"{arch:8} {kernel:28} {count:5} x  {taken}")
    if record:
        for kernels in made.values():
            for most in kernels.values():
                most["registers"] = -(-most["registers"] // 8) * 8  # they are given out by eights
        budget = {**read_budget(), **made}
        with open(BUDGET, "w") as file:
            json.dump(
                dict(sorted(budget.items(), key=lambda item: int(item[0][3:].rstrip("af")))), file, indent=2
            )
            file.write("\n")


if __name__ == "__main__":
    main()
