"""What the visits of the last cycles found, by directory and site: kept up to date, not counted anew.

What a policy may look at in a replay: the columns of all pages, and what the cycle has found so far.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.page_state.groupings import Grouping, Name
from scrapy_gp4c.page_state.groups import KEPT_CYCLES, NO_VISITS, Directories, count_changes, count_visits
from scrapy_gp4c.page_state.outcomes import CHANGED, UNCHANGED
from scrapy_gp4c.page_state.related import (
    WINDOW_CYCLES,
    Clustered,
    Level,
    RecentVisits,
    Related,
    RoundState,
    SiteSums,
    Sums,
)
from scrapy_gp4c.policies.base import NOTHING_CHOSEN, Block, CycleVisits, Pages, Planned, Scorer, Selection
from scrapy_gp4c.scoring import refresh_value, terminals
from scrapy_gp4c.scoring.draws import salted_draws
from scrapy_gp4c.scoring.terminals import Array
from training.histories.neighbours import PageDirectories
from training.replaying.buckets import PageStates
from training.replaying.metrics import Ints
from training.replaying.prepared import PreparedHistory
from training.replaying.ranked import Known, RankedPages, blocks

Floats = npt.NDArray[np.float64]


class _Part(NamedTuple):
    """Visits, or sums of several to one directory: each ``[V]``."""

    group: npt.NDArray[np.intp]
    found: Floats
    tried: Floats


class Window:
    """Sums over the last `WINDOW_CYCLES` finished cycles, and over one that is not over."""

    def __init__(self, directories: Directories, finished: Sequence[Array]) -> None:
        """Take the directories, and the cycles so far, newest first: dtype `GROUP_VISITS`."""
        self._directories = directories
        self._sums = self._zeros()
        self._now: list[_Part] = []
        self._finished: list[list[_Part]] = []
        for visits in finished[:WINDOW_CYCLES]:
            found, tried = (visits[name].astype(np.float64) for name in ("found", "visits"))
            self._finished.append([_Part(visits["group"].astype(np.intp), found, tried)])
            self._add(self._sums, self._finished[-1])

    def add(self, group: npt.NDArray[np.intp], changed: npt.NDArray[np.bool_]) -> None:
        """Add visits of the cycle that is not over: their directories, and whether each found a change."""
        self._now.append(_Part(group, changed.astype(np.float64), np.ones(len(group))))
        self._add(self._sums, self._now[-1:])

    def finish(self) -> None:
        """That cycle is over, and the oldest one is left out."""
        self._finished.insert(0, self._now)
        self._now = []
        if len(self._finished) > WINDOW_CYCLES:
            self._add(self._sums, self._finished.pop(), -1.0)

    def window(self, level: Level) -> Sums:
        """Sums over all of these cycles, ``[G or S]``, until the next visits, and not to be written to."""
        return self._sums[level]

    def begun(self, level: Level) -> Sums:
        """Sums over the cycle that is not over, ``[G or S]``."""
        sums = self._zeros()
        self._add(sums, self._now)
        return sums[level]

    def _zeros(self) -> dict[Level, Sums]:
        sizes: dict[Level, int] = {"directory": len(self._directories), "site": self._directories.sites}
        return {level: Sums(np.zeros(size), np.zeros(size)) for level, size in sizes.items()}

    def _add(self, sums: dict[Level, Sums], parts: Sequence[_Part], sign: float = 1.0) -> None:
        from training.replaying.kernels import dense  # compiles: only when it is used

        both = tuple(sums["directory"]), tuple(sums["site"])
        for part in parts:
            dense.add(*part, sign, self._directories.site, *both)


NO_GROUPS: Final = PageDirectories(np.empty(0, np.intp), Directories(np.empty(0, np.intp), 0))
"""Where nobody asks for any."""


class _Worth:
    """What visits to the pages were worth, those of the warm-up first."""

    def __init__(self, prepared: PreparedHistory, columns: tuple[str, ...]) -> None:
        if prepared.impact is None:
            raise ScoreError(
                "the terminals dq_rate, dq_last and dq_decay need contents and a log of queries: replay a "
                "file of contents with --query-log"
            )
        self._impact = prepared.impact
        self.state = {
            name: np.zeros(prepared.pages, dtype)
            for name, dtype in refresh_value.COLUMNS.items()
            if name in columns
        }
        self._held = self._impact.version[0].copy()
        everything = np.arange(prepared.pages)
        for cycle in range(1, prepared.warmup + 1):
            since = {"last_cycle": np.full(prepared.pages, cycle - 1)}
            self.observe(self.state | since, everything, cycle)

    def observe(self, seen: dict[str, terminals.Array], pages: Ints, cycle: int) -> None:
        """Measure the visits of a cycle; ``seen``: the state of their pages before them, ``[visits]``."""
        live = self._impact.version[cycle, pages]
        gained = self._impact.between(self._held[pages], live, pages)
        refresh_value.observe(seen, gained, cycle - seen["last_cycle"])
        self._held[pages] = live


class ReplayEvidence:
    """All pages of a replay, block by block, and what the cycle has found so far."""

    def __init__(self, prepared: PreparedHistory, columns: tuple[str, ...]) -> None:
        """Take a history; ``columns``: state columns that policy and score function read."""
        self._prepared = prepared
        related = [name for name in columns if name in terminals.ROUND and name not in ("draw", "spent")]
        self._is_related = bool(related)
        self._group, self._directories = prepared.neighbours.groups if related else NO_GROUPS
        self._is_predicted = any(name.startswith("surprise") for name in related)
        kept = [name for name in terminals.STATE if name in columns or name == "last_cycle"]
        self.states = PageStates(prepared.first_state(tuple(kept)), prepared.pattern)
        self._worth = (
            _Worth(prepared, columns) if not refresh_value.COLUMNS.keys().isdisjoint(columns) else None
        )
        self._beside: dict[str, Array] = {"group": self._group} if related else {}
        if self._worth is not None:
            self._beside |= self._worth.state
        self._neighbours = prepared.neighbours
        if len(prepared.weights.values):
            self._beside["weight"] = prepared.weights.values
        self._clusters: Grouping | None = None
        self._told: list[tuple[Ints, npt.NDArray[np.bool_]]] = []
        if any(name in terminals.CLUSTERED for name in related) and self._neighbours.knows("cluster"):
            begun = prepared.changed[max(0, prepared.warmup - WINDOW_CYCLES) : prepared.warmup]
            self._told = [(np.arange(prepared.pages), row) for row in begun[::-1]]
            self._take_clusters()
        warmup_visits = prepared.warmup_visits if related else []
        self._window = Window(self._directories, warmup_visits)
        self._finished = list(warmup_visits) if self._is_predicted else []
        self._pages = np.arange(prepared.pages, dtype=np.uint32)
        self._drawn = np.empty(prepared.pages, np.uint64)
        self._open = np.ones(prepared.pages, np.bool_)
        self._ranked = RankedPages(prepared, self.states, PageDirectories(self._group, self._directories))
        self._best = NOTHING_CHOSEN
        self._visits = CycleVisits(*(np.empty(prepared.pages, one) for one in ("u4", "u1", "u1")))

    def _take_clusters(self) -> None:
        """Count by the clusters of now what the last cycles' visits found."""
        self._clusters = self._neighbours.grouping("cluster")
        self._beside["cluster"] = self._clusters.number
        self._clustered = [count_changes(self._clusters.number[pages], found) for pages, found in self._told]

    def begin(self, cycle: int, salt: np.uint64) -> None:
        """Begin a cycle, nothing visited yet; with clusters of the copies of now where they are due."""
        anew = self._prepared.neighbours.regrouping
        if anew is not None and cycle > 1 and (cycle - 1) % anew.every_cycles == 0:
            copies = self.states["last_cycle"].astype(np.int64)
            self._neighbours = self._neighbours.regrouped(anew.group(copies))
            if self._clusters is not None:
                self._take_clusters()
        self._cycle, self.salt = cycle, salt
        self.visited = 0
        self._open[:] = True
        self._ranked.begin(salt)

    @property
    def is_regrouped(self) -> bool:
        """Whether clusters and links may be others in a later cycle."""
        return self._prepared.neighbours.regrouping is not None

    @property
    def pages(self) -> int:
        """P."""
        return len(self._pages)

    def _related(self) -> Related:
        """What was visited so far, for the round that comes."""
        recent = RecentVisits(self._cycle, self._finished, self._counted(), self.visited / self._prepared.k)
        clustered = None
        if self._clusters is not None:
            clustered = Clustered(self._clusters.groups, self._clustered, self._counted_clusters())
        return Related(self._directories, recent, self._site_sums, clustered, kept=self._window)

    def _counted_clusters(self) -> npt.NDArray[np.void]:
        """What this cycle's visits tell of clusters."""
        assert self._clusters is not None
        return count_changes(self._clusters.number[self.visited_pages()], self.found())

    def _counted(self) -> npt.NDArray[np.void]:
        """What this cycle's visits tell of groups, where more is asked for than `Window` tells."""
        visited = self.visited_pages()
        if not len(visited) or not self._is_predicted:
            return NO_VISITS
        state = {name: self.states[name][visited] for name in ("E", "T", "last_cycle")}
        predicted = terminals.change_probability(state, self._cycle)
        return count_visits(self._group[visited], self.found(), predicted)

    def _site_sums(self) -> SiteSums:
        site = self._directories.site[self._group]
        expected, cycles = (
            np.bincount(site, self.states[name], self._directories.sites).astype(np.float64)
            for name in ("E", "T")
        )
        return SiteSums(expected, cycles)

    def candidates(self) -> Iterator[Block]:
        """Yield the pages that were not visited in this cycle."""
        related = self._related()
        for rows in blocks(len(self._pages)):
            left = np.flatnonzero(self._open[rows]) + rows.start if self.visited else rows
            yield self._block(left, related)

    def _block(self, rows: npt.NDArray[np.intp] | slice, related: Related) -> Block:
        columns = ChainMap(self.states, self._beside)  # type: ignore[arg-type]  # nobody writes to it
        state = RoundState(columns, rows, related, self._draw)
        pages = self._pages[rows]
        return Block(pages, state, lambda own: self._ranked.ties(pages[own]))

    def best(self, scores_of: Scorer, k: int) -> Selection:
        """What `best_candidates` makes of the candidates, faster: all pages are at hand."""
        k = min(k, len(self._pages) - self.visited)
        self._best = NOTHING_CHOSEN
        if k > 0:
            related = self._related()
            known = Known(
                lambda columns, rows: RoundState(columns, rows, related, self._draw),
                lambda rows: self._block(rows, related),
                self.visits().pages,
            )
            self._best = self._ranked.best(scores_of, k, known)
            self._best.pages.flags.writeable = False
        return self._best

    def trusts(self, chosen: Selection) -> bool:
        """Whether `best` has just told this, and its pages cannot have been written to."""
        return chosen is self._best and not chosen.pages.flags.writeable

    def first_of_groups(self, grouping: Grouping, most: int) -> tuple[Pages, Ints, Ints]:
        """The first candidates of every group in the order of their turns; nothing is visited yet."""
        from training.replaying.kernels import sampling  # compiles: only when it is used

        assert not self.visited
        sampling.draw(self.salt, self._drawn)
        return sampling.earliest(most, self._drawn, grouping.by_group)  # type: ignore[no-any-return]  # compiled

    def _draw(self, rows: npt.NDArray[np.intp] | slice) -> npt.NDArray[np.uint64]:
        return salted_draws(self._pages[rows].astype(np.uint64), self.salt)

    def may_visit(self, pages: Pages) -> npt.NDArray[np.bool_]:
        """Tell which of some pages were not visited in this cycle."""
        known = np.minimum(pages, len(self._open) - 1)
        return np.asarray(self._open[known] & (pages == known))

    def rows(self, pages: Pages) -> Block:
        """Return the columns of some pages."""
        return self._block(pages.astype(np.intp), self._related())

    def visits(self) -> CycleVisits:
        """Return what the rounds before have found."""
        return self._visits.first(self.visited)

    def planned(self) -> Planned:
        """Return what the rounds before have chosen, all of which is visited by now."""
        pages, _, kinds = self.visits()
        return Planned(pages, kinds)

    def grouping(self, name: Name) -> Grouping:
        """Return how all pages fall into groups. Raises PolicyError where the history does not tell."""
        return self._neighbours.grouping(name)

    def popularity(self) -> npt.NDArray[np.uint8]:
        """Return how popular each page is. Raises PolicyError where the history does not tell."""
        return self._neighbours.popularity()

    def visit(self, chosen: Selection, found: npt.NDArray[np.bool_]) -> None:
        """Note the visits of a round."""
        rows = slice(self.visited, self.visited + len(found))
        outcomes = np.where(found, np.uint8(CHANGED), np.uint8(UNCHANGED))
        self._visits.pages[rows], self._visits.outcomes[rows] = chosen.pages, outcomes
        self._visits.kinds[rows] = chosen.kinds_of_pages()
        self.visited += len(found)
        group = self._ranked.visit(chosen.pages, self.trusts(chosen))
        self._best = NOTHING_CHOSEN
        pages = chosen.pages.astype(np.intp)  # indexing by others takes more than twice as long
        if self._is_related:
            self._window.add(self._group[pages] if group is None else group.astype(np.intp), found)
        self._open[pages] = False

    def visited_pages(self) -> Ints:
        """Pages visited in this cycle, in order of visit."""
        return self.visits().pages.astype(np.int64)

    def found(self) -> npt.NDArray[np.bool_]:
        """Whether each of them had changed."""
        return np.asarray(self.visits().outcomes == CHANGED)

    def close(self) -> None:
        """The replay is over."""
        self._ranked.close()

    def observe(self) -> None:
        """Add the cycle's visits to the state of their pages and groups."""
        if self._is_related:
            self._window.finish()
        if self._is_predicted:
            self._finished = [self._counted(), *self._finished[: KEPT_CYCLES - 1]]
        if self._clusters is not None:
            self._clustered = [self._counted_clusters(), *self._clustered[: WINDOW_CYCLES - 1]]
            self._told = [(self.visited_pages(), self.found()), *self._told[: WINDOW_CYCLES - 1]]
        visited = self.visited_pages()
        if self._worth is not None:
            seen = {name: values[visited] for name, values in self._worth.state.items()}
            seen["last_cycle"] = self.states["last_cycle"][visited]
            self._worth.observe(seen, visited, self._cycle)
            for name, values in self._worth.state.items():
                values[visited] = seen[name]
        self._ranked.observe(visited, self.found(), self._cycle)
