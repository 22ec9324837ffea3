"""The leaderboard: who is on the front, and how far ahead of the default, by paired differences."""

import json

import numpy as np
import pytest
from scipy import stats

from scrapy_gp4c.scoring.named import NAMED
from training.comparing.evaluation import evaluate
from training.comparing.leaderboard import Leaderboard, leaderboard, names
from training.histories.history import ChangeHistory
from training.replaying.baselines import BASELINES
from training.replaying.metrics import METRICS, ORACLE
from training.replaying.prepared import CrawlChoices

CRAWL = CrawlChoices(budget=6, seed=3)
SCORES = ["oracle", "age", "t*X", "nutch", "t * sqrt(X)"]


@pytest.fixture(scope="module")
def history() -> ChangeHistory:
    """60 pages in 6 directories of 2 sites, 12 cycles."""
    rng = np.random.default_rng(7)
    site = np.arange(60, dtype=np.int32) // 30
    pages = [f"d{number // 10}/p{number}" for number in range(60)]
    return ChangeHistory(
        rng.random((12, 60)) < rng.random(60) * 0.6, site, site_names=["a", "b"], page_names=pages
    )


def ahead(board: Leaderboard, score: str, metric: str) -> tuple[float, float]:
    """Mean difference to the default and half width of its interval."""
    result = next(row for row in board.rows if row.name == score).metrics[metric].ahead
    assert result is not None
    return result.mean, result.half_width


def test_with_one_seed_intervals_are_over_cycles(history: ChangeHistory) -> None:
    """Means are those of `evaluate`; differences are paired cycle by cycle."""
    board = leaderboard(history, SCORES, CRAWL)
    plain = evaluate(history, [*SCORES, "default"], CRAWL)
    assert [row.result for row in board.rows] == plain.results
    one, other = (np.array(plain.results[n].metrics["ndcg"].per_cycle) for n in (2, -1))
    gap = one - other
    assert ahead(board, "t*X", "ndcg") == pytest.approx(
        (gap.mean(), stats.t.ppf(0.975, len(gap) - 1) * stats.sem(gap))
    )
    assert board.rows[-1].name == board.reference == "default"
    assert board.rows[-1].metrics["ndcg"].ahead is None


def test_with_several_seeds_intervals_are_over_seeds(history: ChangeHistory) -> None:
    """Each seed is a replay of its own; a pair is two replays with one seed."""
    board = leaderboard(history, SCORES, CRAWL, seeds=3)
    each = [evaluate(history, ["age", "default"], CRAWL._replace(seed=3 + n)).results for n in range(3)]
    means = np.array([[one.metrics["freshness"].mean for one in results] for results in each])
    gap = means[:, 0] - means[:, 1]
    assert ahead(board, "age", "freshness") == pytest.approx(
        (gap.mean(), stats.t.ppf(0.975, 2) * stats.sem(gap))
    )
    row = board.rows[1].metrics["freshness"]
    assert row.per_seed == pytest.approx(means[:, 0].tolist())
    assert row.mean.mean == pytest.approx(means[:, 0].mean())
    assert np.mean(row.per_cycle) == pytest.approx(means[:, 0].mean())


def test_the_oracle_is_not_on_the_front(history: ChangeHistory) -> None:
    """It would beat everybody; the front is among what a crawl could do."""
    board = leaderboard(history, SCORES, CRAWL)
    points = {
        row.name: [row.metrics[name].mean.mean for name in ("change_rate", "freshness")] for row in board.rows
    }
    leading = {row.name for row in board.rows if row.on_front}
    assert ORACLE not in leading
    for name in points.keys() - leading - {ORACLE}:
        assert any(
            points[other][0] >= points[name][0] and points[other][1] >= points[name][1] for other in leading
        )


def test_everything_with_a_name_is_known(history: ChangeHistory) -> None:
    """Oracle, named functions and baselines, each with its source; directories only where known."""
    known = names(history)
    assert known[:3] == ["default", "changes", "freshness"]
    assert set(known) == {ORACLE, *NAMED, *BASELINES} - {"user-centric"}
    unnamed = ChangeHistory(history.changed, history.site)
    left_out = set(names(history)) - set(names(unnamed))
    assert "neighbours" in left_out
    assert all("near" in NAMED[name].expression for name in left_out)
    board = leaderboard(history, names(history), CRAWL)
    assert all(row.source and row.meaning for row in board.rows)


def test_the_document_is_that_of_an_evaluation(history: ChangeHistory) -> None:
    """With one seed its figures are the same, and the board's are beside them; it is JSON without NaN."""
    document = leaderboard(history, SCORES, CRAWL).to_json()
    json.dumps(document, allow_nan=False)
    plain = evaluate(history, [*SCORES, "default"], CRAWL).to_json()
    assert document["history"] == plain["history"]
    assert document["settings"] == plain["settings"] | {"seeds": [3]}
    for ours, theirs in zip(document["results"], plain["results"], strict=True):
        assert ours["score"] == theirs["score"]
        assert ours["visited"] == theirs["visited"]
        for name in METRICS:
            assert ours[name]["per_cycle"] == theirs[name]["per_cycle"]
            assert ours[name]["mean"] == pytest.approx(theirs[name]["mean"])
            assert ours[name]["ci95"] == pytest.approx(theirs[name]["ci95"])
    assert document["results"][3]["source"] == "Apache Nutch"
    assert document["results"][3]["policy"] is None
