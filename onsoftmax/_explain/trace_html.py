"""A Trace in HTML: the row on its way between memory and registers, pass by pass, and tables. No script."""

from __future__ import annotations

import html

from .._plan.table import Table, as_html, number, numbers, page, short
from .record import Floats, Record, Step
from .trace_sample import rule, tokens
from .trace_text import doubles, ending, ends, heading, parts, rescaled_d, sections

WHOLE_ROW = 24  # elements; of a longer row only the present tile is drawn

STYLE = """
.ons-trace { --edge: #8a8a8a; --read: #d9ecff; --write: #d8f3dc; max-width: 60rem }
.ons-trace .lane { display: grid; align-items: center; margin: .4rem 0; gap: .3rem .8rem;
  grid-template-columns: minmax(0, 1fr) 7rem minmax(0, 1fr) }
.ons-trace .head { font-weight: 600; border-bottom: 1px solid var(--edge) }
.ons-trace .cell { display: inline-block; border: 1px solid var(--edge); padding: 0 .35rem; margin: 1px;
  font-variant-numeric: tabular-nums }
.ons-trace .read { background: var(--read) }
.ons-trace .write { background: var(--write) }
.ons-trace .arrow { text-align: center; white-space: nowrap; font-size: .85em }
.ons-trace .away { opacity: .45 }
.ons-trace table { border-collapse: collapse; margin: .5rem 0 }
.ons-trace caption { text-align: left; font-weight: 600 }
.ons-trace td, .ons-trace th { padding: .1rem .5rem; border-bottom: 1px solid var(--edge);
  vertical-align: top }
.ons-trace pre { white-space: pre-wrap }
@media (prefers-color-scheme: dark) { .ons-trace { --read: #17344f; --write: #1d4027; --edge: #777 } }
"""


def _cell(text: str, name: str) -> str:
    return f'<span class="cell {name}">{html.escape(text)}</span>'


def _memory(trace: Record, step: Step) -> str:
    """The row's cells. The cells that the step reads or writes are marked. A step that selects shows its two
    results, and so does a draw."""
    if step.kind == "select":
        return "".join(
            _cell(f"{number(y)} at {j}", "write") for y, j in zip(step.written, step.kept_at, strict=True)
        )
    if step.kind in ("order", "filter", "renormalize"):
        return ""
    if step.kind == "draw":
        return _cell(tokens(step), "write") + _cell(number(step.written[0]), "write")
    if step.written and (trace.operation == "logsumexp" or step.kind in ("loss", "logprob", "entropy")):
        return _cell(number(step.written[0]), "write")
    if not trace.grad:
        return _cells("x", trace.row, step, step.written)
    return _cells("y", trace.row, step, step.written) + "<br>" + _cells("g", trace.grad, step, ())


def _cells(name: str, row: Floats, step: Step, written: Floats) -> str:
    """A row's cells. Numbers that the step writes replace the old ones."""
    whole = len(row) <= WHOLE_ROW
    cells = []
    for j in range(len(row)) if whole else range(step.start, step.stop):
        here = step.start <= j < step.stop
        if here and written:
            cells.append(_cell(number(written[j - step.start]), "write"))
        else:
            cells.append(_cell(short(row[j]), "read" if here and step.read else "away"))
    return "".join(cells) if whole else f"{name}[{step.start}:{step.stop}] " + "".join(cells)


def _arrow(before: tuple[int, int], step: Step) -> str:
    read, written = step.bytes_read - before[0], step.bytes_written - before[1]
    lines = [f"read {read} B &rarr;"] if read else []
    lines += [f"&larr; write {written} B"] if written else []
    return "<br>".join(lines)


def _registers(trace: Record, step: Step) -> str:
    facts = []
    if step.m is not None:
        facts.append(f"m = {short(step.m)}")
    if step.rescaled and step.d_before is not None and step.rescale is not None:
        moved = f"{number(step.d_before)} * {number(step.rescale)} = {number(rescaled_d(step))}"
        facts.append(f"d rescaled: {moved}")
    if step.d is not None:
        facts.append(f"d = {number(step.d)}")
    if step.log_d is not None:
        facts.append(f"log(d) = {number(step.log_d)}")
    if step.lse is not None:
        facts.append(f"lse = {number(step.lse)}")
    if step.s is not None:
        facts.append(f"s = {number(step.s)}")
    if step.kept:
        facts.append("largest: " + ", ".join(map(short, step.kept)))
    if step.filter:
        facts.append(f"{step.filter} keeps {rule(step)}: {step.kept_tokens} so far")
    if step.u is not None:
        facts.append(f"u = {number(step.u)}")
    if step.running:
        facts += [f"tokens: {tokens(step)}", f"running sum: {numbers(step.running)}"]
    if step.ends:
        facts += [f"in double: {doubles(step.in_double)}", f"interval: {doubles(*step.interval)}"]
        facts.append(f"its ends in {trace.dtype}: {ends(step)}")
    if step.two_doubles:
        facts.append(f"in two doubles: {doubles(*step.two_doubles)}")
    if step.note:
        facts.append(step.note)
    values = "".join(_cell(number(value), "") for value in step.p or step.exponentials or step.products)
    return "<br>".join(html.escape(fact) for fact in facts) + (f"<br>{values}" if values else "")


def fragment(trace: Record) -> str:
    """The HTML for a notebook: sequence, tables, result."""
    out = [f"<style>{STYLE}</style>", f"<pre>{html.escape(heading(trace))}</pre>"]
    before = (0, 0)
    for title, steps in sections(trace):
        out.append(f"<h4>{html.escape(title)}</h4><div class='lane'>")
        out += [f"<div class='head'>{name}</div>" for name in ("memory", "", "registers")]
        for step in steps:
            out.append(f"<div>{_memory(trace, step)}</div><div class='arrow'>{_arrow(before, step)}</div>")
            out.append(f"<div>{_registers(trace, step)}</div>")
            before = (step.bytes_read, step.bytes_written)
        out.append("</div>")
    tables = [as_html(part) for part in parts(trace) if isinstance(part, Table)]
    out.append(f"<details><summary>every number</summary>{''.join(tables)}</details>")
    out.append(f"<pre>{html.escape(ending(trace, 100))}</pre>")
    return f"<div class='ons-trace'>{''.join(out)}</div>"


def document(trace: Record) -> str:
    """The same HTML as a page of its own."""
    return page(f"{trace.method} {trace.operation} of {len(trace.row)} numbers", fragment(trace))
