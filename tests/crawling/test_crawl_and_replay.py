"""A crawl without HTTP and a replay of one web visit the same pages, round for round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.scoring.sizes import size_class
from scrapy_gp4c.store.opening import open_store
from tests.support import live_replay
from training.histories.from_store import read_with_report

RELATED = (
    "t * (X + 0.5) * near",
    "near",
    "near_site + near_dir",
    "t * (rate + spent * spent) * size_lift ** 0.25 * near * sqrt(surprise_site)",
    "rate_site * t + surprise_dir",
    "p * exp(found_t * 0.125) + spent",
    "surprise_dir * random",
    "t * (X + 0.5) * directory_now + site_now",
)


@pytest.mark.parametrize(
    ("policy", "score"), [("top_k", RELATED[3]), *(("rounds(rounds=4)", score) for score in RELATED)]
)
def test_related_pages_tell_a_crawl_what_they_tell_a_replay(policy: str, score: str, tmp_path: Path) -> None:
    """Of a web whose sites and directories change together: each round's pages and scores, bit by bit."""
    changed = live_replay.related_changes(seed=1, cycles=14)
    changed[:, live_replay.SITE == 0] = True
    crawl_settings = {"GP4C_POLICY": policy, "GP4C_SCORE_FUNCTION": score, "GP4C_BUDGET": 0.2, "GP4C_SEED": 3}
    plans = live_replay.crawled(tmp_path / "s", changed, crawl_settings)
    rounds = (14 - live_replay.WARMUP) * (4 if policy != "top_k" else 1)
    assert len(plans) > rounds, "the share of a restless site lets the policy choose again"
    assert plans == live_replay.replayed(live_replay.truth(changed), crawl_settings)
    with open_store(tmp_path / "s", readonly=True) as store:
        assert store.verify() == []


SAMPLING = (
    "rr",
    "gsb(level='directory', sample=2)",
    "db(d=-1, phi='wha', in_flight=3)",
    "groups(order='score', sample=2, in_flight=4)",
)
MORE = ("rns", "gsb", "db(d=2, in_flight=1)", "rounds(rounds=3, sample=0.4, level='directory')")


@pytest.mark.parametrize("policy", [*SAMPLING, *(pytest.param(one, marks=pytest.mark.slow) for one in MORE)])
def test_a_crawl_samples_what_a_replay_samples(policy: str, tmp_path: Path) -> None:
    """Round for round, as far as the budget lasts."""
    changed = live_replay.related_changes(seed=2, cycles=12)
    crawl_settings = {
        "GP4C_POLICY": policy,
        "GP4C_SCORE_FUNCTION": "t * (X + 0.5)",
        "GP4C_BUDGET": 0.4,
        "GP4C_SEED": 3,
    }
    plans = live_replay.crawled(tmp_path / "s", changed, crawl_settings)
    expected = live_replay.replayed(live_replay.truth(changed), crawl_settings)
    assert [plan.pages for plan in plans] == [plan.pages for plan in expected if plan.pages]
    with open_store(tmp_path / "s", readonly=True) as store:
        assert store.verify() == []
        record = store.cycles()[-1]
        assert record["policy"] == policy
        visits = np.concatenate([rows for _, rows in store.visits(record["cycle"], record["cycle"])])
        assert len(visits) == int(0.4 * live_replay.PAGES)
        assert record["panel"] is None


@pytest.mark.parametrize("seed", [2])
def test_every_terminal_of_every_candidate_is_that_of_a_replay(seed: int, tmp_path: Path) -> None:
    """Chosen or not, in every round, on both clocks, bit by bit."""
    changed = live_replay.related_changes(seed, cycles=16)
    weight = np.random.default_rng(seed).choice([0.0, 0.1, 1.0, 3.7], live_replay.PAGES)
    live_replay.weigh(tmp_path / "s", weight)
    crawl_settings = {
        "GP4C_POLICY": "rounds(rounds=3)",
        "GP4C_SCORE_FUNCTION": "t * near * w",
        "GP4C_BUDGET": 12,
    }
    plans = live_replay.crawled(tmp_path / "s", changed, crawl_settings, columns=True)
    expected = live_replay.replayed(live_replay.truth(changed, weight), crawl_settings, columns=True)
    assert len(plans) == len(expected) == 3 * (16 - live_replay.WARMUP)
    for number, (live, replay) in enumerate(zip(plans, expected, strict=True)):
        assert live.candidates == replay.candidates
        for name, values in replay.terminals.items():
            assert live.terminals[name] == values, (number, name)
        assert live == replay


@pytest.mark.parametrize("policy", ["top_k", "rounds(rounds=4)"])
def test_the_history_that_a_crawl_leaves_replays_to_its_visits(policy: str, tmp_path: Path) -> None:
    """What it did not see is imputed in agreement with its visits: a replay visits the same again."""
    changed = live_replay.related_changes(seed=5, cycles=12)
    crawl_settings = {
        "GP4C_POLICY": policy,
        "GP4C_SCORE_FUNCTION": "t * (w + rate + spent * spent) * near * sqrt(surprise_dir) * size_lift",
        "GP4C_BUDGET": 0.5,
    }
    weight = np.random.default_rng(5).random(live_replay.PAGES)
    live_replay.weigh(tmp_path / "s", weight)
    plans = live_replay.crawled(tmp_path / "s", changed, crawl_settings)
    history, report = read_with_report(tmp_path / "s", max_errors=12)
    assert history.weights.tolist() == weight.tolist()
    assert history.sizes.tolist() == size_class(live_replay.SIZE_BYTES).tolist()
    assert (report.pages, report.first_cycle, report.last_cycle) == (live_replay.PAGES, 2, 13)
    assert (history.changed != changed).any()
    assert plans == live_replay.replayed(history, crawl_settings)
