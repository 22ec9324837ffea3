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
from scrapy_gp4c.page_state.outcomes import FAILED, KINDS, OUTCOMES, PLAN
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.commands.test_commands import in_process, make_project, scrapy_gp4c, urls
from tests.support.browser import NEEDS_BROWSER, browser, open_page, requested
from tests.support.growing import columns, random_web
from tests.support.growing import crawl as crawl_growing
from tests.support.loopback import Listed, Site, crawl, html
from tests.support.pages import check
from training import report
from training.reporting import crawl as reporting
from training.reporting.crawl import (
    UNKNOWN,
    NewPages,
    crawl_page,
    hints_section,
    new_pages_section,
    read_new_pages,
    read_story,
    read_weighted_visits,
    weighted_section,
)
from training.reporting.page import render

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


URLS = [f"http://site.example/{name}" for name in ("", "old", "list", "a", "b", "c")]


def growing_store(path: Path) -> Path:
    """A store of five cycles: the list is visited in cycles 1, 2 and 5, and brings a in 2, b and c in 5."""
    finders = {0: START, 1: 1, 2: 1, 3: 3, 4: 3, 5: 5}
    cycles = (
        {0: ("new", "first"), 1: ("new", "first"), 2: ("new", "first")},
        {2: ("warmup", "changed"), 3: ("new", "first"), 0: ("warmup", "unchanged")},
        {1: ("warmup", "unchanged")},
        {1: ("ranked", "changed"), 2: ("hub", "error")},
        {2: ("hub", "changed"), 4: ("new", "first"), 5: ("new", "error")},
    )
    with Store(path) as store:
        for number, visits in enumerate(cycles):
            store.begin_cycle({"started": 1000.0 * number, "score_function": "age", "formula": "t"})
            store.add_round(np.empty(0, PLAN), seen=0)
            for page, (kind, outcome) in visits.items():
                if page == store.pages:
                    store.add_page(page + 1, {"url": URLS[page]})
                    store.note(page, "found_by", finders[page])
                store.record(
                    NewVisit(page, outcome, time=1000.0 * number + 1, kind=kind, fingerprint=page + number)
                )
            store.finish_cycle({"finished": 1000.0 * number + 60.0})
    return path


def test_new_pages_by_hand(store_path: Path) -> None:
    """The list was seen in cycle 2: what it lists in 5 may be there since 3. Page c has no copy."""
    with Store(growing_store(store_path), readonly=True) as store:
        result = read_new_pages(store)
    assert result is not None
    assert result.entered.tolist() == [2, 5, 5]
    assert result.by_hub.tolist() == [False, True, False]
    assert result.delay.tolist() == [0, 2, UNKNOWN]
    (best,) = result.bringers
    assert (best.url, best.brought, best.hub_visits, best.last_cycle) == (URLS[2], 2, 2, 5)


def test_the_section(store_path: Path) -> None:
    """The report says how many came by hubs and how late, and names the hub; its terms are explained."""
    text = render(crawl_page(growing_store(store_path)))
    assert "3 pages became known after the first cycle, 33.3% of them on visits to" in text
    assert "at most 1.00 cycles in the mean" in text
    assert ">http://site.example/list<" in text
    assert 'id="d-delay"' in text


def by_definition(store: Store) -> NewPages:
    """The same page by page, from the log of visits."""
    visits = [(cycle, *row) for cycle, rows in store.visits() for row in rows[["page", "kind", "outcome"]]]
    rows = columns(store, "entered", "found_by", "first_cycle")
    entered, by_hub, delay = [], [], []
    for page_key, found_by, first in rows:
        if page_key < 2:
            continue
        root = found_by
        while root and root != START and rows[root - 1][0] == page_key:
            root = rows[root - 1][1]
        before = [
            cycle
            for cycle, page, _, outcome in visits
            if page + 1 == root and cycle < page_key and outcome not in FAILED
        ]
        entered.append(page_key)
        by_hub.append(any((page_key, found_by - 1, "hub") == (c, p, KINDS[k]) for c, p, k, _ in visits))
        delay.append(first - max(before) - 1 if before and first else UNKNOWN)
    return NewPages(np.array(entered), np.array(by_hub), np.array(delay), [])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_crawls_of_growing_webs(seed: int, store_path: Path) -> None:
    """A report of new pages is equal to one made page by page from the log of the crawl."""
    crawl_growing(store_path, random_web(seed), {"GP4C_BUDGET": 0.2, "GP4C_WARMUP_VISITS": 1})
    with Store(store_path, readonly=True) as store:
        counts, wanted = read_new_pages(store), by_definition(store)
    assert counts is not None
    assert len(counts.entered) > 3
    for name in ("entered", "by_hub", "delay"):
        assert getattr(counts, name).tolist() == getattr(wanted, name).tolist(), name


