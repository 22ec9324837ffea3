"""What related pages tell, against its definitions in plain Python, visit by visit."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state.claims import KINDS_OF
from scrapy_gp4c.page_state.groups import (
    KEPT_CYCLES,
    add_up,
    count_visits,
    directories,
)
from scrapy_gp4c.page_state.related import PageSums, RecentVisits, Related, RoundState
from scrapy_gp4c.scoring import terminals

NAMES = (
    "rate",
    "rate_site",
    "p",
    "near",
    "near_site",
    "near_dir",
    "surprise_site",
    "surprise_dir",
    "found_t",
    "spent",
)
UNIT = 2.0**-24


class Visit(NamedTuple):
    cycle: int
    page: int
    found: bool
    warmup: bool = False


class Web(NamedTuple):
    """Pages in a tree, and the judged visits to them; of the planned cycle, those that a round has seen."""

    directory: list[int]
    """Of each page."""
    site: list[int]
    """Of each directory."""
    first: list[int]
    """Cycle in which each page was first fetched."""
    visits: list[Visit]
    cycle: int
    """The one that is planned."""
    spent: float


@st.composite
def webs(draw):
    """Trees of up to 3 sites with up to 5 directories, and up to 80 visits to up to 10 pages."""
    site = draw(st.lists(st.integers(0, 2), min_size=1, max_size=5))
    pages = draw(st.integers(1, 10))
    directory = draw(st.lists(st.integers(0, len(site) - 1), min_size=pages, max_size=pages))
    first = draw(st.lists(st.integers(0, 4), min_size=pages, max_size=pages))
    cycle = draw(st.integers(5, 16))
    one = st.tuples(st.integers(1, cycle), st.integers(0, pages - 1), st.tuples(st.booleans(), st.booleans()))
    drawn = {(c, page): found for c, page, found in draw(st.lists(one, max_size=80)) if c > first[page]}
    visits = [Visit(c, page, *found) for (c, page), found in sorted(drawn.items())]
    return Web(directory, site, first, visits, cycle, draw(st.sampled_from([0.0, 0.25, 1.0])))


class Page:
    """The own past of a page, summed up visit by visit."""

    def __init__(self, first: int) -> None:
        self.E, self.T = 0.0, 0
        self.last = self.found = first

    def rate(self) -> float:
        """(A + a) / (T + b)."""
        return (self.E + 0.1) / (self.T + 1.0)

    def p(self, cycle: int) -> float:
        """1 - exp(-rate * t)."""
        return 1.0 - math.exp(-self.rate() * (cycle - self.last))

    def see(self, visit: Visit) -> None:
        """Add x / (1 - exp(-x)) for a change."""
        gap = visit.cycle - self.last
        x = self.rate() * gap
        self.E += visit.found * round(x / (1.0 - math.exp(-x)) / UNIT) * UNIT
        self.T += gap
        self.last = visit.cycle
        self.found = visit.cycle if visit.found else self.found


class Plain:
    """Every terminal of `NAMES` by its definition."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.pages = [Page(first) for first in web.first]
        self.predicted = {}
        for visit in web.visits:
            page = self.pages[visit.page]
            self.predicted[visit] = round(page.p(visit.cycle) / UNIT) * UNIT
            if visit.cycle < web.cycle:
                page.see(visit)

    def values(self, page: int) -> dict[str, float]:
        """Terminals of one page."""
        web, own = self.web, self.pages[page]
        directory = web.directory[page]
        site = web.site[directory]
        since = web.cycle - 3
        crawl, of_site, of_dir = (
            [visit for visit in web.visits if visit.cycle >= since and within(visit.page)]
            for within in (lambda p: True, self.on_site(site), self.in_directory(directory))
        )
        # Without warm-up visits, but of cycles that have no others.
        only_warmup = {visit.cycle for visit in crawl} - {visit.cycle for visit in crawl if not visit.warmup}
        crawl = [visit for visit in crawl if not visit.warmup or visit.cycle in only_warmup]
        overall = (found(crawl) + 0.1) / (len(crawl) + 1.0)
        shrunk = (found(of_site) + overall) / (len(of_site) + 1.0)
        neighbours = [p for p in range(len(web.directory)) if self.on_site(site)(p)]
        expected = sum(self.pages[p].E for p in neighbours)
        cycles = sum(self.pages[p].T for p in neighbours)
        return {
            "rate": own.rate(),
            "rate_site": (own.E + 3.0 * (expected + 0.05) / (cycles + 1.0)) / (own.T + 3.0),
            "p": own.p(web.cycle),
            "near": (found(of_dir) + shrunk) / (len(of_dir) + 1.0),
            "near_site": (found(of_site) + 0.1) / (len(of_site) + 1.0),
            "near_dir": (found(of_dir) + 0.1) / (len(of_dir) + 1.0),
            "surprise_site": self.surprise(own, self.on_site(site)),
            "surprise_dir": self.surprise(own, self.in_directory(directory)),
            "found_t": web.cycle - own.found,
            "spent": web.spent,
        }

    def on_site(self, site: int):
        """Whether a page is on a site."""
        return lambda page: self.web.site[self.web.directory[page]] == site

    def in_directory(self, directory: int):
        """Whether a page is in a directory."""
        return lambda page: self.web.directory[page] == directory

    def surprise(self, own: Page, within) -> float:
        """(found + 1) / (predicted + 1) since the page's own last visit, within 8 finished cycles."""
        since = max(own.last + 1, self.web.cycle - 8)
        visits = [visit for visit in self.web.visits if visit.cycle >= since and within(visit.page)]
        return (found(visits) + 1.0) / (sum(self.predicted[visit] for visit in visits) + 1.0)


