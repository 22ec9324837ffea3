"""Bringing shards to where the ledger is: from their directory, or from the newest copy, then by the log."""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_twisted
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.distributed import copies, schema
from scrapy_gp4c.distributed.catching_up import Home, opened
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.copies import Copying
from scrapy_gp4c.distributed.leases import new_worker
from scrapy_gp4c.distributed.link import Link
from scrapy_gp4c.distributed.objects import Owned
from scrapy_gp4c.distributed.places import Blobs
from scrapy_gp4c.distributed.standing import Begun
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.records import NewVisit
from tests.support.by_key import content
from tests.support.ledgers import joined, taken
from tests.support.ledgers import opened as cycle_opened
from tests.support.postgres import NEEDS_POSTGRES

pytestmark = NEEDS_POSTGRES
NUMBERS: Final = itertools.count()
"""Of workers, each of which has a name of its own."""


@pytest.fixture
def link(dsn: str) -> Iterator[Link]:
    """A worker's link."""
    one = Link(dsn, new_worker("one", 30.0))
    yield one
    one.close(leave=False)


@pytest.fixture
def home(link: Link, ledger: Connection, tmp_path: Path) -> Home:
    """A directory without shards."""
    settings = Settings.load(ScrapySettings({"GP4C_STORE": str(tmp_path / "own")}))
    return Home.of(settings, "news", Blobs(link.thread), ledger.call(schema.about))


def at(ledger: Connection, cycle: int) -> Begun:
    """An open cycle of the ledger; those before it are closed, with records."""
    worker = joined(ledger, f"opener-{next(NUMBERS)}")
    while (found := cycle_opened(ledger, worker)).cycle < cycle:
        ledger.call(
            lambda tx, number=found.cycle: tx.execute(
                "UPDATE gp4c.cycle SET closed = opened, record = %s WHERE cycle = %s",
                ('{"finished": 9.0}', number),
            )
        )
    return Begun(found.cycle, found.started, None, found.decided)


async def crawled(link: Link, home: Home, ledger: Connection, shard: int) -> Any:
    """Crawl a cycle in a new shard, and store the copy; returns what it has."""
    lease = taken(ledger, joined(ledger, "maker"), shard)
    now = at(ledger, 1)
    one = await opened(link, home, shard, now)
    one.begin_cycle({"started": now.started})
    for page in range(5):
        number = one.add_page(100 + page, {"url": f"http://h.org/{page}"})
        one.record(NewVisit(number, "first", 2.0 + page, "new", 9 * page))
    one.finish_cycle({"finished": 9.0})
    found = content(one)
    (home.directory / "copy").mkdir()
    own = Owned(shard, lease.token)
    copies.put_snapshot(Copying(ledger, Blobs(ledger), own, home.directory / "copy"), one)
    one.close()
    return found


@pytest_twisted.ensureDeferred
async def test_a_shard_is_new_kept_or_built_anew(link: Link, home: Home, ledger: Connection) -> None:
    """Empty where there is no copy; what is in the directory where it fits; else the newest copy, whole."""
    assert home.copies() == []
    found = await crawled(link, home, ledger, 2)
    assert found["counts"][:3] == (5, 5, 1)
    assert home.copies() == [2]
    before = (home.path(2) / "data.mdb").stat().st_ino
    with await opened(link, home, 2, at(ledger, 2)) as kept:
        assert content(kept) == found
    assert (home.path(2) / "data.mdb").stat().st_ino == before, "it was not built anew"
    shutil.rmtree(home.path(2))
    (home.path(2).with_name(home.path(2).name + ".part")).mkdir()
    with await opened(link, home, 2, at(ledger, 2)) as again:
        assert content(again) == found
        assert again.shard_of == (2, home.about.shards, home.about.ledger)
    assert home.copies() == [2]


@pytest_twisted.ensureDeferred
async def test_a_shard_that_does_not_fit_is_built_anew_and_told(
    link: Link, home: Home, ledger: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is ahead of the ledger, as after a restored backup of it, and one that missed cycles."""
    found = await crawled(link, home, ledger, 2)
    now = at(ledger, 2)
    with home.open(2) as ahead:
        ahead.begin_cycle({"started": now.started})
        ahead.wait()
        ahead.record(NewVisit(0, "changed", 21.0, "ranked", 77))
        assert ahead.seal(0) is not None
        ahead.write()
        assert ahead.applied == 1
    with caplog.at_level(logging.WARNING):
        (await opened(link, home, 2, at(ledger, 2))).close()
    assert "Shard 2 in" in caplog.text
    assert "is ahead of the ledger: it is built anew from the ledger" in caplog.text
    with home.open(2) as rebuilt:
        assert content(rebuilt) == found
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        (await opened(link, home, 2, at(ledger, 5))).close()
    assert "is of an older cycle" in caplog.text


@pytest_twisted.ensureDeferred
async def test_shards_of_another_ledger_are_refused(link: Link, home: Home, ledger: Connection) -> None:
    """Nothing of them is touched: the error says what to set."""
    now = at(ledger, 1)
    (await opened(link, home, 1, now)).close()
    shutil.copytree(home.path(1), home.path(3))
    with pytest.raises(StoreError, match=r"expected shard 3 of the ledger .*; found shard 1 of .*GP4C_STORE"):
        await opened(link, home, 3, now)
    other = home._replace(about=home.about._replace(ledger="another"))
    with pytest.raises(StoreError, match="expected shard 1 of the ledger another in"):
        await opened(link, other, 1, now)
    with home.open(1) as one:
        assert one.pages == 0
