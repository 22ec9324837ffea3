"""Promises about pages in real crawls: how often pages are visited, and what of them is compared."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from scrapy import Request, Spider
from scrapy.http import Response

from scrapy_gp4c import visit
from scrapy_gp4c.fingerprint import ComparedPart, compared_part
from scrapy_gp4c.fingerprint.worker_process import LARGE_BYTES
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.commands.test_commands import in_process, make_project
from tests.support.loopback import Site, crawl, html, outcomes, path_of, stats

PAGES = [f"/{kind}/{number}" for kind in ("terms", "shop", "slow", "other") for number in range(4)]
RULES: list[dict[str, Any]] = [
    {"match": "*/terms/*", "max_age": 1},
    {"match": {"tag": "shop"}, "max_age": 3},
    {"match": "/slow/", "min_interval": "2 cycles"},
    {"match": "*/never/*", "never": True},
    {"match": "*/nothing/*", "max_age": "1d"},
]


class Pages(Spider):
    """Asks for some pages in its first run."""

    name = "pages"
    paths: ClassVar[list[str]] = []
    meta: ClassVar[dict[str, dict[str, Any]]] = {}
    site: ClassVar[Site]
    seen: ClassVar[list[Any]] = []

    async def start(self) -> Any:
        for path in self.paths:
            yield Request(self.site.url(path), meta=self.meta.get(path, {}))

    def parse(self, response: Any) -> Iterator[Any]:
        self.seen.append((path_of(response.url), dict(visit(response)), visit(response).diff()))
        yield {"url": response.url}


@pytest.fixture
def pages(site: Site) -> type[Pages]:
    """Spider of a site."""

    class OwnPages(Pages):
        paths: ClassVar[list[str]] = list(PAGES)
        meta: ClassVar[dict[str, dict[str, Any]]] = {}
        seen: ClassVar[list[Any]] = []

    OwnPages.site = site
    site.pages.update({path: html(f"the text of {path}, some words long") for path in PAGES})
    return OwnPages


def visited(site: Site) -> list[str]:
    """Paths that were asked for since the last call."""
    paths = sorted(path for method, path in site.log if method == "GET" and path != "/robots.txt")
    site.log.clear()
    return paths


async def test_rules_say_how_often_pages_are_visited(
    site: Site,
    pages: type[Pages],
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Promised pages come before the ranking, intervals hold for all others, and commands tell of both."""
    settings = {"GP4C_BUDGET": 9, "GP4C_RULES": RULES, "GP4C_WARMUP_VISITS": 0}
    pages.meta |= {path: {"gp4c_tag": "shop"} for path in PAGES if path.startswith("/shop/")}
    site.pages["/never/1"] = html("never")
    pages.paths.append("/never/1")
    await crawl(pages, store_path, settings)
    assert visited(site) == sorted(PAGES)
    assert "no page matches rule 5 ('*/nothing/*')" in caplog.text
    assert "rule 4" not in caplog.text
    pages.paths.clear()
    cycles = []
    for _ in range(6):
        await crawl(pages, store_path, settings)
        cycles.append(visited(site))
    # The control group holds intervals, too.
    everything = {"GP4C_RULES": RULES, "GP4C_WARMUP_VISITS": 9, "GP4C_PANEL": 1.0, "GP4C_BUDGET": 1.0}
    for _ in range(2):
        await crawl(pages, store_path, everything)
        cycles.append(visited(site))
    for number, paths in enumerate(cycles):
        assert {f"/terms/{n}" for n in range(4)} <= set(paths)
        assert (
            not set(paths) & set(cycles[number - 1] if number else PAGES) & {f"/slow/{n}" for n in range(4)}
        )
    for path in PAGES[4:8]:
        assert any(path in paths for paths in cycles[:3])
        assert any(path in paths for paths in cycles[3:])
    # The page that links to never/1 is not visited in a cycle that finds another page.
    site.pages["/later/1"] = html("later")
    pages.paths.append("/later/1")
    await crawl(pages, store_path, settings)
    assert "/later/1" in visited(site)
    assert "rule 4" not in caplog.text
    project = make_project(project_directory, store_path, monkeypatch, settings)

    def run(action: str, *words: str) -> Any:
        in_process(project, action, *words)
        return capsys.readouterr().out

    assert "rule 1 ('*/terms/*'): 4 pages" in run("status")
    assert "rule 5 ('*/nothing/*'): no page matches it" in run("status")
    plan = json.loads(run("plan", "--json"))
    assert plan["promises"]["late"] == 0
    assert plan["kinds"]["promised"] > 0
    assert "in time; they need" in run("plan")
    why = run("why", site.url("/terms/1"))
    assert "rule 1 ('*/terms/*') is for it: visited at least every 1 cycle" in why
    assert "and visited when its promise is due" in why
    assert "rule 3 ('/slow/') is for it: visited at most every 2 cycles" in run("why", site.url("/slow/1"))


