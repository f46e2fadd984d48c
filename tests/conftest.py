"""Lets the tests run from a checkout on an installed onsoftmax, and beside an in-place build."""

import os
import sys
from glob import glob

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# `python -m pytest` puts the checkout on the path: without a built core it would hide the installed package.
if not glob(os.path.join(ROOT, "onsoftmax", "_core.*.so")):
    here = os.path.realpath(ROOT)
    sys.path[:] = [path for path in sys.path if os.path.realpath(path or os.getcwd()) != here]


@pytest.fixture
def rng():
    import numpy as np

    return np.random.default_rng(20250123)


@pytest.fixture
def threads_restored():
    """Puts set_num_threads back to what it was."""
    import onsoftmax as ons

    before = ons.get_num_threads()
    yield
    ons.set_num_threads(before)


@pytest.fixture(scope="module")
def browser():
    from picker_page import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser):
    """The picker page, which moves nothing by itself."""
    from picker_page import opened

    with opened(browser, reduced_motion="reduce") as page:
        yield page
