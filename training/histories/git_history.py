"""Change histories of git repositories: a file is a page, and a cycle is a span of time.

A download at the end of a cycle sees the last commit of the first-parent line by then; a page changed in a
cycle if two downloads of it differ. In a history of growth, new files are found by the index page of their
directory: the file `README`, `index` or `_index`, whatever its ending. A directory without one, or whose
index page is younger than a file in it, is a page of its own that changes with its files.
"""

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from training.histories import git_log
from training.histories.growth import NO_FINDER, GrowthHistory
from training.histories.history import ChangeHistory
from training.histories.names import UNDECODED, PackedNames


@dataclass(frozen=True)
class CycleWindow:
    """D cycles of equal length: cycle i covers [start_s + (i - 1) * length_s, start_s + i * length_s)."""

    cycles: int
    length_s: int
    end_s: int

    def edges(self) -> npt.NDArray[np.int64]:
        return self.end_s - self.length_s * np.arange(self.cycles, -1, -1, dtype=np.int64)


class MassCommit(NamedTuple):
    """Commit that changed a large share of a repository's pages at once."""

    repository: str
    commit: str
    time_s: int
    pages: int
    share: float
    subject: str


class RepositoryPages(NamedTuple):
    """Pages and changes of one repository in the cycles of a `CycleWindow`."""

    name: str
    changed: npt.NDArray[np.bool_]
    """``[D, pages]``"""
    paths: list[bytes]
    left_out: int
    """Number of matching files that are not in all downloads: born, deleted, or away in between."""
    mass_commits: list[MassCommit]
    head: str
    """Commit of the last download."""


class RepositoryDownloads(NamedTuple):
    """Downloads 0..D of a repository: their commits, and the matching files of the first and the last one."""

    line: git_log.FirstParentLine
    seen: npt.NDArray[np.intp]
    """``[D + 1]``: number of commits of `line` made by the time of each download."""
    first: set[bytes]
    last: set[bytes]
    moved: list[int]
    """Cycles, from 0, with commits."""
    pairs: list[tuple[str, str]]
    """Last commits by the end of each of these cycles, and by its begin."""


def read_repository(
    path: Path,
    window: CycleWindow,
    include: Sequence[str] = ("*",),
    mass_share: float = 0.2,
    advance: Callable[[], object] = lambda: None,
) -> RepositoryPages:
    """Read the pages of a repository and their changes; call `advance` for each cycle.

    ``include``: shell patterns, of which a path must match one (``*`` also matches ``/``). Raises
    HistoryError for no repository, a branch that begins within the window, and patterns without a page.
    """
    downloads = downloads_of(path, window, include)
    line, seen, first, last, moved, pairs = downloads
    for _ in range(window.cycles - len(moved)):
        advance()
    paths = sorted(first & last)
    page_of = {file: page for page, file in enumerate(paths)}
    changed = np.zeros((window.cycles, len(paths)), np.bool_)
    is_absent = np.zeros(len(paths), np.bool_)
    for number, edit in git_log.differences(path, pairs, advance):
        page = page_of.get(edit.path)
        if page is not None:
            changed[moved[number], page] = not edit.same_content
            is_absent[page] |= edit.status != "M"
    present = np.flatnonzero(~is_absent)
    if not len(present):
        edges = window.edges()
        raise HistoryError(
            f"{path}: no file that matches {' or '.join(map(repr, include))} is there from {utc(edges[0])} "
            f"to {utc(edges[-1])} ({len(first):,} match at the start, {len(last):,} at the end)"
        )
    pages_read = RepositoryPages(
        path.resolve().name.removesuffix(".git"),
        np.ascontiguousarray(changed[:, present]),
        [paths[i] for i in present],
        len(first | last) - len(present),
        [],
        line.commits[seen[-1] - 1],
    )
    return pages_read._replace(mass_commits=_mass_commits(path, pages_read, downloads, mass_share))


def downloads_of(path: Path, window: CycleWindow, include: Sequence[str]) -> RepositoryDownloads:
    """Downloads of a repository at the ends of cycles; HistoryError as for `read_repository`."""
    git_log.check_repository(path)
    line = git_log.first_parent_line(path)
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
    pattern = re.compile("|".join(map(fnmatch.translate, include)))
    first, last = (
        {file for file in git_log.files(path, line.commits[count - 1]) if pattern.match(_text(file))}
        for count in (seen[0], seen[-1])
    )
    moved = np.flatnonzero(np.diff(seen)).tolist()
    pairs = [(line.commits[seen[i + 1] - 1], line.commits[seen[i] - 1]) for i in moved]
    return RepositoryDownloads(line, seen, first, last, moved, pairs)


