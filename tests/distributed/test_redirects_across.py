"""Redirects to hosts of other shards: real workers, a web whose hosts redirect to each other, real kills."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.page_store import PageStore
from tests.distributed.test_workers import Crawl, columns, compare, visits
from tests.support.postgres import NEEDS_POSTGRES, Server
from tests.support.workers import NamedWorker, RedirectingWeb, settings, start

pytestmark = NEEDS_POSTGRES
SHARDS = 4
Make = Callable[..., Crawl]


@pytest.fixture
def crawl(tmp_path: Path, server: Server, database: str, dsn: str) -> Iterator[Make]:
    """Makes a crawl that has not begun, of four shards, of a web that redirects."""
    made: list[RedirectingWeb] = []

    def make(*, loops: bool = True) -> Crawl:
        made.append(RedirectingWeb(loops=loops))
        return Crawl(made[-1], tmp_path, server, database, dsn)

    yield make
    for web in made:
        web.close()


def given(folder: Path, name: str, **more: Any) -> dict[str, Any]:
    """Settings of a worker, or of the only process: who asks is named, and callbacks are told in a file."""
    return {
        "GP4C_WORKER": name,
        "DOWNLOADER_MIDDLEWARES": {NamedWorker: 900},
        "FEEDS": {str(folder / "items" / f"{name}.jsonl"): {"format": "jsonlines"}},
        "REDIRECT_MAX_TIMES": 6,
        "GP4C_POLICY": "top_k",
        **more,
    }


def items(folder: Path, *names: str) -> list[tuple[Any, ...]]:
    """What callbacks were told of visits, whoever called them, but for page numbers."""
    found = []
    for name in names:
        for line in (folder / "items" / f"{name}.jsonl").read_text().splitlines():
            told = json.loads(line)
            del told["page"]
            found.append(tuple(sorted(told.items(), key=lambda pair: pair[0])))
    return sorted(found, key=repr)


def claims(store: PageStore) -> Counter[tuple[int, int, int, float]]:
    """Cycle, key, kind and value of what answers said of their pages."""
    return Counter(
        (cycle, store.page(row["page"]).key, int(row["kind"]), float(row["value"]))
        for cycle, part in store.hints.of_cycles()
        for row in part
    )


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (("a", "b"), {}),
        (("a", "b", "c"), {"GP4C_POLICY": "rounds(rounds=2)", "GP4C_SKIP_UNCHANGED": True}),
    ],
)
def test_redirects_across_shards_come_to_what_one_process_finds(
    crawl: Make, names: tuple[str, ...], more: dict[str, Any]
) -> None:
    """Chains over up to three shards, loops, pages that are gone, all redirecting statuses: visits, records,
    columns, claims, validators, and what callbacks are told."""
    one_crawl = crawl(loops="GP4C_POLICY" not in more)  # a loop is told when a run ends: rounds wait for that
    web, folder = one_crawl.web, one_crawl.folder
    for day in (1, 2, 3):
        web.day = day
        alone = start(settings(web, folder / "one", **given(folder, "one", **more)), folder / "one.log")
        alone.join()
        assert alone.exitcode == 0
        web.asked.clear()
        one_crawl.wait()
        crawls = [one_crawl.start(name, **given(folder, name, **more)) for name in names]
        for worker in crawls:
            worker.join()
        assert [worker.exitcode for worker in crawls] == [0] * len(names), one_crawl.log("a")
        asked_by = defaultdict(set)
        for asked in web.asked:
            asked_by[asked.host].add(asked.worker)
        assert all(len(workers) == 1 for workers in asked_by.values())
    assert any("gp4c/visits/handed_over" in one_crawl.log(name) for name in names)
    with open_store(folder / "one", readonly=True) as one, open_store(one_crawl.collect()) as many:
        compare(one, many)
        for key in columns(one):
            pages = [store.find(key) for store in (one, many)]
            assert None not in pages
            assert one.validators(pages[0] or 0) == many.validators(pages[1] or 0)
        assert claims(many) == claims(one)
    assert items(folder, *names) == items(folder, "one")


def test_no_host_is_asked_by_two_workers_within_its_delay(crawl: Make) -> None:
    """The web's log of two cycles with a delay, three workers, redirects across shards among them."""
    one_crawl, delay_s = crawl(loops=False), 0.3
    polite = {
        "DOWNLOAD_DELAY": delay_s,
        "DOWNLOAD_DELAY_JITTER": 0.0,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    }
    names = ("a", "b", "c")
    for day in (1, 2):
        one_crawl.web.day = day
        one_crawl.wait()
        crawls = [one_crawl.start(name, **given(one_crawl.folder, name, **polite)) for name in names]
        for worker in crawls:
            worker.join()
    asked, crossed = one_crawl.web.asked, 0
    assert {one.worker for one in asked} == set(names)
    began = {one.path: one.worker for one in asked if one.path.count("/") == 1}
    for one in asked:
        crossed += one.path.count("/") == 2 and began[f"/{one.path.split('/')[1]}"] != one.worker
    assert crossed > 5
    for host in {one.host for one in asked}:
        times = sorted((one.time_s, one.worker) for one in asked if one.host == host)
        for (before_s, first), (after_s, second) in pairwise(times):
            assert first == second or after_s - before_s >= delay_s


