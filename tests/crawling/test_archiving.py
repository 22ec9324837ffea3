"""The archive of a crawl: what callbacks, commands and the report show, and kills at any moment."""

import copy
import json
import logging
import os
import pickle
import random
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider

from scrapy_gp4c.archive import texts as archive_texts
from scrapy_gp4c.archive.texts import Texts
from scrapy_gp4c.crawling.cycle import VisitInfo
from scrapy_gp4c.errors import ArchiveError
from scrapy_gp4c.fingerprint import fingerprint_of_text, is_changed
from scrapy_gp4c.page_state.outcomes import CHANGED, COPIED
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import ARCHIVE
from tests.commands.test_commands import in_process, make_project
from tests.support.killing import PAGES, Web, Worker
from tests.support.loopback import Site, crawl, html
from tests.support.pages import check
from tests.support.schemas import checked
from training import report

ON = {"GP4C_ARCHIVE": True, "GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 0}
WORDS = "a page with a text of more than a few words on nothing in particular that rarely changes at all"


class Reader(Spider):
    """Asks for pages, and keeps what it is told of each: outcome, previous text, difference."""

    name = "news"
    paths: tuple[str, ...] = ("/",)

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.infos: dict[str, tuple[str, str | None, str]] = {}

    async def start(self) -> AsyncIterator[Any]:
        self.metas: list[Any] = []
        for path in self.paths:
            yield Request(self.site.url(path), errback=self.failed)

    def parse(self, response: Any) -> Iterator[Any]:
        self.keep(response)
        yield from ()

    def failed(self, failure: Any) -> None:
        """Keep it of a page that is gone."""
        self.keep(failure.value.response)

    def keep(self, response: Any) -> None:
        """Ask twice: what was read once stays."""
        info = response.meta["gp4c"]
        assert info.get("previous_text") == info["previous_text"]
        path = "/" + response.url.split("/", 3)[3]
        previous = info["previous_text"]
        self.infos[path] = (
            info["outcome"],
            None if previous is None else " ".join(previous.split()),
            info.diff(),
        )
        self.metas.append(info)


def text_of(words: str) -> str:
    """The text of a page, title and heading first."""
    return f"A page A page {words}"


@pytest.mark.slow
async def test_a_callback_is_told_what_the_page_said_before(site: Site, store_path: Path) -> None:
    """New, unchanged, changed, changed back, gone, not modified; large pages and images too."""
    large = " ".join(f"word{number}" for number in range(9_000))
    small, new = WORDS, WORDS.replace("particular", "general")
    site.pages["/image"] = lambda request: (request.setHeader("Content-Type", "image/png"), b"\x89PNG\0\1")[1]

    def gone(request: Any) -> bytes:
        request.setResponseCode(404)
        return b"gone"

    expected: list[tuple[Any, Any, tuple[str, str | None, str]]] = [
        (small, large, ("first", None, "")),
        (small, large, ("unchanged", text_of(small), "")),
        (
            new,
            large,
            ("changed", text_of(small), "words on nothing in [-particular-] {+general+} that rarely"),
        ),
        (small, large.replace("word7 ", ""), ("changed", text_of(new), "[-general-] {+particular+}")),
        (gone, large, ("gone", text_of(small), "")),
        (small, large, ("unchanged", text_of(small), "")),
    ]
    for first, second, expected_info in expected:
        site.pages["/"] = first if callable(first) else html(first)
        site.pages["/large"] = html(second)
        crawler = await crawl(Reader, store_path, ON, site=site, paths=("/", "/large", "/image"))
        outcome, previous, shown = crawler.spider.infos["/"]
        assert (outcome, previous) == expected_info[:2]
        assert expected_info[2] in shown
        assert bool(expected_info[2]) == bool(shown)
        assert crawler.spider.infos["/image"] == (crawler.spider.infos["/image"][0], None, "")
        if second != large:
            assert "[-word7-]" in crawler.spider.infos["/large"][2]


async def test_texts_begin_when_the_archive_is_switched_on(site: Site, store_path: Path) -> None:
    """Of pages that are known, and as they are, the next visit keeps the text; the one after is told it."""
    site.pages["/"] = html(WORDS)
    await crawl(Reader, store_path, {"GP4C_BUDGET": 1.0}, site=site)
    assert not (store_path / ARCHIVE).exists()
    for previous in (None, text_of(WORDS)):
        crawler = await crawl(Reader, store_path, ON, site=site)
        assert crawler.spider.infos["/"] == ("unchanged", previous, "")
    site.pages["/"] = html(WORDS + " anew")
    crawler = await crawl(Reader, store_path, ON, site=site)
    assert crawler.spider.infos["/"][2].endswith("that rarely changes at all {+anew+}")
    crawler = await crawl(Reader, store_path, {"GP4C_BUDGET": 1.0}, site=site)
    assert crawler.spider.infos["/"] == ("unchanged", None, "")


async def test_a_text_that_moves_by_less_than_a_change_stays_the_version(
    site: Site, store_path: Path
) -> None:
    """With a high GP4C_DISTANCE the version is the text that was found, until the page has changed."""
    crawl_settings = {**ON, "GP4C_DISTANCE": 40}
    for words in (WORDS, WORDS + " and", WORDS + " and so"):
        site.pages["/"] = html(words)
        crawler = await crawl(Reader, store_path, crawl_settings, site=site)
    assert crawler.spider.infos["/"][:2] == ("unchanged", text_of(WORDS))
    site.pages["/"] = html("something else entirely, of which nothing was ever said before by anybody here")
    crawler = await crawl(Reader, store_path, {**ON, "GP4C_DISTANCE": 3}, site=site)
    assert crawler.spider.infos["/"][:2] == ("changed", text_of(WORDS))


async def test_commands_and_the_report_show_the_differences(
    site: Site,
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """As text, in colour on a terminal, as JSON and CSV; forgotten pages leave no text behind."""
    project = make_project(project_directory, store_path, monkeypatch)
    paths = ("/1", "/2")
    for cycle, words in enumerate(("old <b>words</b>", "new <b>words</b>", "new <b>words</b>"), 1):
        site.pages |= {"/1": html(f"{WORDS} {words}"), "/2": html(f"{words} {WORDS}")}
        settings = ON if cycle > 1 else {**ON, "GP4C_ARCHIVE": False}
        if cycle == 3:
            site.pages["/2"] = html(f"other {WORDS}")
        await crawl(Reader, store_path, settings, site=site, paths=paths)
        if cycle == 1:
            with pytest.raises(ArchiveError, match="set GP4C_ARCHIVE = True"):
                in_process(project, "changes", "--diff")
    capsys.readouterr()
    in_process(project, "changes", "--last", "3", "--diff", "--json")
    printed = checked("changes", capsys.readouterr().out)["changes"]
    diffs = {(one["cycle"], one["url"][-1]): one["diff"] for one in printed}
    assert diffs == {
        (2, "1"): None,
        (2, "2"): None,
        (3, "2"): ["@@ 1 @@ A page A page [-new words-] {+other+} a page with a text of more than"],
    }
    in_process(project, "changes", "--last", "3", "--json")
    assert {one["diff"] for one in checked("changes", capsys.readouterr().out)["changes"]} == {None}
    in_process(project, "changes", "--last", "3", "--diff")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"  {diffs[3, '2'][0]}"
    assert (
        lines.count(
            "  the archive lacks one of the two texts: it has those of visits since GP4C_ARCHIVE was set"
        )
        == 2
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    in_process(project, "changes", "--diff")
    assert "\033[31m[-new words-]\033[0m" in capsys.readouterr().out
    in_process(project, "changes", "--diff", "--csv")
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "cycle,kind,time,url,distance,changes,diff"
    assert "[-new words-]" in table[1]
    page = tmp_path / "report.html"
    assert report.main([str(store_path), "-o", str(page)]) == 0
    text = page.read_text()
    check(text)
    assert "<del>new words</del> <ins>other</ins>" in text
    with Texts(store_path / ARCHIVE, readonly=True) as texts:
        before = texts.count()
    in_process(project, "forget", "*/2", "--yes")
    with Texts(store_path / ARCHIVE, readonly=True) as texts:
        assert 0 < texts.count() < before
    (store_path / ARCHIVE).write_bytes(b"no database" * 500)
    with pytest.raises(ArchiveError, match="damaged"):
        in_process(project, "changes", "--diff")
    assert report.main([str(store_path), "-o", str(page)]) == 0
    assert "is damaged" in page.read_text()


async def test_what_is_wrong_with_the_archive_costs_texts_alone(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged before the crawl or found so in it, locked, full: one warning, and every visit is recorded."""
    paths = tuple(f"/{number}" for number in range(20))
    for path in paths:
        site.pages[path] = html(f"{WORDS} {path}")

    def damaged() -> None:
        (store_path / ARCHIVE).write_bytes(b"no database" * 500)

    def torn() -> None:
        with closing(sqlite3.connect(store_path / ARCHIVE)) as file:
            file.execute("DROP TABLE texts")
            file.commit()

    def flipped() -> None:
        with closing(sqlite3.connect(store_path / ARCHIVE)) as file:
            file.execute("UPDATE texts SET text = x'00'")
            file.commit()

    for number, spoil in enumerate((damaged, torn, flipped), 1):
        (store_path / ARCHIVE).unlink(missing_ok=True)
        for one in ("-wal", "-shm"):
            Path(f"{store_path / ARCHIVE}{one}").unlink(missing_ok=True)
        await crawl(Reader, store_path, ON, site=site, paths=paths)
        spoil()
        for path in paths:
            site.pages[path] = html(f"{WORDS} {path} {number}")
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            crawler = await crawl(Reader, store_path, ON, site=site, paths=paths)
        assert {info[:2] for info in crawler.spider.infos.values()} == {("changed", None)}
        lines = [
            record.getMessage() for record in caplog.records if "No texts are kept" in record.getMessage()
        ]
        assert len(lines) == 1
        assert "is damaged" in lines[0]
    with Store(store_path, readonly=True) as store:
        assert store.verify() == []


async def test_an_archive_that_cannot_be_used_is_one_line_of_every_command(
    site: Site,
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Damage, a device, a pipe without a writer, a directory: an error where texts are read, else a line."""
    for words in (WORDS, WORDS + " anew"):
        site.pages["/"] = html(words)
        await crawl(Reader, store_path, ON, site=site)
    project = make_project(project_directory, store_path, monkeypatch)
    path, sound = store_path / ARCHIVE, (store_path / ARCHIVE).read_bytes()
    feed = ("feed", "-o", tmp_path / "f.json")
    reading = (("history", site.url("/")), feed, ("changes", "--diff"), ("store verify",))
    spoils = {
        "no bytes": lambda: path.write_bytes(b""),
        "other bytes": lambda: path.write_bytes(b"no database" * 500),
        "a text that is none": lambda: spoil_texts(path, sound),
        "a device": lambda: path.symlink_to("/dev/full"),
        "a pipe": lambda: os.mkfifo(path),
        "a directory": path.mkdir,
    }
    for spoil in spoils.values():
        path.unlink()
        spoil()
        for action, *options in reading:
            with pytest.raises(ArchiveError, match="archive of texts"):
                in_process(project, action, *options)
        capsys.readouterr()
        in_process(project, "status")
        is_opened = spoil is spoils["a text that is none"]
        assert ("no texts are kept: the archive" in capsys.readouterr().out) is not is_opened
        in_process(project, "changes")


def spoil_texts(path: Path, sound: bytes) -> None:
    """An archive whose texts are no frames."""
    path.write_bytes(sound)
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE texts SET text = x'00'")
        file.commit()


async def test_a_store_that_begins_anew_beside_old_texts(site: Site, store_path: Path) -> None:
    """The archive alone is no foreign directory; what it says of the same page and cycle is still right."""
    for words, previous in ((WORDS, None), (WORDS, text_of(WORDS))):
        site.pages["/"] = html(words)
        crawler = await crawl(Reader, store_path, ON, site=site)
        assert crawler.spider.infos["/"][1] == previous
    (store_path / "data.mdb").unlink()
    for words, expected_info in (
        (WORDS + " anew", ("first", None, "")),
        (WORDS, ("changed", text_of(WORDS + " anew"), "")),
    ):
        site.pages["/"] = html(words)
        crawler = await crawl(Reader, store_path, ON, site=site)
        assert crawler.spider.infos["/"][:2] == expected_info[:2]


async def test_without_the_library_no_crawl_begins(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what to install, before anything is fetched."""
    monkeypatch.setattr(archive_texts, "_missing", ImportError("No module named 'zstandard'"))
    crawler = await crawl(Reader, store_path, ON, site=site)
    assert "pip install 'scrapy-gp4c[archive]'" in caplog.text
    assert site.log == []
    assert crawler.spider is None or not crawler.spider.infos


def test_what_is_told_travels_as_a_plain_dictionary() -> None:
    """Copied, pickled or as JSON, for requests that carry it to the disk; other names are missing as ever."""
    info = VisitInfo({"page": 1, "outcome": "first"}, "text", lambda: "before")  # type: ignore[typeddict-item]
    assert type(pickle.loads(pickle.dumps(info))) is dict
    assert (
        copy.deepcopy(info)
        == json.loads(json.dumps(info))
        == {"page": 1, "outcome": "first", "managed": False}
    )
    with pytest.raises(KeyError):
        info["other"]
    assert info.get("other", 5) == 5
    assert info["previous_text"] == "before"
    assert info.diff() == "@@ 1 @@ [-before-] {+text+}"


def has_paired_rightly(path: Path) -> tuple[int, int]:
    """Check every version that the store could ask for; returns pairs that are there, and changes."""
    pairs = count = 0
    with Store(path, readonly=True) as store, Texts(path / ARCHIVE, readonly=True) as texts:
        copies: dict[int, int] = {}
        cycles = [*store.visits(), (store.open_cycle or 0, store.open_visits())]
        for cycle, visits in cycles:
            for visit in visits:
                page, outcome, now = (visit[name].item() for name in ("page", "outcome", "fingerprint"))
                if outcome == CHANGED:
                    count += 1
                    pair = texts.pair(store.page(page).key, cycle, now)
                    if pair is not None:
                        pairs += 1
                        assert fingerprint_of_text(pair[1]) == now
                        assert not is_changed(fingerprint_of_text(pair[0]), copies[page], 3)
                if outcome in COPIED:
                    copies[page] = now
        for page in range(store.pages):
            row = store.page(page)
            frame = texts.frame(row.key, row.found_cycle, row.fingerprint)
            if row.has_copy and frame is not None:
                assert not is_changed(fingerprint_of_text(texts.text(frame)), row.fingerprint, 3)
    return pairs, count


@pytest.mark.slow
def test_kill_9_never_pairs_a_text_with_another_version(web: Web, worker: Worker) -> None:
    """The site changes all the time; a crawl is killed again and again, between fetch and commit too."""
    moments = random.Random(2026)
    crawl_settings = {"GP4C_ARCHIVE": True, "GP4C_BUDGET": 1.0}
    kills = 0
    for number in range(40):
        web.log.clear()
        web.version = number
        if number % 7 == 6:
            worker.begin(crawl_settings, kill_in_fold=moments.randrange(4))
        else:
            worker.kill_after(web, moments.randrange(PAGES), moments.uniform(0.0, 0.05), crawl_settings)
        kills += worker.wait() == -signal.SIGKILL
        if (worker.store / ARCHIVE).exists():
            with Store(worker.store):  # completes a fold
                pass
            has_paired_rightly(worker.store)
    assert kills >= 20
    worker.begin(crawl_settings)
    assert worker.wait() == 0
    pairs, count = has_paired_rightly(worker.store)
    assert count > 40
    assert pairs > 0.8 * count
