"""What the visits to a cluster tell of its pages in a replay."""

from __future__ import annotations

import numpy as np
import pytest

from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.policies.policy import Chosen
from scrapy_gp4c.scoring.terminals import compute
from training.histories.history import ChangeHistory
from training.replaying.arranged import prepare
from training.replaying.evidence import ReplayEvidence
from training.replaying.replay import run


def history(clusters: bool) -> ChangeHistory:
    """Six pages of three clusters, which go across directories."""
    changed = np.random.default_rng(3).random((9, 6)) < 0.4
    found = ChangeHistory(changed, np.zeros(6, np.int32), page_names=[f"{n // 3}/{n}" for n in range(6)])
    if clusters:
        nobody = np.empty(0, np.intp)
        found.neighbours.groups_by_content = PageGroups(
            np.array([0, 1, 2, 0, 1, 2], np.int32), np.zeros((3, 3), np.int32), Links(nobody, nobody, 6), ""
        )
    return found


def test_clusters_are_told_from_their_visits() -> None:
    """In plain Python, in every round of every cycle: the share so far, begun with that of three cycles."""
    told = history(clusters=True)
    arranged = prepare(told, budget=4, warmup=2)
    names = ("cluster_now", "cluster_recent")
    evidence = ReplayEvidence(arranged, ("last_cycle", *names))
    cluster = [0, 1, 2, 0, 1, 2]
    log = [(cycle, page, bool(told.changed[cycle - 1, page])) for cycle in (1, 2) for page in range(6)]
    draws = np.random.default_rng(1)
    for cycle, salt in zip(arranged.scored_cycles.tolist(), arranged.salts, strict=True):
        evidence.begin(cycle, salt)
        pages = draws.permutation(6).astype(np.uint32)
        for part in (pages[:2], pages[2:4]):
            values = compute(names, evidence.rows(np.arange(6, dtype=np.uint32)).state, cycle)
            for page in range(6):
                own = [visit for visit in log if cluster[visit[1]] == cluster[page]]
                before = [hit for when, _, hit in own if cycle - 3 <= when < cycle]
                now = [hit for when, _, hit in own if when == cycle]
                recent = (sum(before) + 0.1) / (len(before) + 1)
                assert values["cluster_recent"][page] == recent
                assert values["cluster_now"][page] == (sum(now) + recent) / (len(now) + 1)
            found = told.changed[cycle - 1, part]
            evidence.visit(Chosen(part, np.zeros(2), None), found)
            log += [(cycle, page, hit) for page, hit in zip(part.tolist(), found.tolist(), strict=True)]
        evidence.observe()


def test_without_clusters_their_terminals_are_one_error() -> None:
    """With the command that makes them."""
    assert run(prepare(history(clusters=True), budget=2), "t * cluster_now").k == 2
    with pytest.raises(ScoreError, match=r"python -m training\.cluster"):
        run(prepare(history(clusters=False), budget=2), "t * cluster_recent")
