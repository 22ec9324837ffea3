"""The status of a crawl by several workers as text, once or again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from scrapy_gp4c.commands.text_tables import table_lines
from scrapy_gp4c.crawling.crawl_status import CrawlStatus, WorkerStatus

WATCH_S: Final = 2.0
"""From one look to the next."""
AT_TOP: Final = "\033[H\033[J"
"""Clears a terminal."""
HEADER: Final = ("worker", "shards", "not done", "letters", "lease")


def lines(found: CrawlStatus) -> list[str]:
    """What is said of a crawl."""
    told = [f"ledger {found.ledger}: {found.shards} shards, {found.pages:,} pages", cycle_line(found)]
    if found.workers:
        told += table_lines([HEADER, *map(_row, found.workers)], left=1)
    return told


def cycle_line(found: CrawlStatus) -> str:
    """Where the cycle is."""
    if found.open:
        waits = f"waits for {len(found.waits_for)} of {found.shards} shards{_whom(found)}"
        return f"cycle {found.cycle} is open and {waits}, {found.letters} letters unread"
    if not found.complete:
        return f"cycle {found.cycle} is closed, and not all shards have ended it"
    return f"cycle {found.cycle} is closed; the next is due in {found.next_due_s or 0:.0f} s"


def _whom(found: CrawlStatus) -> str:
    """Who holds the shards that the cycle waits for."""
    names = [f"{one.name} ({len(one.waits_for)})" for one in found.workers if one.waits_for]
    if nobodys := len(set(found.waits_for) & set(found.homeless)):
        names.append(f"nobody alive ({nobodys})")
    return f" of {', '.join(names)}" if names else ""


def _row(one: WorkerStatus) -> tuple[str, ...]:
    alive = f"{one.left_s:.0f} s left" if one.left_s >= 0 else f"dead for {-one.left_s:.0f} s"
    drains = ", drains" if one.draining else ""
    return one.name, str(len(one.shards)), str(len(one.waits_for)), str(one.letters), alive + drains


def watch(look: Callable[[], CrawlStatus | None]) -> CrawlStatus | None:
    """Print the status again and again, until Ctrl-C; returns the last one.

    ``look``: None where it cannot be told now; it has said why.
    """
    last = None
    try:
        while True:
            found = look()
            if found is not None:
                last = found
                begin, end = (AT_TOP, "") if sys.stdout.isatty() else ("", "\n")
                problem = [] if found.problem is None else [found.problem]
                print(begin + "\n".join([*lines(found), *problem]) + end, flush=True)
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return last
