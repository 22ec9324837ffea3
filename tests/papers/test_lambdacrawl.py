"""Kolobov et al. 2019: the algorithms beside their pseudocode, and the preset from end to end."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.test_offset_history import crawl, write
from training import experiment
from training.papers.lambdacrawl import (
    Sources,
    binary,
    cost,
    lambda_crawl,
    learn_and_crawl,
    uniform,
)
from training.replaying.baselines import HARMONIC, allocate

PAGES = st.lists(st.tuples(st.integers(1, 30), st.floats(0.001, 5.0), st.booleans()), min_size=2, max_size=12)


def sources_of(pages: list[tuple[int, float, bool]]) -> Sources:
    weight, rate, complete = zip(*pages, strict=True)
    return Sources(np.array(weight, float), np.array(rate), np.array(complete))


@given(PAGES)
def test_visits_solve_equation_5(pages: list[tuple[int, float, bool]]) -> None:
    """rho = (sqrt(rate^2 + 4 weight rate / lambda) - rate) / 2 with one lambda, and the budget is spent."""
    sources = sources_of(pages)
    budget = 0.2 * len(pages)
    visits = lambda_crawl(follow=False)(sources, budget).visits
    assert visits.sum() == pytest.approx(budget, rel=1e-6)
    multiplier = sources.weight * sources.rate / (visits * (visits + sources.rate))
    assert multiplier == pytest.approx(multiplier[0], rel=1e-5)


@given(PAGES, st.floats(0.05, 0.95))
def test_probabilities_are_those_of_algorithm_2(pages: list[tuple[int, float, bool]], share: float) -> None:
    """Saturated pages leave the sum, and the others share what budget is left, until none saturates."""
    sources = sources_of([(weight, rate, True) for weight, rate, _ in pages])
    remaining = budget = share * float(sources.rate.sum())
    open_pages, expected = set(range(len(pages))), {}
    while open_pages:
        total = sum(sources.weight[page] for page in open_pages)
        p_hat = {page: remaining * sources.weight[page] / (sources.rate[page] * total) for page in open_pages}
        saturated = {page for page, value in p_hat.items() if value >= 1}
        if not saturated:
            expected |= p_hat
            break
        expected |= dict.fromkeys(saturated, 1.0)
        remaining -= sum(sources.rate[page] for page in saturated)
        open_pages -= saturated
    result = lambda_crawl()(sources, budget).probability
    assert result == pytest.approx([expected[page] for page in range(len(pages))], rel=1e-6)


@given(PAGES)
def test_lambda_crawl_is_best(pages: list[tuple[int, float, bool]]) -> None:
    """No plan of the paper's has a lower harmonic cost, nor a lower binary one than its optimum."""
    sources, budget = sources_of(pages), 0.2 * len(pages)
    unknown = sources._replace(complete=np.zeros(len(pages), bool))
    costs = [cost(unknown, policy(unknown, budget)) for policy in
             (lambda_crawl(), lambda_crawl(approximate=True), binary(0.4), binary(0.0), uniform)]  # fmt: skip
    assert min(one.harmonic for one in costs) >= costs[0].harmonic * (1 - 1e-9)
    assert min(one.binary for one in costs) >= costs[3].binary * (1 - 1e-6)
    with pytest.MonkeyPatch.context() as patch:  # the paper's search for the split ends early
        patch.setattr("training.papers.lambdacrawl.SPLIT_TOLERANCE", 1e-7)
        followed = cost(sources, lambda_crawl()(sources, budget)).harmonic
    assert followed <= costs[0].harmonic * 1.001


def test_weights_of_an_allocation() -> None:
    """Equal pages are visited by their weights; pages of weight 0 get what the others do not take."""
    visits = allocate(HARMONIC, np.full(3, 0.5), 0.6, np.array([1.0, 4.0, 0.0]))
    assert visits[2] == 0.0
    assert visits[0] < visits[1]
    assert allocate(HARMONIC, np.full(3, 0.5), 2.5, np.array([1.0, 4.0, 0.0])).tolist() == [1, 1, 0.5]


def test_learning_comes_near_the_known_rates() -> None:
    """Plans by learned rates cost less from day to day, and never less than the plan by known rates."""
    rng = np.random.default_rng(1)
    sources = Sources(
        rng.integers(1, 20, 800).astype(float), rng.gamma(0.5, 0.6, 800) + 0.01, rng.random(800) < 0.1
    )
    costs = learn_and_crawl(lambda_crawl(), sources, 12, rng)
    limit = cost(sources, lambda_crawl()(sources, 160.0)).harmonic
    assert limit * 0.999 < costs[-1] < 0.9 * costs[0]


def test_the_preset_writes_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All three experiments and the replay, from files to a verdict for each claim."""
    data = write(tmp_path / "data", crawl(3))
    (data / "urlid_chrate_compl_obs_hist.txt").write_text("1\t0.25\n5\t2.0\n7\t0\n")
    out = tmp_path / "out"
    assert experiment.main([str(data), "-o", str(out), "--preset", "lambdacrawl", "--quick"]) == 0
    results = json.loads((out / "results.json").read_text())
    assert {row["verdict"] for row in results["claims"]} <= {"holds", "does not"}
    assert len(results["claims"]) == 6
    shown = capsys.readouterr().out
    assert "| lambda-crawl |" in shown
    assert "| default |" in shown
    (data / "urlid_imp.txt").write_text("".join(f"{page}\t0\n" for page in range(40)))
    assert experiment.main([str(data), "-o", str(out), "--preset", "lambdacrawl", "--quick"]) == 2
    assert "expected pages with an importance above 0" in capsys.readouterr().err
    (tmp_path / "plain.txt").write_text("0101\n1100\n")
    assert experiment.main([str(tmp_path / "plain.txt"), "-o", str(out), "--preset", "lambdacrawl"]) == 2
