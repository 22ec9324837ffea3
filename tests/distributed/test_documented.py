"""docs/distributed.md word by word: two workers in two directories, from nothing to a drained one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from scrapy_gp4c.store.opening import open_store
from tests.support.postgres import NEEDS_POSTGRES, PASSWORD, Server
from tests.support.schemas import checked
from tests.support.sources import ROOT
from tests.support.workers import TreeWeb

pytestmark = NEEDS_POSTGRES
SECTION: Final = "## From two empty machines to a drained one"
EXAMPLE: Final = "postgresql://crawl@db.example/crawl?sslmode=verify-full"
SPIDER: Final = """from tests.support.workers import TreeSpider


class News(TreeSpider):
    name = "news"
    start_urls = [{url!r}]
"""


def section() -> str:
    """What the document says of setting up."""
    text = (ROOT / "docs" / "distributed.md").read_text("utf-8").partition(SECTION)[2]
    return text.partition("\n## ")[0]


def command(words: str) -> list[str]:
    """The command of the document that begins with these words of ``scrapy gp4c workers news``."""
    found = re.findall(r"^    (scrapy gp4c workers news .*)$", section(), re.MULTILINE)
    (line,) = (one for one in found if re.sub(r" \[.*?\]", "", one).endswith(f"news {words}"))
    return shlex.split(re.sub(r" \[.*?\]", "", line))


class Machine:
    """A directory with a copy of the project."""

    def __init__(self, folder: Path, web: TreeWeb, dsn: str) -> None:
        """Make the project, with the document's settings."""
        folder.mkdir()
        (settings,) = re.findall(r"```python\n(.*?)```", section(), re.DOTALL)
        assert EXAMPLE in settings
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
        (folder / "settings.py").write_text(
            "ADDONS = {'scrapy_gp4c.Addon': 500}\nSPIDER_MODULES = ['spiders']\n"
            + settings.replace(EXAMPLE, dsn)
            + "TELNETCONSOLE_ENABLED = False\nDOWNLOAD_DELAY = 0.2\n"
        )
        (folder / "spiders.py").write_text(SPIDER.format(url=web.url(0)))
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, words: list[str]) -> subprocess.Popen[str]:
        """Start a command; the password is where the document says that libpq looks."""
        process = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=self.folder, text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}", "PGPASSWORD": PASSWORD},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    def stop(self) -> None:
        """End what a failed test has left: a `join` ends its crawl, too."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
                process.communicate()

    def run(self, words: list[str]) -> str:
        """Run a command that ends well; returns what it prints."""
        process = self.start(words)
        out, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
        return out


@pytest.fixture
def machines(tmp_path: Path, server: Server, database: str) -> Iterator[list[Machine]]:
    """Two of them, an empty database, and a web."""
    web = TreeWeb()
    dsn = f"postgresql://owner@127.0.0.1:{server.port}/{database}"
    made = [Machine(tmp_path / name, web, dsn) for name in ("first", "second")]
    yield made
    for machine in made:
        machine.stop()
    web.close()


def test_from_two_empty_machines_to_a_drained_one(machines: list[Machine]) -> None:
    """Each command as it stands there: create, join on both, status, drain one, collect."""
    first, second = machines
    assert "with 64 shards" in first.run(command("create --shards 64"))
    names = ("worker-1", "worker-2")
    joins = [
        one.start([*command("join"), "-s", f"GP4C_WORKER={name}"])
        for one, name in zip(machines, names, strict=True)
    ]

    def status() -> Any:
        with second.start([*command("status"), "--json"]) as process:
            return checked("workers", process.communicate()[0])

    def holds(found: Any) -> dict[str, int]:
        return {one["name"]: len(one["shards"]) for one in found["workers"]}

    while sorted(holds(found := status())) != list(names) or not (
        found["open"] and all(holds(found).values())
    ):
        assert all(one.poll() is None for one in joins)
        assert not found["complete"] or not found["cycle"], "it is to be drained in the cycle"
        time.sleep(0.2)
    assert sum(holds(found).values()) == 64
    second.run(command("drain worker-2"))
    _, errors = joins[1].communicate()
    assert (joins[1].returncode, errors) == (0, "worker-2 is drained: it joins no more\n")
    while not (found := status())["complete"]:
        time.sleep(0.2)
    assert found["cycle"] == 1
    assert holds(found).get("worker-2", 0) == 0
    assert joins[0].stdout is not None
    while not (line := joins[0].stdout.readline()).startswith("worker-1: cycle 1 is closed"):
        assert line.startswith("worker-1: cycle 1 is open"), "a run that ended to take shards over"
    joins[0].terminate()
    joins[0].communicate()
    assert joins[0].returncode == 0
    assert "cycle 1 is closed; the next is due in" in second.run(command("status"))
    second.run(command("collect all-pages"))
    with open_store(second.folder / "all-pages", readonly=True) as store:
        assert store.verify() == []
        ((_, visits),) = store.visits(1, 1)
        assert len(visits) == store.pages > 20
