"""What onsoftmax.dask is made of."""
