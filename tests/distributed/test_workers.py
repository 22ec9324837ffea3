"""Crawls by several workers: real processes, a real PostgreSQL, real kills."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.crawling.engine import under_way
from scrapy_gp4c.distributed import administration, shared_run
from scrapy_gp4c.distributed.shared_run import SharedRun
from scrapy_gp4c.page_state.outcomes import KINDS, OUTCOMES
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import USUAL, open_store
from scrapy_gp4c.store.page_store import PageStore
from tests.support import workers
from tests.support.postgres import NEEDS_POSTGRES, PASSWORD, Server
from tests.support.workers import TreeWeb, settings, start

pytestmark = NEEDS_POSTGRES
LEASE_S, CYCLE_S = 6.0, 4.0


@pytest.fixture
def web() -> Iterator[TreeWeb]:
    """A web on loopback."""
    served = TreeWeb()
    yield served
    served.close()


class Crawl:
    """One crawl by some workers."""

    def __init__(self, web: TreeWeb, folder: Path, server: Server, database: str, dsn: str) -> None:
        self.web, self.folder, self.server, self.database, self.dsn = web, folder, server, database, dsn

    def start(
        self, name: str, target: Callable[[dict[str, Any], Path], None] = workers.crawl, **given: Any
    ) -> BaseProcess:
        """Start a worker."""
        own = {"GP4C_LEDGER": self.dsn, "GP4C_WORKER": name, "GP4C_LEASE_S": LEASE_S, **given}
        own = settings(self.web, self.folder / name, **{"GP4C_CYCLE_S": CYCLE_S, **own})
        return start(own, self.folder / f"{name}.log", target)

    def wait(self) -> None:
        """Wait until a cycle is due."""
        while not self.ledger(
            "SELECT coalesce(max(opened), 'epoch') + interval '4.5 s' < now() FROM gp4c.cycle"
        ):
            time.sleep(0.1)

    def cycle(self, *names: str) -> list[int | None]:
        """Wait until a cycle is due, and crawl; returns exit codes."""
        self.wait()
        crawls = [self.start(name) for name in names]
        for one in crawls:
            one.join()
        return [one.exitcode for one in crawls]

    def ledger(self, query: str) -> Any:
        """One value of the ledger."""
        return self.server.execute(query, self.database)[0][0]

    def log(self, name: str) -> str:
        """What a worker has logged."""
        return (self.folder / f"{name}.log").read_text()

    def collect(self) -> Path:
        """All that the crawl knows, as one store."""
        given = Settings.load(ScrapySettings({"GP4C_LEDGER": self.dsn}))
        ledger = administration.ledger_of(given)
        place = self.folder / "collected"
        administration.collect(ledger, given, place, USUAL)
        ledger.close()
        return place


@pytest.fixture
def crawl(web: TreeWeb, tmp_path: Path, server: Server, database: str, dsn: str) -> Crawl:
    """A crawl that has not begun, of four shards."""
    return Crawl(web, tmp_path, server, database, dsn)


def noting(given: dict[str, Any], log: Path) -> None:
    """Crawl as `tests.support.workers.crawl` does; note how often each turn of the run wakes the engine."""
    turn, wake = SharedRun._turn, shared_run.wake
    wakes: list[Any] = []

    def noted(run: SharedRun, is_due: bool) -> None:
        is_waiting = bool(under_way(run._crawler)) and run.idle_since_s is None
        del wakes[:]
        turn(run, is_due)
        with log.with_suffix(".turns").open("a") as file:
            file.write(f"{is_due:d} {is_waiting:d} {len(wakes)}\n")

    def counted(crawler: Any) -> None:
        wakes.append(crawler)
        wake(crawler)

    with patch.object(SharedRun, "_turn", noted), patch.object(shared_run, "wake", counted):
        workers.crawl(given, log)


def visits(store: PageStore, cycle: int) -> dict[str, tuple[str, str, int]]:
    """URL -> kind, outcome and fingerprint of the visits of a cycle; each page has one."""
    found = {}
    for _, part in store.visits(cycle, cycle):
        for row in part:
            url = store.request(int(row["page"]))["url"]
            assert url not in found
            found[url] = (KINDS[row["kind"]], OUTCOMES[row["outcome"]], int(row["fingerprint"]))
    return found


def columns(store: PageStore) -> dict[int, dict[str, Any]]:
    """Columns of all pages by key; pages are named by their keys."""
    keys = {
        first + row: key for first, block in store.blocks() for row, key in enumerate(block["key"].tolist())
    }
    found = {}
    for _, block in store.blocks():
        for row, key in enumerate(block["key"].tolist()):
            found[key] = {name: str(block[name][row]) for name in block if name != "group"}
            finder = int(block["found_by"][row])
            found[key]["found_by"] = str(keys.get(finder - 1, finder))
    return found


def compare(one: PageStore, many: PageStore) -> None:
    """Compare visits, records and columns of two stores, but for when all was."""
    assert many.verify() == []
    assert len(many.cycles()) == len(one.cycles())
    for cycle in range(1, len(one.cycles()) + 1):
        assert visits(many, cycle) == visits(one, cycle)
        records = [store.cycles()[cycle - 1] for store in (many, one)]
        for record in records:
            for name in ("started", "finished", "rounds"):
                record.pop(name)  # type: ignore[misc] # a name is no literal
        assert records[0] == records[1]
    times = ("last", "found", "checked", "seen_min")
    of_many, of_one = (
        {key: {n: v for n, v in row.items() if n not in times} for key, row in columns(store).items()}
        for store in (many, one)
    )
    assert of_many == of_one


def test_workers_do_what_one_process_does(crawl: Crawl) -> None:
    """Plans, visits, records and columns of four cycles: with two workers, then with three."""
    cycles = 4
    for day in range(1, cycles + 1):
        crawl.web.day = day
        alone = start(settings(crawl.web, crawl.folder / "one"), crawl.folder / "one.log")
        alone.join()
        assert alone.exitcode == 0
        names = ("a", "b", "c")[: 2 if day < 3 else 3]
        assert set(crawl.cycle(*names)) == {0}, [crawl.log(name) for name in names]
    with open_store(crawl.folder / "one", readonly=True) as one, open_store(crawl.collect()) as many:
        compare(one, many)


def test_who_is_killed_is_taken_over(crawl: Crawl) -> None:
    """kill -9 in a cycle: the other worker goes on, with what was acknowledged, and nothing twice."""
    assert set(crawl.cycle("a", "b")) == {0}
    crawl.web.day, crawl.web.delay_s = 4, 0.4
    crawl.web.log.clear()
    time.sleep(CYCLE_S)
    killed, survivor = crawl.start("a"), crawl.start("b")
    while crawl.ledger("SELECT count(DISTINCT shard) FROM gp4c.log WHERE cycle = 2") < 3:
        time.sleep(0.05)
    killed.kill()
    killed.join()
    recorded = crawl.ledger("SELECT sum(visits) FROM gp4c.log WHERE cycle = 2")
    survivor.join()
    assert survivor.exitcode == 0
    crawl.web.delay_s = 0.0
    if crawl.ledger("SELECT closed IS NULL FROM gp4c.cycle WHERE cycle = 2"):
        again = crawl.start("b")
        again.join()
        assert again.exitcode == 0, crawl.log("b")
    assert crawl.ledger("SELECT closed IS NOT NULL FROM gp4c.cycle WHERE cycle = 2")
    with open_store(crawl.collect()) as many:
        assert many.verify() == []
        found = visits(many, 2)
        assert len(found) >= recorded > 0
        assert crawl.ledger("SELECT to_regclass('gp4c.log_2')") is None  # its objects have it
        planned = many.cycles()[1]["planned"]
        assert sum(kind != "new" for kind, _, _ in found.values()) == planned
    twice = [page for page, times in Counter(page for _, page in crawl.web.log).items() if times > 1]
    assert len(twice) <= 40
    assert crawl.cycle("a") == [0], crawl.log("a")  # its shards are in a cycle that others have closed
    assert "of an older cycle: it is built anew from the ledger" in crawl.log("a")
    shutil.rmtree(crawl.folder / "collected")
    with open_store(crawl.collect()) as many:
        assert many.verify() == []
        assert len(visits(many, 2)) == len(found)
        assert many.last_cycle == 3


def test_a_ledger_that_is_killed_is_waited_for(crawl: Crawl) -> None:
    """kill -9 of PostgreSQL in a cycle: the worker goes on when it is back, and loses nothing."""
    crawl.web.day, crawl.web.delay_s = 8, 0.2
    worker = crawl.start("a", GP4C_LEASE_S=30.0)
    while len(crawl.web.log) < 5:
        time.sleep(0.05)
    crawl.server.kill()
    time.sleep(1.0)
    crawl.server.start()
    worker.join()
    assert worker.exitcode == 0, crawl.log("a")
    with open_store(crawl.collect()) as many:
        assert many.verify() == []
        assert len(visits(many, 1)) == many.pages == 60
    assert PASSWORD not in crawl.log("a")


def test_who_comes_late_has_nothing_to_do(crawl: Crawl) -> None:
    """One line, and exit code 0: what is due is done."""
    assert crawl.cycle("a") == [0]
    late = crawl.start("b", GP4C_CYCLE_S=3600.0)
    late.join()
    assert late.exitcode == 0
    assert "cycle 1 is closed, and the next one is due in" in crawl.log("b")
    assert PASSWORD not in crawl.log("b")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"GP4C_LEDGER": "host=127.0.0.1 port=1 user=owner password=s3cret/of"}, "127.0.0.1"),
        ({"GP4C_LEDGER": "postgresql://owner:s3cret/of@:x"}, "GP4C_LEDGER"),
        ({"JOBDIR": "jobs"}, "no JOBDIR with GP4C_LEDGER"),
        ({"GP4C_ARCHIVE": True}, "no GP4C_ARCHIVE with GP4C_LEDGER"),
        ({"GP4C_POLICY": "rns"}, "GP4C_POLICY must be one that chooses by a score alone"),
    ],
)
def test_what_cannot_begin_says_so_in_one_line(
    crawl: Crawl, given: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exit code, one critical line, no traceback and no password."""
    monkeypatch.chdir(crawl.folder)  # where Scrapy makes the JOBDIR
    worker = crawl.start("a", **given)
    worker.join()
    told = [line for line in crawl.log("a").splitlines() if " CRITICAL: " in line]
    assert worker.exitcode == 1
    assert len(told) == 1, crawl.log("a")
    assert expected in told[0]
    assert "Traceback" not in crawl.log("a")
    assert "s3cret" not in crawl.log("a")


