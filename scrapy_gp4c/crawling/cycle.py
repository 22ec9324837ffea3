"""Open cycle of a crawl: pages to visit, visits under way, their outcomes, and their delivery.

Both Scrapy components work on it: the scheduler claims and sends visits, the middleware ends them with an
outcome. It knows neither queues nor responses.

A visit is *delivered* when its callback has ended and its items have left the pipelines, without failure.
Until the end of both it is *held*: it is not in the store, so that a killed run visits the page again. A
visit whose callback or pipeline failed is recorded with its outcome, but the next one is due in the next
cycle, and compared with the copy that was delivered last. Items are so delivered at least once.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import secrets
import time
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from scrapy import Request
from scrapy.http import Response
from scrapy.statscollectors import StatsCollector

from scrapy_gp4c.archive.differences import differences, shown
from scrapy_gp4c.crawling.archiving import Archive, PreviousText, is_far, no_text
from scrapy_gp4c.crawling.claim_files import mail_seconds_of
from scrapy_gp4c.crawling.hidden_data import NO_ITEMS, HiddenData
from scrapy_gp4c.crawling.measuring import Measuring
from scrapy_gp4c.crawling.neighbourhood import columns_in_order
from scrapy_gp4c.crawling.planning import (
    MAX_WAIT_S,
    PlannedRound,
    Planner,
    note_recovery,
    still_left_alone,
)
from scrapy_gp4c.crawling.promises import PageRules, page_rules, rule_of_request
from scrapy_gp4c.crawling.repeats import Repeats
from scrapy_gp4c.crawling.reports import report_of, sampled_counts
from scrapy_gp4c.crawling.requests import FOLLOWS, META, NEEDS_CALLBACK, UNKNOWN_FINDER, Claim, site_of
from scrapy_gp4c.errors import ExpressionError, Gp4cError, PolicyError, ScoreError, SettingsError, StoreError
from scrapy_gp4c.fingerprint import PageReading, distance, is_changed
from scrapy_gp4c.fingerprint.copy_notes import unpack, with_sums
from scrapy_gp4c.foreign_text import counted, foreign_safe_logger
from scrapy_gp4c.page_state.columns import LINKED_FAILURES, PageRow, is_unfetched
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.outcomes import (
    CHANGED,
    DOUBTFUL,
    EXCLUDED,
    FAILED,
    FIRST,
    JUDGED,
    KINDS,
    NO_DISTANCE,
    NOT_MODIFIED,
    OUTCOMES,
    UNCHANGED,
    among,
)
from scrapy_gp4c.page_state.page_names import Moves
from scrapy_gp4c.page_state.rules import NO_RULE, PageRule
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import CycleVisits, Pages, Planned
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.first_visits import FirstVisits
from scrapy_gp4c.scoring.ranking import places_in_order
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import NO_ANSWER, CycleRecord, LastAnswer, NewVisit, PlanCounts, StoredRequest

logger = foreign_safe_logger(__name__)

PREVIOUS: Final = "previous_text"
HELD_OUTCOMES: Final = frozenset({"first", "changed", "unchanged", "not_modified"})
"""Outcomes of visits that are held until their callback has ended, as it gets the page."""
UNFLUSHED: Final = "unflushed.json"
"""File in the store's directory: time, s since 1970, from which on feeds may lack items of a killed run."""


_ADDONS_FIELDS: Final = frozenset(("page", "opted_out"))
"""Fields of results that the add-on reads for any request that a callback yields."""


class VisitInfo(dict[str, object]):
    """Result of a response's visit: what `scrapy_gp4c.visit` returns, and ``response.meta["gp4c"]``.

    A response that is no visit has one too, with `managed` False; as not compared, it counts as new.
    """

    def __init__(self, result: Any = (), text: str | None = None, previous: PreviousText = no_text) -> None:
        super().__init__(result)
        self.setdefault("managed", False)
        self._text, self._previous = text, previous
        self.held: HeldVisit | None = None
        self.is_used = False
        """Whether a callback got the response, did not ask for this result, and did not fail."""
        self.fingerprint: int | None = None
        """Fingerprint of the text, of a doubtful answer."""

    def __getitem__(self, name: str) -> object:
        self.is_used &= name in _ADDONS_FIELDS
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.is_used &= name in _ADDONS_FIELDS
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self.is_used = False  # by `dict(info)`, too
        return super().__iter__()

    def items(self) -> Any:
        self.is_used = False
        return super().items()

    def __missing__(self, name: str) -> object:
        if name != PREVIOUS:
            raise KeyError(name)
        self[name] = self._previous()
        return self[name]

    def get(self, name: str, default: object = None) -> object:
        """Return the value of a field; `dict.get` would not read ``previous_text`` from the archive."""
        self.is_used &= name in _ADDONS_FIELDS
        return self[name] if name == PREVIOUS else super().get(name, default)

    @property
    def managed(self) -> bool:
        """Whether the response is a visit of a page in the store; False of a POST, say."""
        return super().get("managed") is True

    @property
    def outcome(self) -> str | None:
        """One of `scrapy_gp4c.page_state.outcomes.OUTCOMES`; None of a response that is no visit."""
        outcome = self.get("outcome")
        return outcome if isinstance(outcome, str) else None

    @property
    def doubtful(self) -> str | None:
        """Reason to doubt that the answer is the page, and no block or login; None: there is none."""
        reason = super().get("doubtful")
        return reason if isinstance(reason, str) else None

    @property
    def is_new(self) -> bool:
        """Whether nothing of the page was delivered before; True of a response that is no visit."""
        return not self.managed or self.outcome == "first"

    @property
    def changed(self) -> bool | None:
        """Whether the page changed since the copy that was delivered last; None: not compared with one."""
        changed = self.get("changed")
        return changed if isinstance(changed, bool) else None

    @changed.setter
    def changed(self, changed: bool) -> None:
        """Set whether the page changed, in place of what the fingerprint says, as the spider knows better."""
        self["changed"] = bool(changed)
        if self.held is not None:
            self.held.verdict = bool(changed)

    @property
    def unchanged(self) -> bool:
        """Whether the page was compared with the copy delivered last, and has not changed."""
        return self.changed is False

    @property
    def distance(self) -> int | None:
        """Number of bits in which the fingerprints of page and copy differ; None: they were not compared."""
        distance = self.get("distance")
        return distance if isinstance(distance, int) else None

    @property
    def previous_text(self) -> str | None:
        """Text of the copy that was delivered last; None without an archive, or without that text in it."""
        text = self[PREVIOUS]
        return text if isinstance(text, str) else None

    def diff(self) -> str:
        """Return the words in which the text differs from `previous_text`, one line per difference.

        A line reads ``[-gone-] {+new+}``; "" where nothing differs, or one of the two texts is not known.
        """
        before = self.previous_text
        if before is None or self._text is None:
            return ""
        return "\n".join(shown(differences(before, self._text)))

    def withdraw(self, reason: str = "") -> None:
        """Declare, with a `reason`, that this answer is not the page but, say, a captcha.

        The visit counts as an error, and the page is due in the next cycle.
        """
        self["changed"] = None
        if self.held is not None:
            self.held.withdrawn = reason or "withdrawn by the spider"

    def __reduce__(self) -> tuple[type[dict[str, object]], tuple[dict[str, object]]]:
        return dict, (dict(super().items()),)  # a request in a disk queue holds a plain dict