async def test_a_budget_too_small_for_the_promises_is_one_warning(
    site: Site, pages: type[Pages], store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With figures; the latest pages come first, and none starves."""
    settings = {"GP4C_BUDGET": 6, "GP4C_WARMUP_VISITS": 0, "GP4C_RULES": [{"match": "*", "max_age": 1}]}
    await crawl(pages, store_path, settings)
    counts = dict.fromkeys(PAGES, 0)
    for _ in range(3):
        caplog.clear()
        site.log.clear()
        await crawl(pages, store_path, settings)
        for path in visited(site):
            counts[path] += 1
        lines = [one.getMessage() for one in caplog.records if "promises need" in one.getMessage()]
        assert len(lines) == 1
        assert lines[0].startswith("promises need 16 visits a cycle, the budget is 6: ")
    assert set(counts.values()) == {1, 2}


async def test_times_of_rules_are_times_of_cycles(
    site: Site, pages: type[Pages], store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cycles each 6 hours: a page of one day is visited in every fourth, seconds early or late.

    A visit by a clock that was ten years ahead delays nothing.
    """
    now = [1_000_000.0]
    for module in ("cycle", "promises"):
        monkeypatch.setattr(
            f"scrapy_gp4c.crawling.{module}.time", SimpleNamespace(time=lambda: now[0]), raising=True
        )
    settings = {
        "GP4C_BUDGET": 1,
        "GP4C_DISCOVERY": 0.0,
        "GP4C_WARMUP_VISITS": 0,
        "GP4C_RULES": [
            {"match": "/terms/0", "max_age": "1d", "min_interval": "1d"},
            {"match": "*", "min_interval": "52w"},
        ],
    }
    times = []
    for cycle in range(14):
        ahead_s = 3e8 * (cycle == 8)
        now[0] += ahead_s
        await crawl(pages, store_path, settings)
        times += [cycle] * ("/terms/0" in visited(site))
        now[0] += 6 * 3600.0 + (7.0 if cycle % 2 else -9.0) - ahead_s
    assert times == [0, 4, 8, 9, 13]


async def test_requests_promise_for_their_own_page_alone(
    site: Site, pages: type[Pages], store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What a request says is kept with its page, wins over the rules, and is not copied to others."""

    class Copying(pages):  # type: ignore[misc, valid-type]
        def parse(self, response: Any) -> Iterator[Any]:
            assert not {"gp4c_max_age", "gp4c_tag"} & response.meta.keys()
            yield from response.follow_all(css="a", meta=dict(response.meta))

    site.pages["/terms/0"] = html("terms", links=["/shop/0"])
    Copying.paths = PAGES[:4] + PAGES[8:]
    Copying.meta = {
        "/terms/0": {"gp4c_max_age": 1},
        "/terms/1": {"gp4c_max_age": "1"},
        "/terms/2": {"gp4c_max_age": "1d", "gp4c_min_interval": 3},
        "/terms/3": {"gp4c_max_age": 9},
    }
    settings = {
        "GP4C_BUDGET": 2,
        "GP4C_WARMUP_VISITS": 0,
        "GP4C_RULES": [{"match": "/terms/0", "max_age": 9}],
    }
    await crawl(Copying, store_path, settings)
    assert "gp4c_max_age in its meta is not used: expected a time with its unit" in caplog.text
    Copying.meta = {"/terms/2": Copying.meta["/terms/2"], "/terms/3": {"gp4c_min_interval": "6h"}}
    caplog.clear()
    for _ in range(3):
        site.log.clear()
        await crawl(Copying, store_path, settings)
        assert "/terms/0" in visited(site)
    with Store(store_path, readonly=True) as store:
        said = {path_of(one["url"]): one.get("meta", {}) for one in store.requests(range(store.pages))}
    assert {path for path, meta in said.items() if "gp4c_max_age" in meta} == {"/terms/0"}
    assert "are not used: max_age (1d) and min_interval (3 cycles) cannot be compared" in caplog.text
    assert said["/terms/3"] == {"gp4c_min_interval": "6h"}  # the newest request counts


@pytest.mark.slow
async def test_a_watched_part_alone_is_compared_kept_and_shown(
    site: Site,
    pages: type[Pages],
    store_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also a date, which else is masked; what is ignored counts nowhere; a missing part is doubtful.

    Large pages hold up no other: their parts are cut out beside the reactor.
    """

    def cut_of_small(response: Response, *arguments: Any) -> ComparedPart:
        assert len(response.body) < LARGE_BYTES or arguments[1:] == ((), ())
        return compared_part(response, *arguments)

    monkeypatch.setattr("scrapy_gp4c.crawling.visits.compared_part", cut_of_small)
    large = f"<script>{'x' * LARGE_BYTES}</script>"

    def page(price: str, advert: str, other: str = "as it was", script: str = large) -> str:
        return (
            f"<html><body>{script}<h1>A lamp</h1><p class='price'>{price}</p><p>{other}</p>"
            f"<div id='advert'>{advert}</div></body></html>"
        )

    rules = [
        {"match": "/shop/", "watch": ".price, h1", "distance": "any"},
        {"match": "/other/", "ignore": ["#advert", "//h1"]},
    ]
    settings = {
        "GP4C_BUDGET": 1.0,
        "GP4C_RULES": rules,
        "GP4C_ARCHIVE": True,
        "GP4C_SKIP_UNCHANGED": True,
    }
    pages.paths = ["/shop/0", "/other/0"]
    days = [
        ("from 1 May 2026", "buy soap", "as it was"),
        ("from 1 May 2026", "buy oil", "as it was"),
        ("from 2 May 2026", "buy tea", "as it was"),
        ("from 2 May 2026", "buy rice", "quite another text of some words"),
    ]
    for day, (price, advert, other) in enumerate(days, 1):
        site.pages["/shop/0"] = site.pages["/other/0"] = page(price, advert, other)
        pages.seen.clear()
        await crawl(pages, store_path, settings)
        seen = {path: diff for path, _, diff in pages.seen}
        if day == 3:
            assert outcomes(store_path, 3)["/shop/0"] == ["changed"]
            assert "[-1-] {+2+} may 2026" in seen["/shop/0"].lower()
        if day == 4:
            assert seen.keys() == {"/other/0"}
            assert "{+quite another text" in seen["/other/0"]
            assert "rice" not in seen["/other/0"]
    assert outcomes(store_path, 2) == {"/shop/0": ["unchanged"], "/other/0": ["unchanged"]}
    site.pages["/shop/0"] = html("the lamp is sold", title="")
    site.pages["/shop/0"] = "<html><body><p>nothing that is watched</p></body></html>"
    await crawl(pages, store_path, settings)
    assert outcomes(store_path, 5)["/shop/0"] == ["doubtful"]
    assert "rule 1 ('/shop/') leaves nothing of" in caplog.text
    site.pages["/shop/0"] = page("from 2 May 2026", "", "", script="")
    settings["GP4C_RULES"] = [{"match": "/shop/", "watch": "h1"}, {"match": "/other/", "ignore": "body"}]
    crawler = await crawl(pages, store_path, settings)
    assert outcomes(store_path, 6) == {"/shop/0": ["unchanged"], "/other/0": ["doubtful"]}
    assert "rule 2 ('/other/') leaves nothing of" in caplog.text  # it was unchanged for ever
    assert stats(crawler)["compared_anew"] == 1


async def test_a_distance_in_words_counts_words(site: Site, pages: type[Pages], store_path: Path) -> None:
    """Small changes add up against the copy until they are as many as the rule wants."""
    words = [f"word{number}" for number in range(200)]
    rules = [
        {"match": "/shop/", "distance": "words:3"},
        {"match": "/slow/", "distance": "share:2%"},
        {"match": "*", "distance": "any"},
    ]
    settings = {"GP4C_BUDGET": 1.0, "GP4C_RULES": rules, "GP4C_ARCHIVE": True}
    pages.paths = ["/shop/0", "/slow/0", "/other/0"]
    results: dict[str, list[str]] = {path: [] for path in pages.paths}
    for day in range(1, 7):
        for path in pages.paths:
            site.pages[path] = html(" ".join(words))
        await crawl(pages, store_path, settings)
        for path, (outcome,) in outcomes(store_path, day).items():
            results[path].append(outcome)
        words[day * 20] = f"other{day}"
    assert results["/other/0"] == ["first"] + ["changed"] * 5
    assert results["/shop/0"] == ["first", "unchanged", "unchanged", "changed", "unchanged", "unchanged"]
    assert results["/slow/0"] == ["first", "unchanged", "unchanged", "unchanged", "unchanged", "changed"]


async def test_weights_of_rules_are_the_pages(site: Site, pages: type[Pages], store_path: Path) -> None:
    """New pages have them at once, known ones from the next cycle on; a request's own comes first."""
    pages.paths = PAGES[:8]
    pages.meta |= {"/shop/0": {"gp4c_weight": 7.0}}
    await crawl(pages, store_path, {"GP4C_RULES": [{"match": "/shop/", "weight": 2.0}]})

    def weights() -> dict[str, float]:
        with Store(store_path, readonly=True) as store:
            urls = [path_of(one["url"]) for one in store.requests(range(store.pages))]
            return {path: store.weight(page) for page, path in enumerate(urls)}

    assert weights() == {
        path: (7.0 if path == "/shop/0" else 2.0 if "shop" in path else 1.0) for path in PAGES[:8]
    }
    await crawl(pages, store_path, {"GP4C_RULES": [{"match": "/terms/", "weight": 0.5}]})
    assert weights()["/terms/0"] == 0.5


def test_no_rules_cost_nothing_in_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is read, and no rule is asked, where there is none."""
    from tests.crawling.test_planning import planned

    def fail(*words: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("scrapy_gp4c.crawling.promises.PageRules.__init__", fail)
    row = {"key": 1, "group": 0, "n": 3, "has_copy": 1, "failures": 0, "gone": 0, "last_attempt": 1}
    assert planned({}, [{**row, "key": key} for key in range(5)]).counts["ranked"] == 1
