"""What a policy sees in a replay."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.policies.policy import PolicySettings, Round
from scrapy_gp4c.policies.top_k import best_candidates, scored_by
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.terminals import ROUND, STATE
from training.histories.history import ChangeHistory
from training.replaying import ranked
from training.replaying.arranged import prepare
from training.replaying.evidence import ReplayEvidence
from training.replaying.replay import run


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
    arranged = prepare(history, budget=0.5, ties=ties, seed=seed % 100)
    with patch.object(ranked, "BLOCK_ROWS", block_rows), patch.object(ranked, "MANY", many):
        evidence = ReplayEvidence(arranged, (*STATE, *ROUND))
        settings_ = PolicySettings(functions.load(score), arranged.seed)
        for cycle, salt in zip(arranged.scored_cycles.tolist(), arranged.salts, strict=True):
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
    arranged = prepare(history, budget=0.1)
    assert run(arranged, "t * near_site * surprise_site * rate_site").k == 4
    for name in ("near", "near_dir", "surprise_dir"):
        with pytest.raises(ScoreError, match=f"the terminal '{name}' is told by the directories"):
            run(arranged, f"t * {name}")


def test_it_vouches_for_what_it_has_just_ranked_alone():
    """Not for a copy, for pages that were written to, or for those of a round before."""
    history = ChangeHistory(changed=np.eye(6, 40, dtype=bool), site=np.zeros(40, np.int32))
    arranged = prepare(history, budget=0.1)
    evidence = ReplayEvidence(arranged, ("last_cycle", "X"))
    scores_of = scored_by(PolicySettings(functions.load("t * X"), 0), Round(3, 0, 4))
    evidence.begin(3, arranged.salts[0])
    chosen = evidence.best(scores_of, 4)
    assert evidence.vouches_for(chosen)
    assert not evidence.vouches_for(chosen._replace(pages=chosen.pages[::-1]))
    chosen.pages.flags.writeable = True
    assert not evidence.vouches_for(chosen)
    chosen = evidence.best(scores_of, 4)
    evidence.visit(chosen, np.zeros(4, np.bool_))
    assert not evidence.vouches_for(chosen)
    assert not evidence.may_visit(chosen.pages).any()
