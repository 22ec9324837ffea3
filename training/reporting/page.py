"""What all reports share: the page, its blocks and definitions (`training.report` is the command).

A report is a `Page`: a headline with its numbers and sections of blocks. Blocks are HTML made by the
macros of ``templates/blocks.html``; ``templates/report.html`` is the page around them, self-contained: no
script, no file, no network.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.store.whole_files import replacing
from training.reporting import svg
from training.reporting.charts import Chart
from training.reporting.glossary import DEFINITIONS


class Card(NamedTuple):
    """A headline number."""

    term: str
    value: str
    details: Sequence[str | Markup]
    verdict: str = ""
    """``better``, ``worse``, ``open`` or nothing: how the card is marked."""


@dataclass
class Section:
    """A titled part of a report."""

    title: str
    lead: str | Markup = ""
    blocks: list[Markup] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Its address within the page."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass
class Page:
    """A report."""

    title: str
    headline: str
    number: str
    """The headline number, as shown."""
    number_means: str
    cards: list[Card]
    sections: list[Section]
    facts: list[tuple[str, str]]
    """What it is about: name and value."""
    created: str


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("training.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["defined"] = defined
    return environment


def render(page: Page) -> str:
    """The page as one HTML file; its glossary has every term that it uses."""
    html = _environment().get_template("report.html").render(page=page, definitions={})
    used = {name: DEFINITIONS[name] for name in DEFINITIONS if f'href="#d-{name}"' in html}
    return _environment().get_template("report.html").render(page=page, definitions=used)


def defined(term: str, text: str = "") -> Markup:
    """A term that leads to its definition; pointing at it shows the definition too."""
    name, meaning = DEFINITIONS[term]
    return Markup('<a class="term" href="#d-{}" title="{}">{}</a>').format(term, meaning, text or name)


def _block(name: str, *arguments: Any, **named: Any) -> Markup:
    module: Any = _environment().get_template("blocks.html").module
    return Markup(getattr(module, name)(*arguments, **named))


def table(
    head: Sequence[str | Markup],
    rows: Sequence[Sequence[str | Markup]],
    caption: str | Markup = "",
    *,
    strong: Sequence[int] = (),
    words: int = 1,
) -> Markup:
    """A table. ``strong``: rows to stress; ``words``: leading columns that hold words, not numbers."""
    return _block("table", head, rows, caption, list(strong), words)


def figure(chart: Chart, caption: str | Markup = "") -> Markup:
    """A chart with its caption, and its numbers in a table that can be unfolded."""
    head = [chart.x_label, *(line.name for line in chart.lines)]
    rows = []
    for index, x in enumerate(chart.x):
        cells = [f"{x:g}"]
        for line in chart.lines:
            value, half = line.values[index], line.half_widths[index]
            text = "–" if math.isnan(value) else chart.text(value)
            cells.append(text if math.isnan(half) else f"{text} ± {chart.text(half)}")
        rows.append(cells)
    return _block("figure", chart.title, svg.chart(chart), caption, table(head, rows, words=0))


def formula(math: Markup, text: str, tree: Markup, caption: str | Markup) -> Markup:
    """A score function: typeset, as text to copy, and as a tree."""
    return _block("formula", math, text, tree, caption)


def paragraph(text: str | Markup) -> Markup:
    """One paragraph."""
    return Markup("<p>{}</p>").format(text)


def fold_away(summary: str, *blocks: Markup) -> Markup:
    """Blocks that can be unfolded."""
    return Markup("<details><summary>{}</summary>{}</details>").format(summary, Markup("").join(blocks))


def heat(
    rows: Sequence[str], columns: Sequence[str], values: Any, row_term: str, column_term: str, caption: str
) -> Markup:
    """A table of differences in percentage points, shaded by sign and size."""
    most = max(float(abs(values).max()), 1e-9)
    cells = [[_shade(float(value), most) for value in row] for row in values]
    return _block("heat", rows, columns, cells, defined(row_term), defined(column_term), caption)


def _shade(value: float, most: float) -> tuple[str, float, bool]:
    """Text, strength of the shade, and sign of a cell."""
    text = f"{100 * value:+.1f}".replace("-", "−") if abs(value) >= 0.0005 else "0"
    return text, abs(value) / most, value >= 0


def write_report(page: Page, path: Path) -> None:
    """Write the page; a file appears only when it is complete. Raises HistoryError if it cannot be."""
    html = render(page)
    try:
        with replacing(path) as file:
            file.write(html.encode())
    except OSError as error:
        raise HistoryError(f"cannot write {path}: {error.strerror}; choose another file with -o") from error
