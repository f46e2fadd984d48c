"""A loss over a vocabulary that is cut over processes, by torch.distributed.

Each of the two processes has a half of the logits of every row, as in tensor-parallel training.
`cross_entropy` exchanges 48 bytes a row and process, and nobody gathers the logits. Each process gets the
loss of the whole rows, and the gradient of its half. The program compares both with torch's for the whole
rows. On GPUs, write "nccl" in place of "gloo", and put the tensors on the GPU of the process.

    torchrun --nproc-per-node=2 examples/rows_over_ranks.py
"""

import sys

try:
    import torch
    import torch.distributed as dist

    from onsoftmax.distributed import cross_entropy
except ImportError:
    sys.exit("This example needs torch: pip install torch")

ROWS, VOCABULARY = 64, 50000


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)  # every process makes all logits here, to compare; a model makes its part only
logits, target = torch.randn(ROWS, VOCABULARY), torch.randint(VOCABULARY, (ROWS,))
part = logits.tensor_split(size, -1)[rank].clone().requires_grad_()

loss = cross_entropy(part, target)
loss.backward()

whole = logits.clone().requires_grad_()
expected = torch.nn.functional.cross_entropy(whole, target)
expected.backward()
expected_grad = whole.grad.tensor_split(size, -1)[rank]
torch.testing.assert_close(loss.detach(), expected.detach())
torch.testing.assert_close(part.grad, expected_grad, rtol=1e-4, atol=1e-9)
difference = (part.grad - expected_grad).abs().max()
print(f"rank {rank}: loss {loss:.6f}, torch's {expected:.6f}; the gradient differs by {difference:.1e}")
dist.destroy_process_group()
