"""The parts of onsoftmax.dask."""
