"""Several shards behave as one store: any sequence of calls, reopened and divided anew at any moment."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scrapy_gp4c.page_state.outcomes import OUTCOMES, PLAN
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import join, open_store, shards_in, split
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import SHADOW, NewVisit
from tests.store.test_store_model import SMALL
from tests.support.by_key import content, keys_of

GOLDEN = 0x9E3779B97F4A7C15


def url_of(number: int) -> str:
    """The URL of a page: on one of seven hosts, some of which have two names or ports."""
    host = ("a.org", "www.a.org", "a.org:8080", "b.org", "c.org", "d.org", "e.org")[number % 7]
    return f"http://{host}/{number % 3}/{number}"


class ShardedMachine(RuleBasedStateMachine):
    """The same calls to an ordinary store and to shards; pages are told by their keys."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.time = 0.0

    @initialize(shards=st.sampled_from([1, 2, 5, 9]), count=st.integers(0, 9))
    def begin_both(self, shards: int, count: int) -> None:
        """Start with some pages."""
        self.shards = shards
        with Store(self.directory / "one", sizes=SMALL) as store:
            store.add_pages((number * GOLDEN % 2**64, {"url": url_of(number)}) for number in range(count))
        split(self.directory / "one", self.directory / "shards", shards, SMALL)
        self._open()

    def _open(self) -> None:
        self.both: list[PageStore] = [
            open_store(self.directory / "one", sizes=SMALL),
            open_store(self.directory / "shards", sizes=SMALL),
        ]
        self._number()

    def _number(self) -> None:
        self.keys = keys_of(self.both[0])
        self.page = [{key: page for page, key in enumerate(keys_of(store))} for store in self.both]

    def teardown(self) -> None:
        """Close and remove the stores."""
        for store in getattr(self, "both", ()):
            store.close()
        shutil.rmtree(self.directory)

    def is_open(self) -> bool:
        """Tell whether a cycle is open."""
        return self.both[0].open_cycle is not None

    def draw_keys(self, data: st.DataObject) -> list[int]:
        """Some pages."""
        return data.draw(st.lists(st.sampled_from(self.keys), unique=True, max_size=9)) if self.keys else []

    def arrays(self, keys: list[int]) -> list[Any]:
        """Ids of pages in both stores."""
        return [np.array([page[key] for key in keys], np.uint32) for page in self.page]

    @precondition(lambda self: not self.is_open())
    @rule()
    def begin(self) -> None:
        """Open a cycle."""
        assert len({store.begin_cycle({"started": 60.0}) for store in self.both}) == 1

    @precondition(lambda self: not self.is_open())
    @rule(numbers=st.lists(st.integers(0, 40), max_size=9))
    def add_pages(self, numbers: list[int]) -> None:
        """Import pages, some of them known, some twice."""
        pages = [(number * GOLDEN % 2**64, {"url": url_of(number)}) for number in numbers]
        assert len({store.add_pages(iter(pages)) for store in self.both}) == 1
        self._number()

    @precondition(lambda self: self.is_open())
    @rule(data=st.data())
    def add_round(self, data: st.DataObject) -> None:
        """Plan a round, of pages that are in no other."""
        planned = {int(page) for chunk in self.both[0].plan() for page in chunk["page"]}
        keys = [key for key in self.draw_keys(data) if self.page[0][key] not in planned]
        seen = data.draw(st.integers(0, len(self.both[0].open_visits())))
        scores = data.draw(st.lists(st.floats(-1, 1), min_size=len(keys), max_size=len(keys)))
        for store, pages in zip(self.both, self.arrays(keys), strict=True):
            rows = np.zeros(len(keys), PLAN)
            rows["page"], rows["score"] = pages, scores
            cut = len(keys) // 2
            with pytest.raises(ValueError, match="seen"):
                store.add_round([], seen=len(store.open_visits()) + 1)
            store.add_round(iter([rows[:cut], rows[cut:]]), seen=seen, plan={"known": len(self.keys)})

    @precondition(lambda self: self.is_open())
    @rule(number=st.integers(41, 90), data=st.data())
    def add_page(self, number: int, data: st.DataObject) -> None:
        """Discover a page, found by another, of any shard, or by nobody knows whom."""
        key = number * GOLDEN % 2**64
        if key in self.keys:
            with pytest.raises(ValueError, match="known"):
                self.both[1].add_page(key, {"url": url_of(number)})
            return
        finder = data.draw(st.sampled_from([None, START, *self.keys]))
        for store, page in zip(self.both, self.page, strict=True):
            found = store.add_page(key, {"url": url_of(number)})
            page[key] = found
            assert found == store.pages - 1
            if finder is not None:
                store.note(found, "found_by", START if finder == START else page[finder] + 1)
        self.keys.append(key)

    @precondition(lambda self: self.is_open() and self.keys)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES), fingerprint=st.integers(0, 2**64 - 1))
    def record(self, data: st.DataObject, outcome: str, fingerprint: int) -> None:
        """Visit some pages, each at most once per cycle."""
        for key in self.draw_keys(data):
            self.time += 1.0
            for store, page in zip(self.both, self.page, strict=True):
                visit = NewVisit(page[key], outcome, time=self.time, fingerprint=fingerprint, kind="panel")
                if store.visited(page[key]):
                    with pytest.raises(ValueError, match="already"):
                        store.record(visit)
                else:
                    store.record(visit)

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), number=st.integers(0, 90), tag=st.none() | st.text(max_size=5))
    def replace(self, data: st.DataObject, number: int, tag: str | None) -> None:
        """Replace a page's request, by one of another host maybe, and what is kept of its copy."""
        key = data.draw(st.sampled_from(self.keys))
        for store, page in zip(self.both, self.page, strict=True):
            store.set_request(page[key], {"url": url_of(number)})
            store.set_validators(page[key], tag, None)
            store.set_body_sum(page[key], number)
            store.set_description(page[key], bytes(number))

    @precondition(lambda self: self.is_open())
    @rule(
        data=st.data(), kind=st.sampled_from(["modified", "changefreq", "expires"]), value=st.integers(0, 9)
    )
    def claim(self, data: st.DataObject, kind: str, value: int) -> None:
        """Note what sites claim."""
        keys = self.draw_keys(data)
        for store, pages in zip(self.both, self.arrays(keys), strict=True):
            store.hints.note(pages, kind, np.full(len(keys), float(value)))

    @rule(data=st.data(), weight=st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    def weigh(self, data: st.DataObject, weight: float) -> None:
        """Set weights, and tell that pages have changed; what else is buffered may be committed too."""
        keys = [key for key in self.draw_keys(data) if self.page[0][key] < self.both[0].merged_pages]
        for store, pages in zip(self.both, self.arrays(keys), strict=True):
            store.weights.put(pages, np.full(len(keys), weight))
            if weight:
                store.hints.tell(pages, 30.0)
            store.commit()

    @precondition(lambda self: self.is_open())
    @rule(data=st.data())
    def keep_shadows(self, data: st.DataObject) -> None:
        """Keep the panel's shadows of the open cycle."""
        keys = self.draw_keys(data)
        for store, pages in zip(self.both, self.arrays(keys), strict=True):
            rows = np.zeros(len(keys), SHADOW)
            rows["page"], rows["key"] = pages, keys
            store.keep_shadows(store.open_cycle or 0, rows)

    @rule(cycles=st.integers(1, 4))
    def keep_visits(self, cycles: int) -> None:
        """Drop the visits of old cycles."""
        for store in self.both:
            store.keep_visits(cycles)

    @rule()
    def commit(self) -> None:
        """Commit what is buffered."""
        for store in self.both:
            store.commit()

    @rule()
    def reopen(self) -> None:
        """End the process, as it were."""
        for store in self.both:
            store.close()
        self._open()

    @precondition(lambda self: self.is_open())
    @rule()
    def finish(self) -> None:
        """Finish the cycle."""
        for store in self.both:
            store.finish_cycle({"finished": 2.0, "visited": len(store.open_visits())})
        self._number()

    @precondition(lambda self: not self.is_open())
    @rule(shards=st.sampled_from([1, 3, 7]))
    def divide_anew(self, shards: int) -> None:
        """Join the shards, and split what comes of it."""
        for store in self.both:
            store.close()
        whole = self.directory / "whole"
        join(shards_in(self.directory / "shards"), whole, SMALL)
        shutil.rmtree(self.directory / "shards")
        with Store(whole, sizes=SMALL) as store:
            assert store.verify() == []
        split(whole, self.directory / "shards", shards, SMALL)
        shutil.rmtree(whole)
        self._open()

    @invariant()
    def agree(self) -> None:
        """Everything that can be read is the same, and the shards find themselves sound."""
        if hasattr(self, "both"):
            one, many = (content(store) for store in self.both)
            for name, value in one.items():
                assert many[name] == value, name
            assert self.both[1].verify() == []

    @invariant()
    def tell_some_columns(self) -> None:
        """Whoever asks for some columns gets those, with the numbers that all have."""
        if hasattr(self, "both"):
            whole = [block for _, block in self.both[1].blocks()]
            for names in ({"key"}, {"group", "n"}, {"found_by"}):
                pages, some = 0, []
                for first, block in self.both[1].blocks(names):
                    assert first == pages
                    assert block.keys() == names
                    some.append(block)
                    pages += len(block[min(names)])
                for name in names:
                    expected = [value for block in whole for value in block[name].tolist()]
                    assert [value for block in some for value in block[name].tolist()] == expected


TestSharded = ShardedMachine.TestCase
TestSharded.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
