"""Softmax beside its peers: right answers first, then times. For `onsoftmax bench` and benchmarks/.

The modules of a GPU (gpu_*) need torch.
"""
