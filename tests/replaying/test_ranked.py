"""Ranking the pages of a replay by cells, and page by page."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

from scrapy_gp4c.policies.table import load as load_policy
from training.histories.history import ChangeHistory
from training.replaying import own_states, ranked
from training.replaying.arranged import prepare
from training.replaying.dense import replay_dense
from training.replaying.metrics import METRICS
from training.replaying.replay import load

TALLIES = {metric.tally for metric in METRICS.values() if metric.tally is not None}


@pytest.mark.parametrize("slack", [0, own_states.SLACK])
@pytest.mark.parametrize("policy", ["top_k", "rounds(rounds=3)", "rounds(rounds=3, sample=0.3)"])
@pytest.mark.parametrize(
    "score", ["t * (X + 0.5) * near", "(t + spent) * X", "p / near_dir - near_site", "random * surprise_dir"]
)
def test_replays_by_cells_are_those_page_by_page(score, policy, slack):
    """All visits and all metrics, also with states dropped on the way, and in memory of the replay before."""
    rng = np.random.default_rng(3)
    pages = 300
    names = [f"d{rng.integers(0, 9)}/{page}" for page in range(pages)]
    changed = rng.random((14, pages)) < rng.random(pages)
    history = ChangeHistory(changed, rng.integers(0, 5, pages).astype(np.int32), page_names=names)
    arranged = prepare(history, budget=0.2)
    told = []
    for many in (pages + 1, 0, 0):
        visits = []
        with patch.object(ranked, "MANY", many), patch.object(own_states, "SLACK", slack):
            tallies = replay_dense(
                arranged,
                load(score),
                TALLIES,
                lambda cycle, own, found, to=visits: to.append((cycle, own.tolist(), found.tolist())),
                load_policy(policy),
            )
        told.append((visits, {name: getattr(tallies, name).tolist() for name in TALLIES}))
    assert told[0] == told[1] == told[2]
