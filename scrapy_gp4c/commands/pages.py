"""``scrapy gp4c pages`` and ``search``: the best pages by score or another column, or for a query."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.commands.action import JSON, Action, option, positive, print_table, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.crawling.measuring import SCORING
from scrapy_gp4c.crawling.neighbourhood import Neighbourhood
from scrapy_gp4c.errors import QueryLogError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.columns import Columns, is_unfetched
from scrapy_gp4c.page_state.outcomes import OUTCOMES
from scrapy_gp4c.page_state.related import RoundState
from scrapy_gp4c.page_state.rules import url_matches
from scrapy_gp4c.scoring import refresh_value
from scrapy_gp4c.scoring.ranking import draw_salt, draws_of, top_k
from scrapy_gp4c.search.index import search
from scrapy_gp4c.store.opening import SEARCH_INDEX, Store

SORTS = ("score", "changes", "last", "dq")


@dataclass(frozen=True)
class Page:
    score: float
    n: int
    X: int
    t: int
    dq: float | None
    """Search quality gained by its visits, in ppm per cycle; None: nothing was ever measured."""
    last_outcome: str
    url: str


@dataclass(frozen=True)
class Pages:
    """The best pages by one column."""

    sort: str
    pages: list[Page]
    """Best first."""


def _run(project: Project, options: Namespace) -> Pages:
    """List the best pages; memory is bounded by one block of pages (`Store.blocks`) and the pages shown."""
    with project.open_store() as store:
        return Pages(options.sort, list(_pages(project, store, options)))


def _show(best: Pages, options: Namespace) -> None:
    if not best.pages:
        say(f"no page{'' if options.match is None else f' that matches {options.match}'} was fetched yet")
        return
    measured = any(page.dq is not None for page in best.pages)
    header = ("score", "n", "X", "t", *(["dq"] if measured else []), "last outcome", "URL")
    print_table([header, *map(_row, best.pages)])


def _row(page: Page) -> tuple[str, ...]:
    gained = [] if page.dq is None else [f"{page.dq:.4g}"]
    return f"{page.score:.4g}", f"{page.n}", f"{page.X}", f"{page.t}", *gained, page.last_outcome, page.url


def _gained(block: Columns, sort: str) -> Floats | None:
    """Search quality gained by visits, ppm per cycle; not measured: None, or QueryLogError to sort by it."""
    columns, formula, _ = refresh_value.TERMINALS["dq_rate"]
    if block.keys() >= set(columns):
        return np.asarray(formula(block, 0))
    if sort == "dq":
        raise QueryLogError(
            "nothing was measured that pages could be sorted by: crawl with GP4C_QUERY_LOG, the path of a "
            "log of queries, or use another --sort"
        )
    return None


def _pages(project: Project, store: Store, options: Namespace) -> Iterator[Page]:
    shown = project.credentials.url
    best = np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0)  # pages, sorted by, scores, gained
    cycle = store.open_cycle or store.last_cycle + 1
    function, salt = project.settings.score_function, draw_salt(project.settings.seed, cycle)
    neighbourhood = Neighbourhood(store, cycle, function.columns)
    related = neighbourhood.seen_by()
    for first, block in store.blocks():
        rows = np.flatnonzero(~is_unfetched(block["n"], block["has_copy"]))
        if options.match is not None:
            requests = store.requests(rows + first)
            rows = rows[[url_matches(shown(request["url"]), options.match) for request in requests]]
        if not len(rows):
            continue
        known = neighbourhood.columns(block, slice(first, first + len(block["key"])))
        state = RoundState(known, rows, related, draws_of(block["key"], salt))
        scores, gained = function.scores(state, cycle), _gained(block, options.sort)
        dq = np.full(len(rows), np.nan) if gained is None else gained[rows]
        is_gone = state["gone"] >= project.settings.gone_after  # whatever its score, no plan asks for it
        by_score = np.where(is_gone, -np.inf, scores)
        by = {"score": by_score, "changes": state["X"], "last": state["last_attempt"], "dq": dq}[options.sort]
        merged = [np.concatenate(pair) for pair in zip(best, (rows + first, by, scores, dq), strict=True)]
        chosen = top_k(merged[1].astype(np.float64), merged[0], options.top)
        best = merged[0][chosen], merged[1][chosen], merged[2][chosen], merged[3][chosen]
    requests = store.requests(best[0])
    for page, score, dq, request in zip(
        *(one.tolist() for one in (best[0], *best[2:])), requests, strict=True
    ):
        row = store.page(page)
        t, outcome = cycle - row.last_cycle, OUTCOMES[row.outcome]
        yield Page(score, row.n, row.X, t, None if np.isnan(dq) else dq, outcome, shown(request["url"]))


PAGES = Action(
    "the best pages of a spider's store",
    _run,
    [
        option("--top", type=positive, default=20, metavar="N", help="pages to show (default: 20)"),
        option("--sort", choices=SORTS, default="score", help="best first by this (default: score)"),
        option("--match", metavar="TEXT", help="only pages whose URL has TEXT, or matches a glob"),
        JSON,
    ],
    Pages,
    _show,
)


@dataclass(frozen=True)
class RankedPage:
    """One result of a search."""

    rank: int
    score: float
    url: str


@dataclass(frozen=True)
class Search:
    """Results of a search."""

    query: str
    terms: list[str]
    """Words of the query; every result has all of them."""
    scoring: str
    indexed: int
    """Number of pages that were searched."""
    matches: int
    hits: list[RankedPage]
    """The best matching pages, best first."""


def _search(project: Project, options: Namespace) -> Search:
    with project.open_store() as store:
        answer = search(store.path / SEARCH_INDEX, options.query, SCORING, options.top)
        requests = store.requests([hit.page for hit in answer.hits])
    hits = [
        RankedPage(rank, hit.score, project.credentials.url(request["url"]))
        for rank, (hit, request) in enumerate(zip(answer.hits, requests, strict=True), 1)
    ]
    return Search(options.query, list(answer.terms), SCORING, answer.pages, answer.matches, hits)


def _show_search(answer: Search, options: Namespace) -> None:
    verb = "has" if answer.matches == 1 else "have"
    pages = f"{answer.matches:,} of {counted(answer.indexed, 'page')}"
    say(f"{pages} {verb} {' and '.join(answer.terms)}; by {answer.scoring}:")
    print_table([("rank", "score", "URL"), *((f"{h.rank}", f"{h.score:.4g}", h.url) for h in answer.hits)])


SEARCH = Action(
    "pages that a query finds, as users of a search would see them",
    _search,
    [
        option("query", metavar="QUERY", help="words that the pages must have"),
        option("--top", type=positive, default=10, metavar="N", help="pages to show (default: 10)"),
        JSON,
    ],
    Search,
    _show_search,
)
