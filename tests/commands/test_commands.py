"""``scrapy gp4c ...`` as a user runs it, in a Scrapy project of its own."""

import dataclasses
import gzip
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scrapy import Request, Spider
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.commands import Command, files
from scrapy_gp4c.commands.action import Action
from scrapy_gp4c.commands.actions import ACTIONS
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.errors import ImportFileError, NoticeError, StoreDamagedError, StoreError
from scrapy_gp4c.page_state.outcomes import OUTCOMES, PLAN
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.store import export
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import Sizes, import_history, open_store
from scrapy_gp4c.store.records import SAME_PAGE, LastAnswer, NewVisit
from tests.notices.test_sending import Hook, hook
from tests.support.loopback import Site, crawl, html
from tests.support.schemas import checked
from training import report


@pytest.fixture
def project(project_directory: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The `news` spider of the project, with a store of its own."""
    return make_project(project_directory, store_path, monkeypatch)


def make_project(
    directory: Path, store: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any] | None = None
) -> Project:
    """Load the `news` spider with a given store, and further settings."""
    monkeypatch.syspath_prepend(str(directory))
    values = {
        "SPIDER_MODULES": ["monitored_site.spiders"],
        "GP4C_STORE": str(store),
        "GP4C_SCORE_FUNCTION": "t * (X + 0.5)",
        **(settings or {}),
    }
    return Project(ScrapySettings(values), "news")


def scrapy_gp4c(
    directory: Path, *arguments: object, stdout: Any = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run ``scrapy gp4c`` in the project's directory."""
    command = [sys.executable, "-m", "scrapy", "gp4c", *map(str, arguments)]
    return subprocess.run(
        command, cwd=directory, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "TZ": "UTC"},
    )  # fmt: skip


def in_process(project: Any, name: str, *arguments: object) -> None:
    """Run an action with its options, without a process of its own."""
    import argparse

    parser = argparse.ArgumentParser()
    action = ACTIONS[name]
    assert isinstance(action, Action)
    action.add_options(parser)
    action(project, parser.parse_args([str(argument) for argument in arguments]))


def exported(project: Project, matrix_bytes: int = export.MATRIX_BYTES) -> str:
    """The history of the project's store as text."""
    with project.open_store() as store:
        return "".join(line + "\n" for line in export.lines(store, matrix_bytes=matrix_bytes))


def crawl_cycles(project: Project, outcomes: list[dict[int, str]]) -> None:
    """Run one cycle per dictionary: page -> outcome."""
    with project.open_store(readonly=False) as store:
        for of_page in outcomes:
            cycle = store.begin_cycle({"started": 86400.0, "score_function": "t * X"})
            for page, outcome in of_page.items():
                store.record(
                    NewVisit(page, outcome, time=1.0, fingerprint=cycle * 1000 + page, kind="ranked")
                )
            store.finish_cycle({"finished": 90000.0, "visited": len(of_page)})


def urls(count: int) -> list[str]:
    return [f"http://site{number % 3}.example/page/{number}" for number in range(count)]


