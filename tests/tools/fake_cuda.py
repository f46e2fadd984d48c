"""Runs bench_cuda.py without a GPU: tiny cases on the CPU, and a stopwatch in place of CUDA events.
`fake_cuda.py losses ...` runs gpu_losses.py, `fake_cuda.py routers ...` runs gpu_routers.py, and
`fake_cuda.py sampler ...` runs gpu_sampler.py."""

import os
import sys
import time
from contextlib import suppress
from types import SimpleNamespace

import torch

import onsoftmax as ons

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "benchmarks"))


class Event:
    def __init__(self, enable_timing):
        self.time = None

    def record(self):
        self.time = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 1e3 * (other.time - self.time)


def no_cupy(module):
    return None if module.startswith("cupy") else found(module)


def quack(x, target, return_dx=False):
    """As QuACK's cross_entropy_fwd."""
    loss, gradient = ons.cross_entropy_with_grad(x, target, reduction="none")
    return (loss, gradient) if return_dx else loss


class Liger(torch.autograd.Function):
    """As Liger's loss: the gradient lies where the logits lay."""

    @staticmethod
    def forward(context, x, target, reduction):
        loss, context.gradient = ons.cross_entropy_with_grad(
            x.detach(), target, reduction=reduction, grad_out=x.detach()
        )
        return loss

    @staticmethod
    def backward(context, grad):
        return context.gradient, None, None


def liger(reduction):
    return lambda x, target: Liger.apply(x, target, reduction)


def liger_js(beta):
    """As Liger's LigerJSD. The softmax of log-probabilities is the probabilities."""
    return lambda log_q, log_p: ons.js_divergence(log_p, log_q, beta=beta, reduction="mean")


def quack_topk(x, k, softmax):
    values, indices = x.float().topk(k)
    return values.softmax(-1), indices.int()


class FlashInfer:
    """As FlashInfer's module `sampling`."""

    @staticmethod
    def softmax(logits, temperature):
        return (logits / temperature).softmax(-1)

    @staticmethod
    def sampling_from_logits(logits, seed, offset):
        return ons.sample(logits, seed=seed, offset=offset).int()

    @staticmethod
    def top_k_top_p_sampling_from_logits(logits, top_k, top_p, seed, offset):
        return ons.sample(logits, top_k=top_k, top_p=top_p, seed=seed, offset=offset).int()

    @classmethod
    def sampling_from_probs(cls, probs, **terms):
        return ons.sample(probs.log(), **terms).int()

    @classmethod
    def top_k_sampling_from_probs(cls, probs, top_k, **terms):
        return cls.sampling_from_probs(probs, top_k=top_k, **terms)

    @classmethod
    def top_p_sampling_from_probs(cls, probs, top_p, **terms):
        return cls.sampling_from_probs(probs, top_p=top_p, **terms)

    @classmethod
    def min_p_sampling_from_probs(cls, probs, min_p, **terms):
        return cls.sampling_from_probs(probs, min_p=min_p, **terms)

    @classmethod
    def top_k_top_p_sampling_from_probs(cls, probs, top_k, top_p, **terms):
        return cls.sampling_from_probs(probs, top_k=top_k, top_p=top_p, **terms)


def refer_as_on_a_cpu(self, tensors):
    """On a CPU the error of softmax_backward of floats follows the sizes of its sum's terms
    (docs/contract.md)."""
    refer(self, tensors)
    if self.case.operation == "softmax_backward":
        y, grad = (self.rows(tensors[name]).double() for name in ("x", "grad"))
        self.size = y * torch.maximum(grad.abs(), (grad * y).abs().sum(-1, keepdim=True))


