"""Runs other libraries' own tests of losses and of sampling on ours.

python tests/support/peer_shims.py PEER CHECKOUT [pytest's arguments]
python tests/support/peer_shims.py PEER

PEER is liger, quack, transformer-engine, flash-attention, flashinfer or vllm. The first form runs the peer's
test files from a checkout. Stand-ins for the peer's modules call onsoftmax. UNWANTED says which tests do not
run, and why. Without a GPU, the tests run on the CPU, from a copy with "cpu" in place of "cuda". The second
form prints the files that the checkout needs."""

import __future__

import ast
import math
import os
import random
import sys
import tempfile
from collections import Counter, namedtuple
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

import onsoftmax as ons
from onsoftmax.torch import CrossEntropyLoss, linear_cross_entropy, vllm_forward_native

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# ---------------------------------------------------------------- the peers' functions by ours


def z_loss_of(lse, counts, z_loss, reduction="mean"):
    """What z_loss adds to the loss. The peers return it beside the loss."""
    terms = z_loss * lse.detach().square()
    if reduction == "none":
        return terms * counts
    return terms[counts].mean() if reduction == "mean" else terms[counts].sum()


LigerLosses = namedtuple("LigerLosses", "loss z_loss token_accuracy predicted_tokens")


def liger_cross_entropy(
    logits,
    target,
    weight=None,
    *,
    ignore_index=-100,
    lse_square_scale=0.0,
    label_smoothing=0.0,
    reduction="mean",
    return_z_loss=False,
    return_token_accuracy=False,
    return_predicted_tokens=False,
):
    """Liger's losses have the type of the logits. Liger raises AssertionError for a wrong target."""
    terms = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "z_loss": lse_square_scale}
    try:
        loss, lse = ons.cross_entropy(
            logits, target, weight=weight, reduction=reduction, return_lse=True, **terms
        )
    except IndexError as error:
        raise AssertionError(f"out of bounds: {error}") from error
    loss, counts, z_loss, accuracy, tokens = loss.to(logits.dtype), target != ignore_index, None, None, None
    if return_z_loss:
        z_loss = z_loss_of(lse, counts, lse_square_scale, reduction).to(logits.dtype)
    if return_token_accuracy or return_predicted_tokens:
        found = ons.logprob(logits.detach(), target.clip(0), argmax=True).argmax
        accuracy = (found == target)[counts].float().mean() if return_token_accuracy else None
        tokens = found.masked_fill(~counts, -1) if return_predicted_tokens else None
    if return_z_loss or return_token_accuracy or return_predicted_tokens:
        return LigerLosses(loss, z_loss, accuracy, tokens)
    return loss


def liger_linear_cross_entropy(
    linear_weight, x, target, bias=None, *, ce_weight=None, lse_square_scale=0.0, accum_dtype=None,
    softcap=None, return_z_loss=False, return_token_accuracy=False, **terms,
):  # fmt: skip
    assert not (accum_dtype or softcap or return_z_loss or return_token_accuracy)
    return linear_cross_entropy(
        x, linear_weight, target, linear_bias=bias, weight=ce_weight, z_loss=lse_square_scale, **terms
    )


def liger_linear_of_x(input, weight, target, bias=None, **terms):
    return liger_linear_cross_entropy(weight, input, target, bias, **terms)


def liger_linear_applied(
    x, weight, target, bias, ce_weight, ignore_index, z_loss, smoothing, reduction, *others
):
    assert not any(others)
    terms = {"ignore_index": ignore_index, "label_smoothing": smoothing, "reduction": reduction}
    loss = linear_cross_entropy(x, weight, target, linear_bias=bias, weight=ce_weight, z_loss=z_loss, **terms)
    return loss, None, None, None


def kl_of_logs(log_p, log_q):
    """sum(p * log(p / q)) of each row, with p = exp(log_p) and q = exp(log_q). Our divergence takes the
    softmax first. The logsumexp of both rows makes up for it, in the value and in the gradients."""
    p_sum, q_sum = ons.logsumexp(log_p), ons.logsumexp(log_q)
    return p_sum.exp() * (ons.kl_divergence(log_p, log_q) + p_sum - q_sum)


