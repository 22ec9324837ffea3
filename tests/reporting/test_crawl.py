"""The report of a crawl: what it counts, and that commands and browser show it."""

import importlib.util
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from twisted.internet import reactor
from twisted.web.http import Request

from scrapy_gp4c.errors import HistoryError, SettingsError
from scrapy_gp4c.page_state.outcomes import OUTCOMES, PLAN
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.commands.test_commands import in_process, make_project, scrapy_gp4c, urls
from tests.support.browser import NEEDS_BROWSER, browser, open_page, requested
from tests.support.loopback import Listed, Site, crawl, html
from tests.support.pages import check
from training import report
from training.reporting import crawl as reporting
from training.reporting.crawl import crawl_page, read_story

ROOT = Path(__file__).parents[2]
CYCLES: tuple[dict[int, tuple[str, str, float]], ...] = (
    dict.fromkeys(range(6), ("new", "first", 0.01)) | {6: ("new", "gone", 0.02)},
    {page: ("warmup", "changed" if page < 2 else "unchanged", 0.01) for page in range(6)},
    {0: ("ranked", "changed", 0.4), 1: ("ranked", "changed", 0.2), 2: ("panel", "unchanged", 0.01)},
    {0: ("ranked", "changed", 0.4), 1: ("ranked", "unchanged", 0.2), 3: ("ranked", "error", 0.0)},
)
"""Per cycle: page -> kind, outcome, latency in s."""


def make_store(path: Path, open_cycle: bool = False) -> Path:
    """A store with four cycles over eight pages on three hosts; page 7 was never visited."""
    with Store(path) as store:
        store.add_pages((page + 1, {"url": url}) for page, url in enumerate(urls(8)))
        for number, visits in enumerate(CYCLES):
            score = "age" if number < 3 else "t * (X + 0.5)"
            formula = {"age": "t"}.get(score, score)
            started = 1000.0 * number
            record = {"started": started, "budget": 0.3, "score_function": score, "formula": formula}
            store.begin_cycle(record)
            store.add_round(np.empty(0, PLAN), seen=0)
            for page, (kind, outcome, latency_s) in visits.items():
                store.record(
                    NewVisit(page, outcome, time=started, kind=kind, latency_s=latency_s, fingerprint=page)
                )
            store.finish_cycle({"finished": started + 60.0, "visited": len(visits), "known": 8})
        if open_cycle:
            store.begin_cycle({"started": 5000.0})
    return path


def test_the_story_by_hand(store_path: Path) -> None:
    """Counts, rates, hosts and pages are those of the visits listed above."""
    story = read_story(make_store(store_path))
    assert story.counts.sum() == sum(map(len, CYCLES))
    assert story.rate(slice(None), ("ranked",)) == 3 / 4  # the error is not judged
    assert story.rate(slice(None)) == 5 / 11
    assert story.rate(1) == 2 / 6
    assert math.isnan(story.rate(0))
    hosts = {host.name: host for host in story.hosts}
    assert {name: host.pages for name, host in hosts.items()} == {
        "site0.example": 3, "site1.example": 3, "site2.example": 2,
    }  # fmt: skip
    first = hosts["site0.example"]  # pages 0, 3 and 6
    named = dict(zip(OUTCOMES, first.outcomes.tolist(), strict=True))
    assert {name: count for name, count in named.items() if count} == {
        "first": 2, "changed": 3, "unchanged": 1, "error": 1, "gone": 1,
    }  # fmt: skip
    assert sorted(first.latencies_ms.tolist()) == [10, 10, 10, 10, 20, 400, 400]
    assert [page[:3] for page in story.top] == [(urls(8)[0], 3, 3), (urls(8)[1], 2, 3)]
    assert story.last_outcomes["never visited"] == 1
    assert story.last_outcomes["gone"] == 1
    assert sum(story.last_outcomes.values()) == 8


def test_the_page(store_path: Path, tmp_path: Path) -> None:
    """The report is well formed, names the function in use, its history, and the slowest host."""
    output = tmp_path / "report.html"
    assert report.main([str(make_store(store_path, open_cycle=True)), "-o", str(output)]) == 0
    text = output.read_text()
    check(text)
    assert ">75.0%</output>" in text
    assert "of the visits that the score function chose found a change. Of the panel" in text
    assert "<code>t * (X + 0.5)</code>" in text
    assert "Score functions over time" in text
    assert "5 is not finished and not in this report" in text
    hosts = text[text.index("Slowest hosts</h2>") :]
    assert hosts.index("site1.example") < hosts.index("site2.example")
    for name in OUTCOMES:
        assert name.replace("_", " ") in text


