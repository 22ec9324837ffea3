"""Sums over the last cycles' visits to directories and sites.

What a policy sees in a replay.

What the visits to a cluster tell of its pages in a replay.
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.page_state.groups import count_visits, directories
from scrapy_gp4c.page_state.related import RecentVisits, Related
from scrapy_gp4c.policies.base import PolicySettings, Round, Selection
from scrapy_gp4c.policies.top_k import best_candidates, scored_by
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.terminals import ROUND, STATE, compute
from training.histories.history import ChangeHistory
from training.replaying import ranked
from training.replaying.evidence import ReplayEvidence, Window
from training.replaying.prepared import prepare
from training.replaying.replay import run


def test_it_counts_as_going_through_the_visits_does():
    """Cycle for cycle, within a cycle too; cycles before the window are left out."""
    rng = np.random.default_rng(1)
    tree = directories(rng.integers(0, 4, 12))
    finished = []

    def told(window, plain):
        for level in ("directory", "site"):
            for mine, other in ((window.window, plain.window), (window.begun, plain.begun)):
                for one, same in zip(mine(level), other(level), strict=True):
                    assert one.tolist() == same.tolist()

    window = Window(tree, finished)
    for cycle in range(1, 8):
        rows, changed = np.empty(0, np.intp), np.empty(0, np.bool_)
        for visits in (0, 30, 0, 7):
            own = rng.integers(0, 12, visits), rng.random(visits) < 0.5
            window.add(*own)
            rows, changed = np.append(rows, own[0]), np.append(changed, own[1])
            told(
                window,
                Related(tree, RecentVisits(cycle, finished, count_visits(rows, changed, None)), lambda: None),
            )
        finished = [count_visits(rows, changed, None), *finished]
        window.finish()
        told(window, Related(tree, RecentVisits(cycle, finished), lambda: None))
    told(Window(tree, finished), Related(tree, RecentVisits(cycle, finished), lambda: None))


class _Passing:
    """Evidence that must be gone through block by block."""

    def __init__(self, evidence):
        self.candidates, self.visits = evidence.candidates, evidence.visits


@given(
    seed=st.integers(0, 2**32),
    score=st.sampled_from(
        ["t * X", "t * near", "random", "t * rate_site * surprise_dir + spent", "X", "-near"]
    ),
    ties=st.sampled_from(["random", "order"]),
    block_rows=st.integers(1, 30),
    k=st.integers(0, 40),
    many=st.sampled_from([0, 1000]),
)
@settings(max_examples=60, deadline=None)
def test_ranking_all_at_hand_is_ranking_in_passing(seed, score, ties, block_rows, k, many):
    """Round for round: the same pages, scores and cut as a pass over the candidates finds."""
    rng = np.random.default_rng(seed)
    pages = 40
    history = ChangeHistory(
        changed=rng.random((6, pages)) < 0.3,
        site=rng.integers(0, 3, pages).astype(np.int32),
        page_names=[f"d{rng.integers(0, 4)}/{page}" for page in range(pages)],
    )
    prepared = prepare(history, budget=0.5, ties=ties, seed=seed % 100)
    with patch.object(ranked, "BLOCK_ROWS", block_rows), patch.object(ranked, "MANY", many):
        evidence = ReplayEvidence(prepared, (*STATE, *ROUND))
        settings_ = PolicySettings(functions.load(score), prepared.seed)
        for cycle, salt in zip(prepared.scored_cycles.tolist(), prepared.salts, strict=True):
            evidence.begin(cycle, salt)
            for number in range(5):
                scores_of = scored_by(settings_, Round(cycle, number, k))
                one = best_candidates(scores_of, min(k, 10), evidence)
                other = best_candidates(scores_of, min(k, 10), _Passing(evidence))
                assert one.pages.tolist() == other.pages.tolist()
                assert one.scores.tobytes() == other.scores.tobytes()
                assert one.cut == other.cut
                evidence.visit(one, history.changed[cycle - 1, one.pages])
            evidence.observe()


def test_a_history_without_names_has_sites_alone():
    """Terminals of directories are refused by name, those of sites are known."""
    history = ChangeHistory(changed=np.eye(6, 40, dtype=bool), site=np.zeros(40, np.int32))
    prepared = prepare(history, budget=0.1)
    assert run(prepared, "t * near_site * surprise_site * rate_site").k == 4
    for name in ("near", "near_dir", "surprise_dir"):
        with pytest.raises(ScoreError, match=f"the terminal '{name}' is told by the directories"):
            run(prepared, f"t * {name}")


def test_it_trusts_what_it_has_just_ranked_alone():
    """Not for a copy, for pages that were written to, or for those of a round before."""
    history = ChangeHistory(changed=np.eye(6, 40, dtype=bool), site=np.zeros(40, np.int32))
    prepared = prepare(history, budget=0.1)
    evidence = ReplayEvidence(prepared, ("last_cycle", "X"))
    scores_of = scored_by(PolicySettings(functions.load("t * X"), 0), Round(3, 0, 4))
    evidence.begin(3, prepared.salts[0])
    chosen = evidence.best(scores_of, 4)
    assert evidence.trusts(chosen)
    assert not evidence.trusts(chosen._replace(pages=chosen.pages[::-1]))
    chosen.pages.flags.writeable = True
    assert not evidence.trusts(chosen)
    chosen = evidence.best(scores_of, 4)
    evidence.visit(chosen, np.zeros(4, np.bool_))
    assert not evidence.trusts(chosen)
    assert not evidence.may_visit(chosen.pages).any()


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
    prepared = prepare(told, budget=4, warmup=2)
    names = ("cluster_now", "cluster_recent")
    evidence = ReplayEvidence(prepared, ("last_cycle", *names))
    cluster = [0, 1, 2, 0, 1, 2]
    log = [(cycle, page, bool(told.changed[cycle - 1, page])) for cycle in (1, 2) for page in range(6)]
    draws = np.random.default_rng(1)
    for cycle, salt in zip(prepared.scored_cycles.tolist(), prepared.salts, strict=True):
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
            evidence.visit(Selection(part, np.zeros(2), None), found)
            log += [(cycle, page, hit) for page, hit in zip(part.tolist(), found.tolist(), strict=True)]
        evidence.observe()


def test_without_clusters_their_terminals_are_one_error() -> None:
    """With the command that makes them."""
    assert run(prepare(history(clusters=True), budget=2), "t * cluster_now").k == 2
    with pytest.raises(ScoreError, match=r"python -m training\.cluster"):
        run(prepare(history(clusters=False), budget=2), "t * cluster_recent")
