"""The store against a model of plain dictionaries: any sequence of calls, reopened at any moment."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scrapy_gp4c.page_state.outcomes import OUTCOMES, PLAN
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Sizes
from scrapy_gp4c.store.records import NewVisit

JUDGED = ("unchanged", "changed", "not_modified")
FAILED = ("error", "gone", "excluded")


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


class Page:
    """A page of the model: its columns come from the list of its visits, by definition."""

    def __init__(self, key: int, request: dict[str, Any]) -> None:
        self.key = key
        self.request = request
        self.validators: tuple[str | None, str | None] = (None, None)
        self.visits: list[tuple[int, str, int]] = []

    def expected(self) -> dict[str, float]:
        """The columns as docs/store.md and docs/architecture.md, "Page state and terminals", define them."""
        judged = [(cycle, outcome == "changed") for cycle, outcome, _ in self.visits if outcome in JUDGED]
        copies = [visit for visit in self.visits if visit[1] not in FAILED]
        prints = [visit for visit in copies if visit[1] != "not_modified"]
        failures = gone = 0
        for _, outcome, _ in self.visits:
            failures = failures + 1 if outcome in FAILED else 0
            gone = gone + (outcome == "gone") if outcome in FAILED else 0
        n = len(judged)
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
            "key": self.key,
            "fingerprint": prints[-1][2] if prints else 0,
            "has_copy": bool(prints),
            "failures": min(failures, 255),
            "gone": min(gone, 255),
            "last_attempt": self.visits[-1][0] if self.visits else 0,
            "outcome": OUTCOMES.index(self.visits[-1][1]) if self.visits else 0,
        }


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
        """Start with some pages."""
        self.add_pages(list(range(count)))

    @rule(numbers=st.lists(st.integers(0, 40), max_size=9))
    def add_pages(self, numbers: list[int]) -> None:
        """Import pages, some of them known, some twice."""
        known = {page.key for page in self.pages}
        fresh = {self._key(number): number for number in numbers if self._key(number) not in known}
        pages = [(self._key(number), {"url": f"http://h/{number}"}) for number in numbers]
        assert self.store.add_pages(iter(pages)) == (len(fresh), len(numbers) - len(fresh))
        self.pages += [Page(key, {"url": f"http://h/{number}"}) for key, number in fresh.items()]

    @precondition(lambda self: self.open is None)
    @rule()
    def begin(self) -> None:
        """Open a cycle."""
        self.cycle += 1
        assert self.store.begin_cycle({"started": float(self.cycle)}) == self.cycle
        self.open, self.new, self.plan, self.rounds = {}, [], None, []

    def _rows(self, data: st.DataObject) -> list[Any]:
        """Chunks of some pages that are not planned yet, in any order."""
        free = sorted(set(range(len(self.pages))) - set(self.plan or ()))
        pages = data.draw(st.permutations(free))[: data.draw(st.integers(0, len(free)))]
        rows = np.zeros(len(pages), PLAN)
        rows["page"] = pages
        cut = data.draw(st.integers(0, len(pages)))
        return [rows[:cut], rows[cut:]]

    @precondition(lambda self: self.open is not None)
    @rule(data=st.data())
    def add_round(self, data: st.DataObject) -> None:
        """Plan a round, the first or a further one."""
        assert self.open is not None
        chunks, seen = self._rows(data), data.draw(st.integers(0, len(self.open)))
        with pytest.raises(ValueError, match="seen"):
            self.store.add_round([], seen=len(self.open) + 1)
        self.store.add_round(iter(chunks), seen=seen)
        pages = np.concatenate(chunks)["page"].tolist()
        self.plan = [*(self.plan or ()), *pages]
        self.rounds.append({"planned": len(pages), "seen": seen})

    @precondition(lambda self: self.open is not None)
    @rule(data=st.data())
    def begin_round(self, data: st.DataObject) -> None:
        """Plan a round whose writing breaks off: the rounds before it stay."""
        chunks = self._rows(data)

        def failing() -> Any:
            yield from chunks
            raise RuntimeError("broke")

        with pytest.raises(RuntimeError, match="broke"):
            self.store.add_round(failing(), seen=0)

    @precondition(lambda self: self.open is not None)
    @rule(number=st.integers(41, 90))
    def add_page(self, number: int) -> None:
        """Discover a page in the crawl."""
        key = self._key(number)
        if key in {page.key for page in self.pages}:
            with pytest.raises(ValueError, match="known"):
                self.store.add_page(key, {})
        else:
            request = {"url": f"http://h/{number}", "cb_kwargs": {"é": [number, None]}}
            page = self.store.add_page(key, request)
            assert page == len(self.pages)
            self.pages.append(Page(key, request))
            self.new.append(page)

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
            self.store.record(
                NewVisit(page, outcome, time=1.5, fingerprint=fingerprint, kind="ranked", bytes=7)
            )
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
        """Commit what is buffered."""
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
        self.open, self.new, self.plan, self.rounds = None, [], None, []

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
                    self.store.record(NewVisit(page, outcome, time=1.5, fingerprint=fingerprint))
                    self.open[page] = outcome, fingerprint
            if reopen:
                self.reopen()
            self.finish()

    @invariant()
    def agrees(self) -> None:
        """Everything that can be read is as in the model, and the store finds itself sound."""
        kept = self.store
        assert kept.verify() == []
        assert kept.pages == len(self.pages)
        assert kept.open_cycle == (None if self.open is None else self.cycle)
        assert kept.last_cycle == self.cycle - (self.open is not None)
        assert list(kept.new_pages()) == self.new
        assert kept.planned() == (None if self.plan is None else len(self.plan))
        assert kept.rounds() == self.rounds
        assert [page for chunk in kept.plan() for page in chunk["page"].tolist()] == (self.plan or [])
        opened = {v["page"]: (OUTCOMES[v["outcome"]], v["fingerprint"]) for v in kept.open_visits()}
        assert opened == (self.open or {})
        every = range(len(self.pages))
        assert [kept.visited(page) for page in every] == [page in opened for page in every]
        assert [kept.find(page.key) for page in self.pages] == list(every)
        assert kept.find(12345) is None
        assert kept.requests(every[::-1]) == [page.request for page in self.pages[::-1]]
        assert [kept.validators(page) for page in every] == [page.validators for page in self.pages]
        for number, page in enumerate(self.pages):
            assert kept.page(number)._asdict() == page.expected()
        folded: dict[int, dict[int, str]] = {cycle: {} for cycle in self.folded}
        for cycle, visits in kept.visits():
            folded[cycle] |= {v["page"]: OUTCOMES[v["outcome"]] for v in visits}
        assert folded == self.folded

    @invariant()
    def blocks_agree(self) -> None:
        """The blocks have the same columns as the single pages; they are read-only."""
        for first, block in self.store.blocks():
            for row in range(len(block["n"])):
                page = self.store.page(first + row)
                assert {name: column[row].item() for name, column in block.items()} == page._asdict()
            with pytest.raises(ValueError, match="read-only"):
                block["n"][0] = 1


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
