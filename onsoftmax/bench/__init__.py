"""Softmax beside its peers: first the answers are checked, then times are taken. For `onsoftmax bench` and
benchmarks/.

The modules for a GPU (gpu_*) need torch.
"""
