"""A Trace as tables: one table for each pass and each merge, with the columns that it needs."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Sequence

from .._plan.table import Table, number, numbers, short
from . import trace_sample
from .record import Record, Step
from .steps import OF_CHOSEN

Column = tuple[str, Callable[[Step], str]]


def _list(values: Sequence[float]) -> str:
    return " ".join(map(short, values))


def doubles(*values: float | None) -> str:
    """Doubles with 16 digits, which show an error of 2^-48."""
    return " ".join(f"{value:.16g}" for value in values if value is not None)


def ends(step: Step) -> str:
    """The rounded ends of the interval, with all digits of a float32."""
    return " ".join(f"{value:.9g}" for value in step.ends)


def _elements(trace: Record) -> Column:
    return "x", lambda step: _list(trace.row[step.start : step.stop])


def _columns(trace: Record) -> dict[str, list[Column]]:
    """The columns of each kind of step."""
    plain = trace.method == "naive"
    scaled = trace_sample.has_scale(trace)
    e = "exp(x)" if plain else "exp(z - m)" if scaled else "exp(x - m)"
    x = _elements(trace)
    z: list[Column] = [("z", lambda step: _list(step.scaled))] if scaled else []
    m: Column = ("m", lambda step: maximum(step.m))
    exponentials: Column = (e, lambda step: numbers(step.exponentials))
    total: Column = ("sum", lambda step: number(step.added))
    rescale: Column = ("rescale", lambda step: number(step.rescale))
    rescaled: Column = ("d_old * rescale", lambda step: number(rescaled_d(step)))
    d: list[Column] = [("d", lambda step: number(step.d)), ("exact d", lambda step: number(step.exact_d))]
    exact: list[Column] = [(f"exact {e}", lambda step: numbers(step.exact))]
    own_m: Column = ("their m", lambda step: maximum(step.own_m))
    part: Column = ("part", lambda step: str(step.part + 1))

    def results_as(name: str) -> list[Column]:
        return [
            (name, lambda step: numbers(step.written)),
            (f"exact {name}", lambda step: numbers(step.exact)),
        ]

    results = results_as(result_name(trace))
    s: list[Column] = [("s", lambda step: number(step.s)), ("exact s", lambda step: number(step.exact_s))]
    if trace.grad:
        inputs: list[Column] = [("y", x[1]), ("g", lambda step: _list(step.grad))]
        products: Column = ("g * y", lambda step: numbers(step.products))
        exponential: Column = ("exp(y)", lambda step: numbers(step.exponentials))
        plain_y = trace.operation == "softmax_backward"
        return {
            "total": [*inputs, *([products] if plain_y else []), total, *s],
            "merge": [part, ("its s", lambda step: number(step.own_s)), *s],
            "gradient": [*inputs, *([] if plain_y else [exponential]), s[0], *results],
        }
    log_d: Column = ("log(d)", lambda step: number(step.log_d))
    lse: Column = ("lse", lambda step: number(step.lse))
    at: Column = (f"x[{trace.target}]", lambda step: short(trace.row[trace.target or 0]))
    if trace.method == "exact":
        logarithm = [log_d] * (trace.operation != "softmax")
        tests: list[Column] = [
            ("in double", lambda step: doubles(step.in_double)),
            ("interval", lambda step: doubles(*step.interval)),
            (f"its ends in {trace.dtype}", ends),
        ]
        two: list[Column] = [("in two doubles", lambda step: doubles(*step.two_doubles))]
        in_double: list[Column] = [
            (e, lambda step: doubles(*step.exponentials)),
            total,
            ("d", lambda step: doubles(step.d)),
        ]
        return {
            "maximum": [x, own_m, m],
            "sum": [x, *in_double, *logarithm],
            "divide": [x, *tests],
            "subtract": [x, *tests],
            "value": tests,
            "two_sum": [m, ("d in two doubles", two[0][1])],
            "two_doubles": [x, *two, (f"y in {trace.dtype}", lambda step: f"{step.written[0]:.9g}")],
        }
    if trace.operation == "softmax_topk":
        kept: list[Column] = [
            ("largest", lambda step: _list(step.kept)),
            ("at", lambda step: " ".join(map(str, step.kept_at))),
        ]
        above: list[Column] = [
            ("bound", lambda step: maximum(step.bound)),
            ("above", lambda step: "" if step.passed is None else str(step.passed)),
        ]
        own: list[Column] = [("its m", own_m[1]), ("its d", lambda step: number(step.own_d))]
        return {
            "statistics": [x, m, total, rescale, d[0], *above, *kept],
            "merge": [part, *own, m, d[0], *kept],
            "select": [*kept, exponentials, *results],
        }
    return {
        "maximum": [x, *z, own_m, m],
        "sum": [x, *z, exponentials, *(exact if plain else []), total, *d],
        "statistics": [x, *z, m, exponentials, total, rescale, *([] if scaled else [rescaled]), *d],
        "merge": [
            part,
            ("its m", own_m[1]),
            ("its d", lambda step: number(step.own_d)),
            ("its rescale", lambda step: number(step.own_rescale)),
            m,
            rescale,
            rescaled,
            *d,
        ],
        "divide": [x, exponentials, *results],
        "subtract": [x, *([] if plain else [m]), log_d, *results],
        "value": [*([] if plain else [m]), d[0], log_d, *results],
        "loss": [m, d[0], log_d, lse, at, *([s[0]] if trace.label_smoothing else []), *results_as("loss")],
        "logprob": [m, d[0], log_d, lse, at, *results],
        "sum_of_logits": [x, total, s[0]],
        "second_sum": [x, m, exponentials, ("times x - m", lambda step: numbers(step.products)), total, *s],
        "entropy": [d[0], log_d, s[0], *results_as("entropy")],
        "gradient": [x, exponentials, *results],
        **trace_sample.columns(trace, e),
    }


def result_name(trace: Record) -> str:
    """The result's name in formulas."""
    if trace.sampling:
        return "logprob"
    if trace.target is not None and trace.loss is None:
        return OF_CHOSEN[trace.operation]
    return "dx" if trace.grad or trace.loss is not None else "y"


