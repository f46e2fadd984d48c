"""Distillation: a student learns the distribution of a teacher.

The loss is the divergence KL(teacher || student) at a temperature of 2. `kl_divergence` takes the
temperature by `scale`. It writes one number a row, and no tensor of the size of the logits. The program
checks the gradient against torch's own.

    python examples/distillation.py
"""

import sys

import onsoftmax as ons

try:
    import torch
    from torch.nn.functional import kl_div
except ImportError:
    sys.exit("This example needs torch: pip install torch")

TEMPERATURE = 2.0


def distillation_loss(student_logits, teacher_logits):
    divergence = ons.kl_divergence(teacher_logits, student_logits, scale=1 / TEMPERATURE, reduction="mean")
    return TEMPERATURE**2 * divergence


def torch_loss(student_logits, teacher_logits):
    student = torch.log_softmax(student_logits / TEMPERATURE, -1)
    teacher = torch.log_softmax(teacher_logits / TEMPERATURE, -1)
    return TEMPERATURE**2 * kl_div(student, teacher, reduction="batchmean", log_target=True)


torch.manual_seed(0)
teacher = torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.Tanh(), torch.nn.Linear(128, 500))
student = torch.nn.Linear(32, 500)
x = torch.randn(128, 32)
with torch.no_grad():
    teacher_logits = 10 * teacher(x)

logits = student(x)
(ours,) = torch.autograd.grad(distillation_loss(logits, teacher_logits), logits, retain_graph=True)
(theirs,) = torch.autograd.grad(torch_loss(logits, teacher_logits), logits)
print(f"gradient: the largest difference is {(ours - theirs).abs().max():.1e} of {theirs.abs().max():.1e}")
torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-8)

optimizer = torch.optim.Adam(student.parameters(), lr=0.02)
losses = []
for _ in range(40):
    loss = distillation_loss(student(x), teacher_logits)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss: {losses[0]:.3f} at the first step, {losses[-1]:.3f} at the last")
assert losses[-1] < losses[0] / 2