def js_of_logs(log_p, log_q, beta):
    """js_divergence with Liger's gradient of log_q. Liger's gradient is of log-probabilities, and ours is of
    logits. The difference is the gradient of the last term, whose value is 0."""
    q_sum = ons.logsumexp(log_q)
    p, q = log_p.detach().float(), log_q.detach().float()
    log_r = torch.logaddexp(p + math.log(beta), q + math.log1p(-beta))
    value = ons.js_divergence(log_p, log_q, beta=beta)
    return value + (1 - beta) * ons.kl_divergence(q, log_r) * (q_sum - q_sum.detach())


def liger_kl(log_q, p, *, reduction, log_target):
    assert not log_target
    kind = torch.promote_types(log_q.dtype, p.dtype)
    total = kl_of_logs(p.log().to(kind), log_q.to(kind)).sum()
    return total / {"sum": 1, "batchmean": len(p), "mean": p.numel()}[reduction]


def liger_js(log_q, log_p, labels=None, *, beta=0.5, ignore_index=-100):
    if 0 < beta < 1:
        values = js_of_logs(log_p, log_q, beta)
    else:
        values = kl_of_logs(log_p, log_q) if beta == 0 else kl_of_logs(log_q, log_p)
    if labels is not None:
        values = values[labels != ignore_index]
    return (values.sum() / max(len(values), 1)).to(log_q.dtype)


def quack_cross_entropy(x, target, *, weight=None, ignore_index=-100, reduction="mean"):
    return ons.cross_entropy(x, target, weight=weight, ignore_index=ignore_index, reduction=reduction)


def quack_forward(
    x, target, *, weight=None, ignore_index=-100, return_lse=False, return_dx=False, inplace_backward=False
):
    terms = {"weight": weight, "ignore_index": ignore_index, "reduction": "none", "return_lse": return_lse}
    logits = x.detach() if x.requires_grad else x
    if not return_dx:
        return ons.cross_entropy(logits, target, **terms)
    loss, dx, *lse = ons.cross_entropy_with_grad(
        logits, target, grad_out=logits if inplace_backward else None, **terms
    )
    return loss, *lse, dx


def quack_backward(x, target, dloss, lse):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(ons.cross_entropy(x, target, reduction="none"), x, dloss)[0]


def quack_linear(x, weight, target, *, chunk_size, tuned, use_scaled_exp=False, **terms):
    assert not (tuned or use_scaled_exp)
    return linear_cross_entropy(x, weight, target, chunk=chunk_size, **terms)


def transformer_engine_cross_entropy(logits, target, label_smoothing, reduce_loss, process_group):
    assert process_group is None
    reduction = "mean" if reduce_loss else "none"
    return ons.cross_entropy(logits, target, label_smoothing=label_smoothing, reduction=reduction)


def flash_cross_entropy(
    logits, target, *, precomputed_lse=None, label_smoothing, logit_scale, lse_square_scale, return_z_loss,
    inplace_backward,
):  # fmt: skip
    assert precomputed_lse is None and logit_scale == 1
    lse = ons.cross_entropy(logits.detach(), target, return_lse=True)[1] if return_z_loss else None
    if inplace_backward and logits.is_leaf:  # in_place=True refuses logits that no model computes
        logits = logits.clone()
    loss = CrossEntropyLoss(
        label_smoothing=label_smoothing, z_loss=lse_square_scale, in_place=inplace_backward
    )(logits, target)
    return (loss, z_loss_of(lse, target != -100, lse_square_scale)) if return_z_loss else loss


def flashinfer_from_logits(
    logits,
    *,
    indices=None,
    generator=None,
    seed=None,
    offset=0,
    return_valid=False,
    **filters,
):
    """FlashInfer's token of a row that is not valid is 0. Its tokens have the type of `indices`, the rows to
    draw from."""
    if seed is None:
        device = generator.device if generator else "cpu"
        seed = int(torch.randint(2**62, (), generator=generator, device=device))
    if indices is not None:
        logits = logits.expand(len(indices), -1) if len(logits) == 1 else logits[indices]
    tokens, valid = ons.sample(logits, seed=seed, offset=offset, return_valid=True, **filters)
    tokens = tokens.clip(0).to(torch.int32 if indices is None else indices.dtype)
    return (tokens, valid) if return_valid else tokens


def flashinfer_from_probs(probs, **terms):
    """float64 has other logarithms for any two float32 numbers."""
    return flashinfer_from_logits(probs.double().log(), **terms)


