"""What the next cycles would visit: held against crawls that then do it."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scrapy.settings import Settings as ScrapySettings

from benchmarks.simulated_crawl import crawl_store, texts_of
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.forecast import (
    PagesInMemory,
    forecast,
    forecasts,
    is_shut_out,
    pages_before,
    rank_of_page,
    visit_history,
)
from scrapy_gp4c.page_state.outcomes import KINDS, OUTCOMES
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import open_store

PAGES, CYCLES, AHEAD = 60, 5, 12
KEYS = np.random.default_rng(5).integers(1, 2**63, PAGES, dtype=np.uint64)


def loaded(**settings: Any) -> Settings:
    """Settings of a crawl, names without their prefix."""
    usual = {"BUDGET": 7, "WARMUP_VISITS": 1}
    return Settings.load(
        ScrapySettings({f"GP4C_{name}": value for name, value in {**usual, **settings}.items()})
    )


def crawled(path: Path, settings: Settings) -> np.ndarray[Any, Any]:
    """A store after some cycles in which pages change; returns the texts of cycles in which none does."""
    rng = np.random.default_rng(9)
    texts = texts_of(rng.random((CYCLES - 1, PAGES)) < rng.random(PAGES) / 2, rng)
    crawl_store(path, texts, settings, KEYS)
    return np.concatenate((texts, np.repeat(texts[-1:], AHEAD, axis=0)))


@pytest.mark.parametrize(
    "settings",
    [
        {"SCORE_FUNCTION": "t * (X + 0.5)"},
        {"SCORE_FUNCTION": "default", "PANEL": 0.05},
        {"SCORE_FUNCTION": "random + sad * rate_site", "BUDGET": 0.1},
    ],
)
def test_a_crawl_without_changes_visits_what_was_foretold(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Every page of every cycle, and so its next visit."""
    chosen = loaded(**settings)
    texts = crawled(tmp_path / "store", chosen)
    with open_store(tmp_path / "store", readonly=True) as store:
        pages, cycle = pages_before(store)
        foretold = [one.plan for one in islice(forecasts(pages, cycle, chosen), AHEAD)]
    copies = np.zeros(PAGES, np.uint64)
    with open_store(tmp_path / "store", readonly=True) as store:
        for first, block in store.blocks():
            copies[first : first + len(block["key"])] = block["fingerprint"]
    texts[CYCLES:] = copies
    crawl_store(tmp_path / "store", texts, chosen, KEYS)
    with open_store(tmp_path / "store", readonly=True) as store:
        for number, plan in enumerate(foretold, CYCLES + 1):
            ((_, visits),) = store.visits(number, number)
            assert visits["page"].tolist() == plan["page"].tolist()
            assert visits["kind"].tolist() == plan["kind"].tolist()
            assert "changed" not in {OUTCOMES[code] for code in visits["outcome"]}


def test_the_rank_is_the_place_in_the_plan(tmp_path: Path) -> None:
    """Pages of the plan rank 1, 2, ... in its order, and none beyond is among the chosen."""
    settings = loaded(SCORE_FUNCTION="X")
    crawled(tmp_path / "store", settings)
    with open_store(tmp_path / "store", readonly=True) as store:
        pages, cycle = pages_before(store)
        plan = forecast(pages, cycle, settings).plan
        stands = [rank_of_page(pages, page, cycle, settings) for page in range(PAGES)]
    ranked = plan[plan["kind"] == KINDS.index("ranked")]["page"].tolist()
    ranks = {stand.rank: page for page, stand in enumerate(stands) if stand.rank is not None}
    assert [ranks[rank] for rank in range(1, len(ranked) + 1)] == ranked
    assert {(stand.chosen, stand.candidates) for stand in stands} == {(7, len(ranks))}
    assert stands[ranked[-1]].cut == stands[ranked[-1]].score


def test_never_is_said_of_those_alone_that_are_never_visited(tmp_path: Path) -> None:
    """By changes found alone, the budget's worth of pages with the most stays ahead of all others."""
    settings = loaded(SCORE_FUNCTION="X", BUDGET=3)
    crawled(tmp_path / "store", settings)
    with open_store(tmp_path / "store", readonly=True) as store:
        pages, cycle = pages_before(store)
        never = {page for page in range(PAGES) if is_shut_out(pages, page, cycle, settings, 3)}
        coming = [set(one.plan["page"].tolist()) for one in islice(forecasts(pages, cycle, settings), 40)]
        for formula in ("t * X", "random", "near", "X / n"):  # what moves with time, draws, others, visits
            other = loaded(SCORE_FUNCTION=formula, BUDGET=3)
            assert not is_shut_out(pages, min(never), cycle, other, 3)
    assert never
    assert not never & set.union(*coming)


def test_a_cycle_under_way_is_taken_for_finished(tmp_path: Path) -> None:
    """Its visits count, and its planned pages without an outcome are as good as visited."""
    settings = loaded(SCORE_FUNCTION="t")
    crawled(tmp_path / "store", settings)

    class Counts:
        def inc_value(self, name: str) -> None:
            """Count nothing."""

    with open_store(tmp_path / "store") as store:
        cycle = Cycle(store, settings, Counts())  # type: ignore[arg-type]
        planned = list(cycle.remaining())
        visit = cycle.claim(planned[0], "h")
        assert visit is not None
        cycle.end(visit, "error")
        store.add_page(12345, {"url": "http://new/"})
        pages, number = pages_before(store)
        assert (number, pages.merged_pages) == (CYCLES + 2, PAGES)
        following = set(forecast(pages, number, settings).plan["page"].tolist())
        assert isinstance(pages, PagesInMemory)
        assert pages.state["last_attempt"][planned].tolist() == [CYCLES + 1] * len(planned)
        assert pages.state["failures"][planned[0]] == 1
    assert following.isdisjoint(planned[1:])


def test_the_last_cycles_are_explained(tmp_path: Path) -> None:
    """Of a visit its kind and outcome; else the cut-off that the page's own score of then did not reach."""
    settings = loaded(SCORE_FUNCTION="t * (X + 0.5)")
    crawled(tmp_path / "store", settings)
    with open_store(tmp_path / "store", readonly=True) as store:
        histories = {page: visit_history(store, page, settings, 3) for page in range(PAGES)}
        for cycle in range(CYCLES - 2, CYCLES + 1):
            ((_, visits),) = store.visits(cycle, cycle)
            visited = dict(zip(visits["page"].tolist(), visits, strict=True))
            for page in range(PAGES):
                one = histories[page][CYCLES - cycle]
                assert one.cycle == cycle
                if page in visited:
                    assert one.outcome == OUTCOMES[visited[page]["outcome"]]
                    assert one.why == KINDS[visited[page]["kind"]]
                else:
                    assert one.outcome is None
                    cut, score = (float(text) for text in one.why.split("score of ")[1].split(", its own "))
                    assert score <= cut
