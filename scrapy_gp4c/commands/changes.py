"""``scrapy gp4c changes``: which pages changed in the last cycles, or had other events."""

import csv
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from itertools import chain

import numpy as np

from scrapy_gp4c.archive.differences import coloured, differences, shown
from scrapy_gp4c.archive.texts import Texts
from scrapy_gp4c.commands.action import JSON, Action, date, option, positive, print_json, print_table, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.crawling.notifying import open_cycle_events
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.notices.events import EventSource, dropped_state, page_events
from scrapy_gp4c.page_state.events import CycleEvents, last_events, recorded_events
from scrapy_gp4c.page_state.rules import url_matches
from scrapy_gp4c.store.opening import ARCHIVE, Store
from scrapy_gp4c.store.records import local_time

NO_TEXTS = "the archive lacks one of the two texts: it has those of visits since GP4C_ARCHIVE was set"
KINDS = ("new", "changed", "gone", "failing", "back")
"""Kinds of events with an option, such as ``--gone``."""


@dataclass(frozen=True)
class Change:
    """One event (new, changed, gone, ...) of a page that a visit found."""

    cycle: int
    kind: str
    """One of `KINDS`."""
    time: float
    """Time of the visit, s since 1970."""
    url: str
    distance: int | None
    """Bits in which the fingerprints differ; null: nothing was compared."""
    changes: int
    """Changes of this page so far, this one included."""
    diff: tuple[str, ...] | None
    """Differences from the version before, a line for each changed passage; null: without ``--diff``, or the
    archive lacks one of the two texts."""


@dataclass(frozen=True)
class Changes:
    """Events of pages in order of time, as ``--json`` prints them."""

    first_cycle: int
    last_cycle: int
    changes: list[Change]


def _run(project: Project, options: Namespace) -> None:
    """Print the changes, the open cycle's too; ``--diff`` without a sound archive raises ArchiveError."""
    with project.open_store() as store, ExitStack() as opened:
        texts = opened.enter_context(Texts(store.path / ARCHIVE, readonly=True)) if options.diff else None
        newest = store.open_cycle or store.last_cycle
        first, last = max(1, newest - options.last + 1), newest
        if options.cycle is not None:
            first = last = options.cycle
        if options.since is not None:
            first = next(
                (
                    cycle["cycle"]
                    for cycle in store.cycles()
                    if (cycle.get("finished") or np.inf) >= options.since
                ),
                newest + 1,
            )
        _show(_events(project, store, first, last, options, texts), options, first, last, newest)


def _show(changes: Iterator[Change], options: Namespace, first: int, last: int, newest: int) -> None:
    """Print changes as JSON, CSV, a table, or, with ``--diff``, one by one, as differences take a while."""
    if options.json:
        print_json(Changes(first, last, list(changes)))
    elif options.csv:
        names = [field.name for field in fields(Change) if options.diff or field.name != "diff"]
        writer = csv.DictWriter(sys.stdout, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({**asdict(change), "diff": "\n".join(change.diff or ())} for change in changes)
    elif (earliest := next(changes, None)) is None:
        say(_why_none(options, first, last, newest))
    elif options.diff:
        in_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        for one in chain([earliest], changes):
            found_at = f"cycle {one.cycle}, {local_time(one.time)}"
            bits = "" if one.distance is None else f", {counted(one.distance, 'bit')}"
            say(f"{one.url}  {one.kind} in {found_at}, change {one.changes}{bits}")
            nothing = (NO_TEXTS,) if one.kind == "changed" else ()
            for line in nothing if one.diff is None else one.diff:
                print(f"  {coloured(line) if in_colour else line}")
    else:
        rows = [
            (
                str(one.cycle),
                one.kind,
                local_time(one.time),
                "-" if one.distance is None else str(one.distance),
                str(one.changes),
                one.url,
            )
            for one in chain([earliest], changes)
        ]
        print_table([("cycle", "event", "found", "bits", "changes", "URL"), *rows])


def _why_none(options: Namespace, first: int, last: int, newest: int) -> str:
    if not newest:
        return "no cycle was crawled yet"
    if first > newest:
        asked = "such cycle yet" if options.since is None else "cycle since then"
        return f"there is no {asked}: the newest is {newest}"
    cycles = f"cycle {first}" if first == last else f"cycles {first} to {last}"
    matching = "" if options.match is None else f" that matches {options.match}"
    return f"no page{matching} was {' or '.join(options.kinds or ['changed'])} in {cycles}"


def _events(
    project: Project, store: Store, first: int, last: int, options: Namespace, texts: Texts | None
) -> Iterator[Change]:
    """Yield the events of the kinds in `options` in cycles first..last; memory: a few numbers per page."""
    gone_after = project.settings.gone_after
    cycles: Iterator[CycleEvents] = recorded_events(store.visits(), dropped_state(store), gone_after, first)
    if store.open_cycle is not None:
        cycles = chain(cycles, [open_cycle_events(store, gone_after)])
    source = EventSource(store, project.spider_class.name, project.credentials.url, {})
    for events in cycles:
        if not first <= events.cycle <= last:
            continue
        of_kinds = last_events(events, options.kinds or ["changed"], len(events.kinds) + 1)
        columns = (of_kinds.visits[name].tolist() for name in ("page", "fingerprint"))
        for event, page, fingerprint in zip(page_events(of_kinds, source), *columns, strict=True):
            is_match = options.match is None or url_matches(event.url, options.match)
            if is_match and event.time >= (options.since or -np.inf):
                is_change = event.kind == "changed"
                diff = _diff(store, texts, page, event.cycle, fingerprint) if is_change else None
                names = ("cycle", "kind", "time", "url", "distance", "changes")
                yield Change(**{name: getattr(event, name) for name in names}, diff=diff)


def _diff(
    store: Store, texts: Texts | None, page: int, cycle: int, fingerprint: int
) -> tuple[str, ...] | None:
    pair = None if texts is None else texts.pair(store.page(page).key, cycle, fingerprint)
    return None if pair is None else tuple(shown(differences(*pair)))


CHANGES = Action(
    "pages that changed lately, or were new, gone, failing or back",
    _run,
    [
        (
            option("--cycle", type=positive, metavar="N", help="those of this cycle"),
            option("--since", type=date, metavar="DATE", help="those found since a date, or date and time"),
            option(
                "--last",
                type=positive,
                default=1,
                metavar="N",
                help="those of the last N cycles (default: 1)",
            ),
        ),
        *(
            option(
                f"--{kind}",
                dest="kinds",
                action="append_const",
                const=kind,
                help=f"pages that {'are ' if kind != 'changed' else ''}{kind}; several options add up",
            )
            for kind in KINDS
        ),
        option("--match", metavar="TEXT", help="only pages whose URL has TEXT, or matches a glob"),
        option(
            "--diff",
            action="store_true",
            help="show what changed, word by word (needs GP4C_ARCHIVE = True)",
        ),
        (JSON, option("--csv", action="store_true", help="print comma-separated values")),
    ],
    Changes,
)
