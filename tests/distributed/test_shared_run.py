"""Runs of workers that are stopped, cut off or killed: the others go on, and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.support.postgres import NEEDS_POSTGRES, Server
from tests.support.troubled import HANGS_S, NAMES, Crawl

pytestmark = NEEDS_POSTGRES
LEASE_S = 3.0
TAKES = "this one goes on with shards of theirs, too"


def holder(crawl: Crawl, among: tuple[str, ...] = NAMES) -> str:
    """Wait until some of these workers hold all shards, and pages are asked for; returns who has most."""
    for name in among:
        crawl.start(name)
    while not set(crawl.holders().values()) <= set(among) or len(crawl.web.requests) < 10:
        time.sleep(0.05)
    return Counter(crawl.holders().values()).most_common(1)[0][0] or ""


def lost_by(crawl: Crawl, name: str) -> Callable[[object], bool]:
    """Tells whether others have all shards that a worker holds now."""
    own = {shard for shard, holder in crawl.holders().items() if holder == name}
    assert own

    def lost(_: object) -> bool:
        now = crawl.holders()
        return all(now[shard] not in (name, None) for shard in own)

    return lost


def test_a_dead_workers_shards_are_taken_into_the_run(tmp_path: Path, server: Server) -> None:
    """The heir's process goes on with what both had: each page has one outcome, the rest is fetched."""
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        crawl.web.delay_s = 0.3
        victim = holder(crawl, ("a", "b"))
        heir = "b" if victim == "a" else "a"
        lost = lost_by(crawl, victim)
        crawl.processes.pop(victim).kill()
        while not lost(None):
            time.sleep(0.1)
        crawl.web.delay_s = 0.0
        crawl.processes[heir].join()
        assert crawl.processes[heir].exitcode == 0, crawl.log(heir)
        found = crawl.check()
        assert found.wrong == []
        assert found.compared["acknowledged visits"] > 10
        assert crawl.log(heir).count(TAKES) == 1
        assert crawl.log(heir).count("Spider opened") == 1
        assert crawl.log(heir).count("Spider closed (finished)") == 1


def test_a_stopped_worker_writes_nothing_under_its_old_tokens(tmp_path: Path, server: Server) -> None:
    """SIGSTOP for longer than the lease: others have its shards when it goes on, which it is told."""
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        crawl.web.delay_s = 0.3
        name = holder(crawl)
        stopped = crawl.processes[name]
        lost = lost_by(crawl, name)
        os.kill(stopped.pid or 0, signal.SIGSTOP)
        assert crawl.until(lost, HANGS_S)
        os.kill(stopped.pid or 0, signal.SIGCONT)
        stopped.join(HANGS_S)
        assert "were taken over" in crawl.critical(name)[0]
        assert stopped.exitcode == 1
        assert crawl.check().wrong == []


def test_who_is_cut_off_for_a_while_goes_on(tmp_path: Path, server: Server) -> None:
    """A way to PostgreSQL that stalls for less than the lease costs nobody a shard."""
    with Crawl(tmp_path, 6.0, server=server) as crawl:
        crawl.web.delay_s = 0.3
        name = holder(crawl)
        crawl.proxies[name].flows.clear()
        time.sleep(2.0)
        crawl.proxies[name].flows.set()
        time.sleep(6.0)
        assert server.execute("SELECT max(deaths) FROM gp4c.shard", crawl.database) == [(0,)]
        assert crawl.check().wrong == []
        assert set(crawl.ends) == {0}
        assert not any(crawl.critical(one) for one in NAMES)


def test_who_is_cut_off_for_longer_is_taken_over(tmp_path: Path, server: Server) -> None:
    """What it had not sent is refused, in one line."""
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        crawl.web.delay_s = 0.3
        name = holder(crawl)
        cut_off, lost = crawl.processes[name], lost_by(crawl, name)
        crawl.proxies[name].flows.clear()
        assert crawl.until(lost, HANGS_S)
        crawl.proxies[name].flows.set()
        cut_off.join(HANGS_S)
        assert "were taken over" in crawl.critical(name)[0]
        assert crawl.check().wrong == []


def test_a_ledger_that_is_away_for_longer_than_the_buffer_is_waited_for(
    tmp_path: Path, server: Server
) -> None:
    """The worker goes on until so many visits wait, then sends nothing; when it is back, nothing is lost."""
    most, under_way = 40, 16
    with Crawl(tmp_path, 60.0, server=server) as crawl:
        crawl.web.delay_s = 0.2
        worker = crawl.start("a", most_waiting=most)
        while len(crawl.web.requests) < 20:
            time.sleep(0.05)
        recorded = len(crawl.web.requests)
        server.kill()
        try:
            time.sleep(4.0)
            asked = len(crawl.web.requests)
            time.sleep(2.0)
            assert len(crawl.web.requests) == asked
            assert most // 2 <= asked - recorded <= most + under_way
        finally:
            server.start()
        worker.join()
        assert worker.exitcode == 0, crawl.log("a")
        assert len(crawl.web.requests) > asked
        assert crawl.check().wrong == []


def test_wall_clocks_a_day_off_change_nothing(tmp_path: Path, server: Server) -> None:
    """One worker is a day early, one a day late: nobody is taken for dead, and no cycle is due."""
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        crawl.web.delay_s = 0.1
        early, late = crawl.start("a", clock_s=86_400.0), crawl.start("b", clock_s=-86_400.0)
        for one in (early, late):
            one.join()
            assert one.exitcode == 0
        assert server.execute("SELECT max(token), max(deaths) FROM gp4c.shard", crawl.database) == [(1, 0)]
        found = crawl.check()
        assert found.wrong == []
        assert found.compared["cycles"] == 1
        assert crawl.start("a", clock_s=86_400.0, GP4C_CYCLE_S=3600.0).join() is None
        assert "the next one is due in" in crawl.log("a")


def test_a_host_with_most_pages_is_one_workers(tmp_path: Path, server: Server) -> None:
    """40% of all pages on one host: the others share the rest, and the cycle ends."""
    with Crawl(tmp_path, LEASE_S, server=server) as crawl:
        crawl.web.host[: 4 * len(crawl.web.host) // 10] = 1
        holder(crawl)
        found = crawl.check()
        assert found.wrong == []
        assert found.compared["acknowledged visits"] > 50
        assert set(crawl.ends) == {0}