@pytest.mark.slow
def test_the_commands_work_from_the_shell(project_directory: Path, tmp_path: Path) -> None:
    """import, status, pages, export and import again, each a real ``scrapy gp4c`` process."""
    store, again = ("GP4C_STORE=" + str(tmp_path / name) for name in ("store", "again"))
    listing = tmp_path / "urls.txt"
    listing.write_text("# to monitor\n\n" + "\n".join(urls(5)) + "\n" + urls(1)[0] + "\n")
    result = scrapy_gp4c(
        project_directory, "import", "news", listing, "--callback", "parse_article", "-s", store
    )
    assert (result.returncode, result.stderr) == (0, "5 pages added, 1 known already\n")
    with Store(tmp_path / "store") as opened_store:
        assert opened_store.requests(range(5)) == [
            {"url": url, "callback": "parse_article"} for url in urls(5)
        ]
        for outcome in ("first", "changed", "unchanged"):
            opened_store.begin_cycle({"started": 86400.0, "score_function": "t * X"})
            for page in range(3):
                opened_store.record(NewVisit(page, outcome, time=1.0, fingerprint=page))
            opened_store.finish_cycle(
                {"finished": 90000.0, "visited": 3, "changed": 3, "change_rate": 0.5, "planned": 4}
            )
    with Store(tmp_path / "store") as opened_store:  # the commands work while a crawl has the store
        opened_store.begin_cycle({"started": 86400.0})
        opened_store.record(NewVisit(4, "first", time=1.0))
        opened_store.commit()
        status = scrapy_gp4c(project_directory, "status", "news", "-s", store)
        options = ("-s", "GP4C_SCORE_FUNCTION=t * (X + 0.5)")
        pages = scrapy_gp4c(project_directory, "pages", "news", "--top", 2, "-s", store, *options)
        output = scrapy_gp4c(project_directory, "export", "news", "-o", tmp_path / "h.tsv.gz", "-s", store)
        stores = scrapy_gp4c(project_directory, "stores", "-s", f"GP4C_STORE={tmp_path}/{{spider}}")
        none = scrapy_gp4c(
            project_directory, "stores", "news", "-s", f"GP4C_STORE={tmp_path}/none/{{spider}}"
        )
    assert stores.stdout.splitlines()[1].split()[-1] == str(tmp_path / "store")
    assert none.stdout == "there is no store yet: run a spider once, or check GP4C_STORE\n"
    assert status.returncode == pages.returncode == output.returncode == 0, output.stderr
    text = " ".join(status.stdout.split())
    assert "pages 5 never fetched 2 in warm-up 0 ranked 3 gone 0" in text
    assert "learning needs 10 cycles (there are 3) and pages that every cycle visits: set GP4C_PANEL" in text
    assert "3 1970-01-02 00:00:00 1970-01-02 01:00:00 4 3 3 0.500 t * X" in text
    assert "4 1970-01-02 00:00:00 unfinished - 1 0 - -" in text
    lines = pages.stdout.splitlines()
    assert lines[0].split() == ["score", "n", "X", "t", "last", "outcome", "URL"]
    assert lines[1].split() == ["1.5", "2", "1", "1", "unchanged", urls(1)[0]]
    assert len(lines) == 3
    result = scrapy_gp4c(project_directory, "import", "news", tmp_path / "h.tsv.gz", "-s", again)
    assert (result.returncode, result.stderr) == (0, "restored 5 pages with 3 cycles\n")
    result = scrapy_gp4c(project_directory, "export", "news", "-s", again)
    assert result.stdout == gzip.decompress((tmp_path / "h.tsv.gz").read_bytes()).decode()


@pytest.mark.slow
def test_errors_are_one_message(project_directory: Path, tmp_path: Path) -> None:
    """Bad input: exit code 1 or 2 and one message that names it, never a traceback."""
    store = f"GP4C_STORE={tmp_path / 'none'}"
    for arguments, message in (
        (("status", "nobody"), "there is no spider 'nobody'; the project's spiders are: news, other"),
        (("status", "news", "-s", store), "there is no page store"),
        (("status", "news", "-s", "GP4C_BUDGET=7.5"), "GP4C_BUDGET must be"),
        (("status", "news", "--frobnicate"), "unrecognised arguments: --frobnicate"),
        (("import", "news", tmp_path / "missing", "-s", store), "No such file"),
        (("export", "news", "-o", "/nowhere/x", "-s", store), "there is no page store"),
        (("frobnicate", "news"), "invalid choice"),
        (("status", "news", "-s", f"GP4C_STORE={'x' * 5000}"), "File name too long. Check"),
        (("plan", "news", "-s", store, "--budget", "9" * 400), "or a count of at least 1; found '999"),
        (("changes", "news", "--cycle", "9" * 30), "expected a count of at most 2147483647"),
        (("monitor", "news", "--every", "9" * 400 + "h"), "expected a duration"),
        (("status", "news", "--cycles", "some"), "expected a count of at least 1; found 'some'"),
        (("store", "frobnicate", "news"), "scrapy gp4c store: error: argument ACTION: invalid choice"),
    ):
        result = scrapy_gp4c(project_directory, *arguments)
        assert result.returncode in (1, 2)
        assert message in result.stderr, result.stderr
        assert result.stderr.count(message) == 1
        assert "Traceback" not in result.stderr
    assert not (tmp_path / "none").exists()
    command = f"{sys.executable} -m scrapy gp4c stores >&-"
    closed = subprocess.run(command, shell=True, cwd=project_directory, stderr=subprocess.PIPE, check=False)
    assert (closed.returncode, closed.stderr) == (0, b"")
    outside = scrapy_gp4c(tmp_path, "status", "news").stderr
    assert outside == (
        "scrapy gp4c status: there is no Scrapy project here: go to the directory that has scrapy.cfg\n"
    )