def _mass_commits(
    path: Path, repository_pages: RepositoryPages, downloads: RepositoryDownloads, mass_share: float
) -> list[MassCommit]:
    """Commits that changed at least `mass_share` of the pages; searched in cycles with so many changes."""
    line, seen = downloads.line, downloads.seen
    pages = set(repository_pages.paths)
    least = max(1, mass_share * len(pages))
    busy = np.flatnonzero(repository_pages.changed.sum(axis=1) >= least)
    places = [position for cycle in busy for position in range(int(seen[cycle]), int(seen[cycle + 1]))]
    touched = np.zeros(len(places), np.int64)
    pairs = [(line.commits[position], line.commits[position - 1]) for position in places]
    for number, edit in git_log.differences(path, pairs, lambda: None):
        touched[number] += edit.path in pages and not edit.same_content
    mass = np.flatnonzero(touched >= least).tolist()
    subjects = git_log.subjects(path, [pairs[number][0] for number in mass]) if mass else []
    return [
        MassCommit(
            repository_pages.name,
            pairs[number][0],
            int(line.times[places[number]]),
            int(touched[number]),
            float(touched[number] / len(pages)),
            subject,
        )
        for number, subject in zip(mass, subjects, strict=True)
    ]


def join(parts: Sequence[RepositoryPages], source: str) -> ChangeHistory:
    """Join the pages of several repositories to one history.

    A page's site is ``repository/directory`` with its top directory if the repository's pages lie in several,
    else the repository: in archives the top directory is a service or language. The page's name is its path
    in the repository.
    """
    sites: dict[bytes, int] = {}
    site: list[int] = []
    for repository in parts:
        tops = [path.partition(b"/")[0] if b"/" in path else b"" for path in repository.paths]
        several = len(set(tops)) > 1
        for top in tops:
            site_name = repository.name.encode() + (b"/" + printable(top) if several and top else b"")
            site.append(sites.setdefault(site_name, len(sites)))
    return ChangeHistory(
        changed=np.concatenate([repository.changed for repository in parts], axis=1),
        site=np.array(site, np.int32),
        site_names=[_text(name) for name in sites],
        page_names=PackedNames(printable(path) for repository in parts for path in repository.paths),
        source=source,
    )


def printable(path: bytes) -> bytes:
    """`path` with the characters that a field of TSV cannot hold percent-encoded."""
    return re.sub(rb"[\t\n\r]", lambda match: b"%%%02X" % match[0][0], path)


def _text(path: bytes) -> str:
    return path.decode("utf-8", UNDECODED)


def utc(time_s: int | np.int64) -> str:
    """Text of a Unix time, to the minute, in UTC."""
    return datetime.fromtimestamp(int(time_s), UTC).strftime("%Y-%m-%d %H:%M UTC")


UNITS: Final = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


def parse_length(text: str) -> int:
    """Seconds of a cycle length such as 12h, 1d or 1w; HistoryError for anything else."""
    match = re.fullmatch(r"(\d{1,6})([hdw])", text)
    if not match or not int(match[1]):
        raise HistoryError(f"length of a cycle: expected a number with h, d or w, such as 1d; found {text!r}")
    return int(match[1]) * UNITS[match[2]]


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


def window_of(repositories: Sequence[Path], cycles: int, length_s: int, end_s: int | None) -> CycleWindow:
    """Window of so many cycles; without ``end_s`` it ends with the newest commit of all repositories.

    Raises HistoryError for less than one cycle, and for directories that are no repositories.
    """
    if cycles < 1:
        raise HistoryError(f"--cycles: expected a number of at least 1; found {cycles}")
    if end_s is None:
        for path in repositories:
            git_log.check_repository(path)
        end_s = 1 + max(int(git_log.first_parent_line(path).times[-1]) for path in repositories)
    return CycleWindow(cycles, length_s, end_s)


