"""``scrapy gp4c search`` and ``pages --sort dq``: what a crawl with a log of queries knows, shown."""

import contextlib
import dataclasses
import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.errors import QueryLogError, SearchIndexError
from scrapy_gp4c.scoring.refresh_value import GAIN
from scrapy_gp4c.search.index import Arrival, SearchIndex
from scrapy_gp4c.search.queries import parse_query_log
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import SEARCH_INDEX as FILE
from scrapy_gp4c.store.records import NewVisit
from tests.commands.test_commands import in_process, make_project
from tests.support.schemas import checked

TEXTS = ["heat wave", "heat heat heat", "cold wave", "rain"]


@pytest.fixture
def project(project_directory: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose store has four pages, two cycles and an index."""
    made = make_project(project_directory, store_path, monkeypatch)
    made.settings = dataclasses.replace(made.settings, query_log="queries.tsv")
    with Store(store_path) as store:
        store.add_pages(made.page({"url": f"http://h/{n // 3}/{n}"}) for n in range(len(TEXTS)))
        store.set_gains_log("a log")
        for cycle in (1, 2):
            store.begin_cycle({})
            for page in range(len(TEXTS)):
                store.record(NewVisit(page, "first" if cycle == 1 else "changed", 1.0, fingerprint=cycle))
            if cycle == 2:
                store.put_gains(np.array([(0, 1, 3.0), (1, 1, 9.0), (3, 1, 4.0)], GAIN))
            store.finish_cycle({})
        index = SearchIndex(store_path / FILE, store.store_id, parse_query_log(["heat\t1"], "log"), "tfidf")
        for page, words in enumerate(TEXTS):
            index.stage(Arrival(page, page, page, None, words.encode()))
        index.commit(1)
        index.apply(1, range(len(TEXTS)), [], 7)
        index.close()
    return made


def test_search_shows_what_users_would_see(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """Best first, with scores and URLs; ``--top`` bounds what is shown, not what is counted."""
    in_process(project, "search", "Heat")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 of 4 pages have heat; by tfidf:"
    assert [line.split()[0::2] for line in lines[2:]] == [["1", "http://h/0/1"], ["2", "http://h/0/0"]]
    in_process(project, "search", "wave heat", "--json", "--top", 1)
    result = checked("search", capsys.readouterr().out)
    assert (result["terms"], result["matches"], result["indexed"]) == (["wave", "heat"], 1, 4)
    assert [hit["url"] for hit in result["hits"]] == ["http://h/0/0"]
    in_process(project, "search", "heat", "--json", "--top", 1)
    assert [hit["rank"] for hit in checked("search", capsys.readouterr().out)["hits"]] == [1]
    in_process(project, "search", "snow")
    assert capsys.readouterr().out.splitlines()[0] == "0 of 4 pages have snow; by tfidf:"


def test_search_says_what_is_missing(project: Project) -> None:
    """Words, or the index."""
    with pytest.raises(QueryLogError, match="found no letter or digit"):
        in_process(project, "search", "!")
    (project.store_path / FILE).unlink()
    with pytest.raises(SearchIndexError, match="GP4C_QUERY_LOG"):
        in_process(project, "search", "heat")


def test_pages_by_gain(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """Pages whose visits gain searches most come first."""
    in_process(project, "pages", "--sort", "dq", "--json")
    result = checked("pages", capsys.readouterr().out)["pages"]
    assert [(one["url"][-1], one["dq"]) for one in result] == [("1", 9.0), ("3", 4.0), ("0", 3.0), ("2", 0.0)]
    in_process(project, "pages", "--sort", "dq")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][4] == "dq"
    assert lines[1][4] == "9"
    in_process(project, "why", "http://h/0/1", "--all")
    assert "dq_rate" in capsys.readouterr().out


def test_pages_of_a_store_that_measures_nothing(
    project_directory: Path,
    store_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Have no such column, and cannot be sorted by it; a function of it scores as before the first visit."""
    project = make_project(project_directory, store_path, monkeypatch)
    with Store(store_path) as store:
        store.add_pages([project.page({"url": "http://h/1"})])
        store.begin_cycle({})
        store.record(NewVisit(0, "first", 1.0))
        store.finish_cycle({})
    in_process(project, "pages")
    assert "dq" not in capsys.readouterr().out
    with pytest.raises(QueryLogError, match=r"nothing was measured.*GP4C_QUERY_LOG"):
        in_process(project, "pages", "--sort", "dq")
    in_process(project, "why", "http://h/1", "--all")
    assert "dq_rate" not in capsys.readouterr().out
    project.settings = dataclasses.replace(project.settings, query_log="queries.tsv")
    in_process(project, "why", "http://h/1", "--all")
    assert "dq_rate" in capsys.readouterr().out


def test_a_damaged_index_is_one_error(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the file, or of what is in it: verify says so, and search does not raise a traceback."""
    path = project.store_path / FILE
    in_process(project, "store verify")
    sound = path.read_bytes()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE pages SET counts = x'010203'")
        connection.execute("UPDATE pages SET length = 'x' WHERE page < 2")
    connection.close()
    with pytest.raises(SearchIndexError, match="is damaged"):
        in_process(project, "store verify")
    assert capsys.readouterr().out.endswith("is sound\n")
    with pytest.raises(SearchIndexError, match="is damaged"):
        in_process(project, "search", "heat")
    numbers = random.Random(5)
    for _ in range(20):
        damaged = bytearray(sound)
        for _ in range(40):
            damaged[numbers.randrange(100, len(sound))] ^= 1 << numbers.randrange(8)
        path.write_bytes(damaged)
        for action, words in (("store verify", ()), ("search", ("heat",))):
            with contextlib.suppress(SearchIndexError):
                in_process(project, action, *words)