@pytest.mark.parametrize("victim", ["who has the page", "who has the target"])
def test_a_visit_that_was_handed_over_has_one_outcome_whoever_is_killed(crawl: Make, victim: str) -> None:
    """kill -9 while the last answer is awaited: the visit is recorded once, with what the page says."""
    one_crawl, names = crawl(loops=False), ("a", "b", "c")
    web = one_crawl.web
    assert isinstance(web, RedirectingWeb)
    everything = {"GP4C_BUDGET": 1.0}
    assert set(one_crawl.cycle(*names)) == {0}
    web.day, web.slow_s = 3, 4.0
    web.asked.clear()
    one_crawl.wait()
    folder = one_crawl.folder
    crawls = {name: one_crawl.start(name, **given(folder, name, **everything)) for name in names}
    while (found := handed_over(web)) is None:
        time.sleep(0.05)
    page, origin, target = found
    killed = origin if victim == "who has the page" else target
    while not one_crawl.ledger("SELECT count(*) FROM gp4c.mail"):
        time.sleep(0.05)
    crawls[killed].kill()
    for worker in crawls.values():
        worker.join()
    web.slow_s = 0.0
    while one_crawl.ledger("SELECT closed IS NULL FROM gp4c.cycle WHERE cycle = 2"):
        again = [
            one_crawl.start(name, **given(folder, name, **everything)) for name in names if name != killed
        ]
        for worker in again:
            worker.join()
    with open_store(one_crawl.collect()) as many:
        assert many.verify() == []
        recorded = visits(many, 2)  # in which no page is twice
        assert sum(kind != "new" for kind, _, _ in recorded.values()) == many.cycles()[1]["planned"]
        assert recorded[web.url(page)][1] in ("first", "unchanged", "changed", "not_modified")
        assert Counter(outcome for _, outcome, _ in recorded.values())["error"] == 0
    assert not one_crawl.ledger("SELECT count(*) FROM gp4c.mail")


def handed_over(web: RedirectingWeb) -> tuple[int, str, str] | None:
    """A page whose last redirect has led to another worker, that worker, and who has the page."""
    began = {one.path: one.worker for one in web.asked}
    for one in web.asked:
        page, _, hop = one.path[1:].partition("/")
        by = began.get(f"/{page}")
        if hop and int(hop) == web.hops(int(page)) and one.worker and by and one.worker != by:
            return int(page), by, one.worker
    return None


def test_mail_that_is_none_leaves_nobody_waiting(crawl: Make) -> None:
    """Letters that somebody spoils on their way: they are counted, the visits that they had end as errors,
    and the cycle closes."""
    one_crawl = crawl(loops=False)
    web = one_crawl.web
    assert isinstance(web, RedirectingWeb)
    assert set(one_crawl.cycle("a", "b")) == {0}
    one_crawl.server.execute(
        "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.body := 'no letter'::bytea; RETURN NEW; END $$;"
        "CREATE TRIGGER spoil BEFORE INSERT ON gp4c.mail FOR EACH ROW EXECUTE FUNCTION spoil()",
        one_crawl.database,
    )
    web.day = 3
    assert set(one_crawl.cycle("a", "b")) == {0}, one_crawl.log("a")
    with open_store(one_crawl.collect()) as many:
        assert many.verify() == []
        recorded = visits(many, 2)
        failed = {url for url, (_, outcome, _) in recorded.items() if outcome == "error"}
    assert failed
    for url in failed:
        page = int(url.rpartition("/")[2])
        assert web.hops(page)
    logs = one_crawl.log("a") + one_crawl.log("b")
    assert "gp4c/mail/refused" in logs
    assert "gp4c/visits/unanswered" in logs