def found(visits: list[Visit]) -> int:
    """Changes found."""
    return sum(visit.found for visit in visits)


class Kept:
    """The same web as columns and tables, by the product's updates."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.group = np.array(web.directory, np.uint32)
        self.directories = directories(np.array(web.site, np.uint64))
        self.state = terminals.new_state(len(web.directory))
        for name in ("first_cycle", "last_cycle", "found_cycle"):
            self.state[name][:] = web.first
        finished = []
        for cycle in range(1, web.cycle):
            finished.insert(0, self.count(cycle))
            rows = np.array([visit.page for visit in web.visits if visit.cycle == cycle], int)
            changed = np.array([visit.found for visit in web.visits if visit.cycle == cycle], bool)
            seen = {name: values[rows] for name, values in self.state.items()}
            terminals.observe(seen, changed, cycle)
            for name, values in seen.items():
                self.state[name][rows] = values
        self.recent = RecentVisits(web.cycle, finished[:KEPT_CYCLES], self.count(web.cycle), web.spent)

    def count(self, cycle: int) -> np.ndarray:
        """What the visits of a cycle tell of directories, counted in two parts and added up."""
        visits = [visit for visit in self.web.visits if visit.cycle == cycle]
        parts = []
        for part in (visits[::2], visits[1::2]):
            rows = np.array([visit.page for visit in part], int)
            predicted = terminals.change_probability(
                {name: self.state[name][rows] for name in ("E", "T", "last_cycle")}, cycle
            )
            changed = np.array([visit.found for visit in part], bool)
            warmup = np.array([visit.warmup for visit in part], bool)
            parts.append(count_visits(self.group[rows], changed, predicted, warmup))
        return add_up(parts)

    def site_sums(self) -> PageSums:
        """Sums over the pages of each site."""
        site = self.directories.site[self.group]
        sites = self.directories.sites
        return PageSums(
            *(np.bincount(site, self.state[name], sites).astype(np.float64) for name in ("E", "T"))
        )

    def values(self, rows: np.ndarray | slice) -> dict[str, np.ndarray]:
        """Terminals of some pages."""
        related = Related(self.directories, self.recent, self.site_sums)
        state = RoundState(self.state | {"group": self.group}, rows, related, lambda rows: np.empty(0))
        return terminals.compute(NAMES, state, self.web.cycle)


@given(webs())
def test_terminals_are_their_definitions(web: Web) -> None:
    """Those of shares to the last bit; those with exponentials to the units that sums are kept in."""
    plain, values = Plain(web), Kept(web).values(slice(None))
    for page in range(len(web.directory)):
        expected = plain.values(page)
        assert set(expected) == set(NAMES) == set(values)
        for name in NAMES:
            if name in ("near", "near_site", "near_dir", "found_t", "spent"):
                assert values[name][page] == expected[name], name
            else:
                assert values[name][page] == pytest.approx(expected[name], rel=1e-6), name


@given(webs(), st.data())
def test_some_rows_are_told_what_all_are(web: Web, data: st.DataObject) -> None:
    """In any order of rows, bit by bit."""
    columns = Kept(web)
    rows = np.array(data.draw(st.permutations(range(len(web.directory)))))[: data.draw(st.integers(1, 10))]
    some, all_ = columns.values(rows), columns.values(slice(None))
    for name in NAMES:
        assert some[name].tobytes() == all_[name][rows].tobytes(), name


@given(webs(), st.randoms())
def test_the_order_of_visits_and_pages_does_not_count(web: Web, random) -> None:
    """Sums are exact: pages and directories numbered anew have the same values, bit by bit."""
    pages, groups = list(range(len(web.directory))), list(range(len(web.site)))
    random.shuffle(pages)
    random.shuffle(groups)
    shuffled = web.visits.copy()
    random.shuffle(shuffled)
    other = Web(
        [groups.index(web.directory[page]) for page in pages],
        [web.site[group] for group in groups],
        [web.first[page] for page in pages],
        sorted(
            (visit._replace(page=pages.index(visit.page)) for visit in shuffled),
            key=lambda visit: visit.cycle,
        ),
        web.cycle,
        web.spent,
    )
    one, two = Kept(web).values(slice(None)), Kept(other).values(slice(None))
    for name in NAMES:
        assert two[name].tobytes() == one[name][pages].tobytes(), name


def test_columns_are_made_when_they_are_asked_for() -> None:
    """A score that reads no sums over pages does not pay for them; an unknown name is a KeyError."""
    web = Web([0, 0, 1], [0, 0], [0, 0, 0], [Visit(1, 0, True)], 2, 0.5)
    columns = Kept(web)

    def never() -> PageSums:
        raise AssertionError("nobody asked")

    related = Related(columns.directories, columns.recent, never)
    state = RoundState(columns.state | {"group": columns.group}, np.array([0, 2]), related, lambda rows: rows)
    assert state["near"].tolist() == [(1 + (1 + 1.1 / 2) / 2) / 2, (0 + (1 + 1.1 / 2) / 2) / 1]
    assert state["spent"].tolist() == [0.5, 0.5]
    assert state["draw"].tolist() == [0, 2]
    assert state["near"] is state["near"]
    assert set(state) == {*terminals.STATE, "group", *terminals.ROUND} - {*terminals.CLUSTERED, *KINDS_OF}
    assert len(state) == len(list(state))
    with pytest.raises(KeyError):
        state["nothing"]
    with pytest.raises(AssertionError, match="nobody asked"):
        state["site_rate"]
