"""A change history from git repositories whose files are pages, all over one window of time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from scrapy_gp4c.errors import HistoryError
from training.histories import git_log
from training.histories.git_pages import Part, Window, read_repository

UNITS: Final = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


def parse_length(text: str) -> int:
    """Seconds of a cycle length such as 12h, 1d or 1w; HistoryError for anything else."""
    found = re.fullmatch(r"(\d{1,6})([hdw])", text)
    if not found or not int(found[1]):
        raise HistoryError(f"--cycle-length: expected a number with h, d or w, such as 1d; found {text!r}")
    return int(found[1]) * UNITS[found[2]]


def parse_end(text: str) -> int:
    """Unix time of an ISO 8601 time (UTC unless it says otherwise), or of the end of a day's date."""
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            day = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
            return int((day + timedelta(days=1)).timestamp())
        time = datetime.fromisoformat(text)
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError) as error:
        raise HistoryError(
            "--end: expected a date such as 2026-07-31 or a time such as 2026-07-31T12:00; "
            f"found {text!r} ({error})"
        ) from None


def window_of(repositories: Sequence[Path], cycles: int, length_s: int, end_s: int | None) -> Window:
    """The window of so many cycles; without ``end_s`` it ends with the newest of the last commits.

    Raises HistoryError for less than one cycle, and for directories that are no repositories.
    """
    if cycles < 1:
        raise HistoryError(f"--cycles: expected a number of at least 1; found {cycles}")
    if end_s is None:
        for path in repositories:
            git_log.check_repository(path)
        end_s = 1 + max(int(git_log.first_parent_line(path).times[-1]) for path in repositories)
    return Window(cycles, length_s, end_s)


def build(
    repositories: Sequence[Path],
    cycles: int,
    length_s: int,
    end_s: int | None = None,
    include: Sequence[str] = ("*",),
    mass_share: float = 0.2,
    progress: Callable[[str, int], object] = lambda name, cycle: None,
) -> tuple[Window, list[Part]]:
    """Read `repositories` over one window; without ``end_s`` it ends with the newest of their last commits.

    ``progress`` is called with a repository's name and the cycles of it that are done.

    Raises HistoryError as `read_repository` does, and for two repositories of one name.
    """
    if not 0.0 < mass_share <= 1.0:
        raise HistoryError(f"--mass-share: expected a share above 0, at most 1; found {mass_share}")
    names = [path.resolve().name for path in repositories]
    if twice := {name for name in names if names.count(name) > 1}:
        raise HistoryError(
            f"two repositories are named {twice.pop()!r}, so their sites would mix; rename one"
        )
    window = window_of(repositories, cycles, length_s, end_s)
    parts = []
    for path, name in zip(repositories, names, strict=True):
        parts.append(read_repository(path, window, include, mass_share, partial(progress, name)))
        progress(name, cycles)
    return window, parts
