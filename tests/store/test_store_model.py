"""The store against a model of plain dictionaries: any sequence of calls, reopened at any moment."""

import math
import shutil
import tempfile
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scrapy_gp4c.page_state.columns import COLUMNS
from scrapy_gp4c.page_state.groups import Place, place_of_url
from scrapy_gp4c.page_state.outcomes import OUTCOMES, PLAN
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.sizes import size_class
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Sizes
from scrapy_gp4c.store.records import NewVisit

JUDGED = ("unchanged", "changed", "not_modified")
FAILED = ("error", "gone", "excluded", "doubtful")


SMALL = Sizes(
    block_rows=4,
    commit_visits=3,
    visits_per_chunk=4,
    plan_rows=3,
    chunks_per_transaction=2,
    blocks_per_transaction=2,
    pages_per_transaction=3,
)
"""So small that a handful of pages needs several blocks, chunks and transactions."""


def censored_changes(visits: list[tuple[int, str, int]]) -> tuple[float, int]:
    """E and T of a page, visit by visit: changes that they stand for, cycles that they looked back."""
    expected, cycles, last_cycle = 0.0, 0, 0
    for cycle, outcome, _ in visits:
        if outcome == "changed":
            x = (expected + 0.1) / (cycles + 1) * (cycle - last_cycle)
            expected += round(max(x, 2.0**-24) / -math.expm1(-max(x, 2.0**-24)) * 2**24) / 2**24
        cycles += cycle - last_cycle if outcome in JUDGED else 0
        last_cycle = last_cycle if outcome in FAILED else cycle
    return expected, cycles


def distances(prints: list[tuple[int, str, int]]) -> tuple[int, int]:
    """Bits in which the fingerprints of changes differ in all, and the number of these changes."""
    pairs = [(a[2], b[2]) for a, b in pairwise(prints) if b[1] == "changed"]
    bits = [(one ^ other).bit_count() for one, other in pairs if one and other]
    return sum(bits), sum(one > 0 for one in bits)


class Page:
    """A page of the model: its columns come from the list of its visits, by definition."""

    def __init__(self, key: int, request: dict[str, Any]) -> None:
        self.key = key
        self.request = request
        self.validators: tuple[str | None, str | None] = (None, None)
        self.visits: list[tuple[int, str, int]] = []
        self.found_at = request["url"]
        """The URL that its directory is told by, whatever its request is later."""
        self.group = 0
        self.entered = 0
        self.found_by = 0
        self.due_from = 0
        """Number of visits before the last import that named it: failures by then make it wait no more."""
        self.brought: dict[int, int] = {}
        """Cycle -> pages that it found."""

    def growth(self) -> tuple[float, float, int]:
        """What its visits brought, visit by visit, in numbers of 16 bits."""
        new, looked, brought_cycle, last_cycle, judged = np.float16(0), np.float16(0), 0, 0, False
        for cycle, outcome, _ in self.visits:
            if outcome in FAILED:
                continue
            if outcome == "first" and not judged:
                brought_cycle = cycle
            else:
                decay = 2.0 ** (-(cycle - last_cycle) / 8)
                new = np.float16(float(new) * decay + self.brought.get(cycle, 0))
                looked = np.float16(float(looked) * decay + cycle - last_cycle)
                brought_cycle = cycle if self.brought.get(cycle) else brought_cycle
            judged |= outcome in JUDGED
            last_cycle = cycle
        return float(new), float(looked), brought_cycle

    def expected(self) -> dict[str, float]:
        """The columns as docs/code/store.md and docs/code/terminals.md, "Page state and terminals", say."""
        judged = [(cycle, outcome == "changed") for cycle, outcome, _ in self.visits if outcome in JUDGED]
        copies = [visit for visit in self.visits if visit[1] not in FAILED]
        prints = [visit for visit in copies if visit[1] != "not_modified"]
        failures = gone = 0
        for number, (_, outcome, _) in enumerate(self.visits, 1):
            failures = failures + 1 if outcome in FAILED and number != self.due_from else 0
            gone = gone + (outcome == "gone") if outcome in FAILED else 0
        n = len(judged)
        expected_changes, cycles = censored_changes(self.visits)
        before = self.visits if not n else self.visits[: [v[1] in JUDGED for v in self.visits].index(True)]
        firsts = [cycle for cycle, outcome, _ in before if outcome == "first"]
        first_cycle = firsts[-1] if firsts else 0
        last_cycle = copies[-1][0] if copies else 0
        return {
            "n": n,
            "X": sum(changed for _, changed in judged),
            "last": judged[-1][1] if judged else 0,
            "first_cycle": first_cycle,
            "last_cycle": last_cycle,
            "A": sum(i * changed for i, (_, changed) in enumerate(judged, 1)),
            "G": sum(2.0 ** (i - n) * changed for i, (_, changed) in enumerate(judged, 1)),
            "A_cycles": sum((cycle - first_cycle) * changed for cycle, changed in judged),
            "G_cycles": sum(2.0 ** (cycle - last_cycle) * changed for cycle, changed in judged),
            "E": expected_changes,
            "T": cycles,
            "found_cycle": max([first_cycle, *(cycle for cycle, changed in judged if changed)]),
            "found_by": self.found_by,
            "entered": self.entered,
            **dict(zip(("brought_sum", "brought_cycles", "brought_cycle"), self.growth(), strict=True)),
            "key": self.key,
            "group": self.group,
            "fingerprint": prints[-1][2] if prints else 0,
            "has_copy": bool(prints),
            "size": next((int(size_class(length)) for *_, one in prints if (length := one % 5)), 0),
            "latency_ms": next((one % 3 for *_, one in prints if one % 3), 0),
            **dict(zip(("distance_sum", "distance_n"), distances(prints), strict=True)),
            "failures": min(failures, 255),
            "gone": min(gone, 255),
            "last_attempt": self.visits[-1][0] if self.visits else 0,
            "outcome": OUTCOMES.index(self.visits[-1][1]) if self.visits else 0,
        }


