"""Shards that are lost, damaged, or not what the ledger has: built anew, or one error that names what is."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from scrapy_gp4c.store.opening import open_shard
from scrapy_gp4c.store.shards.directory import shard_path
from tests.support.postgres import NEEDS_POSTGRES, Server
from tests.support.troubled import SHARDS, Crawl

pytestmark = NEEDS_POSTGRES
LEASE_S = 3.0
OTHERS_TEXT = "UPDATE gp4c.{} SET body = set_byte(body, 40, get_byte(body, 40) # 1) WHERE {}"
"""Damages what is whole, and mends what it has damaged."""


def crawled(crawl: Crawl, name: str, **given: object) -> int | None:
    """Let a worker crawl once; returns its exit code."""
    one = crawl.start(name, **given)
    one.join()
    return one.exitcode


def interrupted(crawl: Crawl, name: str) -> None:
    """Let a worker begin a cycle, and kill it when the log has several segments of some shard."""
    crawl.web.delay_s = 0.6
    one = crawl.start(name)
    while not crawl.server.execute("SELECT 1 FROM gp4c.log WHERE seq > 1", crawl.database):
        assert one.is_alive(), crawl.log(name)
        time.sleep(0.05)
    one.kill()
    one.join()
    crawl.web.delay_s = 0.0
    time.sleep(LEASE_S)


def test_a_damaged_segment_is_named_by_who_needs_it(tmp_path: Path, server: Server) -> None:
    """A worker without the shard says which, and ends; once it is mended, the cycle goes on."""
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        interrupted(crawl, "a")
        shard = server.execute("SELECT min(shard) FROM gp4c.log WHERE seq > 1", crawl.database)[0][0]
        where = OTHERS_TEXT.format("log", f"shard = {shard} AND seq = 1")
        server.execute(where, crawl.database)
        assert crawled(crawl, "b") == 1
        assert f"segment 1 of shard {shard}, cycle 1, is damaged" in crawl.critical("b")[0]
        assert "Traceback" not in crawl.log("b")
        with open_shard(shard_path(tmp_path / "b", shard), SHARDS) as one:
            assert one.applied == 1
        server.execute(where, crawl.database)
        assert crawled(crawl, "b") == 0, crawl.log("b")
        assert crawl.check().wrong == []


def test_a_damaged_object_is_named_by_who_needs_it(tmp_path: Path, server: Server) -> None:
    """Nothing of it lies in the worker's directory; once it is mended, the next cycle begins."""
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        assert crawled(crawl, "a") == 0
        name = server.execute(
            "SELECT name FROM gp4c.object WHERE shard = 3 ORDER BY registered DESC LIMIT 1", crawl.database
        )[0][0]
        server.execute(OTHERS_TEXT.format("blob", f"name = '{name}' AND part = 0"), crawl.database)
        time.sleep(1.0)
        assert crawled(crawl, "b") == 1
        assert f"object {name} at " in crawl.critical("b")[0]
        assert "Traceback" not in crawl.log("b")
        assert not list(shard_path(tmp_path / "b", 3).glob("*.mdb"))
        server.execute(OTHERS_TEXT.format("blob", f"name = '{name}' AND part = 0"), crawl.database)
        assert crawled(crawl, "b") == 0, crawl.log("b")
        assert crawl.check().wrong == []


def test_a_lost_directory_is_built_anew(tmp_path: Path, server: Server) -> None:
    """In the middle of a cycle: of copies and log, and the worker goes on where it was."""
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        assert crawled(crawl, "a") == 0
        crawl.web.day = 3
        interrupted(crawl, "a")
        shutil.rmtree(tmp_path / "a")
        assert crawled(crawl, "a") == 0, crawl.log("a")
        found = crawl.check()
        assert found.wrong == []
        assert found.compared["cycles"] == 2


@pytest.mark.parametrize("others_went_on", [False, True])
def test_a_ledger_older_than_a_shard_counts(tmp_path: Path, server: Server, others_went_on: bool) -> None:
    """A backup is brought back: shards that know more, or other cycles of that number, are built anew."""
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        assert crawled(crawl, "a") == 0
        crawl.ledger.close()
        server.execute("DROP DATABASE IF EXISTS backup")
        server.execute(f"CREATE DATABASE backup TEMPLATE {crawl.database}")
        crawl.web.day = 3
        time.sleep(1.0)
        assert crawled(crawl, "a") == 0
        crawl.database = "backup"
        crawl.web.day = 5
        went_on = server.dsn("backup")
        if others_went_on:
            assert crawled(crawl, "b", GP4C_LEDGER=went_on) == 0, crawl.log("b")
            time.sleep(1.0)
        assert crawled(crawl, "a", GP4C_LEDGER=went_on) == 0, crawl.log("a")
        told = "not what the ledger has of it" if others_went_on else "ahead of the ledger"
        assert crawl.log("a").count(f"{told}: it is built anew") == SHARDS
        cycles = server.execute("SELECT count(*) FROM gp4c.cycle WHERE closed IS NOT NULL", "backup")[0][0]
        assert cycles == 2 + others_went_on
