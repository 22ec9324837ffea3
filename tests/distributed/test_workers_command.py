"""``scrapy gp4c workers`` as it is typed: from an empty database to a collected store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_gp4c.store.opening import open_store
from tests.support.postgres import NEEDS_POSTGRES, PASSWORD, Server
from tests.support.schemas import checked
from tests.support.sources import ROOT
from tests.support.workers import TreeWeb

pytestmark = NEEDS_POSTGRES


class Project:
    """A project with one spider, of a web on loopback."""

    def __init__(self, folder: Path, web: TreeWeb, dsn: str) -> None:
        self.folder = folder
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
        (folder / "settings.py").write_text(
            "ADDONS = {'scrapy_gp4c.Addon': 500}\nSPIDER_MODULES = ['spiders']\n"
            f"GP4C_LEDGER = {dsn!r}\nGP4C_LEASE_S = 5\nGP4C_CYCLE_S = 3600\nTELNETCONSOLE_ENABLED = False\n"
        )
        (folder / "spiders.py").write_text(
            "from tests.support.workers import TreeSpider\n\n\n"
            f"class Tree(TreeSpider):\n    name = 'tree'\n    start_urls = [{web.url(0)!r}]\n"
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "scrapy", "gp4c", "workers", "tree", *words],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run a command; exit code, output and errors."""
        process = self.start(*words)
        out, errors = process.communicate()
        assert PASSWORD not in out + errors
        return process.returncode, out, errors


@pytest.fixture
def project(tmp_path: Path, server: Server, database: str) -> Iterator[Project]:
    """A project and its empty database."""
    web = TreeWeb(pages=20)
    yield Project(tmp_path, web, server.dsn(database))
    web.close()


def test_from_an_empty_database_to_a_collected_store(project: Project) -> None:
    """Create, status, join until the cycle is over, drain, collect; each says what went wrong, and no
    more."""
    code, _, errors = project.run("status")
    assert (code, errors.count("\n")) == (1, 1)
    code, out, errors = project.run("create", "--shards", "3")
    assert (code, errors) == (0, "")
    assert "with 3 shards" in out
    worker = project.start("join", "-s", "GP4C_WORKER=w1", "-s", f"GP4C_STORE={project.folder / 'w1'}")
    while (
        not (found := checked("workers", project.run("status", "--json")[1]))["complete"]
        or not found["cycle"]
    ):
        time.sleep(0.5)
    assert found["cycle"] == 1
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith("w1: cycle 1 is closed")  # before that the crawl is ending
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate()
    assert worker.returncode == 0, errors
    assert project.run("drain", "w9")[2].count("knows no worker 'w9'") == 1
    assert project.run("collect")[0] == 1
    code, out, errors = project.run("collect", "all")
    assert (code, errors) == (0, "")
    assert "as cycle 1 left them" in out
    with open_store(project.folder / "all", readonly=True) as store:
        assert store.verify() == []
        assert store.last_cycle == 1
        assert store.pages > 5


def test_a_worker_is_drained_between_cycles(project: Project) -> None:
    """`status` lists who waits, `drain` ends its join; it may join again, and is gone when it ends."""
    assert project.run("create", "--shards", "2")[0] == 0
    words = ("join", "-s", "GP4C_WORKER=w1", "-s", f"GP4C_STORE={project.folder / 'w1'}")
    worker = project.start(*words)
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith("w1: cycle 1 is closed")
    while not (found := checked("workers", project.run("status", "--json")[1]))["workers"]:
        time.sleep(0.2)
    (row,) = found["workers"]
    assert (row["name"], row["draining"], row["shards"]) == ("w1", False, [])
    assert project.run("drain", "w1") == (0, "", "")
    _, errors = worker.communicate()
    assert (worker.returncode, errors) == (0, "w1 is drained: it joins no more\n")
    assert checked("workers", project.run("status", "--json")[1])["workers"] == []
    again = project.start(*words)
    while not (found := checked("workers", project.run("status", "--json")[1]))["workers"]:
        time.sleep(0.2)
    assert not found["workers"][0]["draining"]
    again.send_signal(signal.SIGTERM)
    again.communicate()
    assert again.returncode == 0
    assert checked("workers", project.run("status", "--json")[1])["workers"] == []


def test_a_watch_ends_by_ctrl_c(project: Project) -> None:
    """Without a word, and with the exit code of the last status."""
    assert project.run("create", "--shards", "2")[0] == 0
    watch = project.start("status", "--watch")
    assert watch.stdout is not None
    told = [watch.stdout.readline() for _ in range(5)]
    assert sum(line.startswith("ledger ") for line in told) == 2, told
    watch.send_signal(signal.SIGINT)
    _, errors = watch.communicate()
    assert (watch.returncode, errors) == (0, "")
