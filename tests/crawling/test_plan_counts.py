"""What records say of plans: rounds one after the other, shards together."""

from __future__ import annotations

import numpy as np
import pytest

from scrapy_gp4c.crawling.plan_counts import (
    cuts_of,
    extended,
    has_cut,
    merged,
    ranks_all,
    share_of,
    share_of_all,
    spent_of,
)
from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies.policy import NOBODY, Chosen, Cut
from scrapy_gp4c.policies.steps import Division
from scrapy_gp4c.store.records import PlanCounts

BEGUN: PlanCounts = {"known": 9, "rankable": 6, "budget": 5, "cuts": [], "ranked": 0, "panel": 1}
SHARD: PlanCounts = {**BEGUN, "whole": {"shards": 2, "rankable": 8, "ranked": [], "sums": []}}


def division(pages: int, of_all: int, cut: Cut | None) -> Division:
    """So many pages of a shard."""
    return Division(Chosen(np.arange(pages, dtype=np.uint32), np.zeros(pages), cut), of_all)


def test_rounds_add_up() -> None:
    """Pages of the store itself, and of all shards, with a cut for each round."""
    counts = extended(
        extended(SHARD, division(2, 4, Cut(1.0, 7)), [1, 2]), division(4, 4, Cut(0.5, 9)), [3, 4]
    )
    assert counts["ranked"] == counts["rankable"] == 6
    assert counts["cuts"] == [(1.0, 7), (0.5, 9)]
    assert counts["whole"]["ranked"] == [4, 4]
    assert counts["whole"]["sums"] == [[1, 2], [3, 4]]
    assert spent_of(counts) == 8
    assert ranks_all(counts)
    alone = extended(BEGUN, division(2, 2, Cut(1.0, 7)), [])
    assert "whole" not in alone
    assert (spent_of(alone), ranks_all(alone), has_cut(alone)) == (2, False, True)


def test_a_shard_knows_its_share_of_the_pages_that_may_be_chosen() -> None:
    """One store has all of them, whatever its number; where there are none, nobody has a share."""
    assert share_of_all(SHARD) == 0.75
    assert share_of_all(BEGUN) == 1.0
    nobody: PlanCounts = {**SHARD, "rankable": 0, "whole": {**SHARD["whole"], "rankable": 0}}
    assert share_of_all(nobody) == 0.0


def test_all_pages_of_a_shard_are_not_all_pages() -> None:
    """The shard has no page left, and others have."""
    counts = extended(SHARD, division(6, 7, Cut(1.0, 7)), [])
    assert counts["ranked"] == counts["rankable"]
    assert not ranks_all(counts)


def test_a_policy_without_a_cut_has_none_in_any_round() -> None:
    """A round that chooses nobody has none to itself."""
    counts = extended(extended(BEGUN, Division(NOBODY, 0), []), division(2, 2, None), [])
    assert counts["cuts"] is None
    assert not has_cut(counts)
    assert cuts_of(extended(BEGUN, Division(NOBODY, 0), [])) == [None]
    assert share_of(0, 0) == 0.0


def test_shards_of_one_plan_make_its_counts() -> None:
    """What counts pages is added up; counts of two plans, and of some shards alone, are refused."""
    counts = extended(SHARD, division(2, 4, Cut(1.0, 7)), [])
    assert merged([counts, counts]) == {
        "known": 18, "rankable": 12, "budget": 5, "cuts": [(1.0, 7)], "ranked": 4, "panel": 2
    }  # fmt: skip
    with pytest.raises(PolicyError, match="expected the counts of 2 shards; found 1"):
        merged([counts])
    with pytest.raises(PolicyError, match="expected shards of one plan; found budget 5 and 6"):
        merged([counts, {**counts, "budget": 6}])
