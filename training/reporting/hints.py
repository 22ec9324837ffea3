"""Hints in the report of a crawl: how often what sites say of their pages was right."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from markupsafe import Markup

from scrapy_gp4c.scoring import hints
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.site_names import site_names
from training.reporting.charts import shown
from training.reporting.page import Section, defined, table

MOST: Final = 20
"""Rows of the table."""
COUNTED: Final = (*hints.LISTED, *(hints.KINDS.index(name) for name in hints.SPANS))
"""Kinds that tell of changes before a visit."""


def hints_section(path: Path) -> Section | None:
    """The section; None where no visit could be compared with what its site says."""
    with open_store(path, readonly=True) as store:
        rows = store.hints.trust()
        counts, trusted = rows["counts"], hints.holds(rows["counts"])
        visits = counts.sum(axis=(2, 3))
        where, column = np.nonzero(visits[:, COUNTED] > 0)
        if not len(where):
            return None
        kind = np.array(COUNTED)[column]
        order = np.lexsort((-visits[where, kind], ~trusted[where, kind]))
        best = order[:MOST]
        names = site_names(store, rows["site"][where[best]].tolist())
    listed = []
    for row, one in zip(where[best].tolist(), kind[best].tolist(), strict=True):
        (silent, silent_changed), (claimed, claimed_changed) = counts[row, one].tolist()
        name = names.get(int(rows["site"][row]), "?")
        right = (claimed_changed + silent) / visits[row, one]
        of_claimed, of_silent = _of(claimed_changed, claimed), _of(silent_changed, silent)
        holds = "yes" if trusted[row, one] else "no"
        listed.append([name, hints.KINDS[one], holds, shown(right, True), of_claimed, of_silent])
    section = Section("What sites say of their pages")
    section.lead = Markup("{} of {} {} hold: where they claim a change, visits find one more often.").format(
        f"{int(trusted[where, kind].sum()):,}", f"{len(where):,}", defined("hint", "hints")
    )
    head = [
        "site", defined("hint", "kind"), defined("holds"), defined("right"), "changed where claimed",
        "changed where not",
    ]  # fmt: skip
    caption = "Judged visits by what the site had said before; older ones count less: counts have fractions."
    if len(order) > MOST:
        caption += f" The other {len(order) - MOST:,} rows hold less surely, or rest on fewer visits."
    section.blocks.append(table(head, listed, caption, words=3))
    return section


def _of(changed: float, unchanged: float) -> str:
    visits = changed + unchanged
    return f"{shown(changed / visits, True, 0)} of {visits:,.1f}" if visits else "–"
