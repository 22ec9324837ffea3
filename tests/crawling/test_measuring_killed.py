"""kill -9 at any statement of the search index or write to the store: gains and index come out the same.

``GP4C_KILLS=50 python -m pytest tests -k measuring_killed`` kills so often instead of a few times.
"""

import os
import random
import shutil
import signal
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scrapy.settings import Settings as ScrapySettings

from benchmarks.simulated_crawl import crawl_store
from scrapy_gp4c.crawling import measuring
from scrapy_gp4c.fingerprint import fingerprint_of_text
from scrapy_gp4c.scoring import refresh_value
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.sqlite_files import SqliteKind
from scrapy_gp4c.store.lmdb_store.environment import Environment
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import SEARCH_INDEX as FILE
from tests.store.test_store_kill import SMALL, in_child, wait

KILLS = int(os.environ.get("GP4C_KILLS", "12"))
PAGES, CYCLES = 30, 4
WORDS = "apple birch cedar daisy elder fern grape hazel".split()  # noqa: SIM905


def said() -> list[list[str]]:
    """What all pages say in every cycle."""
    rng = np.random.default_rng(4)
    rows = [[" ".join(rng.choice(WORDS, 12)) for _ in range(PAGES)]]
    for _ in range(1, CYCLES):
        changed = rng.random(PAGES) < 0.6
        new = [" ".join(rng.choice(WORDS, rng.integers(1, 20))) for _ in range(PAGES)]
        rows.append([a if now else b for now, a, b in zip(changed, new, rows[-1], strict=True)])
    return rows


SAID = said()
PRINTS = np.array([[fingerprint_of_text(text) for text in row] for row in SAID], np.uint64)
SMALLER = SMALL._replace(commit_visits=4)


@pytest.fixture(autouse=True)
def refits_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What gains are measured by is learnt anew within the few cycles of a test."""
    monkeypatch.setattr(measuring, "REFIT_CYCLES", 2)


def crawl(path: Path, log: Path) -> None:
    crawl_settings = {
        "GP4C_QUERY_LOG": str(log),
        "GP4C_SCORE_FUNCTION": "dq_rate * t + 0.01 * t",
        "GP4C_BUDGET": 12,
    }
    settings = Settings.load(ScrapySettings({**crawl_settings, "GP4C_WARMUP_VISITS": 1}))
    keys = np.arange(1, PAGES + 1, dtype=np.uint64)
    crawl_store(path, PRINTS, settings, keys, said=SAID, sizes=SMALLER)


class Steps:
    """Counts what is written; at the step that is to be the last one, the process is killed."""

    def __init__(self, last: float) -> None:
        self.steps_left, self.taken = last, 0

    def take(self, *_: object) -> None:
        self.steps_left -= 1
        self.taken += 1
        if self.steps_left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def stepping(steps: Steps) -> None:
    """Take a step at each statement of SQLite and around each write transaction of LMDB, in this process."""
    connect, transaction = SqliteKind.connect, Environment.transaction

    def traced(*arguments: Any, **more: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **more)
        connection.set_trace_callback(steps.take)
        return connection

    def stepped(self: Environment, **options: Any) -> Any:
        if options.get("write"):
            steps.take()
        return transaction(self, **options)

    SqliteKind.connect = traced  # type: ignore[method-assign]
    Environment.transaction = stepped  # type: ignore[method-assign, assignment]


def content(path: Path) -> dict[str, object]:
    """All that was measured, and all that the index holds."""
    with Store(path) as store:
        assert store.verify() == []
        results: dict[str, object] = {
            name: b"".join(block[name].tobytes() for _, block in store.blocks())
            for name in refresh_value.COLUMNS
        }
        results |= {f"gains {cycle}": gains.tobytes() for cycle, gains in store.gains.of_cycles()}
        results["visits"] = [(cycle, sorted(rows["page"].tolist())) for cycle, rows in store.visits()]
        assert [record["gained"][0] > 0 for record in store.cycles()] == [False] + [True] * (CYCLES - 1)
    with closing(sqlite3.connect(path / FILE)) as index:
        for table in ("pages", "staged", "gains", "about", "texts"):
            results[table] = sorted(
                index.execute(
                    f"SELECT rowid, * FROM {table}" if table == "texts" else f"SELECT * FROM {table}"
                )
            )
        results["about"] = [row for row in results["about"] if row[0] != "store_id"]  # type: ignore[attr-defined]
        assert results["staged"] == []
        assert index.execute("INSERT INTO texts (texts) VALUES ('integrity-check')") is not None
    return results


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of queries."""
    path = tmp_path_factory.mktemp("log") / "queries.tsv"
    path.write_text("apple\t5\nbirch cedar\t3\nfern\t2\ngrape hazel apple\t1\n")
    return path


@pytest.mark.slow
def test_a_crawl_killed_anywhere_measures_what_it_would_have(tmp_path: Path, log: Path) -> None:
    """While staging, in the index's transaction, before the fold and in it, again and again or once."""
    undisturbed = Steps(np.inf)
    contents = tmp_path / "told"

    def complete_crawl() -> None:
        stepping(undisturbed)
        crawl(tmp_path / "whole", log)
        contents.write_text(str(undisturbed.taken))

    assert wait(in_child(complete_crawl)) == 0
    expected, steps = content(tmp_path / "whole"), int(contents.read_text())
    assert steps > 300

    def work(path: Path, last: int) -> None:
        stepping(Steps(last))
        crawl(path, log)

    moments = random.Random(11)
    for number in range(KILLS):
        path = tmp_path / f"killed-{number}"
        last = int(steps * (number + moments.random()) / KILLS)
        assert wait(in_child(partial(work, path, last))) == -signal.SIGKILL
        assert wait(in_child(partial(work, path, 10**9))) == 0
        assert content(path) == expected, last
        shutil.rmtree(path)


def test_a_crawl_killed_again_and_again_gets_there_too(tmp_path: Path, log: Path) -> None:
    """Each run a little further, or not at all."""
    crawl(tmp_path / "whole", log)
    moments, kills, path = random.Random(5), 0, tmp_path / "killed"

    def work(last: int) -> None:
        stepping(Steps(last))
        crawl(path, log)

    while (code := wait(in_child(partial(work, moments.choice((20, 40, 80, 250)))))) != 0:
        assert code == -signal.SIGKILL
        kills += 1
    assert kills > 3
    assert content(path) == content(tmp_path / "whole")
