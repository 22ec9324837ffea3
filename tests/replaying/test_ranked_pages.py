"""Ranking of all pages of a replay: the k best are those of `top_k`, and of a pass over the candidates."""

from unittest.mock import patch

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from scrapy_gp4c.policies.base import PolicySettings, Round
from scrapy_gp4c.policies.top_k import best_candidates, scored_by
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.ranking import top_k
from scrapy_gp4c.scoring.terminals import ROUND, STATE
from training.histories.history import ChangeHistory
from training.replaying import ranked_pages
from training.replaying.evidence import ReplayEvidence
from training.replaying.prepared import prepare
from training.replaying.ranked_pages import BestRows

SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, -5e-324, 1e300, -1e300, 0.1, 0.1 + 1e-16]),
    st.floats(allow_nan=False, allow_infinity=False),
)


@example([0.0, 0.0, 0.0, 0.0, -0.0], 2, 1)
@example([1.0, 2.0] * 60, 110, 1)
@given(st.lists(SCORES, min_size=1, max_size=80), st.integers(0, 80), st.integers(0, 2**32))
def test_it_selects_what_a_ranking_of_all_would(scores, k, seed):
    """The same rows in the same order as `top_k`, whatever the scores, with equal ties and large ones."""
    values = np.array(scores)
    rng = np.random.default_rng(seed)
    ties = rng.permutation(len(values)).astype(np.uint64)
    k = min(k, len(values))
    selection = BestRows(len(values))
    for few in (0, len(values) - 1, 100):  # its memory is used again
        with patch.object(ranked_pages, "FEW", few):
            chosen = selection.best(values, k, lambda rows: ties[rows])
        assert chosen.tolist() == top_k(values, ties, k).tolist()


class _Passing:
    """Evidence that must be gone through block by block, with a sample that may mislead: the first block."""

    def __init__(self, evidence, share):
        self.candidates, self.visits = evidence.candidates, evidence.visits
        self._share = share

    def sample(self):
        return next(self.candidates()), self._share


TEXTS = (
    "t * X", "t * near", "random", "t * rate_site * surprise_dir + spent", "size_lift", "-near",
    "near * near", "t * (X + 0.5) * near", "1e300 * X * (1e300 * near)", "log(t) - near / X",
    "(t + spent) * near * sqrt(surprise_site)", "random * X * surprise_site * near",
    "tests.scoring.test_functions.half_of_x",
)  # fmt: skip


@given(
    seed=st.integers(0, 2**32),
    scores=st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS)),
    ties=st.sampled_from(["random", "order"]),
    block_rows=st.integers(1, 30),
    k=st.integers(0, 40),
    share=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_ranking_all_at_hand_is_ranking_in_passing(seed, scores, ties, block_rows, k, share):
    """Round for round, by one function and another: pages, scores and cut of a pass over the candidates."""
    rng = np.random.default_rng(seed)
    pages = 40
    history = ChangeHistory(
        changed=rng.random((6, pages)) < 0.3,
        site=rng.integers(0, 3, pages).astype(np.int32),
        page_names=[f"d{rng.integers(0, 4)}/{page}" for page in range(pages)],
        size=rng.integers(0, 4, pages),
    )
    prepared = prepare(history, budget=0.5, ties=ties, seed=seed % 100)
    with patch.object(ranked_pages, "BLOCK_ROWS", block_rows):
        evidence = ReplayEvidence(prepared, (*STATE, *ROUND))
        by_turns = [PolicySettings(functions.load(score), prepared.seed) for score in scores]
        for cycle, salt in zip(prepared.scored_cycles.tolist(), prepared.salts, strict=True):
            evidence.begin(cycle, salt)
            for number in range(5):
                scores_of = scored_by(by_turns[number // 2 % 2], Round(cycle, number, k))
                one = best_candidates(scores_of, min(k, 10), evidence)
                other = best_candidates(scores_of, min(k, 10), _Passing(evidence, share))
                assert one.pages.tolist() == other.pages.tolist()
                assert one.scores.tobytes() == other.scores.tobytes()
                assert one.cut == other.cut
                evidence.visit(one, history.changed[cycle - 1, one.pages])
            evidence.observe()