def visit(response: Response) -> VisitInfo:
    """Return the result of the visit that `response` ended; for other responses one with `managed` False."""
    request = response.request
    info = None if request is None else request.meta.get(META)
    if isinstance(info, VisitInfo):
        info.is_used = False
        return info
    unmanaged = VisitInfo(info if isinstance(info, dict) else ())
    if request is not None:
        request.meta[META] = unmanaged
    return unmanaged


def is_of_page(mark: Any, page: int) -> bool:
    """Whether `mark`, the value of a request's ``meta["gp4c"]``, is the result of a visit of `page`.

    A request has that mark if its meta is a copy of the visit's ``response.meta``.
    """
    return isinstance(mark, dict) and mark.get("page") == page


def outcome_of(
    reading: PageReading, before: int | None, distance_bits: int, rule: PageRule, previous: PreviousText
) -> tuple[str, int | None]:
    """Return the outcome of a visit by the reading of the page, and the distance from its copy, in bits.

    ``before``: fingerprint of the stored copy, None: a first visit; ``distance_bits``: least distance of a
    changed page; ``previous``: returns the copy's text, for a `rule` with a least number of words.
    """
    if before is None:
        return "first", None
    changed = is_changed(reading.fingerprint, before, distance_bits)
    if changed and rule.distance is not None:
        changed = is_far(rule.distance, previous(), reading.text)
    return ("changed" if changed else "unchanged"), distance(reading.fingerprint, before)


def with_outcome(before: dict[str, Any], outcome: str, bits: int | None) -> dict[str, Any]:
    """Return a copy of `before`, the result as known before a visit, with the fields that the visit gives."""
    judged, changed = OUTCOMES.index(outcome) in JUDGED, outcome == "changed"
    return {
        **before,
        "outcome": outcome,
        "changed": changed if judged else None,
        "distance": bits,
        "n": before["n"] + judged,
        "X": before["X"] + changed,
    }


@dataclasses.dataclass(slots=True, eq=False)
class HeldVisit:
    """A visit with a response whose callback or items may not have ended: it is not yet in the store."""

    claim: Claim
    row: PageRow
    """Columns of the page before the visit."""
    visit: NewVisit
    info: VisitInfo
    reading: PageReading | None
    read_hints: Callable[[], None]
    """Function that stores what the answer says of when pages changed, see `scrapy_gp4c.crawling.hints`."""
    request: Request | None = None
    validators: tuple[str | None, str | None] | None = None
    """ETag and Last-Modified of the copy; None: they stay as they are."""
    is_reached: bool = False
    """Whether the response came to the spider."""
    failure: str | None = None
    markup_sum: Callable[[], int] = lambda: 0
    """Function for the checksum of data and links in the markup; 0: not known."""
    item_sum: int = 0
    """Checksum of the items that the callback has yielded so far."""
    lacks_file: bool = False
    """Whether a pipeline could not download a file of its items."""
    hidden_part: str | None = None
    """Part of the answer (`BODY`, `HEADERS`, ...) that differed though the text did not; None: no part."""
    withdrawn: str | None = None
    """Why the answer is not the page, as the spider said by `VisitInfo.withdraw`."""
    is_doubted: bool = False
    """Whether later answers of the site have shown that this one is not the page."""
    verdict: bool | None = None
    """Whether the page changed, as the spider set `VisitInfo.changed`; None: it did not set it."""


class Undelivered(NamedTuple):
    """A page whose last visits failed in a callback or pipeline, and the copy that was delivered last."""

    failures: int
    """Number of undelivered visits in a row."""
    fingerprint: int | None
    """Fingerprint of the copy that was delivered last; None: not known, or there is none."""
    found_cycle: int
    """Number of the cycle that fetched that copy."""
    is_new: bool
    """Whether no copy was ever delivered."""
    key: int
    """Key of the page: page numbers change where pages are forgotten."""


class Deliveries:
    """Pages whose last visits were not delivered, as a callback or pipeline failed or the run was killed."""

    def __init__(self, store: Store, is_resumed: bool, redeliver: int, gone_after: int) -> None:
        """Read the undelivered pages from the records of cycles.

        ``is_resumed``: whether an earlier run began the open cycle; ``redeliver``: failures in a row after
        which a visit counts as delivered; ``gone_after``: answers of 404 in a row after which a page is gone.
        """
        self._store = store
        self._redeliver = redeliver
        self.again: set[int] = set()
        """Pages visited in this cycle whose items may be lost: a run was killed before its feeds closed."""
        self.pages: dict[int, Undelivered] = {}
        self._used: dict[int, Undelivered] = {}
        """Pages that were delivered in this run -> their entries before."""
        self._is_changed = False
        self._flag = store.path / UNFLUSHED
        records: list[CycleRecord] = [{}, {}, *store.cycles(max(1, store.last_cycle - 1))]
        last = records[-1] if is_resumed else records[-2]
        self._read(last.get("undelivered", {}))
        self._add_visits_since(self._unflushed_since())
        # A gone page is visited when gone pages are, and its items are delivered if it comes back.
        self.due = frozenset(page for page in self.pages if store.page(page).gone < gone_after)
        if self.pages:
            self._is_changed = True
            self.save()

    def _read(self, entries: dict[str, list[Any]]) -> None:
        for name, values in entries.items():
            entry = Undelivered(*values)
            page: int | None = int(name)
            if int(name) >= self._store.pages or self._store.page(int(name)).key != entry.key:
                page = self._store.find(entry.key)
            if page is not None:
                self.pages[page] = entry

    def _unflushed_since(self) -> float | None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            return float(json.loads(self._flag.read_text("utf-8"))["since"])
        return None

    def _add_visits_since(self, since_s: float | None) -> None:
        """Treat visits from `since_s` on as undelivered, as a kill lost their items; None: it lost none."""
        if since_s is None:
            return
        answered = (FIRST, CHANGED, UNCHANGED, NOT_MODIFIED)
        visits = self._store.open_visits()
        lost = visits["page"][(visits["time"] >= since_s) & among(visits["outcome"], answered)]
        self.again.update(lost.tolist())
        last = self._store.last_cycle
        if len(visits) or not last:
            return
        for _, visits in self._store.visits(last):
            rows = visits[(visits["time"] >= since_s) & among(visits["outcome"], answered)]
            for page, outcome in zip(rows["page"].tolist(), rows["outcome"].tolist(), strict=True):
                if page not in self.pages:
                    key = self._store.page(page).key
                    self.pages[page] = Undelivered(0, None, 0, outcome == FIRST, key)

    def flag_feeds(self) -> None:
        """Write the flag file: a kill from now on loses items, as feeds are complete only at a run's end."""
        if self._unflushed_since() is None:
            self._flag.write_text(json.dumps({"since": time.time()}), "utf-8")

    def unflag_feeds(self) -> None:
        """Remove the flag file, as all feeds are complete."""
        self._flag.unlink(missing_ok=True)

    def copy_of(self, page: int, row: PageRow) -> PageRow | None:
        """Return `row`, the page's columns, with the copy that was delivered last; None: it is not known."""
        entry = self.pages.get(page)
        if entry is None:
            return row
        if entry.fingerprint is None:
            return None
        return row._replace(fingerprint=entry.fingerprint, found_cycle=entry.found_cycle, has_copy=True)

    def note(self, held: HeldVisit, shown_url: str) -> None:
        """Note whether a visit was delivered; too many failures in a row make its page count as delivered."""
        page, row = held.claim.page, held.row
        entry = self.pages.get(page)
        if held.failure is None and held.withdrawn is None:
            if entry is not None and not held.is_doubted:
                self._used[page] = self.pages.pop(page)
                self._is_changed = True
            return
        self._is_changed = True
        if entry is None:
            known = row.fingerprint if row.has_copy else None
            entry = Undelivered(0, known, row.found_cycle, not row.has_copy, row.key)
        if held.withdrawn is not None:
            self.pages[page] = entry
            return
        entry = entry._replace(failures=entry.failures + 1)
        self.pages[page] = entry
        if entry.failures >= self._redeliver:
            del self.pages[page]
            logger.error(
                "%s counts as delivered: %s in a row failed in a callback or pipeline, the last by %s. "
                "Mend that; the page is delivered again when it changes. (GP4C_REDELIVER = %d)",
                shown_url,
                counted(entry.failures, "visit"),
                held.failure,
                self._redeliver,
            )

    def doubt(self, page: int) -> None:
        """Take back that a page was delivered, as its answer is doubted since."""
        if (entry := self._used.pop(page, None)) is not None:
            self.pages[page] = entry
            self._is_changed = True
            self.save()

    def save(self) -> None:
        """Write the undelivered pages into the open cycle's record; their visits are recorded after that."""
        if self._is_changed:
            self._store.amend_record(
                undelivered={str(page): list(entry) for page, entry in self.pages.items()}
            )
            self._is_changed = False

    def due_pages(self, planned: PlannedPages) -> list[int]:
        """Return the undelivered pages to visit besides those `planned`; those of this cycle first."""
        due = [page for page in sorted(self.due) if page not in planned and not self._store.visited(page)]
        return [*sorted(self.again), *due]


