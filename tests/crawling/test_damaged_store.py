"""A store that is found damaged in the middle of a crawl: one line, a finish reason, and no traceback."""

import logging
from pathlib import Path
from typing import Any

import lmdb
import pytest

from scrapy_gp4c.store.lmdb_store.environment import Environment, store_error
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.store.test_environment import flipped
from tests.support.loopback import Pages, Site, crawl, html

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
