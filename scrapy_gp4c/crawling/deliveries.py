"""Deliveries: a visit counts when its callback has ended and its items have left the pipelines.

Until then it is *held*: it is not in the store, so that a killed run visits the page again. A visit whose
callback or pipeline failed is recorded as it was judged, but the next one is compared with the copy that was
delivered last, and is due in the next cycle. Items are so delivered at least once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from scrapy_gp4c.archive.differences import differences, shown
from scrapy_gp4c.crawling.archiving import PreviousText, no_text
from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, NOT_MODIFIED, UNCHANGED, among

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_gp4c.crawling.requests import Claim
    from scrapy_gp4c.fingerprint import PageReading
    from scrapy_gp4c.store.opening import Store
    from scrapy_gp4c.store.records import NewVisit

logger = foreign_safe_logger(__name__)

PREVIOUS: Final = "previous_text"
HELD_OUTCOMES: Final = frozenset({"first", "changed", "unchanged", "not_modified"})
"""Outcomes of visits whose callback reads the page."""
UNFLUSHED: Final = "unflushed.json"
"""File beside the store: since when items may be in feeds that were not written to their end."""


class VisitInfo(dict[str, object]):
    """Result of a visit: what `scrapy_gp4c.visit` returns, and ``response.meta["gp4c"]``.

    Of a response that is no visit (`managed` is False), nobody knows whether it changed: it counts as new.
    """

    def __init__(self, result: Any = (), text: str | None = None, previous: PreviousText = no_text) -> None:
        """Take the result, the text of this visit where it was read, and a function for the one before."""
        super().__init__(result)
        self.setdefault("managed", False)
        self._text, self._previous = text, previous
        self.held: HeldVisit | None = None

    def __missing__(self, name: str) -> object:
        if name != PREVIOUS:
            raise KeyError(name)
        self[name] = self._previous()
        return self[name]

    def get(self, name: str, default: object = None) -> object:
        """Return the value of a name, ``previous_text`` included."""
        return self[name] if name == PREVIOUS else super().get(name, default)

    @property
    def managed(self) -> bool:
        """Whether this is a visit of a page."""
        return self["managed"] is True

    @property
    def outcome(self) -> str | None:
        """One of `scrapy_gp4c.page_state.outcomes.OUTCOMES`; None of a response that is no visit."""
        outcome = super().get("outcome")
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
        """Whether the page changed since the copy that was delivered last; None: compared with nothing."""
        changed = super().get("changed")
        return changed if isinstance(changed, bool) else None

    @changed.setter
    def changed(self, changed: bool) -> None:
        """Overrule the fingerprint: the spider knows better whether the page changed."""
        self["changed"] = bool(changed)
        if self.held is not None:
            self.held.verdict = bool(changed)

    @property
    def unchanged(self) -> bool:
        """Whether the page is as it was."""
        return self.changed is False

    @property
    def distance(self) -> int | None:
        """Bits in which the fingerprints differ; None: not compared."""
        distance = super().get("distance")
        return distance if isinstance(distance, int) else None

    @property
    def previous_text(self) -> str | None:
        """Text of the copy that was delivered last; None without an archive, or without that text in it."""
        text = self[PREVIOUS]
        return text if isinstance(text, str) else None

    def diff(self) -> str:
        """Return the differences from the text before, word by word, a line for each place.

        ``[-gone-] {+new+}``; "" where nothing differs, or one of the two is not known.
        """
        before = self.previous_text
        if before is None or self._text is None:
            return ""
        return "\n".join(shown(differences(before, self._text)))

    def withdraw(self, reason: str = "") -> None:
        """Say that this answer is not the page (but a captcha): it is not compared, and due again soon."""
        self["changed"] = None
        if self.held is not None:
            self.held.withdrawn = reason or "withdrawn by the spider"

    def __reduce__(self) -> tuple[type[dict[str, object]], tuple[dict[str, object]]]:
        return dict, (dict(self),)  # where a request carries it to the disk, it is plain


def visit(response: Response) -> VisitInfo:
    """Return the visit of a page that a response is; of any other response, one that is not managed."""
    from scrapy_gp4c.crawling.requests import META

    request = response.request
    info = None if request is None else request.meta.get(META)
    if isinstance(info, VisitInfo):
        return info
    made = VisitInfo(info if isinstance(info, dict) else ())
    if request is not None:
        request.meta[META] = made
    return made


@dataclass(slots=True, eq=False)
class HeldVisit:
    """A visit that is over for the downloader, and not yet for the spider."""

    claim: Claim
    row: PageRow
    """Page before the visit."""
    visit: NewVisit
    info: VisitInfo
    reading: PageReading | None
    read_hints: Callable[[], None]
    """Notes what the answer claims of pages."""
    request: Request | None = None
    validators: tuple[str | None, str | None] | None = None
    """ETag and Last-Modified of the copy; None: they stay as they are."""
    is_reached: bool = False
    """Whether its response came to the spider."""
    failure: str | None = None
    withdrawn: str | None = None
    """Why the answer is not the page, by the spider."""
    is_doubted: bool = False
    """Whether later answers of the site have shown that this one is not the page."""
    verdict: bool | None = None
    """Whether the page changed, by the spider."""


class Undelivered(NamedTuple):
    """A page whose last visits were not delivered, and the copy that was delivered last."""

    failures: int
    """Visits in a row that were not."""
    fingerprint: int | None
    """Fingerprint of the copy that was delivered last; None: not known, or there is none."""
    found_cycle: int
    """Cycle that found that copy."""
    is_new: bool
    """Whether no copy was ever delivered."""
    key: int
    """Key of the page: page numbers change where pages are forgotten."""


class Deliveries:
    """Pages of an open cycle whose last visits were not delivered, and those to visit once more."""

    def __init__(self, store: Store, is_resumed: bool, redeliver: int) -> None:
        """Read what was not delivered; ``redeliver``: failures after which a visit counts as delivered."""
        self._store = store
        self._redeliver = redeliver
        self.again: set[int] = set()
        """Pages visited in this cycle whose items may be lost: a run was killed before its feeds closed."""
        self.pages: dict[int, Undelivered] = {}
        self._is_changed = False
        self._flag = store.path / UNFLUSHED
        records = store.cycles(max(1, store.last_cycle - 1))
        last = records[-1] if is_resumed else records[-2] if len(records) > 1 else None
        self._read({} if last is None else last.get("undelivered", {}))
        self._lost_since(self._unflushed_since())
        self.due: frozenset[int] = frozenset(self.pages)
        if self.pages:
            self._is_changed = True
            self.save()

    def _read(self, entries: dict[str, list[Any]]) -> None:
        for name, values in entries.items():
            entry = Undelivered(*values)
            page: int | None = int(name)
            if page is None or page >= self._store.pages or self._store.page(page).key != entry.key:
                page = self._store.find(entry.key)
            if page is not None:
                self.pages[page] = entry

    def _unflushed_since(self) -> float | None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            return float(json.loads(self._flag.read_text("utf-8"))["since"])
        return None

    def _lost_since(self, since_s: float | None) -> None:
        """Take the visits of a run that was killed before its feeds were written for not delivered."""
        if since_s is None:
            return
        heard = (FIRST, CHANGED, UNCHANGED, NOT_MODIFIED)
        visits = self._store.open_visits()
        lost = visits["page"][(visits["time"] >= since_s) & among(visits["outcome"], heard)]
        self.again.update(lost.tolist())
        last = self._store.last_cycle
        if len(visits) or not last:
            return
        for _, visits in self._store.visits(last):
            rows = visits[(visits["time"] >= since_s) & among(visits["outcome"], heard)]
            for page, outcome in zip(rows["page"].tolist(), rows["outcome"].tolist(), strict=True):
                if page not in self.pages:
                    key = self._store.page(page).key
                    self.pages[page] = Undelivered(0, None, 0, outcome == FIRST, key)

    def flag_feeds(self) -> None:
        """Note that items of this run are in feeds that are written to their end when it closes."""
        if self._unflushed_since() is None:
            self._flag.write_text(json.dumps({"since": time.time()}), "utf-8")

    def unflag_feeds(self) -> None:
        """Note that all feeds are written."""
        self._flag.unlink(missing_ok=True)

    def copy_of(self, page: int, row: PageRow) -> PageRow | None:
        """Return the copy that was delivered last, in the row of a page; None where it is not known."""
        entry = self.pages.get(page)
        if entry is None:
            return row
        if entry.fingerprint is None:
            return None
        return row._replace(fingerprint=entry.fingerprint, found_cycle=entry.found_cycle, has_copy=True)

    def note(self, held: HeldVisit, extra: dict[str, Any], shown_url: str) -> None:
        """Note whether a visit was delivered; after too many failures in a row it counts as if it were."""
        page, row = held.claim.page, held.row
        entry = self.pages.get(page)
        if held.failure is None and held.withdrawn is None:
            if entry is not None:
                del self.pages[page]
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
                "%s counts as delivered: %d visits in a row failed in a callback or pipeline, the last by %s."
                " Mend that; the page is delivered again when it changes. (GP4C_REDELIVER = %d)",
                shown_url,
                entry.failures,
                held.failure,
                self._redeliver,
                extra=extra,
            )

    def forget(self, page: int) -> None:
        """Forget what was not delivered of a page that is gone."""
        if self.pages.pop(page, None) is not None:
            self._is_changed = True

    def save(self) -> None:
        """Write what is not delivered into the open cycle's record, before the visits that it is about."""
        if self._is_changed:
            self._store.amend_record(
                undelivered={str(page): list(entry) for page, entry in self.pages.items()}
            )
            self._is_changed = False

    def due_pages(self, planned: Collection[int]) -> list[int]:
        """Pages that are due in this cycle though not planned, and pages to visit once more."""
        plan = np.fromiter(planned, np.int64)
        due = [page for page in sorted(self.due) if not self._store.visited(page)]
        return [*sorted(self.again), *np.setdiff1d(np.array(due, np.int64), plan).tolist()]
