"""Attributes of a spider that callbacks change in several processes."""

import pickle
import threading
from collections import Counter, defaultdict
from typing import Any

from scrapy import Spider

from scrapy_gp4c.fetching.spider_state import MAX_CHANGES, OwnersState, SpiderState


class Counting(Spider):
    """Keeps what spiders keep."""

    name = "counting"

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.count, self.rate = 0, 0.0
        self.token: str | None = None
        self.seen, self.urls = set[str](), list[str]()
        self.words: Counter[str] = Counter()
        self.pages: defaultdict[str, list[int]] = defaultdict(list)
        self.lock = threading.Lock()

    def call_back(self, page: int) -> None:
        """Do what a callback does."""
        self.count += 1
        self.rate = 1.1 + page
        self.token = f"of {page}"
        self.seen |= {"all", str(page)}
        self.urls.append(str(page))
        self.words.update(["page", str(page)])
        self.pages["all"].append(page)
        self.extra = {page: [page]}  # an attribute that nobody had


def test_changes_of_processes_add_up() -> None:
    """Each process tells its own once; what cannot be pickled stays where it is."""
    spiders = [Counting() for _ in range(3)]
    owner, *fetchers = map(SpiderState, spiders)
    for page, spider in enumerate(spiders[1:]):
        spider.call_back(page)
    changes_of = [pickle.loads(pickle.dumps(fetcher.changes(is_last=True))) for fetcher in fetchers]
    spiders[2].count += 10  # meanwhile
    for place, changes in enumerate(changes_of):
        for other, state in enumerate((owner, *fetchers)):
            if other != place + 1:
                state.apply(changes, is_last=True)
    for spider, more in zip(spiders, (0, 0, 10), strict=True):
        assert spider.count == 2 + more
        assert spider.seen == {"all", "0", "1"}
        assert sorted(spider.urls) == ["0", "1"]
        assert spider.words == {"page": 2, "0": 1, "1": 1}
        assert sorted(spider.pages["all"]) == [0, 1]
        assert spider.extra == {0: [0], 1: [1]}
    assert spiders[0].token == "of 1"
    assert [state.changes(is_last=True) for state in (owner, fetchers[0])] == [[], []]
    assert fetchers[1].changes(is_last=True) == [{"count": ("add", 1, 11)}]


def test_a_value_that_is_set_comes_as_it_is() -> None:
    """No sum of rounded differences; what was taken out is gone; another type replaces."""
    owner, fetcher = Counting(), Counting()
    states = SpiderState(owner), SpiderState(fetcher)
    for rate in (1.1, 3.3, 0.7):
        fetcher.rate = rate
        fetcher.seen = {str(rate)}
        fetcher.urls = [*fetcher.urls[1:], str(rate), "end"]
        fetcher.words = Counter(str(rate))
        states[0].apply(states[1].changes(is_last=True), is_last=True)
        assert (owner.rate, owner.seen, owner.urls) == (rate, {str(rate)}, fetcher.urls)
        assert owner.words == fetcher.words
    fetcher.rate = None  # type: ignore[assignment] # another type on purpose
    states[0].apply(states[1].changes(is_last=True), is_last=True)
    assert owner.rate is None


def test_an_owner_takes_in_changes_of_large_tables() -> None:
    """It compares none of them, which would take long for each page."""
    owner, fetcher = Counting(), Counting()
    states = OwnersState(owner), SpiderState(fetcher)
    for start in range(0, 80_000, 20_000):
        fetcher.seen.update(map(str, range(start, start + 20_000)))
        states[0].apply(states[1].changes(is_last=True), is_last=True)
    assert owner.seen == fetcher.seen
    owner.seen.add("of the owner")
    assert states[0].changes(is_last=True) == []


def test_a_fetcher_is_told_what_it_lacks() -> None:
    """One that comes late, or that got no page for many changes, is told all attributes that have changed."""
    spiders = [Counting() for _ in range(4)]
    owner, *fetchers = OwnersState(spiders[0]), *map(SpiderState, spiders[1:])
    for name, state in zip("abc", fetchers, strict=True):
        state.apply(owner.unsent(name), is_last=True)
        if name == "b":  # "c" comes late
            spiders[1].call_back(1)
            spiders[0].count += 10
            owner.take("a", fetchers[0].changes(is_last=True), is_last=True)
            fetchers[1].apply(owner.unsent("b"), is_last=True)
    for spider in spiders[2:]:
        assert (spider.count, spider.token, spider.seen) == (11, "of 1", {"all", "1"})
        assert (spider.words, spider.pages) == (spiders[0].words, spiders[0].pages)
    assert owner.unsent("c") == []
    assert [name for change in owner.unsent("a") for name in change] == ["count"]
    owner.take("a", [{"count": ("add", 10, 11)}] * MAX_CHANGES, is_last=True)
    owner.take("a", [{"token": ("put", None)}], is_last=True)  # as at the start
    for place, name in enumerate("ab"):
        fetchers[place].apply(owner.unsent(name), is_last=True)
    assert (spiders[1].token, spiders[2].token, spiders[2].count) == ("of 1", None, spiders[0].count)
    owner.forget("b")
    assert {name for change in owner.unsent("b") for name in change} >= {"count", "seen", "token"}
