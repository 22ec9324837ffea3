"""Workers that begin: names and directories that two have, processors that compute otherwise."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scrapy_gp4c.distributed.arithmetic import of_this_process
from scrapy_gp4c.store.opening import open_shard
from scrapy_gp4c.store.shards.directory import shard_path
from tests.support import workers
from tests.support.postgres import NEEDS_POSTGRES, Server
from tests.support.troubled import SHARDS, Crawl

pytestmark = NEEDS_POSTGRES
LEASE_S = 3.0
DISABLE = "NPY_DISABLE_CPU_FEATURES"
BITS = "from scrapy_gp4c.distributed.arithmetic import of_this_process; print(of_this_process().bits)"


def test_a_name_that_is_used_twice_is_refused(tmp_path: Path, server: Server) -> None:
    """The second process says so in one line and ends; the first one goes on."""
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        crawl.web.delay_s = 0.2
        first = crawl.start("a")
        while len(crawl.web.requests) < 5:
            time.sleep(0.05)
        second = crawl.start("b", GP4C_WORKER="a")
        second.join()
        assert second.exitcode == 1
        assert "a worker named 'a' is alive" in crawl.critical("b")[0]
        assert len(crawl.critical("b")) == 1
        assert "Traceback" not in crawl.log("b")
        crawl.web.delay_s = 0.0
        first.join()
        assert first.exitcode == 0
        assert crawl.check().wrong == []


def test_a_processor_that_computes_otherwise_is_refused(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line with the remedy, when it takes over shards of their cycle; who computes alike goes on."""
    features = " ".join(of_this_process().features)
    plain = subprocess.check_output(
        [sys.executable, "-c", BITS], text=True, env={**os.environ, DISABLE: features}
    )
    if plain.strip() == of_this_process().bits:
        pytest.skip("NumPy computes the same here, whatever it makes use of")
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        crawl.web.delay_s = 0.2
        first = crawl.start("a")
        while len(crawl.web.requests) < 5:
            time.sleep(0.05)
        first.kill()
        first.join()
        time.sleep(LEASE_S + 1.0)
        with monkeypatch.context() as plainly:
            plainly.setenv(DISABLE, features)
            plainly.setattr(workers, "_FORKING", multiprocessing.get_context("spawn"))  # loads NumPy anew
            second = crawl.start("b")
            second.join()
        assert second.exitcode == 1
        assert len(crawl.critical("b")) == 1
        assert "was opened by 'a' with another arithmetic" in crawl.critical("b")[0]
        assert f'set {DISABLE}="' in crawl.critical("b")[0]
        assert "Traceback" not in crawl.log("b")
        assert set(crawl.holders().values()) == {None}, "what it took for that it has given back"
        crawl.web.delay_s = 0.0
        third = crawl.start("a")
        third.join()
        assert third.exitcode == 0
        assert crawl.check().wrong == []


def test_a_directory_of_two_workers_costs_nothing(tmp_path: Path, server: Server) -> None:
    """Each shard has one holder, so that two never write to the same files; these move with no copying."""
    shared = {"GP4C_STORE": str(tmp_path / "shared")}
    with Crawl(tmp_path, LEASE_S, server=server, **shared) as crawl:
        for day in (1, 3):
            crawl.web.day = day
            crawl.web.delay_s = 0.1
            crawls = [crawl.start(name) for name in ("a", "b")[: 1 + (day > 1)]]
            for one in crawls:
                one.join()
                assert one.exitcode == 0
            time.sleep(1.0)
        assert crawl.check().wrong == []
        assert "built anew" not in crawl.log("a") + crawl.log("b")


def test_a_shard_that_another_process_writes_to_is_refused(tmp_path: Path, server: Server) -> None:
    """As by a copy of the worker that the ledger does not know: one line, which names the process."""
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        first = crawl.start("a")
        first.join()
        time.sleep(1.0)
        with open_shard(shard_path(tmp_path / "a", 2), SHARDS):
            second = crawl.start("a")
            second.join()
        assert second.exitcode == 1
        assert "0002" in crawl.critical("a")[0]
        assert "Traceback" not in crawl.log("a")
        third = crawl.start("a")
        third.join()
        assert third.exitcode == 0
        assert crawl.check().wrong == []
