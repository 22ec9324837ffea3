"""What `python -m training.from_git` shows: the repositories, and the commits that changed most at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

SHOWN_COMMITS: Final = 20
"""Mass commits in the report."""


class Repository(NamedTuple):
    """What a repository contributes to a history."""

    name: str
    pages: int
    left_out: int
    """Files that are no pages of the history, as they were not there all the time."""
    changed_share: float


class Commit(NamedTuple):
    """A commit that changed a large share of a repository's pages at once."""

    repository: str
    commit: str
    time: str
    pages: int
    share: float
    subject: str


def show(repositories: Sequence[Repository], mass_commits: Sequence[Commit], console: Console) -> None:
    """Print a table of the repositories and, if there are any, one of the mass commits."""
    table = Table("repository", "pages", "left out", "changed per cycle", title="Pages", title_justify="left")
    for one in repositories:
        table.add_row(
            Text(one.name), f"{one.pages:,}", f"{one.left_out:,}", f"{one.changed_share:.2%} of them"
        )
    console.print(table)
    mass = sorted(mass_commits, key=lambda row: -row.share)
    if not mass:
        return
    shown = mass[:SHOWN_COMMITS]
    title = f"Mass commits: {len(mass):,}" + (f", the largest {len(shown)}" if len(shown) < len(mass) else "")
    table = Table(
        "repository", "commit", "time", "pages", "share", "subject", title=title, title_justify="left"
    )
    for row in shown:
        # Text: a subject such as "[/docs] fix" is no markup.
        subject = Text(row.subject, overflow="ellipsis", no_wrap=True)
        pages, share = f"{row.pages:,}", f"{row.share:.0%}"
        table.add_row(Text(row.repository), row.commit[:10], row.time, pages, share, subject)
    console.print(table)