cuda = torch.cuda
cuda.synchronize = lambda: None
cuda._sleep = lambda cycles: None
cuda.Event = Event
cuda.get_device_properties = lambda index: SimpleNamespace(
    name="NVIDIA Stopwatch", multi_processor_count=1, L2_cache_size=2**12, total_memory=2**30
)
cuda.current_stream = lambda: SimpleNamespace(cuda_stream=0)
cuda.empty_cache = cuda.reset_peak_memory_stats = lambda: None
cuda.memory_allocated = cuda.max_memory_allocated = lambda: 0
cpu_methods = ons.methods("cpu")

import bench_cuda  # noqa: E402
import gpu_cases  # noqa: E402
import gpu_loss_cases  # noqa: E402
import gpu_losses  # noqa: E402
import gpu_parts  # noqa: E402
import gpu_router_cases  # noqa: E402
import gpu_routers  # noqa: E402
import gpu_sampler  # noqa: E402
import gpu_sampler_cases  # noqa: E402

from onsoftmax.bench import case as bench_case  # noqa: E402
from onsoftmax.bench import gpu_case, gpu_contestants, gpu_timing  # noqa: E402

found = gpu_parts.installed
gpu_parts.installed = no_cupy
bench_cuda.obstacle = lambda: ""
gpu_contestants.list_methods = lambda device=None: cpu_methods
gpu_case.DEVICE = "cpu"
refer, gpu_case.Reference.expect = gpu_case.Reference.expect, refer_as_on_a_cpu
gpu_cases.CHART_ROWS, gpu_cases.CHART_LENGTHS = 8, [16, 32, 64]
gpu_cases.SMALL, gpu_cases.ACCURACY = [(1, 64), (4, 100)], [(64, 3)]
gpu_cases.TOPK = [(8, 32, 4), (4, 300, 20), (1, 5000, 7)]
gpu_cases.OTHER_AXES = [((8, 32), 0), ((2, 30, 5), 1)]
gpu_cases.CLASSES, gpu_cases.MASKED_LENGTHS = [((2, 3, 21), 1)], [100]
gpu_cases.OTHER_ROWS = gpu_cases.QUICK_OTHER_ROWS = (32, 64)
gpu_loss_cases.WITH_GRADIENT = [("float32", (16, 40))]
gpu_loss_cases.LOGPROB = gpu_loss_cases.INVARIANT_TOO = [("bfloat16", (24, 50))]
gpu_loss_cases.PAIRS_OF = [("float32", (16, 40)), ("bfloat16", (24, 50))]
gpu_loss_cases.TRAINING, gpu_loss_cases.INVARIANT_LENGTHS = [(16, 40)], []
gpu_router_cases.GROUPED = (24, 64)
gpu_router_cases.CELLS[:] = [(1, 64, 8), (24, 64, 8), (16, 48, 3)]
gpu_sampler_cases.CELLS[:] = [(1, 300), (24, 200)]
gpu_losses.warm_quack = lambda options: ""
sys.modules["quack.cross_entropy"] = SimpleNamespace(cross_entropy_fwd=quack)
sys.modules["liger_kernel.transformers.cross_entropy"] = SimpleNamespace(LigerCrossEntropyLoss=liger)
sys.modules["liger_kernel.transformers.kl_div"] = SimpleNamespace(LigerKLDIVLoss=torch.nn.KLDivLoss)
sys.modules["liger_kernel.transformers.jsd"] = SimpleNamespace(LigerJSD=liger_js)
sys.modules["flashinfer.sampling"] = FlashInfer
sys.modules["quack.topk"] = SimpleNamespace(topk=quack_topk)
gpu_timing.SAMPLE_MS = 0.05
gpu_timing.captured = lambda calls: lambda: [call() for call in calls]

if __name__ == "__main__":
    scripts = {"losses": gpu_losses, "routers": gpu_routers, "sampler": gpu_sampler}
    script = scripts.get("".join(sys.argv[1:2]))
    if script is gpu_losses:
        bench_case.GRAPH_BYTES = 5000  # between the cases, so that some are outside of a graph
    with suppress(KeyboardInterrupt):
        sys.exit(script.main(sys.argv[2:]) if script else bench_cuda.main())