def url_of(number: int) -> str:
    """The URL of a page: in one of six directories on three sites."""
    return f"http://h{number % 3}/{number % 6}/{number}"


def kind_of(page: int) -> str:
    """Kind of all visits to a page."""
    return "warmup" if page % 2 else "ranked"


def visit_of(page: int, outcome: str, fingerprint: int) -> NewVisit:
    """A visit whose size and latency follow from its fingerprint."""
    kind, latency_s = kind_of(page), fingerprint % 3 / 1000
    return NewVisit(page, outcome, 1.5, kind, fingerprint, bytes=fingerprint % 5, latency_s=latency_s)


class StoreMachine(RuleBasedStateMachine):
    """Calls in any order; every invariant compares the store with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.store = Store(self.directory, sizes=SMALL)
        self.pages: list[Page] = []
        self.cycle = 0
        self.open: dict[int, tuple[str, int]] | None = None
        self.new: list[int] = []
        self.results: dict[int, int] = {}
        """New page -> who found it, as the column says."""
        self.plan: list[int] | None = None
        self.rounds: list[dict[str, int]] = []
        self.folded: dict[int, dict[int, str]] = {}

    def teardown(self) -> None:
        """Close and remove the store."""
        self.store.close()
        shutil.rmtree(self.directory)

    def _key(self, number: int) -> int:
        return (number * 0x9E3779B97F4A7C15) % 2**64

    @initialize(count=st.integers(0, 9))
    def import_some(self, count: int) -> None:
        self.add_pages(list(range(count)))

    @rule(numbers=st.lists(st.integers(0, 40), max_size=9))
    def add_pages(self, numbers: list[int]) -> None:
        """Import pages, some of them known, some twice."""
        known = {page.key for page in self.pages}
        fresh = {self._key(number): number for number in numbers if self._key(number) not in known}
        pages = [(self._key(number), {"url": url_of(number)}) for number in numbers]
        assert self.store.add_pages(iter(pages)) == (len(fresh), len(numbers) - len(fresh))
        for one in self.pages:
            if one.key in dict(pages) and one.visits and one.visits[-1][1] != "doubtful":
                one.due_from = len(one.visits)
        self.pages += [Page(key, {"url": url_of(number)}) for key, number in fresh.items()]
        for page in self.new:  # by now they are in the columns
            self.pages[page].entered = self.cycle

    @precondition(lambda self: self.open is None)
    @rule()
    def begin(self) -> None:
        self.cycle += 1
        assert self.store.begin_cycle({"started": float(self.cycle)}) == self.cycle
        self.open, self.new, self.plan, self.rounds = {}, [], None, []

    def _rows(self, data: st.DataObject) -> list[Any]:
        """Chunks of some pages that are not planned yet, in any order."""
        free = sorted(set(range(len(self.pages))) - set(self.plan or ()))
        pages = data.draw(st.permutations(free))[: data.draw(st.integers(0, len(free)))]
        rows = np.zeros(len(pages), PLAN)
        rows["page"] = pages
        return rows

    @precondition(lambda self: self.open is not None)
    @rule(data=st.data())
    def add_round(self, data: st.DataObject) -> None:
        """Plan a round, the first or a further one."""
        assert self.open is not None
        plan, seen = self._rows(data), data.draw(st.integers(0, len(self.open)))
        with pytest.raises(ValueError, match="seen"):
            self.store.add_round(plan, seen=len(self.open) + 1)
        self.store.add_round(plan, seen=seen)
        pages = plan["page"].tolist()
        self.plan = [*(self.plan or ()), *pages]
        self.rounds.append({"planned": len(pages), "seen": seen})

    @precondition(lambda self: self.open is not None)
    @rule(number=st.integers(41, 90), data=st.data())
    def add_page(self, number: int, data: st.DataObject) -> None:
        """Discover a page in the crawl, by a visit to another or by nobody knows whom."""
        key = self._key(number)
        if key in {page.key for page in self.pages}:
            with pytest.raises(ValueError, match="known"):
                self.store.add_page(key, {})
        else:
            request = {"url": url_of(number), "cb_kwargs": {"é": [number, None]}}
            page = self.store.add_page(key, request)
            assert page == len(self.pages)
            self.pages.append(Page(key, request))
            self.new.append(page)
            finder = data.draw(st.integers(0, page) | st.just(START))
            if finder:
                self.store.note(page, "found_by", finder)
            self.results[page] = finder

    @precondition(lambda self: self.open is not None and self.pages)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES), fingerprint=st.integers(0, 2**64 - 1))
    def record(self, data: st.DataObject, outcome: str, fingerprint: int) -> None:
        """Visit a page, at most once per cycle."""
        assert self.open is not None
        page = data.draw(st.integers(0, len(self.pages) - 1))
        if page in self.open:
            with pytest.raises(ValueError, match="already"):
                self.store.record(NewVisit(page, outcome, time=0.0))
        else:
            self.store.record(visit_of(page, outcome, fingerprint))
            self.open[page] = outcome, fingerprint

    @precondition(lambda self: self.pages)
    @rule(data=st.data(), url=st.text(max_size=5), tag=st.none() | st.text(max_size=5))
    def replace(self, data: st.DataObject, url: str, tag: str | None) -> None:
        """Replace a page's request and validators."""
        page = data.draw(st.integers(0, len(self.pages) - 1))
        self.store.set_request(page, {"url": url})
        self.store.set_validators(page, tag, None)
        self.pages[page].request = {"url": url}
        self.pages[page].validators = tag, None

    @rule()
    def commit(self) -> None:
        self.store.commit()

    @rule()
    def reopen(self) -> None:
        """End the process, as it were."""
        name = self.store.store_id
        self.store.close()
        self.store = Store(self.directory, sizes=SMALL)
        assert self.store.store_id == name

    @precondition(lambda self: self.open is not None)
    @rule()
    def finish(self) -> None:
        """Finish the cycle: now its visits count."""
        assert self.open is not None
        self.store.finish_cycle({"finished": 2.0, "note": "x"})
        for page, (outcome, fingerprint) in self.open.items():
            self.pages[page].visits.append((self.cycle, outcome, fingerprint))
        self.folded[self.cycle] = {page: outcome for page, (outcome, _) in self.open.items()}
        for page, finder in self.results.items():
            self.pages[page].entered, self.pages[page].found_by = self.cycle, finder
            if 0 < finder < START:
                brought = self.pages[finder - 1].brought
                brought[self.cycle] = brought.get(self.cycle, 0) + 1
        self.open, self.new, self.plan, self.rounds, self.results = None, [], None, [], {}

    @rule(
        outcomes=st.lists(
            st.lists(st.none() | st.sampled_from(OUTCOMES), min_size=1, max_size=12), min_size=1, max_size=4
        ),
        reopen=st.booleans(),
    )
    def whole_cycles(self, outcomes: list[list[str | None]], reopen: bool) -> None:
        """Run whole cycles, each visiting the pages for which an outcome is given."""
        for number, of_page in enumerate(outcomes):
            if self.open is None:
                self.begin()
            assert self.open is not None
            for page, outcome in enumerate(of_page[: len(self.pages)]):
                if outcome is not None and page not in self.open:
                    fingerprint = self._key(page + 97 * number)
                    self.store.record(visit_of(page, outcome, fingerprint))
                    self.open[page] = outcome, fingerprint
            if reopen:
                self.reopen()
            self.finish()

    def group_rows(self, cycle: int) -> set[tuple[int, int, int, float, int, int]]:
        """Sums over visits by directory: its number, visits, changes, changes expected, and the warm-up."""
        result: dict[int, tuple[int, int, float, int, int]] = {}
        for number, outcome in self.folded.get(cycle, {}).items():
            if outcome in JUDGED:
                page = self.pages[number]
                before = [visit for visit in page.visits if visit[0] < cycle]
                changes, cycles = censored_changes(before)
                copies = [visit[0] for visit in before if visit[1] not in FAILED]
                gap_cycles = cycle - (copies[-1] if copies else 0)
                p = -math.expm1(-(changes + 0.1) / (cycles + 1) * gap_cycles)
                visits, changed, predicted, *warmup = result.get(page.group, (0, 0, 0.0, 0, 0))
                predicted += round(p * 2**24) / 2**24
                values = 1, int(outcome == "changed")
                of_warmup = values if kind_of(number) == "warmup" else (0, 0)
                warmup = [one + more for one, more in zip(warmup, of_warmup, strict=True)]
                result[page.group] = visits + 1, changed + values[1], predicted, warmup[0], warmup[1]
        return {(group, *sums) for group, sums in result.items()}

    @invariant()
    def agrees(self) -> None:
        """Everything that can be read is as in the model, and the store finds itself sound."""
        store = self.store
        assert store.verify() == []
        assert store.pages == len(self.pages)
        assert store.open_cycle == (None if self.open is None else self.cycle)
        assert store.last_cycle == self.cycle - (self.open is not None)
        assert list(store.new_pages()) == self.new
        assert store.planned() == (None if self.plan is None else len(self.plan))
        assert store.rounds() == self.rounds
        assert store.plan()["page"].tolist() == (self.plan or [])
        opened = {v["page"]: (OUTCOMES[v["outcome"]], v["fingerprint"]) for v in store.open_visits()}
        assert opened == (self.open or {})
        every = range(len(self.pages))
        assert [store.visited(page) for page in every] == [page in opened for page in every]
        assert [store.find(page.key) for page in self.pages] == list(every)
        assert store.find(12345) is None
        assert store.requests(every[::-1]) == [page.request for page in self.pages[::-1]]
        assert [store.validators(page) for page in every] == [page.validators for page in self.pages]
        numbers: dict[Place, int] = {}
        for page in self.pages[: store.merged_pages]:
            page.group = numbers.setdefault(place_of_url(page.found_at), len(numbers))
        assert [tuple(group) for group in store.directories().tolist()] == [place.keys() for place in numbers]
        for number, page in enumerate(self.pages):
            assert store.page(number)._asdict() == page.expected()
        for cycle in range(self.cycle + 1):
            recorded = {tuple(row) for row in store.group_visits(cycle).tolist()}
            expected = self.group_rows(cycle) if store.last_cycle - 8 < cycle <= store.last_cycle else set()
            assert recorded == expected
        folded: dict[int, dict[int, str]] = {cycle: {} for cycle in self.folded}
        for cycle, visits in store.visits():
            folded[cycle] |= {v["page"]: OUTCOMES[v["outcome"]] for v in visits}
        assert folded == self.folded

    @invariant()
    def blocks_agree(self) -> None:
        """The blocks have the same columns as the single pages; they are read-only."""
        for first, block in self.store.blocks():
            for row in range(len(block["n"])):
                page = self.store.page(first + row)
                assert {name: block[name][row].item() for name in COLUMNS} == page._asdict()
            with pytest.raises(ValueError, match="read-only"):
                block["n"][0] = 1
        names, count = ("key", "T"), 0
        result: dict[str, list[int]] = {name: [] for name in names}
        for first, some in self.store.blocks(names):  # those of several blocks, one behind the other
            assert first == count
            count += len(some["key"])
            for name in names:
                result[name] += some[name].tolist()
        blocks = [block for _, block in self.store.blocks()]
        assert result == {name: [each for one in blocks for each in one[name].tolist()] for name in names}


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(
    max_examples=settings().max_examples * 2 // 5,  # a step costs as much as an example of others
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
