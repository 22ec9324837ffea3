"""A crawl whose pages are in shards plans what it plans with all pages in one store."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.crawling.plan_counts import merged
from scrapy_gp4c.policies.steps import packed
from scrapy_gp4c.settings import Settings
from tests.support.shards import Planning, Row, Twice, together

SCORED = ("hub", "ranked")
FUNCTIONS = (
    "default", "nad", "t * (X + 0.5)", "near * t + 0.0 * n", "site_now * t + spent",
    "surprise_site * rate + random", "hinted * w", "found_t + brought", "hint_age * near", "n",
    "rate_site + near_dir * surprise_dir", "directory_now - near",
)  # fmt: skip
GIVEN = st.fixed_dictionaries(
    {
        "GP4C_SCORE_FUNCTION": st.sampled_from(FUNCTIONS),
        "GP4C_POLICY": st.sampled_from(["top_k", "rounds(rounds=4)"]),
        "GP4C_BUDGET": st.one_of(st.integers(1, 60), st.sampled_from([0.01, 0.3, 0.7, 1.0])),
        "GP4C_DISCOVERY": st.sampled_from([0.0, 0.1, 0.5]),
        "GP4C_DISCOVERY_FUNCTION": st.sampled_from(["brought * t", "near * brought", "hinted + random"]),
        "GP4C_NEW_PAGES": st.none() | st.integers(0, 12),
        "GP4C_NEW_PAGES_PER_SITE": st.none() | st.integers(0, 3),
        "GP4C_WARMUP_VISITS": st.integers(0, 2),
        "GP4C_PANEL": st.sampled_from([0.0, 0.2, 0.5, 1.0]),
        "GP4C_GONE_AFTER": st.integers(1, 3),
        "GP4C_SEED": st.integers(0, 5),
    }
)
EXAMPLE: dict[str, Any] = {
    "GP4C_SCORE_FUNCTION": "near * t * (spent + 1.0)",
    "GP4C_POLICY": "rounds(rounds=4)",
    "GP4C_BUDGET": 0.4,
    "GP4C_DISCOVERY_FUNCTION": "brought * near",
    "GP4C_NEW_PAGES": 200,
    "GP4C_WARMUP_VISITS": 0,
    "GP4C_PANEL": 0.2,
}
CLAIMED = EXAMPLE | {"GP4C_SCORE_FUNCTION": "hinted * t * (spent + 1.0) + near"}


def load(given_settings: dict[str, Any]) -> Settings:
    """The settings of a crawl."""
    return Settings.load(ScrapySettings(given_settings))


def check_plan(twice: Twice, shards: list[Planning]) -> list[int]:
    """Compare the last round's plans; returns the keys of its pages, the first first."""
    whole, parts = twice.whole.rows(), [one.rows() for one in shards]
    assert {row.key for row in whole} == {row.key for part in parts for row in part}
    for one, part in zip(shards, parts, strict=True):
        assert part == [row for row in whole if twice.shard(row.key) is one]  # in order, too
    kinds = [row.kind for row in whole]
    assert kinds == sorted(kinds, key=list(dict.fromkeys(kinds)).index)
    for kind in SCORED:
        merged_rows: list[Row] = sorted(
            (row for part in parts for row in part if row.kind == kind), key=lambda row: row.rank
        )
        assert merged_rows == [row for row in whole if row.kind == kind]
    counts, of_shards = twice.counts
    assert merged(of_shards) == counts
    seen = [sum(one.store.rounds()[-1]["seen"] for one in some) for some in ([twice.whole], shards)]
    assert seen[0] == seen[1]
    return [row.key for row in whole]


def crawl(given_settings: dict[str, Any], shards: int, pages: int, cycles: int, seed: int) -> None:
    """Crawl some cycles in one store and in shards, and compare all that they plan."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        twice = Twice(Path(place), load(given_settings), shards, seed)
        spare = int(twice.rng.choice([2, 5, 1000]))  # shards that have more of the best rank a second time
        patch.setattr("scrapy_gp4c.policies.shared_cut.SPARE", spare)
        hosts = int(twice.rng.integers(1, 9))
        twice.add(pages, hosts)
        for cycle in range(1, cycles + 1):
            twice.begin()
            goes_on = True
            while goes_on:
                sent: list[int] = []
                goes_on = twice.plan(sent)
                assert len(sent) <= 1 + 4 * 3
                keys = check_plan(twice, twice.shards)
                if not goes_on:  # some stay without a visit
                    keys = keys[: int(len(keys) * 1.2 * twice.rng.random())]
                twice.visit(keys, cycle)
                twice.find_pages(int(twice.rng.integers(0, 6)), hosts)
                twice.claim(cycle)
            whole, parts = twice.finish()
            shadows = np.concatenate(parts)
            assert shadows[np.argsort(shadows["key"])].tolist() == whole.tolist()
        twice.close()


@example(EXAMPLE, 64, 60, 2, 1)
@example(EXAMPLE, 5, 300, 5, 2)
@example(CLAIMED, 16, 250, 4, 3)
@settings(max_examples=24, deadline=None)
@given(
    GIVEN,
    st.sampled_from([1, 2, 3, 8]),
    st.integers(0, 60),
    st.integers(1, 4),
    st.integers(0, 2**32),
)
def test_the_plans_of_shards_are_the_plan_of_one_store(
    given_settings: dict[str, Any], shards: int, pages: int, cycles: int, seed: int
) -> None:
    """Pages, kinds, scores, order, counts and shadows, in all rounds of all cycles, by planners that are new
    in any round."""
    crawl(given_settings, shards, pages, cycles, seed)


def test_a_round_that_is_planned_again_sees_what_it_saw_before(tmp_path: Path) -> None:
    """Visits that came in meanwhile are not in what it tells, nor in the plan's record."""
    twice = Twice(tmp_path, load(EXAMPLE | {"GP4C_NEW_PAGES": None}), 2, 7)
    twice.add(80, 4)
    for cycle in (1, 2):
        twice.begin()
        twice.plan([])
        planned = [row.key for row in twice.whole.rows()]
        if cycle == 1:
            twice.visit(planned, cycle)
            twice.finish()
    twice.visit(planned[:10], 2)
    one, seen = twice.whole, len(twice.whole.store.open_visits())
    told = packed(next(one.steps(is_moved=True)))
    twice.visit(planned[10:], 2)
    assert packed(next(one.steps(is_moved=True))) != told
    again = one.steps(is_moved=True, seen=seen)
    assert packed(next(again)) == told
    together([one.steps(is_moved=True, seen=seen)])
    assert one.store.rounds()[-1]["seen"] == seen == 10
    twice.close()
