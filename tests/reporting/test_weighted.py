"""Weights in the report of a crawl: what visits found, the pages counting as much as they weigh."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from training.reporting.crawl import crawl_page
from training.reporting.page import render
from training.reporting.weighted import read_weighed, weighted_section

OUTCOMES = (
    ["first"] * 4,
    ["changed", "unchanged", "changed", "error"],
    ["unchanged", "not_modified", "changed", "changed"],
    ["error"] * 4,
)


def make_store(path: Path, weights: list[float] | None) -> Path:
    """Four pages over four cycles."""
    with Store(path) as store:
        store.add_pages((number + 1, {"url": f"http://h/{number}"}) for number in range(4))
        if weights is not None:
            store.weights.put(np.arange(4), np.array(weights))
        for cycle, outcomes in enumerate(OUTCOMES):
            store.begin_cycle({"started": 1000.0 * cycle, "score_function": "age", "formula": "t"})
            for page, outcome in enumerate(outcomes):
                store.record(NewVisit(page, outcome, time=1000.0 * cycle + 5.0, fingerprint=page + 1))
            store.finish_cycle({"finished": 1000.0 * cycle + 9.0})
    return path


def test_what_visits_found_by_weight(store_path: Path) -> None:
    """By hand: three judged visits in cycle 2, four in cycle 3, none before or after."""
    make_store(store_path, [8.0, 1.0, 0.5, 2.5])
    with Store(store_path, readonly=True) as store:
        told = read_weighed(store)
    assert told is not None
    assert told.others == 3
    assert told.judged.tolist() == [0.0, 3.0, 4.0, 0.0]
    assert told.changed_weight.tolist() == [0.0, 8.5, 3.0, 0.0]
    assert told.judged_weight.tolist() == [0.0, 9.5, 12.0, 0.0]
    assert told.rate(1, weighted=True) == 8.5 / 3
    assert told.rate(slice(None), weighted=False) == 4 / 7
    assert told.share(2) == 3.0 / 12.0
    assert math.isnan(told.share(0))
    assert math.isnan(told.rate(3, weighted=True))
    text = render(crawl_page(store_path))
    section = text[text.index("By weight</h2>") :]
    section = section[: section.index("</section>")]
    assert "3 pages weigh other than 1" in section
    assert "53.5%" in section  # 11.5 of 21.5
    assert "57.1%" in section
    assert "panel" not in section


@pytest.mark.parametrize("weights", [None, [1.0] * 4])
def test_pages_that_weigh_the_same_need_no_section(weights: list[float] | None, store_path: Path) -> None:
    """It would say the same twice."""
    assert weighted_section(make_store(store_path, weights)) is None


def test_the_panel_speaks_for_the_weight(store_path: Path) -> None:
    """Where the record of the last cycle has it."""
    make_store(store_path, [2.0, 1.0, 1.0, 1.0])
    with Store(store_path) as store:
        store.begin_cycle({"started": 9e6, "score_function": "age", "formula": "t"})
        estimate = {"estimate": 0.25, "low": 0.1, "high": 0.5}
        panel = {"judged": 4, "changed_share": estimate, "freshness": estimate, "weighted_freshness": 0.75}
        store.finish_cycle({"finished": 9e6 + 1, "panel": panel})
    section = weighted_section(store_path)
    assert section is not None
    assert "By the panel, 75.0% of the weight and 25.0% of the copies are current." in str(section.lead)
