"""The demo with a search: queries from the web's texts, exact quality of every crawl, its picture."""

import contextlib
import csv
import io
import signal
from pathlib import Path

import numpy as np
import pytest

from example_project import demo as program
from example_project.crawls import FIRST_RANKED_DAY
from example_project.model import NEVER, Web
from example_project.searching import MEASURED, Judge, quality_table, write_contents
from scrapy_gp4c.search.queries import read_query_log
from scrapy_gp4c.store.opening import open_store
from tests.example_project.test_demo import free_port
from training.histories.contents import read_contents
from training.replaying.search import WorkloadPlan, draw

pytestmark = pytest.mark.slow
HOSTS = 2
DAYS = FIRST_RANKED_DAY + 1


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A demo of a few days and hosts, beside one other crawl: its folder and its output."""
    folder = tmp_path_factory.mktemp("searching")
    written = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(written):
        patch.setattr(program, "CRAWLS", {"age": program.CRAWLS["age"]})
        sizes = {"--days": DAYS, "--hosts": HOSTS, "--port": free_port(), "--output": folder}
        handler = signal.getsignal(signal.SIGTERM)
        try:
            arguments = [str(part) for item in sizes.items() for part in item]
            assert program.main(["--user-centric", *arguments]) == 0
        finally:
            signal.signal(signal.SIGTERM, handler)
    return folder, written.getvalue()


def test_every_crawl_has_a_quality_on_every_day(finished):
    """1 while every page is visited, below it with a budget; the table says who lost what."""
    folder, output = finished
    with (folder / "quality.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [int(row["day"]) for row in rows] == list(range(1, DAYS + 1))
    for row in rows:
        for name in (MEASURED, "age"):
            value = float(row[name])
            assert 0.5 < value <= 1.0
            assert (value == 1.0) == (int(row["day"]) < FIRST_RANKED_DAY)
    assert f"Search quality, days {FIRST_RANKED_DAY} to {DAYS}" in output
    assert "search quality 1.0000" in output
    with (folder / "days.tsv").open(newline="") as file:
        assert len(list(csv.DictReader(file, delimiter="\t"))) == 2 * DAYS


def test_one_crawl_measures_and_the_others_do_not(finished):
    """By the queries that were drawn; what its visits gained is in its store."""
    folder, _ = finished
    log = read_query_log(folder / "queries.tsv")
    assert len(log.queries) > 100
    with open_store(folder / MEASURED, readonly=True) as store:
        assert store.cycles()[-1]["gained"][0] > 0
        assert sum(float((gains["ppm"] > 0).sum()) for _, gains in store.gains_of_cycles()) > 0
    with open_store(folder / "age", readonly=True) as store:
        assert not any("gained" in record for record in store.cycles()[FIRST_RANKED_DAY - 1 :])


def test_the_picture_is_one(finished):
    """An SVG whose first panel is the quality."""
    assert "search quality" in (finished[0] / "user-centric.svg").read_text()


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """What judges copies of a web of eight days."""
    web = Web(1, 6)
    path: Path = tmp_path_factory.mktemp("contents") / "contents.jsonl"
    write_contents(path, web, 8)
    contents = read_contents(path)
    return web, Judge(web, contents, draw(contents, WorkloadPlan(60, seed=1))), contents


def test_contents_are_what_the_web_says(judge):
    """No text on day 0 or before a page's birth, none after it is gone, a new one with a new version."""
    web, _, contents = judge
    for day in range(1, 9):
        texts, versions = contents.texts_at(day), web.versions(day)
        before = web.versions(day - 1) if day > 1 else np.zeros(web.pages, int)
        for page in np.flatnonzero(web.alive(day)).tolist():
            assert texts[page].startswith("# ")
            if day > 1 and web.alive(day - 1)[page] and versions[page] == before[page]:
                assert texts[page] == contents.texts_at(day - 1)[page]
        unborn = (web.born > day) & (web.gone > day)
        assert {texts[page] for page in np.flatnonzero(unborn).tolist()} <= {""}
        gone = (web.gone <= day) & (web.gone != NEVER)
        assert {texts[page] for page in np.flatnonzero(gone).tolist()} == {None}
    assert set(contents.texts_at(0)) == {""}


def test_quality_is_1_in_sync_and_falls_with_what_is_missing(judge):
    """Old copies lose some, no copies all; copies of pages that were found gone are searched no more."""
    web, one, _ = judge
    nobody = np.zeros(web.pages, bool)
    alive = web.alive(8)
    current = np.where(alive, web.versions(8), 0)
    assert one.quality(8, current, nobody) == pytest.approx(1.0)
    old = np.where(web.alive(1), web.versions(1), 0)
    assert 0.5 < one.quality(8, old, nobody) < 1.0
    assert one.quality(8, np.zeros(web.pages, np.int32), nobody) == 0.0
    assert one.quality(8, current, np.ones(web.pages, bool)) == 0.0
    gone = web.gone <= 8
    assert one.quality(8, old, gone) >= one.quality(8, old, nobody)


def test_the_table_compares_losses():
    """Twice the loss is 200%."""
    quality = {MEASURED: np.array([1.0, 0.9, 0.8]), "age": np.array([1.0, 0.8, 0.6])}
    table = quality_table(quality, range(2, 4))
    assert [line.split()[:4] for line in table.splitlines()[3:]] == [
        [MEASURED, "0.8500", "0.8000", "100.0%"],
        ["age", "0.7000", "0.6000", "200.0%"],
    ]
