"""Softmax and the loss of a Hugging Face model, swapped in place.

The model is a small Llama with random weights. Nothing is downloaded. The program registers an attention
function with transformers under a name. `set_attn_implementation` switches a model to it at any time. `where`
takes the mask of bool as it is, and `scale` takes the factor of the scores. The loss becomes the mean of
`log_softmax`. The logits, the loss and the gradient stay the same, to rounding.

    python examples/hugging_face.py
"""

import sys
from unittest import mock

import onsoftmax as ons

try:
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
    from transformers.masking_utils import sdpa_mask
except ImportError:
    sys.exit("This example needs torch and transformers: pip install torch 'transformers>=5'")


def attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
    weights = ons.softmax(query @ key.mT, where=attention_mask, scale=scaling)
    weights = torch.nn.functional.dropout(weights, dropout, module.training)
    return (weights @ value).transpose(1, 2), weights


def mask(*args, **kwargs):  # a mask of bool. Every call needs it, since our attention has no is_causal
    return sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False})


def loss(logits, labels, vocab_size, num_items_in_batch=None, **_):  # the Trainer gives the number of labels
    labels = labels[:, 1:].reshape(-1)
    logs = ons.log_softmax(logits[:, :-1].reshape(-1, vocab_size), dtype=torch.float32)
    total = torch.nn.functional.nll_loss(logs, labels, ignore_index=-100, reduction="sum")
    return total / ((labels != -100).sum() if num_items_in_batch is None else num_items_in_batch)


def step(model, **batch):
    model.zero_grad()
    result = model(**batch)
    result.loss.backward()
    return result.logits, result.loss, model.lm_head.weight.grad.clone()


torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 1000}
config = LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, attn_implementation="eager")
model = LlamaForCausalLM(config)
tokens = torch.randint(1000, (3, 20))
counts = torch.arange(20) < torch.tensor([[20], [13], [7]])  # the sentences have different lengths
batch = {"input_ids": tokens, "attention_mask": counts, "labels": tokens.where(counts, -100)}
before = step(model, **batch)

AttentionInterface.register("onsoftmax", attention)
AttentionMaskInterface.register("onsoftmax", mask)
model.set_attn_implementation("onsoftmax")
model.loss_function = loss
with mock.patch.multiple(torch.nn.functional, softmax=None, cross_entropy=None):  # a call of these would fail
    after = step(model, **batch)

for name, old, new in zip(("logits", "loss", "gradient"), before, after, strict=True):
    print(f"{name}: the largest difference is {(old - new).abs().max():.1e}")
    torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-6)
