"""Tables: as plain text, wrapped to a width; on a terminal by rich, if it is installed; in HTML."""

from __future__ import annotations

import html
import math
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

GAP = "  "


@dataclass(frozen=True)
class Table:
    """Cells are text. `left` names the columns that are aligned to the left. The others go to the right."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    left: frozenset[int] = field(default_factory=lambda: frozenset({0}))


def number(value: float | None) -> str:
    """Six decimals, or six digits if the decimals would say little. The empty string for None."""
    if value is None:
        return ""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.6f}" if 1e-4 <= abs(value) < 1e6 else f"{value:.6g}"


def numbers(values: Sequence[float]) -> str:
    return " ".join(map(number, values))


def short(value: float) -> str:
    """A number as people write it: 3, not 3.000000."""
    return f"{value:.7g}"


def _words(table: Table) -> list[int]:
    """The longest word of each column."""
    lines = [table.head, *table.rows]
    return [
        max((len(word) for line in lines for word in line[i].split()), default=0)
        for i in range(len(table.head))
    ]


def _widths(table: Table, width: int) -> list[int]:
    """The columns' widths, as the cells need them. The widest are cut until all fit, but no word is cut."""
    columns, least = range(len(table.head)), _words(table)
    widths = [max(len(line[i]) for line in [table.head, *table.rows]) for i in columns]
    while sum(widths) + len(GAP) * (len(widths) - 1) > width:
        room = [i for i in columns if widths[i] > least[i]]
        if not room:
            break
        widths[max(room, key=widths.__getitem__)] -= 1
    return widths


def _line(cells: Sequence[str], widths: list[int], left: frozenset[int]) -> list[str]:
    """A row of the table as lines of text."""
    wrapped = [
        textwrap.wrap(cell, max(width, 1), break_on_hyphens=False, break_long_words=False)
        for cell, width in zip(cells, widths, strict=True)
    ]
    out = []
    for k in range(max(map(len, wrapped))):
        texts = [cell[k] if k < len(cell) else "" for cell in wrapped]
        placed = [
            text.ljust(width) if i in left else text.rjust(width)
            for i, (text, width) in enumerate(zip(texts, widths, strict=True))
        ]
        out.append(GAP.join(placed).rstrip())
    return out


def _by_rows(table: Table, width: int) -> list[str]:
    """Each row as lines of a name and a value, for a width that is too small for the columns."""
    names = max(map(len, table.head)) + len(GAP)
    lines = []
    for row in table.rows:
        lines.append("-" * width)
        for name, cell in zip(table.head, row, strict=True):
            lines += textwrap.wrap(
                cell,
                width,
                initial_indent=name.ljust(names),
                subsequent_indent=" " * names,
                break_on_hyphens=False,
                break_long_words=False,
            ) or [name]
    return lines


def plain(table: Table, width: int = 80) -> str:
    """The table as lines of at most `width` characters, if the cells' words allow it."""
    widths = _widths(table, width)
    lines = textwrap.wrap(table.title, width) if table.title else []
    if sum(widths) + len(GAP) * (len(widths) - 1) > width:
        return "\n".join([*lines, *_by_rows(table, width)])
    lines += _line(table.head, widths, table.left)
    lines.append(GAP.join("-" * each for each in widths))
    for row in table.rows:
        lines += _line(row, widths, table.left)
    return "\n".join(lines)


def as_html(table: Table) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f'<{tag} style="text-align:{"left" if i in table.left else "right"}">{html.escape(cell)}</{tag}>'
            for i, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    title = f"<caption>{html.escape(table.title)}</caption>" if table.title else ""
    head = f"<thead><tr>{cells(table.head, 'th')}</tr></thead>"
    return f'<div style="overflow-x:auto"><table>{title}{head}<tbody>{body}</tbody></table></div>'


STYLE = """
:root { color-scheme: light dark }
body { font-family: system-ui, sans-serif; margin: 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
caption { text-align: left; font-weight: 600 }
td, th { padding: .1rem .6rem; border-bottom: 1px solid #8a8a8a; vertical-align: top }
pre { white-space: pre-wrap; overflow-wrap: anywhere }
@media (max-width: 30rem) {
  body { margin: .5rem; font-size: .75rem }
  td, th { padding: .1rem .2rem }
}
"""


def page(title: str, body: str) -> str:
    """An HTML document of its own."""
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def terminal_width() -> int:
    """The width of stdout, or 80 if it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def show(parts: Sequence[Table | str]) -> None:
    """Writes tables and paragraphs to stdout: on a terminal by rich, if installed, else in plain text."""
    if not (sys.stdout.isatty() and _show_richly(parts)):
        print(paragraphs(parts, terminal_width()))


def _show_richly(parts: Sequence[Table | str]) -> bool:
    """Shows the parts by rich. False if rich is not installed."""
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table as Grid
        from rich.text import Text
    except ImportError:
        return False
    console = Console(highlight=False)
    for i, part in enumerate(parts):
        if i > 0:
            console.print()
        if isinstance(part, str):
            console.print(wrapped(part, console.width), markup=False, soft_wrap=True)
            continue
        least = _words(part)
        if sum(least) + len(GAP) * (len(least) - 1) > console.width:  # rich would leave something out
            console.print(plain(part, console.width), markup=False, soft_wrap=True)
            continue
        console.print(part.title, style="bold", markup=False)
        grid = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, len(GAP) - 1, 0, 0))
        for k, name in enumerate(part.head):
            side = "left" if k in part.left else "right"
            grid.add_column(Text(name), justify=side, min_width=least[k])
        for row in part.rows:
            grid.add_row(*map(Text, row))
        console.print(grid)
    return True


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most `width` characters. Continuation lines are indented further."""
    lines = []
    for line in text.splitlines():
        if len(line) <= width:
            lines.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(line, width, subsequent_indent=f"{indent}  ", break_on_hyphens=False)
    return "\n".join(lines)


def paragraphs(parts: Sequence[Table | str], width: int = 80) -> str:
    """Tables and paragraphs as plain text, an empty line between them."""
    return "\n\n".join(
        wrapped(part, width) if isinstance(part, str) else plain(part, width) for part in parts
    )
