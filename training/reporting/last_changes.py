"""The last changes of a crawl, word by word, where it keeps an archive of texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from markupsafe import Markup

from scrapy_gp4c.archive.differences import Hunk, differences
from scrapy_gp4c.archive.texts import Texts
from scrapy_gp4c.errors import ArchiveError
from scrapy_gp4c.page_state.outcomes import CHANGED
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.opening import ARCHIVE, open_store
from scrapy_gp4c.store.page_store import PageStore
from training.reporting.page import Section, paragraph

SHOWN: Final = 10
LOOKED_AT: Final = 1_000
"""Changes that are looked at for so many whose texts are both there."""
HUNKS: Final = 8
WORDS: Final = 120
"""Of one part of a difference: a page that was rewritten fills no report."""
_TAGS: Final = {"-": "del", "+": "ins"}


class Change(NamedTuple):
    """A change whose texts are both there."""

    url: str
    cycle: int
    hunks: list[Hunk]


def last_changes_section(path: Path) -> Section | None:
    """The section; None where the store has no archive."""
    if not (path / ARCHIVE).exists():
        return None
    section = Section("Last changes, word by word")
    try:
        with open_store(path, readonly=True) as store, Texts(path / ARCHIVE, readonly=True) as texts:
            found = list(_changes(store, texts))
    except ArchiveError as error:
        section.blocks.append(paragraph(str(error)))
        return section
    if not found:
        section.blocks.append(paragraph("The archive does not have both texts of any change yet."))
    for change in found:
        title = Markup("{}, cycle {}").format(change.url, change.cycle)
        hunks = Markup("").join(map(_hunk, change.hunks[:HUNKS]))
        more = len(change.hunks) - HUNKS
        rest = Markup("<p>and {} more places</p>").format(more) if more > 0 else Markup("")
        section.blocks.append(Markup('<h3>{}</h3><div class="diff">{}{}</div>').format(title, hunks, rest))
    return section


def _changes(store: PageStore, texts: Texts) -> Iterator[Change]:
    """Yield the last changes of finished cycles, the newest first."""
    shown = Credentials.of_store(store.cycles()).url
    yielded = seen = 0
    for cycle in range(store.last_cycle, 0, -1):
        for _, visits in store.visits(cycle, cycle):
            for visit in np.sort(visits[visits["outcome"] == CHANGED], order="time")[::-1]:
                page, fingerprint = int(visit["page"]), int(visit["fingerprint"])
                pair = texts.pair(store.page(page).key, cycle, fingerprint)
                if pair is not None:
                    yield Change(shown(store.request(page)["url"]), cycle, differences(*pair))
                    yielded += 1
                seen += 1
                if yielded == SHOWN or seen == LOOKED_AT:
                    return


def _hunk(hunk: Hunk) -> Markup:
    words = []
    for sign, part in hunk.segments:
        text = " ".join(part[:WORDS]) + (" …" if len(part) > WORDS else "")
        tag = _TAGS.get(sign)
        words.append(Markup("<{0}>{1}</{0}>").format(Markup(tag), text) if tag else Markup("{}").format(text))
    return Markup("<p>… {} …</p>").format(Markup(" ").join(words))
