"""Promises that a page is visited at least every ``max_age``, and other rules for pages.

A page rule (`PageRule`, from `GP4C_RULES` or the meta of a request) may also hold a ``min_interval`` between
visits, a weight, or ``never``. Times become cycles by the median time between the starts of the last cycles.
A cycle dates its visits by its start, so that a daily crawl that starts some seconds early keeps a daily
interval.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.crawling.neighbourhood import KnownPages
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.rules import NO_RULE, STORED_META, PageRule, Span, rule_of, time_text
from scrapy_gp4c.policies.promises import PROMISE, needed_visits
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import CycleRecord, PromiseCounts, StoredRequest

TOLERANCE: Final = 0.01
"""Share of a span by which a visit may come early or late: cycles do not start to the second."""
INTERVALS: Final = 5
"""Number of last intervals whose median counts as the time between two cycles."""


class CycleTimes(NamedTuple):
    """Start times of cycles, s since 1970, which convert spans of time into cycles."""

    cycle: int
    """Cycle that is planned."""
    now_s: float
    starts_s: npt.NDArray[np.float64]
    """Start of each cycle from 0 to the one before `cycle`; NaN: not known."""
    interval_s: float
    """Typical time between the starts of two cycles."""

    @classmethod
    def of(cls, records: Sequence[CycleRecord], cycle: int) -> "CycleTimes":
        """Return the times for a cycle that is open or still to come, by the records of cycles so far."""
        starts_s = np.full(cycle + 1, np.nan)
        for record in records:
            if record["cycle"] <= cycle and (started := record.get("started")) is not None:
                starts_s[record["cycle"]] = started
        last = max((record["cycle"] for record in records), default=0)
        if last < cycle:
            starts_s[last + 1] = time.time()
        known = starts_s[~np.isnan(starts_s)]
        interval_s = float(np.median(np.diff(known)[-INTERVALS:])) if len(known) > 1 else 0.0
        interval_s = max(interval_s, 1.0)
        if last + 1 < cycle:  # in a forecast of several cycles
            starts_s[last + 1 :] = starts_s[last + 1] + interval_s * np.arange(cycle - last)
        now_s = time.time() if np.isnan(starts_s[cycle]) else float(starts_s[cycle])
        starts_s[starts_s > now_s] = np.nan  # the clock was ahead
        return cls(cycle, now_s, starts_s[:-1], interval_s)

    def age_s(self, last: Array) -> Array:
        """Return the seconds since the start of each of the cycles `last`; infinite where not known."""
        started_s = self.starts_s[np.minimum(last, self.cycle - 1)]
        return np.where(np.isnan(started_s) | (last <= 0), np.inf, self.now_s - started_s)

    def cycles(self, span: Span) -> int:
        """Return how many whole cycles fit into a span, at least 1."""
        return span.cycles or max(1, int(span.seconds * (1 + TOLERANCE) / self.interval_s))

    def cycles_left(self, span: Span, last: Array) -> Array:
        """Return in how many cycles a span since each of the cycles `last` will end; negative: it is over."""
        if span.cycles:
            return np.where(last <= 0, 0, last.astype(np.int64) + span.cycles - self.cycle)
        left_s = span.seconds * (1 + TOLERANCE) - self.age_s(last)
        cycles_left = np.floor(np.maximum(left_s, -1e12) / self.interval_s)
        return np.where(last <= 0, 0, np.clip(cycles_left, -(2**30), 2**30)).astype(np.int64)

    def is_over(self, span: Span, last: Array) -> Array:
        """Whether `span` is over now, counted from `last`, the cycle of each page's last visit: bool ``[P]``.

        True for pages without a visit, whose `last` is 0.
        """
        if span.cycles:
            return np.asarray((last <= 0) | (self.cycle - last >= span.cycles))
        return np.asarray(self.age_s(last) >= span.seconds * (1 - TOLERANCE))


PROMISED_PAGE: Final = np.dtype([("page", "<u4"), *PROMISE.descr, ("late_s", "<f8")])
"""Page past its warm-up with a promise (`PROMISE`), and how late its visit is, s; 0: in time."""


def promise_counts(promised: Array, visits: int, budget: int) -> PromiseCounts:
    """Return counts of promised pages (all, late, missed) for a cycle's record.

    ``promised``: pages with promises, dtype `PROMISED_PAGE`; ``visits``: number of visits planned because of
    promises; ``budget``: the most that could be.
    """
    late_s = promised["late_s"]
    due = int(np.count_nonzero(promised["is_open"] & (promised["cycles_left"] <= 0)))
    return {
        "pages": len(promised),
        "late": int(np.count_nonzero(late_s > 0)),
        "latest_s": float(late_s.max(initial=0.0)),
        "needed": needed_visits(promised["max_age"]),
        "budget": budget,
        "missed": max(0, due - visits),
    }


class PageRules:
    """Rule of each known page (`GP4C_RULES` and promises of requests), for the planning of a cycle."""

    def __init__(self, known: KnownPages, rules: Sequence[PageRule], clock: CycleTimes) -> None:
        """Find the rule of every known page by its stored request; ``rules``: of `GP4C_RULES`, in order."""
        self._rules: list[PageRule] = [NO_RULE]
        self.clock = clock
        numbers: dict[PageRule, int] = {NO_RULE: 0}
        self.number = np.zeros(known.merged_pages, np.uint32)
        for page, stored in enumerate(known.each_request(np.arange(len(self.number)))):
            rule = rule_of_request(rules, stored)
            number = numbers.setdefault(rule, len(self._rules))
            if number == len(self._rules):
                self._rules.append(rule)
            self.number[page] = number

    def at(self, cycle: int) -> "PageRules":
        """Return these rules with the clock of a later cycle, the cycles between at the typical interval."""
        later = object.__new__(PageRules)
        later._rules, later.number = self._rules, self.number
        clock = self.clock
        extra = clock.interval_s * np.arange(cycle - clock.cycle)
        starts_s = np.concatenate((clock.starts_s, clock.now_s + extra))
        later.clock = CycleTimes(
            cycle, clock.now_s + clock.interval_s * (cycle - clock.cycle), starts_s, clock.interval_s
        )
        return later

    def pages_by_rule(self) -> Counter[int]:
        """Return `PageRule.number` -> number of pages with that rule; 0: pages without a rule."""
        counts = np.bincount(self.number, minlength=len(self._rules)).tolist()
        pages: Counter[int] = Counter()
        for rule, count in zip(self._rules, counts, strict=True):
            pages[rule.number] += count
        return pages

    def rule(self, page: int) -> PageRule:
        """Return the rule of a page, by its id; `NO_RULE` if none is for it."""
        return self._rules[int(self.number[page])]

    def allowed(self, first: int, last: Array) -> npt.NDArray[np.bool_]:
        """Return which pages of a block may be visited by ``never`` and ``min_interval`` of their rules.

        ``first``: first page of the block; ``last``: cycle of each page's last visit, ``[P]``.
        """
        number = self.number[first : first + len(last)]
        allowed = np.ones(len(last), np.bool_)
        for rule_number in np.unique(number).tolist():
            rule = self._rules[rule_number]
            if rule.never or rule.min_interval is not None:
                rows = np.flatnonzero(number == rule_number)
                span = rule.min_interval
                allowed[rows] = False if rule.never or span is None else self.clock.is_over(span, last[rows])
        return allowed

    def promised(self, first: int, last: Array, is_settled: Array, allowed: Array) -> Array:
        """Return the pages of a block that have promises, without warm-up pages; dtype `PROMISED_PAGE`.

        ``first``: first page of the block; ``last``: cycle of each page's last visit, ``[P]``;
        ``is_settled``: whether it is past its warm-up; ``allowed``: whether it may be visited now.
        """
        number = self.number[first : first + len(last)]
        promises = [np.empty(0, PROMISED_PAGE)]
        for rule_number in np.unique(number[is_settled]).tolist():
            rule = self._rules[rule_number]
            if rule.max_age is None or rule.never:
                continue
            rows = np.flatnonzero((number == rule_number) & is_settled)
            of_rule = np.zeros(len(rows), PROMISED_PAGE)
            of_rule["page"], of_rule["max_age"] = rows + first, self.clock.cycles(rule.max_age)
            least = 1 if rule.min_interval is None else self.clock.cycles(rule.min_interval)
            of_rule["min_interval"] = np.minimum(least, of_rule["max_age"])
            of_rule["cycles_left"] = self.clock.cycles_left(rule.max_age, last[rows])
            of_rule["is_open"] = allowed[rows] & (last[rows] < self.clock.cycle)
            if rule.max_age.cycles:
                late_s = -of_rule["cycles_left"] * self.clock.interval_s
            else:
                age_s = self.clock.age_s(last[rows])
                late_s = np.where(np.isinf(age_s), 0.0, age_s) - rule.max_age.seconds * (1 + TOLERANCE)
            of_rule["late_s"] = np.maximum(late_s, 0.0)
            promises.append(of_rule)
        promised = np.concatenate(promises)
        return promised[np.argsort(promised["page"])]

    def weights(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
        """Return ids of the pages whose rules set a weight, and their weights."""
        weight = np.array([np.nan if rule.weight is None else rule.weight for rule in self._rules])
        pages = np.flatnonzero(~np.isnan(weight[self.number])).astype(np.uint32)
        return pages, weight[self.number[pages]]


def rule_of_request(rules: Sequence[PageRule], stored: StoredRequest) -> PageRule:
    """Return the page rule of a stored request by its meta and URL, see `rule_of`."""
    return rule_of(rules, stored["url"], stored.get("meta", {}))


def has_promise(meta: Mapping[str, Any]) -> bool:
    """Whether the meta of a request has a promise, or else a rule's tag: any key of `STORED_META`."""
    return any(name in meta for name in STORED_META)


