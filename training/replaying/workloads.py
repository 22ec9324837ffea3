"""Workloads drawn from contents: queries of people who look for these pages.

There is no public log of queries about the pages of a public history. Titles and headings are what authors
expect people to look for. A heading weighs by how long it stood, not by having changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import QueryLogError
from scrapy_gp4c.search.queries import Workload, workload
from scrapy_gp4c.words.tokens import tokens
from training.histories.contents import ContentHistory

LENGTHS: Final = (1, 2, 3)
"""Numbers of terms in a query."""
LENGTH_CHANCES: Final = (0.4, 0.4, 0.2)
TRIES: Final = 50
"""Draws per wanted query before drawing ends."""
_STOP: Final = """
a about an and are as at be by can do does for from has have how i if in into is it its more my new no not of
on or our that the their then there these this to was we what when where which why will with you your
"""
STOP_WORDS: Final = frozenset(_STOP.split())
_HEADING: Final = re.compile(r"#{1,6}\s+(.+?)\s*#*\s*$")
_TITLE: Final = re.compile(r"""title:\s*["']?(.+?)["']?\s*$""", re.I)
_UNDERLINE: Final = re.compile(r"([=\-~^\"'`*+#<>:.])\1{2,}\s*$")
_FENCE: Final = re.compile(r"\s*(```|~~~)")
_FRONT_LINES: Final = 40
"""First lines of a text, in which a title field counts."""


def headings(text: str) -> list[str]:
    """Titles and headings: ``title:`` fields at the head, ``#`` and underlined lines outside code."""
    titles = []
    before, fenced = "", False
    for number, line in enumerate(text.split("\n")):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            title = _TITLE.match(line) if number < _FRONT_LINES else None
            heading = title or _HEADING.match(line)
            if heading:
                titles.append(heading[1])
            elif before and _UNDERLINE.match(line) and len(line.rstrip()) >= len(before) > 2:
                titles.append(before)
        before = line.strip()
    return titles


class WorkloadPlan(NamedTuple):
    """Parameters of a drawn workload."""

    queries: int = 5_000
    """Distinct queries."""
    zipf: float = 0.8
    """Exponent of their frequencies: f ~ rank^-zipf."""
    seed: int = 1


def draw(contents: ContentHistory, plan: WorkloadPlan) -> Workload:
    """Draw queries: a page, a cycle, a heading of it, and a run of its tokens without stop words.

    Page and cycle are uniform. Frequencies fall with the rank in a drawn order of the distinct queries.
    Raises QueryLogError for texts without headings.
    """
    rng = np.random.default_rng(plan.seed)
    counts = {
        query: float(rank**-plan.zipf)
        for rank, query in enumerate(_shuffled(list(_distinct(contents, plan, rng)), rng), start=1)
    }
    if not counts:
        raise QueryLogError(
            f"{contents.history.source} has no title or heading (front matter, # lines, underlined lines) to "
            "draw queries from; give a log of queries"
        )
    return workload(counts)


def _shuffled(queries: list[tuple[str, ...]], rng: np.random.Generator) -> list[tuple[str, ...]]:
    return [queries[position] for position in rng.permutation(len(queries)).tolist()]


def _distinct(
    contents: ContentHistory, plan: WorkloadPlan, rng: np.random.Generator
) -> Iterator[tuple[str, ...]]:
    """Distinct sets of terms in the order of their draws."""

    @cache
    def candidates(version: int) -> list[list[str]]:
        token_lists = (tokens(heading) for heading in headings(contents.texts[version] or ""))
        without_stop_words = (
            [token for token in heading if token not in STOP_WORDS] for heading in token_lists
        )
        return [heading for heading in without_stop_words if heading]

    seen: set[frozenset[str]] = set()
    for _ in range(TRIES * plan.queries):
        if len(seen) == plan.queries:
            return
        cycle, page = rng.integers(len(contents.version)), rng.integers(contents.history.pages)
        length = int(rng.choice(LENGTHS, p=LENGTH_CHANCES))
        of_page = candidates(int(contents.version[cycle, page]))
        if not of_page:
            continue
        heading = of_page[rng.integers(len(of_page))]
        length = min(length, len(heading))
        first = rng.integers(len(heading) - length + 1)
        query = tuple(dict.fromkeys(heading[first : first + length]))
        if frozenset(query) not in seen:
            seen.add(frozenset(query))
            yield query


def knee(values: Floats) -> float:
    """Value at the knee of the falling curve of log values: farthest from its chord.

    The paper filters queries at "a knee in the distribution" of their summed TF-IDF (section 6). ``values``:
    at least 0; zeros are left out. 0 for fewer than three values.
    """
    falling = np.sort(np.log(values[values > 0]))[::-1]
    if len(falling) < 3 or falling[0] == falling[-1]:
        return 0.0
    along = np.linspace(0.0, 1.0, len(falling))
    down = (falling - falling[-1]) / (falling[0] - falling[-1])
    return float(np.exp(falling[int(np.argmax(np.abs(1.0 - along - down)))]))
