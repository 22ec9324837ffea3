"""HTML page of a report, its blocks and its glossary.

A page has a headline with its numbers and sections of blocks. Blocks are HTML made by the macros of
``templates/blocks.html``; ``templates/report.html`` is the page around them, self-contained: no script, no
file, no network.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

import jinja2
from markupsafe import Markup

from scrapy_gp4c.scoring import terminals
from training.comparing.trials import SHOWN
from training.replaying.metrics import METRICS
from training.reporting.figures import Chart, inline


class Card(NamedTuple):
    """Box with a headline number of the report."""

    term: str
    value: str
    details: Sequence[str | Markup]
    verdict: str = ""
    """``better``, ``worse``, ``open`` or nothing: mark of the card."""


@dataclass
class Section:
    title: str
    lead: str | Markup = ""
    blocks: list[Markup] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass
class ReportPage:
    title: str
    headline: str
    number: str
    number_means: str
    cards: list[Card]
    sections: list[Section]
    facts: list[tuple[str, str]]
    """Pairs of name and value, such as the history's size."""
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


def render(page: ReportPage) -> str:
    """HTML of a page, with a glossary of the terms that it uses."""
    html = _environment().get_template("report.html").render(page=page, definitions={})
    used = {name: DEFINITIONS[name] for name in DEFINITIONS if f'href="#d-{name}"' in html}
    return _environment().get_template("report.html").render(page=page, definitions=used)


def defined(term: str, text: str = "") -> Markup:
    """Link from a term to its definition, which its tooltip shows too."""
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
    """HTML of a table.

    ``strong``: rows to stress; ``words``: number of leading columns with words, not numbers.
    """
    return _block("table", head, rows, caption, list(strong), words)


def figure(chart: Chart, caption: str | Markup = "") -> Markup:
    """HTML of a chart with its caption, and its numbers in a table that can be unfolded."""
    head = [chart.x_label, *(line.name for line in chart.lines)]
    rows = []
    for index, x in enumerate(chart.x):
        cells = [f"{x:g}"]
        for line in chart.lines:
            value, half = line.values[index], line.half_widths[index]
            text = "–" if math.isnan(value) else chart.text(value)
            cells.append(text if math.isnan(half) else f"{text} ± {chart.text(half)}")
        rows.append(cells)
    return _block("figure", chart.title, inline(chart), caption, table(head, rows, words=0))


def formula(math: Markup, text: str, tree: Markup, caption: str | Markup) -> Markup:
    """HTML of a score function: typeset, as text to copy, and as a tree."""
    return _block("formula", math, text, tree, caption)


def paragraph(text: str | Markup) -> Markup:
    return Markup("<p>{}</p>").format(text)


def fold_away(summary: str, *blocks: Markup) -> Markup:
    """HTML blocks under a line `summary`, folded away until clicked."""
    return Markup("<details><summary>{}</summary>{}</details>").format(summary, Markup("").join(blocks))


def heat(rows: Sequence[str], columns: Sequence[str], values: Any, caption: str) -> Markup:
    """HTML of a heat map of percentage points, by terminals X (down) and t (across), shaded by size."""
    most = max(float(abs(values).max()), 1e-9)
    cells = [[_shade(float(value), most) for value in row] for row in values]
    return _block("heat", rows, columns, cells, defined("X"), defined("t"), caption)


def _shade(value: float, most: float) -> tuple[str, float, bool]:
    """Text, strength of the shade, and sign of a cell of `heat`."""
    text = f"{100 * value:+.1f}".replace("-", "−") if abs(value) >= 0.0005 else "0"
    return text, abs(value) / most, value >= 0


def term_of(terminal: str) -> str:
    """Glossary term of a terminal: its name, unless another term has it."""
    return "terminal-p" if terminal == "p" else terminal


DEFINITIONS: Final[dict[str, tuple[str, str]]] = {
    **{
        name: (metric.heading if name in SHOWN else metric.name, f"{metric.meaning}.")
        for name, metric in METRICS.items()
    },
    "interval": (
        "± (95% interval)",
        "half width of the 95% confidence interval of the mean (Student's t): were the experiment repeated, "
        "95% of such intervals would hold the true mean.",
    ),
    "p": (
        "p value",
        "of a paired t test over the folds (over the cycles if there is one fold): how often a difference "
        "at least as large would come up if there were none. Below 0.05 counts as significant.",
    ),
    "learned": ("learned", "the score function that genetic programming (GP4C) learned on training data."),
    "baseline": (
        "baseline",
        "a published score function that needs no learning. The best one is picked on the test data "
        "itself, which is an advantage for it.",
    ),
    "oracle": ("oracle", "ranks by the truth; no ranking can find more changes in a cycle."),
    "cycle": ("cycles", "selection rounds, one a day for instance: each visits the budget's worth of pages."),
    "budget": ("budget", "visits per cycle, as a share of the pages or a count."),
    "visits": ("visits", "fetches of a page, each with one outcome."),
    "fold": ("fold", "a part of the pages that is tested on once and was not learned from then."),
    **{
        term_of(name): (name.upper() if name in terminals.PAPERS[3:] else name, f"{terminal.meaning}.")
        for name, terminal in terminals.TERMINALS["visits"].items()
    },
    "age": ("age", "score t: the page visited longest ago first."),
    "victories": ("victories", "cycles in which the learned function is significantly better (p < 0.05)."),
    "correlation": ("correlation", "Pearson's, over cycles, of the number of pages that changed."),
    "outcome": (
        "outcomes",
        "first: first copy; unchanged, changed, not modified (304): compared with the copy before; error: "
        "no answer or no success; gone: 404 or 410; excluded: forbidden by robots.txt or other rules.",
    ),
    "kind": (
        "kinds of visits",
        "new: first visit; warm-up: early visits outside the budget; panel: observed in every cycle; hub: "
        "for the new pages that it may bring; promised: due by a rule; ranked: chosen by the score function; "
        "sample: visited to learn "
        "of others; neighbour: near a sample that changed; other: asked for by the spider.",
    ),
    "hub": (
        "hubs",
        "pages that are visited for the new pages that they may bring: they have brought some since their "
        "first visit, or are start requests.",
    ),
    "delay": (
        "delay",
        "cycles from the first in which a visit could have shown the link to a page, to the page's first "
        "copy, at most: the link is taken to have been there since its finder was seen without it.",
    ),
    "hint": (
        "hints",
        "what a site says of its pages. sitemap, feed: that one has changed, by its date there; told: the "
        "same by the command scrapy gp4c hint; expires, changefreq: how long one stays as it is.",
    ),
    "holds": (
        "holds",
        "yes: pages whose change is claimed have changed more often than the site's others, by more than "
        "two standard deviations. Such hints count in the terminal hinted; others hardly, or not.",
    ),
    "right": (
        "right",
        "share of visits that found what was said: a change where one was claimed, none where none was. Of "
        "pages that hardly change, silence alone is right nearly always.",
    ),
    "pages": ("pages", "all URLs that the crawl knows, visited or not."),
    "latency": (
        "latency",
        "from sending a request to the headers of its answer, of the last attempt of every visit; politeness "
        "delays are not part of it.",
    ),
}
"""Glossary of the report: term -> its name and meaning."""
