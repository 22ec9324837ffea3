"""Histories of irregular visits, in the format of the crawl data of Kolobov et al. 2019.

A directory has four files of tab-separated lines, each plain or gzip as ``NAME.gz``:

* ``url_urlid_hostid.txt``: URL, its number, number of its host;
* ``urlid_imp.txt``: number of a URL, its importance (without the file all pages weigh 1);
* ``urlid_offset_history.txt``: number, days until the first visit, JSON ``[[days, changed], ...]``: of every
  further visit the days since the one before, and 1 if the page had changed since, else 0;
* ``urlid_chrate_compl_obs_hist.txt``: number, changes per day, of URLs whose changes are all known (may be
  missing).
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats, Ints
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.foreign_text import counted
from training.histories.formats import lines, opened
from training.histories.history import ChangeHistory, weights_or_none
from training.histories.imputation import draw_between_visits, likeliest_rates
from training.histories.names import UNDECODED, PackedNames, batches

URLS: Final = "url_urlid_hostid.txt"
IMPORTANCE: Final = "urlid_imp.txt"
VISITS: Final = "urlid_offset_history.txt"
CHANGE_RATES: Final = "urlid_chrate_compl_obs_hist.txt"
DAY_S: Final = 86_400
MAX_PAGES: Final = 1_000_000
MAX_CYCLES: Final = 10_000
"""Largest number of cycles: a wrong number of days in a file must not fill the memory."""
BATCH: Final = 1_024
"""Number of pages parsed at once."""
PRIOR_DAYS: Final = 0.5
"""Length of two artificial intervals, one with and one without a change, added to those observed (Kolobov et
al. 2019, equation 10, with the values of the authors' program)."""
RATE_BOUNDS: Final = (0.0005, 7.0)
"""Lowest and highest change rate per day, as in the authors' program."""

logger = logging.getLogger(__name__)
Bits = npt.NDArray[np.bool_]


class OffsetHistory(NamedTuple):
    """History of irregular visits, and change rates of its pages."""

    history: ChangeHistory
    change_rate: Floats
    """Changes per day, ``[P]``: of `complete` pages as the file has it, of the others estimated."""
    complete: Bits
    """``[P]``: pages whose changes are all known."""


class _PageBatch(NamedTuple):
    """Visits of B pages by cycle, bits packed along the cycles."""

    page: Ints
    """Position of each page, ``[B]``."""
    first: Ints
    """Cycle of the first visit, from 0, ``[B]``."""
    cycles: int
    changed: npt.NDArray[np.uint8]
    """Cycles with a visit that found a change, bits: ``[B, cycles / 8]``."""
    observed: npt.NDArray[np.uint8]
    """Cycles whose outcome is known: visited at their end, or before a visit without a change; bits."""
    twice: tuple[Ints, Ints]
    """Cycle and page (position in the batch) of each change between two visits of one cycle."""
    change_rate: Floats
    """Changes per day, ``[B]``."""

    def outcomes(self, cycles: int, rng: np.random.Generator) -> tuple[Bits, Bits]:
        """Outcomes of ``cycles`` cycles, and which of them were observed: ``[cycles, B]``."""
        packed = (np.unpackbits(bits, axis=0, count=self.cycles) for bits in (self.changed, self.observed))
        changed, observed = (np.pad(bits, ((0, cycles - self.cycles), (0, 0))) > 0 for bits in packed)
        drawn = draw_between_visits(changed, observed, rng, self.first)
        drawn[self.twice] = True
        return drawn, observed


def is_offset_history(path: Path) -> bool:
    """Whether a directory has visits in this format."""
    return path.is_dir() and _file(path, VISITS) is not None


def read_offset_history(path: Path, cycle_s: int = DAY_S, max_pages: int = MAX_PAGES) -> OffsetHistory:
    """Read a history from a directory of this format; only the pages that are taken need memory.

    A visit without a change tells that nothing changed in all cycles since the visit before. Where several
    cycles lie before a visit with a change, their outcomes are drawn (`draw_between_visits`); so are those
    after the last visit. ``max_pages``: whole hosts are drawn up to so many pages. A warning counts what was
    drawn and left out. Raises HistoryError, naming file, line, what was expected and what was found.
    """
    sizes = Counter(host for _, (_, _, host) in _rows(path, URLS, 3))
    hosts = _drawn_hosts(path, sizes, max_pages)
    urls = _urls(path, hosts)
    others: Counter[str] = Counter()
    weight, unweighted = _values(path, IMPORTANCE, urls.position, others, 1.0)
    known_rates, _ = _values(path, CHANGE_RATES, urls.position, others, np.nan)
    batches = list(_visits(path, urls.position, others, cycle_s))
    if not batches:
        raise HistoryError(
            f"{path}: no page of {URLS} was visited twice by {VISITS}; a history needs two visits of a page"
        )
    first = np.concatenate([batch.first for batch in batches])
    start = _best_start(first, max(batch.cycles for batch in batches))
    pages = np.concatenate([batch.page for batch in batches])[first <= start]
    changed, observed_count = _outcomes(batches, start, len(pages))
    rate = np.concatenate([batch.change_rate for batch in batches])[first <= start]
    complete = ~np.isnan(known_rates[pages])
    undrawn = sum(sizes.values()) - len(urls.site)
    left_out = (
        (undrawn, f"of hosts that were not drawn: raise --max-pages, now {max_pages:,}"),
        (len(urls.site) - len(first), f"visited fewer than twice by {VISITS}"),
        (len(first) - len(pages), f"first visited after cycle {start + 1}, in which the history begins"),
    )
    logger.warning(
        "%s: %s pages of %s hosts, %d cycles of %g days; %.1f%% of the outcomes are known from visits, the "
        "others drawn%s%s%s",
        path, f"{len(pages):,}", f"{len(hosts):,}", len(changed), cycle_s / DAY_S,
        100.0 * observed_count / changed.size,
        "".join(f"; left out {counted(count, 'page')} {reason}" for count, reason in left_out if count),
        f"; {unweighted:,} pages have no line in {IMPORTANCE} and weigh 1" if unweighted else "",
        "".join(
            f"; left out at least {counted(unknown, 'line')} of {name} about URLs that {URLS} lacks: fetch "
            "both anew"
            for name, count in others.items()
            if (unknown := count - undrawn) > 0
        ),
    )  # fmt: skip
    history = ChangeHistory(
        changed,
        np.array(urls.site, np.int32)[pages],
        weights_or_none(weight[pages]),
        site_names=PackedNames(urls.site_names),
        page_names=urls.names.take(pages),
        source=str(path),
        sha256=hashlib.sha256(changed.tobytes()).hexdigest(),
        dropped_pages=sum(count for count, _ in left_out),
    )
    known = np.maximum(known_rates[pages], RATE_BOUNDS[0])  # a page that never changed may yet change
    return OffsetHistory(history, np.where(complete, known, rate), complete)


class _Urls(NamedTuple):
    """URLs of the hosts that are drawn, in the order of their file."""

    names: PackedNames
    position: dict[bytes, int]
    """Number in the file -> position."""
    site: list[int]
    site_names: list[str]


def _urls(path: Path, hosts: dict[bytes, int]) -> _Urls:
    """Read the URLs of `hosts`, which are numbered; raises HistoryError for a number that comes twice."""
    position: dict[bytes, int] = {}
    site: list[int] = []
    site_names = [""] * len(hosts)

    def names() -> Iterator[bytes]:
        for row, (url, number, host) in _rows(path, URLS, 3):
            if host in hosts:
                if position.setdefault(number, len(site)) != len(site):
                    raise _twice(path, URLS, row, number)
                one = hosts[host]
                site.append(one)
                site_names[one] = site_names[one] or _host_of(url) or host.decode("utf-8", UNDECODED)
                yield url

    return _Urls(PackedNames(names()), position, site, site_names)


def _values(
    path: Path, name: str, position: dict[bytes, int], others: Counter[str], default: float
) -> tuple[Floats, int]:
    """Return a file's value of each page, and the number of pages without one, which get the default."""
    values, missing = np.full(len(position), default), len(position)
    for number, value in _numbers(path, name, position, others):
        values[number], missing = value, missing - 1
    return values, missing


def _outcomes(batches: list[_PageBatch], start: int, pages: int) -> tuple[Bits, int]:
    """Return outcomes after cycle `start` of the `pages` first visited by then, and how many were seen."""
    cycles = max(batch.cycles for batch in batches)
    changed = np.empty((cycles - start - 1, pages), np.bool_)
    rng, end, observed_count = np.random.default_rng(0), 0, 0
    for batch in batches:
        outcomes, observed = batch.outcomes(cycles, rng)
        chosen = batch.first <= start
        begin, end = end, end + int(chosen.sum())
        changed[:, begin:end] = outcomes[start + 1 :, chosen]
        observed_count += int(observed[start + 1 :, chosen].sum())
    return changed, observed_count


def _file(path: Path, name: str) -> Path | None:
    return next((file for file in (path / name, path / f"{name}.gz") if file.is_file()), None)


def _rows(path: Path, name: str, columns: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield number and fields of every line of the file `name` of the directory; nothing without the file."""
    file = _file(path, name)
    if file is None:
        if name in (IMPORTANCE, CHANGE_RATES):
            return
        raise HistoryError(f"{path}: expected the file {name} or {name}.gz; there is none. Fetch it, too.")
    with opened(file) as content:
        for number, line in enumerate(lines(file, content), start=1):
            fields = line.rstrip(b"\r\n").split(b"\t", columns - 1)
            if len(fields) == columns:
                yield number, fields
            elif fields != [b""]:
                raise _unexpected(file, number, f"{columns} columns", line)


def _unexpected(file: Path, number: int, expected: str, line: bytes) -> HistoryError:
    beginning = line[:60].decode("utf-8", "replace")
    return HistoryError(f"{file}, line {number}: expected {expected}; found {beginning!r}")


def _twice(path: Path, name: str, row: int, number: bytes) -> HistoryError:
    return _unexpected(path / name, row, "every number of a URL once", number)


def _chosen_rows(
    path: Path, name: str, columns: int, position: dict[bytes, int], others: Counter[str]
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield number and fields of each line about a page in `position`; ``others`` counts the other lines.

    Raises HistoryError for a second line of a page.
    """
    seen = np.zeros(len(position), np.bool_)
    for row, fields in _rows(path, name, columns):
        page = position.get(fields[0])
        if page is None:
            others[name] += 1
            continue
        if seen[page]:
            raise _twice(path, name, row, fields[0])
        seen[page] = True
        yield row, fields


def _numbers(
    path: Path, name: str, position: dict[bytes, int], others: Counter[str]
) -> Iterator[tuple[int, float]]:
    """Yield the position of each chosen page, and the number that a file has for it."""
    for row, (number, text) in _chosen_rows(path, name, 2, position, others):
        try:
            value = float(text)
        except ValueError:
            value = np.nan
        if not 0.0 <= value < np.inf:
            raise _unexpected(path / name, row, "a number of at least 0 in column 2", text)
        yield position[number], value


def _host_of(url: bytes) -> str:
    text = url.decode("utf-8", UNDECODED)
    try:
        return urlsplit(text if "://" in text else f"//{text}").netloc
    except ValueError:
        return ""


def _drawn_hosts(path: Path, sizes: Counter[bytes], max_pages: int) -> dict[bytes, int]:
    """Host -> number of its site, of hosts in drawn order that together have at most ``max_pages`` pages."""
    if not sizes:
        raise HistoryError(f"{path / URLS}: expected lines URL<TAB>number<TAB>host; found none")
    hosts: dict[bytes, int] = {}
    names, total = list(sizes), 0
    takes_all = sum(sizes.values()) <= max_pages
    order = range(len(names)) if takes_all else np.random.default_rng(0).permutation(len(names)).tolist()
    for i in order:
        if total + sizes[names[i]] <= max_pages:
            total += sizes[names[i]]
            hosts[names[i]] = len(hosts)
    if not hosts:
        raise HistoryError(
            f"{path}: expected hosts of at most {max_pages:,} pages; the smallest has "
            f"{min(sizes.values()):,}: raise --max-pages"
        )
    return hosts


def _visits(
    path: Path, position: dict[bytes, int], others: Counter[str], cycle_s: int
) -> Iterator[_PageBatch]:
    """Yield batches of the visits of pages that have at least two."""
    for batch in batches(_chosen_rows(path, VISITS, 3, position, others), BATCH):
        pages, offsets, pairs = [], [], []
        for row, (number, offset, text) in batch:
            try:
                visits = np.array(json.loads(text), np.float64)
                begin = float(offset)
            except (ValueError, TypeError, RecursionError):
                visits = np.empty(1)
            fits = visits.ndim == 2 and visits.shape[1] == 2 and (visits[:, 0] >= 0).all()
            fits = fits and np.isin(visits[:, 1], (0, 1)).all() and np.isfinite(visits).all()
            if visits.size:
                if not fits or not 0 <= begin + visits[:, 0].sum() < MAX_CYCLES * cycle_s / DAY_S:
                    raise _unexpected(
                        path / VISITS,
                        row,
                        f"number, days and [[days, 0 or 1], ...], at most {MAX_CYCLES:,} cycles",
                        b"\t".join((number, offset, text)),
                    )
                pages.append(position[number])
                offsets.append(begin)
                pairs.append(visits)
        if pages:
            yield _by_cycle(np.array(pages), np.array(offsets), pairs, cycle_s / DAY_S)


def _by_cycle(page: Ints, offset: Floats, pairs: list[Floats], cycle_days: float) -> _PageBatch:
    count = np.array([len(visits) for visits in pairs])
    column = np.repeat(np.arange(len(page)), count)
    interval, changed = np.concatenate(pairs).T
    time = np.concatenate(
        [begin + np.cumsum(visits[:, 0]) for begin, visits in zip(offset, pairs, strict=True)]
    )
    cycle = np.floor(time / cycle_days).astype(np.int64)
    first = np.floor(offset / cycle_days).astype(np.int64)
    before = np.concatenate(([0], cycle[:-1]))
    starts = np.concatenate(([0], np.cumsum(count)[:-1]))
    before[starts] = first
    cycles = int(cycle.max()) + 1
    has_changed = changed == 1
    # An unchanged visit observes the cycles before + 1..cycle: 1 at the first, -1 after the last, summed up.
    steps = np.zeros((cycles + 1, len(page)), np.int32)
    np.add.at(steps, (before[~has_changed] + 1, column[~has_changed]), 1)
    np.add.at(steps, (cycle[~has_changed] + 1, column[~has_changed]), -1)
    observed = np.cumsum(steps, axis=0)[:cycles] > 0
    found_change = np.zeros((cycles, len(page)), np.bool_)
    # Changes within the cycle of the first visit are older than the history.
    counted = has_changed & (cycle > first[column])
    found_change[cycle[counted], column[counted]] = True
    observed |= found_change
    within = counted & (before == cycle)
    twice = cycle[within], column[within]
    quiet = np.bincount(column, interval * ~has_changed, len(page)).astype(np.float64) + PRIOR_DAYS
    moved: Floats = np.concatenate((interval[has_changed], np.full(len(page), PRIOR_DAYS)))
    moved_page = np.concatenate((column[has_changed], np.arange(len(page))))
    rate = np.clip(likeliest_rates(moved.clip(1e-6), moved_page, quiet), *RATE_BOUNDS)
    return _PageBatch(
        page, first, cycles, np.packbits(found_change, axis=0), np.packbits(observed, axis=0), twice, rate
    )


def _best_start(first: Ints, cycles: int) -> int:
    """Cycle for a history to begin at with most outcomes (pages fetched by then times later cycles)."""
    entered = np.cumsum(np.bincount(first, minlength=cycles)[: cycles - 1])
    if not len(entered) or not entered.any():
        raise HistoryError("all visits are of one cycle: choose shorter ones by --cycle")
    return int(np.argmax(entered * (cycles - 1 - np.arange(cycles - 1))))
