"""``scrapy gp4c hint``: URLs that something else says have changed."""

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from scrapy_gp4c.errors import ImportFileError, StoreError
from scrapy_gp4c.page_state.outcomes import PLAN
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.records import SAME_PAGE, LastAnswer, NewVisit
from tests.commands.test_commands import in_process, make_project
from tests.support.schemas import checked

Run = Callable[..., str]


@pytest.fixture
def hint(
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs the action in a project; returns what it printed."""
    project = make_project(project_directory, store_path, monkeypatch, {})

    def run(*words: str, action: str = "hint") -> str:
        in_process(project, action, *words)
        return str(capsys.readouterr().out)

    return run


def claims(store_path: Path) -> dict[str, int]:
    with open_store(store_path, readonly=True) as store:
        (block,) = [block for _, block in store.blocks()]
        urls = [stored["url"] for stored in store.requests(range(store.pages))]
        return dict(zip(urls, block["claims"].tolist(), strict=True))


def test_known_pages_are_hinted(hint: Run, store_path: Path, tmp_path: Path) -> None:
    """Plain or gzip; URLs that nobody knows are counted, and nothing is kept of them."""
    urls = tmp_path / "urls.txt"
    urls.write_text("http://h/a\nhttp://h/b?y=2&x=1\n", "utf-8")
    hint(str(urls), action="import")
    urls.write_bytes(gzip.compress(b"# changed\nhttp://h/b?x=1&y=2\nhttp://h/new\n\nhttp://h/new\n"))
    assert checked("hint", hint(str(urls), "--json")) == {"hinted": 1, "unknown": 1}
    assert claims(store_path) == {"http://h/a": 0, "http://h/b?y=2&x=1": 0x44}


def test_pages_that_moved_are_known_by_either_address(hint: Run, store_path: Path, tmp_path: Path) -> None:
    """By the address of a site that moved, and by that of a twin: neither makes a page, and a hint counts."""
    urls = tmp_path / "urls.txt"
    urls.write_text("http://h/a\nhttp://h/b\nhttp://h/b/\n", "utf-8")
    hint(str(urls), action="import")
    with open_store(store_path) as store:
        store.begin_cycle({"moved": [["https://new.h", "", "http://h", ""]]})
        store.add_round(np.empty(0, PLAN), seen=0)
        store.record(NewVisit(2, "excluded", 1.0))
        store.set_answer(2, LastAnswer(200, f"{SAME_PAGE}http://h/b"))
        store.finish_cycle({"moved": [["https://new.h", "", "http://h", ""]]})
    urls.write_text("https://new.h/a\t2\nhttps://new.h/b/\n", "utf-8")
    assert checked("import", hint(str(urls), "--json", action="import"))["added"] == 0
    urls.write_text("https://new.h/a\nhttps://new.h/b/\n", "utf-8")
    assert checked("hint", hint(str(urls), "--json")) == {"hinted": 2, "unknown": 0}
    assert claims(store_path) == {"http://h/a": 0x44, "http://h/b": 0x44, "http://h/b/": 0}
    with open_store(store_path, readonly=True) as store:
        assert store.weights.of(0) == 2.0


def test_standard_input_is_read(
    hint: Run, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For what calls it with a pipe."""
    (tmp_path / "urls.txt").write_text("http://h/a\n", "utf-8")
    hint(str(tmp_path / "urls.txt"), action="import")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"http://h/a\n")))
    assert checked("hint", hint("-", "--json")) == {"hinted": 1, "unknown": 0}
    assert claims(store_path) == {"http://h/a": 0x44}


def test_what_cannot_be_read_changes_nothing(hint: Run, store_path: Path, tmp_path: Path) -> None:
    """A line that is no URL, a file that is none, no store: one error each."""
    urls = tmp_path / "urls.txt"
    urls.write_text("http://h/a\n", "utf-8")
    with pytest.raises(StoreError, match="there is no page store"):
        hint(str(urls))
    assert not store_path.exists()
    hint(str(urls), action="import")
    urls.write_text("http://h/a\nno url\n", "utf-8")
    with pytest.raises(ImportFileError, match=r"line 2.*nothing was noted"):
        hint(str(urls))
    with pytest.raises(ImportFileError, match="cannot read"):
        hint(str(tmp_path / "none.txt"))
    assert claims(store_path) == {"http://h/a": 0}
    urls.write_text("http://h/other\n", "utf-8")
    assert checked("hint", hint(str(urls), "--json")) == {"hinted": 0, "unknown": 1}