def test_stores_that_tell_nothing(store_path: Path) -> None:
    """A store of one cycle has no section; one whose pages were all there at the start says so."""
    with Store(store_path) as store:
        for number in range(3):
            store.begin_cycle({"started": 1.0, "score_function": "age", "formula": "t"})
            if not number:
                store.add_page(1, {"url": URLS[0]})
            store.record(NewVisit(0, "unchanged" if number else "first", time=2.0))
            store.finish_cycle({"finished": 3.0})
            assert (read_new_pages(store) is None) == (number == 0)
    section = new_pages_section(store_path)
    assert section is not None
    assert "No page became known after the first cycle" in section.blocks[0]


PAGES, WEIGHTED_CYCLES = 12, 9
SITES = ("true.example", "now.example", "silent.example")


def hinted_store(path: Path, noted: bool = True) -> Path:
    """Three sites, one page of each changes in a cycle: they date it (but once), all pages, and none."""
    with Store(path) as store:
        for cycle in range(WEIGHTED_CYCLES):
            start = 1000.0 * cycle
            store.begin_cycle({"started": start, "score_function": "age", "formula": "t"})
            if not cycle:
                for number in range(PAGES * len(SITES)):
                    site, page = divmod(number, PAGES)
                    store.add_page(number + 1, {"url": f"http://{SITES[site]}/{page}"})
            changed = {site * PAGES + cycle % PAGES for site in range(len(SITES))}
            if noted:
                dated = [number for number in sorted(changed) if number < PAGES and cycle != 4] + [
                    *range(PAGES, 2 * PAGES)
                ]
                store.note_many(np.array(dated), "sitemap", np.full(len(dated), start + 1.0))
                store.note_many(np.arange(PAGES), "sitemap", np.ones(PAGES))
            for number in range(PAGES * len(SITES)):
                outcome = "first" if not cycle else "changed" if number in changed else "unchanged"
                store.record(NewVisit(number, outcome, time=start + 500.0, fingerprint=number))
            store.finish_cycle({"finished": start + 600.0})
    return path


def test_how_often_sites_were_right(store_path: Path) -> None:
    """Dates that are true hold and come first; what dates all pages is right as often as a page changes."""
    section = hints_section(hinted_store(store_path))
    assert section is not None
    text = render(crawl_page(store_path))
    rows = text[text.index("What sites say of their pages</h2>") :]
    assert "silent.example" not in rows[: rows.index("</section>")]
    true, now = rows.index("true.example"), rows.index("now.example")
    assert true < now
    assert rows[true:now].count(">yes<") == 1
    assert "100%" in rows[true:now]  # of the claims: one change was found without
    assert ">no<" in rows[now : rows.index("</section>")]
    assert "8.3%" in rows[now : rows.index("</section>")]
    assert 'id="d-right"' in text


def test_without_hints(store_path: Path) -> None:
    """Where no site said anything, there is no section."""
    assert hints_section(hinted_store(store_path, noted=False)) is None


HUB_OUTCOMES = (
    ["first"] * 4,
    ["changed", "unchanged", "changed", "error"],
    ["unchanged", "not_modified", "changed", "changed"],
    ["error"] * 4,
)


def weighted_store(path: Path, weights: list[float] | None) -> Path:
    with Store(path) as store:
        store.add_pages((number + 1, {"url": f"http://h/{number}"}) for number in range(4))
        if weights is not None:
            store.put_weights(np.arange(4), np.array(weights))
        for cycle, outcomes in enumerate(HUB_OUTCOMES):
            store.begin_cycle({"started": 1000.0 * cycle, "score_function": "age", "formula": "t"})
            for page, outcome in enumerate(outcomes):
                store.record(NewVisit(page, outcome, time=1000.0 * cycle + 5.0, fingerprint=page + 1))
            store.finish_cycle({"finished": 1000.0 * cycle + 9.0})
    return path


def test_what_visits_found_by_weight(store_path: Path) -> None:
    """By hand: three judged visits in cycle 2, four in cycle 3, none before or after."""
    weighted_store(store_path, [8.0, 1.0, 0.5, 2.5])
    with Store(store_path, readonly=True) as store:
        by_weight = read_weighted_visits(store)
    assert by_weight is not None
    assert by_weight.others == 3
    assert by_weight.judged.tolist() == [0.0, 3.0, 4.0, 0.0]
    assert by_weight.changed_weight.tolist() == [0.0, 8.5, 3.0, 0.0]
    assert by_weight.judged_weight.tolist() == [0.0, 9.5, 12.0, 0.0]
    assert by_weight.rate(1, weighted=True) == 8.5 / 3
    assert by_weight.rate(slice(None), weighted=False) == 4 / 7
    assert by_weight.share(2) == 3.0 / 12.0
    assert math.isnan(by_weight.share(0))
    assert math.isnan(by_weight.rate(3, weighted=True))
    text = render(crawl_page(store_path))
    section = text[text.index("By weight</h2>") :]
    section = section[: section.index("</section>")]
    assert "3 pages weigh other than 1" in section
    assert "53.5%" in section  # 11.5 of 21.5
    assert "57.1%" in section


@pytest.mark.parametrize("weights", [None, [1.0] * 4])
def test_pages_that_weigh_the_same_need_no_section(weights: list[float] | None, store_path: Path) -> None:
    """It would say the same twice."""
    assert weighted_section(weighted_store(store_path, weights)) is None
