"""The thread pool, its settings, forks, and concurrent callers."""

import glob
import os
import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support import SANITIZED, STABLE_METHODS, isas, run_python, same_bits

import onsoftmax as ons

BIG = np.random.default_rng(7).standard_normal((64, 20_000)).astype(np.float32)


SMALL_STACK = """
import threading
import numpy as np
import onsoftmax as ons
from support import STABLE_METHODS
shapes = (5, 1000), (300, 1000), (9000, 128)
x = {{shape: np.random.default_rng(1).standard_normal(shape) for shape in shapes}}

def softmax():
    for array in x.values():
        for dtype in ("float16", "float32", "float64"):
            for method in ("auto", *STABLE_METHODS):
                for axis in (0, 1):
                    ons.softmax(array.astype(dtype), axis, method=method, num_threads=1)
    print("done")

threading.stack_size({stack})
thread = threading.Thread(target=softmax)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("isa", isas())
def test_a_thread_with_a_small_stack(isa):
    """A thread has 64 KiB, and the interpreter uses part of it. `fused` once kept its float64 strips on the
    stack. The frames of a sanitizer's build are several times as large."""
    stack = 2**18 if SANITIZED else 2**16
    done = run_python(["-c", SMALL_STACK.format(stack=stack)], ONSOFTMAX_ISA=isa)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-500:]


@pytest.mark.parametrize("isa", isas())
def test_the_floating_point_mode_of_the_caller_does_not_matter(isa):
    """For example torch.set_flush_denormal(True), in the calling thread or when the pool starts."""
    done = run_python(["float_mode_checks.py"], ONSOFTMAX_ISA=isa)
    assert done.returncode == 0, done.stderr[-500:]


# ---------------------------------------------------------------- settings


def test_set_num_threads(threads_restored):
    for count in (1, 3, 2, np.int64(4)):
        assert ons.set_num_threads(count) is None
        assert ons.get_num_threads() == count
        assert ons.plan((4096, 4096)).threads == count
    assert ons.plan((4096, 4096), num_threads=2).threads == 2
    ons.set_num_threads(10**6)
    assert 1 <= ons.get_num_threads() <= 10**6
    assert same_bits(ons.softmax(BIG), ons.softmax(BIG, num_threads=1))


@pytest.mark.parametrize(
    ("count", "exception"),
    [(0, ValueError), (-1, ValueError), (1.0, TypeError), ("2", TypeError), (None, TypeError)],
)
def test_set_num_threads_refuses(count, exception):
    before = ons.get_num_threads()
    with pytest.raises(exception, match="at least 1"):
        ons.set_num_threads(count)
    assert ons.get_num_threads() == before


ASK = ["-c", "import onsoftmax as ons; print(ons.get_num_threads(), ons._core.config()['isa'])"]


def test_environment_num_threads():
    for text in ("1", "3", "64"):
        assert run_python(ASK, ONSOFTMAX_NUM_THREADS=text).stdout.split()[0] == text
    default = int(run_python(ASK, ONSOFTMAX_NUM_THREADS=None).stdout.split()[0])
    assert 1 <= default <= len(os.sched_getaffinity(0))
    assert run_python(ASK, ONSOFTMAX_NUM_THREADS="").stdout.split()[0] == str(default)


@pytest.mark.parametrize("text", ["0", "-2", "2x"])
def test_environment_num_threads_refuses(text):
    done = run_python(ASK, ONSOFTMAX_NUM_THREADS=text)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ValueError")
    assert f"ONSOFTMAX_NUM_THREADS is '{text}'" in last and "at least 1" in last


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no processor affinity here")
def test_affinity_limits_the_default():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + ASK[1]
    assert run_python(["-c", code], ONSOFTMAX_NUM_THREADS=None).stdout.split()[0] == "1"


def test_environment_isa():
    for isa in isas():
        assert run_python(ASK, ONSOFTMAX_ISA=isa).stdout.split()[1] == isa
    assert run_python(ASK, ONSOFTMAX_ISA=None).stdout.split()[1] == isas()[-1]
    assert run_python(ASK, ONSOFTMAX_ISA="").stdout.split()[1] == isas()[-1]
    for unknown in {"neon", "sse9", "AVX2", "avx512"} - set(isas()):
        done = run_python(ASK, ONSOFTMAX_ISA=unknown)
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 1 and last.startswith("ValueError")
        assert f"ONSOFTMAX_ISA is '{unknown}'" in last and "scalar" in last


def test_show_config(capsys):
    config = ons.show_config()
    printed = capsys.readouterr().out
    for name in ("onsoftmax", "numpy", "isa", "isa_available", "num_threads", "processors", "caches", "cuda"):
        assert name in config and name in printed
    assert config["num_threads"] == ons.get_num_threads() and config["isa"] in config["isa_available"]


