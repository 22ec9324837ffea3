"""``scrapy gp4c plan``: pages that the next cycle would visit; options override settings."""

from argparse import Namespace
from collections import Counter
from dataclasses import dataclass

import numpy as np

from scrapy_gp4c.commands.action import JSON, OTHER_SETTINGS, Action, option, print_table, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.crawling.forecast import forecast, pages_before, rules_before
from scrapy_gp4c.crawling.promises import promises_line
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.outcomes import KINDS
from scrapy_gp4c.store.records import PromiseCounts

PLANNED = ("promised", "hub", "ranked", "warmup", "panel", "recheck", "new")
SITES = 20
"""Most sites in the printed table; JSON has all."""


@dataclass(frozen=True)
class Site:
    """Numbers of one site's planned pages: of all, and by the kind of visit that they are planned for."""

    site: str
    pages: int
    promised: int
    hub: int
    ranked: int
    warmup: int
    panel: int
    recheck: int
    new: int


@dataclass(frozen=True)
class PlannedPage:
    """One page of the plan."""

    url: str
    kind: str
    round: int
    score: float | None
    """Score by which it was chosen; None: it was not chosen by score."""


@dataclass(frozen=True)
class Plan:
    """The plan of the next cycle."""

    cycle: int
    known: int
    budget: float
    budget_pages: int
    """Visits to promised pages, hubs, panel and ranked pages that the budget allows."""
    score_function: str
    formula: str
    policy: str
    rounds: int
    pages: int
    kinds: dict[str, int]
    sites: list[Site]
    """All sites with planned pages, those with most pages first."""
    promises: PromiseCounts | None
    """Promises about pages; None: no page has one."""
    urls: list[PlannedPage] | None
    """Pages in the order of the plan; None without ``--urls``."""


def _show(plan: Plan, options: Namespace) -> None:
    say(
        f"cycle {plan.cycle} would visit {plan.pages:,} of {counted(plan.known, 'page')}: budget "
        f"{plan.budget:g} ({counted(plan.budget_pages, 'page')}), score function {plan.score_function}, "
        f"policy {plan.policy}"
    )
    if plan.rounds > 1:
        say("Rounds after the first are planned as if every visit before found its page unchanged.")
    if plan.promises is not None:
        say(promises_line(plan.promises))
    say()
    print_table(
        [("kind", "pages"), *((kind, f"{count:,}") for kind, count in plan.kinds.items())],
        text_column_count=1,
    )
    say()
    counts = [tuple(f"{getattr(site, name):,}" for name in ("pages", *PLANNED)) for site in plan.sites]
    rows = [(*row, site.site) for row, site in zip(counts, plan.sites, strict=True)]
    print_table([("pages", *PLANNED, "site"), *rows[:SITES]])
    if len(rows) > SITES:
        say(f"and {counted(len(rows) - SITES, 'site')} more (--json has all)")
    if plan.urls is not None:
        say()
        pages = [
            (str(page.round), page.kind, "-" if page.score is None else f"{page.score:.4g}", page.url)
            for page in plan.urls
        ]
        print_table([("round", "kind", "score", "URL"), *pages])


def _run(project: Project, options: Namespace) -> Plan:
    settings = project.settings
    with project.open_store() as store:
        rules = rules_before(store, settings)
        pages, cycle = pages_before(store, rules)
        expected = forecast(pages, cycle, settings, rules)
        rows = expected.plan
        rounds = np.repeat(np.arange(1, len(expected.rounds) + 1), [len(one) for one in expected.rounds])
        sites: dict[str, Counter[str]] = {}
        urls = []
        requests = store.each_request(rows["page"])
        for request, row, number in zip(requests, rows, rounds.tolist(), strict=True):
            url, kind = project.credentials.url(request["url"]), KINDS[row["kind"]]
            sites.setdefault(place_of_url(url).site, Counter())[kind] += 1
            if options.urls:
                score = float(row["score"])
                urls.append(PlannedPage(url, kind, number, None if np.isnan(score) else score))
    counts = [Site(name, of.total(), *(of[kind] for kind in PLANNED)) for name, of in sites.items()]
    kinds = np.bincount(rows["kind"], minlength=len(KINDS)).tolist()
    return Plan(
        cycle,
        pages.merged_pages,
        settings.budget,
        sum(expected.counts[name] for name in ("budget", "panel", "hub"))
        + expected.counts.get("promised", 0),
        settings.score_function.text,
        settings.score_function.formula,
        settings.policy.text,
        len(expected.rounds),
        len(rows),
        {kind: kinds[KINDS.index(kind)] for kind in PLANNED},
        sorted(counts, key=lambda site: (-site.pages, site.site)),
        expected.counts.get("promises"),
        urls if options.urls else None,
    )


PLAN = Action(
    "what the next cycle would visit",
    _run,
    [
        *OTHER_SETTINGS,
        option("--urls", action="store_true", help="list the pages, the first to visit first"),
        JSON,
    ],
    Plan,
    _show,
)