def rescaled_d(step: Step) -> float | None:
    """The d before, moved to this step's m."""
    if step.rescale is None or step.d_before is None:
        return None
    return step.d_before * step.rescale


def maximum(value: float | None) -> str:
    """A maximum as it stands in the row."""
    return "" if value is None else short(value)


WHAT = {
    "maximum": "the maximum",
    "sum": "the sum of exp(x - m)",
    "statistics": "the running (m, d)",
    "merge": "the parts' pairs, one after the other",
    "divide": "y = exp(x - m) / d",
    "subtract": "y = x - m - log(d)",
    "value": "y = m + log(d)",
    "select": "y = exp(x - m) / d of the k largest",
    "two_sum": "the sum once more, in two doubles",
    "two_doubles": "y in two doubles",
    "logprob": "logprob = x[target] - lse, lse = m + log(d)",
    "sum_of_logits": "the sum s of x",
    "second_sum": "the sum s of exp(x - m) * (x - m)",
    "entropy": "entropy = log(d) - s / d",
    **trace_sample.TITLES,
}
WHAT_OF_GRADIENT = {
    "softmax_backward": {"total": "the running sum s of g * y", "gradient": "dx = (g - s) * y"},
    "log_softmax_backward": {"total": "the running sum s of g", "gradient": "dx = g - s * exp(y)"},
}

# How the columns of a step of this kind go together: algorithm 3 of the paper, and its merge of two pairs.
FORMULA = {
    "statistics": "d_new = d_old * rescale + sum, rescale = exp(m_old - m_new)",
    "merge": "two pairs: d_new = d_old * rescale + its d * its rescale,\n"
    "           its rescale = exp(its m - m_new)",
}
# Ziv's test. In logsumexp m and log(d) may cancel.
ZIV = """\
The exact y is within {} of y in double.
If both ends of this interval round to the same {}, that is the result.
Otherwise two doubles decide."""
FORMULA_OF_GRADIENT = {"total": "s_new = s_old + sum", "merge": "two parts: s_new = s_old + its s"}


def _what_of_loss(trace: Record) -> dict[str, str]:
    """The loss and its gradient with the terms that are given."""
    a = trace.label_smoothing
    loss = "(1 - a) * (lse - x[target]) + a * (lse - s / N)" if a else "lse - x[target]"
    factor = "(1 + 2 * z_loss * lse) * " if trace.z_loss else ""
    less = "a / N less, and 1 - a less at the target" if a else "and 1 less at the target"
    lse = "" if trace.z_loss or a else ", lse = m + log(d)"
    return {
        "loss": f"loss = {loss}{' + z_loss * lse^2' if trace.z_loss else ''}{lse}",
        "gradient": f"dx = {factor}exp(x - m) / d, {less}",
    }