def test_the_caches_are_those_that_the_system_tells_of():
    sizes = {}
    for cache in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*"):
        level, size = (Path(cache, name).read_text().strip() for name in ("level", "size"))
        sizes[level] = str(int(size.removesuffix("K")) * 1024 // 1000)
    if "3" not in sizes or "2" not in sizes:
        pytest.skip("the system tells of no second and third cache")
    found = re.fullmatch(r"(\d+) kB a core, (\d+) kB shared by (\d+)", ons.show_config()["caches"])
    assert sizes["3"] == found[2] and int(found[3]) >= 1
    assert found[1] in (sizes["2"], "0")  # 0 if more threads than one core's share the second-level cache


# ---------------------------------------------------------------- forks


def wait_for(child, seconds):
    """The child's exit status. If the child is not done in time, ends it and returns None."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def in_child(body):
    """Forks. True if body() returns true in the child in time."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if body() else 1)
        except BaseException:
            os._exit(2)
    return wait_for(child, 60) == 0


def computes():
    return same_bits(ons.softmax(BIG, num_threads=3), ons.softmax(BIG, num_threads=1))


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@needs_fork
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_fork_after_use():
    assert computes()
    for _ in range(3):
        assert in_child(computes)
    assert computes()
    assert in_child(lambda: computes() and in_child(computes) and computes())


@needs_fork
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_fork_while_others_compute():
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            ons.softmax(BIG, num_threads=2)

    busy = [threading.Thread(target=keep_busy) for _ in range(2)]
    for thread in busy:
        thread.start()
    try:
        assert all(in_child(computes) for _ in range(10))
    finally:
        stop.set()
        for thread in busy:
            thread.join()
    assert computes()


# ---------------------------------------------------------------- callers side by side


def test_sixteen_calling_threads():
    rng = np.random.default_rng(8)
    inputs = [rng.standard_normal((3, n)).astype(np.float32) for n in (10, 1000, 70_000, 200_000) * 4]
    expected = [ons.softmax(x, num_threads=1) for x in inputs]
    found, together = [], threading.Barrier(16)

    def call(index):
        together.wait()
        for turn in range(30):
            i = (index + turn) % 16
            method = STABLE_METHODS[turn % len(STABLE_METHODS)]
            y = ons.softmax(inputs[i], method=method, num_threads=1 + turn % 4)
            found.append(same_bits(y, expected[i]))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert len(found) == 16 * 30 and all(found)


def test_large_work_releases_the_gil():
    x = np.zeros((2000, 5000), np.float32)
    done, turns = threading.Event(), 0

    def call():
        for _ in range(5):
            ons.softmax(x, out=x, num_threads=1, method="safe")
        done.set()

    thread = threading.Thread(target=call)
    thread.start()
    while not done.is_set():
        turns += 1
        time.sleep(0.0005)
    thread.join()
    assert turns > 5


def test_pool_is_no_trap_for_signals():
    """Ctrl-C reaches the main thread, not a thread of the pool."""
    code = """
import os, signal, numpy as np, onsoftmax as ons
ons.softmax(np.zeros((100, 100_000), np.float32), num_threads=4)
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10**7): pass
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run_python(["-c", code]).stdout == "interrupted\n"


FIRST_CALLS = """
import importlib, sys, threading, time
import numpy as np
import onsoftmax as ons
from onsoftmax._torch import compile as _torch_compile

class Slow:
    '''Whoever imports a module waits in the middle of it.'''

    def __init__(self, name):
        self.name, self.begun = name, threading.Event()
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path, target=None):
        if name == self.name:
            sys.meta_path.remove(self)
            self.begun.set()
            time.sleep(0.3)

def besides(slow, first, *others):
    slow, failed = Slow(slow), []
    def run(call):
        try:
            call()
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=run, args=(call,)) for call in (first, *others)]
    threads[0].start()
    assert slow.begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
"""
FIRST_OF_TORCH = """
import torch
x = torch.ones(3, 4)
besides(
    "onsoftmax._torch.calls",
    lambda: ons.softmax(x.clone().requires_grad_()),
    lambda: ons.log_softmax(x.clone().requires_grad_()),
    lambda: torch.vmap(ons.softmax)(x),
    lambda: ons.logsumexp(x.to("meta")),
    lambda: torch.fx.symbolic_trace(lambda t: ons.softmax(t)),
)
told = []
besides(
    "torch._dynamo.convert_frame",
    lambda: importlib.import_module("torch._dynamo"),
    lambda: _torch_compile.prepare(lambda tracer: told.append(tracer.substitute_in_graph)),
)
assert len(told) == 1
compiled = torch.compile(lambda x: ons.softmax(x) + 1, fullgraph=True, backend="eager")
assert torch.equal(compiled(x), ons.softmax(x) + 1)
"""
FIRST_OF_JAX = """
import jax
x = jax.numpy.ones((3, 4))
besides(
    "onsoftmax._jax.operators",
    lambda: jax.jit(ons.softmax)(x),
    lambda: jax.jit(ons.log_softmax)(x),
    lambda: jax.grad(lambda t: ons.softmax(t)[0, 0])(x),
    lambda: jax.vmap(ons.logsumexp)(x),
)
"""


@pytest.mark.parametrize("library, calls", [("torch", FIRST_OF_TORCH), ("jax", FIRST_OF_JAX)])
def test_first_calls_side_by_side(library, calls):
    """The first call imports parts of its library. Other threads must wait for this import."""
    pytest.importorskip(library)
    done = run_python(["-c", FIRST_CALLS + calls])
    assert done.returncode == 0, done.stderr[-2000:]
