"""Softmax at the speed of memory, with each method under its own name.

>>> import onsoftmax as ons
>>> ons.softmax([1.0, 2.0, 3.0, 6.0, 2.0, 1.0], method="online").round(4)
array([0.0061, 0.0167, 0.0453, 0.9092, 0.0167, 0.0061])
"""

from __future__ import annotations

from ._cli import early as _early  # first, since all other imports take time  # noqa: F401

try:
    from ._core import (
        DeviceArray,
        get_batch_invariant,
        get_num_threads,
        log_softmax,
        log_softmax_backward,
        logsumexp,
        set_batch_invariant,
        set_num_threads,
        softmax,
        softmax_backward,
        softmax_topk,
    )
except ModuleNotFoundError as error:
    if error.name != f"{__name__}._core":
        raise
    raise ImportError(
        f"Python found onsoftmax in {__path__[0]}, and it has not been built there for this Python. "
        "To use an installed one, run Python in another directory. To build this one, "
        "run `pip install -e .` or `python setup.py build_ext --inplace` in the checkout."
    ) from None
from typing import TYPE_CHECKING

from ._describe import Method, methods, plan, show_config
from ._describe import __version__ as __version__
from ._divergences import js_divergence, js_divergence_with_grad, kl_divergence, kl_divergence_with_grad
from ._explain import explain
from ._explain.record import Step
from ._explain.trace import Trace
from ._logprob import LogProb, logprob
from ._losses import cross_entropy, cross_entropy_with_grad
from ._normalizer import Normalizer, normalizer
from ._plan import Cliff, Cost, Plan, PlanStep
from ._route import Route, route
from ._sample import sample
from ._topk import TopK, TopKWithNormalizer
from ._torch import compile as _torch_compile

if TYPE_CHECKING:
    from . import dask as dask
    from . import distributed as distributed
    from . import jax as jax
    from . import torch as torch
else:  # imported at their first use, since each imports a large library, such as torch

    def __getattr__(name):
        from importlib import import_module

        if name not in ("dask", "distributed", "jax", "torch"):
            text = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=import_module(__name__))  # Python adds "Did you mean"
        return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    # Completers read each attribute. A module that is not imported yet would import its library, or fail.
    modules = {"dask", "distributed", "jax", "torch"} & globals().keys()
    return sorted([*__all__, *modules, "__version__"])


_torch_compile.prepare()

__all__ = [
    "Cliff",
    "Cost",
    "DeviceArray",
    "LogProb",
    "Method",
    "Normalizer",
    "Plan",
    "PlanStep",
    "Route",
    "Step",
    "TopK",
    "TopKWithNormalizer",
    "Trace",
    "cross_entropy",
    "cross_entropy_with_grad",
    "explain",
    "get_batch_invariant",
    "get_num_threads",
    "js_divergence",
    "js_divergence_with_grad",
    "kl_divergence",
    "kl_divergence_with_grad",
    "log_softmax",
    "log_softmax_backward",
    "logprob",
    "logsumexp",
    "methods",
    "normalizer",
    "plan",
    "route",
    "sample",
    "set_batch_invariant",
    "set_num_threads",
    "show_config",
    "softmax",
    "softmax_backward",
    "softmax_topk",
]
