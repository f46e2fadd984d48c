"""The routers of known models in torch's own operations, and the terms of ons.route that stand for them.

The formulas are the formulas of huggingface/transformers in other words. A router takes logits in float32, or
in float64 for exact results. It returns the weights and the indices of the k experts, in descending order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Router(NamedTuple):
    formula: Any
    experts: int
    k: int
    terms: dict[str, Any]
    has_bias: bool = False


def _in_best_groups(keys: Tensor, counts: Tensor, top_groups: int) -> Tensor:
    """The keys, with -inf in all groups but the groups with the largest values."""
    rows, groups = counts.shape
    best = counts.topk(top_groups).indices
    is_open = torch.zeros_like(counts, dtype=torch.bool).scatter(1, best, True)
    return keys.view(rows, groups, -1).masked_fill(~is_open[..., None], -torch.inf).view(rows, -1)


def deepseek_v2(x: Tensor, k: int, bias: None) -> tuple[Tensor, Tensor]:
    p = x.softmax(-1)
    weights, indices = _in_best_groups(p, p.view(len(p), 8, -1).amax(-1), 3).topk(k)
    return 16 * weights, indices


def deepseek_v3(x: Tensor, k: int, bias: Tensor) -> tuple[Tensor, Tensor]:
    s = x.sigmoid()
    keys = s + bias
    indices = _in_best_groups(keys, keys.view(len(keys), 8, -1).topk(2).values.sum(-1), 4).topk(k).indices
    weights = s.gather(1, indices)
    return 2.5 * weights / weights.sum(-1, keepdim=True), indices


def softmax_first(x: Tensor, k: int, bias: None) -> tuple[Tensor, Tensor]:
    """Mixtral, and Qwen3-MoE with norm_topk_prob."""
    weights, indices = x.softmax(-1).topk(k)
    return weights / weights.sum(-1, keepdim=True), indices


def gpt_oss(x: Tensor, k: int, bias: None) -> tuple[Tensor, Tensor]:
    largest, indices = x.topk(k)
    return largest.softmax(-1), indices


def llama4(x: Tensor, k: int, bias: None) -> tuple[Tensor, Tensor]:
    largest, indices = x.topk(k)
    return largest.sigmoid(), indices


_OF_V2 = {"groups": 8, "top_groups": 3, "renormalize": False, "scale": 16.0}
_OF_V3 = {"score": "sigmoid", "groups": 8, "top_groups": 4, "scale": 2.5}
_OF_LLAMA4 = {"score": "sigmoid", "renormalize": False}
ROUTERS = {
    "DeepSeek-V2": Router(deepseek_v2, 160, 6, _OF_V2),
    "DeepSeek-V3": Router(deepseek_v3, 256, 8, _OF_V3, has_bias=True),
    "Mixtral": Router(softmax_first, 8, 2, {}),
    "Qwen3-MoE": Router(softmax_first, 128, 8, {}),
    "GPT-OSS": Router(gpt_oss, 128, 4, {"score": "none"}),
    "Llama 4 Scout": Router(llama4, 16, 1, _OF_LLAMA4),
    "Llama 4 Maverick": Router(llama4, 128, 1, _OF_LLAMA4),
}
