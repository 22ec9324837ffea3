"""Growth in a git repository: files that appear, each found by the index page of its directory.

An index page is the file `README`, `index` or `_index`, whatever its ending. A directory without one, or
whose index page is younger than a file in it, is a page of its own: a list that changes with its files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from scrapy_gp4c.errors import HistoryError
from training.histories import git_log
from training.histories.git_pages import Window, commits_seen, first_and_last, printable
from training.histories.growth import NOBODY, GrowthHistory
from training.histories.history import ChangeHistory
from training.histories.packed_names import UNDECODED

INDEX: Final = re.compile(rb"(?:.*/)?(?:README|_?index)(?:\.[^/]*)?", re.IGNORECASE)


def read_growth_of(path: Path, window: Window, include: Sequence[str] = ("*",)) -> GrowthHistory:
    """Files of the last download of one repository that were there since their first, and when that was.

    ``include``: as for `git_pages.read_repository`, which has the errors too.
    """
    git_log.check_repository(path)
    line = git_log.first_parent_line(path)
    seen = commits_seen(path, line, window)
    first, last = first_and_last(path, line, seen, include)
    born = dict.fromkeys(sorted(last & first), 0)
    changes: list[tuple[int, bytes]] = []
    moved = np.flatnonzero(np.diff(seen))
    pairs = [(line.commits[seen[i + 1] - 1], line.commits[seen[i] - 1]) for i in moved]
    gone: set[bytes] = set()
    for at, edit in git_log.differences(path, pairs, lambda: None):
        if edit.path in last:
            if edit.status == "A" and edit.path not in born:
                born[edit.path] = int(moved[at]) + 1
            elif edit.status != "M":
                gone.add(edit.path)
            elif not edit.same_content:
                changes.append((int(moved[at]), edit.path))
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
    """The history of files and the directories that stand for index pages."""
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
    names = [printable(page) for page in number]
    history = ChangeHistory(
        changed,
        np.zeros(len(number), np.int32),
        site_names=[path.resolve().name.removesuffix(".git")],
        page_names=[name.decode("utf-8", UNDECODED) for name in names],
        source=str(path),
    )
    found_by = [NOBODY if hub is None else number[hub] for hub in map(finder.__getitem__, number)]
    return GrowthHistory(
        history, np.fromiter(map(hubs.__getitem__, number), np.int32), np.array(found_by, np.int32)
    )


def _directory(page: bytes) -> bytes:
    """Directory of a file, or of a directory (which ends in a slash), with a slash; the top: empty."""
    return page.rstrip(b"/").rpartition(b"/")[0] + b"/" if b"/" in page.rstrip(b"/") else b""


def _finder(page: bytes, born: dict[bytes, int], index: dict[bytes, bytes], age: int) -> bytes | None:
    """Index page or directory that leads to a page born in cycle `age`; None: it is the top."""
    directory = _directory(page)
    is_index = index.get(directory) == page
    if page == b"./" or (is_index and not directory):
        return None
    if is_index:
        return _finder(directory, born, index, age)
    own = index.get(directory)
    if own is not None and born[own] <= age:
        return own
    return directory or b"./"