def test_a_point_of_many_cycles_is_their_mean(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last point of sums, of fewer cycles, looked like a crawl that broke down."""
    monkeypatch.setattr(reporting, "MOST_POINTS", 2)
    (section,) = (one for one in crawl_page(make_store(store_path)).sections if one.title == "Cycle by cycle")
    assert section.lead == "Each point is the mean of 2 cycles: there are 4."
    assert '<td data-head="new pages" class="number">3.500</td>' in str(section.blocks[1])


def test_before_the_first_ranked_cycle(store_path: Path) -> None:
    """A crawl in its warm-up has a report too, which says so."""
    with Store(store_path) as store:
        store.add_pages((page + 1, {"url": url}) for page, url in enumerate(urls(2)))
        for outcome in ("first", "unchanged"):
            store.begin_cycle({"started": 0.0, "score_function": "my.function", "formula": "my.function"})
            store.record(NewVisit(0, outcome, time=1.0))
            store.finish_cycle({"finished": 2.0})
    page = crawl_page(store_path)
    assert "has not chosen any visit yet" in page.headline
    assert page.number == "0.0%"


@pytest.mark.parametrize("what", ["nothing", "no cycle", "foreign"])
def test_stores_without_a_story(what: str, store_path: Path) -> None:
    """A missing, empty or foreign store is one clear error."""
    if what == "no cycle":
        with Store(store_path) as store:
            store.add_pages([(1, {"url": urls(1)[0]})])
    if what == "foreign":
        store_path.mkdir()
        (store_path / "data.mdb").write_bytes(b"not a store")
    with pytest.raises(HistoryError) as error:
        read_story(store_path)
    assert str(store_path) in str(error.value)


@pytest.mark.slow
def test_the_command(project_directory: Path, tmp_path: Path) -> None:
    """``scrapy gp4c report`` writes the page; a store that is missing is one message and exit code 1."""
    store = make_store(tmp_path / "store")
    output = tmp_path / "report.html"
    done = scrapy_gp4c(project_directory, "report", "news", "-o", output, "-s", f"GP4C_STORE={store}")
    assert (done.returncode, done.stderr) == (0, "")
    check(output.read_text())
    gone = scrapy_gp4c(project_directory, "report", "news", "-s", f"GP4C_STORE={tmp_path / 'gone'}")
    assert gone.returncode == 1
    assert gone.stderr.count("\n") == 1
    assert "scrapy gp4c report: " in gone.stderr
    assert str(tmp_path / "gone") in gone.stderr


def test_without_the_train_extra(
    project_directory: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that only crawls is told what to install, and how to make the report elsewhere."""
    project = make_project(project_directory, store_path, monkeypatch)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "scrapy_gp4c.commands.learning.find_spec", lambda name: None if name == "jinja2" else find(name)
    )
    with pytest.raises(SettingsError, match=r"needs jinja2.*scrapy-gp4c\[train\].*python -m training.report"):
        in_process(project, "report")


@pytest.mark.slow
def test_make_report_needs_a_demo(tmp_path: Path) -> None:
    """Without a demo, `make report` says what to run first."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    installed = tmp_path / ".venv" / "installed"
    installed.parent.mkdir()
    for name in ("setup.cfg", "pyproject.toml"):
        (tmp_path / name).touch()
    installed.touch()
    done = subprocess.run(
        ["make", "report", f"PYTHON={sys.executable}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "run make demo first" in done.stderr


async def test_latency_of_a_real_crawl(site: Site, store_path: Path) -> None:
    """A page that answers after 0.2 s is recorded as slower than that; one that fails has none."""

    def slow(request: Request) -> None:
        def answer() -> None:
            request.write(html("slow page").encode())
            request.finish()

        reactor.callLater(0.2, answer)  # type: ignore[attr-defined]

    site.pages["/slow"] = slow
    site.pages["/fast"] = html("fast page")

    class Local(Listed):
        name = "local"
        start_urls = (site.url("/slow"), site.url("/fast"), "http://127.0.0.1:1/refused")

    await crawl(Local, store_path, {"RETRY_ENABLED": False})
    with Store(store_path, readonly=True) as store:
        visits = np.concatenate([visits for _, visits in store.visits()])
        paths = [request["url"].rsplit("/", 1)[1] for request in store.requests(visits["page"])]
    latency_ms = dict(zip(paths, visits["latency_ms"].tolist(), strict=True))
    assert latency_ms["slow"] >= 200
    assert latency_ms["fast"] > 0
    assert latency_ms["refused"] == 0


@pytest.mark.slow
@NEEDS_BROWSER
def test_in_a_browser(store_path: Path, tmp_path: Path) -> None:
    """Chromium opens the report of a crawl without console error or request, on a phone too."""
    output = tmp_path / "report.html"
    assert report.main([str(make_store(store_path)), "-o", str(output)]) == 0
    with browser() as driver:
        for width, scheme in ((1280, "dark"), (390, "light")):
            open_page(driver, output, width, scheme)
            assert driver.find_element("id", "headline").text == "75.0%"
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
            assert requested(driver) == [output.as_uri()]
        assert not [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"]