def test_a_store_becomes_a_crawl_by_workers(crawl: Crawl) -> None:
    """`create --from` a store of one machine, collect at once: the same; the workers go on with it."""
    for day in (1, 2):
        crawl.web.day = day
        alone = start(settings(crawl.web, crawl.folder / "one"), crawl.folder / "one.log")
        alone.join()
    given = Settings.load(ScrapySettings({"GP4C_LEDGER": crawl.dsn}))
    administration.create(given, 4, crawl.folder / "one", USUAL)
    with open_store(crawl.folder / "one", readonly=True) as one, open_store(crawl.collect()) as many:
        assert columns(many) == columns(one)
        assert many.cycles() == one.cycles()
        assert visits(many, 2) == visits(one, 2)
    shutil.rmtree(crawl.folder / "collected")
    crawl.web.day = 3
    assert crawl.cycle("a") == [0], crawl.log("a")
    with open_store(crawl.collect()) as many:
        assert many.verify() == []
        assert many.last_cycle == 3
    ledger = administration.ledger_of(given)
    found = administration.status(ledger, given)
    ledger.close()
    assert (found.cycle, found.open, found.complete, found.problem) == (3, False, True, None)


def test_a_worker_wakes_the_engine_once_a_second_while_pages_are_under_way(crawl: Crawl) -> None:
    """By the turns that are due; others, if there are any, leave it to the pages that come in."""
    crawl.web.delay_s = 0.3
    own = crawl.start("a", noting, CONCURRENT_REQUESTS=2)
    own.join()
    assert own.exitcode == 0, crawl.log("a")
    lines = (crawl.folder / "a.turns").read_text().splitlines()
    turns = [tuple(map(int, line.split())) for line in lines]
    busy = [(is_due, wakes) for is_due, is_waiting, wakes in turns if is_waiting]
    assert sum(is_due for is_due, _ in busy) >= 3
    assert all(is_due == wakes for is_due, wakes in busy)