def flashinfer_sampling():
    """The functions of flashinfer.sampling. Filters come by position."""

    def of(function, *names):
        return lambda x, *filters, **terms: function(x, **dict(zip(names, filters, strict=False)), **terms)

    def softmax(logits, temperature):
        is_array = isinstance(temperature, torch.Tensor)
        return ons.softmax(logits, scale=1 / (temperature[:, None] if is_array else temperature))

    return SimpleNamespace(
        softmax=softmax,
        sampling_from_logits=flashinfer_from_logits,
        sampling_from_probs=flashinfer_from_probs,
        top_p_sampling_from_probs=of(flashinfer_from_probs, "top_p"),
        top_k_sampling_from_probs=of(flashinfer_from_probs, "top_k"),
        min_p_sampling_from_probs=of(flashinfer_from_probs, "min_p"),
        top_k_top_p_sampling_from_probs=of(flashinfer_from_probs, "top_k", "top_p"),
        top_k_top_p_sampling_from_logits=of(flashinfer_from_logits, "top_k", "top_p"),
    )


def vllm_sample(logits, k, p, generators):
    return vllm_forward_native(None, logits, generators, k, p)[0]


# ---------------------------------------------------------------- the peers' modules

# The stand-in of a module takes the terms first, and then the tensors: it is partial(partial, function).


def taken(file, *names, **given):
    """Functions of a peer's file. The file's imports do not run."""
    nodes = [node for node in ast.parse(file.read_text()).body if getattr(node, "name", None) in names]
    flags = __future__.annotations.compiler_flag  # annotations name modules that are not there
    exec(compile(ast.Module(nodes, []), str(file), "exec", flags, True), given)
    return {name: given[name] for name in names}


def modules_of_liger(checkout):
    checks = taken(
        checkout / "test/utils.py", "set_seed", "assert_verbose_allclose",
        torch=torch, np=np, random=random, os=os, device=DEVICE,
    )  # fmt: skip
    functions = {
        "liger_cross_entropy": liger_cross_entropy,
        "liger_fused_linear_cross_entropy": liger_linear_of_x,
        "liger_jsd": liger_js,
        "CrossEntropyOutput": LigerLosses,
    }
    applied = {"LigerFusedLinearCrossEntropyFunction": SimpleNamespace(apply=liger_linear_applied)}
    transformers = "liger_kernel.transformers"
    return {
        "test.utils": checks | {"supports_bfloat16": lambda: True},
        "liger_kernel.utils": {"infer_device": lambda: DEVICE, "is_npu_available": lambda: False},
        "liger_kernel.ops": applied | {"LigerCrossEntropyFunction": None},
        "liger_kernel.ops.cross_entropy": {"liger_cross_entropy_kernel": None},
        "liger_kernel.ops.utils": {"is_hip": lambda: False},
        f"{transformers}.functional": functions,
        f"{transformers}.cross_entropy": {"LigerCrossEntropyLoss": partial(partial, liger_cross_entropy)},
        f"{transformers}.fused_linear_cross_entropy": {
            "LigerFusedLinearCrossEntropyLoss": partial(partial, liger_linear_cross_entropy)
        },
        f"{transformers}.jsd": {"LigerJSD": partial(partial, liger_js), "LigerJSDFunction": None},
        f"{transformers}.kl_div": {"LigerKLDIVLoss": partial(partial, liger_kl)},
    }


def modules_of_quack(checkout):
    reference = taken(
        checkout / "quack/linear_cross_entropy.py", "linear_cross_entropy_func_ref", F=torch.nn.functional
    )
    return {
        "quack.cross_entropy": {
            "cross_entropy": quack_cross_entropy,
            "cross_entropy_fwd": quack_forward,
            "cross_entropy_bwd": quack_backward,
        },
        "quack.linear_cross_entropy": reference
        | {
            "chunked_linear_cross_entropy": quack_linear,
            "scaled_exp_lce_supported": None,
            "scaled_exp_linear_cross_entropy": None,
        },
    }


def modules_of_transformer_engine(checkout):
    tolerances = taken(checkout / "tests/pytorch/utils.py", "dtype_tols", torch=torch, DType=type(None))
    return {
        "utils": tolerances,
        "transformer_engine.pytorch": {"parallel_cross_entropy": transformer_engine_cross_entropy},
    }


