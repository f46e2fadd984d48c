"""Which file includes which. The C core needs no Python, and the module needs only the C library."""

import ast
import glob
import os
import re
import shutil
import subprocess
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from core import COMPILER, CORE, CSRC, TESTS, needs_compiler
from support import PACKAGE_PARENT, SANITIZED, run_python

import onsoftmax as ons
from onsoftmax import _core

pytestmark = pytest.mark.skipif(not os.path.isdir(CSRC), reason="the C sources are not beside the tests")

# For each folder of csrc: folders and headers of csrc that its files may include, besides its own.
LISTS = {"op/operations.def", "op/row_operations.def", "op/gradient_and_topk_operations.def"}
MAY_INCLUDE = {
    "api": LISTS,
    "op": set(),
    "plan": {
        "api",
        "cpu/cpu.h",
        "cuda/cuda.h",
        "cuda/topk/sample_list.h",
        "cuda/topk/shapes.h",
        "cuda/kernels.def",
    },
    "cpu": {"api", "cpu/strip", "cpu/kernel"},
    "cpu/strip": {"cpu/cpu.h"},
    "cpu/threads": {"api", "cpu/cpu.h", "cpu/kernel/primitives.h"},
    "cpu/kernel": {"api", *LISTS},
    "cpu/vec": {"cpu/kernel"},
    "cuda": {"api", "cuda/driver", "cuda/kernel", "cuda/rows", "cuda/statistic", "cuda/team"},
    "cuda/driver": {"api", "cuda/cuda.h", "cuda/kernels.def", *LISTS},
    "cuda/kernel": {
        "api",
        "cuda/driver",
        "cuda/kernels.def",
        "cuda/rows",
        "cuda/statistic",
        "cuda/team",
        *LISTS,
    },
    "cuda/rows": {"api", "cuda/kernel/shapes.h", "cuda/statistic", "cuda/team"},
    "cuda/statistic": {"api", "cuda/kernel/shapes.h", *LISTS},
    "cuda/team": {"cuda/statistic"},
    "cuda/topk": {"api", "cuda/kernel", "cuda/kernels.def", "cuda/rows", "cuda/statistic", "cuda/team"},
    "python": {"api", *LISTS, "xla/ffi.h"},
    "xla": {"api"},
}
# the file that runs a problem knows all devices
MAY_ALSO_INCLUDE = {"api/run.c": {"cpu/cpu.h", "cuda/cuda.h"}}
PYTHON_HEADERS = re.compile(r"Python\.h|numpy/|structmember\.h|frameobject\.h")
CUDA_HEADERS = re.compile(r"cuda|cub/|cooperative_groups|nv|thrust/")
CUDA_MAY_INCLUDE = re.compile(
    r"cuda\w*(\.h|/.*)|cub/.*|cooperative_groups(\.h|/.*)|(nv|nvtx3)/.*|[a-z_0-9]+(\.h)?"
)


def sources():
    paths = glob.glob(os.path.join(CSRC, "**", "*"), recursive=True)
    return sorted(os.path.relpath(p, CSRC) for p in paths if p.endswith((".c", ".h", ".def", ".cu", ".cuh")))


def includes(path):
    """(headers of csrc, relative to csrc; system headers)"""
    with open(os.path.join(CSRC, path)) as file:
        found = re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', file.read(), re.M)
    own = [os.path.normpath(os.path.join(os.path.dirname(path), name)) for kind, name in found if kind == '"']
    return own, [name for kind, name in found if kind == "<"]


def folder(path):
    return path.split("/")[0]


def methods(*devices):
    with open(os.path.join(CSRC, "api", "methods.def")) as file:
        return re.findall(rf"^ONS_METHOD\((\w+), (?:{'|'.join(devices)}),", file.read(), re.M)


def methods_on_cpu():
    return methods("EVERYWHERE", "CPU_ONLY", "ALIAS_ON_CUDA")


def methods_on_cuda():
    return methods("EVERYWHERE", "CUDA_ONLY")


def test_own_headers_exist():
    for path in sources():
        for header in includes(path)[0]:
            assert os.path.exists(os.path.join(CSRC, header)), f"{path} includes {header}"


def test_headers_that_tests_include_exist():
    """For example, only a machine with a GPU compiles gpu_errors.cu."""
    found = [path for path in Path(TESTS).rglob("*.*") if path.suffix in (".c", ".h", ".cu")]
    headers = {header for path in found for header in includes(path)[0] if "csrc" in header}
    assert "gpu_errors.cu" in {path.name for path in found} and len(headers) >= 2
    assert all(map(os.path.exists, headers)), headers


def test_files_that_comments_name_exist():
    path = re.compile(
        r"(?<![\w./<])(?:csrc/)?((?:api|cpu|cuda|op|plan|python|xla)/[\w/]+\.(?:cuh?|c|h|def))\b"
    )
    for place in (CSRC, TESTS):
        for file in Path(place).rglob("*.*"):
            if file.suffix in (".c", ".h", ".def", ".cu", ".cuh"):
                named = set(path.findall(file.read_text())) - {"xla/ffi/api/c_api.h"}  # XLA's own
                missing = [name for name in named if not os.path.exists(os.path.join(CSRC, name))]
                assert not missing, (file, missing)


