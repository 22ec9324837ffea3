"""Columns for terminals that are computed from visits to related pages, when a round of a cycle is planned.

With C changes found by V visits in a window (the last 3 finished cycles, and this one so far):

* ``near``: share of visits to the directory that found changes; the share of its site counts as one more
  visit, and in this the share of the crawl: ``(C_dir + (C_site + (C + 0.1) / (V + 1)) / (V_site + 1)) /
  (V_dir + 1)``; C and V of the crawl leave out visits of the warm-up (see `Related.crawl`);
* ``near_dir``, ``near_site``: ``(C + 0.1) / (V + 1)`` of the group alone;
* ``surprise_dir``, ``surprise_site``: ``(found + 1) / (predicted + 1)``, changes in the group since the
  page's last visit, or in the last 8 finished cycles if it is earlier; predicted is a sum of terminal p;
* ``site_now``, ``directory_now``, ``cluster_now``: (found + s) / (visits + 1) of this cycle so far, where s
  is the share (C + 0.1) / (V + 1) of the finished cycles of the window; ``cluster_recent`` is that s;
* ``site_rate``: changes per cycle of all pages of the site, as finished cycles left them;
* ``size_lift``: changes of all pages of a size class divided by those expected, as finished cycles left them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats
from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.page_state.claims import KINDS_OF, SiteClaims
from scrapy_gp4c.page_state.groups import KEPT_CYCLES, NO_VISITS, Directories
from scrapy_gp4c.scoring import hints, rates, refresh_value, sizes, weights
from scrapy_gp4c.scoring.terminals import CLUSTERED, ROUND


def share(changes: Array, visits: Array) -> Floats:
    """Smoothed share of visits to groups that found changes, ``[G]``: ``near_dir`` and ``near_site``."""
    return np.asarray((changes + 0.1) / (visits + 1.0))


class Sums(NamedTuple):
    """Sums over the visits to each group (directory, site or cluster), both ``[G]``."""

    changes: Floats
    visits: Floats
    """Number of visits; in results of `Related.since`, of the changes expected."""


def shrunk(group: Sums, above: Floats) -> Floats:
    """Share of visits to groups that found changes; `above`, the larger group's, counts as one visit."""
    return np.asarray((group.changes + above) / (group.visits + 1.0))


def near(directory: Sums, site: Sums, crawl: Sums) -> Floats:
    """Column ``near``: share of visits to directories that found changes, `shrunk` to site and crawl."""
    return shrunk(directory, shrunk(site, share(*crawl)))


def so_far(now: Sums, window: Sums) -> Floats:
    """Share of this cycle's visits that found changes; the share in earlier cycles counts as one visit.

    ``now``: sums of this cycle; ``window``: sums of this and the earlier cycles.
    """
    before = share(window.changes - now.changes, window.visits - now.visits)
    return np.asarray((now.changes + before) / (now.visits + 1.0))


def surprise(since: Sums) -> Floats:
    """Smoothed ratio of changes found to changes expected: (found + 1) / (expected + 1).

    ``since``: result of `Related.since`, whose field ``visits`` has the changes expected.
    """
    return np.asarray((since.changes + 1.0) / (since.visits + 1.0))


Level = Literal["site", "directory"]
WINDOW_CYCLES: Final = 3
"""Number of finished cycles in the window of ``near`` and other columns."""


class RecentVisits(NamedTuple):
    """Sums of visits by directory in the last cycles, when a round is planned."""

    cycle: int
    """Number of the cycle that is planned."""
    finished: Sequence[Array]
    """Sums of each of the last cycles, newest first, at most `KEPT_CYCLES`: dtype `GROUP_VISITS`."""
    now: Array = NO_VISITS
    """Sums of this cycle, before the round."""
    spent: float = 0.0
    """Share of this cycle's budget that earlier rounds used."""

    @property
    def window(self) -> Sequence[Array]:
        """Sums of this cycle so far and of each of the last `WINDOW_CYCLES`: dtype `GROUP_VISITS`."""
        return [self.now, *self.finished[:WINDOW_CYCLES]]


