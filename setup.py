"""Builds the C extension onsoftmax._core: always the C part, and the GPU's part if it is wanted.

pyproject.toml has the rest of the build's data. docs/building.md has the environment variables."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from glob import escape, glob

import numpy
import setuptools

for package, least in (
    (setuptools, 77),
    (numpy, 2),
):  # as pyproject.toml has them, for a build without isolation
    if int(package.__version__.split(".")[0]) < least:
        name, version = package.__name__, package.__version__
        sys.exit(
            f"onsoftmax: got {name} {version}, and the build needs {name} {least} or later: build with pip's "
            f"isolation, or run pip install '{name}>={least}' first"
        )

from setuptools import Extension, setup  # noqa: E402
from setuptools.command.build_ext import build_ext  # noqa: E402
from setuptools.errors import CompileError, OptionError, PlatformError  # noqa: E402

USUAL_ARCHS = ["75", "80", "90", "100", "120"]
# One module serves CPython 3.10 and every later one; a free-threaded one needs a module of its own.
stable_abi = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
CUDA_OBJECTS = "build/cuda"  # not setuptools' own folder, which is new for each `pip install -e`

warnings = ["-fvisibility=hidden", "-Wall", "-Wextra"]
user_flags = os.environ.get("ONSOFTMAX_CFLAGS", "").split()
# -ffp-contract=off: a * b + c rounds twice, unless the code asks for one rounding
# -g0: no debugging information, which Python's own flags ask for and which doubles the time; `user_flags` may
# ask for it
c_flags = ["-std=c11", "-O3", "-g0", "-ffp-contract=off", "-pthread", *warnings, *user_flags]
link_flags = ["-pthread", "-lm", *os.environ.get("ONSOFTMAX_LDFLAGS", "").split()]
# CFLAGS may have -Ofast or -ffast-math. The compiler then links crtfastmath.o, and a process that imports the
# module loses subnormal numbers. The last of such flags counts.
link_flags += ["-O3", "-fno-fast-math", "-fno-unsafe-math-optimizations"]
if sys.platform == "linux":
    link_flags.append("-Wl,--version-script=csrc/exports.map")


@dataclass
class Toolkit:
    nvcc: str
    version: str
    runtime: str  # libcudart_static.a
    archs: list[str]  # as CMake writes them: "90-real" is only machine code, "90-virtual" only PTX

    def gpus(self):
        return ";".join(re.sub("-real$", "", arch) for arch in self.archs)


def nvcc_places():
    """The places where an nvcc may be, the best first."""
    if "NVCC" in os.environ:
        yield os.environ["NVCC"]
        return
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield os.path.join(os.environ[name], "bin", "nvcc")
    yield "nvcc"  # on PATH
    yield "/usr/local/cuda/bin/nvcc"
    # In an isolated build sys.path has only the build's own packages, and sysconfig has the environment's.
    for place in [*sys.path, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]:
        yield from sorted(glob(os.path.join(escape(place), "nvidia", "cu*", "bin", "nvcc")), reverse=True)


def said(*command):
    try:
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def find_toolkit(wanted):
    """The toolkit for ONSOFTMAX_CUDA "auto" or "1". LookupError says what is missing."""
    if sys.platform != "linux":
        raise LookupError("CUDA is for Linux alone")
    nvcc = next(filter(None, map(shutil.which, nvcc_places())), None)
    if nvcc is None:
        if "NVCC" in os.environ:
            raise LookupError(f"NVCC={os.environ['NVCC']} is not a program")
        places = "NVCC, CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda and the package nvidia-cuda-nvcc"
        raise LookupError(f"no nvcc found ({places} were looked at; docs/building.md says how to get one)")
    version = re.search(r"\bV(\d+(?:\.\d+)+)", said(nvcc, "--version"))
    if version is None:
        raise LookupError(f"{nvcc} does not tell its version")
    # nvcc may be a script or a link, so it is asked where its toolkit is
    settings = dict(
        re.findall(r"^#\$ (TOP|LIBRARIES)=(.*)$", said(nvcc, "--dryrun", "-E", "-x", "cu", os.devnull), re.M)
    )
    places = [flag[2:] for flag in shlex.split(settings.get("LIBRARIES", "")) if flag.startswith("-L")]
    places += [os.path.join(settings.get("TOP", ""), name) for name in ("lib64", "lib")]
    runtimes = [
        path
        for path in (os.path.join(place, "libcudart_static.a") for place in places)
        if os.path.exists(path)
    ]
    if not runtimes:
        raise LookupError(f"{nvcc} has no libcudart_static.a in {', '.join(map(os.path.normpath, places))}")
    return Toolkit(nvcc, version[1], os.path.realpath(runtimes[0]), find_archs(nvcc, wanted))


def find_archs(nvcc, wanted):
    """The architectures that are named, or else the GPUs here, as machine code only. Without either: the
    usual architectures, if the user asks for CUDA by ONSOFTMAX_CUDA=1 or NVCC. They take long."""
    for name in ("ONSOFTMAX_CUDA_ARCHS", "CUDAARCHS"):
        value = os.environ.get(name, "").strip()
        if value and value != "native":
            archs = re.findall(r"[^;,\s]+", value)
            if not archs or not all(re.fullmatch(r"\d{2,3}[af]?(-real|-virtual)?", arch) for arch in archs):
                raise OptionError(f'{name}="{value}": expected numbers such as "90", "80;90" or "90-real"')
            return archs
    known = re.findall(r"\bsm_(\w+)", said(nvcc, "--list-gpu-code"))
    capabilities = said("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    present = {major + minor for major, minor in re.findall(r"^(\d+)\.(\d)$", capabilities, re.M)}
    archs = [f"{arch}-real" for arch in sorted(present & {*known}, key=int)]
    if not archs and wanted == "auto" and "NVCC" not in os.environ:
        raise LookupError("no GPU found that nvcc builds for; ONSOFTMAX_CUDA=1 builds for GPUs all the same")
    archs = archs or [arch for arch in USUAL_ARCHS if arch in known]
    if not archs:
        raise LookupError(f"{nvcc} knows none of the GPUs {', '.join(USUAL_ARCHS)}")
    return archs


def choose_toolkit():
    """The CUDA toolkit to build with, or None. Prints it in one line."""
    wanted = os.environ.get("ONSOFTMAX_CUDA") or "auto"
    if wanted not in ("auto", "0", "1"):
        raise OptionError(f'ONSOFTMAX_CUDA="{wanted}": expected auto, 0 or 1')
    try:
        if wanted == "0":
            raise LookupError("ONSOFTMAX_CUDA=0")
        found = find_toolkit(wanted)
    except LookupError as reason:
        if wanted == "1":
            raise PlatformError(f"ONSOFTMAX_CUDA=1, but {reason}") from None
        print(f"onsoftmax: builds for the CPU alone: {reason}", flush=True)
        return None
    print(f"onsoftmax: builds for CUDA {found.gpus()} with {found.nvcc} {found.version}", flush=True)
    return found


def nvcc_command(toolkit):
    for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        found = re.search(r"-use_fast_math|-ftz=true|-prec-(div|sqrt)=false", os.environ.get(name, ""))
        if found:
            raise OptionError(f"{name} has {found[0]}: expected no flag that makes arithmetic inexact")
    command = [toolkit.nvcc, "-std=c++17", "-O3", "-DNDEBUG", f'-DONS_CUDA_ARCHS="{toolkit.gpus()}"']
    for arch in toolkit.archs:
        number, _, kind = arch.partition("-")
        if kind != "virtual":
            command.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if kind == "virtual" or (not kind and arch == toolkit.archs[-1]):  # PTX, for GPUs yet to come
            command.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    command.append("-Xfatbin=-compress-all")  # a quarter of the size, in no time
    if "-Werror" in user_flags:
        command.append("-Werror=all-warnings")  # each flag is one word: ccache takes no other form
    for flag in ["-fPIC", *warnings, *user_flags]:
        command.append("-Xcompiler=" + flag.replace(",", r"\,"))
    return command


def compile_cuda(toolkit):
    """The objects of csrc/cuda. An object's name depends on all of its inputs, so a file that is there is
    fresh."""
    headers = [
        path
        for place in ("api", "op", "cuda")
        for kind in ("h", "cuh", "def")
        for path in glob(f"csrc/{place}/**/*.{kind}", recursive=True)
    ]
    command = nvcc_command(toolkit)
    surroundings = [
        (name, os.environ.get(name)) for name in ("NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
    ]

    def compile_one(source):
        digest = hashlib.sha256(repr((command, toolkit.version, surroundings)).encode())
        for path in [source, *sorted(headers)]:
            with open(path, "rb") as file:
                digest.update(file.read())
        name = os.path.relpath(source, "csrc/cuda")[: -len(".cu")].replace(os.sep, "-")
        stem = os.path.join(CUDA_OBJECTS, name)
        target = f"{stem}-{digest.hexdigest()[:16]}.o"
        if not os.path.exists(target):
            unfinished = f"{target}.{os.getpid()}.o"
            process = subprocess.Popen(
                [*command, "-c", source, "-o", unfinished],
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            with process.stdout as pipe:
                said_of_it = pipe.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            seconds = used.ru_utime + used.ru_stime
            print(f"nvcc {source}: {seconds:.1f} s of a processor\n{said_of_it}", end="", flush=True)
            if process.returncode != 0:
                raise CompileError(f"nvcc failed on {source}; its command was\n{shlex.join(process.args)}")
            for stale in glob(f"{escape(stem)}-????????????????.o"):
                os.remove(stale)
            os.replace(unfinished, target)
        return target

    os.makedirs(CUDA_OBJECTS, exist_ok=True)
    return several_at_once(compile_one, sorted(glob("csrc/cuda/**/*.cu", recursive=True)))


def several_at_once(compile_one, sources):
    """compile_one of each source, in their order. One for each processor runs at a time, or MAX_JOBS."""
    try:
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        jobs = int(os.environ.get("MAX_JOBS") or processors or 1)
    except ValueError:
        raise OptionError(f'MAX_JOBS="{os.environ["MAX_JOBS"]}": expected a number') from None
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        return list(pool.map(compile_one, sources))


class build_core(build_ext):
    def build_extensions(self):
        compile_together = self.compiler.compile

        def compile_apart(sources, **how):
            made = several_at_once(lambda source: compile_together([source], **how), sources)
            return [path for paths in made for path in paths]

        self.compiler.compile = compile_apart
        super().build_extensions()

    def build_extension(self, ext):
        ext = deepcopy(ext)  # a command that builds twice begins anew
        if stable_abi:  # Python would prefer a module of an earlier build that is only for this version
            for path in glob("onsoftmax/_core" + sysconfig.get_config_var("EXT_SUFFIX")):
                os.remove(path)
        toolkit = choose_toolkit()
        if toolkit is None:
            ext.sources.append("csrc/cuda/driver/absent.c")
        else:
            ext.extra_objects += compile_cuda(toolkit)
            # libstdc++ and libgcc are linked in too, so the module needs only the C library
            ext.extra_link_args += [toolkit.runtime, "-ldl", "-lrt", "-lpthread", "-static-libgcc"]
            ext.extra_link_args += ["-l:libstdc++.a", "-lm"]
        # a build with other flags is not up to date
        ext.depends.append(
            self.remember(repr((ext.extra_objects, ext.extra_compile_args, ext.extra_link_args)))
        )
        super().build_extension(ext)

    def remember(self, configuration):
        path = os.path.join(self.build_temp, "configuration")
        os.makedirs(self.build_temp, exist_ok=True)
        with open(path, "a+") as file:
            file.seek(0)
            if file.read() != configuration:
                file.truncate(0)
                file.write(configuration)
        return path


def described():
    """README as a package index shows it: without pictures and their captions, and without links to files
    of the checkout. The index has none of these files."""
    with open("README.md", encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"(<picture>.*?</picture>|!\[[^]]*\]\([^)]*\))\n\n\*.*?\*\n\n", "", text, flags=re.S)
    return re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


setup(
    long_description=described(),
    long_description_content_type="text/markdown",
    cmdclass={"build_ext": build_core},
    ext_modules=[
        Extension(
            "onsoftmax._core",
            sources=sorted(
                path
                for folder in ("api", "plan", "cpu", "python", "xla")
                for path in glob(f"csrc/{folder}/**/*.c", recursive=True)
            ),
            depends=sorted(
                glob("csrc/**/*.h", recursive=True)
                + glob("csrc/**/*.def", recursive=True)
                + glob("csrc/*.map")
            ),
            include_dirs=[numpy.get_include()],
            define_macros=[("Py_LIMITED_API", "0x030a0000")] if stable_abi else [],
            py_limited_api=stable_abi,
            extra_compile_args=c_flags,
            extra_link_args=link_flags,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if stable_abi else {},
)
