"""A mixture of experts: the router chooses 2 of 8 experts for each token.

`route` computes the experts and their weights in one call. The router has a bias for each expert, as in
DeepSeek-V3. After each step, the bias of an expert with few tokens goes up, and the bias of an expert with
many tokens goes down. The bias changes the choice alone. So the tokens spread over the experts without a
loss term for it. The program checks the weights against torch's own formula.

    python examples/mixture_of_experts.py
"""

import sys

import onsoftmax as ons

try:
    import torch
except ImportError:
    sys.exit("This example needs torch: pip install torch")

EXPERTS, CHOSEN, WIDTH = 8, 2, 32
BIAS_STEP = 0.02


class MixtureOfExperts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))
        self.register_buffer("bias", torch.zeros(EXPERTS))

    def forward(self, x):
        weights, indices = ons.route(self.gate(x), CHOSEN, score="sigmoid", bias=self.bias)
        y = x.new_zeros(*indices.shape, WIDTH)
        for i, expert in enumerate(self.experts):
            token, place = torch.where(indices == i)
            y[token, place] = expert(x[token])
        return (weights[..., None] * y).sum(1), weights, indices

    def balance(self, counts):
        self.bias += BIAS_STEP * torch.sign(counts.mean() - counts)


def check(layer, x, weights, indices):
    """Compares the choice and the weights with torch's own formula."""
    scores = torch.sigmoid(layer.gate(x))
    sums = scores + layer.bias
    torch.testing.assert_close(sums.gather(-1, indices), sums.topk(CHOSEN).values)
    expected = scores.gather(-1, indices)
    torch.testing.assert_close(weights, expected / expected.sum(-1, keepdim=True))


def counts_of(indices):
    return torch.bincount(indices.flatten(), minlength=EXPERTS).float()


def shares(indices):
    return " ".join(f"{share:4.0%}" for share in counts_of(indices) / indices.numel())


torch.manual_seed(0)
# Tokens of 16 kinds. All kinds have a common part, so the untrained router prefers a few experts.
kind = torch.randint(16, (512,))
x = torch.randn(WIDTH) + torch.randn(16, WIDTH)[kind] + 0.1 * torch.randn(512, WIDTH)
wanted = torch.einsum("ti,tij->tj", x, torch.randn(16, WIDTH, WIDTH)[kind] / WIDTH**0.5)

layer = MixtureOfExperts()
optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
losses, chosen = [], []
for _ in range(60):
    y, weights, indices = layer(x)
    check(layer, x, weights, indices)
    loss = (y - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    layer.balance(counts_of(indices))
    losses.append(loss.item())
    chosen.append(indices)

print(f"loss: {losses[0]:.3f} at the first step, {losses[-1]:.3f} at the last")
print(f"share of the tokens at the first step: {shares(chosen[0])}")
print(f"share of the tokens at the last step:  {shares(chosen[-1])}")
assert losses[-1] < losses[0] / 2
assert counts_of(chosen[-1]).min() > 0.05 * indices.numel()
