"""The cases of gpu_losses.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from onsoftmax.bench.case import Case, size_of

# Parts in the order in which they run, each with its share of the time.
WEIGHTS = {"loss_and_gradient": 0.42, "loss": 0.12, "logprob": 0.1, "logprob_gradient": 0.12}
WEIGHTS |= {"few": 0.08, "invariant": 0.16, "kl": 0.1, "kl_gradient": 0.3, "js_gradient": 0.15}
# How often each part must at least read or write an array of the logits' size.
PASSES = {"loss_and_gradient": 2, "loss": 1, "logprob": 1, "logprob_gradient": 3, "few": 1, "invariant": 2}
PASSES |= {"kl": 2, "kl_gradient": 3, "js_gradient": 3}
TRAINING = [(16384, 32000), (8192, 128256), (8192, 151936), (8192, 50257)]
WITH_GRADIENT = [("bfloat16", shape) for shape in TRAINING]
WITH_GRADIENT += [("float32", (8192, 32000)), ("float32", (4096, 128256))]
WITH_GRADIENT += [("bfloat16", (32768, 1000)), ("bfloat16", (32768, 4096))]
LOGPROB = [("bfloat16", (8192, 151936)), ("bfloat16", (8192, 32000)), ("float32", (4096, 128256))]
FEW = [1, 8, 64]
# The lengths and rows of docs/performance.md#what-invariant-costs, and rows of a vocabulary.
INVARIANT_LENGTHS = [512, 1024, 1400, 4096, 16384, 32000, 128256, 262144, 300000, 524288]
INVARIANT_ROWS = [1, 64, 8192]
INVARIANT_TOO = [("bfloat16", (1, 151936)), ("bfloat16", (64, 151936)), ("bfloat16", (8192, 151936))]
INVARIANT_TOO += [("bfloat16", (8192, 50257)), ("float32", (4096, 128256))]
# These parts take two arrays of logits. SIDES says which gradients a part computes, OVER_ROWS how it reduces
# the rows. Liger's JSD has the gradient of q alone, and a mean alone.
SIDES = {"kl": ("",), "kl_gradient": ("p", "q"), "js_gradient": ("q",)}
OVER_ROWS = {"kl": "sum", "kl_gradient": "sum", "js_gradient": "mean"}
PAIRS = [(4096, 131072), (8192, 32000), (8192, 151936), (8192, 50257), (8192, 128256), (65536, 1000)]
PAIRS_OF = [("bfloat16", shape) for shape in PAIRS]
PAIRS_OF += [("float32", (8192, 32000)), ("float32", (4096, 128256))]
INVARIANT = ", invariant"  # behind the name of a contestant
REDUCTIONS = ["mean", "none"]


@dataclass(frozen=True)
class LossCase(Case):
    spread: float = 2
    """With this spread a log-probability in bfloat16, as torch has it, is still within LIMIT_PEERS_EPS."""
    reduction: str = "none"
    wrt: str = ""
    """The side of a divergence whose gradient is computed, p or q. Empty: no gradient."""

    @property
    def bytes(self) -> int:
        """The bytes of logits and gradients that a call must move. The results of rows do not count."""
        return self.passes(PASSES[self.part])

    def passes(self, count: int) -> int:
        return count * self.elements * size_of(self.dtype)

    @property
    def label(self) -> str:
        shape, is_divergence = f"{self.M}x{self.N}", self.part in SIDES
        more = self.wrt if is_divergence else "mean" if self.reduction == "mean" else ""
        return f"{shape}, {more}" if more else shape


def cases(part: str, quick: bool) -> Iterator[LossCase]:
    every = slice(None, None, 3 if quick else 1)
    if part == "loss_and_gradient":
        for dtype, shape in WITH_GRADIENT[every]:
            for reduction in REDUCTIONS[: 1 if quick else 2]:
                yield LossCase(part, shape, dtype, reduction=reduction)
    elif part == "loss":
        for shape in TRAINING[every]:
            yield LossCase(part, shape, "bfloat16", reduction="mean")
    elif part == "few":
        for (dtype, (_, N)), rows in itertools.product(LOGPROB[every], FEW):
            yield LossCase(part, (rows, N), dtype)
    elif part == "invariant":
        named = itertools.product(["float32", "bfloat16"], INVARIANT_LENGTHS[every], INVARIANT_ROWS)
        for dtype, shape in [*((dtype, (rows, N)) for dtype, N, rows in named), *INVARIANT_TOO[every]]:
            yield LossCase(part, shape, dtype)
    elif part in SIDES:
        for (dtype, shape), wrt in itertools.product(PAIRS_OF[every], SIDES[part]):
            yield LossCase(part, shape, dtype, reduction=OVER_ROWS[part], wrt=wrt)
    else:
        for dtype, shape in LOGPROB[every]:
            yield LossCase(part, shape, dtype)
