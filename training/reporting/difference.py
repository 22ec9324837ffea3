"""The section that says where two score functions differ (`training.comparing.difference` finds it)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from training.comparing.difference import class_names
from training.reporting.charts import shown
from training.reporting.glossary import DEFINITIONS
from training.reporting.page import Section, defined, fold_away, heat, paragraph, table
from training.reporting.study import Lead, Study, signed


def _shifts(shares: Any) -> str:
    """The largest cells of the table of differences, in words."""
    rows, columns = class_names("X"), class_names("t")
    texts = []
    for index, word in ((int(shares.argmax()), "to"), (int(shares.argmin()), "from")):
        row, column = divmod(index, len(columns))
        ago = "one cycle" if columns[column] == "1" else f"{columns[column]} cycles"
        texts.append(
            f"{signed(float(shares[row, column]), True)} points {word} pages with {rows[row]} changes found "
            f"and a last visit {ago} ago"
        )
    return f"The largest shifts: {texts[0]}; {texts[1]}."


def difference_section(study: Study, head: Lead) -> Section:
    """Which pages the learned function visits instead, and what it finds there."""
    title = f"Where it differs from {head.baseline}"
    if study.difference is None:
        return Section(title, study.difference_note)
    found = study.difference
    section = Section(
        title,
        Markup(
            "{} of each cycle's visits are the same. The visits that only the learned function makes find a "
            "change in <strong>{}</strong> of cases, those that only {} makes in <strong>{}</strong>."
        ).format(
            shown(found.common, True),
            shown(found.alone_rate, True),
            head.baseline,
            shown(found.other_alone_rate, True),
        ),
    )
    if found.X_t.any():
        section.blocks.append(paragraph(_shifts(found.X_t)))
    section.blocks.append(
        heat(
            class_names("X"),
            class_names("t"),
            found.X_t,
            "X",
            "t",
            f"Share of the visits, learned less {head.baseline}, in percentage points: which pages get more "
            "visits (+) and which fewer (−), by changes found so far (rows) and cycles since the last visit",
        )
    )
    for name, groups in (*found.by.items(), ("site", found.by_site)):
        label = defined(name) if name in DEFINITIONS else name
        section.blocks.append(_groups(groups, label, head.baseline, f"By {name}"))
    return section


def _groups(groups: Sequence[Any], label: str | Markup, baseline: str, title: str) -> Markup:
    rows = [
        [
            group.name,
            shown(group.share, True),
            shown(group.other_share, True),
            signed(group.share - group.other_share, True),
            shown(group.rate, True),
            shown(group.other_rate, True),
        ]
        for group in groups
    ]
    head = [
        label, "visits: learned", f"visits: {baseline}", "difference", "change rate: learned",
        f"change rate: {baseline}",
    ]  # fmt: skip
    return fold_away(title, table(head, rows))
