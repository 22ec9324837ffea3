"""A store that has no room left stops the crawl with one message, and costs no recorded visit."""

import logging
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_gp4c.store.lmdb_store import environment
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.killing import Web
from tests.support.loopback import Follower, Site, crawl, html
from tests.support.sources import ROOT

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
