"""NDCG of functions learned on visited pages only, beside that of functions learned on the panel.

A simulated web is crawled with t*X, a panel of 20% and 5% for the ranking. From what the crawl saw in its
first cycles, functions are learned; each is then judged on the full truth of the cycles after, which no
crawl could see: NDCG of all pages at the same budget.
"""

import argparse

import numpy as np
from scrapy.settings import Settings as ScrapySettings

from benchmarks.common import machine
from benchmarks.simulated_crawl import crawl, texts_of
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, KINDS
from scrapy_gp4c.settings import Settings
from training.evolution.choices import Choices
from training.evolution.evolve import Parameters
from training.evolution.learning import learn
from training.evolution.workers import workers
from training.histories import models
from training.histories.history import ChangeHistory
from training.histories.imputation import draw_between_visits
from training.replaying.replay import replay

PAGES = 6000
SEEN_CYCLES = 40
JUDGED_CYCLES = 20
BUDGET = 0.05
SETTINGS = {"GP4C_SCORE_FUNCTION": "t*X", "GP4C_PANEL": 0.2, "GP4C_BUDGET": 0.25}


def histories(truth: ChangeHistory, seed: int) -> dict[str, ChangeHistory]:
    """Crawl `truth` for `SEEN_CYCLES` cycles; return the histories to learn from by names of their pages."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 2**64, truth.pages, dtype=np.uint64)
    settings = Settings.load(ScrapySettings({**SETTINGS, "GP4C_SEED": seed}))
    judged = np.zeros((SEEN_CYCLES + 1, truth.pages), np.bool_)
    changed = np.zeros_like(judged)
    in_panel = np.zeros(truth.pages, np.bool_)
    for row, done in enumerate(crawl(texts_of(truth.changed[:SEEN_CYCLES], rng), settings, keys)):
        page, outcome = done.visits["page"], done.visits["outcome"]
        judged[row, page[np.isin(outcome, JUDGED)]] = True
        changed[row, page[outcome == CHANGED]] = True
        in_panel[page[done.visits["kind"] == KINDS.index("panel")]] = True
    judged, changed = judged[1:], changed[1:]
    often = ~in_panel & (judged.sum(axis=0) >= SEEN_CYCLES // 2)
    drawn = draw_between_visits(changed[:, ~in_panel], judged[:, ~in_panel], np.random.default_rng(0))
    return {
        "visited pages only": ChangeHistory(changed[:, often], truth.site[often]),
        "off-panel pages, unvisited = unchanged": ChangeHistory(changed[:, ~in_panel], truth.site[~in_panel]),
        "off-panel pages, drawn (--partial)": ChangeHistory(drawn, truth.site[~in_panel]),
        "panel": ChangeHistory(changed[:, in_panel], truth.site[in_panel]),
        "all pages (nobody can)": ChangeHistory(truth.changed[:SEEN_CYCLES], truth.site),
    }


def learned_from(history: ChangeHistory, seed: int) -> str:
    """Learn a score function for NDCG, with a small population."""
    parameters = Parameters(population=60, generations=10)
    choices = Choices(seeds=2, seed=seed, budget=BUDGET, forget=0.05, parameters=parameters)
    with workers(1) as parallel:
        return learn(history, choices, parallel).best.text


def mean_ndcg(truth: ChangeHistory, text: str) -> float:
    """Mean NDCG over the last `JUDGED_CYCLES` cycles of the truth, all pages."""
    ndcg = replay(truth, text, budget=BUDGET, metrics=["ndcg"]).ndcg
    assert ndcg is not None
    return float(ndcg[-JUDGED_CYCLES:].mean())


def main() -> None:
    """Print the NDCG of the function learned from each history, the mean of several seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(1, parser.parse_args().seeds + 1)
    print(machine())
    for model in ("poisson", "brdc12-like", "bursty"):
        rows: dict[str, list[tuple[float, float]]] = {}
        for seed in seeds:
            truth = models.generate(model, PAGES, SEEN_CYCLES + JUDGED_CYCLES, seed)
            for name, history in histories(truth, seed).items():
                value = mean_ndcg(truth, learned_from(history, seed))
                rows.setdefault(name, []).append((history.changed.mean(), value))
            rows.setdefault("t*X, not learned", []).append((np.nan, mean_ndcg(truth, "t*X")))
        print(f"{model}: learned from | changes per page and cycle | NDCG on the truth, by seed | mean")
        for name, values in rows.items():
            shares, ndcgs = zip(*values, strict=True)
            listed = " ".join(f"{value:.3f}" for value in ndcgs)
            print(f"  {name} | {np.mean(shares):.3f} | {listed} | {np.mean(ndcgs):.3f}", flush=True)


if __name__ == "__main__":
    main()
