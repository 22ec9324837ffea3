"""The visits of a cycle that are for hubs, against sorting in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.crawling.planning import best_hubs
from scrapy_gp4c.policies.base import Selection
from scrapy_gp4c.scoring.draws import draws
from scrapy_gp4c.settings import Settings
from tests.crawling.test_planning import CYCLE, Blocks, Row

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "last_cycle": st.integers(30, CYCLE - 1),
            "brought_sum": st.integers(0, 3),
            "brought_cycles": st.integers(0, 9),
            "key": st.integers(0, 2**64 - 1),
            "hub": st.booleans(),
        }
    ),
    min_size=1,
    max_size=25,
)


def hubs_of(rows: list[Row], budget: int, **given_settings: Any) -> Selection:
    """The hubs that a cycle visits."""
    loaded = Settings.load(ScrapySettings({f"GP4C_{name}": value for name, value in given_settings.items()}))
    is_hub = np.array([row["hub"] for row in rows], np.bool_)
    return best_hubs(Blocks(rows, 3), loaded, CYCLE, is_hub, budget)  # type: ignore[arg-type]


@given(ROWS, st.integers(0, 40), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_hubs_that_promise_most_are_visited(rows: list[Row], budget: int, share: float, seed: int) -> None:
    """New pages per cycle times cycles waited; ties by draw; at least one if the share is above 0."""
    draw = draws(np.array([row["key"] for row in rows], np.uint64), seed, CYCLE).tolist()

    def promise(page: int) -> float:
        row = rows[page]
        rate = (row["brought_sum"] + 0.5) / (row["brought_cycles"] + 1.0)
        return rate * (CYCLE - row["last_cycle"])

    order = sorted(range(len(rows)), key=lambda page: (-promise(page), draw[page], page))
    most = min(budget, max(1, int(share * budget + 1e-9))) if share else 0
    chosen = hubs_of(rows, budget, DISCOVERY=share, SEED=seed)
    assert chosen.pages.tolist() == [page for page in order if rows[page]["hub"]][:most]
    assert chosen.scores.tolist() == pytest.approx([promise(page) for page in chosen.pages.tolist()])


def test_another_score_function_ranks_hubs() -> None:
    """That of discovery, not that of the crawl."""
    rows = [
        {"last_cycle": 30 + page, "brought_sum": page, "brought_cycles": 1, "key": page, "hub": True}
        for page in range(6)
    ]
    given_settings = {"DISCOVERY": 0.5, "SCORE_FUNCTION": "-t"}
    assert hubs_of(rows, 6, **given_settings, DISCOVERY_FUNCTION="t").pages.tolist() == [0, 1, 2]
    assert hubs_of(rows, 6, **given_settings, DISCOVERY_FUNCTION="brought").pages.tolist() == [5, 4, 3]
