"""A crawl with a log of queries measures what its visits gain searches, as replays of contents do."""

import dataclasses
import json
import os
import random
import re
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scrapy.settings import Settings as ScrapySettings

from benchmarks.simulated_crawl import crawl_store
from scrapy_gp4c.crawling import measuring
from scrapy_gp4c.errors import SearchIndexError
from scrapy_gp4c.fingerprint import fingerprint_of_text
from scrapy_gp4c.fingerprint.text import html_content
from scrapy_gp4c.page_state.outcomes import OUTCOMES
from scrapy_gp4c.scoring import refresh_value
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.search.index import SearchIndex
from scrapy_gp4c.search.queries import read_query_log
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.sqlite_files import SqliteKind
from scrapy_gp4c.store.lmdb_store.environment import Environment
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import SEARCH_INDEX as FILE
from tests.store.test_store_kill import SMALL, in_child, wait
from tests.support import live_replay
from tests.support.loopback import Pages, Site, crawl, html, stats
from training import learn
from training.histories.contents import read_contents
from training.replaying.refresh_value import QualityMeasure, with_refresh_values

PAGES, CYCLES = 24, 6
WORDS = [
    "apple",
    "birch",
    "cedar",
    "daisy",
    "elder",
    "fern",
    "grape",
    "hazel",
    "iris",
    "kale",
    "lemon",
    "maple",
]


def texts(seed: int = 3) -> list[list[str | None]]:
    """What every page says in every cycle; one goes in the middle, two are alike."""
    rng = np.random.default_rng(seed)
    said: list[list[str | None]] = [[" ".join(rng.choice(WORDS, 30)) for _ in range(PAGES)]]
    for cycle in range(1, CYCLES):
        changed = rng.random(PAGES) < np.linspace(0, 0.9, PAGES)
        said.append([
            " ".join(rng.choice(WORDS, rng.integers(3, 60))) if now and old is not None else old
            for now, old in zip(changed, said[-1], strict=True)
        ])  # fmt: skip
        if cycle >= 3:
            said[cycle][7] = None
    return said


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of queries of one to three words."""
    rng = np.random.default_rng(5)
    queries = {" ".join(rng.choice(WORDS, rng.integers(1, 4))): int(rng.integers(1, 90)) for _ in range(15)}
    path = tmp_path / "queries.tsv"
    path.write_text("".join(f"{query}\t{count}\n" for query, count in queries.items()) + "???\t4\n")
    return path


def serve(site: Site, said: list[str | None]) -> None:
    """Let the site show what its pages say in a cycle."""
    site.pages = {f"/{page}": html(text) for page, text in enumerate(said) if text is not None}


def settings_of(log: Path, **arguments: Any) -> dict[str, Any]:
    """Those of a crawl that measures; a page is gone at once."""
    usual = {"GP4C_SCORE_FUNCTION": "dq_rate * t + 0.001 * t", "GP4C_BUDGET": 10, "GP4C_GONE_AFTER": 1}
    return {**usual, "GP4C_WARMUP_VISITS": 1, "GP4C_DISCOVERY": 0.0, "GP4C_QUERY_LOG": str(log), **arguments}


async def crawled(
    site: Site, store: Path, said: list[list[str | None]], settings: dict[str, Any]
) -> list[Any]:
    """Crawl cycle after cycle; returns the finished crawlers."""
    urls = [site.url(f"/{page}") for page in range(PAGES)]
    crawlers = []
    for row in said:
        serve(site, row)
        crawlers.append(await crawl(Pages, store, settings, urls=urls))
    return crawlers


def contents(path: Path, said: list[list[str | None]]) -> Path:
    """The same web as a file of contents."""
    lines = []
    for page in range(PAGES):
        shown = [None if row[page] is None else html_content(html(row[page])).text for row in said]  # type: ignore[arg-type]
        versions = {str(c): text for c, text in enumerate(shown) if not c or text != shown[c - 1]}
        lines.append(json.dumps({"site": "h", "page": f"{page}", "versions": versions}))
    path.write_text("\n".join(lines) + "\n")
    return path


def visited(store: Store) -> Iterator[tuple[int, int, str]]:
    """Cycle, number in the URL and outcome of every visit."""
    numbers = [int(request["url"].rpartition("/")[2]) for request in store.requests(range(store.pages))]
    for cycle, visits in store.visits():
        for page, outcome in zip(visits["page"].tolist(), visits["outcome"].tolist(), strict=True):
            yield cycle, numbers[page], OUTCOMES[outcome]


def gained(store: Store) -> dict[tuple[int, int], float]:
    """Cycle and number in the URL -> what the visit gained."""
    numbers = [int(request["url"].rpartition("/")[2]) for request in store.requests(range(store.pages))]
    return {
        (cycle, numbers[page]): ppm
        for cycle, gains in store.gains_of_cycles()
        for page, _, ppm in gains.tolist()
    }


@pytest.mark.parametrize("scoring", ["tfidf", "bm25"])
async def test_live_cycles_record_what_the_offline_estimator_says(
    scoring: str,
    site: Site,
    store_path: Path,
    tmp_path: Path,
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every measured visit has the gain of the two texts that a replay looks up, bit for bit."""
    said = texts()
    monkeypatch.setattr(measuring, "SCORING", scoring)
    settings = settings_of(log)
    crawlers = await crawled(site, store_path, said, settings)
    history = read_contents(contents(tmp_path / "contents.jsonl", said))
    impact = with_refresh_values(history, QualityMeasure(read_query_log(log), scoring)).impact
    assert impact is not None
    held = np.zeros(PAGES, np.int64)
    expected: dict[tuple[int, int], float] = {}
    with Store(store_path) as store:
        assert store.verify() == []
        for cycle, page, outcome in visited(store):
            version = int(impact.version[cycle - 1, page])
            if outcome in ("unchanged", "changed", "gone"):
                row = np.array([page])
                expected[cycle, page] = float(impact.between(held[row], np.array([version]), row)[0])
            held[page] = version
        assert gained(store) == expected
        assert sum(ppm > 0 for ppm in expected.values()) > 20
        record = store.cycles()[-1]
        assert record["gained"][0] == sum(cycle == CYCLES for cycle, _ in expected)
    counts = stats(crawlers[-1])
    assert counts["gained_ppm"] == pytest.approx(sum(ppm for (c, _), ppm in expected.items() if c == CYCLES))


