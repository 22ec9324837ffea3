"""``scrapy gp4c plan`` and ``why``, on the store of a real crawl."""

import json
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.commands.actions import IN_PLACE_OF_SETTINGS
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.store.opening import open_store
from tests.commands.test_commands import (
    in_process,
    make_project,
    scrapy_gp4c,
)
from tests.support.loopback import Pages, Site, crawl, html
from tests.support.schemas import DOCUMENTS, FOLDER, checked, document
from tests.support.sources import ROOT

PAGES = 12
SETTINGS = {"GP4C_SCORE_FUNCTION": "t * (X + 0.5)", "GP4C_BUDGET": 3, "GP4C_WARMUP_VISITS": 1}
SETTINGS["GP4C_DISCOVERY"] = 0.0


class News(Pages):
    """Asks for all pages in every cycle."""

    name = "news"


async def crawled(site: Site, store: Path, cycles: int) -> None:
    """Crawl, pages 0 to 3 changing before every cycle."""
    for cycle in range(cycles):
        for page in range(PAGES):
            words = f"cycle{cycle} " * 9 if page < 4 else ""
            site.pages[f"/{page}"] = html(f"page{page} " * 20 + words, [])
        await crawl(News, store, SETTINGS, site=site)


async def test_plan_and_why_tell_what_the_next_crawl_does(
    site: Site,
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The plan is that of the next cycle; each page's score, rank and next visit fit it."""
    await crawled(site, store_path, 4)
    project = make_project(project_directory, store_path, monkeypatch, SETTINGS)
    in_process(project, "plan", "--urls", "--json")
    planned = checked("plan", capsys.readouterr().out)
    explained = {}
    for page in range(PAGES):
        in_process(project, "why", site.url(f"/{page}"), "--json")
        explained[site.url(f"/{page}")] = checked("why", capsys.readouterr().out)
    in_process(project, "plan")
    text = capsys.readouterr().out
    assert f"cycle 5 would visit 3 of {PAGES} pages: budget 3 (3 pages), score function" in text
    in_process(project, "why", site.url("/0"))
    text = capsys.readouterr().out
    assert "ranked by the score function" in text
    assert "score       t * (X + 0.5) = " in text

    await crawl(News, store_path, SETTINGS, site=site)
    with open_store(store_path, readonly=True) as store:
        ((_, visits),) = store.visits(5, 5)
        visited = [store.request(page)["url"] for page in visits["page"].tolist()]
    urls = [one["url"] for one in planned["urls"]]
    assert sorted(visited) == sorted(urls)
    assert (planned["cycle"], planned["pages"], planned["kinds"]["ranked"]) == (5, 3, 3)
    assert [(one["pages"], one["ranked"]) for one in planned["sites"]] == [(3, 3)]
    for url, one in explained.items():
        score = one["score"]
        assert parse(score["filled"])({}, 1)[0] == score["value"]
        numbers = {name: np.array([value]) for name, value in one["terminals"].items()}
        assert load(score["formula"]).expression(numbers)[0] == score["value"]
        assert (score["rank"] <= score["chosen"]) == (url in visited)
        assert (one["next_visit"]["cycle"] == 5) == (url in visited)
        assert one["different"]["budget"] == (None if url in visited else score["rank"])
        assert [past["cycle"] for past in one["past"]] == [4, 3, 2, 1]
    assert [explained[url]["score"]["rank"] for url in urls] == [1, 2, 3]


@pytest.mark.slow
async def test_plan_by_other_settings_and_an_unknown_page(
    site: Site,
    store_path: Path,
    project_directory: Path,
) -> None:
    """From the shell: a score with a minus sign, another budget; the nearest of an unknown page."""
    await crawled(site, store_path, 3)
    where = ("-s", f"GP4C_STORE={store_path}", "-s", "GP4C_DISCOVERY=0.0")
    other = scrapy_gp4c(
        project_directory, "plan", "news", "--budget", 2, "--score", "-X", "--urls", "--json", *where
    )
    assert other.returncode == 0, other.stderr
    planned = checked("plan", other.stdout)
    assert (planned["formula"], planned["budget_pages"], len(planned["urls"])) == ("-X", 2, 2)
    assert all(one["score"] == 0 for one in planned["urls"])
    unknown = scrapy_gp4c(project_directory, "why", "news", site.url("/100"), *where)
    assert unknown.returncode == 1
    first, *nearest = unknown.stderr.splitlines()
    assert first == f"scrapy gp4c why: no page of the store has the URL {site.url('/100')}; the nearest are:"
    assert nearest == [f"  {site.url(path)}" for path in ("/10", "/1", "/11", "/0", "/2")]
    no_url = scrapy_gp4c(project_directory, "history", "news", "100", *where)
    assert (no_url.returncode, "such as https://example.com/a" in no_url.stderr) == (1, True), no_url.stderr


def test_a_page_that_is_never_visited(
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Others are ahead for ever, or the page is gone and looked at later: it is said, and why."""
    project = make_project(
        project_directory, store_path, monkeypatch, SETTINGS | {"GP4C_SCORE_FUNCTION": "X"}
    )
    _history(project)
    for page, words in ((5, "never, as long as nothing changes"), (2, "looked at again from cycle")):
        in_process(project, "why", f"http://site/{page}")
        text = capsys.readouterr().out
        assert words in text
        in_process(project, "why", f"http://site/{page}", "--json")
        assert checked("why", capsys.readouterr().out)["next_visit"]["never"] == (page == 5)


def _history(project: Project) -> None:
    """Six pages: 0, 1, 3, 4 change, 2 vanishes, 5 stays."""
    from tests.commands.test_commands import crawl_cycles

    with project.open_store(readonly=False) as store:
        store.add_pages(project.page({"url": f"http://site/{page}"}) for page in range(6))
    changing = {0: "changed", 1: "changed", 3: "changed", 4: "changed", 2: "gone", 5: "unchanged"}
    crawl_cycles(project, [dict.fromkeys(range(6), "first"), *[changing] * 4])


def test_every_option_in_place_of_a_setting_is_one() -> None:
    """What the command line sets is checked as a setting is."""
    from scrapy_gp4c.settings.table import TABLE

    assert set(IN_PLACE_OF_SETTINGS.values()) <= TABLE.keys()


@pytest.mark.parametrize("action", sorted(DOCUMENTS))
def test_schemas_are_documented(action: str) -> None:
    """The files are what the records say: ``python -m tests.support.schemas`` writes them."""
    assert json.loads((FOLDER / f"{action}.json").read_text("utf-8")) == document(action)
    assert f"(schemas/{action}.json)" in (ROOT / "docs" / "commands.md").read_text("utf-8")
