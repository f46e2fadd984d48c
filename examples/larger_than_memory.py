"""Rows larger than memory, from a file to a file, by Dask.

The file has 8 rows of 2 million logits, 64 MiB in all. Dask reads the file in chunks of 2 MiB, and the
chunks cut the rows. Each chunk is read twice: once for the states of its rows, and once for the result.
Only a few chunks are in memory at a time. The program checks that, and compares the result with
the softmax of whole rows.

    python examples/larger_than_memory.py
"""

import sys
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np

import onsoftmax as ons

try:
    import dask
    import dask.array as da

    import onsoftmax.dask
except ImportError:
    sys.exit("This example needs dask: pip install 'dask[array]>=2025.1'")

SHAPE, CHUNKS, MIB = (8, 2**21), (1, 2**19), 2**20


def new_file(path):
    return np.lib.format.open_memmap(path, "w+", np.float32, SHAPE)


with tempfile.TemporaryDirectory() as folder:
    logits, probabilities = new_file(Path(folder, "logits.npy")), new_file(Path(folder, "softmax.npy"))
    for i, row in enumerate(logits):
        np.random.default_rng(i).standard_normal(dtype=np.float32, out=row)

    x = da.from_array(logits, chunks=CHUNKS)  # or da.from_zarr, da.from_npy_stack, ...
    y = onsoftmax.dask.softmax(x, axis=-1)  # nothing is computed yet
    values = onsoftmax.dask.logsumexp(x, axis=-1)
    tracemalloc.start()
    with dask.config.set(num_workers=2):
        da.store(y, probabilities, lock=False)
        values = values.compute()
    _, peak = tracemalloc.get_traced_memory()

    print(f"{logits.nbytes / MIB:.0f} MiB in {x.npartitions} chunks; allocated at most {peak / MIB:.0f} MiB")
    assert peak < logits.nbytes / 3
    difference = max(abs(y - ons.softmax(x)).max() for x, y in zip(logits, probabilities, strict=True))
    print(f"softmax: the largest difference from whole rows is {difference:.1e}")
    assert difference < 1e-10
    np.testing.assert_allclose(values, ons.logsumexp(logits), rtol=1e-6)