def test_the_layout_names_every_folder():
    with open(os.path.join(CSRC, os.pardir, "CONTRIBUTING.md")) as file:
        layout = file.read().partition("## Layout\n")[2].partition("\n## ")[0]
    named = {name.rstrip("/") for name in re.findall(r"^ +([\w/]+/) ", layout, re.M)}
    assert {os.path.basename(folder) for folder in MAY_INCLUDE} <= named


def test_who_includes_whom():
    for path in sources():
        own, system = includes(path)
        place = os.path.dirname(path)
        allowed = {place, *MAY_INCLUDE[place], *MAY_ALSO_INCLUDE.get(path, ())}
        for header in own:
            assert {header, os.path.dirname(header)} & allowed, f"{path} includes {header}"
        for header in system:
            if place == "api" and path.endswith(".h"):
                assert header in {"stdint.h", "stddef.h", "stdbool.h", "math.h"}, (
                    f"{path} includes <{header}>"
                )
            if place != "python":
                assert not PYTHON_HEADERS.search(header), f"{path} includes <{header}>"
            if folder(path) == "cuda":
                assert CUDA_MAY_INCLUDE.fullmatch(header), f"{path} includes <{header}>"
            if folder(path) != "cuda" or path.endswith((".c", ".h")):
                assert not CUDA_HEADERS.match(header), f"{path} includes <{header}>"


