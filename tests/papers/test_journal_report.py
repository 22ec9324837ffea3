"""The tables of the paper, against the same numbers computed another way."""

from __future__ import annotations

import csv
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.example_results import CYCLES, FOLDS, results
from training.papers import journal_report as paper
from training.papers.journal import label
from training.papers.journal_report import NEW_PAGES, paper_charts
from training.reporting.figures import STYLES

T_29 = 2.0452296421327034  # 97.5% point of Student's t with 29 degrees of freedom (any printed table)
T_4 = 2.7764451051977987


def flat(name: str, metric: str) -> list[float]:
    """All values of a score function in one list."""
    return [value for fold in results().trials.series[name][metric] for value in fold]


def test_table_2_by_hand() -> None:
    """Means and intervals are those of all 30 values, with the t distribution of 29 degrees of freedom."""
    rows = {row["method"]: row for row in paper.table_2(results())}
    assert list(rows) == [*paper.BASELINES, "GP4C basic", "GP4C all", "oracle"]
    for method, source in (("nad", "nad"), ("GP4C all", label("best", "all", "ndcg"))):
        values = flat(source, "ndcg")
        assert rows[method]["ndcg"] == pytest.approx(statistics.fmean(values))
        half = T_29 * statistics.stdev(values) / math.sqrt(len(values))
        assert rows[method]["ndcg ±"] == pytest.approx(half)


def test_each_column_has_the_function_learned_for_it() -> None:
    """The change rate column shows what was learned for change rate, freshness what was for NDCG."""
    row = next(row for row in paper.table_2(results()) if row["method"] == "GP4C basic")
    for metric, fitness in (("change_rate", "change_rate"), ("ndcg", "ndcg"), ("freshness", "ndcg")):
        expected = statistics.fmean(flat(label("best", "basic", fitness), metric))
        assert row[metric] == pytest.approx(expected)


def test_table_3_by_hand() -> None:
    """Victories and losses are the cycles whose t statistic over the 5 folds is beyond 2.776."""
    content = results(learned_gain=0.0)
    rows = paper.table_3(content)
    assert len(rows) == 2 * 2 * len(paper.COMPETITIVE)
    for row in rows:
        ours = content.trials.series[label("best", row["GP4C"], row["metric"])][row["metric"]]
        theirs = content.trials.series[row["baseline"]][row["metric"]]
        victories, losses, gains = 0, 0, []
        for cycle in range(CYCLES):
            differences = [ours[fold][cycle] - theirs[fold][cycle] for fold in range(FOLDS)]
            mean = statistics.fmean(differences)
            t = mean / (statistics.stdev(differences) / math.sqrt(FOLDS))
            if abs(t) > T_4:
                victories += t > 0
                losses += t < 0
                if t > 0:
                    gains.append(mean / statistics.fmean(theirs[fold][cycle] for fold in range(FOLDS)))
        assert (row["victories"], row["losses"]) == (victories, losses)
        assert row["ties"] == CYCLES - victories - losses
        if gains:
            assert row["gain"] == pytest.approx(statistics.fmean(gains))
        else:
            assert math.isnan(row["gain"])
    assert {row["victories"] for row in rows} != {CYCLES}  # the example has ties and losses too


def test_table_4_lists_the_best_function_of_every_fold() -> None:
    """One row per fitness, set of terminals and fold, constants rounded."""
    rows = paper.table_4(results())
    assert len(rows) == 2 * 2 * FOLDS
    assert {row["score function"] for row in rows} == {"t * (X + 0.5) / (n + exp(-1.5))"}


def test_correlation_by_hand() -> None:
    """Pearson's coefficient of the cycle means, as numpy computes it."""
    content = results()
    changed = np.mean(content.changed_pages, axis=0)
    row = next(row for row in paper.correlations(content) if row["method"] == "cg")
    values = np.mean(content.trials.series["cg"]["ndcg"], axis=0)
    assert row["ndcg"] == pytest.approx(np.corrcoef(changed, values)[0, 1])


def test_files(tmp_path: Path) -> None:
    """Every table is written as CSV with full precision, and all together as Markdown."""
    content = results()
    paths = paper.write_tables(content, tmp_path)
    assert {path.name for path in paths} == {*(f"{name}.csv" for name in paper.TABLES), "tables.md"}
    with open(tmp_path / "table2.csv", newline="") as file:
        written = list(csv.DictReader(file))
    for row, expected in zip(written, paper.table_2(content), strict=True):
        assert float(row["ndcg"]) == expected["ndcg"]
    text = (tmp_path / "tables.md").read_text()
    assert all(title in text for title, _ in paper.TABLES.values())


def test_a_failure_leaves_the_tables_that_were_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written whole or not at all: no half table, and nothing beside the old ones."""
    paper.write_tables(results(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def failing(writer: Any, rows: Any) -> None:
        writer.writerow(rows[0])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(csv.DictWriter, "writerows", failing)
    with pytest.raises(OSError, match="No space"):
        paper.write_tables(results(0.5), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_figures_3_to_6_are_there() -> None:
    """Figures 3, 4 and 5 for both metrics, Figure 6 under both readings of "new"."""
    made = {chart.key: chart for chart in paper_charts(results())}
    assert set(made) == {
        *(f"figure{i}-{metric}" for i in (3, 4, 5) for metric in ("ndcg", "change_rate")),
        "figure6",
    }
    assert made["figure3-ndcg"].x == [3.0 + i for i in range(CYCLES)]
    assert made["figure5-ndcg"].x == [1.0, 3.0, 5.0]
    assert [line.name for line in made["figure6"].lines] == list(NEW_PAGES.values())
    assert all(len(chart.lines) <= len(STYLES) for chart in made.values())
