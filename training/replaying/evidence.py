"""Pages and visits of a replay, as policies read them; sums of visits by directory and site."""

from collections import ChainMap
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats, Ints
from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.page_state.claims import KINDS_OF
from scrapy_gp4c.page_state.groupings import Grouping, Name
from scrapy_gp4c.page_state.groups import KEPT_CYCLES, NO_VISITS, Directories, count_changes, count_visits
from scrapy_gp4c.page_state.outcomes import CHANGED, PROMISED, UNCHANGED
from scrapy_gp4c.page_state.related import (
    WINDOW_CYCLES,
    Clustered,
    Level,
    PageSums,
    RecentVisits,
    Related,
    RoundState,
    Sums,
)
from scrapy_gp4c.policies.base import NOTHING_CHOSEN, Block, CycleVisits, Pages, Planned, Scorer, Selection
from scrapy_gp4c.scoring import hints, measured, refresh_value, sizes, terminals
from scrapy_gp4c.scoring.ranking import salted_draws
from training.histories.neighbours import PageDirectories
from training.replaying.claims import ReplayedPageClaims
from training.replaying.measured import ReplayedDistances
from training.replaying.page_states import PageStates
from training.replaying.prepared import PreparedHistory
from training.replaying.ranked_pages import RankedPages, blocks


class _VisitSums(NamedTuple):
    group: npt.NDArray[np.intp]
    changes: Floats
    visits: Floats


class GroupWindow:
    """Running sums of visits and changes by directory and site, over `WINDOW_CYCLES` cycles and this one."""

    def __init__(self, directories: Directories, finished: Sequence[Array]) -> None:
        """``finished``: sums of visits of the cycles so far, newest first, dtype `GROUP_VISITS`."""
        self._directories = directories
        self._sums = self._zeros()
        self._now: list[_VisitSums] = []
        self._finished: list[list[_VisitSums]] = []
        for visits in finished[:WINDOW_CYCLES]:
            changes, attempts = (visits[name].astype(np.float64) for name in ("changes", "visits"))
            self._finished.append([_VisitSums(visits["group"].astype(np.intp), changes, attempts)])
            self._add(self._sums, self._finished[-1])

    def add(self, group: npt.NDArray[np.intp], changed: npt.NDArray[np.bool_]) -> None:
        """Add visits of the current cycle: directory of each, and whether it found a change."""
        self._now.append(_VisitSums(group, changed.astype(np.float64), np.ones(len(group))))
        self._add(self._sums, self._now[-1:])

    def finish(self) -> None:
        """End the current cycle; the oldest one leaves the window."""
        self._finished.insert(0, self._now)
        self._now = []
        if len(self._finished) > WINDOW_CYCLES:
            self._add(self._sums, self._finished.pop(), -1.0)

    def window(self, level: Level) -> Sums:
        """Sums over the window's cycles by directory ``[G]`` or site ``[S]``; the next visits change them."""
        return self._sums[level]

    def this_cycle(self, level: Level) -> Sums:
        """Sums over the current cycle by directory or site, ``[G]`` or ``[S]``."""
        sums = self._zeros()
        self._add(sums, self._now)
        return sums[level]

    def _zeros(self) -> dict[Level, Sums]:
        lengths: dict[Level, int] = {
            "directory": len(self._directories.site),
            "site": self._directories.sites,
        }
        return {level: Sums(np.zeros(size), np.zeros(size)) for level, size in lengths.items()}

    def _add(self, sums: dict[Level, Sums], parts: Sequence[_VisitSums], sign: float = 1.0) -> None:
        from training.replaying.kernels import dense  # compiles: only when it is used

        both = tuple(sums["directory"]), tuple(sums["site"])
        for visits in parts:
            dense.add(*visits, sign, self._directories.site, *both)


NO_GROUPS: Final = PageDirectories(np.empty(0, np.intp), Directories(np.empty(0, np.intp), 0))


class _RefreshValues:
    """State columns of the gains in search quality by all visits (`refresh_value.COLUMNS`)."""

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

    def observe(self, seen: dict[str, Array], pages: Ints, cycle: int) -> None:
        live = self._impact.version[cycle, pages]
        gained = self._impact.between(self._held[pages], live, pages)
        refresh_value.observe(seen, gained, cycle - seen["last_cycle"])
        self._held[pages] = live


