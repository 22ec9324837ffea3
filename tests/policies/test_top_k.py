"""Rounds of equal parts: how many pages each takes, and what it reads for that."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from scrapy_gp4c.policies.base import Block, PolicySettings, Round
from scrapy_gp4c.policies.top_k import Rounds
from scrapy_gp4c.scoring import functions
from tests.support.policies import Memory


class Counting(Memory):
    """Thirty pages in three blocks, which count how often they are read."""

    def __init__(self) -> None:
        state = {"last_cycle": np.arange(30, dtype=np.int32)}
        super().__init__(state, np.zeros(30, np.bool_), np.arange(30, dtype=np.uint64), 10)
        self.blocks_read = 0

    def candidates(self) -> Iterator[Block]:
        """Yield the blocks."""
        for block in super().candidates():
            self.blocks_read += 1
            yield block


@pytest.mark.parametrize(
    ("remaining", "taken", "blocks_read"),
    [(20, 5, 3), (29, 7, 3), (30, 30, 6), (99, 30, 6), (3, 0, 3)],
)
def test_a_round_takes_its_share_or_all_that_the_budget_covers(
    remaining: int, taken: int, blocks_read: int
) -> None:
    """Candidates are read twice only where there are so few that all are taken."""
    pages = Counting()
    chosen = Rounds(PolicySettings(functions.load("t"), 1)).plan(Round(40, 0, remaining), pages)
    assert chosen.pages.tolist() == list(range(taken))
    assert pages.blocks_read == blocks_read