def build(
    repositories: Sequence[Path],
    cycles: int,
    length_s: int,
    end_s: int | None = None,
    include: Sequence[str] = ("*",),
    mass_share: float = 0.2,
    advance: Callable[[], object] = lambda: None,
) -> tuple[CycleWindow, list[RepositoryPages]]:
    """Read the pages of all repositories over one window, which ends at ``end_s`` or the newest commit.

    ``advance`` is called for each cycle of each repository. Raises HistoryError as `read_repository` does,
    and for two repositories of one name.
    """
    if not 0.0 < mass_share <= 1.0:
        raise HistoryError(f"--mass-share: expected a share above 0, at most 1; found {mass_share}")
    names = [path.resolve().name for path in repositories]
    if twice := {name for name in names if names.count(name) > 1}:
        raise HistoryError(
            f"two repositories are named {twice.pop()!r}, so their sites would mix; rename one"
        )
    window = window_of(repositories, cycles, length_s, end_s)
    return window, [read_repository(path, window, include, mass_share, advance) for path in repositories]


INDEX: Final = re.compile(rb"(?:.*/)?(?:README|_?index)(?:\.[^/]*)?", re.IGNORECASE)


def read_growth_of(path: Path, window: CycleWindow, include: Sequence[str] = ("*",)) -> GrowthHistory:
    """Growth history of a repository: files that stay from their first commit to the last download.

    ``include`` and errors: as for `read_repository`.
    """
    _, _, first, last, moved, pairs = downloads_of(path, window, include)
    born = dict.fromkeys(sorted(last & first), 0)
    changes: list[tuple[int, bytes]] = []
    gone: set[bytes] = set()
    for number, edit in git_log.differences(path, pairs, lambda: None):
        if edit.path in last:
            if edit.status == "A" and edit.path not in born:
                born[edit.path] = moved[number] + 1
            elif edit.status != "M":
                gone.add(edit.path)
            elif not edit.same_content:
                changes.append((moved[number], edit.path))
    for file in gone & born.keys():
        del born[file]
    if not born:
        raise HistoryError(
            f"{path}: no file that matches {' or '.join(map(repr, include))} stays until the end"
        )
    return _history(path, born, changes, window.cycles)


def _history(
    path: Path, born: dict[bytes, int], changes: list[tuple[int, bytes]], cycles: int
) -> GrowthHistory:
    """Growth history of files, and of the directories that stand for missing index pages."""
    index = {_directory(file): file for file in sorted(born, reverse=True) if INDEX.fullmatch(file)}
    hubs = dict(born)
    finder: dict[bytes, bytes | None] = {}
    todo = list(born)
    while todo:
        page = todo.pop()
        finder[page] = hub = _finder(page, born, index, hubs[page])
        if hub is None:
            continue
        if hub not in hubs or (hub not in born and hubs[hub] > hubs[page]):
            hubs[hub] = hubs[page]
            todo.append(hub)
    number = {page: position for position, page in enumerate(sorted(hubs))}
    changed = np.zeros((cycles, len(number)), np.bool_)
    for cycle, file in changes:
        if file in number:
            changed[cycle, number[file]] = cycle + 1 > hubs[file]
    for page, hub in finder.items():
        if hub is not None and hub not in born and hubs[page] > hubs[hub]:
            changed[hubs[page] - 1, number[hub]] = True
    history = ChangeHistory(
        changed,
        np.zeros(len(number), np.int32),
        site_names=[path.resolve().name.removesuffix(".git")],
        page_names=[_text(printable(page)) for page in number],
        source=str(path),
    )
    found_by = [NO_FINDER if hub is None else number[hub] for hub in map(finder.__getitem__, number)]
    return GrowthHistory(
        history, np.fromiter(map(hubs.__getitem__, number), np.int32), np.array(found_by, np.int32)
    )


def _directory(page: bytes) -> bytes:
    """Directory of a file or directory, with a slash at its end; the top is empty."""
    return page.rstrip(b"/").rpartition(b"/")[0] + b"/" if b"/" in page.rstrip(b"/") else b""


def _finder(page: bytes, born: dict[bytes, int], index: dict[bytes, bytes], cycle: int) -> bytes | None:
    """Index page or directory that leads to a page born in `cycle`; None for the top directory's page."""
    directory = _directory(page)
    is_index = index.get(directory) == page
    if page == b"./" or (is_index and not directory):
        return None
    if is_index:
        return _finder(directory, born, index, cycle)
    index_page = index.get(directory)
    if index_page is not None and born[index_page] <= cycle:
        return index_page
    return directory or b"./"
