"""The parts of onsoftmax.torch and onsoftmax.distributed, and what torch.compile is told."""
