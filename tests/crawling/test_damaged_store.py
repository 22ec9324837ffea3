"""Stores that are damaged, full or in use: a crawl ends with one line and a reason, and loses no visit."""

import logging
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

from scrapy_gp4c.store.lmdb_store import environment
from scrapy_gp4c.store.lmdb_store.environment import Environment, store_error
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.store.test_environment import flipped
from tests.support.killing import Web
from tests.support.loopback import Follower, Pages, Site, crawl, html
from tests.support.sources import ROOT

PAGES = 80


def damage(path: Path, table: str, which: int) -> None:
    """Flip a bit of a value."""
    with lmdb.open(str(path), max_dbs=32, map_size=2**30) as environment:
        db = environment.open_db(table.encode())
        with environment.begin(write=True) as txn:
            key, value = list(txn.cursor(db))[which]
            txn.put(key, flipped(value, 9), db=db)


@pytest.mark.parametrize("table", ["urls", "validators", "ids"])
async def test_damage_that_a_crawl_meets_ends_it_with_one_line(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    """It is said what is damaged, whether a request, its validators or the way to its page are read."""

    def page(request: Any) -> bytes:
        request.setHeader("ETag", '"1"')
        return html("a page with a few words on nothing").encode()

    site.pages |= {f"/{number}": page for number in range(PAGES)}
    settings = {"GP4C_SKIP_UNCHANGED": True, "GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 0}
    await crawl(Pages, store_path, settings, site=site)
    damage(store_path, table, PAGES - 1)  # a sample of pages is looked at before
    caplog.clear()
    with caplog.at_level(logging.INFO):
        crawler = await crawl(Pages, store_path, settings, site=site)
    critical = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    (line,) = critical
    assert f"is damaged: {table} " in line
    assert "scrapy gp4c store restore" in line
    assert crawler.stats.get_value("finish_reason") == "gp4c_store_failed"
    assert not [record for record in caplog.records if record.exc_info and record.levelno >= logging.ERROR]


@pytest.mark.parametrize("served", [0, 60])
async def test_a_store_that_can_do_nothing_more_ends_the_crawl_with_one_line(
    site: Site,
    store_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    served: int,
) -> None:
    """As LMDB does once a header could not be written, whatever is on its way; the next run goes on."""
    broken = False
    transaction = Environment.transaction

    def failing(self: Environment, **arguments: Any) -> Any:
        if broken:
            raise store_error(store_path, lmdb.PanicError("mdb_txn_begin"))
        return transaction(self, **arguments)

    def page(request: Any) -> bytes:
        nonlocal broken
        broken = len(site.log) > served
        return html("a page with a few words on nothing").encode()

    site.pages |= {f"/{number}": page for number in range(PAGES)}
    monkeypatch.setattr(Environment, "transaction", failing)
    with caplog.at_level(logging.INFO):
        crawler = await crawl(Pages, store_path, site=site)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "Check the disk (dmesg)" in line
    assert crawler.stats.get_value("finish_reason") == "gp4c_store_failed"
    assert not [record for record in caplog.records if record.exc_info and record.levelno >= logging.ERROR]
    monkeypatch.undo()
    await crawl(Pages, store_path, site=site)
    with Store(store_path, readonly=True) as store:
        assert store.verify() == []
        assert store.last_cycle == 1
        assert sum(len(rows) for _, rows in store.visits()) == PAGES


async def test_a_crawl_says_what_it_found_right(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In one line, before its cycle begins."""
    site.pages |= {f"/{number}": html("text") for number in range(PAGES)}
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            await crawl(Pages, store_path, site=site)
    lines = [record.getMessage() for record in caplog.records if "checksums are right" in record.getMessage()]
    assert len(lines) == 2
    assert lines[0].startswith(f"Store {store_path}: 0 checksums are right")


HUBS = 8  # pages that link to 100 others each


@pytest.mark.slow
async def test_full_store_stops_the_crawl(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with one critical line; the next one, with room, resumes the cycle and visits the rest."""
    for hub in range(HUBS):
        path = f"/{hub}" if hub else "/"
        site.pages[path] = html(
            "hub", [f"/{hub + 1}", *(f"/{hub}/{page}?{'x' * 400}" for page in range(100))]
        )
        site.pages |= {f"/{hub}/{page}": html(f"page {hub} {page}") for page in range(100)}
    with caplog.at_level(logging.CRITICAL), monkeypatch.context() as cramped:
        cramped.setattr(environment, "MAP_BYTES", 300_000)
        cramped.setattr(environment, "_is_granted", lambda size: False)
        crawler = await crawl(Follower, store_path, urls=[site.url()])
    assert crawler.stats.get_value("finish_reason") == "gp4c_store_failed"
    critical = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert critical
    assert all(str(store_path) in message for message in critical)

    with Store(store_path) as store:
        assert store.open_cycle == 1
        before = {visit["page"]: visit["time"] for visit in store.open_visits()}
    assert before
    crawler = await crawl(Follower, store_path, urls=[site.url()])
    assert crawler.stats.get_value("finish_reason") == "finished"
    with Store(store_path) as store:
        assert store.verify() == []
        visits = [visit for _, chunk in store.visits() for visit in chunk]
        assert len(visits) == len({visit["page"] for visit in visits})
        assert all(before[visit["page"]] == visit["time"] for visit in visits if visit["page"] in before)


SPIDER = """
import resource

import scrapy

from scrapy_gp4c.store.lmdb_store.store import Store

finish = Store.finish_cycle


def without_room(self, record):
    size = (self.path / "data.mdb").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        finish(self, record)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Local(scrapy.Spider):
    name = "local"

    async def start(self):
        yield scrapy.Request(self.url)

    def parse(self, response):
        if self.settings.getbool("FULL"):
            Store.finish_cycle = without_room
        for number in range(40):
            yield scrapy.Request(response.urljoin(f"/{number}?{'x' * 400}"))
"""


def scrapy_runspider(
    directory: Path, url: str, *settings: str, address_space: int = resource.RLIM_INFINITY
) -> subprocess.CompletedProcess[str]:
    """Crawl as cron does, in a process of its own."""
    (directory / "spider.py").write_text(SPIDER)
    arguments = ['ADDONS={"scrapy_gp4c.Addon": 500}', f"GP4C_STORE={directory / 'store'}", *settings]
    options = [option for setting in arguments for option in ("-s", setting)]
    command = [sys.executable, "-m", "scrapy", "runspider", "spider.py", "-a", f"url={url}", *options]
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (address_space, resource.RLIM_INFINITY)),
    )  # fmt: skip


@pytest.mark.slow
def test_a_disk_that_is_full_when_the_cycle_closes_is_seen_by_cron(tmp_path: Path) -> None:
    """One critical line, a finish reason, exit code 1, the queue closed; with room the fold is completed."""
    web = Web()
    try:
        full = scrapy_runspider(tmp_path, web.url, "FULL=1", f"JOBDIR={tmp_path / 'job'}")
        again = scrapy_runspider(tmp_path, web.url)
    finally:
        web.close()
    assert full.returncode == 1, full.stderr
    critical = [line for line in full.stderr.splitlines() if "CRITICAL:" in line]
    assert len(critical) == 1, full.stderr
    assert "no room" in critical[0]
    assert "Traceback" not in full.stderr
    assert "'finish_reason': 'gp4c_store_failed'" in full.stderr
    assert (tmp_path / "job" / "requests.queue" / "active.json").exists()
    assert again.returncode == 0, again.stderr
    assert "Cycle 2 begun" in again.stderr
    with Store(tmp_path / "store") as store:
        assert store.verify() == []


@pytest.mark.slow
def test_a_store_that_cannot_be_opened_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    """In use by another crawl: nothing is fetched, no traceback, exit code 1."""
    web = Web()
    try:
        with Store(tmp_path / "store"):
            refused = scrapy_runspider(tmp_path, web.url)
    finally:
        web.close()
    assert refused.returncode == 1, refused.stderr
    assert web.log == []
    assert "Traceback" not in refused.stderr
    assert "'finish_reason': 'gp4c_store_failed'" in refused.stderr
    (critical,) = [line for line in refused.stderr.splitlines() if "CRITICAL:" in line]
    assert f"in use by process {os.getpid()}" in critical


@pytest.mark.slow
def test_a_store_fits_a_limit_of_address_space(tmp_path: Path) -> None:
    """Where the system refuses 1 TiB, the store takes less, and the crawl is as ever."""
    web = Web()
    try:
        crawled = scrapy_runspider(tmp_path, web.url, address_space=4 * 2**30)
    finally:
        web.close()
    assert crawled.returncode == 0, crawled.stderr
    with Store(tmp_path / "store") as store:
        assert store.last_cycle == 1
