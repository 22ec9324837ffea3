"""``scrapy gp4c why``: why a page is visited, or not: its columns, score, rank and visits."""

import re
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from scrapy_gp4c.commands.action import JSON, OTHER_SETTINGS, Action, option, print_table, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.crawling.forecast import (
    PastCycle,
    forecasts,
    is_shut_out,
    pages_before,
    rank_of_page,
    rules_before,
    state_of,
    visit_history,
)
from scrapy_gp4c.crawling.messages import NO_TEXT
from scrapy_gp4c.crawling.neighbourhood import KnownPages
from scrapy_gp4c.crawling.promises import PageRules
from scrapy_gp4c.errors import UnknownPageError
from scrapy_gp4c.fingerprint import lacks_text
from scrapy_gp4c.fingerprint.copy_notes import unpack
from scrapy_gp4c.fingerprint.noise import clock_positions
from scrapy_gp4c.foreign_text import counted, printable
from scrapy_gp4c.page_state.columns import in_panel, is_awake, next_attempt, stages
from scrapy_gp4c.page_state.outcomes import OUTCOMES
from scrapy_gp4c.page_state.page_names import Moves
from scrapy_gp4c.page_state.rules import NO_RULE
from scrapy_gp4c.scoring import refresh_value, terminals
from scrapy_gp4c.store.opening import Store

NEAREST: Final = 5
_NUMBER: Final = re.compile(r"(?<![\w.])\d+\.\d+(?:e[+-]?\d+)?")
PAST_CYCLES: Final = 5
AHEAD: Final = 200
"""Most future cycles that are planned to find the next visit."""
PAGE_CYCLES: Final = 20_000_000
"""Most pages times cycles of a forecast; large stores are forecast over fewer cycles."""


@dataclass(frozen=True)
class Score:
    """The score of the page in the next cycle's first round (a policy chooses a cycle's pages in rounds)."""

    formula: str
    clock: str
    filled: str | None
    """The formula with the page's numbers: it gives `value` bit for bit. None for a callable."""
    value: float
    rank: int | None
    """Rank among the candidates, from 1; None: the page is no candidate."""
    candidates: int
    chosen: int
    """Number of candidates that the round visits."""
    cut_off: float | None
    """Score of the last candidate that is visited; None: all are."""


@dataclass(frozen=True)
class NextVisit:
    """Forecast of the page's next visit, in which all visits until then find their pages unchanged."""

    cycle: int | None
    """None: in no cycle up to `looked_until`."""
    round: int | None
    never: bool
    """Whether other pages surely always rank higher, as long as no change is found."""
    looked_until: int
    """Last cycle of the forecast."""


@dataclass(frozen=True)
class SoonerVisit:
    """Budget with which, or cycle in which, a page that is not planned would be; each None if not known."""

    budget: int | None
    """Budget, in pages, with which the next cycle would visit it; for policies of one round."""
    cycle: int | None
    """Cycle in which the page's score reaches today's cut-off."""


@dataclass(frozen=True)
class Compared:
    """Counts of the text of a page's copy that is compared, masked or left out."""

    kind: str
    """html, json, csv, xml, pdf, text, bytes, or features for the user's own."""
    words: int
    masked: int
    """Number of masked times, dates, tokens and counters."""
    left_out_words: int
    left_out: list[str]
    """Reasons why words are left out."""
    is_cut: bool
    """Whether only the head of a long page is compared."""
    clock: int
    """Number of text blocks that changed at each visit, as a clock does, and are ignored."""


@dataclass(frozen=True)
class RuleOfPage:
    """Rule of ``GP4C_RULES`` for the page, overridden by the meta of its request."""

    name: str
    max_age: str | None
    min_interval: str | None
    never: bool
    is_allowed: bool
    """Whether the rule lets the page be visited in the next cycle."""


def _rule(rules: PageRules | None, page: int, last_attempt: int) -> RuleOfPage | None:
    rule = NO_RULE if rules is None else rules.rule(page)
    if rules is None or rule == NO_RULE:
        return None
    most, least = (None if span is None else str(span) for span in (rule.max_age, rule.min_interval))
    allowed = rules.allowed(page, np.array([last_attempt]))
    return RuleOfPage(rule.name, most, least, rule.never, bool(allowed[0]))