def page_rules(store: Store, settings: Settings, cycle: int | None = None) -> PageRules | None:
    """Return the rules of the store's pages for `cycle` (None: the open or next one); None: no rules."""
    if not settings.rules and store.newest_value("promised", None) is None:
        return None
    records = store.cycles()
    cycle = cycle or store.open_cycle or store.last_cycle + 1
    return PageRules(store, settings.rules, CycleTimes.of(records, cycle))


def unmatched_warning(rules: Sequence[PageRule]) -> str:
    """Return the log line for `GP4C_RULES` rules that match no page."""
    names = ", ".join(rule.name for rule in rules)
    return (
        f"GP4C_RULES: no page matches {names}. A glob is for the complete URL, such as '*/news/*'; of "
        "several rules that match a page, the first counts. Correct the rule, or remove it."
    )


def promises_line(counts: PromiseCounts) -> str:
    """Return the line of `scrapy gp4c status` and others about the promises of a cycle."""
    pages, late = counts["pages"], counts["late"]
    by = f", {late:,} late by up to {time_text(counts['latest_s'])}" if late else ""
    return (
        f"promises: {pages - late:,} of {counted(pages, 'page')} visited in time{by}; they need "
        f"{counted(counts['needed'], 'visit')} a cycle of a budget of {counts['budget']:,}"
    )


def too_small_warning(counts: PromiseCounts) -> str | None:
    """Return the log line for a budget that cannot keep all promises; None: it can."""
    if counts["needed"] <= counts["budget"] and not counts["missed"]:
        return None
    late = (
        f"{counts['late']:,} of {counted(counts['pages'], 'page')} {'is' if counts['late'] == 1 else 'are'} "
        f"late, by up to {time_text(counts['latest_s'])}"
        if counts["late"]
        else "pages will be late"
    )
    needed = counted(counts["needed"], "visit")
    return (
        f"promises need {needed} a cycle, the budget is {counts['budget']:,}: {late}. "
        "Raise GP4C_BUDGET, crawl more often, or lengthen max_age; until then the latest come first."
    )