class Clustered(NamedTuple):
    """Sums of visits by cluster, in this and the last cycles; column ``cluster`` has each page's, or -1."""

    clusters: int
    """Number of clusters."""
    finished: Sequence[Array]
    """Sums of each of the last cycles, newest first: dtype `GROUP_VISITS`, with clusters as groups."""
    now: Array
    """Sums of this cycle, before the round."""


class PageSums(NamedTuple):
    """Expected changes and observed cycles of all pages of each site or size class, ``[S]``."""

    expected: Floats
    """Sum of the column ``E``, expected number of changes."""
    cycles: Floats
    """Sum of the column ``T``, observed cycles."""

    @classmethod
    def by(cls, number: Array, groups: int, expected: Array, cycles: Array) -> "PageSums":
        """Sum up `expected` (column ``E``) and `cycles` (``T``), by the `number` of each page's group."""
        sums = (np.bincount(number, one, groups) for one in (expected, cycles))
        return cls(*(one.astype(np.float64) for one in sums))  # without pages, bincount gives integers

    @property
    def crawl_rate(self) -> float:
        """Changes per cycle of all pages."""
        return float(rates.rate_of_group(self.expected.sum(), self.cycles.sum()))


class RoundColumns(Protocol):
    """Protocol of `Related`: source of columns that are computed when a round is planned."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns it has, some of `scrapy_gp4c.scoring.terminals.ROUND`."""

    def column(self, name: str, state: Mapping[str, Array], rows: int) -> Array:
        """Compute a column of some pages; ``rows``: their number; ``state``: their other columns."""


class GroupSums(Protocol):
    """Protocol of running sums of visits, by directory ``[G]`` or by site ``[S]``."""

    def window(self, level: Level) -> Sums:
        """Sums over the last `WINDOW_CYCLES` cycles and this one so far."""

    def this_cycle(self, level: Level) -> Sums:
        """Sums over this cycle so far."""