def new_record(settings: Settings, store: Store) -> CycleRecord:
    """Return the record of a new cycle: the settings that decide its plan, and hosts still left alone.

    Raises SettingsError if `GP4C_FINGERPRINT` is not that of the store's copies.
    """
    if records := store.cycles(store.last_cycle):
        _check_fingerprint(settings, records[-1])
    groups = store.clusters() if settings.asks_for_clusters else None
    of_groups: CycleRecord = {} if groups is None else {"groups": groups.groups.identity}
    waiting = still_left_alone(records, time.time())
    of_hosts: CycleRecord = {"left_alone": waiting} if waiting else {}
    of_new_pages: CycleRecord = {}
    if (function := settings.new_page_function) is not None:
        of_new_pages = {"new_page_function": function.formula, "new_page_clock": function.clock}
    return {
        **of_groups,
        **of_hosts,
        "started": time.time(),
        "budget": settings.budget,
        "site_share": settings.site_share,
        "policy": settings.policy.text,
        "score_function": settings.score_function.text,
        "formula": settings.score_function.formula,
        "score_file_sha256": settings.score_function.sha256,
        "clock": settings.score_function.clock,
        "seed": settings.seed,
        "fingerprint": settings.fingerprint,
        "discovery": settings.discovery,
        "discovery_function": settings.discovery_function.formula,
        "discovery_clock": settings.discovery_function.clock,
        **of_new_pages,
    }


def _check_fingerprint(settings: Settings, record: CycleRecord) -> None:
    if (recorded := record.get("fingerprint", settings.fingerprint)) != settings.fingerprint:
        raise SettingsError(
            f"GP4C_FINGERPRINT is {settings.fingerprint!r}, and the copies in this store were compared by "
            f"{recorded!r}: every page would count as changed once. Set it back, or begin a new store by "
            "GP4C_STORE."
        )


def recorded_settings(settings: Settings, record: CycleRecord) -> Settings:
    """Return `settings` with the values in `record`, by which a resumed cycle goes on to be planned.

    A store may not name code to import: a policy or function with a dotted path has to be that of the
    settings, else Gp4cError is raised.
    """
    _check_fingerprint(settings, record)
    policy, function = settings.policy, settings.score_function
    recorded = record.get("policy", table.DEFAULT)
    formula, clock = record.get("formula", function.formula), record.get("clock", function.clock)
    hubs = settings.discovery_function
    hub_formula = record.get("discovery_function", hubs.formula)
    new_pages = None
    try:
        function = functions.recorded(formula, function).on_clock(clock)
        hubs = functions.recorded(hub_formula, hubs).on_clock(record.get("discovery_clock", hubs.clock))
        if (new_page_formula := record.get("new_page_function")) is not None:
            new_pages = functions.recorded(new_page_formula, settings.new_page_function)
            new_pages = new_pages.on_clock(record.get("new_page_clock"))
        if recorded != policy.text:
            policy = table.load(recorded, trusted=False)
    except (PolicyError, ScoreError, ExpressionError) as error:
        raise type(error)(
            f"cycle {record.get('cycle')} was begun with the policy {recorded!r} and the score function "
            f"{formula!r} (of hubs: {hub_formula!r}), and goes on by these; here it cannot: {error}"
        ) from error
    return dataclasses.replace(
        settings,
        policy=policy,
        score_function=function,
        budget=record.get("budget", settings.budget),
        site_share=record.get("site_share", 1.0),
        discovery=record.get("discovery", 0.0),
        discovery_function=hubs,
        new_page_function=new_pages,
        seed=record.get("seed", settings.seed),
    )


class LiveRules:
    """Rules of `GP4C_RULES`, and promises of requests, looked up for one page at a time during a crawl."""

    def __init__(self, store: Store, settings: Settings, planned: PageRules | None) -> None:
        """Take the rules of `settings`; ``planned``: the rule of each page that was known to the planner."""
        self._store, self._rules = store, settings.rules
        self.is_empty = not settings.rules and planned is None
        self._clock = None if planned is None else planned.clock
        self.pages: Counter[int] = Counter() if planned is None else planned.pages_by_rule()
        """`PageRule.number` -> number of pages with that rule."""
        self._is_first_cycle = store.last_cycle == 0

    def of(self, stored: StoredRequest) -> PageRule:
        return rule_of_request(self._rules, stored)

    def of_page(self, page: int) -> PageRule:
        return NO_RULE if self.is_empty else self.of(self._store.request(page))

    def note_new(self, stored: StoredRequest) -> PageRule:
        """Return the rule for a new page, by its stored request, and add 1 to that rule's `pages`."""
        rule = self.of(stored)
        self.pages[rule.number] += 1
        return rule

    def allows(self, page: int, row: PageRow) -> bool:
        """Whether the page's rule allows an unplanned visit now; ``row``: the page's columns."""
        rule = self.of_page(page)
        if rule.never or rule.min_interval is None or self._clock is None:
            return not rule.never
        return bool(self._clock.is_over(rule.min_interval, np.array([row.last_attempt]))[0])

    def unmatched(self) -> list[PageRule]:
        """Return the rules of `GP4C_RULES` that match no page of the store."""
        # Pages that are never visited are not in the store: the first cycle alone visits all that link there.
        return [
            rule
            for rule in self._rules
            if not self.pages[rule.number] and (self._is_first_cycle or not rule.never)
        ]


RANK_LEVELS: Final = 64
"""Number of distinct priorities of planned requests: each costs Scrapy's queue time at every pop."""
MAX_IN_A_ROW: Final = 5
"""Refusals and doubtful answers in a row after which a site is left alone for the rest of a cycle."""
_SECONDS: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?")


