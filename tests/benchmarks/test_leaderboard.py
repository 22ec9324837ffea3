"""The leaderboard's tables, and the rules that choose from it."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import leaderboard
from benchmarks.leaderboard import (
    FRESHNESS,
    NDCG,
    POLICIES,
    Choice,
    Values,
    candidates,
    chosen,
    main,
    mean_of,
    tied_best,
)
from scrapy_gp4c.scoring.named import NAMED, PURPOSES
from training.histories.formats import write_tsv
from training.histories.models import generate
from training.replaying.metrics import TRIO

TOP_K, FOUR, EIGHT = POLICIES
KINDS = {"documentation": slice(1), "monitored": slice(1, 3)}


def case(ndcg: float, *freshness: float) -> np.ndarray:
    """Three histories, two budgets and one seed with one NDCG; freshness by history."""
    out = np.zeros((3, 2, 1, len(TRIO)))
    out[..., TRIO.index("ndcg")] = ndcg
    out[..., 0, TRIO.index("freshness")] = np.array(freshness)[:, None]
    return out


def test_candidates_are_named_functions_and_related_ones_with_rounds() -> None:
    """A function of a page's own past visits the same pages in rounds, so it is one candidate."""
    result = candidates()
    assert [one.policy for one in result if one.name == "cg"] == [TOP_K]
    assert [one.policy for one in result if one.name == "t * near"] == list(POLICIES)
    assert [one.policy for one in result if one.name == "default"] == list(POLICIES)


def test_each_kind_of_histories_weighs_half() -> None:
    """However many histories there are of it: one of documentation here, two of monitored pages."""
    mean = mean_of(case(0.5, 0.9, 0.6, 0.8), KINDS)
    assert mean[TRIO.index("freshness")] == pytest.approx((0.9 + 0.7) / 2)


def test_ties_go_to_the_other_metric_then_to_fewer_rounds_then_to_the_shorter() -> None:
    """Within `TIE` of the best; what is further behind is not tied."""
    long, short, eight = Choice("default", FOUR), Choice("t * near", FOUR), Choice("t * near", EIGHT)

    def means(ndcg: float, freshness: float) -> np.ndarray:
        return np.array([0.0, ndcg, freshness])

    assert tied_best({long: means(0.7, 0.8), short: means(0.695, 0.82)}, NDCG) == short
    assert tied_best({long: means(0.7, 0.8), short: means(0.68, 0.82)}, NDCG) == long
    assert tied_best({long: means(0.7, 0.8), eight: means(0.695, 0.803)}, NDCG) == long
    assert tied_best({long: means(0.7, 0.8), short: means(0.695, 0.803)}, NDCG) == short
    assert tied_best({long: means(0.7, 0.8), short: means(0.5, 0.803)}, FRESHNESS) == long


def test_rules_hold_the_default_to_random_on_every_history_and_seed() -> None:
    """A lead in the mean of histories or seeds is none for a crawl, which has one of each."""
    random = Choice("random", TOP_K)
    values: Values = {
        random: case(0.1, 0.80, 0.80, 0.80),
        Choice("t*X", TOP_K): case(0.9, 0.90, 0.70, 0.90),
        Choice("neighbours", TOP_K): case(0.8, 0.81, 0.82, 0.83),
        Choice("t * near", FOUR): case(0.5, 0.90, 0.90, 0.90),
    }
    assert {purpose: choice.name for purpose, choice in chosen(values, KINDS).items()} == {
        "default": "neighbours",
        "changes": "t*X",
        "freshness": "t * near",
    }
    two = {choice: np.repeat(one, 2, axis=2) for choice, one in values.items()}
    two[Choice("neighbours", TOP_K)][0, :, 1, TRIO.index("freshness")] = 0.79
    assert chosen(two, KINDS)["default"].name == "t * near"


@pytest.mark.slow
def test_tables_have_a_row_for_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One table per budget, one of means; the same figures as the replays give."""
    path = tmp_path / "small.tsv"
    write_tsv(path, generate("brdc12-like", 120, 9, 1))
    monkeypatch.setattr(leaderboard, "POLICIES", (TOP_K, FOUR))
    command = [str(path), "--monitored", str(path), "--budgets", "0.1", "12", "--seeds", "2"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert text.count("### ") == 3
    for name in ("oracle", "nutch", *(name for name in NAMED if name != "user-centric")):
        assert text.count(f"| `{name}` |") == 3
    for name in PURPOSES:
        assert text.count(f"| `{name}, {FOUR}` |") == 3
    rows = [line for line in text.splitlines() if line.startswith("| `cg` |")]
    assert rows[0].split("|")[2] == rows[1].split("|")[2]  # 10% of 120 pages are 12
    document = tmp_path / "board.md"
    document.write_text("# Board\n\n### Budget 0.5\n\nold\n")
    assert main([*command, "-o", str(document)]) == 0
    assert document.read_text() == "# Board\n\n" + text