class Related:
    """Computes the columns of `scrapy_gp4c.scoring.terminals.ROUND` for one round, except ``draw``."""

    def __init__(
        self,
        directories: Directories,
        recent: RecentVisits,
        site_sums: Callable[[], PageSums],
        clustered: Clustered | None = None,
        claims: Callable[[], SiteClaims] | None = None,
        kept_sums: GroupSums | None = None,
        size_sums: Callable[[], PageSums] | None = None,
    ) -> None:
        """``site_sums``, ``size_sums``, ``claims``: functions called when a column needs their result.

        ``kept_sums``: running sums of the visits in ``recent``; None: ``recent`` is added up.
        """
        self._clustered = clustered
        self._claims = claims
        self._directories = directories
        self._recent = recent
        self.site_sums = site_sums
        self._tables: dict[str, Floats] = {}
        self._window: dict[Level, Sums] = {}
        self._kept_sums = kept_sums
        self._size_sums = size_sums

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that can be computed from the groups and claims that are known."""
        unknown = (BY_DIRECTORY if self._directories.unnamed else ()) + (() if self._clustered else CLUSTERED)
        unknown += () if self._claims else tuple(KINDS_OF)
        return tuple(name for name in ROUND if name not in unknown)

    def column(self, name: str, state: Mapping[str, Array], rows: int) -> Array:
        """Compute a column of some pages; ``rows``: their number; ``state``: their other columns.

        Raises ScoreError for a column of directories or clusters where these are not known.
        """
        if name == "spent":
            return np.full(rows, self._recent.spent)
        if self._directories.unnamed and name in BY_DIRECTORY:
            raise ScoreError(
                f"the terminal {name!r} needs the directories of pages, and the history has no names: "
                "use a history with names, or another terminal, such as 'near_site'"
            )
        if self._clustered is None and name in CLUSTERED:
            raise ScoreError(
                f"the terminal {name!r} needs clusters: give the replay `--groups` with a file of `python -m "
                "training.cluster`, or use another terminal, such as 'directory_now'"
            )
        if name in KINDS_OF:
            if self._claims is None:
                return np.zeros(rows)
            return self._claims().column(name, self._directories.site[state["group"]], state)
        number, make_table = _TABLES[name]
        if (table := self._tables.get(name)) is None:
            table = make_table(self)
            # A row for each directory: a page's directory is in its columns, its site is not.
            table = self._tables[name] = table[self._directories.site] if number == "site" else table
        group = state["group" if number == "site" else number]
        if table.ndim == 1:
            return np.asarray(table.take(group))
        seen_cycles = np.minimum(self._recent.cycle - 1 - state["last_cycle"], table.shape[1] - 1)
        return np.asarray(table.ravel().take(group * np.intp(table.shape[1]) + seen_cycles))

    def _sums(self, names: Sequence[str], parts: Sequence[Array], level: Level) -> Iterator[Floats]:
        """Yield for each field in `names` its sum over `parts`, tables of dtype `GROUP_VISITS`, by group."""
        group = np.concatenate([visits["group"] for visits in parts]).astype(np.intp)
        number = group if level == "directory" else self._directories.site[group]
        size = len(self._directories) if level == "directory" else self._directories.sites
        for name in names:
            values = np.concatenate([visits[name] for visits in parts])
            yield np.bincount(number, values, size).astype(np.float64)  # without visits it gives integers

    def window(self, level: Level) -> Sums:
        """Sums over the window (the last 3 finished cycles, and this one so far), by directory or site."""
        known = self._window.get(level)
        if known is None:
            if self._kept_sums is not None:
                known = self._kept_sums.window(level)
            elif level == "directory":
                known = Sums(*self._sums(("changes", "visits"), self._recent.window, level))
            else:
                number, sites = self._directories.site, self._directories.sites
                changes, visits = (
                    np.bincount(number, one, sites).astype(np.float64) for one in self.window("directory")
                )
                known = Sums(changes, visits)
            self._window[level] = known
        return known

    @property
    def crawl(self) -> Sums:
        """Changes and visits of the whole crawl in the window (see `window`): two numbers.

        Warm-up visits count only in cycles without other visits, because a site with ever new pages, which
        has most of the warm-up, would decide what is expected of all sites.
        """
        changes, visits = (np.asarray(one.sum()) for one in self.window("site"))
        for of_cycle in self._recent.window:
            if 0 < (warmup := of_cycle["warmup_visits"].sum()) < of_cycle["visits"].sum():
                changes, visits = changes - of_cycle["warmup_changes"].sum(), visits - warmup
        return Sums(changes, visits)

    def since(self, level: Level) -> Sums:
        """Changes found and expected in the last n finished cycles and this one, by group and n from 0 to N.

        Both are ``[G or S, N + 1]``. The field ``visits`` has the changes expected.
        """
        changes, predicted = self._sums(("changes", "predicted"), [self._recent.now], level)
        columns = [(changes, predicted)]
        number = self._directories.site if level == "site" else np.arange(len(self._directories))
        for visits in self._recent.finished[:KEPT_CYCLES]:
            of_group = number[visits["group"]]
            changes = changes + np.bincount(of_group, visits["changes"], len(changes))
            predicted = predicted + np.bincount(of_group, visits["predicted"], len(changes))
            columns.append((changes, predicted))
        return Sums(*(np.stack(one, axis=1) for one in zip(*columns, strict=True)))

    def sites_of(self, groups: Array) -> Array:
        """Return the number of each directory's site."""
        return np.asarray(self._directories.site[groups])

    def _near(self) -> Floats:
        # As `near`, the share of each site computed once for all of its directories.
        of_site = shrunk(self.window("site"), share(*self.crawl))
        return shrunk(self.window("directory"), np.asarray(of_site[self._directories.site]))

    def this_cycle(self, level: Level) -> Sums:
        """Sums of changes and visits over this cycle so far, by directory or site."""
        if self._kept_sums is not None:
            return self._kept_sums.this_cycle(level)
        return Sums(*self._sums(("changes", "visits"), [self._recent.now], level))

    def _clusters(self, including_now: bool) -> Floats:
        """Share of changes by cluster, ``[C + 1]``: ``cluster_now`` if `including_now`, or `cluster_recent`.

        The last entry is for pages in no cluster.
        """
        now, recent = self.of_clusters()
        both = Sums(now.changes + recent.changes, now.visits + recent.visits)
        return so_far(now, both) if including_now else share(*recent)

    def of_clusters(self) -> tuple[Sums, Sums]:
        """Return sums by cluster of this cycle so far, and of the window's finished cycles, ``[C + 1]``.

        The last entry, for pages in no cluster, is 0.
        """
        assert self._clustered is not None
        clusters, finished, now = self._clustered

        def count(parts: Sequence[Array]) -> Sums:
            joined = np.concatenate([NO_VISITS, *parts])
            changes, visits = (
                np.bincount(joined["group"], joined[name], clusters + 1) for name in ("changes", "visits")
            )
            return Sums(changes.astype(np.float64), visits.astype(np.float64))

        return count([now]), count(finished[:WINDOW_CYCLES])

    def _size_lifts(self) -> Floats:
        if self._size_sums is None:
            return np.ones(sizes.CLASSES)
        sums = self._size_sums()
        return sizes.lifts(*sums, sums.crawl_rate)