class Patience:
    """Counts good answers and refusals (429, 503, ...) by host; one that goes on refusing is left alone."""

    def __init__(self, left_alone: Mapping[str, float]) -> None:
        """``left_alone``: hosts that are left alone already -> until when, s since 1970."""
        self._waits_s: dict[str, list[float]] = {}
        """Host -> times until which its last answers, all refusals, want no request, s since 1970."""
        self.good: Counter[str] = Counter()
        """Host -> number of answers in this run that did not refuse the crawl."""
        self._refused: Counter[str] = Counter()
        self.left_alone = dict(left_alone)
        """Host -> until when, s since 1970; a time that is over stands for the rest of the cycle."""

    def answers_well(self, host: str) -> bool:
        """Whether most answers of a host in this run have not refused the crawl."""
        return host not in self.left_alone and self.good[host] > self._refused[host]

    def note(self, host: str, until_s: float | None, good: int | None = None) -> bool:
        """Note an answer of `host`; returns whether the host is left alone from now on because of it.

        ``until_s``: None for a good answer, else until when the host wants no request, s since 1970, or 0.
        ``good``: number of good answers before a refusal noted late, which is in no row if more came since.
        """
        if until_s is None:
            self.good[host] += 1
            self._waits_s.pop(host, None)
            return False
        self._refused[host] += 1
        if good is not None and good != self.good[host]:
            return False
        waits_s = self._waits_s.setdefault(host, [])
        waits_s.append(until_s)
        if len(waits_s) < MAX_IN_A_ROW or host in self.left_alone:
            return False
        self.left_alone[host] = max(waits_s)
        return True

    def end(self) -> list[str]:
        """Leave hosts alone whose last answers were refusals, though fewer than `MAX_IN_A_ROW`; returns them.

        Such a host gave a time to wait, and refused all of its visits, or at least two in a row and half of
        them.
        """
        hosts = []
        for host, waits_s in self._waits_s.items():
            in_a_row = len(waits_s)
            is_refusing = not self.good[host] or (in_a_row > 1 and in_a_row >= self.good[host])
            if is_refusing and max(waits_s) > 0.0 and host not in self.left_alone:
                self.left_alone[host] = max(waits_s)
                hosts.append(host)
        return hosts


def retry_after(value: bytes | None, now_s: float) -> float:
    """Return until when, s since 1970, a header Retry-After wants no request, at most a day; 0: no wait.

    ``value``: of the header, seconds or a date (RFC 9110, section 10.2.3); some servers send fractions.
    """
    text = (value or b"").decode("latin-1").strip()
    wait_s = float(text) if _SECONDS.fullmatch(text) else mail_seconds_of(text) - now_s
    return now_s + min(wait_s, MAX_WAIT_S) if wait_s > 0.0 else 0.0


class Refusal(NamedTuple):
    """Doubtful answer, or failed download, that counts as a refusal if the page is not requested again."""

    page: int
    request: Request
    host: str
    until_s: float
    """Until when the host wants no other request, s since 1970; 0: it does not say."""
    good: int
    """Number of good answers of the host in this run before this one."""


def turn_level(page: int, cycle: int) -> int:
    """Return how early a page has its turn in a cycle: each level has half as many pages as the one below.

    It counts the common first bits of the page's multiplicative hash and the cycle's number reversed (van
    der Corput), so that all of N pages are among the first K once in about 2 N / K cycles.
    """
    return 32 - (page * 0x9E3779B1 % 2**32 ^ int(f"{cycle:032b}"[::-1], 2)).bit_length()


class PlannedPages:
    """Plan of a cycle over all its rounds, looked up by page."""

    def __init__(self, plan: npt.NDArray[Any]) -> None:
        self._plan = plan
        self.pages: Pages = np.ascontiguousarray(self._plan["page"])
        """Planned pages in the order of the plan."""
        self.planned = Planned.of(self._plan)
        """Pages of the plan, with their kinds."""
        self._by_page = places_in_order(self.pages).astype(np.uint32)
        self._ordered = self.pages[self._by_page]

    def __len__(self) -> int:
        return len(self._plan)

    def __contains__(self, page: int) -> bool:
        return self.kind_and_score(page) is not None

    def kind_and_score(self, page: int) -> tuple[str, float] | None:
        """Return the kind of a page's visit and its score, NaN without one; None: the page is not planned."""
        # As uint32: for a Python number, NumPy would convert the whole plan to int64 first.
        row = int(self._ordered.searchsorted(np.uint32(page)))
        if row == len(self._ordered) or self._ordered[row] != page:
            return None
        visit = self._plan[self._by_page[row]]
        return KINDS[visit["kind"]], float(visit["score"])

    def of_kind(self, kind: str) -> list[int]:
        """Return the pages planned for one kind of visit, in the order of the plan."""
        return self.pages[self._plan["kind"] == KINDS.index(kind)].tolist()

    def kinds(self) -> dict[str, int]:
        """Return the number of planned pages by kind of visit."""
        counts = np.bincount(self.planned.kinds, minlength=len(KINDS))
        return dict(zip(KINDS, counts.tolist(), strict=True))