def modules_of_flash(checkout):
    return {"flash_attn.losses.cross_entropy": {"CrossEntropyLoss": partial(partial, flash_cross_entropy)}}


def modules_of_flashinfer(checkout):
    return {"flashinfer": {"sampling": flashinfer_sampling()}}


def modules_of_vllm(checkout):
    native = taken(
        checkout / "vllm/v1/sample/ops/topk_topp_sampler.py", "apply_top_k_top_p_pytorch", "random_sample",
        "empty_exponential_noise_like", "sample_with_exponential_noise", torch=torch,
    )  # fmt: skip
    native |= {"apply_top_k_top_p": native["apply_top_k_top_p_pytorch"], "flashinfer_sample": vllm_sample}
    platform = SimpleNamespace(
        device_type=DEVICE,
        is_cuda=lambda: True,
        is_rocm=lambda: False,
        get_device_capability=lambda: (9, 0),
        num_compute_units=lambda device: 100,
    )
    backend = SimpleNamespace(supports_compute_capability=lambda capability: True)
    return {
        "flashinfer": {},
        "tests.utils": {"large_gpu_mark": lambda min_gb: lambda test: test},
        "vllm.platforms": {"current_platform": platform},
        "vllm.triton_utils": {"HAS_TRITON": False},
        "vllm.utils.torch_utils": {"set_random_seed": torch.manual_seed},
        "vllm.v1.attention.backends.flashinfer": {"FlashInferBackend": backend},
        "vllm.v1.sample.ops.topk_topp_sampler": native,
        "vllm.v1.sample.sampler": {"Sampler": None},
    }


MODULES = {
    "liger": modules_of_liger,
    "quack": modules_of_quack,
    "transformer-engine": modules_of_transformer_engine,
    "flash-attention": modules_of_flash,
    "flashinfer": modules_of_flashinfer,
    "vllm": modules_of_vllm,
}
FILES = {
    "liger": [
        "test/__init__.py",
        "test/conftest.py",
        "test/transformers/test_cross_entropy.py",
        "test/transformers/test_fused_linear_cross_entropy.py",
        "test/transformers/test_jsd.py",
        "test/transformers/test_kl_div.py",
    ],
    "quack": ["tests/test_cross_entropy.py", "tests/test_linear_cross_entropy.py"],
    "transformer-engine": ["tests/pytorch/test_parallel_cross_entropy.py"],
    "flash-attention": ["tests/losses/test_cross_entropy.py"],
    "flashinfer": ["tests/utils/test_sampling.py"],
    "vllm": ["tests/v1/sample/test_topk_topp_sampler.py"],
}
HELPERS = {  # the shim takes functions from these files
    "liger": ["test/utils.py"],
    "quack": ["quack/linear_cross_entropy.py"],
    "transformer-engine": ["tests/pytorch/utils.py"],
    "flash-attention": [],
    "flashinfer": [],
    "vllm": ["vllm/v1/sample/ops/topk_topp_sampler.py"],
}

# ---------------------------------------------------------------- the tests that do not run

