"""The result of explain(): a Trace, which is a Record that shows itself as text, HTML or a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._plan.table import paragraphs
from .record import Record
from .trace_html import document, fragment
from .trace_text import parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Trace(Record):
    """All steps of one method on one row. Use `print(trace)` or `trace.plot()`. A notebook draws it."""

    def to_html(self) -> str:
        """The trace as an HTML document, with the row on its way between memory and registers."""
        return document(self)

    def plot(self) -> Figure:
        """A matplotlib figure: m and d over the steps with the rescales marked, and the result. For a
        gradient s is in the place of m and d.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        from .trace_plot import figure

        return figure(self)

    def __str__(self) -> str:
        return paragraphs(parts(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return fragment(self)
