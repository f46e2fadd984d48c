"""Runs docs/onsoftmax.ipynb and writes the outputs into it.

    python docs/make_notebook.py        from: pip install -e '.[docs]'

The notebook runs as on a machine without a GPU. Only the cells with the tag this-machine have other
outputs on another machine, because they show times or the errors of a processor's instructions.
"""

from __future__ import annotations

import base64
import io
import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image
from PIL.PngImagePlugin import PngInfo

NOTEBOOK = Path(__file__).parent / "onsoftmax.ipynb"


def small(png: str) -> str:
    """A picture in base64 with 64 colours, which is much smaller. It keeps matplotlib's version."""
    picture, file, text = Image.open(io.BytesIO(base64.b64decode(png))), io.BytesIO(), PngInfo()
    text.add_text("Software", picture.info["Software"])
    picture.convert("RGB").quantize(64).save(file, "png", optimize=True, pnginfo=text)
    return base64.b64encode(file.getvalue()).decode()


def executed() -> Any:
    """The notebook, with the outputs of a run now."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    metadata = notebook.metadata.copy()
    client = NotebookClient(notebook, timeout=100, record_timing=False, coalesce_streams=True)
    client.execute(env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    notebook.metadata = metadata  # without the version of Python
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = small(output.data["image/png"])
    return notebook


def main() -> int:
    nbformat.write(executed(), NOTEBOOK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