def title_of(trace: Record, step: Step) -> str:
    """The title of the steps of this kind."""
    what = (WHAT | _what_of_loss(trace) | WHAT_OF_GRADIENT.get(trace.operation, {}))[step.kind]
    if step.kept and step.kind != "select":
        what = what.replace("(m, d)", "(m, d) and k largest").replace("pairs", "pairs and k largest")
    if trace_sample.has_scale(trace):
        what = what.replace("x - m", "z - m")
    if trace.method == "naive":
        what = what.replace(" - m", "").replace("m + ", "")
    if trace.method == "exact" and (step.kind == "sum" or step.ends):
        what += " in double, and the interval" if step.ends else " in double"
    if step.kind == "merge":
        return f"Merge: {what.replace('pairs', 'sums') if trace.grad else what}"
    if not step.read:
        return f"On the chip: {what}"
    has_parts = trace.parts > 1 and not step.written and step.kind not in ("second_sum", "sum_of_logits")
    part = f", part {step.part + 1} of {trace.parts}" if has_parts else ""
    return f"Pass {step.passes} of {trace.passes}{part}: {what}"


def sections(trace: Record) -> list[tuple[str, list[Step]]]:
    """The steps of each pass or merge, under its title."""
    groups = itertools.groupby(trace.steps, key=lambda step: title_of(trace, step))
    return [(title, list(steps)) for title, steps in groups]


def heading(trace: Record) -> str:
    split = f" in {trace.parts} parts" if trace.parts > 1 else ""
    what = "element by element" if trace.tile == 1 else f"in tiles of {trace.tile}"
    passes = f"{trace.passes} pass{'es' * (trace.passes > 1)}"
    of = f"the {len(trace.indices)} largest of " if trace.operation == "softmax_topk" else ""
    chosen = "" if trace.target is None else f", target {trace.target}"
    chosen += f", z_loss {short(trace.z_loss)}" if trace.z_loss else ""
    chosen += f", label_smoothing a = {short(trace.label_smoothing)}" if trace.label_smoothing else ""
    memory = "y and g in memory" if trace.grad else "the row in memory"
    numbers_of = f"{of}{len(trace.row)} {trace.dtype} numbers{split}{chosen}"
    lines = [
        f"{trace.method}: {trace.operation} of {numbers_of}, {what}",
        f"{passes} over {memory}: {trace.bytes_read} bytes read, {trace.bytes_written} written",
    ]
    if trace.sampling:
        lines += trace_sample.arguments_of(trace.sampling)
    if trace_sample.has_scale(trace):
        lines.append("z = x / temperature")
    if trace.method == "exact":
        error = "2^-48 (|y| + log(d))" if trace.operation == "logsumexp" else "2^-48 |y|"
        lines.append(ZIV.format(error, trace.dtype))
    kinds = {step.kind for step in trace.steps}
    formulas = FORMULA_OF_GRADIENT if trace.grad else FORMULA
    return "\n".join(lines + [formula for kind, formula in formulas.items() if kind in kinds])


def _wrapped(name: str, text: str, width: int) -> str:
    indent = " " * 8
    return textwrap.fill(name.ljust(8) + text, width, subsequent_indent=indent, break_on_hyphens=False)


def ending(trace: Record, width: int) -> str:
    error = "the result has NaN" if math.isnan(trace.error) else f"{trace.error:.2g}"
    name_of_indices = "token" if trace.sampling else "at"
    return "\n".join(
        [
            *([] if trace.loss is None else [_wrapped("loss", number(trace.loss), width)]),
            _wrapped(result_name(trace), numbers(trace.result), width),
            *([_wrapped(name_of_indices, " ".join(map(str, trace.indices)), width)] if trace.indices else []),
            _wrapped("exact", numbers(trace.exact), width),
            *([] if trace.entropy is None else [_wrapped("entropy", number(trace.entropy), width)]),
            f"largest relative error: {error} (exact: the textbook formula in float64)",
        ]
    )


def parts(trace: Record, width: int = 80) -> list[Table | str]:
    """The whole trace as paragraphs and tables. "bytes" are the bytes read and written so far."""
    columns, numbering = _columns(trace), itertools.count(1)
    out: list[Table | str] = [heading(trace)]
    for title, steps in sections(trace):
        chosen = columns[steps[0].kind]
        counts = steps[0].kind != "merge"  # a merge moves nothing through memory
        head = ("#", *(name for name, _ in chosen), *["bytes"] * counts)
        rows, notes = [], []
        for step in steps:
            index, moved = str(next(numbering)), step.bytes_read + step.bytes_written
            rows.append((index, *(cell(step) for _, cell in chosen), *[str(moved)] * counts))
            if step.note:
                notes.append(f"Step {index}: {step.note}")
        out.append(Table(title, head, rows, frozenset({1})))
        out += notes
    return [*out, ending(trace, width)]
