"""docs/onsoftmax.ipynb as it is committed. `make notebook` runs it."""

from __future__ import annotations

import json
import os

import pytest
from support import ROOT

NOTEBOOK = os.path.join(ROOT, "docs", "onsoftmax.ipynb")
pytestmark = pytest.mark.skipif(not os.path.exists(NOTEBOOK), reason="the documents are not beside the tests")


def test_it_is_committed_without_outputs():
    """A committed output would soon be false: it has one machine's figures and an old plan."""
    with open(NOTEBOOK, encoding="utf-8") as file:
        cells = [cell for cell in json.load(file)["cells"] if cell["cell_type"] == "code"]
    assert cells
    for cell in cells:
        assert (cell["outputs"], cell["execution_count"]) == ([], None), f"{cell['id']}: clear all outputs"
        assert cell["metadata"] == {}, f"{cell['id']}: {cell['metadata']}"
