"""What a worker may take of the caps: all together never more than they allow, and all of it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.distributed.quotas import share
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.shards.part import ShardOf
from tests.distributed.test_workers import Crawl
from tests.support.postgres import NEEDS_POSTGRES, Server
from tests.support.workers import TreeWeb


@given(st.integers(-10, 10_000), st.integers(1, 1024))
def test_shares_are_equal_and_all_there_is(left: int, shards: int) -> None:
    """They add up; none is larger than another by more than one; of less than nothing there is none."""
    shares = [share(left, ShardOf(number, shards, "")) for number in range(shards)]
    assert sum(shares) == max(0, left)
    assert max(shares) - min(shares) <= 1


@NEEDS_POSTGRES
def test_workers_together_take_no_more_than_the_caps(
    tmp_path: Path, server: Server, database: str, dsn: str
) -> None:
    """Two workers, cycles that find more than they may fetch, and than the store may have in the end."""
    web = TreeWeb(days=2)
    crawl = Crawl(web, tmp_path, server, database, dsn)
    caps = {"GP4C_NEW_PAGES": 9, "GP4C_MAX_PAGES": 30}
    for day in range(1, 5):
        web.day = min(day, 2)
        crawl.wait()
        for worker in [crawl.start(name, **caps) for name in ("a", "b")]:
            worker.join()
            assert worker.exitcode == 0
    web.close()
    with open_store(crawl.collect()) as many:
        assert many.verify() == []
        new = [record["outcomes"]["first"] for record in many.cycles()]
        assert max(new) <= 9
        assert sum(new) > 18
        assert 20 < many.pages <= 30
