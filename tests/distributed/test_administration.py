"""What is done to a ledger from outside: a store that is put into it and collected is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.commands import crawl_lines, workers
from scrapy_gp4c.distributed import administration, leases, mail
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.errors import LedgerError
from scrapy_gp4c.distributed.log import Flush, Progress, flush
from scrapy_gp4c.errors import SettingsError, StoreError
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.history_text import lines
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import USUAL, forget, open_store
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import NewVisit
from scrapy_gp4c.store.shards.placing import shard_of_url
from tests.commands.test_commands import in_process, make_project
from tests.support.by_key import content
from tests.support.ledgers import joined, killed, opened, taken
from tests.support.postgres import NEEDS_POSTGRES
from tests.support.schemas import checked
from tests.support.sources import ROOT
from training.histories.from_store import read_store

pytestmark = NEEDS_POSTGRES
PAGES, CYCLES, HOSTS = 240, 20, 12
SEARCH = ("--population", "20", "--generations", "3", "--seeds", "1", "--budget", "0.1", "--jobs", "1")


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a crawl on one machine left: half of the pages are the panel's, others are visited at times."""
    path, random = tmp_path_factory.mktemp("crawled") / "store", np.random.default_rng(3)
    often = random.random(PAGES) ** 3
    with Store(path) as store:
        keys = random.integers(1, 2**63, PAGES).tolist()
        store.add_pages(
            (key, {"url": f"http://h{page % HOSTS}.org/{page % 5}/{page}"}) for page, key in enumerate(keys)
        )
        for cycle in range(1, CYCLES + 1):
            store.begin_cycle({"started": 1000.0 * cycle, "score_function": "t"})
            for page in random.permutation(PAGES).tolist():
                if cycle == 1 or page % 2 or random.random() < 0.3:
                    outcome = ("unchanged", "changed")[int(random.random() < often[page])]
                    kind = "new" if cycle == 1 else ("ranked", "panel")[page % 2]
                    now = 1000.0 * cycle + page
                    store.record(NewVisit(page, "first" if cycle == 1 else outcome, now, kind, cycle * page))
                    store.note(page, "found_by", 1 + page // 3)
            store.finish_cycle({"finished": 1000.0 * cycle + 900, "visited": len(store.open_visits())})
        assert store.verify() == []
    return path


def settings_of(dsn: str, **more: Any) -> Settings:
    """Settings of a spider whose ledger this is."""
    return Settings.load(ScrapySettings({"GP4C_LEDGER": dsn, **more}))


def through(dsn: str, store: Path | None, place: Path, panel: bool = False, **more: Any) -> Path:
    """Put a store into the ledger, and collect it; returns where it is."""
    settings = settings_of(dsn, **more)
    if store is not None:
        administration.create(settings, 4, store, USUAL)
    ledger = administration.ledger_of(settings)
    try:
        administration.collect(ledger, settings, place, USUAL, panel=panel)
    finally:
        ledger.close()
    return place


def learned(store: Path, output: Path) -> dict[str, Any]:
    """The score file that is learned of a store, but for when and where."""
    command = [sys.executable, "-m", "training.learn", str(store), *SEARCH, "-o", str(output)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=os.environ)
    found: dict[str, Any] = json.loads(output.read_text())
    found.pop("created")
    assert found["history"].pop("source") == str(store)
    return found


def told(store: PageStore) -> dict[str, Any]:
    """All that a store has but its path."""
    found = content(store)
    assert found["pages"]
    return found


def test_a_store_that_went_through_a_ledger_is_the_same(crawled: Path, dsn: str, tmp_path: Path) -> None:
    """Export line by line, all columns by key, and the score file that is learned of it."""
    collected = through(dsn, crawled, tmp_path / "collected")
    with open_store(crawled, readonly=True) as one, open_store(collected, readonly=True) as many:
        assert many.verify() == []
        assert list(lines(many)) == list(lines(one))
        assert told(many) == told(one)
    assert learned(collected, tmp_path / "many.json") == learned(crawled, tmp_path / "one.json")


def test_the_panel_is_collected_by_itself(crawled: Path, dsn: str, tmp_path: Path) -> None:
    """Its pages with all their visits, and the history that is read of the whole store."""
    panel = through(dsn, crawled, tmp_path / "panel", panel=True)
    with open_store(crawled, readonly=True) as one, open_store(panel, readonly=True) as few:
        assert few.verify() == []
        every, kept = told(one)["pages"], told(few)["pages"]
        assert len(kept) == PAGES // 2
        for key, row in kept.items():
            assert {**row, "finder": 0} == {**every[key], "finder": 0}
    histories = [read_store(path) for path in (panel, crawled)]
    assert histories[0].sha256 == histories[1].sha256
    assert list(histories[0].page_names or ()) == list(histories[1].page_names or ())
    with pytest.raises(StoreError, match="to be empty or not there"):
        through(dsn, None, panel, panel=True)


def test_there_may_be_no_panel(crawled: Path, dsn: str, tmp_path: Path) -> None:
    """Then nothing is left behind, and one error says what is missing."""
    without = tmp_path / "without"
    with Store(without) as store:
        store.add_pages([(1, {"url": "http://a.org/"})])
        store.begin_cycle({"started": 1.0})
        store.record(NewVisit(0, "first", 1.0, "new", 5))
        store.finish_cycle({"finished": 2.0})
    with pytest.raises(LedgerError, match="Set GP4C_PANEL and crawl, or leave out --panel"):
        through(dsn, without, tmp_path / "collected", panel=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["without"]


def test_copies_may_lie_behind_a_url(crawled: Path, dsn: str, tmp_path: Path) -> None:
    """`GP4C_OBJECTS`: nothing of them is in the database then; a missing one is named."""
    objects = tmp_path / "objects"
    collected = through(dsn, crawled, tmp_path / "collected", GP4C_OBJECTS=f"file://{objects}")
    with open_store(crawled, readonly=True) as one, open_store(collected, readonly=True) as many:
        assert told(many) == told(one)
    ledger = administration.ledger_of(settings_of(dsn))
    assert ledger.call(lambda tx: tx.execute("SELECT count(*) FROM gp4c.blob").fetchone()) == (0,)
    ledger.close()
    files = [path for path in objects.rglob("*") if path.is_file()]
    assert len(files) == 4
    files[0].unlink()
    with pytest.raises(StoreError, match="snapshot"):
        through(dsn, None, tmp_path / "again", GP4C_OBJECTS=f"file://{objects}")
    assert not (tmp_path / "again").exists()


def test_several_stores_begin_one_crawl(
    crawled: Path,
    dsn: str,
    tmp_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`create --from` two stores: `collect` has the pages of both; where both have a host: an error."""
    halves = []
    for half in range(2):
        halves.append(tmp_path / f"half{half}")
        with open_store(crawled, readonly=True) as store:
            store_urls = [store.request(page)["url"] for page in range(PAGES)]
        halves[-1].mkdir()
        (halves[-1] / "data.mdb").write_bytes((crawled / "data.mdb").read_bytes())
        other = np.array([shard_of_url(url, 2) != half for url in store_urls])
        assert forget(halves[-1], USUAL, lambda store, other=other: other) > 0
    project = make_project(project_directory, tmp_path / "own", monkeypatch, {"GP4C_LEDGER": dsn})
    with pytest.raises(StoreError, match="expected stores of different hosts"):
        in_process(project, workers, "create", "--shards", "4", "--from", halves[0], crawled)
    in_process(project, workers, "create", "--shards", "4", "--from", *halves)
    in_process(project, workers, "collect", tmp_path / "both")
    assert f"{PAGES} pages with {CYCLES} cycles, as cycle {CYCLES} left" in capsys.readouterr().out
    with open_store(crawled, readonly=True) as one, open_store(tmp_path / "both", readonly=True) as both:
        assert both.verify() == []
        every, found = told(one)["pages"], told(both)["pages"]
        assert found.keys() == every.keys()
        for key, row in found.items():
            assert {**row, "finder": 0} == {**every[key], "finder": 0}


def test_a_store_comes_into_an_empty_ledger_alone(crawled: Path, dsn: str, tmp_path: Path) -> None:
    """Where there are copies or cycles already, nothing of them is touched."""
    through(dsn, crawled, tmp_path / "collected")
    with pytest.raises(LedgerError, match="has pages already"):
        administration.create(settings_of(dsn), 4, crawled, USUAL)


def test_what_is_not_there_cannot_be_collected(dsn: str, tmp_path: Path) -> None:
    """No copies yet: one error, and no directory."""
    with pytest.raises(LedgerError, match=r"the objects of 4 shards.*found 0\."):
        through(dsn, None, tmp_path / "collected")
    assert not (tmp_path / "collected").exists()
    with pytest.raises(SettingsError, match="expected GP4C_LEDGER"):
        administration.ledger_of(Settings.load(ScrapySettings({})))


def test_the_status_says_whom_a_cycle_waits_for(dsn: str, connect: Callable[..., Connection]) -> None:
    """Shards that are not done, by their holders; letters, by the holders of who they are for; and what is
    wrong."""
    ledger = connect()
    one, other = joined(ledger, "one"), joined(ledger, "other")
    cycle = opened(ledger, one).cycle
    leases_of = [taken(ledger, who, shard) for shard, who in enumerate((one, one, other))]
    letters = [mail.Letter(2, shard, b"x") for shard in (0, 1, 1)]
    what = Flush(0, cycle, {2: leases_of[2].token}, letters=tuple(letters), progress={2: Progress(70, True)})
    ledger.single(flush, other, what)
    settings = settings_of(dsn)
    found = administration.status(ledger, settings)
    assert (found.cycle, found.open, found.pages, found.letters) == (1, True, 70, 3)
    assert (found.waits_for, found.homeless) == ([0, 1, 3], [3])
    assert [(w.name, w.shards, w.waits_for, w.letters) for w in found.workers] == [
        ("one", [0, 1], [0, 1], 3), ("other", [2], [], 0),
    ]  # fmt: skip
    assert found.problem == "cycle 1 is open, and nobody alive holds 1 shards"
    assert "waits for 3 of 4 shards of one (2), nobody alive (1), 3 letters" in crawl_lines.cycle_line(found)
    assert administration.is_wanted(found)
    taken(ledger, other, 3)
    assert not administration.is_wanted(administration.status(ledger, settings))
    killed(ledger, one)
    found = administration.status(ledger, settings)
    assert found.homeless == [0, 1]
    assert found.workers[0].left_s < 0
    assert administration.is_wanted(found)


def test_a_parked_shard_is_a_problem_and_wanted_by_nobody(
    dsn: str,
    connect: Callable[..., Connection],
    project_directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command says so by its exit code, and prints what its schema says all the same."""
    ledger = connect()
    who = joined(ledger, "one")
    opened(ledger, who)
    for shard in range(1, 4):
        taken(ledger, who, shard)
    ledger.call(
        lambda tx: tx.execute(
            "UPDATE gp4c.shard SET deaths = %s WHERE shard = 0", (leases.PARKED_AFTER,)
        )
    )  # fmt: skip
    found = administration.status(ledger, settings_of(dsn))
    assert (found.parked, administration.is_wanted(found)) == ([0], False)
    assert found.problem == "shards are parked, as their holders died: 0"
    project = make_project(project_directory, tmp_path / "own", monkeypatch, {"GP4C_LEDGER": dsn})
    with pytest.raises(workers.NotHealthyError, match="shards are parked"):
        in_process(project, workers, "status", "--json")
    assert checked("workers", capsys.readouterr().out)["parked"] == [0]
    in_process(project, workers, "unpark", "0")
    with pytest.raises(SettingsError, match="expected --watch or --json"):
        in_process(project, workers, "status", "--json", "--watch")