@pytest.mark.skipif(SANITIZED, reason="a compiler runs, and nothing of ours")
@needs_compiler
def test_the_core_compiles_without_python_and_cuda():
    parts = (*CORE, "xla/*.c")
    files = [path for part in parts for path in glob.glob(os.path.join(CSRC, part), recursive=True)]
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]  # every build takes -std=c11
    done = subprocess.run([COMPILER, *flags, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def circle(graph):
    """The files of a circle in {file: files that it needs}, or None."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def code(*paths):
    """The text of files of csrc without comments and declarations."""
    text = "".join(Path(CSRC, path).read_text() for path in paths)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    return re.sub(r"^\w[^;{}]*;", "", text, flags=re.M)


def with_headers(path):
    seen, new = set(), {path}
    while new:
        seen |= new
        new = {header for each in new for header in includes(each)[0]} - seen
    return sorted(seen)


def defined(path):
    """The names that a C file exports."""
    start = r"^(?!static\b|typedef\b)\w[\w *]*?\b"
    return set(re.findall(start + r"(ons_\w+)(?:\([^;{]*\) \{|(?:\[\w*\])* = )", code(path), re.M))


def calls():
    """{C file: C files whose functions or tables it names}. csrc/cuda counts as one file."""
    texts = {path: code(*with_headers(path)) for path in sources() if path.endswith((".c", ".cu", ".cuh"))}
    entries = " ".join(f"ons_cpu_{name}" for name in methods_on_cpu())
    texts["cpu/run.c"] = texts["cpu/run.c"].replace("ons_cpu_##name", entries)
    owners = {name: path for path in texts if path.endswith(".c") for name in defined(path)}
    graph = {}
    for path, text in texts.items():
        needed = {owners[name] for name in re.findall(r"\bons_\w+", text) if name in owners}
        graph.setdefault("cuda/driver/absent.c" if folder(path) == "cuda" else path, set()).update(needed)
    return {path: needed - {path} for path, needed in graph.items()}


def imports():
    """{file of the package: files that it imports anywhere}. A .pyi counts if it has no .py."""
    package = os.path.join(PACKAGE_PARENT, "onsoftmax")
    paths = sorted(glob.glob(os.path.join(package, "**", "*.py*"), recursive=True), reverse=True)
    files = {os.path.splitext(os.path.relpath(path, package))[0]: path for path in paths}
    files = {name.removesuffix("/__init__"): path for name, path in files.items()}
    files["."] = files.pop("__init__")
    graph = {}
    for name, path in files.items():
        here = name if path.endswith("__init__.py") else os.path.dirname(name)
        graph[name] = set()
        for node in ast.walk(ast.parse(Path(path).read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = os.path.join(here, *[".."] * (node.level - 1), *(node.module or "").split("."))
                for imported in node.names:
                    whole = os.path.normpath(os.path.join(base, imported.name))
                    graph[name].add(whole if whole in files else os.path.normpath(base))
    return graph


def test_no_circle():
    called, imported = calls(), imports()
    assert len(called) > 40
    assert "api/tables.c" in called["plan/plan.c"] and "cpu/online.c" in called["cpu/run.c"]
    assert circle(called) is None
    headers = {path: set(includes(path)[0]) for path in sources() if not path.endswith(".def")}
    assert circle(headers) is None
    assert len(imported) > 30 and "_explain/record" in imported["_explain/trace"]
    assert circle(imported) is None


def binutil(*command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is missing")
    return subprocess.run([*command, _core.__file__], capture_output=True, text=True, check=True).stdout


def test_the_module_exports_its_entry_alone():
    assert [line.split()[-1] for line in binutil("nm", "-D", "--defined-only").splitlines()] == [
        "PyInit__core"
    ]


@pytest.mark.skipif(SANITIZED, reason="the sanitizers are libraries too")
def test_the_module_needs_the_c_library_alone():
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", binutil("readelf", "-dW"))
    assert needed
    for name in needed:
        assert re.match(r"lib(c|m|dl|rt|pthread)\.|ld-|libc\.musl", name), f"the module needs {name}"


def test_the_import_leaves_cuda_alone():
    """The library looks for the driver when the first GPU array comes. The loader tells what is looked
    for."""
    code = "import onsoftmax as ons; ons.softmax([1.0, 2.0]); print(ons.plan([1.0, 2.0]), ons.methods())"
    done = run_python(["-c", code], LD_DEBUG="libs")
    assert done.returncode == 0 and "libcuda" not in done.stderr


def test_a_method_is_the_file_of_its_name():
    assert methods_on_cpu() == [method.name for method in ons.methods("cpu")]
    for name in methods_on_cpu():
        with open(os.path.join(CSRC, "cpu", f"{name}.c")) as file:
            text = file.read()
        assert re.search(rf"^void ons_cpu_{name}\(const ons_job \*job\)", text, re.M)
        assert text.startswith(f"/* {name}.c - "), "the file says what the method is"
        others = set(methods_on_cpu()) - {name}
        assert not re.search(rf"\bons_cpu_({'|'.join(others)})\b", text)
        assert not re.search(r"__m(128|256|512)|_mm\d*_|immintrin|\bavx|\bsse|\bneon", text)


def test_a_method_is_the_file_of_its_name_on_cuda():
    """The file holds the method's kernels and its launcher, and nothing of another method."""
    assert len(methods_on_cuda()) >= 9
    for name in methods_on_cuda():
        with open(os.path.join(CSRC, "cuda", f"{name}.cu")) as file:
            text = file.read()
        assert text.startswith(f"/* {name}.cu - "), "the file says what the method is"
        assert re.search(rf"^ons_status launch_{name}\(const launch_request &request\)", text, re.M)
        kernels = re.findall(r"__global__ [^{]*?(\w+_kernel)\(", text)
        assert len(kernels) == text.count("__global__") > 0
        assert all(re.fullmatch(rf"{name}(_\w+)?_kernel", kernel) for kernel in kernels), kernels
        others = {*methods_on_cpu(), *methods_on_cuda()} - {name}
        assert not re.search(rf"\blaunch_({'|'.join(others)})\b", text)


def test_one_place_chooses():
    """Only the plan and the count of its scratch memory tell methods apart by name."""
    for path in sources():
        if path.endswith((".c", ".cu", ".cuh")) and path != "cpu/run.c" and folder(path) != "plan":
            with open(os.path.join(CSRC, path)) as file:
                named = "|".join({*methods_on_cpu(), *methods_on_cuda()})
                assert not re.search(rf"ONS_METHOD_({named})\b", file.read()), path


def test_no_module_state_is_shared_by_accident():
    """A second import in one process shares the settings and the pool."""
    code = """
import sys, onsoftmax as ons
ons.set_num_threads(3)
from onsoftmax import _core
print(_core.get_num_threads(), _core is sys.modules["onsoftmax._core"])
"""
    assert run_python(["-c", code]).stdout.split() == ["3", "True"]


def test_the_import_is_light():
    """Python imports only NumPy. torch, JAX and others are imported when one of their arrays comes."""
    code = "import sys, onsoftmax; print({'torch', 'jax', 'scipy', 'pandas', 'ml_dtypes'} & {*sys.modules})"
    assert run_python(["-c", code]).stdout == "set()\n"


def test_every_kernel_waits_for_the_work_ahead_of_it():
    """Every kernel except the cooperative one starts before earlier work has ended
    (csrc/cuda/driver/run.cu)."""
    kernels = {}
    for path in glob.glob(os.path.join(CSRC, "cuda", "**", "*.cu"), recursive=True):
        with open(path) as file:
            for name, body in re.findall(
                r"__global__[^{;]*?(\w+_kernel)\(.*?\) \{\n(.*?)\n}\n", file.read(), re.S
            ):
                kernels[name] = body
    assert len(kernels) > 25
    late = {name for name, body in kernels.items() if "await_earlier_work(" not in body}
    assert late == {"grid_kernel"}
    for name in kernels.keys() - late:
        ahead = kernels[name].partition("await_earlier_work(")[0]
        assert not re.search(r"visit|load|prefetch|[.>]read|put\(|\*args", ahead), name
