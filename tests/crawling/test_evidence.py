"""What a crawl shows to policies: a few candidates before the others, which say where the best begin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.crawling import neighbourhood
from scrapy_gp4c.crawling.neighbourhood import Draws, LiveEvidence
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.groups import GROUP
from scrapy_gp4c.policies.base import Selection
from scrapy_gp4c.policies.top_k import SpreadSample
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Sizes

CYCLE = 40
PAGES = 400


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A real store of 400 pages with histories, some asleep, in blocks of 64."""
    rng = np.random.default_rng(3)
    with Store(Path(tmp_path_factory.mktemp("spread_sample"), "store"), sizes=Sizes(block_rows=64)) as store:
        store.tables.restore_cycles([{"started": 0.0, "finished": 1.0} for _ in range(CYCLE)])
        state = columns.new_columns(np.sort(rng.integers(1, 2**63, PAGES, np.uint64)))
        state["n"][:], state["X"][:] = rng.integers(5, 9, PAGES), rng.integers(0, 3, PAGES)
        state["last_cycle"][:] = state["last_attempt"][:] = rng.integers(30, CYCLE + 1, PAGES)
        state["failures"][:] = 7 * (rng.random(PAGES) < 0.1)
        state["first_cycle"][:] = state["has_copy"][:] = 1
        requests = [b'{"url":"http://site.example/%d"}' % page for page in range(PAGES)]
        directories = np.zeros(1, GROUP)
        directories["key"] = 1
        store.tables.append_pages(requests, state, directories)
        yield store


def chosen(store: Store, score_function: str, budget: int, some: npt.NDArray[np.intp] | None) -> Selection:
    """What is chosen where these pages are looked at before the others; None: none are."""
    given_settings = {"GP4C_SCORE_FUNCTION": score_function, "GP4C_BUDGET": budget, "GP4C_SEED": 5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbourhood, "FEW_FROM_PAGES", PAGES + (some is None))
        patch.setattr(neighbourhood, "spread_rows", lambda pages: some)
        return Planner.of(store, Settings.load(ScrapySettings(given_settings))).first_choice()


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["t * (X + 0.5)", "random", "n - n", "0 - t", "near * t"]),
    st.integers(1, 150),
    st.integers(10, 200),
    st.sampled_from(["spread", "first", "best"]),
)
def test_the_plan_is_the_same_whatever_the_few_say(
    store: Store, score_function: str, budget: int, few: int, where: str
) -> None:
    """Of everywhere, of the beginning alone, and of the best alone, so that the cut is far too high."""
    plain = chosen(store, score_function, budget, None)
    best = chosen(store, score_function, few, None).pages
    some = {"spread": np.arange(few) * PAGES // few, "first": np.arange(few), "best": np.sort(best)}[where]
    found = chosen(store, score_function, budget, some.astype(np.intp))
    assert found.pages.tolist() == plain.pages.tolist()
    assert found.scores.tolist() == plain.scores.tolist()
    assert found.cut == plain.cut


def test_few_are_candidates_and_spare_the_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer pages draw where some candidates have told of the others."""
    drawn: list[int] = []
    may_be_visited: list[npt.NDArray[np.bool_]] = []
    few, draws = LiveEvidence.spread_sample, Draws.__call__

    def told(self: LiveEvidence) -> SpreadSample | None:
        found = few(self)
        may_be_visited.extend([] if found is None else [self.may_visit(found.block.pages)])
        return found

    def counted(self: Draws, rows: npt.NDArray[np.intp] | slice) -> npt.NDArray[np.uint64]:
        numbers = draws(self, rows)
        drawn.append(len(numbers))
        return numbers

    monkeypatch.setattr(LiveEvidence, "spread_sample", told)
    monkeypatch.setattr(Draws, "__call__", counted)
    chosen(store, "t + 0.001 * n", 5, None)
    without = sum(drawn)
    drawn.clear()
    chosen(store, "t + 0.001 * n", 5, np.arange(0, PAGES, 2))
    assert sum(drawn) < without / 2
    assert [own.all() for own in may_be_visited] == [True]
    assert 150 < len(may_be_visited[0]) < 200  # of the 200, some wait as they failed