# For each peer, reasons and the tests they hold for. `name` is FILE.FUNCTION, and `p` has the parameters.
UNWANTED = {
    "liger": {
        "softcap": lambda name, p: (
            p.get("softcap") or name.endswith("cross_entropy.test_correctness_functional")
        ),
        "token scaling": lambda name, p: "token_scaling" in name,
        "calls Liger's Triton kernel": lambda name, p: name.endswith("test_float32_internal"),
        "compares Liger's module with Liger's function": lambda name, p: (
            name == "test_jsd.test_correctness_functional"
        ),
        "KL of each element": lambda name, p: "kl_div" in name and p["reduction"] == "none",
        "KL of rows that do not add up to 1": lambda name, p: "kl_div" in name and p["log_target"],
        "accuracy, tokens or z_loss of a linear layer": lambda name, p: (
            "linear" in name
            and (
                p.get("return_token_accuracy")
                or p.get("return_z_loss")
                or name.endswith("with_predicted_tokens")
            )
        ),
        "the type of a linear layer's sums": lambda name, p: p.get("accum_dtype"),
        "a GPU raises no error for a wrong target": lambda name, p: (
            DEVICE == "cuda" and "out_of_bounds" in name
        ),
    },
    "quack": {
        "a part of the logsumexp is given": lambda name, p: name.endswith("lse_partial"),
        "a second way inside QuACK (scaled_exp)": lambda name, p: (
            p.get("use_scaled_exp") or name.endswith(("_batched", "compile_dispatch"))
        ),
    },
    "transformer-engine": {
        "asks which tensors Transformer Engine keeps": lambda name, p: name.endswith("external_grad"),
    },
    "flash-attention": {
        "the logsumexp is given": lambda name, p: p["precompute_lse"],
        "a scale of the logits": lambda name, p: p["logit_scale"] != 1,
    },
    "flashinfer": {
        "all probabilities after a filter": lambda name, p: (
            any(part in name for part in ("renorm", "mask_logits", "check_tensor_param"))
            or name.endswith(("top_p_sampling_freq", "top_k_sampling_freq"))
        ),
        "drafts of speculative decoding": lambda name, p: name.endswith("chain_speculative_sampling"),
        "the words of errors": lambda name, p: name.endswith("tensor_validation_min_p"),
        "logits and their softmax have the same token of many": lambda name, p: (
            name.endswith("joint_sampling_from_logits") and p["vocab_size"] > 111
        ),
        "5000000 draws from long rows": lambda name, p: name.endswith("freq") and p["vocab_size"] > 111,
        "long rows on the CPU": lambda name, p: DEVICE == "cpu" and p["vocab_size"] > 111,
    },
    "vllm": {
        "vLLM's choice between samplers": lambda name, p: any(
            part in name for part in ("_fp64_", "rocm", "fallback")
        ),
        "all logits after a filter": lambda name, p: (
            not name.endswith(("handles_pathological_logits", "matches_theoretical"))
        ),
    },
}


class Unwanted:
    """A plugin of pytest that leaves out the tests of UNWANTED and counts them."""

    def __init__(self, peer):
        self.rules, self.counts = UNWANTED[peer], Counter()

    def why(self, item):
        name, parameters = f"{item.path.stem}.{item.originalname}", getattr(item, "callspec", None)
        parameters = parameters.params if parameters else {}
        return next((why for why, is_meant in self.rules.items() if is_meant(name, parameters)), None)

    def pytest_collection_modifyitems(self, config, items):
        reasons = [self.why(item) for item in items]
        unwanted = [item for item, why in zip(items, reasons, strict=True) if why]
        self.counts.update(filter(None, reasons))
        config.hook.pytest_deselected(items=unwanted)
        items[:] = [item for item, why in zip(items, reasons, strict=True) if not why]

    def pytest_terminal_summary(self, terminalreporter):
        for why in self.rules:
            terminalreporter.write_line(f"not run: {self.counts[why]:4} tests: {why}")


def exact_cross_entropy(logits, target, weight=None, *, of_torch=torch.nn.functional.cross_entropy, **terms):
    """torch's cross_entropy in float64, rounded once: the peers' reference on the CPU. torch's own rounding
    exceeds the peers' tolerances there: 6 % of the gradient in bfloat16, and 7e-6 of the gradient in float32
    with label_smoothing."""
    weight = None if weight is None else weight.double()
    return of_torch(logits.double(), target, weight, **terms).to(logits.dtype)


def run(peer, checkout, *arguments):
    for name, members in MODULES[peer](checkout).items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(members)
    if DEVICE == "cpu":  # the tests ask for the GPU's architecture, and wait for the GPU
        torch.cuda.get_device_capability = lambda *device: (9, 0)
        torch.cuda.synchronize = torch.accelerator.synchronize = lambda: None
        torch.accelerator.current_device_index = lambda: 0
        torch.nn.functional.cross_entropy = exact_cross_entropy
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES[peer]:
            copy = Path(folder, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = (checkout / name).read_text()
            copy.write_text(text.replace('"cuda"', f'"{DEVICE}"').replace('"cuda:0"', f'"{DEVICE}"'))
        sys.path.insert(0, folder)
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", folder]
        return pytest.main([*options, folder, *arguments], plugins=[Unwanted(peer)])


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(*FILES[sys.argv[1]], *HELPERS[sys.argv[1]])
    else:
        sys.exit(run(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