async def test_without_a_log_there_is_neither_file_nor_column(site: Site, store_path: Path) -> None:
    """Nothing is measured and nothing is written."""
    await crawled(site, store_path, texts()[:2], {})
    with Store(store_path) as store:
        assert store.gains_log() is None
        assert "gained" not in store.cycles()[-1]
    assert [path.name for path in store_path.iterdir() if path.name.startswith(FILE)] == []


async def test_a_deleted_index_refills_and_costs_no_history(site: Site, store_path: Path, log: Path) -> None:
    """Unchanged pages gain nothing, changed ones cannot be measured once; then all is as before."""
    said = texts()
    settings = settings_of(log, GP4C_BUDGET=PAGES, GP4C_SKIP_UNCHANGED=True)
    await crawled(site, store_path, said[:3], settings)
    with Store(store_path) as store:
        before = gained(store)
    (store_path / FILE).unlink()
    await crawled(site, store_path, [said[3]], settings)
    await crawled(site, store_path, [said[4]], settings)
    with Store(store_path) as store:
        after = gained(store)
        outcome = {(cycle, page): name for cycle, page, name in visited(store)}
    assert before.items() <= after.items()
    assert {after.get((4, page)) for page in range(PAGES) if outcome[4, page] == "unchanged"} == {0.0}
    assert {after.get((4, page)) for page in range(PAGES) if outcome[4, page] == "changed"} == {None}
    assert all((5, page) in after for page in range(PAGES) if outcome.get((5, page)) == "changed")


