"""Metrics by weights: against their definitions, and those without weights where all pages weigh the same."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.policies import table
from scrapy_gp4c.scoring.functions import load
from training.histories.history import ChangeHistory
from training.replaying.dense import replay_dense
from training.replaying.metrics import METRICS, WEIGHTED
from training.replaying.prepared import prepare
from training.replaying.replay import ReplayResult, replay, run

WARMUP, BUDGET = 1, 4
SCORES = ("t * (X + 0.5)", "w * t", "random", "oracle")


@st.composite
def webs(draw: st.DrawFn) -> ChangeHistory:
    """Up to 12 pages over up to 7 cycles, at least one of them of some weight."""
    pages, cycles = draw(st.integers(1, 12)), draw(st.integers(2, 7))
    bits = draw(st.lists(st.booleans(), min_size=pages * cycles, max_size=pages * cycles))
    weights = st.one_of(st.just(0.0), st.floats(1e-3, 1e6))  # none that fixed point would make 0
    weight = np.array(draw(st.lists(weights, min_size=pages, max_size=pages)))
    if not weight.any():
        weight[0] = 1.0
    return ChangeHistory(np.array(bits).reshape(cycles, pages), np.zeros(pages, int), weight)


def replayed(history: ChangeHistory, score: str, **how: Any) -> ReplayResult:
    """All metrics of a replay, those by weights too."""
    return replay(history, score, budget=BUDGET, warmup=WARMUP, metrics=(*METRICS, *WEIGHTED), **how)


def gain(rank: int) -> float:
    """Gain of a change found at a rank, from 1 (journal 4.2.2, as in the authors' program)."""
    return 1.0 if rank == 1 else 1.0 / math.log(rank + 1)


def visits(history: ChangeHistory, score: str) -> list[tuple[list[int], list[int], list[int]]]:
    """Visits of every scored cycle: pages visited in order, those of them that had changed, all that had."""
    rows: list[tuple[list[int], list[int], list[int]]] = []
    outdated = np.zeros(history.pages, bool)

    def watch(cycle: int, pages: npt.NDArray[np.int64], changed_pages: npt.NDArray[np.bool_]) -> None:
        outdated[history.changed[cycle - 1]] = True
        rows.append((pages.tolist(), pages[changed_pages].tolist(), np.flatnonzero(outdated).tolist()))
        outdated[pages] = False

    function = None if score == "oracle" else load(score)
    replay_dense(prepare(history, budget=BUDGET, warmup=WARMUP), function, (), watch)
    return rows


@given(webs(), st.sampled_from(SCORES))
def test_weighted_metrics_are_what_they_are_defined_as(history: ChangeHistory, score: str) -> None:
    """Gains times weights over those of the heaviest pending pages first; weight found per visit."""
    result, weight = replayed(history, score), history.weights
    assert result.weighted_ndcg is not None
    assert result.weighted_change_rate is not None
    k = min(BUDGET, history.pages)
    for row, (pages, changed, pending) in enumerate(visits(history, score)):
        dcg = math.fsum(gain(rank) * weight[page] for rank, page in enumerate(pages, 1) if page in changed)
        heaviest = sorted((weight[page] for page in pending), reverse=True)[:k]
        best = math.fsum(gain(rank) * one for rank, one in enumerate(heaviest, 1))
        assert result.weighted_ndcg[row] == pytest.approx(dcg / best if best else 0.0, rel=1e-9)
        assert 0.0 <= result.weighted_ndcg[row] <= 1.0 + 1e-12
        rate = math.fsum(weight[page] for page in changed) / len(pages)
        assert result.weighted_change_rate[row] == pytest.approx(rate, rel=1e-9, abs=1e-9)


@given(webs(), st.sampled_from(SCORES), st.sampled_from([1.0, 0.25, 8.0]))
def test_equal_weights_are_none(history: ChangeHistory, score: str, weight: float) -> None:
    """Bit for bit: with 1 the weighted metrics are those without weights, and so is freshness with any."""
    bare = replayed(ChangeHistory(history.changed, history.site), score)
    equal = replayed(ChangeHistory(history.changed, history.site, np.full(history.pages, weight)), score)
    assert bare.weighted_ndcg is not None
    assert bare.ndcg is not None
    assert bare.weighted_change_rate is not None
    assert bare.weighted_ndcg.tobytes() == bare.ndcg.tobytes()
    assert bare.weighted_change_rate.tobytes() == bare.change_rate.tobytes()
    for name in (*METRICS, *WEIGHTED):
        ours, other = getattr(equal, name), getattr(bare, name)
        factor = weight if name == "weighted_change_rate" else 1.0
        assert (other * factor).tobytes() == ours.tobytes(), name


@given(webs(), st.sampled_from(["top_k", "rounds(rounds=2)", "rns"]))
def test_heavier_pages_count_more(history: ChangeHistory, policy: str) -> None:
    """Under any policy: what the weights add up to over all changes found is what the visits say."""
    prepared = prepare(history, budget=BUDGET, warmup=WARMUP)
    result = run(prepared, "t", policy=policy, metrics=("weighted_change_rate", "weighted_ndcg"))
    assert result.weighted_ndcg is not None
    assert result.weighted_change_rate is not None
    assert ((result.weighted_ndcg > 0) == (result.weighted_change_rate > 0)).all()
    assert table.load(policy).text == policy


def test_the_heaviest_first_is_best() -> None:
    """By hand: all three pages change in every cycle, one visit each: the page of weight 6 is 6/6 of it."""
    history = ChangeHistory(np.ones((3, 3), bool), np.zeros(3, int), np.array([6.0, 3.0, 0.0]))
    how: dict[str, Any] = {"budget": 1, "warmup": 1, "ties": "order", "metrics": tuple(WEIGHTED)}
    by_score = {score: replay(history, score, **how).weighted_ndcg for score in ("w", "1 / (w + 1)", "t")}
    assert {score: None if one is None else one.tolist() for score, one in by_score.items()} == {
        "w": [1.0, 1.0],
        "1 / (w + 1)": [0.0, 0.0],
        "t": [1.0, 0.5],
    }


def test_pages_of_equal_weight_are_told_apart_by_it_alone() -> None:
    """`w` is 1 where a history tells none, and no replay groups pages by what it does not list."""
    changed = np.ones((4, 3), bool)
    bare = ChangeHistory(changed, np.zeros(3, int))
    assert replayed(bare, "w * t").engine == "dense"
    with pytest.raises(ScoreError, match="scores every page by itself"):
        replay(bare, "w * t", budget=1, engine="grouped")
    light = ChangeHistory(changed, np.zeros(3, int), np.array([1.0, 2.0, 3.0]))
    assert [pages for pages, _, _ in visits(light, "w")] == [[2, 1, 0]] * 3
