"""What is refused where the pages are in several shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.crawling.undivided import check_divisible
from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.policies.steps import Shard
from scrapy_gp4c.policies.table import POLICIES
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store


def load(**given: Any) -> Settings:
    """The settings of a crawl."""
    return Settings.load(ScrapySettings({f"GP4C_{name}": value for name, value in given.items()}))


@pytest.mark.parametrize(
    "policy", [*POLICIES, "rounds(rounds=2, sample=0.2)", "tests.support.policies.siblings"]
)
def test_policies_that_do_not_choose_by_a_score_alone_are_refused(policy: str) -> None:
    """All but `top_k` and `rounds` without a sample; in one store none is."""
    loaded = load(POLICY=policy)
    check_divisible(loaded, 1)
    if policy in ("top_k", "rounds"):
        check_divisible(loaded, 8)
        return
    with pytest.raises(SettingsError, match=r"GP4C_POLICY must be .* in 8 shards; found '") as raised:
        check_divisible(loaded, 8)
    assert repr(policy) in str(raised.value)


@pytest.mark.parametrize(
    ("given_settings", "found"),
    [
        ({"SCORE_FUNCTION": "cluster_now * t"}, "GP4C_SCORE_FUNCTION .* found cluster_now"),
        (
            {"SCORE_FUNCTION": "dq_rate * t", "QUERY_LOG": "queries.tsv"},
            "GP4C_SCORE_FUNCTION .* found dq_rate",
        ),
        ({"DISCOVERY_FUNCTION": "t * cluster_recent"}, "GP4C_DISCOVERY_FUNCTION .* found cluster_recent"),
    ],
)
def test_scores_that_are_told_by_all_pages_are_refused(
    given_settings: dict[str, Any], found: str, tmp_path: Path
) -> None:
    """Clusters and the results of searches; a planner of a shard says so before it plans."""
    loaded = load(**given_settings)
    with Store(tmp_path / "store") as store:
        Planner(store, loaded)
        with pytest.raises(SettingsError, match=found):
            Planner(store, loaded, Shard(0, 2))


def test_functions_of_ones_own_are_taken() -> None:
    """They are given no terminal that all pages tell."""
    check_divisible(load(SCORE_FUNCTION="tests.crawling.test_undivided.own"), 8)


def own(terminals: Any) -> Any:
    """A score function."""
    return terminals["n"]
