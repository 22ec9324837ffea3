"""Files that `import` reads and requests that a store holds: whatever is in them, an error that says what."""

import contextlib
import io
import json
import shutil
import tempfile
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy import Spider

from scrapy_gp4c.commands import files
from scrapy_gp4c.crawling.feeding import host_of
from scrapy_gp4c.crawling.requests import check_stored, from_stored
from scrapy_gp4c.errors import Gp4cError, ImportFileError
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.history_fields import check_pages, read_header, read_page
from scrapy_gp4c.store.opening import import_history, open_store
from scrapy_gp4c.store.records import NewVisit
from tests.commands.test_commands import crawl_cycles, exported, in_process, make_project, urls
from tests.support.foreign import fuzzed, mutated, mutated_json


@pytest.fixture(scope="module")
def written(project_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The project, and lines of a history that it has exported."""
    with pytest.MonkeyPatch.context() as patch:
        project = make_project(project_directory, tmp_path_factory.mktemp("stores") / "store", patch)
        with project.open_store(readonly=False) as store:
            stored: list[Any] = [{"url": url, "meta": {"a": 1}, "headers": {"A": ["b"]}} for url in urls(4)]
            store.add_pages([project.page(one) for one in stored])
        ends = [
            {0: "first", 1: "first", 2: "error"},
            {0: "changed", 1: "unchanged"},
            {0: "unchanged"},
        ]
        crawl_cycles(project, ends)
        yield project, exported(project).encode()


@fuzzed
@given(data=st.data())
def test_foreign_lines_of_a_history(written: Any, data: st.DataObject) -> None:
    """Each line is read, or named in one error; what is read can be checked."""
    project, text = written
    lines = text.splitlines()
    calls: list[str] = []
    line = data.draw(mutated(lines[1:])).decode("utf-8", "replace")
    try:
        page = read_page("file", 2, line, project.page)
        check_pages("file", [page], 3, lambda key: False)
    except ImportFileError as error:
        calls.append(str(error))
    header = data.draw(mutated(lines[:1])).decode("utf-8", "replace")
    try:
        read_header("file", header)
    except ImportFileError as error:
        calls.append(str(error))
    assert all(", line " in line for line in calls)


@fuzzed
@given(data=st.data())
def test_foreign_histories_and_lists_of_urls(written: Any, data: st.DataObject) -> None:
    """A file is restored into a sound store, or one error; then there is no store."""
    project, text = written
    content = data.draw(mutated([text, text.split(b"\n", 1)[1], b"http://h/a\nhttp://h/b\n"]))
    directory = Path(tempfile.mkdtemp())
    try:
        (directory / "file").write_bytes(content)
        try:
            first = next(files.content_lines(str(directory / "file")), (0, ""))[1]
            if first.startswith("#") or "\t" in first:
                import_history(
                    directory / "store",
                    "file",
                    files.content_lines(str(directory / "file")),
                    project.page,
                )
            else:
                for _, line in files.content_lines(str(directory / "file")):
                    with contextlib.suppress(ValueError):
                        project.page({"url": line})
                return
        except Gp4cError:
            assert not (directory / "store" / "data.mdb").exists()
            return
        with open_store(directory / "store") as store:
            assert store.verify() == []
    finally:
        shutil.rmtree(directory)


RECORD: Any = {
    "cycle": 1, "started": 1.0, "finished": 2.0, "planned": 3, "visited": 3, "changed": 1, "change_rate": 0.5,
    "policy": "top_k", "score_function": "t", "outcomes": {"changed": 1}, "known": 3, "judged": 2, "new": 1,
    "sampled": {"samples": 1, "samples_changed": 1, "seeds": 1, "neighbours": 1, "neighbours_changed": 0},
    "panel": {"judged": 2, "unchosen": 1, "outdated": 0,
              "changed_share": {"estimate": 0.5, "low": 0.1, "high": 0.9},
              "freshness": {"estimate": 0.5, "low": 0.1, "high": 0.9}},
}  # fmt: skip


def test_numbers_that_no_column_holds_are_one_error(written: Any, tmp_path: Path) -> None:
    """Whole numbers of 300 digits, and more cycles than anybody crawls."""
    _, text = written
    with pytest.raises(ImportFileError, match="line 1: expected the header"):
        read_header("file", json.dumps({**json.loads(text.splitlines()[0][2:]), "measured": ["x", 10**300]}))
    with pytest.raises(ImportFileError, match="line 1: dq: number out of range"):
        read_page("file", 1, f'h\thttp://h/\t1\t{{"dq": [[1, {10**400}]]}}', lambda stored: (1, stored))
    lines = iter([(1, "h\thttp://h/\t" + "." * 1_000_000)])
    with pytest.raises(ImportFileError, match="1,000,000 cycles"):
        import_history(tmp_path / "store", "file", lines, lambda stored: (1, stored))


@settings(fuzzed, max_examples=fuzzed.max_examples // 3)
@given(mutated_json([RECORD]))
def test_foreign_records_are_refused_or_shown(written: Any, record: Any) -> None:
    """A record of a cycle with fields of other kinds: one error, or `status` and `metrics` can show it."""
    project, text = written
    lines = text.decode().splitlines()
    lines[1] = "# " + json.dumps(record)
    directory = Path(tempfile.mkdtemp())
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            import_history(directory / "store", "file", iter(enumerate(lines, 1)), project.page)
            other = copy(project)
            other.store_path = directory / "store"
            for action in ("status", "metrics"):
                in_process(other, action)
    except ImportFileError as error:
        output.write(str(error))
    finally:
        shutil.rmtree(directory)
    assert all(line.isprintable() for line in output.getvalue().split("\n"))


def test_a_foreign_store_sends_no_orders_to_the_terminal(
    project_directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """URLs, sites and records with control characters are shown quoted, as text and as JSON."""
    project = make_project(project_directory, tmp_path / "store", monkeypatch)
    hostile = "http://h\x1b2J/\x1b]0;owned\x07/a\nb\x9b1m\u202e"
    with project.open_store(readonly=False) as store:
        store.add_pages([(key, {"url": f"{hostile}{key}"}) for key in range(1, 5)])
        for outcome in ("first", "changed", "error"):
            record: Any = {"started": 1.0, "score_function": f"\x1b[31m{outcome}\n", "policy": "\x9b2J"}
            store.begin_cycle(record)
            for page in range(4):
                store.record(NewVisit(page, outcome, time=1.0, fingerprint=7, kind="ranked"))
            store.finish_cycle({"finished": 2.0, "visited": 4})
    reading = ["status", "pages", "plan", "failing", "changes", "metrics", "store verify", "stores", "forget"]
    for action in reading:
        options = ["--dry-run", "*"] if action == "forget" else []
        for as_json in [[], ["--json"]] if action not in ("metrics", "store verify") else [[]]:
            in_process(project, action, *options, *as_json)
            shown = capsys.readouterr()
            assert all(line.isprintable() for line in (shown.out + shown.err).split("\n")), action


class Reading(Spider):
    name = "reading"

    def parse_page(self, response: Any) -> None:
        """Be a callback."""


SPIDER = Reading()
STORED: list[Any] = [
    {"url": "http://h/a?b=1"},
    {
        "url": "http://h:1/a", "callback": "parse_page", "errback": "parse_page", "cb_kwargs": {"a": 1},
        "meta": {"a": {"b": [1]}}, "cookies": {"a": "b"}, "headers": {"A": ["b"]}, "priority": 3,
        "dont_filter": True, "lacks": ["cookie a"],
    },
]  # fmt: skip


@fuzzed
@given(mutated_json(STORED))
def test_foreign_stored_requests(stored: Any) -> None:
    """Built, or an error of one page; the host and what is shown of it never raise."""
    try:
        check_stored(stored)
    except ValueError:
        pass
    else:
        host_of(stored)
        bare = Credentials().stripped(stored)
        assert Credentials().stripped(bare) == bare
        json.dumps(bare)
    try:
        request = from_stored(stored, SPIDER)
    except Exception:  # whatever it is, the feeder takes it as the page's own failure
        return
    assert request.url.startswith(("http://", "https://"))
