"""Reads the compiled GPU kernels with cuobjdump, without a GPU: the number of kernels in each family, their
machine code, registers and stack.

python tests/support/cubin.py           prints for each family all code, and the most registers and stack
python tests/support/cubin.py --record  writes it to cubin_budget.json, for the architectures of this build
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from glob import escape, glob
from typing import NamedTuple

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUDGET = os.path.join(TESTS, "core", "cubin_budget.json")


class Missing(Exception):
    """Says why there is nothing to look at in this build."""


class Function(NamedTuple):
    arch: str  # sm_90
    name: str  # demangled
    registers: int
    stack: int  # bytes per thread: spills, and arrays that did not fit in registers
    code: int = 0  # bytes of machine code
    shared: int = 0  # bytes of shared memory that a block declares, with CUDA's own

    @property
    def kernel(self):
        """The name alone, without namespace, template arguments and parameters."""
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


def code_bytes(cuobjdump, library):
    """{(arch, mangled name): bytes of machine code}"""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [cuobjdump, "-xelf", "all", os.path.abspath(library)]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        for path in glob(os.path.join(escape(folder), "*.cubin")):
            arch = re.search(r"\.(sm_\w+)\.cubin$", path)[1]
            sections = subprocess.run(
                ["readelf", "-SW", path], capture_output=True, text=True, check=True
            ).stdout
            for name, size in re.findall(r"\] \.text\.(\S+) +PROGBITS +\w+ \w+ (\w+)", sections):
                found[arch, name] = int(size, 16)
    return found


def functions(library):
    """Our GPU functions in a built module, for each of its architectures."""
    cuobjdump, demangle = tool("cuobjdump"), tool("cu++filt", "c++filt")
    tool("readelf")
    done = subprocess.run([cuobjdump, "-res-usage", library], capture_output=True, text=True)
    if "does not contain device code" in done.stdout + done.stderr:
        raise Missing("this build is without CUDA")
    assert done.returncode == 0, done.stderr
    code = code_bytes(cuobjdump, library)
    found, mangled, arch = [], [], ""
    for line in done.stdout.splitlines():
        if match := re.match(r"arch = (\w+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function (.*):$", line):
            name = match[1]
        elif match := re.match(r"\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            registers, stack, shared, local = map(int, match.groups())
            found.append(Function(arch, name, registers, stack + local, code[arch, name], shared))
            mangled.append(name)
    names = subprocess.run([demangle], input="\n".join(mangled), capture_output=True, text=True, check=True)
    found = [f._replace(name=name) for f, name in zip(found, names.stdout.splitlines(), strict=True)]
    return [function for function in found if not re.search(r"\b(cub|thrust)::", function.name)]


def summary(found):
    """{arch: {kernel: {"instances": how many, "code": KiB of all, "registers": most, "stack": most}}}"""
    result = {}
    for function in sorted(found, key=lambda f: (int(re.sub(r"\D", "", f.arch)), f.kernel)):
        none = {"instances": 0, "code": 0, "registers": 0, "stack": 0}
        family = result.setdefault(function.arch, {}).setdefault(function.kernel, none)
        family["instances"] += 1
        family["code"] += function.code / 1024
        family["registers"] = max(family["registers"], function.registers)
        family["stack"] = max(family["stack"], function.stack)
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
        for kernel, of in kernels.items():
            print(
                f"{arch:8} {kernel:28} {of['instances']:5} x  {of['code']:6.0f} KiB of code  "
                f"{of['registers']:3} registers  {of['stack']:4} bytes of stack"
            )
        instances, code = (sum(of[what] for of in kernels.values()) for what in ("instances", "code"))
        print(f"{arch:8} {'all':28} {instances:5} x  {code:6.0f} KiB of code")
    if record:
        for kernels in made.values():
            for of in kernels.values():
                of["registers"] = -(-of["registers"] // 8) * 8  # a GPU allocates registers by eights
                of["code"] = -(-int(of["code"] + 1) // 8) * 8
        budget = {**read_budget(), **made}
        with open(BUDGET, "w") as file:
            json.dump(
                dict(sorted(budget.items(), key=lambda item: int(item[0][3:].rstrip("af")))), file, indent=2
            )
            file.write("\n")


if __name__ == "__main__":
    main()