class ReplayEvidence:
    """Pages and visits of a replay, as a policy reads them (`scrapy_gp4c.policies.base.Evidence`)."""

    def __init__(self, prepared: PreparedHistory, columns: tuple[str, ...]) -> None:
        """``columns``: state columns that policy and score function read."""
        self._prepared = prepared
        related = [name for name in columns if name in terminals.ROUND and name not in ("draw", "spent")]
        claim_columns = {*hints.COLUMNS, *KINDS_OF}
        reads_claims = prepared.claims is not None and not claim_columns.isdisjoint(columns)
        self._claims = ReplayedPageClaims(prepared) if reads_claims else None
        self._is_related = bool(related)
        self._group, self._directories = prepared.neighbours.groups if related else NO_GROUPS
        self._is_predicted = any(name.startswith("surprise") for name in related)
        needed = {"last_cycle", *columns, *(("E", "T") if "size_lift" in columns else ())}
        state_names = [name for name in terminals.STATE if name in needed]
        first_state = prepared.first_state(tuple(state_names))
        number: npt.NDArray[Any] = prepared.pattern
        self._is_sized = prepared.size is not None and "size_lift" in related
        if self._is_sized:
            of_pattern, size, number = prepared.sized_patterns
            first_state = {name: values[of_pattern] for name, values in first_state.items()} | {"size": size}
        self.states = PageStates(first_state, number)
        self._refresh_values = (
            _RefreshValues(prepared, columns)
            if not refresh_value.COLUMNS.keys().isdisjoint(columns)
            else None
        )
        self._page_columns: dict[str, Array] = {"group": self._group} if related else {}
        if self._claims is not None:
            self._page_columns |= self._claims.columns
        if self._refresh_values is not None:
            self._page_columns |= self._refresh_values.state
        self._distances: ReplayedDistances | None = None
        if not measured.COLUMNS.keys().isdisjoint(columns):
            self._page_columns |= self._measured(prepared)
        self._neighbours = prepared.neighbours
        if len(prepared.weights.values):
            self._page_columns["weight"] = prepared.weights.values
        self._clusters: Grouping | None = None
        self._recent_visits: list[tuple[Ints, npt.NDArray[np.bool_]]] = []
        if any(name in terminals.CLUSTERED for name in related) and self._neighbours.knows("cluster"):
            recent_changes = prepared.changed[max(0, prepared.warmup - WINDOW_CYCLES) : prepared.warmup]
            self._recent_visits = [(np.arange(prepared.pages), row) for row in recent_changes[::-1]]
            self._take_clusters()
        warmup_visits = prepared.warmup_visits if related else []
        self._window = GroupWindow(self._directories, warmup_visits)
        self._finished = list(warmup_visits) if self._is_predicted else []
        self._pages = np.arange(prepared.pages, dtype=np.uint32)
        self._drawn = np.empty(prepared.pages, np.uint64)
        self._may_visit = np.ones(prepared.pages, np.bool_)
        self._ranked = RankedPages(prepared, self.states, PageDirectories(self._group, self._directories))
        self._best = NOTHING_CHOSEN
        self._visits = CycleVisits(*(np.empty(prepared.pages, one) for one in ("u4", "u1", "u1")))

    def _measured(self, prepared: PreparedHistory) -> dict[str, Array]:
        """Columns that visits measure (download time, size of changes), as far as the history has them."""
        measured_columns: dict[str, Array] = {}
        if prepared.latency_ms is not None:
            measured_columns["latency_ms"] = prepared.latency_ms
        if prepared.flipped is not None:
            self._distances = ReplayedDistances(prepared.changed, prepared.flipped)
            for changed in prepared.changed[: prepared.warmup]:
                pages = np.flatnonzero(changed)
                self._distances.change(pages)
                self._distances.visit(pages)
            measured_columns |= self._distances.columns
        return measured_columns

    def _take_clusters(self) -> None:
        self._clusters = self._neighbours.grouping("cluster")
        self._page_columns["cluster"] = self._clusters.number
        self._clustered = [
            count_changes(self._clusters.number[pages], changed) for pages, changed in self._recent_visits
        ]

    def begin(self, cycle: int, salt: np.uint64) -> None:
        """Begin a cycle; cluster the pages anew by their copies where that is due."""
        anew = self._prepared.neighbours.regrouping
        if anew is not None and cycle > 1 and (cycle - 1) % anew.every_cycles == 0:
            copies = self.states["last_cycle"].astype(np.int64)
            self._neighbours = self._neighbours.regrouped(anew.group(copies))
            if self._clusters is not None:
                self._take_clusters()
        self._cycle, self.salt = cycle, salt
        if self._distances is not None:
            self._distances.change(np.flatnonzero(self._prepared.changed[cycle - 1]))
        self._size_sums = cache(self._sums_by_size) if self._is_sized else None
        self._site_claims = (
            None if self._claims is None else cache(partial(self._claims.site_claims, cycle, self.states))
        )
        self.visited = self.promised = 0
        self._hidden = self._pages[:0]
        self._may_visit[:] = True
        self._ranked.begin(salt)

    @property
    def pages(self) -> int:
        return len(self._pages)

    def _related(self) -> Related:
        recent = RecentVisits(self._cycle, self._finished, self._counted(), self._spent)
        clustered = None
        if self._clusters is not None:
            clustered = Clustered(self._clusters.groups, self._clustered, self._counted_clusters())
        return Related(
            self._directories,
            recent,
            self._site_sums,
            clustered,
            self._site_claims,
            kept_sums=self._window,
            size_sums=self._size_sums,
        )

    @property
    def _spent(self) -> float:
        budget = self._prepared.k - self.promised
        return (self.visited - self.promised) / budget if budget else 0.0

    def _counted_clusters(self) -> npt.NDArray[np.void]:
        assert self._clusters is not None
        return count_changes(self._clusters.number[self.visited_pages()], self.is_changed())

    def _counted(self) -> npt.NDArray[np.void]:
        """Visits and predicted changes of the cycle by directory, dtype `GROUP_VISITS`, if any are needed."""
        visited = self.visited_pages()
        if not len(visited) or not self._is_predicted:
            return NO_VISITS
        state = {name: self.states[name][visited] for name in ("E", "T", "last_cycle")}
        predicted = terminals.change_probability(state, self._cycle)
        return count_visits(self._group[visited], self.is_changed(), predicted)

    def _site_sums(self) -> PageSums:
        site = self._directories.site[self._group]
        return PageSums.by(site, self._directories.sites, self.states["E"], self.states["T"])

    def _sums_by_size(self) -> PageSums:
        state, pages = self.states.columns, self.states.pages
        return PageSums.by(state["size"], sizes.CLASSES, pages * state["E"], pages * state["T"])

    def candidates(self) -> Iterator[Block]:
        related = self._related()
        for rows in blocks(len(self._pages)):
            is_all = not self.visited and not len(self._hidden)
            open_rows = rows if is_all else np.flatnonzero(self._may_visit[rows]) + rows.start
            yield self._block(open_rows, related)

    def _block(self, rows: npt.NDArray[np.intp] | slice, related: Related) -> Block:
        columns = ChainMap(self.states, self._page_columns)  # type: ignore[arg-type]  # nobody writes to it
        state = RoundState(columns, rows, related, self._draw)
        pages = self._pages[rows]
        return Block(pages, state, lambda places: self._ranked.ties(pages[places]))

    @property
    def candidate_count(self) -> int:
        return len(self._pages) - self.visited - len(self._hidden)

    def best(self, scores_of: Scorer, k: int) -> Selection:
        """Selection of the k best candidates, as by `best_candidates`, but faster."""
        k = min(k, self.candidate_count)
        self._best = NOTHING_CHOSEN
        if k > 0:
            related = self._related()
            self._best = self._ranked.best(
                scores_of,
                k,
                np.concatenate((self.visits().pages, self._hidden)),
                lambda columns: RoundState(columns, slice(None), related, self._draw),
                lambda rows: self._block(rows, related),
            )
            self._best.pages.flags.writeable = False
        return self._best

    def trusts(self, chosen: Selection) -> bool:
        """Whether `chosen` is what `best` returned last, unchanged, so that it needs no check."""
        return chosen is self._best and not chosen.pages.flags.writeable

    @property
    def is_partial(self) -> bool:
        """Whether promise rules (GP4C_RULES) visited or excluded pages before the policy chooses any."""
        return bool(self.promised or len(self._hidden))

    def keep_promises(self, promised: Pages, changed: npt.NDArray[np.bool_], hidden: Pages) -> None:
        """Visit the pages `promised`, which have `changed` or not, and exclude the pages `hidden`."""
        kinds = np.full(len(promised), PROMISED, np.uint8)
        self.visit(Selection(promised, np.full(len(promised), np.nan), None, kinds), changed)
        self.promised, self._hidden = len(promised), hidden
        self._may_visit[hidden] = False

    def first_of_groups(self, grouping: Grouping, most: int) -> tuple[Pages, Ints, Ints]:
        """First `most` pages of every group, by their draws; to be called before any visit of the cycle.

        Returns the pages, the start of each group's in these, and the groups' numbers.
        """
        from training.replaying.kernels import sampling  # compiles: only when it is used

        assert not self.visited
        sampling.draw(self.salt, self._drawn)
        return sampling.first_pages(most, self._drawn, grouping.by_group)  # type: ignore[no-any-return]  # compiled

    def _draw(self, rows: npt.NDArray[np.intp] | slice) -> npt.NDArray[np.uint64]:
        return salted_draws(self._pages[rows].astype(np.uint64), self.salt)

    def may_visit(self, pages: Pages) -> npt.NDArray[np.bool_]:
        """Whether each of `pages` exists and may still be visited in this cycle, ``[pages]``."""
        known = np.minimum(pages, len(self._may_visit) - 1)
        return np.asarray(self._may_visit[known] & (pages == known))

    def rows(self, pages: Pages) -> Block:
        return self._block(pages.astype(np.intp), self._related())

    def visits(self) -> CycleVisits:
        return self._visits.first(self.visited)

    def planned(self) -> Planned:
        """Visits that the policy has chosen in this cycle so far, without those of promise rules."""
        pages, _, kinds = self.visits()
        return Planned(pages[self.promised :], kinds[self.promised :])

    def grouping(self, name: Name) -> Grouping:
        """Return the grouping `name` of all pages, such as sites; PolicyError where the history has none."""
        return self._neighbours.grouping(name)

    def popularity(self) -> npt.NDArray[np.uint8]:
        return self._neighbours.popularity()

    def visit(self, chosen: Selection, changed: npt.NDArray[np.bool_]) -> None:
        """Record the visits of a round; ``changed``: whether each page had changed, ``[visits]``."""
        rows = slice(self.visited, self.visited + len(changed))
        outcomes = np.where(changed, np.uint8(CHANGED), np.uint8(UNCHANGED))
        self._visits.pages[rows], self._visits.outcomes[rows] = chosen.pages, outcomes
        self._visits.kinds[rows] = chosen.kinds_of_pages()
        self.visited += len(changed)
        self._best = NOTHING_CHOSEN
        pages = chosen.pages.astype(np.intp)  # indexing by others takes more than twice as long
        if self._is_related:
            self._window.add(self._group[pages], changed)
        self._may_visit[pages] = False

    def visited_pages(self) -> Ints:
        """Pages visited in this cycle, in order of visit."""
        return self.visits().pages.astype(np.int64)

    def is_changed(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.visits().outcomes == CHANGED)

    def observe(self) -> None:
        """End the cycle: add its visits to the states of pages and the sums of groups."""
        if self._is_related:
            self._window.finish()
        if self._is_predicted:
            self._finished = [self._counted(), *self._finished[: KEPT_CYCLES - 1]]
        if self._clusters is not None:
            self._clustered = [self._counted_clusters(), *self._clustered[: WINDOW_CYCLES - 1]]
            self._recent_visits = [
                (self.visited_pages(), self.is_changed()),
                *self._recent_visits[: WINDOW_CYCLES - 1],
            ]
        visited = self.visited_pages()
        if self._refresh_values is not None:
            seen = {name: values[visited] for name, values in self._refresh_values.state.items()}
            seen["last_cycle"] = self.states["last_cycle"][visited]
            self._refresh_values.observe(seen, visited, self._cycle)
            for name, values in self._refresh_values.state.items():
                values[visited] = seen[name]
        if self._distances is not None:
            self._distances.visit(visited)
        if self._claims is not None:
            self._claims.observe(visited, self.is_changed(), self._cycle)
        self.states.observe(visited, self.is_changed(), self._cycle)