@dataclass(frozen=True)
class Known:
    """State of a page that the store knows."""

    stage: str
    """One of the fields of `page_state.columns.Stages`."""
    panel: bool
    awake: bool
    """Whether it may be visited in the next cycle; False: it waits after failed visits."""
    next_attempt: int
    """First cycle in which the page may be visited; for a gone page, is visited again."""
    first_cycle: int
    last_visit: int
    """Cycle of the last visit with any outcome; 0: none."""
    last_outcome: str | None
    reason: str | None
    """Reason of the last outcome beside its HTTP status, such as "the same page as URL"."""
    n: int
    X: int
    no_text: bool
    """Whether its copy has no visible text."""
    compared: Compared | None
    """Counts of the copy's compared text; None: none are stored."""
    rule: RuleOfPage | None
    """None: no rule matches the page, nor has its request's meta a value."""


@dataclass(frozen=True)
class Why:
    """Explanation why a page is visited, or not, as ``--json`` prints it."""

    url: str
    cycle: int
    """Number of the next cycle, which all this is about."""
    known: Known
    terminals: dict[str, float]
    score: Score
    next_visit: NextVisit
    different: SoonerVisit
    past: list[PastCycle]
    """The last cycles, newest first."""


def _compared(packed: bytes | None) -> Compared | None:
    if packed is None:
        return None
    notes = unpack(packed)
    return Compared(
        notes.kind,
        notes.words,
        notes.masked,
        notes.left_out_words,
        list(notes.reasons),
        notes.is_cut,
        len(clock_positions(notes.learned)),
    )


def explain(project: Project, store: Store, page: int) -> Why:
    """Collect state, score, forecast and past visits of a page; raises PolicyError or ScoreError."""
    settings = project.settings
    function = settings.score_function
    rules = rules_before(store, settings)
    pages, cycle = pages_before(store, rules)
    state = state_of(pages, page, cycle, settings)
    names = terminals.ALWAYS_KNOWN + (() if settings.query_log is None else tuple(refresh_value.TERMINALS))
    values = terminals.compute(names, state, cycle, function.clock)
    numbers = {name: float(value[0]) for name, value in values.items()}
    ranking = rank_of_page(pages, page, cycle, settings, rules)
    filled = None if function.expression is None else function.expression.filled(numbers).text
    stage = stages(state, settings.warmup_visits, settings.gone_after)
    awake = is_awake(state, cycle, settings.in_every_cycle(state) & ~stage.gone)
    last_attempt = int(state["last_attempt"][0])
    known = Known(
        next(name for name in stage._fields if getattr(stage, name)[0]),
        bool(stage.settled[0] and in_panel(state["key"], settings.panel)[0]),
        bool(awake[0]),
        cycle if awake[0] else max(cycle, int(next_attempt(state)[0])),
        int(state["first_cycle"][0]),
        last_attempt,
        OUTCOMES[state["outcome"][0]] if last_attempt else None,
        store.answer(page).error,
        int(state["n"][0]),
        int(state["X"][0]),
        bool(lacks_text(state["has_copy"], state["fingerprint"])[0]),
        _compared(store.value("copies", page)),
        _rule(rules, page, last_attempt),
    )
    score = Score(
        function.formula,
        function.clock,
        filled,
        ranking.score,
        ranking.rank,
        ranking.candidates,
        ranking.chosen,
        ranking.cut,
    )
    coming, panel = _next_visit(project, pages, page, cycle, known, rules)
    different = SoonerVisit(None, None)
    if ranking.rank is not None and ranking.rank > ranking.chosen:
        budget = ranking.rank + panel if settings.policy.text == "top_k" else None
        different = SoonerVisit(budget, _waiting(project, pages, page, cycle, ranking.cut))
    url = project.credentials.url(store.request(page)["url"])
    history = visit_history(store, page, settings, PAST_CYCLES)
    return Why(url, cycle, known, numbers, score, coming, different, history)


