"""The operators torch.ops.onsoftmax.*: their schemas, and what runs.

An operator takes the arguments of the function with its name, with two differences. The axes are a list.
The scale is a tensor, `scale`, or a number, `scale_by`. `scale_by` is a Scalar, None by default, so that
torch.compile need not look at its value. The parameters of sample are tensors too, or numbers whose names
end with `_of_all`. The losses, logprob, the divergences, route and sample have one axis, and losses.py has
what they run. gradients.py has the derivatives of the operators. fakes.py has their results without values.
calls.py has the calls by autograd and the transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, register_fake
from torch.utils._python_dispatch import _disable_current_modes

from .. import _core
from .._libraries.torch import in_mode
from .._sample_arguments import DEFAULTS, INTEGERS, PARAMETERS
from .fakes import FAKES
from .losses import IMPLEMENTATIONS, factor

try:
    LIBRARY = Library("onsoftmax", "DEF")
except RuntimeError as error:
    raise RuntimeError(
        "onsoftmax is imported a second time in this process, and torch.ops.onsoftmax belongs to the first "
        "import: start a new process, or leave the modules of onsoftmax in sys.modules"
    ) from error
_TENSORS = "Tensor? where=None, Tensor? scale=None"
_THREADS = "SymInt? num_threads=None"
_CALL = f"str method='auto', Scalar? scale_by=None, {_THREADS}"
_OF_ROWS = f"ScalarType? dtype=None, {_CALL}"
_OF_K = f"bool log=False, bool sorted=True, {_OF_ROWS}"
_TERMS = (
    "int axis, Tensor? weight=None, *, SymInt ignore_index=-100, Scalar label_smoothing=0.0, "
    f"Scalar z_loss=0.0, str reduction='mean', {_THREADS}"
)
_WANTED = "bool entropy=False, bool argmax=False, bool rank=False"
_RESULTS = "Tensor logprob, Tensor entropy, Tensor lse, Tensor argmax, Tensor rank, Tensor moments"
_SIDES = f"Tensor p_logits, Tensor q_logits, int axis, {_TENSORS}"
_OF_SIDES = f"str reduction='none', Scalar? scale_by=None, {_THREADS}"
_OF_SIDE = f"str wrt='p', {_OF_SIDES}"
_BETA = "Scalar beta=0.5"
_GIVEN = "Tensor moments, Tensor? grad_logprob, Tensor? grad_entropy, Tensor? grad_lse"
_GROUPS = "str score='softmax', SymInt groups=1, SymInt? top_groups=None"
_OF_CHOSEN = "bool renormalize=True, Scalar scale=1.0, ScalarType? index_dtype=None, str method='auto'"
_OF_EACH_ROW = ", ".join(f"Tensor? {name}=None" for name in PARAMETERS)
_OF_ALL_ROWS = ", ".join(
    f"{'SymInt' if name in INTEGERS else 'Scalar'} {name}_of_all={DEFAULTS[name]}" for name in PARAMETERS
)
_OF_TOKENS = (
    "str filter_apply_order='top_k_first', str? return_logprob=None, bool return_valid=False, "
    "str method='auto'"
)
_SCHEMAS = {
    "softmax": f"(Tensor x, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
    "log_softmax": f"(Tensor x, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
    "logsumexp": f"(Tensor x, int[] axes, {_TENSORS}, *, bool keepdims=False, {_CALL}) -> Tensor",
    "softmax_topk": f"(Tensor x, SymInt k, int[] axes, {_TENSORS}, *, {_OF_K}) -> (Tensor, Tensor)",
    "softmax_backward": f"(Tensor grad, Tensor output, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
    "log_softmax_backward": f"(Tensor grad, Tensor output, int[] axes, {_TENSORS}, *, {_OF_ROWS}) -> Tensor",
    "cross_entropy": f"(Tensor logits, Tensor target, {_TERMS}) -> (Tensor, Tensor)",
    "cross_entropy_with_grad": f"(Tensor logits, Tensor target, {_TERMS}) -> (Tensor, Tensor, Tensor)",
    "cross_entropy_backward": f"(Tensor grad, Tensor logits, Tensor target, {_TERMS}) -> Tensor",
    "logprob": f"(Tensor logits, Tensor index, int axis, *, {_WANTED}, {_THREADS}) -> ({_RESULTS})",
    "logprob_backward": f"(Tensor logits, Tensor index, {_GIVEN}, int axis, *, {_THREADS}) -> Tensor",
    "kl_divergence": f"({_SIDES}, *, {_OF_SIDES}) -> Tensor",
    "kl_divergence_with_grad": f"({_SIDES}, *, {_OF_SIDE}) -> (Tensor, Tensor)",
    "kl_divergence_backward": f"(Tensor grad, {_SIDES}, *, {_OF_SIDE}) -> Tensor",
    "js_divergence": f"({_SIDES}, *, {_BETA}, {_OF_SIDES}) -> Tensor",
    "js_divergence_with_grad": f"({_SIDES}, *, {_BETA}, {_OF_SIDE}) -> (Tensor, Tensor)",
    "js_divergence_backward": f"(Tensor grad, {_SIDES}, *, {_BETA}, {_OF_SIDE}) -> Tensor",
    "route": (
        "(Tensor logits, SymInt k, int axis, Tensor? bias=None, Tensor? where=None, *, "
        f"{_GROUPS}, {_OF_CHOSEN}, {_THREADS}) -> (Tensor, Tensor)"
    ),
    "sample": (
        f"(Tensor logits, int axis, {_OF_EACH_ROW}, Tensor? where=None, *, {_OF_ALL_ROWS}, {_OF_TOKENS}, "
        f"{_THREADS}) -> (Tensor, Tensor, Tensor)"
    ),
}
NAMES = tuple(_SCHEMAS)
for _name, _schema in _SCHEMAS.items():
    LIBRARY.define(_name + _schema)


def arrays_of(name: str) -> int:
    """The number of arguments before the axes: the arrays, and k."""
    return _SCHEMAS[name].partition(" ax")[0].count(",")


def takes_scale(name: str) -> bool:
    """Whether a mask and a scale follow the axes."""
    return _TENSORS in _SCHEMAS[name]


# ---------------------------------------------------------------- what runs


def implementation(name: str) -> Callable[..., Any]:
    """The operator on plain tensors that need no gradient. NotImplemented for other tensors."""
    if name in IMPLEMENTATIONS:
        return IMPLEMENTATIONS[name]
    function = getattr(_core, f"_{name}_of_memory")

    def of_one(
        x: Tensor,
        axes: Sequence[int],
        where: Tensor | None = None,
        scale: Tensor | None = None,
        *,
        scale_by: float | None = None,
        **keywords: Any,
    ) -> Any:
        if where is None and scale is None and scale_by is None:  # takes half the time
            return function(x, tuple(axes), **keywords)
        return function(x, tuple(axes), where=where, scale=factor(scale, scale_by), **keywords)

    def of_two(
        first: Tensor,
        second: Any,
        axes: Sequence[int],
        where: Tensor | None = None,
        scale: Tensor | None = None,
        *,
        scale_by: float | None = None,
        **keywords: Any,
    ) -> Any:
        of_rows = factor(scale, scale_by)
        return function(first, second, tuple(axes), where=where, scale=of_rows, **keywords)

    return of_one if arrays_of(name) == 1 else of_two


def _on_device(name: str) -> Callable[..., Any]:
    """The kernel for a device. Autograd and modes have had their turn, but a mode may still be active."""
    run = torch.no_grad()(implementation(name))

    def kernel(*given: Any, **keywords: Any) -> Any:
        if not in_mode():
            return run(*given, **keywords)
        with _disable_current_modes():
            return run(*given, **keywords)

    return kernel


for _name in NAMES:
    for _device in ("CPU", "CUDA"):
        LIBRARY.impl(_name, _on_device(_name), _device)


for _name, _fake in FAKES.items():
    register_fake(f"onsoftmax::{_name}", _fake, lib=LIBRARY)
