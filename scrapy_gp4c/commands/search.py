"""``scrapy gp4c search``: which pages a query finds, by the texts that the crawl has indexed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_gp4c.commands.output import add_json, positive, print_json, print_table, say
from scrapy_gp4c.crawling.measuring import SCORING
from scrapy_gp4c.search.index import search
from scrapy_gp4c.store.opening import SEARCH_INDEX

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "pages that a query finds, as users of a search would see them"


@dataclass(frozen=True)
class RankedPage:
    """One page of the answer."""

    rank: int
    score: float
    url: str


@dataclass(frozen=True)
class Search:
    """The answer to a query."""

    query: str
    terms: list[str]
    """All of which every page of the answer has."""
    scoring: str
    indexed: int
    """Pages that were searched."""
    matches: int
    hits: list[RankedPage]
    """The best, best first."""


DOCUMENT = Search
"""Output of ``--json``."""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument("query", metavar="QUERY", help="words that the pages must have")
    parser.add_argument("--top", type=positive, default=10, metavar="N", help="pages to show (default: 10)")
    add_json(parser.add_argument)


def run(project: Project, options: Namespace) -> None:
    """Print the answer. Raises SearchIndexError where there is no index, QueryLogError for no words."""
    with project.open_store() as store:
        answer = search(store.path / SEARCH_INDEX, options.query, SCORING, options.top)
        requests = store.requests([hit.page for hit in answer.hits])
    hits = [
        RankedPage(rank, hit.score, project.credentials.url(request["url"]))
        for rank, (hit, request) in enumerate(zip(answer.hits, requests, strict=True), 1)
    ]
    if options.json:
        print_json(Search(options.query, list(answer.terms), SCORING, answer.pages, answer.matches, hits))
        return
    say(f"{answer.matches:,} of {answer.pages:,} pages have {' and '.join(answer.terms)}; by {SCORING}:")
    print_table([("rank", "score", "URL"), *((f"{h.rank}", f"{h.score:.4g}", h.url) for h in hits)])