BY_DIRECTORY: Final = ("near", "near_dir", "surprise_dir", "directory_now")
"""Columns that need the directories of pages, and not only their sites."""
_TABLES: Final[dict[str, tuple[str, Callable[[Related], Floats]]]] = {
    "near": ("group", Related._near),
    "near_site": ("site", lambda related: share(*related.window("site"))),
    "near_dir": ("group", lambda related: share(*related.window("directory"))),
    "site_rate": ("site", lambda related: rates.rate_of_group(*related.site_sums())),
    "surprise_site": ("site", lambda related: surprise(related.since("site"))),
    "surprise_dir": ("group", lambda related: surprise(related.since("directory"))),
    "site_now": ("site", lambda related: so_far(related.this_cycle("site"), related.window("site"))),
    "directory_now": (
        "group",
        lambda related: so_far(related.this_cycle("directory"), related.window("directory")),
    ),
    "cluster_now": ("cluster", lambda related: related._clusters(True)),
    "cluster_recent": ("cluster", lambda related: related._clusters(False)),
    "size_lift": ("size", Related._size_lifts),
}
"""Column -> name of the page column with each page's row in its table, and function that makes the table.

For ``site`` the row is the number of the site of the page's directory. A table with two dimensions also has
a column for each number of finished cycles since the page's last visit.
"""


_NOT_KNOWN: Final = {**refresh_value.COLUMNS, **hints.COLUMNS, **sizes.COLUMNS, "entered": "<i4"}
"""Columns that are 0 where nothing was measured, no page has claims, or a history has no sizes or growth."""


class RoundState(Mapping[str, Array]):
    """Mapping of column names to columns of some pages, for scoring; each is computed when first read."""

    def __init__(
        self,
        columns: Mapping[str, Array],
        rows: npt.NDArray[np.intp] | slice,
        related: RoundColumns,
        draw: Callable[[npt.NDArray[np.intp] | slice], npt.NDArray[np.uint64]],
    ) -> None:
        """``columns``: of all pages, ``[P]``; ``rows``: pages to score; ``draw(rows)``: draws for ties."""
        self._columns = columns
        self._rows = rows
        self._related = related
        self._draw = draw
        self._made: dict[str, Array] = {}

    @property
    def rows(self) -> int:
        first = next(iter(self._columns))
        return len(self[first])

    def __getitem__(self, name: str) -> Array:
        made = self._made.get(name)
        if made is None:
            if name in self._columns:
                made = self._columns[name][self._rows]
            elif name == "draw":
                made = self._draw(self._rows)
            elif name in ROUND:
                made = self._related.column(name, self, self.rows)
            elif name in _NOT_KNOWN:
                made = np.zeros(self.rows, _NOT_KNOWN[name])
            elif name in weights.COLUMNS:  # no page has a weight of its own
                made = np.full(self.rows, weights.DEFAULT_WEIGHT)
            else:
                raise KeyError(name)
            self._made[name] = made
        return made

    def __iter__(self) -> Iterator[str]:
        yield from self._columns
        yield from self._related.names

    def __len__(self) -> int:
        return len(self._columns) + len(self._related.names)