async def test_another_log_counts_anew_without_fetching(
    site: Site, store_path: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gains are those of a crawl that has had it from the beginning; columns begin at 0."""
    said, other = texts(), tmp_path / "other.tsv"
    other.write_text("hazel\t3\niris fern\t1\nmaple\t5\n")
    settings = settings_of(log, GP4C_BUDGET=PAGES)
    monkeypatch.setattr(measuring, "REFIT_CYCLES", 1)
    await crawled(site, store_path, said[:3], settings)
    await crawled(site, store_path, said[3:4], {**settings, "GP4C_QUERY_LOG": str(other)})
    with Store(store_path) as store:
        assert (store.gains_log() or ("", 0))[1] == 4
        switched = {key: ppm for key, ppm in gained(store).items() if key[0] == 4}
        state = dict(store.blocks())[0]
        assert set(state["dq_n"].tolist()) <= {0, 1}
        assert store.verify() == []
    complete = tmp_path / "whole"
    await crawled(site, complete, said[:4], {**settings, "GP4C_QUERY_LOG": str(other)})
    with Store(complete) as store:
        assert switched == {key: ppm for key, ppm in gained(store).items() if key[0] == 4}
    assert any(switched.values())


async def test_a_page_that_comes_back_gains_what_it_brings(site: Site, store_path: Path, log: Path) -> None:
    """It left the index when it was gone; its visit gains what the entering text is worth."""
    said = texts()
    settings = settings_of(log, GP4C_BUDGET=PAGES, GP4C_GONE_AFTER=2)
    for row in said:
        row[3] = "maple lemon kale"
    said[1][3] = said[2][3] = None
    await crawled(site, store_path, said[:3], settings)
    with Store(store_path) as store:
        out = gained(store)
        assert (2, 3) not in out
        assert out[3, 3] >= 0.0
    await crawled(site, store_path, said[3:], {**settings, "GP4C_GONE_AFTER": 9})
    with Store(store_path) as store:
        back = [(cycle, name) for cycle, page, name in visited(store) if page == 3 and cycle > 3]
        assert back[0][1] == "unchanged"
        assert gained(store)[back[0][0], 3] > 0.0
        assert [gained(store)[cycle, 3] for cycle, _ in back[1:]] == [0.0] * len(back[1:])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the query log .*No such file"),
        (b"", r"has no query with a letter or digit \(0 dropped\)"),
        (b"?!\t3\n", r"has no query with a letter or digit \(1 dropped\)"),
        (b"caf\xe9\t3\n", "is no UTF-8"),
        (b"red 3\n", "line 1: .*no tab in"),
        (b"red\t3\nblue\t-1\n", "line 2: .*no count above 0, '-1'"),
    ],
)
async def test_a_log_that_cannot_be_used_ends_the_crawl_before_it_begins(
    content: bytes | None,
    said: str,
    site: Site,
    store_path: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line; no request, no cycle, no index; what was recorded stays."""
    await crawled(site, store_path, texts()[:1], {})
    log = tmp_path / "queries.tsv"
    if content is not None:
        log.write_bytes(content)
    site.log.clear()
    await crawled(site, store_path, texts()[1:2], settings_of(log))
    errors = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert len(errors) == 1
    assert re.search(said, errors[0])
    assert not site.log
    with Store(store_path) as store:
        assert (store.last_cycle, store.open_cycle, store.gains_log()) == (1, None, None)
    assert not (store_path / FILE).exists()


async def test_an_index_of_a_later_cycle_is_refused(
    site: Site, store_path: Path, tmp_path: Path, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that was brought back from a backup: deleted, the index refills."""
    settings, said = settings_of(log, GP4C_BUDGET=PAGES), texts()
    await crawled(site, store_path, said[:1], settings)
    data = (store_path / "data.mdb").read_bytes()
    await crawled(site, store_path, said[1:3], settings)
    (store_path / "data.mdb").write_bytes(data)
    await crawled(site, store_path, said[1:2], settings)
    assert "has cycle 3, but the store ends at cycle 1. Delete it" in caplog.text
    for path in store_path.glob(f"{FILE}*"):
        path.unlink()
    await crawled(site, store_path, said[1:3], settings)
    with Store(store_path) as store:
        assert store.last_cycle == 3
        assert any(ppm > 0 for (cycle, _), ppm in gained(store).items() if cycle == 3)


async def test_an_index_that_fails_on_the_way_interrupts_the_cycle(
    site: Site, store_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No visit is committed whose text is not; the next run goes on, to the gains of an undisturbed one."""
    settings, said = settings_of(log, GP4C_BUDGET=PAGES), texts()
    await crawled(site, store_path, said[:1], settings)
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise SearchIndexError("no room to write to the search index")

        patch.setattr(SearchIndex, "commit", full)
        await crawled(site, store_path, said[1:2], settings)
    assert "no room to write to the search index" in caplog.text
    with Store(store_path) as store:
        assert (store.open_cycle, len(store.open_visits())) == (2, 0)
    await crawled(site, store_path, said[1:2], settings)
    with Store(store_path) as store:
        assert store.last_cycle == 2
        assert store.cycles()[-1]["gained"][0] == PAGES
        assert store.verify() == []


async def test_the_closing_line_says_what_searches_gained(
    site: Site, store_path: Path, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In ppm, by how many visits; nothing of it without a log."""
    caplog.set_level("INFO")
    await crawled(site, store_path, texts()[:2], settings_of(log))
    lines = [record.getMessage() for record in caplog.records if " finished: " in record.getMessage()]
    assert "searches gained 0 ppm by 0 measured visits" in lines[0]
    with Store(store_path) as store:
        visits, ppm = store.cycles()[-1]["gained"]
    assert visits == PAGES
    assert f"searches gained {ppm:,.0f} ppm by {visits} measured visits" in lines[1]


async def test_a_function_learned_for_impact_crawls(
    site: Site, store_path: Path, log: Path, tmp_path: Path
) -> None:
    """Learned offline with these terminals, it chooses the pages of a crawl that has the log."""
    said, score = [row for seed in (3, 4, 5) for row in texts(seed)[:3]], tmp_path / "score.json"
    command = [str(contents(tmp_path / "contents.jsonl", said)), "--query-log", str(log), "-o", str(score)]
    command += ["--fitness", "impact", "--terminals", "dq_rate,dq_last", "--budget", "4", "--warmup", "1"]
    command += [
        "--population",
        "8",
        "--generations",
        "1",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--protocol",
        "simple",
        "--selection",
        "best",
    ]
    assert learn.main(command) == 0
    assert set(load(str(score)).terminals) & {"dq_rate", "dq_last"}
    settings = settings_of(log, GP4C_SCORE_FUNCTION=str(score))
    last = (await crawled(site, store_path, said[:4], settings))[-1]
    assert stats(last)["visited"] == 10
    with Store(store_path) as store:
        assert store.cycles()[-1]["score_function"] == str(score)


@pytest.mark.parametrize("score", ["user-centric", "dq_decay * t + 0.001 * t", "dq_last + 0.01 * random"])
def test_a_replay_of_the_same_texts_plans_what_the_crawl_does(
    score: str, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round's pages, and their scores bit by bit."""
    rng, pages, cycles = np.random.default_rng(8), live_replay.PAGES, 9
    said = [[" ".join(rng.choice(WORDS, 25)) for _ in range(pages)]]
    for _ in range(cycles):
        changed = rng.random(pages) < np.linspace(0, 0.8, pages)
        new = [" ".join(rng.choice(WORDS, rng.integers(9, 50))) for _ in range(pages)]
        said.append([a if now else b for now, a, b in zip(changed, new, said[-1], strict=True)])
    settings = {"GP4C_SCORE_FUNCTION": score, "GP4C_BUDGET": 7, "GP4C_SEED": 3, "GP4C_QUERY_LOG": str(log)}
    settings |= {"GP4C_DISCOVERY": 0.0, "GP4C_SITE_SHARE": 1.0}
    monkeypatch.setattr(measuring, "REFIT_CYCLES", 99)
    plans: list[live_replay.Plan] = []
    loaded = live_replay.settings_of(settings)
    loaded = dataclasses.replace(loaded, policy=live_replay.noting("top_k", plans))
    prints = np.array([[fingerprint_of_text(text) for text in row] for row in said], np.uint64)
    crawl_store(tmp_path / "s", prints, loaded, live_replay.KEYS, live_replay.URLS, said)
    lines = [
        {"site": "h", "page": f"{page}", "versions": {str(c): row[page] for c, row in enumerate(said)}}
        for page in range(pages)
    ]
    path = tmp_path / "contents.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    history = with_refresh_values(read_contents(path), QualityMeasure(read_query_log(log)))
    expected = live_replay.replayed(history, {**settings, "GP4C_POLICY": "top_k"})
    assert len(expected) == cycles - live_replay.WARMUP
    assert [plan for plan in plans if plan.pages] == expected
    with Store(tmp_path / "s") as store:
        assert any(rows["ppm"].any() for _, rows in store.gains_of_cycles(0)), "or nothing is compared"


KILLS = int(os.environ.get("GP4C_KILLS", "12"))
KILLED_PAGES, KILLED_CYCLES = 30, 4
KILLED_WORDS = ["apple", "birch", "cedar", "daisy", "elder", "fern", "grape", "hazel"]


def said() -> list[list[str]]:
    """Texts of all pages in every cycle."""
    rng = np.random.default_rng(4)
    rows = [[" ".join(rng.choice(KILLED_WORDS, 12)) for _ in range(KILLED_PAGES)]]
    for _ in range(1, KILLED_CYCLES):
        changed = rng.random(KILLED_PAGES) < 0.6
        new = [" ".join(rng.choice(KILLED_WORDS, rng.integers(1, 20))) for _ in range(KILLED_PAGES)]
        rows.append([a if now else b for now, a, b in zip(changed, new, rows[-1], strict=True)])
    return rows


SAID = said()
PRINTS = np.array([[fingerprint_of_text(text) for text in row] for row in SAID], np.uint64)
SMALLER = SMALL._replace(commit_visits=4)


@pytest.fixture
def refits_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model that gains are measured by is learned anew within the few cycles of a test."""
    monkeypatch.setattr(measuring, "REFIT_CYCLES", 2)


def crawl_killed(path: Path, killed_log: Path) -> None:
    crawl_settings = {
        "GP4C_QUERY_LOG": str(killed_log),
        "GP4C_SCORE_FUNCTION": "dq_rate * t + 0.01 * t",
        "GP4C_BUDGET": 12,
    }
    settings = Settings.load(ScrapySettings({**crawl_settings, "GP4C_WARMUP_VISITS": 1}))
    keys = np.arange(1, KILLED_PAGES + 1, dtype=np.uint64)
    crawl_store(path, PRINTS, settings, keys, page_texts=SAID, sizes=SMALLER)


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
        results |= {f"gains {cycle}": gains.tobytes() for cycle, gains in store.gains_of_cycles()}
        results["visits"] = [(cycle, sorted(rows["page"].tolist())) for cycle, rows in store.visits()]
        assert [record["gained"][0] > 0 for record in store.cycles()] == [False] + [True] * (
            KILLED_CYCLES - 1
        )
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
def killed_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A killed_log of queries."""
    path = tmp_path_factory.mktemp("killed_log") / "queries.tsv"
    path.write_text("apple\t5\nbirch cedar\t3\nfern\t2\ngrape hazel apple\t1\n")
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("refits_often")
def test_a_crawl_killed_anywhere_measures_what_it_would_have(tmp_path: Path, killed_log: Path) -> None:
    """While staging, in the index's transaction, before the fold and in it, again and again or once."""
    undisturbed = Steps(np.inf)
    contents = tmp_path / "told"

    def complete_crawl() -> None:
        stepping(undisturbed)
        crawl_killed(tmp_path / "whole", killed_log)
        contents.write_text(str(undisturbed.taken))

    assert wait(in_child(complete_crawl)) == 0
    expected, steps = content(tmp_path / "whole"), int(contents.read_text())
    assert steps > 300

    def work(path: Path, last: int) -> None:
        stepping(Steps(last))
        crawl_killed(path, killed_log)

    moments = random.Random(11)
    for number in range(KILLS):
        path = tmp_path / f"killed-{number}"
        last = int(steps * (number + moments.random()) / KILLS)
        assert wait(in_child(partial(work, path, last))) == -signal.SIGKILL
        assert wait(in_child(partial(work, path, 10**9))) == 0
        assert content(path) == expected, last
        shutil.rmtree(path)


@pytest.mark.usefixtures("refits_often")
def test_a_crawl_killed_again_and_again_gets_there_too(tmp_path: Path, killed_log: Path) -> None:
    """Each run a little further, or not at all."""
    crawl_killed(tmp_path / "whole", killed_log)
    moments, kills, path = random.Random(5), 0, tmp_path / "killed"

    def work(last: int) -> None:
        stepping(Steps(last))
        crawl_killed(path, killed_log)

    while (code := wait(in_child(partial(work, moments.choice((20, 40, 80, 250)))))) != 0:
        assert code == -signal.SIGKILL
        kills += 1
    assert kills > 3
    assert content(path) == content(tmp_path / "whole")
