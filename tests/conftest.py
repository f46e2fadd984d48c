"""Which tests run, what ends tests and processes that do not end by themselves, and where Python finds the
package."""

import os
import sys
from glob import glob
from importlib.util import find_spec

import processes
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# `python -m pytest` puts the checkout on the path. Without a built core it would hide the installed package.
if not glob(os.path.join(ROOT, "onsoftmax", "_core.*.so")):
    here = os.path.realpath(ROOT)
    sys.path[:] = [path for path in sys.path if os.path.realpath(path or os.getcwd()) != here]

# xdist has a worker for each processor. With more threads, torch and BLAS would busily wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# The topics of long tests. `pytest` leaves these tests out. `make check-long` runs them.
TOPICS = ("emulation", "errors", "nans", "valgrind", "lengths", "ranks")


def pytest_addoption(parser):
    parser.addoption(
        "--long", metavar="TOPIC", help=f"the tests that take long, of one topic: {', '.join(TOPICS)}; or all"
    )


def pytest_configure(config):
    processes.adopt_orphans()
    topic = config.getoption("--long")
    if topic not in (None, "all", *TOPICS):
        raise pytest.UsageError(f"--long {topic}: expected one of {', '.join(TOPICS)} or all")


def why_no_gpu():
    """Why the tests that need a GPU cannot run here, or None."""
    if not find_spec("torch"):
        return "torch is not installed"
    from onsoftmax import _core

    found = _core.config()["cuda"]
    if " GPUs" not in found:
        return f"CUDA: {found}"
    import torch

    return None if torch.cuda.is_available() else "torch.cuda.is_available() is False"


def pytest_ignore_collect(collection_path, config):
    """Without a GPU, pytest does not read the folder of GPU tests, unless a GPU is required."""
    folder = os.path.join(HERE, "gpu")
    if os.path.commonpath([folder, collection_path]) != folder or os.environ.get("ONSOFTMAX_REQUIRE_GPU"):
        return None
    if not hasattr(config, "no_gpu"):
        config.no_gpu = why_no_gpu()
    return True if config.no_gpu else None


def pytest_collection_modifyitems(config, items):
    topic = config.getoption("--long")

    def runs(item):
        mark = item.get_closest_marker("long")
        if mark is None:
            return topic is None
        assert mark.args[0] in TOPICS, f"{item.nodeid}: long{mark.args} is of no topic"
        return topic in (*mark.args, "all")

    left_out = [item for item in items if not runs(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if runs(item)]


def pytest_terminal_summary(terminalreporter, config):
    reason = why_no_gpu()
    if reason:
        terminalreporter.write_line(f"tests/gpu needs a GPU and was left out: {reason}")
    missing = [name for name in ("torch", "jax", "dask", "xarray", "transformers") if not find_spec(name)]
    if missing:
        terminalreporter.write_line(
            f"left out, because they are not installed: the tests of {', '.join(missing)}. "
            "pip install -e '.[test-all]' brings all of them"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """The processes of a test end with it. Processes of its fixtures stay."""
    kept = processes.children()
    try:
        return (yield)
    except ValueError as error:
        gpu = sys.modules.get("gpu_support")
        if gpu and gpu.NO_CLUSTERS in str(error) and not gpu.has_clusters():
            pytest.skip(str(error))
        raise
    finally:
        processes.end_all_but(kept)


@pytest.fixture
def rng():
    import numpy as np

    return np.random.default_rng(20250123)


@pytest.fixture
def threads_restored():
    import onsoftmax as ons

    before = ons.get_num_threads()
    yield
    ons.set_num_threads(before)


@pytest.fixture(scope="module")
def browser():
    from picker_page import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def window(browser):
    """A window without animations. A new one takes longer than to load the page again."""
    from picker_page import opened

    with opened(browser, reduced_motion="reduce") as page:
        yield page


@pytest.fixture
def page(window):
    """The picker page as it is at first."""
    from picker_page import load

    load(window)
    return window
