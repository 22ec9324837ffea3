"""Pages and their changes in git repositories whose files are pages.

A file is a page and a cycle is a span of time. A crawler that downloaded the repository's branch at the
end of every cycle would see the last commit of its first-parent line by then; a page changed in a cycle
if these two downloads of it differ.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from training.histories import git_log
from training.histories.history import ChangeHistory
from training.histories.packed_names import Names


@dataclass(frozen=True)
class Window:
    """D cycles of equal length: cycle i covers [start_s + (i - 1) * length_s, start_s + i * length_s)."""

    cycles: int
    length_s: int
    end_s: int
    """Unix time at which the last cycle ends."""

    def edges(self) -> npt.NDArray[np.int64]:
        """Unix times that bound the cycles: int64 ``[D + 1]``."""
        return self.end_s - self.length_s * np.arange(self.cycles, -1, -1, dtype=np.int64)


class MassCommit(NamedTuple):
    """A commit that changed a large share of a repository's pages at once."""

    repository: str
    commit: str
    time_s: int
    pages: int
    share: float
    subject: str


class Part(NamedTuple):
    """What one repository contributes."""

    name: str
    changed: npt.NDArray[np.bool_]
    """``[D, pages]``"""
    paths: list[bytes]
    left_out: int
    """Matching files of the first or last download that are not in both, or were away in between."""
    mass_commits: list[MassCommit]
    head: str
    """The commit that the last download saw."""


def read_repository(
    path: Path,
    window: Window,
    include: Sequence[str] = ("*",),
    mass_share: float = 0.2,
    advance: Callable[[int], object] = lambda cycle: None,
) -> Part:
    """Pages of one repository and their changes; `advance` is called with each cycle that is begun.

    ``include``: shell patterns, of which a path must match one (``*`` also matches ``/``).

    Raises HistoryError for a directory that is no repository, a branch that does not reach the start of
    the window, and patterns that match no page.
    """
    git_log.check_repository(path)
    line = git_log.first_parent_line(path)
    seen = commits_seen(path, line, window)
    first, last = first_and_last(path, line, seen, include)
    paths = sorted(first & last)
    number = {file: i for i, file in enumerate(paths)}
    changed = np.zeros((window.cycles, len(paths)), np.bool_)
    away = np.zeros(len(paths), np.bool_)
    moved = np.flatnonzero(np.diff(seen))
    pairs = [(line.commits[seen[i + 1] - 1], line.commits[seen[i] - 1]) for i in moved]
    begun = iter(moved.tolist())
    for at, edit in git_log.differences(path, pairs, lambda: advance(next(begun))):
        page = number.get(edit.path)
        if page is not None:
            changed[moved[at], page] = not edit.same_content
            away[page] |= edit.status != "M"
    present = np.flatnonzero(~away)
    if not len(present):
        edges = window.edges()
        raise HistoryError(
            f"{path}: no file that matches {' or '.join(map(repr, include))} is there from {utc(edges[0])} "
            f"to {utc(edges[-1])} ({len(first):,} match at the start, {len(last):,} at the end)"
        )
    part = Part(
        path.resolve().name.removesuffix(".git"),
        np.ascontiguousarray(changed[:, present]),
        [paths[i] for i in present],
        len(first | last) - len(present),
        [],
        line.commits[seen[-1] - 1],
    )
    return part._replace(mass_commits=_mass_commits(path, part, line, seen, mass_share))


def first_and_last(
    path: Path, line: git_log.Line, seen: npt.NDArray[np.intp], include: Sequence[str]
) -> tuple[set[bytes], set[bytes]]:
    """The files of the first and of the last download that match one of the patterns."""
    wanted = re.compile("|".join(map(fnmatch.translate, include)))
    first, last = (
        {file for file in git_log.files(path, line.commits[count - 1]) if wanted.match(_text(file))}
        for count in (seen[0], seen[-1])
    )
    return first, last


def commits_seen(path: Path, line: git_log.Line, window: Window) -> npt.NDArray[np.intp]:
    """How many commits of the line download 0..D could see: ``[D + 1]``."""
    edges = window.edges()
    seen = np.searchsorted(line.times, edges)
    if not seen[0]:
        cause = (
            "it is a shallow clone: deepen it with `git fetch --unshallow`"
            if git_log.is_shallow(path)
            else "it is younger than that: take fewer or shorter cycles, or a later end"
        )
        raise HistoryError(
            f"{path}: the window starts at {utc(edges[0])}, its oldest commit is of "
            f"{utc(line.times[0])}; {cause}"
        )
    return seen


def _mass_commits(
    path: Path, part: Part, line: git_log.Line, seen: npt.NDArray[np.intp], mass_share: float
) -> list[MassCommit]:
    """Commits that changed at least `mass_share` of the pages, in the cycles that show so many changes."""
    pages = set(part.paths)
    least = max(1, mass_share * len(pages))
    busy = np.flatnonzero(part.changed.sum(axis=1) >= least)
    places = [place for cycle in busy for place in range(int(seen[cycle]), int(seen[cycle + 1]))]
    touched = np.zeros(len(places), np.int64)
    pairs = [(line.commits[place], line.commits[place - 1]) for place in places]
    for at, edit in git_log.differences(path, pairs, lambda: None):
        touched[at] += edit.path in pages and not edit.same_content
    mass = np.flatnonzero(touched >= least).tolist()
    subjects = git_log.subjects(path, [pairs[at][0] for at in mass]) if mass else []
    return [
        MassCommit(
            part.name,
            pairs[at][0],
            int(line.times[places[at]]),
            int(touched[at]),
            float(touched[at] / len(pages)),
            subject,
        )
        for at, subject in zip(mass, subjects, strict=True)
    ]


def join(parts: Sequence[Part], source: str) -> ChangeHistory:
    """One history of all repositories.

    A page's site is ``repository/directory`` with its top directory if the repository's pages lie in
    several, else the repository: in archives the top directory is the service or language that a
    crawler would treat as one source. The page's name is its path in the repository.
    """
    sites: dict[bytes, int] = {}
    site: list[int] = []
    for part in parts:
        tops = [path.partition(b"/")[0] if b"/" in path else b"" for path in part.paths]
        several = len(set(tops)) > 1
        for top in tops:
            own = part.name.encode() + (b"/" + printable(top) if several and top else b"")
            site.append(sites.setdefault(own, len(sites)))
    return ChangeHistory(
        changed=np.concatenate([part.changed for part in parts], axis=1),
        site=np.array(site, np.int32),
        site_names=[_text(name) for name in sites],
        page_names=Names(printable(path) for part in parts for path in part.paths),
        source=source,
    )


def printable(path: bytes) -> bytes:
    """`path` with the characters that TSV cannot hold percent-encoded."""
    return re.sub(rb"[\t\n\r]", lambda found: b"%%%02X" % found[0][0], path)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def utc(time_s: int | np.int64) -> str:
    """A Unix time to the minute, in UTC."""
    return datetime.fromtimestamp(int(time_s), UTC).strftime("%Y-%m-%d %H:%M UTC")
