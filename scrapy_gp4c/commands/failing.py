"""``scrapy gp4c failing``: pages whose last visit failed, since when, and the pages that link to them."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scrapy_gp4c.commands.action import JSON, Action, option, print_table, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.page_state.outcomes import ERROR, GONE, OUTCOMES, among
from scrapy_gp4c.page_state.rules import url_matches
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import local_time


@dataclass(frozen=True)
class FailingPage:
    """One page whose last visit failed."""

    url: str
    outcome: str
    """``error``, or ``gone`` for 404 and 410."""
    status: int | None
    """HTTP status of the last answer; None: none came, or it is not known."""
    error: str | None
    """Reason where there is no status, such as ``DNSLookupError``."""
    since: float | None
    """Time of the first failure in a row, s since 1970; None: not known."""
    failures: int
    """Failed visits in a row."""
    last_visit: int
    """Cycle of the last visit."""
    last_success: int
    """Cycle of the last visit that brought the page; 0: none."""
    found_on: str | None
    """URL of the page on which the link was found first; None: the spider's start, or unknown."""


@dataclass(frozen=True)
class FailingPages:
    """Pages whose last visit failed, those that fail longest first."""

    pages: list[FailingPage]


def _run(project: Project, options: Namespace) -> FailingPages:
    with project.open_store() as store:
        pages = _failing(project, store, options.match)
        return FailingPages(sorted(pages, key=lambda page: (-page.failures, page.url)))


def _show(failing: FailingPages, options: Namespace) -> None:
    if not failing.pages:
        say(f"no page{'' if options.match is None else f' that matches {options.match}'} fails")
    else:
        rows = [
            (
                page.error or str(page.status or page.outcome),
                local_time(page.since),
                str(page.failures),
                str(page.last_success or "-"),
                page.found_on or "-",
                page.url,
            )
            for page in failing.pages
        ]
        print_table([("answer", "since", "failures", "last success in cycle", "found on", "URL"), *rows])


def _failing(project: Project, store: Store, match: str | None) -> Iterator[FailingPage]:
    names = ("failures", "outcome", "last_attempt", "last_cycle", "found_by", "has_copy")
    for first, block in store.blocks(names):
        rows = np.flatnonzero(among(block["outcome"], (ERROR, GONE)))
        requests = store.requests(rows + first)
        for row, request in zip(rows.tolist(), requests, strict=True):
            url = project.credentials.url(request["url"])
            if match is not None and not url_matches(url, match):
                continue
            finder = int(block["found_by"][row]) - 1  # 0 stands for unknown
            answer = store.answer(row + first)
            is_page = 0 <= finder < store.merged_pages and finder + 1 != START
            yield FailingPage(
                url,
                OUTCOMES[block["outcome"][row]],
                answer.status,
                answer.error,
                answer.since_s,
                max(answer.failures, int(block["failures"][row])),  # imported pages have no answer
                int(block["last_attempt"][row]),
                int(block["last_cycle"][row]) if block["has_copy"][row] else 0,
                project.credentials.url(store.request(finder)["url"]) if is_page else None,
            )


FAILING = Action(
    "pages whose last visits failed, and which page links there",
    _run,
    [option("--match", metavar="GLOB", help="only pages whose URL matches"), JSON],
    FailingPages,
    _show,
)