def _next_visit(
    project: Project, pages: KnownPages, page: int, cycle: int, known: Known, rules: PageRules | None
) -> tuple[NextVisit, int]:
    """Return the forecast of the next visit, and the number of `cycle`'s visits to the control group."""
    settings = project.settings
    ahead = max(1, min(AHEAD, PAGE_CYCLES // max(1, pages.merged_pages)))
    panel = 0
    for planned in islice(forecasts(pages, cycle, settings, rules), ahead):
        number = planned.round_of(page)
        if number is not None:
            return NextVisit(planned.cycle, number, False, planned.cycle), panel
        if planned.cycle == cycle:
            panel = planned.counts["panel"]
            never = (
                known.stage == "settled"
                and rules is None
                and is_shut_out(pages, page, cycle, settings, planned.counts["budget"])
            )
            if never:
                return NextVisit(None, None, True, cycle), panel
    return NextVisit(None, None, False, cycle + ahead - 1), panel


def _waiting(project: Project, pages: KnownPages, page: int, cycle: int, cut: float | None) -> int | None:
    """Return the next cycle in which the page's score, without visits, reaches today's `cut`, or None."""
    function = project.settings.score_function
    state = state_of(pages, page, cycle, project.settings)
    if cut is None:
        return None
    reached = (later for later in range(cycle, cycle + AHEAD) if function.scores(state, later)[0] >= cut)
    return next(reached, None)


def _run(project: Project, options: Namespace) -> Why:
    with project.open_store() as store:
        return explain(project, store, find_page(project, store, options.url))


def find_page(project: Project, store: Store, url: str) -> int:
    """Return the id of the page with a URL, present or former; raises UnknownPageError with similar URLs."""
    moves = Moves(store.newest_value("moved", []))
    keys = [project.key(one) for one in (url, *moves.old_names(url))]
    page = next((page for page in map(store.find, keys) if page is not None), None)
    if page is None:
        near = nearest(project, store, url)
        suggestion = "the nearest are:\n  " + "\n  ".join(near) if near else "the store has no pages yet"
        raise UnknownPageError(f"no page of the store has the URL {url}; {suggestion}")
    if page >= store.merged_pages:
        raise UnknownPageError(
            f"{url} was found in cycle {store.last_cycle + 1}, under way: ask again when that is over"
        )
    return page


def nearest(project: Project, store: Store, url: str) -> list[str]:
    """Return the known URLs with the longest common prefix with `url`, then the longest common suffix."""
    best: list[tuple[int, int, str]] = []
    for first, block in store.blocks():
        ids = np.arange(first, first + len(block["key"]))
        known = [project.credentials.url(request["url"]) for request in store.requests(ids)]
        best += [(-_in_common(one, url), -_in_common(one[::-1], url[::-1]), one) for one in known]
        best = sorted(best)[:NEAREST]
    return [one for _, _, one in best]


def _in_common(one: str, other: str) -> int:
    differing = (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def _show(why: Why, options: Namespace) -> None:
    say(why.url)
    say(f"  next visit: {_next_visit_text(why)}")
    for line in (*_sooner_visit_texts(why), *_about(why.known)):
        say(f"  {line}")
    say()
    named = set(re.findall(r"\w+", why.score.formula))
    shown = {name: value for name, value in why.terminals.items() if options.all or name in named}
    meanings = terminals.TERMINALS["cycles" if why.score.clock == "cycles" else "visits"]
    # Minus zero is zero to people.
    rows = [(name, f"{value + 0.0:.6g}", meanings[name].meaning) for name, value in shown.items()]
    print_table([("terminal", "value", "meaning"), *rows], text_column_count=1)
    say()
    score = why.score
    parts = [score.formula]
    if score.filled is not None:
        parts.append(_NUMBER.sub(lambda number: f"{float(number[0]):.6g}", score.filled))
    value = f"{score.value + 0.0:.6g}"
    say("score       " + " = ".join([*parts, *([] if parts[-1] == value else [value])]))
    if score.rank is not None:
        cut = "" if score.cut_off is None else f", down to a score of {score.cut_off:.6g}"
        say(
            f"rank        {score.rank:,} of {score.candidates:,}; the first round of cycle {why.cycle} "
            + (f"visits the first {score.chosen:,}{cut}" if score.chosen else "visits none of them")
        )
    if why.past:
        say()
        rows = [(str(past.cycle), past.outcome or "not visited", past.why) for past in why.past]
        print_table([("cycle", "outcome", "why"), *rows], text_column_count=1)


def _about(known: Known) -> Iterator[str]:
    promised = known.rule is not None and known.rule.max_age is not None
    words = {
        "gone": f"gone (GP4C_GONE_AFTER): looked at again from cycle {known.next_attempt:,} on, or in "
        "the cycle after a link, a sitemap's claim, a hint or an import",
        "unfetched": "never fetched: its first visit is outside the budget (GP4C_NEW_PAGES)",
        "warming": "in warm-up: visited in every cycle, outside the budget (GP4C_WARMUP_VISITS)",
        "settled": "ranked by the score function" + (", and visited when its promise is due" * promised),
    }
    yield "of the panel: visited in every cycle (GP4C_PANEL)" if known.panel else words[known.stage]
    if known.rule is not None:
        yield _about_rule(known.rule)
    if known.last_outcome is not None:
        reason = f" ({printable(known.reason)})" if known.reason else ""
        yield f"last visited in cycle {known.last_visit}: {known.last_outcome}{reason}"
    if known.compared is not None:
        yield _about_copy(known.compared)
    if known.no_text:
        yield f"its copy has {NO_TEXT}"
    yield f"{counted(known.n, 'judged visit')} found {counted(known.X, 'change')}"
    if not known.awake:
        yield f"resting until cycle {known.next_attempt:,}, as its last visits failed"


def _about_rule(rule: RuleOfPage) -> str:
    pieces = [
        f"at least every {rule.max_age}" if rule.max_age else "",
        f"at most every {rule.min_interval}" if rule.min_interval else "",
        "never" if rule.never else "",
    ]
    visited = ", ".join(filter(None, pieces))
    note = "" if rule.is_allowed or rule.never else "; the next cycle is too early"
    return f"{rule.name} is for it" + (f": visited {visited}{note}" if visited else "")


def _about_copy(compared: Compared) -> str:
    pieces = [
        f"{counted(compared.words, 'word is', 'words are')} compared ({compared.kind})",
        f"{compared.masked:,} masked",
    ]
    if compared.left_out:
        pieces.append(f"{compared.left_out_words:,} left out: {', '.join(compared.left_out)}")
    if compared.clock:
        pieces.append(
            counted(
                compared.clock,
                "block that changes at each visit does not count",
                "blocks that change at each visit do not count",
            )
        )
    if compared.is_cut:
        pieces.append("only the head of the long page counts")
    return "; ".join(pieces)


def _next_visit_text(why: Why) -> str:
    coming = why.next_visit
    if coming.cycle == why.cycle:
        return f"cycle {coming.cycle}, the next one, round {coming.round}"
    if coming.cycle is not None:
        return f"cycle {coming.cycle} at the latest, if every page is found unchanged until then"
    if coming.never:
        return "never, as long as nothing changes"
    return f"not up to cycle {coming.looked_until}, if every page is found unchanged until then"


def _sooner_visit_texts(why: Why) -> Iterator[str]:
    different, cut = why.different, why.score.cut_off
    if different.budget is not None:
        pages = counted(different.budget, "page")
        yield f"in cycle {why.cycle} already with a budget of {pages} (GP4C_BUDGET)"
    if cut is not None and why.score.rank is not None and why.score.rank > why.score.chosen:
        yield f"{'or' if different.budget else 'sooner'} with a score above {cut:.6g}" + (
            "" if different.cycle is None else f", which it has by waiting until cycle {different.cycle}"
        )


WHY = Action(
    "why a page is visited, or not",
    _run,
    [
        option("url", metavar="URL", help="of the page, as the spider requests it"),
        *OTHER_SETTINGS,
        option("--all", action="store_true", help="all terminals, not those of the score alone"),
        JSON,
    ],
    Why,
    _show,
)
