"""The post of workers: visits that are redirected across shards, and what is lost or cannot travel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from scrapy_gp4c.crawling.admission import REDIRECTED, Admission
from scrapy_gp4c.crawling.begun import record_of
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.evidence import UNPLANNED
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.crawling.rebuilding import Rebuilder
from scrapy_gp4c.crawling.setup_requests import SetupRequests
from scrapy_gp4c.crawling.stored_requests import META
from scrapy_gp4c.distributed.letters import Handover, Message, Returned, read
from scrapy_gp4c.distributed.log import Letter
from scrapy_gp4c.distributed.mail import Waiting
from scrapy_gp4c.distributed.post import REFUSED, UNANSWERED, Post
from scrapy_gp4c.distributed.rounds import SharedRounds
from scrapy_gp4c.distributed.shared_store import SharedStore
from scrapy_gp4c.fingerprint import Read
from scrapy_gp4c.page_state.outcomes import OUTCOMES
from scrapy_gp4c.policies.steps import Shard, alone
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.credentials import SECRET_PARAMS, Credentials
from scrapy_gp4c.store.opening import USUAL, new_shard, open_shard
from scrapy_gp4c.store.shards.part import ShardOf
from scrapy_gp4c.store.shards.placing import shard_of

SHARDS = 4
HOSTS = {shard_of(f"h{number}.example", SHARDS): f"h{number}.example" for number in range(50)}
"""A host of each shard."""


def url(shard: int, path: str) -> str:
    """A page of a shard."""
    return f"http://{HOSTS[shard]}/{path}"


class Worker:
    """One worker with some shards in an open cycle, without a ledger; its queue is a list."""

    ids = itertools.count(1)

    def __init__(self, folder: Path, *shards: int, **given: Any) -> None:
        crawler = get_crawler(Spider, {"GP4C_POLICY": "top_k", **given})
        settings, spider = Settings.load(crawler.settings), Spider("one")
        assert crawler.stats is not None
        own = []
        for number in shards:
            new_shard(folder / str(number), ShardOf(number, SHARDS, "ab"), USUAL)
            own.append(open_shard(folder / str(number), SHARDS, USUAL))
        planners = {}
        for one in own:
            one.begin_cycle(record_of(settings, None))
            planners[one] = Planner(one, settings, Shard(one.shard_of.number, SHARDS))
            alone(planners[one].steps(one.cycles()[-1], UNPLANNED))
        self.store = SharedStore(folder, own)
        self.stats = crawler.stats
        self.cycle = Cycle(self.store, settings, crawler.stats, planner=SharedRounds(planners))
        self.queue: list[Request] = []
        crawler.get_downloader_middleware = lambda kind: None  # type: ignore[method-assign, assignment] # it has no engine
        rebuilder = Rebuilder(crawler, spider, Credentials(SECRET_PARAMS))
        self.admission = Admission(self.cycle, rebuilder, SetupRequests(crawler), spider, self._enqueue)
        self.post = self.admission.abroad = Post(self.cycle, self.store, self.admission, crawler.stats)

    def _enqueue(self, request: Request) -> bool:
        self.queue.append(request)
        return True

    def redirected(self, to: str, **meta: Any) -> bool:
        """Let the last request of the queue be redirected; tells whether it goes on."""
        request = self.queue.pop()
        self.cycle.left_queue(request.meta[META])
        hops = request.meta.get("redirect_times", 0) + 1
        urls = [*request.meta.get("redirect_urls", []), request.url]
        again = request.replace(url=to)
        again.meta.update(
            redirect_times=hops,
            redirect_ttl=20 - hops,
            redirect_urls=urls,
            redirect_reasons=[301] * hops,
            **meta,
        )
        return self.admission.admit(again)

    def sent(self) -> list[Letter]:
        """What the next flush sends."""
        return list(self.post.letters())

    def receive(self, *letters: Letter) -> tuple[int, ...]:
        """Receive letters; ids of those that the next flush consumes, and of the letters themselves."""
        waiting = [Waiting(next(self.ids), 1, letter) for letter in letters]
        self.post.receive(waiting)
        return tuple(one.id for one in waiting)

    def outcomes(self) -> dict[str, str]:
        """URL -> outcome of the visits so far."""
        visits = self.store.open_visits()
        return {self.store.request(int(row["page"]))["url"]: OUTCOMES[row["outcome"]] for row in visits}

    def close(self) -> None:
        """Close the shards."""
        self.store.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[tuple[Worker, Worker, Worker]]:
    """Three; the first has shards 0 and 1, the others one each."""
    made = Worker(tmp_path / "a", 0, 1), Worker(tmp_path / "b", 2), Worker(tmp_path / "c", 3)
    yield made
    for one in made:
        one.close()


def messages(letters: list[Letter]) -> list[Message]:
    """What some letters say."""
    return [one for letter in letters for one in read(letter.body, lambda request: None).messages]


def test_a_visit_travels_over_two_shards_and_back(workers: tuple[Worker, Worker, Worker]) -> None:
    """Each letter is consumed with what is told of its end; tries, page and copy travel along."""
    one, two, three = workers
    assert one.admission.admit(Request(url(0, "a")))
    assert one.redirected(url(2, "b"))
    assert (one.queue, len(one.post.awaited)) == ([], 1)
    one.cycle.end_lost()  # it is not lost
    assert one.outcomes() == {}
    (first,) = one.sent()
    assert (first.sender, first.receiver) == (0, 2)
    (letter,) = two.receive(first)
    assert two.post.consumed() == ()
    assert two.queue[-1].meta["redirect_urls"] == [url(0, "a")]
    assert two.redirected(url(3, "c"))
    (second,) = two.sent()
    assert two.post.consumed() == (letter,)
    assert (second.sender, second.receiver) == (2, 3)
    (letter,) = three.receive(second)
    (request,) = three.queue
    assert (request.url, request.meta["redirect_times"], request.meta["redirect_ttl"]) == (url(3, "c"), 2, 18)
    told = three.cycle.judge(request.meta[META], Read(77), 5, 0.5)
    assert (told["outcome"], told["kind"]) == ("first", "new")
    three.store.set_body_sum(told["page"], 123)
    three.store.set_validators(told["page"], "e", None)
    (answer,) = three.sent()
    assert three.post.consumed() == (letter,)
    assert (answer.sender, answer.receiver) == (3, 0)
    (letter,) = one.receive(answer)
    assert one.post.consumed() == (letter,)
    assert not one.post.awaited
    assert one.outcomes() == {url(0, "a"): "first"}
    row = one.store.open_visits()[0]
    assert (row["fingerprint"], row["bytes"]) == (77, 5)
    assert (one.store.body_sum(0), one.store.validators(0)) == (123, ("e", None))
    assert three.outcomes() == {}
    one.receive(answer)
    assert len(one.store.open_visits()) == 1


def test_what_a_guest_finds_was_found_by_its_page(workers: tuple[Worker, Worker, Worker]) -> None:
    """A page of the host, one of the worker that has the page, and one of a third."""
    one, two, three = workers
    one.admission.admit(Request(url(0, "a")))
    one.redirected(url(2, "b"))
    two.receive(*one.sent())
    visit = two.queue[-1].meta[META]
    told = two.cycle.judge(visit, Read(1), 0)
    for shard in (1, 2, 3):
        two.admission.admit(Request(url(shard, "found"), meta={"gp4c_found_by": told["page"] + 1}))
    key = one.store.page(0).key
    finder = two.store.shards[0].finder_of(0)
    assert finder is not None
    assert (finder.key, finder.shard) == (key, 0)
    for letter in two.sent():
        (three if letter.receiver == 3 else one).receive(letter)
    finder = three.store.shards[0].finder_of(0)
    assert finder is not None
    assert (finder.key, finder.shard) == (key, 0)
    found = one.store.find(one.admission.rebuilder.keys(Request(url(1, "found")))[0])
    assert found is not None
    assert [row["value"] for row in one.store.notes() if row["page"] == found] == [1]  # page 0, plus 1


def test_what_is_handed_over_again_is_told_again(workers: tuple[Worker, Worker, Worker]) -> None:
    """As its sender was killed: nothing is sent twice, and the same answer goes twice."""
    one, two, _ = workers
    one.admission.admit(Request(url(0, "a")))
    one.redirected(url(2, "b"))
    (letter,) = one.sent()
    first, again = two.receive(letter), two.receive(letter)
    assert len(two.queue) == 1
    two.cycle.end(two.queue[-1].meta[META], "gone")
    answers = messages(two.sent())
    assert [type(answer) for answer in answers] == [Returned]
    assert two.post.consumed() == (*first, *again)
    late = two.receive(letter)
    assert messages(two.sent()) == answers
    assert two.post.consumed() == late
    assert len(two.queue) == 1


def test_what_nobody_goes_on_with_ends_as_an_error(workers: tuple[Worker, Worker, Worker]) -> None:
    """And an answer that comes after all changes nothing."""
    one, two, _ = workers
    one.admission.admit(Request(url(0, "a")))
    one.redirected(url(2, "b"))
    (letter,) = one.sent()
    one.post.end_unanswered(list(one.post.awaited))
    assert one.outcomes() == {url(0, "a"): "error"}
    assert one.stats.get_value(UNANSWERED) == 1
    two.receive(letter)
    two.cycle.end(two.queue[-1].meta[META], "gone")
    one.receive(*two.sent())
    assert one.outcomes() == {url(0, "a"): "error"}


def test_what_cannot_travel_ends_as_excluded(workers: tuple[Worker, Worker, Worker]) -> None:
    """What JSON has no words for, and what only this session has; nobody is asked for it."""
    one, _, _ = workers
    one.admission.admit(Request(url(0, "a")))
    assert not one.redirected(url(2, "b"), thing=object())
    one.admission.admit(Request(url(0, "c")))
    assert not one.redirected(url(2, "d"), number=float("inf"))
    one.admission.admit(Request(url(0, "e")))
    assert not one.redirected(url(2, "f?access_token=abc"))
    assert set(one.outcomes().values()) == {"excluded"}
    assert len(one.outcomes()) == one.stats.get_value(REDIRECTED) == 3
    assert (one.sent(), one.queue, len(one.post.awaited)) == ([], [], 0)


def test_a_slot_of_another_host_stays_behind(workers: tuple[Worker, Worker, Worker]) -> None:
    """Scrapy's downloader notes it in the request, and a redirect keeps it: the target has its own turn."""
    one, two, _ = workers
    one.admission.admit(Request(url(0, "a")))
    one.redirected(url(2, "b"), download_slot=HOSTS[0])
    two.receive(*one.sent())
    assert "download_slot" not in two.queue[-1].meta


