"""The draw of a Trace of sample in words: the columns and titles of its steps."""

from __future__ import annotations

from collections.abc import Callable

from .._plan.table import number, numbers, short
from .record import Record, Step
from .sampling import Sampling

TITLES = {
    "order": "the tokens, p = exp(x - m) / d",
    "filter": "what the filters keep",
    "renormalize": "the kept tokens, p / the sum of the kept p",
    "draw": "the first token whose running sum is above u",
}


def has_scale(trace: Record) -> bool:
    """Whether the steps see z = x / temperature in place of x."""
    return trace.sampling is not None and trace.sampling.has_scale


def arguments_of(sampling: Sampling) -> list[str]:
    """The filters, and then the random number's arguments."""
    given = sampling.changed()
    random = [f"seed {sampling.seed}", f"offset {given.pop('offset', 0)}", "row 0"]
    order = given.pop("filter_apply_order", None)
    filters = [f"{name} {short(value)}" for name, value in given.items()] + ([order] if order else [])
    none = "no filters, so the tokens are in the order of their indices"
    return [", ".join(filters) or none, f"u by Philox from {', '.join(random)}"]


def rule(step: Step) -> str:
    """What a filter keeps, with its numbers."""
    if step.limit is None:
        return ""
    if step.of is None:
        return "the first token" if step.limit == 1 else f"the first {step.limit:.0f} tokens"
    share = f"{short(step.limit / step.of)} * {number(step.of)} = {number(step.limit)}"
    return f"the fewest with sum of p >= {share}" if step.filter == "top_p" else f"p >= {share}"


def tokens(step: Step) -> str:
    return " ".join(map(str, step.tokens))


def columns(trace: Record, exponential: str) -> dict[str, list[tuple[str, Callable[[Step], str]]]]:
    """The columns of each kind of step. `exponential` is the name of the column of exponentials."""
    running: tuple[str, Callable[[Step], str]] = ("running sum", lambda step: numbers(step.running))
    return {
        "order": [
            ("token", tokens),
            ("x", lambda step: " ".join(short(trace.row[j]) for j in step.tokens)),
            (exponential, lambda step: numbers(step.exponentials)),
            ("p", lambda step: numbers(step.p)),
            ("exact p", lambda step: numbers(step.exact)),
            running,
        ],
        "filter": [
            ("filter", lambda step: step.filter),
            ("keeps", rule),
            ("tokens", lambda step: str(step.kept_tokens)),
            ("sum of p", lambda step: number(step.mass)),
        ],
        "renormalize": [("token", tokens), ("p / sum", lambda step: numbers(step.p)), running],
        "draw": [
            ("u", lambda step: number(step.u)),
            ("token", tokens),
            ("logprob", lambda step: numbers(step.written)),
            ("exact logprob", lambda step: numbers(step.exact)),
            ("among the kept", lambda step: number(step.filtered_logprob)),
        ],
    }
