"""``scrapy gp4c forget``."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.commands.forget import url_pattern
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.errors import ForgetError
from scrapy_gp4c.store.records import NewVisit
from tests.commands.test_commands import in_process, make_project, scrapy_gp4c
from tests.support.schemas import checked

DAY_S = 86_400.0


@pytest.fixture
def project(project_directory: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The `news` spider of the project, with a store of its own."""
    return make_project(project_directory, store_path, monkeypatch)


def fill(project: Project, cycles: list[dict[str, NewVisit]]) -> None:
    """Visits by URL, one cycle per day."""
    with project.open_store(readonly=False) as store:
        for number, visits in enumerate(cycles, 1):
            store.begin_cycle({"started": number * DAY_S})
            for url, visit in visits.items():
                key, request = project.page({"url": url})
                page = store.find(key)
                page = store.add_page(key, request) if page is None else page
                store.record(visit._replace(page=page, fingerprint=7))
            store.finish_cycle({"finished": number * DAY_S + 600, "visited": len(visits)})


def visit(outcome: str, size_bytes: int = 0) -> NewVisit:
    """A visit of some page."""
    return NewVisit(0, outcome, time=1.0, bytes=size_bytes)


def files_of(project: Project) -> list[str]:
    with project.open_store() as store:
        assert store.verify() == []
        return [request["url"] for request in store.requests(range(store.pages))]


PAGES = ["http://a.example/1", "http://a.example/2?x=(1)", "http://b.example/tag/1", "http://b.example/tag/2"]


@pytest.mark.parametrize(
    ("options", "remaining"),
    [
        (["http://b.example/tag/*"], PAGES[:2]),
        (["*"], []),
        (["http://a.example/2?x=(1)"], [PAGES[0], *PAGES[2:]]),
        (["http://a.example"], PAGES),
        (["*example/?ag/*"], PAGES),
        (["--gone"], PAGES[1:]),
        (["http://b.*", "--gone"], PAGES),
    ],
)
def test_pages_are_chosen_by_all_that_is_given(
    project: Project, capsys: pytest.CaptureFixture[str], options: list[str], remaining: list[str]
) -> None:
    """By URL and outcome; a dry run tells the same pages and takes none."""
    first, same, gone = visit("first", 9), visit("unchanged", 9), visit("gone", 9)
    fill(
        project,
        [
            dict.fromkeys(PAGES, first),
            {PAGES[0]: gone, PAGES[1]: same, PAGES[2]: visit("error"), PAGES[3]: same},
            {PAGES[0]: gone, PAGES[1]: same, PAGES[3]: same},
            {PAGES[0]: gone, PAGES[1]: visit("excluded", 9), PAGES[3]: visit("excluded")},
        ],
    )
    in_process(project, "forget", *options, "--dry-run", "--json")
    planned = checked("forget", capsys.readouterr().out)
    assert files_of(project) == PAGES
    assert (planned["pages"], planned["forgotten"]) == (4, 4 - len(remaining))
    assert set(planned["examples"]) == set(PAGES) - set(remaining)
    assert sum(planned["hosts"].values()) == planned["forgotten"]
    in_process(project, "forget", *options, "--yes", "--json")
    assert checked("forget", capsys.readouterr().out) == {**planned, "dry_run": False}
    assert files_of(project) == remaining


@given(st.lists(st.sampled_from(["a", "b", "*", "?", ".", "\n"])), st.text("ab?.\n"))
def test_only_stars_stand_for_other_text(pattern: list[str], url: str) -> None:
    """Whole URLs are matched; everything but a star stands for itself, question marks too."""

    def fits(rest: list[str], text: str) -> bool:
        if not rest:
            return not text
        if rest[0] == "*":
            return any(fits(rest[1:], text[start:]) for start in range(len(text) + 1))
        return text[:1] == rest[0] and fits(rest[1:], text[1:])

    pattern, url = pattern[:5], url[:8]
    assert (url_pattern("".join(pattern)).fullmatch(url) is not None) == fits(pattern, url)


@pytest.mark.parametrize(("answer", "goes"), [("y\n", True), ("n\n", False), ("", False), ("\n", False)])
def test_it_asks_before(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    goes: bool,
) -> None:
    """Yes is said in so many words; an end of the input is none."""
    fill(project, [dict.fromkeys(PAGES, visit("first", 9))])
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    if goes:
        in_process(project, "forget", "*//a.example/*")
        assert "forgot 2 pages with their visits" in capsys.readouterr().out
    else:
        with pytest.raises(ForgetError, match="nothing is forgotten"):
            in_process(project, "forget", "*//a.example/*")
    out = capsys.readouterr().out
    assert goes or "2 of 4 pages" in out
    assert len(files_of(project)) == (2 if goes else 4)


def test_what_is_not_said_is_not_guessed(project: Project) -> None:
    """Without any choice, and with --json without an answer, it is refused."""
    fill(project, [dict.fromkeys(PAGES, visit("first", 9))])
    with pytest.raises(ForgetError, match="expected a PATTERN or --gone"):
        in_process(project, "forget", "--yes")
    with pytest.raises(ForgetError, match="--json does not ask"):
        in_process(project, "forget", "*", "--json")
    assert files_of(project) == PAGES


def test_many_pages_are_told_in_few_lines(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The first URLs and hosts, and how many more."""
    urls = [f"http://site{number % 12}.example/{number}?token=secret" for number in range(30)]
    fill(project, [dict.fromkeys(urls, visit("first", 9))])
    in_process(project, "forget", "*", "--dry-run")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("30 of 30 pages of ")
    assert "  and those of 2 more hosts" in lines
    assert lines[-1] == "  and 20 more"
    assert "secret" not in "".join(lines)


@pytest.mark.slow
def test_it_works_from_the_shell(project_directory: Path, project: Project, store_path: Path) -> None:
    """Exit code 0 and 1, one message on stderr."""
    fill(project, [dict.fromkeys(PAGES, visit("first", 9))])
    options = ("-s", f"GP4C_STORE={store_path}")
    refused = scrapy_gp4c(project_directory, "forget", "news", *options)
    assert refused.returncode == 1
    assert refused.stderr.startswith("scrapy gp4c forget: expected a PATTERN")
    done = scrapy_gp4c(project_directory, "forget", "news", "*/tag/*", "--yes", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert files_of(project) == PAGES[:2]
