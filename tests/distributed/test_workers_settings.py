"""Crawls by workers as they may be set up: few rights, copies elsewhere, PgBouncer; no password is told."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.commands import workers
from scrapy_gp4c.distributed import administration
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import USUAL, open_store
from tests.commands.test_commands import in_process, make_project
from tests.distributed.test_workers import Crawl, visits
from tests.distributed.test_workers import crawl as crawl
from tests.distributed.test_workers import web as web
from tests.support.postgres import (
    NEEDS_PGBOUNCER,
    NEEDS_POSTGRES,
    PASSWORD,
    WORKER,
    WORKER_PASSWORD,
    Server,
    pgbouncer,
)
from tests.support.schemas import checked
from tests.support.sources import ROOT

pytestmark = NEEDS_POSTGRES
SECRETS = {
    form
    for secret in (PASSWORD, WORKER_PASSWORD)
    for form in (secret, quote(secret), quote(secret, ""), quote_plus(secret))
}


def documented_grants() -> list[str]:
    """What docs/distributed.md lets the owner grant to the role of workers."""
    text = (ROOT / "docs" / "distributed.md").read_text("utf-8")
    block = text.partition("## Rights")[2]
    return [
        f"{statement.strip()}".replace('"worker"', WORKER)
        for statement in re.findall(r"GRANT [^;]*", block)
        if "TO" in statement
    ]


def cycles(crawl: Crawl, count: int, *names: str, **given: Any) -> None:
    """Crawl so many cycles, one right after the other."""
    for day in range(1, count + 1):
        crawl.web.day = day
        started = [crawl.start(name, GP4C_CYCLE_S=0.5, LOG_LEVEL="DEBUG", **given) for name in names]
        for one in started:
            one.join()
        assert {one.exitcode for one in started} == {0}, [crawl.log(name) for name in names]
        time.sleep(0.5)


def no_secrets(*texts: str) -> None:
    """No password is in any of these, however it is written."""
    assert not [(secret, text) for secret in SECRETS for text in texts if secret in text]


def test_few_rights_and_copies_elsewhere(
    crawl: Crawl,
    server: Server,
    database: str,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The documented GRANTs are enough for whole cycles, the copies are files; where a right is taken away,
    the run ends with one line, and what was recorded stays."""
    dsn = server.worker_role(database, *documented_grants())
    crawl.dsn = f"postgresql://{WORKER}:{quote(WORKER_PASSWORD, '')}@127.0.0.1:{server.port}/{database}"
    objects = crawl.folder / "objects"
    given = {"GP4C_OBJECTS": objects.as_uri()}
    cycles(crawl, 2, "a", "b", **given)
    assert (
        crawl.ledger("SELECT count(*) FROM gp4c.cycle WHERE closed IS NOT NULL AND record IS NOT NULL") == 2
    )
    assert crawl.ledger("SELECT count(*) FROM gp4c.blob") == 0
    assert sum(path.is_file() for path in objects.rglob("*")) >= 4
    settings = Settings.load(ScrapySettings({"GP4C_LEDGER": dsn, **given}))
    ledger = administration.ledger_of(settings)
    administration.collect(ledger, settings, crawl.folder / "all", USUAL)
    ledger.close()
    with open_store(crawl.folder / "all", readonly=True) as store:
        assert store.verify() == []
        assert len(visits(store, 2)) > 20
    project = make_project(project_directory, crawl.folder / "x", monkeypatch, {"GP4C_LEDGER": crawl.dsn})
    in_process(project, workers, "status")
    in_process(project, workers, "status", "--json")
    shown = capsys.readouterr().out
    checked("workers", shown[shown.index("{") :])
    recorded = crawl.ledger("SELECT count(*) FROM gp4c.log")
    server.execute(f"REVOKE INSERT ON gp4c.log FROM {WORKER}", database)
    crawl.web.day = 3
    worker = crawl.start("c", GP4C_CYCLE_S=0.5, LOG_LEVEL="DEBUG", **given)
    worker.join()
    log = crawl.log("c")
    told = [line for line in log.splitlines() if "permission denied for table log" in line]
    assert told, log
    assert "let the ledger's owner run the GRANTs of docs/distributed.md" in told[0]
    assert "Traceback" not in log
    assert crawl.ledger("SELECT count(*) FROM gp4c.log") == recorded
    no_secrets(shown, *(crawl.log(name) for name in ("a", "b", "c")))


@NEEDS_PGBOUNCER
def test_a_crawl_behind_pgbouncer(crawl: Crawl, server: Server, database: str) -> None:
    """In transaction mode, by more workers than there are connections to the server: whole cycles."""
    with pgbouncer(server) as port:
        crawl.dsn = server.dsn(database, port=port)
        cycles(crawl, 2, "a", "b", "c")
        with open_store(crawl.collect(), readonly=True) as store:
            assert store.verify() == []
            assert store.last_cycle == 2
            first = visits(store, 1)
            assert {outcome for _, outcome, _ in first.values()} == {"first"}
            asked = [page for day, page in crawl.web.log if day == 1]
            assert len(asked) == len(set(asked)) == len(first)
    no_secrets(*(crawl.log(name) for name in ("a", "b", "c")))
