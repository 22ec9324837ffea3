"""The leaderboard's tables, and the rules that choose from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import leaderboard
from benchmarks.leaderboard import (
    POLICIES,
    TIE,
    Choice,
    Values,
    candidates,
    chosen,
    main,
    tied_best,
)
from scrapy_gp4c.scoring.named import NAMED, PURPOSES
from training.histories.formats import write_tsv
from training.histories.models import generate
from training.replaying.metrics import TRIO

TOP_K, FOUR, EIGHT = POLICIES


def case(ndcg: float, *freshness: float) -> np.ndarray:
    """Two cases and one seed with one NDCG."""
    out = np.zeros((2, 1, len(TRIO)))
    out[..., TRIO.index("ndcg")] = ndcg
    out[:, 0, TRIO.index("freshness")] = freshness
    return out


def test_candidates_are_named_functions_and_related_ones_with_rounds() -> None:
    """A function of a page's own past visits the same pages in rounds, so it is one candidate."""
    found = candidates()
    assert [one.policy for one in found if one.name == "cg"] == [TOP_K]
    assert [one.policy for one in found if one.name == "neighbours"] == list(POLICIES)
    assert [one.policy for one in found if one.name == "explore-last"] == list(POLICIES)
    assert "default" not in {one.name for one in found}


def test_ties_go_to_the_shorter_then_to_fewer_rounds() -> None:
    """Within `TIE` of the best; what is further behind is not tied."""
    long, short = Choice("explore-last", TOP_K), Choice("oldest-neighbours", EIGHT)
    fewer = Choice("oldest-neighbours", FOUR)
    assert tied_best({long: 0.7, short: 0.7 - TIE / 2, fewer: 0.7 - TIE / 2}) == fewer
    assert tied_best({long: 0.7, short: 0.7 - TIE / 2, fewer: 0.7 - 2 * TIE}) == short
    assert tied_best({long: 0.7, short: 0.7 - 2 * TIE}) == long


def test_rules_hold_freshness_to_random_and_age() -> None:
    """The default's on every history, all its budgets together; that of `balanced` in the mean."""
    values: Values = {
        Choice("random", TOP_K): case(0.1, 0.80, 0.80),
        Choice("age", TOP_K): case(0.2, 0.84, 0.84),
        Choice("t*X", TOP_K): case(0.9, 0.70, 0.70),
        Choice("neighbours", TOP_K): case(0.8, 0.78, 0.83),
        Choice("floor-0.02", FOUR): case(0.75, 0.70, 0.80),
        Choice("floor-0.2", FOUR): case(0.7, 0.82, 0.87),
        Choice("oldest-neighbours", EIGHT): case(0.5, 0.90, 0.90),
    }
    together = chosen(values, 2)
    assert {purpose: choice.name for purpose, choice in together.items()} == {
        "default": "neighbours",
        "changes": "floor-0.02",
        "balanced": "floor-0.2",
        "freshness": "oldest-neighbours",
    }
    assert chosen(values, 1)["default"] == Choice("floor-0.2", FOUR)


def test_the_default_is_held_to_every_seed() -> None:
    """A lead over random pages in the mean of the seeds alone is none for a crawl, which has one seed."""
    values: Values = {
        Choice("random", TOP_K): np.repeat(case(0.1, 0.80, 0.80), 2, axis=1),
        Choice("age", TOP_K): np.repeat(case(0.2, 0.84, 0.84), 2, axis=1),
        Choice("neighbours", TOP_K): np.concatenate([case(0.8, 0.79, 0.79), case(0.8, 0.9, 0.9)], axis=1),
        Choice("floor-0.2", FOUR): np.repeat(case(0.7, 0.85, 0.85), 2, axis=1),
    }
    assert chosen(values, 2)["default"] == Choice("floor-0.2", FOUR)


def test_tables_have_a_row_for_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One table per budget, one of means; the same figures as the replays give."""
    path = tmp_path / "small.tsv"
    write_tsv(path, generate("brdc12-like", 120, 9, 1))
    monkeypatch.setattr(leaderboard, "POLICIES", (TOP_K, FOUR))
    assert main([str(path), "--budgets", "0.1", "12", "--seeds", "2"]) == 0
    text = capsys.readouterr().out
    assert text.count("### ") == 3
    for name in ("oracle", "nutch", *(name for name in NAMED if name not in (*PURPOSES, "user-centric"))):
        assert text.count(f"| `{name}` |") == 3
    for name in PURPOSES:
        assert text.count(f"| `{name}, {FOUR}` |") == 3
    rows = [line for line in text.splitlines() if line.startswith("| `cg` |")]
    assert rows[0].split("|")[2] == rows[1].split("|")[2]  # 10% of 120 pages are 12
    document = tmp_path / "board.md"
    document.write_text("# Board\n\n### Budget 0.5\n\nold\n")
    assert main([str(path), "--budgets", "0.1", "12", "--seeds", "2", "-o", str(document)]) == 0
    assert document.read_text() == "# Board\n\n" + text
