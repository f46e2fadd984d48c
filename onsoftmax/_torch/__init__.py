"""What onsoftmax.torch and onsoftmax.distributed are made of, and what torch.compile is told."""
