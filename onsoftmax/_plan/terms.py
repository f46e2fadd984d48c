"""The arguments that change the plan of a call, for operations that take more than a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import _core
from .. import _sample_arguments as sample_arguments
from .._divergences import check_divergence
from .._libraries.values import int_of
from .._losses import check_terms
from .._route import ALL_GROUPS, SCORES, check_names
from .text import listed

Facts = dict[str, Any]
_WITH_GRAD = "_with_grad"


@dataclass(frozen=True)
class Terms:
    """What the core needs for the plan of a call."""

    operation: str
    """The core's name of the operation."""
    core: tuple[Any, ...]
    """What csrc/python/planned.c reads."""
    arguments: dict[str, Any]
    """The arguments of the call, with their defaults. An array is True if it may also be absent, and else
    None."""


def _is_given(array: Any) -> bool:
    """Whether a call gives an array. A plan takes True or False in its place."""
    return array is not None and array is not False


def _cross_entropy(
    name: str, *, label_smoothing: float = 0.0, weight: Any = False, reduction: str = "mean"
) -> Terms:
    check_terms(label_smoothing, 0.0, reduction)
    smoothing, has_weight = float(label_smoothing), _is_given(weight)
    arguments = {"label_smoothing": smoothing, "weight": has_weight, "reduction": reduction}
    return Terms(name, (smoothing, has_weight, reduction != "none"), arguments)


def _logprob(
    name: str, *, entropy: bool = False, argmax: bool = False, rank: bool = False, topk: int = 0
) -> Terms:
    count = int_of("topk", topk)
    if count < 0:
        raise ValueError(f"topk is {topk}: expected at least 0")
    wanted = {"entropy": bool(entropy), "argmax": bool(argmax), "rank": bool(rank)}
    return Terms(name, tuple(wanted.values()), {**wanted, "topk": count})


def _divergence(name: str, *, scale: float = 1.0, reduction: str = "none") -> Terms:
    check_divergence(reduction)
    core = (False, reduction != "none", float(scale))
    return Terms(name, core, {"scale": float(scale), "reduction": reduction})


def _divergence_with_grad(name: str, *, wrt: str = "p", scale: float = 1.0, reduction: str = "none") -> Terms:
    check_divergence(reduction, wrt)
    own = name.removesuffix(_WITH_GRAD)
    if own == "kl_divergence" and wrt == "q":
        own = "reverse_kl_divergence"
    core = (True, reduction != "none", float(scale))
    return Terms(own, core, {"wrt": wrt, "scale": float(scale), "reduction": reduction})


def _route(
    name: str,
    *,
    score: str = "softmax",
    bias: Any = False,
    groups: int = 1,
    top_groups: int | None = None,
    renormalize: bool = True,
) -> Terms:
    check_names(score, "auto")
    arguments = {
        "score": score,
        "bias": _is_given(bias),
        "groups": int_of("groups", groups),
        "top_groups": None if top_groups is None else int_of("top_groups", top_groups),
        "renormalize": bool(renormalize),
    }
    core = {**arguments, "score": SCORES.index(score)}
    if top_groups is None:
        core["top_groups"] = ALL_GROUPS
    return Terms(name, tuple(core.values()), arguments)


def _sample(
    name: str,
    *,
    temperature: Any = 1.0,
    top_k: Any = 0,
    top_p: Any = 1.0,
    min_p: Any = 0.0,
    filter_apply_order: str = "top_k_first",
    return_logprob: Any = False,
) -> Terms:
    sample_arguments.check_names(filter_apply_order, "auto")
    logprob = sample_arguments.logprob_name(return_logprob)
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    numbers = {
        key: None if value is None else sample_arguments.number_of(key, value) for key, value in given.items()
    }
    of_logprob = 0 if logprob is None else 1 + sample_arguments.LOGPROBS.index(logprob)
    core = (*numbers.values(), filter_apply_order == "joint", of_logprob)
    others = {"filter_apply_order": filter_apply_order, "return_logprob": logprob or False}
    return Terms(name, core, {**numbers, **others})


_TAKES: dict[str, Callable[..., Terms]] = {
    "cross_entropy": _cross_entropy,
    "cross_entropy_with_grad": _cross_entropy,
    "logprob": _logprob,
    "kl_divergence": _divergence,
    "kl_divergence_with_grad": _divergence_with_grad,
    "js_divergence": _divergence,
    "js_divergence_with_grad": _divergence_with_grad,
    "route": _route,
    "sample": _sample,
}


def defaults_of(operation: str) -> dict[str, Any]:
    """The arguments that change the plan of an operation, with their defaults."""
    takes = _TAKES.get(operation)
    return dict(takes.__kwdefaults__ or {}) if takes else {}


def terms_of(operation: str, arguments: dict[str, Any]) -> Terms | None:
    """None for an operation that takes no such arguments."""
    known = defaults_of(operation)
    for name in arguments:
        if name not in known:
            takes = f"its plan takes {listed(list(known))}" if known else "its plan takes no such argument"
            raise TypeError(f"plan() of {operation} got the argument {name!r}: {takes}")
    return _TAKES[operation](operation, **arguments) if operation in _TAKES else None


def facts_of(array_or_shape: Any, axis: Any, operation: str, terms: Terms | None, **keywords: Any) -> Facts:
    """The core's facts of a plan."""
    if terms is None:
        return _core.plan(array_or_shape, axis, operation=operation, **keywords)
    method = keywords.get("method") or "auto"
    if method not in ("auto", "invariant"):
        raise ValueError(
            f"method is {method!r}: expected 'auto' or 'invariant', since {operation} takes no other"
        )
    axis = int_of("axis", axis)
    facts = _core.plan(array_or_shape, axis, operation=terms.operation, terms=terms.core, **keywords)
    facts["operation"] = operation
    if terms.arguments.get("topk"):
        of_k = _core.plan(
            array_or_shape, axis, **{**keywords, "operation": "softmax_topk", "k": terms.arguments["topk"]}
        )
        _add(facts, of_k)
    return facts


def _add(facts: Facts, last: Facts) -> None:
    """Adds the step of softmax_topk."""
    reads = last["reads_again"] + 1
    facts["steps"] += (
        {
            "what": f"the {last['k']} largest, by softmax_topk",
            "method": last["method"],
            "reads": reads,
            "writes": 0,
            "threads": last["threads"],
            "blocks_a_row": last.get("blocks_a_row", 0),
        },
    )
    facts["reads_again"] += reads
    for name in ("bytes_moved", "least_bytes"):
        facts[name] += last[name]
    facts["workspace_bytes"] = max(facts["workspace_bytes"], last["workspace_bytes"])