class Cycle:
    """The open cycle of a store: begun anew, or resumed where an interrupted run left it."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        stats: StatsCollector,
        measuring: Measuring | None = None,
    ) -> None:
        """Begin or resume the cycle of `store`, its first round planned. Raises PolicyError or ScoreError."""
        self.measuring = measuring
        self.store = store
        self.settings = settings
        self.stats = stats
        self.run = secrets.randbits(63)
        self.resumed = store.open_cycle is not None
        has_weights = any(rule.weight is not None for rule in settings.rules)
        if not self.resumed and has_weights and (rules := page_rules(store, settings)) is not None:
            store.put_weights(*rules.weights())
        self.number = store.open_cycle or store.begin_cycle(new_record(settings, store))
        in_force = recorded_settings(settings, self.record) if self.resumed else settings
        self._planner = Planner.of(store, in_force)
        self.rules = LiveRules(store, settings, self._planner.rules)
        self.moves = Moves(store.newest_value("moved", []))
        self.deliveries = Deliveries(store, self.resumed, settings.redeliver, settings.gone_after)
        self.on_delivered: Callable[[PageRow, NewVisit, VisitInfo], None] = lambda row, visit, info: None
        """Called with each delivered visit, and its page before the visit."""
        self.recorded = len(store.open_visits())
        """Number of visits of the cycle that are in the store."""
        self._under_way: dict[int, bool] = {}  # page -> whether its request has left the queue
        self._left_out: set[int] = set()
        self.held: dict[int, HeldVisit] = {}
        """Page -> its visit, which has a response, and whose callback and items may not have ended."""
        self._children_queued: Counter[int] = Counter()
        """Held page -> number of its callback's queued requests that are no visits, such as a POST."""
        self._children_sent: dict[Request, int] = {}
        self.sees_responses = False
        """Whether the spider middleware notes each response that reaches the spider."""
        self.ended: list[int] = []
        """Pages whose visits have ended since the feeder last looked."""
        self.requested: set[int] = set()
        """Pages that the spider has requested in this run."""
        self.asked_too_late: set[int] = set()
        """Pages whose request was sent before the spider yielded it with other data."""
        self._failed: set[int] = set()
        """Pages whose visits of this run had no answer that a callback reads."""
        self.archive: Archive | None = None
        """Archive of texts, if there is one; whoever opens it closes it."""
        self.patience = Patience(self.record.get("left_alone", {}))
        before: CycleRecord = store.cycles(store.last_cycle)[0] if store.last_cycle else {}
        self._left_alone_before = frozenset(before.get("left_alone", {}))
        """Hosts that the last cycle left alone."""
        self.refusals: list[Refusal] = []
        """Doubtful answers and failures after which the page may still be requested again."""
        self.repeats = Repeats(store, settings.trap_pages)
        self.chosen_left_out = 0
        """Number of visits that the policy chose and that are left out, as where a site is left alone."""
        self._doubted: dict[int, tuple[HeldVisit, str, bool]] = {}
        """Page -> its doubtful visit, its host, and whether it is planned."""
        self.asked_again: dict[int, VisitInfo] = {}
        """Page that is asked for once more -> result of its first answer, which was doubtful."""
        self.hidden_data = HiddenData(store)
        self.failure: Gp4cError | None = None
        """Why visits can no longer be written, or the cycle not be finished (a full disk): the run ends."""
        if store.planned() is None:  # begun just now, or killed while the plan was being written
            self._write(self._planner.plan_first(), seen=0)
        self._read_plan()
        self.first_visits = FirstVisits(self._sites, settings.new_pages)
        self.first_visits.count(self._plan.of_kind("new"))
        if self.resumed:
            self.first_visits.count(np.setdiff1d(store.open_visits()["page"], self._plan.pages).tolist())

    def _read_plan(self) -> None:
        self._plan = PlannedPages(self.store.plan())
        visited = np.isin(self._plan.pages, self.store.open_visits()["page"])
        self._without_outcome = len(self._plan) - int(np.count_nonzero(visited))
        self.planned_kinds = self._plan.kinds()

    @property
    def record(self) -> CycleRecord:
        return self.store.cycles(self.store.last_cycle)[-1]

    @property
    def policy(self) -> str:
        return self._planner.policy.name

    @property
    def rounds_over(self) -> bool:
        """Whether every round of the policy is planned."""
        return self._planner.is_over

    @property
    def without_outcome(self) -> int:
        """Number of planned pages, of all rounds so far, with neither an outcome nor a doubtful answer."""
        return self._without_outcome - sum(is_planned for _, _, is_planned in self._doubted.values())

    @property
    def ended_visits(self) -> int:
        """Number of the cycle's visits that are in the store, or held until their callbacks have ended."""
        return self.recorded + len(self.held)

    @property
    def is_busy(self) -> bool:
        """Whether requests of visits are under way, or in the queue."""
        return bool(self._under_way)

    def plan_round(self) -> list[int]:
        """Plan the next round; returns its pages, best first.

        Raises PolicyError or ScoreError. After these, or on a full disk, no further round is planned.
        """
        # Not doubtful answers: a policy that waited for them would be asked for ever.
        awaited = self.without_outcome > 0
        try:
            pages = self._plan_by(partial(self._planner.plan_next, awaited=awaited))
        except Gp4cError:
            self._planner.stop()
            raise
        if self.failure is not None:
            self._planner.stop()
        return pages

    def _plan_by(self, plan: Callable[[PlanCounts, Planned, CycleVisits], PlannedRound | None]) -> list[int]:
        """Store the round that `plan` returns, if any; returns its pages, best first, [] without a round."""
        done = len(self._plan)
        try:
            self.store.commit()  # what a plan has seen must be there after a kill
            visits = self.store.open_visits()
            planned = plan(self.record["plan"], self._plan.planned, CycleVisits.of(visits))
            if planned is None:
                return []
            self._write(planned, seen=len(visits))
        except StoreError as error:
            self.failure = error
            return []
        self._read_plan()
        return self._plan.pages[done:].tolist()

    def _write(self, planned: PlannedRound, seen: int) -> None:
        self.store.add_round(planned.plan(), seen=seen, plan=planned.counts)

    @property
    def rounds(self) -> tuple[int, int | None]:
        """Number of rounds planned so far, and of all rounds; None: the policy decides after each."""
        return self._planner.planned_rounds, self._planner.rounds

    @property
    def planned(self) -> int:
        """Number of planned pages, of all rounds so far."""
        return len(self._plan)

    def remaining(self) -> array[int]:
        """Return the pages still to visit: the undelivered ones, then those of the plan, in its order.

        A resumed cycle adds its new pages without a visit, as the pages that link there were visited.
        """
        pages = self._plan.pages[~np.isin(self._plan.pages, self.store.open_visits()["page"])]
        left_over = array("Q", filter(self.allows, self.deliveries.due_pages(self._plan)))
        left_over.extend(pages.tolist())
        if self.resumed:
            new = (page for page in self.store.new_pages() if not self.store.visited(page))
            left_over.extend(page for page in new if self.first_visits.takes(page))
        return left_over

    def finders(self, pages: Sequence[int]) -> npt.NDArray[np.uint32]:
        """Return each page's finder (page number + 1, or `START`); 0 for pages new in this cycle."""
        ids, finders = np.array(pages, np.int64), np.zeros(len(pages), np.uint32)
        known = ids < self.store.merged_pages
        finders[known] = columns_in_order(self.store, ids[known], {"found_by"})["found_by"]
        return finders

    def awaited_finders(self, pages: Sequence[int]) -> list[int]:
        """Return the finder (see `finders`) whose visit each page has to wait for; 0: it waits for nothing.

        No page waits where the policy takes samples, and so decides itself how many `rounds` it plans: a slow
        host must not hold up others.
        """
        if self.rounds[1] is None:
            return [0] * len(pages)
        ids, finders = np.array(pages, np.int64), self.finders(pages)
        open_pages = self._plan.pages[~np.isin(self._plan.pages, self.store.open_visits()["page"])]
        awaited = (finders == START) | np.isin(finders, open_pages.astype(np.int64) + 1)
        # A page that links to itself may be its own finder: it does not wait.
        awaited &= finders != ids + 1
        return list(map(int, np.where(awaited, finders, 0)))

    def _sites(self, pages: Sequence[int]) -> list[int]:
        return [place_of_url(stored["url"]).site_key for stored in self.store.requests(pages)]

    def allows(self, page: int) -> bool:
        """Whether the page's rule allows an unplanned visit, or it repeats one whose items were lost."""
        if self.rules.is_empty or page in self.deliveries.again:
            return True
        return self.rules.allows(page, self.store.page(page))

    def may_visit(self, page: int) -> bool:
        """Whether an unclaimed page may get an unplanned visit: by its rule, and if not 2 in a row failed."""
        return not self.is_claimed(page) and self.store.page(page).failures <= 1 and self.allows(page)

    def note_left_out(self, pages: Iterable[int]) -> None:
        """Count pages given up in this run that the policy chose; `plan_instead` chooses others for them."""
        visits = filter(None, map(self._plan.kind_and_score, pages))
        self.chosen_left_out += sum(kind == "ranked" for kind, _ in visits)

    def note_link(self, page: int) -> None:
        """Shorten the wait of a gone page for its next visit, as a page or sitemap links to it."""
        if page < self.store.merged_pages and self.store.page(page).gone >= self.settings.gone_after:
            self.store.note(page, "wait", float(LINKED_FAILURES))

    def claim(self, page: int, host: str | None = None) -> Claim | None:
        """Begin a known page's visit; None if it has begun or is not due. ``host``: see `Claim`."""
        if self.is_claimed(page):
            return None
        planned = self._plan.kind_and_score(page)
        if planned is None:
            if host is None and page not in self.deliveries.due and page not in self.deliveries.again:
                return None
            if not self.allows(page):
                return None
            row = self.store.page(page)
            planned = "new" if is_unfetched(row.n, row.has_copy) else "other", math.nan
        self._under_way[page] = False
        return Claim(page, *planned, host, self.run)

    def claim_new(self, page: int, finder: int) -> Claim | None:
        """Begin the first visit of a page that `finder` led to; None: `GP4C_NEW_PAGES` lets it wait."""
        if not self.first_visits.takes(page, finder):
            return None
        self._under_way[page] = False
        return Claim(page, "new", math.nan, None, self.run)

    def is_claimed(self, page: int) -> bool:
        """Whether the cycle's visit of this page has begun or ended."""
        if page in self._under_way or page in self.held or page in self._doubted or page in self._left_out:
            return True
        return self.store.visited(page) and page not in self.deliveries.again

    def is_awaited(self, page: int) -> bool:
        """Whether a page's visit is under way, or is still to begin by the plan or, maybe, a later round."""
        may_come = page in self._plan or not self.rounds_over
        return page in self._under_way or (may_come and not self.is_claimed(page))

    def is_due(self, page: int) -> bool:
        """Whether the cycle is to visit a page, planned or undelivered, and has not begun to."""
        due = page in self._plan or page in self.deliveries.due or page in self.deliveries.again
        return due and not self.is_claimed(page)

    def is_queued(self, page: int) -> bool:
        """Whether the request of a page's visit waits in the queue."""
        return self._under_way.get(page) is False

    def is_repeated(self, page: int, mark: Any, finder: int) -> bool:
        """Whether a request for a page whose visit has begun is a further one, and not that visit's.

        It does if the page is in `requested`, or if the page's callback or errback yields the request: by
        `finder`, by `mark` (see `is_of_page`), or as the visit failed and no finder is known.
        """
        if page in self.requested or finder == page + 1 or is_of_page(mark, page):
            return True
        return finder == UNKNOWN_FINDER and page in self._failed  # an errback hands on no finder

    def is_under_way(self, visit: Claim) -> bool:
        """Whether `visit` is of this run and has no outcome yet."""
        return visit.run == self.run and visit.page in self._under_way

    def is_unrecorded(self, visit: Claim) -> bool:
        """Whether `visit` is of this run and not in the store yet: under way, or held (see `HeldVisit`)."""
        return visit.run == self.run and self.is_ahead(visit.page)

    def is_ahead(self, page: int) -> bool:
        """Whether a page has a visit that is not in the store yet: under way, or held (see `HeldVisit`)."""
        return page in self._under_way or page in self.held

    def reopen(self, info: VisitInfo, request: Request) -> Claim | None:
        """Resume the visit with result `info`, as its callback or errback requests the page again.

        It may do so by Scrapy's `get_retry_request`, or because the visit failed, or was doubtful or
        withdrawn. Returns the mark (`Claim`) of the visit; None: the visit is over, or `request` is for
        another page, with a copy of the visit's ``meta``.
        """
        page: Any = info.get("page")
        held = self.held.get(page) or self._doubted.get(page, (None,))[0]
        if held is None or held.info is not info or held.request is None or request.url != held.request.url:
            return None
        has_failed = info.doubtful is not None or held.withdrawn is not None or info.outcome == "error"
        if not ((has_failed or "retry_times" in request.meta) and request.dont_filter):
            return None
        self.refusals = [refusal for refusal in self.refusals if refusal.page != page]
        self.held.pop(page, None)
        self._doubted.pop(page, None)
        info.held = None
        self._under_way[page] = False
        return held.claim

    def left_queue(self, visit: Claim) -> None:
        """Note that the request of this visit went to the downloader."""
        self._under_way[visit.page] = True

    def back_in_queue(self, visit: Claim) -> None:
        """Note that the request of this visit waits again: a retry or a redirect."""
        self._under_way[visit.page] = False

    def _note_answer(self, row: PageRow, visit: NewVisit, answer: LastAnswer) -> None:
        """Store a page's last `answer`, and since when visits fail; ``row``: its columns before the visit."""
        before = self.store.answer(visit.page)
        if OUTCOMES.index(visit.outcome) in FAILED:
            earlier = before if row.outcome in FAILED else NO_ANSWER
            answer = answer._replace(since_s=earlier.since_s or visit.time, failures=earlier.failures + 1)
        if answer != before:
            self.store.set_answer(visit.page, answer)

    def believes(self, row: PageRow) -> bool:
        """Whether a page's next answer counts even if doubtful, after `GP4C_BELIEVE_AFTER` such in a row."""
        return row.outcome in (DOUBTFUL, EXCLUDED) and row.failures >= self.settings.believe_after

    def was_redirected(self, page: int) -> bool:
        """Whether the last answer of a page came after a redirect, and was not doubted."""
        return self.store.answer(page).final_url is not None and self.store.page(page).outcome != DOUBTFUL

    def distance_bits(self, rule: PageRule) -> int:
        """Return the least distance of fingerprints, in bits, at which `rule` lets a page have changed."""
        return self.settings.distance_bits if rule.distance is None else 1

    def _compared(self, reading: PageReading, copy: PageRow, page: int) -> tuple[str, int | None]:
        previous = no_text if self.archive is None else self.archive.previous(copy)
        rule = self.rules.of_page(page)
        before = copy.fingerprint if copy.has_copy else None
        return outcome_of(reading, before, self.distance_bits(rule), rule, previous)

    def info_before(self, visit: Claim, row: PageRow) -> dict[str, Any]:
        """Return the fields of a visit's result that are known before it; ``row``: the page's columns."""
        return {
            "page": visit.page,
            "cycle": self.number,
            "kind": visit.kind,
            "score": None if math.isnan(visit.score) else visit.score,
            "n": row.n,
            "X": row.X,
            "managed": True,
        }

    def end(
        self,
        visit: Claim,
        outcome: str = "",
        size_bytes: int = 0,
        latency_s: float = 0.0,
        request: Request | None = None,
        answer: LastAnswer = NO_ANSWER,
        *,
        reading: PageReading | None = None,
        read_hints: Callable[[], None] = lambda: None,
        is_rebased: bool = False,
        is_same_answer: Callable[[], bool] = lambda: True,
    ) -> VisitInfo:
        """Record the outcome of a visit; returns what the callback finds in ``response.meta["gp4c"]``.

        ``reading``: what was read of the page, which is compared with its copy where `outcome` is "";
        ``request``: whose callback the visit is held for, None: it is recorded at once; ``read_hints``:
        called just before it is recorded, so that a commit has both or none; ``is_rebased``: whether another
        rule made the copy, so that nothing is compared and the page is unchanged; ``is_same_answer``: returns
        False if the answer of an unchanged page has something new for its callback, such as links.
        """
        row, bits = self.store.page(visit.page), None
        if reading is not None:
            outcome, bits = ("unchanged", None) if is_rebased else self._compared(reading, row, visit.page)
        new = NewVisit(
            visit.page,
            outcome,
            time.time(),
            visit.kind,
            0 if reading is None else reading.kept_fingerprint,
            NO_DISTANCE if bits is None else bits,
            min(size_bytes, 2**32 - 1),
            latency_s,
        )
        self._note_answer(row, new, answer)
        result = with_outcome(self.info_before(visit, row), outcome, bits)
        if is_rebased:
            result["compared_anew"] = True
        copy = self.deliveries.copy_of(visit.page, row)
        if copy is not row and reading is not None:
            result.update(self._since_delivered(visit.page, copy, reading))
        previous = no_text
        if self.archive is not None and copy is not None and not is_rebased:
            previous = self.archive.previous(copy)
        info = VisitInfo(result, None if reading is None else reading.text, previous)
        held = HeldVisit(visit, row, new, info, reading, read_hints, request)
        del self._under_way[visit.page]
        if new.outcome not in HELD_OUTCOMES:
            self._failed.add(visit.page)
        if new.outcome == "doubtful" and visit.page not in self.asked_again:
            # It may be asked for once more.
            host = urlsplit(str(self.store.request(visit.page)["url"])).netloc.rpartition("@")[2]
            self._doubted[visit.page] = held, host, visit.page in self._plan
            self.ended.append(visit.page)
            return info
        needs_callback = self.settings.skip_unchanged and self.needs_callback(visit.page)
        trial = self.hidden_data.trials.pop(visit.page, None)
        is_same = (
            self.settings.skip_unchanged
            and info.outcome in ("unchanged", "not_modified")
            and (trial is not None or not needs_callback)
            and (reading is None or is_same_answer())
        )
        is_skipped = is_same and not needs_callback
        if is_same:
            held.hidden_part = trial
        if request is None or is_skipped or new.outcome not in (*HELD_OUTCOMES, "error"):
            self._record(held)
        else:
            info.held = self.held[visit.page] = held
        return info

    def needs_callback(self, page: int) -> bool:
        """Whether the callback of a page is to run though the page did not change.

        It runs after a failed visit, which the spider may have noted in an errback; for a page that was not
        delivered, as links may be new where the text is not; and once after the spider was edited.
        """
        if page in self.deliveries.pages or page in self.deliveries.again:
            return True
        if page in self.hidden_data.trials or NEEDS_CALLBACK in self.store.request(page):
            return True
        row = self.store.page(page)
        return row.failures > 0 or row.last_attempt < self.hidden_data.edited_cycle

    def follows(self, page: int) -> bool:
        """Whether the callback of a page follows links, so that it is to run where these have changed."""
        return FOLLOWS in self.store.request(page)

    def _since_delivered(self, page: int, copy: PageRow | None, reading: PageReading) -> dict[str, object]:
        """Return ``outcome``, ``changed``, ``distance`` against the copy delivered last; None: not known."""
        if copy is not None:
            outcome, bits = self._compared(reading, copy, page)
            return {"outcome": outcome, "changed": outcome == "changed", "distance": bits}
        is_new = self.deliveries.pages[page].is_new
        return {"outcome": "first" if is_new else "changed", "changed": True, "distance": None}

    def child_queued(self, page: int) -> None:
        """Note that the callback of `page` has yielded a request that is no visit, such as a POST."""
        if page in self.held:
            self._children_queued[page] += 1

    def child_sent(self, page: int, request: Request) -> None:
        """Note that a request that is no visit, yielded by the callback of `page`, goes to the downloader."""
        if self._children_queued[page] > 0:
            self._children_queued[page] -= 1
            self._children_sent[request] = page

    def note_child_failure(self, page: int, exception: Exception) -> None:
        """Count the visit of `page` as failed, as a request that its callback yielded (say a POST) failed."""
        if (held := self.held.get(page)) is not None:
            held.failure = repr(exception)[:200]
        elif page in self._doubted:
            self._doubted[page][0].info.is_used = False

    def settle(self, under_way: Collection[Request], *, is_closing: bool = False) -> None:
        """Record the held visits whose callbacks, pipelines and other requests (a POST, say) have ended.

        ``under_way``: requests that Scrapy still works on; ``is_closing``: no queued request will be sent.
        """
        self._children_sent = {one: page for one, page in self._children_sent.items() if one in under_way}
        waiting = {page for page, queued in self._children_queued.items() if queued > 0}
        if is_closing:
            for page in waiting & self.held.keys():
                self.held[page].failure = "the end of the run, before all requests of its callback were sent"
        else:
            waiting.update(self._children_sent.values())
        over = [
            held
            for page, held in self.held.items()
            if held.request not in under_way and (is_closing or page not in waiting)
        ]
        failed = []
        for held in over:
            if held.visit.outcome == "error":  # and the spider has not asked again
                held.failure, held.is_reached = None, False
                self._record(held)
                continue
            if held.failure is None and not held.is_reached and self.sees_responses:
                held.failure = "a middleware that kept the response from the spider"
            is_noted = held.claim.page in self.deliveries.pages
            if held.failure is not None or held.withdrawn is not None or is_noted:
                failed.append(held)
            else:
                self._record(held)
        if not failed:
            return
        for held in failed:  # first the copies with which the next visits are compared
            self.deliveries.note(held, str(self.store.request(held.claim.page)["url"]))
        try:
            self.deliveries.save()
        except StoreError as error:
            self.failure = error
            return
        for held in failed:
            self._record(held)

    def _record(self, held: HeldVisit) -> None:
        page, new = held.claim.page, held.visit
        self.held.pop(page, None)
        self._children_queued.pop(page, None)
        held.info.held = None  # it has the page's texts, and responses may live long
        self.ended.append(page)
        if held.withdrawn is not None or held.is_doubted:
            outcome = "doubtful" if held.withdrawn is None else "error"
            new = NewVisit(page, outcome, new.time, new.kind, bytes=new.bytes, latency_s=new.latency_s)
            if held.withdrawn is not None:
                self._note_answer(held.row, new, LastAnswer(error=held.withdrawn[:200]))
        elif held.verdict is not None and new.outcome in ("changed", "unchanged"):
            new = new._replace(outcome="changed" if held.verdict else "unchanged")
        try:
            held.read_hints()
            if held.reading is not None and held.withdrawn is None and not held.is_doubted:
                self._keep_texts(held, held.reading, new.outcome)
            if page in self.deliveries.again:  # its visit is in the store, from a run that was killed
                self.deliveries.again.discard(page)
                self.on_delivered(held.row, self._recorded(page), held.info)
                return
            self._without_outcome -= page in self._plan
            self.store.record(new)
            self.recorded += 1
        except StoreError as error:
            self.failure = error
        self.stats.inc_value("gp4c/visited")
        self.stats.inc_value(f"gp4c/outcome/{new.outcome}")
        if held.failure is None and held.withdrawn is None:
            if self.settings.skip_unchanged:
                self._note_items(held)
            if held.verdict is None and new.outcome in HELD_OUTCOMES:
                # Compared with the copy delivered last, which may not be the last one.
                new = new._replace(outcome=held.info.outcome or new.outcome)
            self.on_delivered(held.row, new, held.info)

    def _note_items(self, held: HeldVisit) -> None:
        """Store the checksum of the items of a delivered visit, and whether its callback is to run again.

        It runs once more, even after an unchanged visit, if a file of its items could not be downloaded.
        """
        page = held.claim.page
        stored, packed = self.store.request(page), self.store.value("copies", page)
        if held.is_reached and packed is not None:
            before, now = unpack(packed).item_sum, held.item_sum & 0xFFFF or NO_ITEMS
            if held.hidden_part is not None and before:
                self.hidden_data.note(stored, held.hidden_part, is_same=before == now)
            self.store.put_value("copies", page, with_sums(packed, item_sum=now))
        is_once = stored.get(NEEDS_CALLBACK) == "once"
        if held.lacks_file and NEEDS_CALLBACK not in stored:
            self.store.set_request(page, {**stored, NEEDS_CALLBACK: "once"})
        elif is_once and not held.lacks_file and page not in self.asked_too_late:
            stored = stored.copy()
            del stored["needs_callback"]
            self.store.set_request(page, stored)

    def _recorded(self, page: int) -> NewVisit:
        """Return a page's visit in the open cycle as the store has it."""
        visits = self.store.open_visits()
        row = visits[visits["page"] == page][0]
        return NewVisit(
            page,
            OUTCOMES[row["outcome"]],
            float(row["time"]),
            KINDS[row["kind"]],
            int(row["fingerprint"]),
            int(row["distance"]),
        )

    def _keep_texts(self, held: HeldVisit, reading: PageReading, outcome: str) -> None:
        page = held.claim.page
        if self.measuring is not None:
            self.measuring.take(page, held.row, reading.kept_fingerprint, reading.normal or "")
        if self.archive is not None:
            # The text of a page compared anew replaces that of its copy.
            row = held.row._replace(has_copy=0) if "compared_anew" in held.info else held.row
            self.archive.take(row, outcome, self.number, reading.kept_fingerprint, reading.text)
        if held.validators is None or held.failure is not None:
            return
        if held.validators != self.store.validators(page):
            self.store.set_validators(page, *held.validators)

    def count_refusals(self, under_way: Collection[Request]) -> list[str]:
        """Count those `refusals` whose requests are no longer under way; returns hosts to leave alone."""
        over = [refusal for refusal in self.refusals if refusal.request not in under_way]
        self.refusals = [refusal for refusal in self.refusals if refusal.request in under_way]
        return [
            refusal.host
            for refusal in over
            if self.patience.note(refusal.host, refusal.until_s, refusal.good)
        ]

    def may_blame_host(self, page: int, host: str) -> bool:
        """Whether the cause of a page's failure may be `host`, not the page, which has a copy.

        It may if the page's last visit did not fail, or no page of the host has answered in this run.
        """
        row = self.store.page(page)
        return bool(row.has_copy) and not (row.failures > 0 and self.patience.good[host] > 0)

    def turn_priority(self, page: int, request: Request) -> int:
        """Return a priority that gives pages their turn if the last cycle left their host alone; else 0.

        In the same order, a host that answers a few requests a day would always show the same pages.
        """
        if not self._left_alone_before or site_of(request) not in self._left_alone_before:
            return 0
        return turn_level(page, self.number) * RANK_LEVELS

    def note_endless_redirect(self, page: int, request: Request) -> None:
        """Count a redirect without end as a refusal of the host, if `may_blame_host`."""
        if self.may_blame_host(page, host := site_of(request)):
            self.refusals.append(Refusal(page, request, host, 0.0, self.patience.good[host]))

    def doubt(self, page: int, notes: bytes) -> bool:
        """Turn a page's visit in this cycle from changed to doubtful; False: it has none that has ended.

        ``notes``: packed notes of the copy that the page keeps, see `scrapy_gp4c.fingerprint.copy_notes`.
        """
        self.store.put_value("copies", page, notes)
        if self.settings.skip_unchanged:
            self.store.set_validators(page, None, None)
        if (held := self.held.get(page)) is not None:
            held.is_doubted = True
        elif self.store.visited(page):
            self.store.doubt_visit(page)
            self.deliveries.doubt(page)
            self.stats.inc_value("gp4c/outcome/changed", -1)
            self.stats.inc_value("gp4c/outcome/doubtful")
        else:
            return False
        return True

    def leave_alone(self, host: str, wait: bytes | None) -> None:
        """Leave a host alone for the rest of the cycle; ``wait``: header Retry-After of its answer."""
        self.patience.left_alone[host] = retry_after(wait, time.time())
        self.keep_left_alone()

    def keep_left_alone(self) -> None:
        """Keep in the cycle's record which hosts are left alone."""
        self.store.amend_record(left_alone=self.patience.left_alone)

    @property
    def has_left_out(self) -> bool:
        """Whether visits that the policy chose were left out, so that `plan_instead` is to be called."""
        return self.chosen_left_out > 0 and self.rounds[1] is not None and self.failure is None

    def plan_instead(self) -> list[int]:
        """Plan a round of pages of other sites in place of pages left out; returns its pages.

        Raises PolicyError or ScoreError.
        """
        left_out, self.chosen_left_out = self.chosen_left_out, 0
        hosts = self.patience.left_alone
        return self._plan_by(partial(self._planner.plan_instead, hosts=hosts, left_out=left_out))

    @property
    def has_to_ask_again(self) -> bool:
        """Whether pages with doubtful answers may be asked for once more: their sites answer others well."""
        return any(self.patience.answers_well(host) for _, host, _ in self._doubted.values())

    def next_to_ask_again(self) -> dict[int, Request | None]:
        """Return the pages with doubtful answers to ask for once more, now that all else is visited.

        With each comes the request of its first answer, which may be one that only the spider can make.
        """
        answers_well = self.patience.answers_well
        pages = [page for page, (_, host, _) in self._doubted.items() if answers_well(host)]
        first = {page: self._doubted.pop(page)[0] for page in pages}
        self.asked_again.update((page, held.info) for page, held in first.items())
        return {page: held.request for page, held in first.items()}

    def end_doubted(self) -> None:
        """Record visits with doubtful answers whose pages were not requested again, as doubtful."""
        while self._doubted:
            self._record(self._doubted.popitem()[1][0])

    def leave_out(self, visit: Claim) -> None:
        """Cancel a visit for the rest of this run: its site is left alone, or nothing was downloaded."""
        del self._under_way[visit.page]
        self._left_out.add(visit.page)
        self.ended.append(visit.page)
        self._without_outcome -= visit.page in self._plan

    def release_queued(self) -> list[int]:
        """Cancel the visits whose requests wait in the queue; returns their pages."""
        pages = [page for page, requests in self._under_way.items() if not requests]
        self._under_way = {page: True for page, requests in self._under_way.items() if requests}
        return pages

    def end_lost(self) -> None:
        """End as errors the visits whose request left the queue and never came back.

        Exceptions raised inside other middlewares' ``process_response`` (too many redirects, a
        decompression bomb) reach no middleware; the request is simply over.
        """
        for page in [page for page, requests in self._under_way.items() if requests]:
            kind, _ = self._plan.kind_and_score(page) or ("new", math.nan)
            answer = LastAnswer(error="the request was lost between other middlewares")
            self.end(Claim(page, kind, math.nan, None, self.run), "error", answer=answer)

    def commit(self) -> None:
        """Commit buffered visits; a failure is noted, and visits that could not be written stay buffered."""
        try:
            self.store.commit()
        except StoreError as error:
            self.failure = error

    def finish(self, reason: str) -> CycleRecord:
        """Close the cycle, update page columns, and return new fields of its record, such as `reason`."""
        visits = self.store.open_visits()
        gained = None if self.measuring is None else self.measuring.finish()
        record: CycleRecord = {"finished": time.time(), "reason": reason}
        record.update(report_of(self.store, self.settings))
        if gained is not None:
            record["gained"] = gained
        if (samples := sampled_counts(visits, self._planner.seeds(visits, self._plan.planned))) is not None:
            record["sampled"] = samples
        note_recovery(self.store, self.patience.left_alone)
        self.store.finish_cycle(record)
        if self.settings.keep_cycles is not None:
            self.store.keep_visits(self.settings.keep_cycles)
        return record