def test_pages_sorts_and_matches(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The order is by score, changes or last attempt; --match restricts; blocks do not matter."""
    open_store(project.store_path, sizes=Sizes(block_rows=3)).close()
    (tmp_path / "urls").write_text("\n".join(urls(10)))
    in_process(project, "import", tmp_path / "urls")
    crawl_cycles(
        project,
        [
            dict.fromkeys(range(9), "first"),
            dict.fromkeys(range(8), "changed"),
            dict.fromkeys((5, 6), "changed"),
            dict.fromkeys((5, 2), "unchanged"),
            {3: "error"},
        ],
    )

    def shown(*arguments: object) -> list[int]:
        capsys.readouterr()
        in_process(project, "pages", *arguments)
        lines = capsys.readouterr().out.splitlines()[1:]
        return [int(line.rpartition("/")[2]) for line in lines]

    assert shown("--top", 2, "--sort", "changes") == [5, 6]
    assert shown("--top", 3, "--sort", "last") == [3, 2, 5]
    assert shown("--top", 100)[0] == 6  # t * X = 3 * 2
    assert sorted(shown("--top", 100)) == list(range(9))
    assert sorted(shown("--match", "site1")) == [1, 4, 7]
    in_process(project, "pages", "--match", "nowhere")
    assert capsys.readouterr().out == "no page that matches nowhere was fetched yet\n"
    project.settings = dataclasses.replace(
        project.settings, score_function=load("near_site * surprise_dir + 0 * rate_site * near")
    )
    # Of the last three cycles: site2 found 1 change in 2 visits, site0 its own in 1, site1 none.
    assert {page % 3 for page in shown("--top", 3)} == {0}
    project.settings = dataclasses.replace(project.settings, score_function=load("X"))
    crawl_cycles(project, [{6: "gone"}] * project.settings.gone_after)
    assert shown("--top", 100)[-1] == 6  # the best score stood first, of a page that no plan asks for


requests_strategy = st.fixed_dictionaries(
    {},
    optional={
        "callback": st.just("parse_article"),
        "cb_kwargs": st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2),
        "meta": st.dictionaries(st.text(max_size=3), st.none() | st.booleans(), max_size=2),
    },
)


@given(
    requests=st.lists(requests_strategy, max_size=12),
    cycles=st.lists(st.lists(st.none() | st.sampled_from(OUTCOMES), max_size=12), max_size=6),
    tags=st.lists(st.none() | st.text(min_size=1, max_size=4), min_size=12, max_size=12),
)
@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_export_import_export_is_the_same(
    project_directory: Path,
    tmp_path_factory: pytest.TempPathFactory,
    requests: list[dict[str, Any]],
    cycles: list[list[str | None]],
    tags: list[str | None],
) -> None:
    """Any history survives: the text is the same, the store sound, and so is what ranking reads."""
    directory = tmp_path_factory.mktemp("round")
    with pytest.MonkeyPatch.context() as patch:
        first = make_project(project_directory, directory / "first", patch)
        second = make_project(project_directory, directory / "second", patch)
        with first.open_store(readonly=False) as store:
            stored = [{"url": url} | extra for url, extra in zip(urls(12), requests, strict=False)]
            store.add_pages(first.page(request) for request in stored)
            for page, tag in enumerate(tags[: len(stored)]):
                store.set_validators(page, tag, None)
        plan = []
        copied: set[int] = set()
        for outcomes in cycles:
            of_page: dict[int, str] = {}
            for page, outcome in enumerate(outcomes[: len(requests)]):
                if outcome is not None:  # without a copy, nothing can be judged
                    judged = outcome in ("unchanged", "changed", "not_modified")
                    of_page[page] = "first" if judged and page not in copied else outcome
                    if of_page[page] == "first":
                        of_page[page] = "unchanged" if page in copied else "first"
                        copied.add(page)
            plan.append(of_page)
        crawl_cycles(first, plan)
        text = exported(first, matrix_bytes=10)
        (directory / "history").write_text(text)
        numbered = files.content_lines(directory / "history")
        import_history(second.store_path, "history", numbered, second.page, pages_per_batch=5)
        assert exported(second) == text
        with first.open_store() as a, second.open_store() as b:
            assert b.verify() == []
            assert a.pages == b.pages
            for page in range(a.pages):
                row = a.page(page)
                if OUTCOMES[row.outcome] == "not_modified":  # in the text it is an unchanged page
                    row = row._replace(outcome=OUTCOMES.index("unchanged"))
                assert row == b.page(page)
                assert a.request(page) == b.request(page)
                assert a.validators(page) == b.validators(page)


def test_a_long_file_needs_little_memory(project: Project, tmp_path: Path) -> None:
    """A long gzip file is read as a stream: the generator holds one line."""
    import tracemalloc

    path = tmp_path / "urls.dat"
    with gzip.open(path, "wt") as file:
        for number in range(200_000):
            file.write(f"http://h.example/{number}\n")
    tracemalloc.start()
    count = sum(1 for _ in files.content_lines(str(path)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 200_000
    assert peak < 2_000_000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not a url", "line 3: .*"),
        ("ftp://h.example/", "line 3: expected an http or https URL; found 'ftp://h.example/'"),
        ("http:///x", "line 3: expected an http or https URL"),
        ("http://h.example/\xff", "line 3: expected UTF-8 text; found byte 0xff at position 18"),
        ("http://h.example/2\tmuch", "line 3: expected a number from 0 to 1,000,000 as weight; found 'much'"),
        ("http://h.example/2\tnan", "line 3: expected a number from 0 to 1,000,000 as weight; found nan"),
        ("http://h.example/2\t-1", "line 3: expected a number from 0 to 1,000,000 as weight; found -1.0"),
        ("http://h.example/2\t1e308", "line 3: expected a number .* as weight; found 1e[+]308"),
        ("http://h.example/2\t3\t4", "line 3: expected a number .* as weight; found '3.t4'"),
    ],
)
def test_a_bad_line_is_named_and_what_was_before_it_kept(
    project: Project, tmp_path: Path, line: str, message: str
) -> None:
    """A URL that is none stops the import with its line number; the pages before it are in the store."""
    (tmp_path / "urls").write_bytes(f"http://h.example/1\n\n{line}\nhttp://h.example/2\n".encode("latin-1"))
    with pytest.raises(ImportFileError, match=message):
        in_process(project, "import", tmp_path / "urls")
    with project.open_store() as store:
        assert store.requests(range(store.pages)) == [{"url": "http://h.example/1"}]


def weights(project: Project) -> list[float]:
    """Of all pages, as requests and lists have them."""
    with project.open_store() as store:
        return [store.weight(page) for page in range(store.pages)]


def test_a_list_may_give_weights(project: Project, tmp_path: Path) -> None:
    """Behind a tab; the last one said counts, and a line without leaves what is known. So does an export."""
    listed = urls(4)
    (tmp_path / "urls").write_text(f"{listed[0]}\t2.5\n{listed[1]}\n{listed[2]}\t7\n{listed[2]}\t0\n")
    in_process(project, "import", tmp_path / "urls")
    assert weights(project) == [2.5, 1.0, 0.0]
    (tmp_path / "more").write_text(f"{listed[0]}\n{listed[1]}\t 0.25 \n{listed[3]}\n{listed[2]}\t1\n")
    in_process(project, "import", tmp_path / "more")
    assert weights(project) == [2.5, 0.25, 1.0, 1.0]
    before = exported(project)
    assert before.count('"weight"') == 2
    project.store_path.rename(tmp_path / "elsewhere")
    (tmp_path / "history").write_text(before)
    in_process(project, "import", tmp_path / "history")
    assert exported(project) == before
    assert weights(project) == [2.5, 0.25, 1.0, 1.0]


def test_weights_given_while_a_cycle_is_unfinished_come_with_its_fold(
    project: Project, tmp_path: Path
) -> None:
    """Its plan was made by the old ones; a bad line leaves those before it."""
    with project.open_store(readonly=False) as store:
        store.add_pages([project.page({"url": urls(1)[0]})])
        store.begin_cycle({"started": 1.0})
        store.note(0, "weight", 9.0)
    (tmp_path / "urls").write_text(f"{urls(1)[0]}\t3\n{urls(2)[1]}\t4\nhttp://h.example/\tx\n")
    with pytest.raises(ImportFileError, match="line 3: expected a number"):
        in_process(project, "import", tmp_path / "urls")
    assert weights(project) == [3.0, 4.0]
    with project.open_store(readonly=False) as store:
        ((_, block),) = store.blocks()
        assert block["weight"].tolist() == [1.0, 1.0]
        store.finish_cycle({})
        ((_, block),) = store.blocks()
        assert block["weight"].tolist() == [3.0, 4.0]
        assert store.verify() == []


def test_urls_can_be_added_while_a_cycle_is_unfinished(project: Project, tmp_path: Path) -> None:
    """After a kill the import works, and the open cycle keeps its visits and new pages."""
    with project.open_store(readonly=False) as store:
        store.begin_cycle({"started": 1.0})
        page = store.add_page(*project.page({"url": "http://h.example/found"}))
        store.record(NewVisit(page, "first", time=1.0))
    (tmp_path / "urls").write_text("http://h.example/found\nhttp://h.example/added\n")
    in_process(project, "import", tmp_path / "urls")
    with project.open_store(readonly=False) as store:
        assert store.open_cycle == 1
        assert [request["url"] for request in store.requests([0, 1])] == [
            "http://h.example/found",
            "http://h.example/added",
        ]
        assert store.visited(0)
        assert not store.visited(1)
        store.finish_cycle({})
        assert store.verify() == []


GOOD = ["h", "http://h.example/1", "1.0", json.dumps({"first_cycle": 1})]


def stored(**request: Any) -> str:
    """The JSON of a page with such a stored request."""
    return json.dumps({"first_cycle": 1, "request": request})


BAD_LINES = [
    (["h", "http://h.example/2"], "expected site, page, bits and JSON"),
    (["h", "http://h.example/2", "1x0", "{}"], "expected bits of '0', '1' and '.'; found '1x0'"),
    (["h", "http://h.example/2", "1.", "{}"], "expected 3 bits as for 4 cycles; found 2"),
    (["h", "nonsense", "1.0", "{}"], "nonsense"),
    (GOOD, "comes a second time"),
]
BAD_JSON = [
    ("{", "Expecting property name"),
    ("[]", "expected an object"),
    ('{"first_cycle": 3}', "must come before the first judged 2"),
    ('{"first_cycle": "x"}', "first_cycle: expected a whole number; found 'x'"),
    ('{"last_attempt": 9}', "expected cycles of at most 4"),
    ('{"outcome": "first"}', "outcome: invalid enum value 'first'"),
    ('{"fingerprint": "xyz"}', "fingerprint: "),
    (f'{{"fingerprint": "{"f" * 100}"}}', "fingerprint: expected a text matching"),
    ('{"fingerprint": 7}', "fingerprint: expected a text or null"),
    ('{"fingerprint": "-1"}', "fingerprint: expected a text matching"),
    ('{"failures": -1}', "failures: expected a whole number >= 0"),
    ('{"gone": 256}', "gone: expected a whole number <= 255"),
    ('{"entered": -3}', "entered: expected a whole number >= 0"),
    ('{"first_cycle": true}', "expected a whole number"),
    ('{"outcome": ["gone"]}', "outcome: expected a text"),
    ('{"etag": 7}', "etag: expected a text or null"),
    (stored(callback=7), "expected a text as the request's callback; found '7'"),
    (stored(priority="x"), "expected a whole number as the request's priority; found 'x'"),
    (stored(meta=[1]), "expected an object as the request's meta"),
    (stored(headers={"Accept": "x"}), "expected a list as the request's headers"),
    (stored(cookies=[1]), "expected an object as the request's cookies"),
    (stored(url=7), "expected a text as the request's url; found '7'"),
    ('{"claims": [[9, "sitemap", 2]]}', "expected cycles of at most 4"),
    ('{"dq": [[2, 1], [1, 1]]}', "dq: expected each cycle once, in order; found"),
]
WRONG_VALUES: dict[str, list[Any]] = {
    "claims": [1, [[1, "sitemap"]], [[1, "rumour", 2]], [[-1, "sitemap", 2]], [[1, ["sitemap"], 2]],
               [[True, "sitemap", 2]]],
    "seen_min": ["x", -1, 1e9],
    "dq": ["x", [1], [[0, 1.0]], [[1.5, 1.0]], [[1, "a"]], [[1, math.nan]], [[1, 1e39]], [[1, True]]],
    "weight": [-1, math.nan, 1e308, "3", True, None, [1]],
}  # fmt: skip
BAD_JSON += [(json.dumps({name: one}), f"{name}: ") for name, wrong in WRONG_VALUES.items() for one in wrong]


@pytest.mark.parametrize(
    ("fields", "message"),
    [*BAD_LINES, *((["h", "http://h.example/2", "1.0", state], message) for state, message in BAD_JSON)],
)
def test_a_bad_history_leaves_no_store(
    project: Project, tmp_path: Path, fields: list[str], message: str
) -> None:
    """A line that cannot be restored: its number, what was expected, and no trace of a store."""
    (tmp_path / "history").write_text("\t".join(GOOD) + "\n" + "\t".join(fields) + "\n")
    with pytest.raises(ImportFileError, match="line 2: ") as caught:
        in_process(project, "import", tmp_path / "history")
    assert message in str(caught.value)
    assert list(project.store_path.parent.glob("store*")) == []


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (['{"format": "gp4c-history/1", "cycles": 2}', "{}"], "line 2: expected the record of cycle 1"),
        (['{"format": "gp4c-history/1", "cycles": 1}', '{"cycle": 1}'], "line 2: expected the record"),
        (
            ['{"format": "gp4c-history/1", "cycles": 1}', '{"cycle": 1, "started": [], "finished": 2}'],
            "line 2: expected the record of cycle 1",
        ),
        (['{"format": "gp4c-history/1", "cycles": 1}'], "expected the records of 1 cycle"),
        (['{"format": "gp4c-history/1", "cycles": -1}'], "line 1: expected the header"),
        (['{"format": "gp4c-history/1", "cycles": ["x"]}'], "line 1: expected the header"),
        (['{"format": "gp4c-history/1", "cycles": 1e400}'], "line 1: expected the header"),
    ],
)
def test_records_that_are_none_are_named(
    project: Project, tmp_path: Path, header: list[str], message: str
) -> None:
    """By the line of the file; there is no store then."""
    (tmp_path / "history").write_text("".join(f"# {line}\n" for line in header))
    with pytest.raises(ImportFileError) as caught:
        in_process(project, "import", tmp_path / "history")
    assert message in str(caught.value)
    assert not project.store_path.exists()


def test_many_cycles_are_exported_and_imported(project: Project, tmp_path: Path) -> None:
    """Each cycle's record is a line of its own: no line grows with the number of cycles."""
    with project.open_store(readonly=False) as store:
        for _ in range(300):
            store.begin_cycle({"started": 1.0, "formula": "t " * 500})
            store.finish_cycle({})
        records = store.cycles()
    in_process(project, "export", "-o", tmp_path / "history")
    assert max(map(len, (tmp_path / "history").read_bytes().splitlines())) < 2_000
    project.store_path.rename(tmp_path / "away")
    in_process(project, "import", tmp_path / "history")
    with project.open_store() as store:
        assert store.cycles() == records


def test_a_history_goes_into_a_new_store_only(project: Project, tmp_path: Path) -> None:
    """A store with pages is left as it is; an empty one is filled. Three columns are enough."""
    (tmp_path / "history").write_text("\t".join(GOOD[:3]) + "\n")
    project.open_store(readonly=False).close()
    in_process(project, "import", tmp_path / "history")
    with project.open_store() as store:
        row = store.page(0)
        assert (row.n, row.X, row.first_cycle, row.last_cycle, row.has_copy) == (2, 1, 1, 4, 0)
        assert len(store.cycles()) == store.last_cycle == 4
    with pytest.raises(StoreError, match="has 1 page and 4 cycles: a history is restored into a new store"):
        in_process(project, "import", tmp_path / "history")
    with project.open_store(readonly=False) as store:
        assert store.begin_cycle({}) == 5


def test_the_entry_point_leads_to_the_command() -> None:
    """Scrapy finds the command as it finds those of any package."""
    from importlib.metadata import entry_points

    (entry,) = (entry for entry in entry_points(group="scrapy.commands") if entry.name == "gp4c")
    assert entry.load() is Command


@pytest.mark.slow
def test_an_output_without_room_is_one_message(project_directory: Path, tmp_path: Path) -> None:
    """A full disk behind the standard output or ``-o``: one line, exit code 1, and the device stays one."""
    store = f"GP4C_STORE={tmp_path / 'store'}"
    open_store(tmp_path / "store").close()
    for arguments in (("status",), ("export",), ("export", "-o", "/dev/full")):
        with open("/dev/full", "wb") as full:
            words = (arguments[0], "news", *arguments[1:], "-s", store)
            result = scrapy_gp4c(project_directory, *words, stdout=full)
        assert result.returncode == 1
        assert result.stderr.startswith(f"scrapy gp4c {arguments[0]}: cannot write ")
        assert "No space left on device" in result.stderr
        assert result.stderr.count("\n") == 1, result.stderr
    assert Path("/dev/full").is_char_device()


def test_a_gzip_line_of_gigabytes_is_not_read_into_memory(project: Project, tmp_path: Path) -> None:
    """A small file that unpacks to one long line is an error that names the line; memory stays small."""
    with gzip.open(tmp_path / "bomb.gz", "wb") as packed:
        packed.write(b"http://h/1\n")
        for _ in range(3):
            packed.write(b"x" * files.MAX_LINE_BYTES)
    with pytest.raises(ImportFileError, match=r"line 2: expected at most 16,777,216 bytes"):
        in_process(project, "import", tmp_path / "bomb.gz")


@pytest.mark.parametrize("seconds", [4.0e12, -1e18, 1e300, float("inf")])
def test_a_clock_thousands_of_years_ahead_breaks_nothing(
    project: Project, tmp_path: Path, seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """status, export, import and report of cycles in the year 128,724: the number stands for the date."""
    with project.open_store(readonly=False) as store:
        page = store.add_pages([project.page({"url": urls(1)[0]})])
        assert page == (1, 0)
        for outcome in ("first", "changed"):
            store.begin_cycle({"started": seconds})
            store.record(NewVisit(0, outcome, time=seconds, fingerprint=1))
            store.finish_cycle({"finished": seconds, "visited": 1})
    in_process(project, "status")
    assert f"{seconds} s" in capsys.readouterr().out
    (tmp_path / "history").write_text(exported(project))
    assert report.main([str(project.store_path), "-o", str(tmp_path / "report.html")]) == 0
    assert f"{seconds} s" in (tmp_path / "report.html").read_text()
    project.store_path.rename(tmp_path / "old")
    in_process(project, "import", tmp_path / "history")
    in_process(project, "status")


def test_a_store_is_taken_care_of(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verified, backed up, damaged, told so in words, brought back, compacted."""
    with project.open_store(readonly=False) as store:
        store.add_pages(project.page({"url": url}) for url in urls(9))
    crawl_cycles(project, [dict.fromkeys(range(9), "first"), dict.fromkeys(range(9), "changed")])
    for options in ([], ["--deep"]):
        in_process(project, "store verify", *options)
        assert capsys.readouterr().out == f"{project.store_path} is sound\n"
    in_process(project, "store backup", tmp_path / "backups", "--keep", 1)
    made = Path(capsys.readouterr().out.strip())
    assert made.parent == tmp_path / "backups"
    data = project.store_path / "data.mdb"
    data.write_bytes(data.read_bytes().replace(b"/page/4", b"/page/5"))
    with pytest.raises(StoreDamagedError, match="is damaged, in 1 place"):
        in_process(project, "store verify")
    assert capsys.readouterr().out == "urls: page 4: the request of a page is damaged\n"
    in_process(project, "store restore", made)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{project.store_path} is what {made} has"
    assert out[1].startswith(f"the replaced file is kept in {project.store_path}.before-restore-")
    in_process(project, "store compact")
    assert "MB before" in capsys.readouterr().out
    in_process(project, "store verify", "--deep")


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
        assert store.weight(0) == 2.0


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


__all__ = ["hook"]
SETTINGS = {"GP4C_BUDGET": 1.0, "GP4C_ARCHIVE": True, "GP4C_GONE_AFTER": 2}


class News(Spider):
    """Follows the links of a list."""

    name = "news"

    def parse(self, response: Any) -> Iterator[Request]:
        yield from response.follow_all(css="a")


async def test_commands_tell_what_crawls_found(
    site: Site,
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hook: Hook,
    tmp_path: Path,
) -> None:
    """A page that changed once, and one that fails since the second cycle, also after a hint."""
    News.start_urls = [site.url("/list")]
    for version in range(3):
        site.pages["/list"] = html("a list", links=["/a", "/b"])
        site.pages["/a"] = html(f"the price is {min(version, 1) + 10} euros today, as ever")
        if version == 0:
            site.pages["/b"] = html("page b")
        else:
            site.pages.pop("/b", None)
        await crawl(News, store_path, SETTINGS)
    settings = {**SETTINGS, "GP4C_NOTIFY": [hook.url]}
    project = make_project(project_directory, store_path, monkeypatch, settings)

    def run(action: str, *words: str) -> str:
        in_process(project, action, *words)
        return capsys.readouterr().out

    visits = checked("history", run("history", site.url("/a"), "--json"))["visits"]
    assert [visit["outcome"] for visit in visits] == ["first", "changed", "unchanged"]
    assert "{+11+}" in visits[1]["diff"][0]
    assert "3 visits, 2 of them compared it, 1 found a change" in run("history", site.url("/a"))
    (failing,) = checked("failing", run("failing", "--json"))["pages"]
    assert (failing["url"], failing["outcome"]) == (site.url("/b"), "gone")
    assert failing["found_on"] == site.url("/list")
    assert (failing["failures"], failing["last_success"]) == (2, 1)
    second = json.loads(run("history", site.url("/b"), "--json"))["visits"][1]
    assert (failing["status"], failing["error"], failing["since"]) == (404, None, second["time"])
    assert run("failing", "--match", "*/a") == "no page that matches */a fails\n"
    (tmp_path / "hints").write_text(site.url("/b"))
    run("hint", str(tmp_path / "hints"))  # which ends its wait, and not its failures
    assert json.loads(run("failing", "--json"))["pages"] == [failing]

    def printed(*words: str) -> list[tuple[int, str, str]]:
        document = checked("changes", run("changes", "--json", "--last", "9", *words))
        return [(one["cycle"], one["kind"], one["url"].rpartition("/")[2]) for one in document["changes"]]

    assert printed() == [(2, "changed", "a")]
    assert sorted(printed("--new", "--match", "*/[ab]")) == [(1, "new", "a"), (1, "new", "b")]
    assert printed("--failing", "--gone") == [(2, "failing", "b"), (3, "gone", "b")]
    assert sorted(printed("--changed", "--failing")) == [(2, "changed", "a"), (2, "failing", "b")]
    assert "{+11+}" in run("changes", "--changed", "--failing", "--last", "9", "--diff")
    assert "failing in cycle 2" in run("changes", "--failing", "--last", "9", "--diff")
    assert run("changes", "--cycle", "99") == "there is no such cycle yet: the newest is 3\n"
    assert run("changes", "--since", "2100-01-01") == "there is no cycle since then: the newest is 3\n"
    assert run("changes", "--new", "--match", "zz") == "no page that matches zz was new in cycle 3\n"
    run("feed", "-o", str(tmp_path / "changes.json"))
    assert json.loads((tmp_path / "changes.json").read_text())["items"][-1]["url"] == site.url("/a")
    assert 'gp4c_cycle{spider="news"} 3.0' in run("metrics")
    assert "A test message was sent to 1 receiver" in run("notify", "--test")
    assert hook.received[0]["title"] == "news: 1 changed"
    assert "Nothing waits for 1 receiver" in run("notify")
    hook.received.clear()
    await crawl(News, store_path, {"GP4C_NOTIFY": [{"url": hook.url, "events": "failing"}], **SETTINGS})
    assert hook.received == []
    (again,) = json.loads(run("failing", "--json"))["pages"]
    assert again == {**failing, "failures": 3, "last_visit": 4}
    hook.status = 500
    with pytest.raises(
        NoticeError, match=r"did not accept the message in time, or redirects to another address\)$"
    ):
        run("notify", "--test")  # which the next run does not send again