def test_what_makes_no_sense_is_counted(workers: tuple[Worker, Worker, Worker]) -> None:
    """Visits to hosts that others have, of shards that there are not, answers for unknown pages."""
    one, two, three = workers
    one.admission.admit(Request(url(0, "a")))
    one.redirected(url(2, "b"))
    (letter,) = one.sent()
    (message,) = messages([letter])
    assert isinstance(message, Handover)
    consumed = three.receive(letter)
    assert (three.queue, three.stats.get_value(REFUSED)) == ([], 1)
    assert three.post.consumed() == consumed
    two.receive(letter)
    two.cycle.end(two.queue[-1].meta[META], "gone")
    three.receive(*two.sent())
    assert three.stats.get_value(REFUSED) == 2
    assert three.outcomes() == {}


def test_an_answer_to_a_visit_that_was_taken_back_is_taken_or_left(
    workers: tuple[Worker, Worker, Worker],
) -> None:
    """As where shards move in between: a planned page has it, a new one is asked for again."""
    one, two, _ = workers
    one.admission.admit(Request(url(0, "a")))
    one.redirected(url(2, "b"))
    two.receive(*one.sent())
    two.cycle.end(two.queue[-1].meta[META], "gone")
    one.cycle.release_queued()
    (answer,) = two.sent()
    one.receive(answer)
    assert one.outcomes() == {}
    one.post.end_unanswered([0])
    assert one.outcomes() == {}
    assert one.cycle.claim(0, "") is not None
