"""The experiment learns from what it does not test on: no fold leaks."""

import csv
import json
import math
import os
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from tests.support.example_results import CYCLES, FOLDS, results
from training.comparing.learned_score import recorded_choices
from training.evolution.choices import Choices, identity
from training.evolution.evolve import Parameters
from training.evolution.learning import LEARNED, learn
from training.evolution.workers import workers
from training.histories import splits
from training.histories.formats import write_npz
from training.histories.history import ChangeHistory
from training.histories.models import generate
from training.histories.reading import read_history
from training.papers import journal as paper
from training.papers.journal import NEW_PAGES, ExperimentResults, label, paper_charts, read_results
from training.reporting.figures import STYLES


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "history.npz"
    write_npz(path, generate("poisson", 300, 18, 1))
    return path


@given(
    pages=st.integers(5, 120),
    cycles=st.integers(9, 40),
    seed=st.integers(0, 5),
    protocol=st.sampled_from(("journal", "thesis")),
)
def test_a_fold_never_leaks(pages: int, cycles: int, seed: int, protocol: splits.Protocol) -> None:
    """No page of training or validation is in the test set of its fold, nor is a day, in the journal's.

    Pages are told by their names. Days are told by turning over the bits of some: the parts that these
    days do not belong to stay the same, and the others change.
    """
    rng = np.random.default_rng(seed)
    history = ChangeHistory(
        changed=rng.random((cycles, pages)) < 0.5,
        site=np.zeros(pages, np.int32),
        page_names=[f"p{i}" for i in range(pages)],
    )
    parts = splits.protocol_splits(history, protocol, seed=seed)
    tested: list[str] = []
    for part in parts:
        train, validation, test = (set(one.page_names or ()) for one in part)
        assert not train & test
        assert not validation & test
        assert not train & validation
        tested += sorted(test)
    assert sorted(tested) == sorted(history.page_names or ())  # each page is tested on once
    if protocol == "thesis":  # all days throughout
        assert all(one.cycles == cycles for part in parts for one in part)
        return
    first_test_day = 2 * (cycles // 3)
    for turned, same, other in (
        (slice(first_test_day, None), (0, 1), 2),
        (slice(0, first_test_day), (2,), 0),
    ):
        changed = history.changed.copy()
        changed[turned] = ~changed[turned]
        again = splits.protocol_splits(ChangeHistory(changed=changed, site=history.site), protocol, seed=seed)
        for part, one in zip(parts, again, strict=True):
            for which in same:
                assert np.array_equal(part[which].changed, one[which].changed)
            assert not np.array_equal(part[other].changed, one[other].changed)


def test_learning_never_sees_the_test_days(history: Path) -> None:
    """Other bits on all test days: the same functions are learned and chosen, their test values differ."""
    history_ = read_history(history)
    changed = history_.changed.copy()
    first_test_day = 2 * (history_.cycles // 3)
    changed[first_test_day:] = np.random.default_rng(1).random(changed[first_test_day:].shape) < 0.2
    other = ChangeHistory(changed=changed, site=history_.site)
    choices = Choices(
        protocol="journal",
        budget=0.1,
        seeds=1,
        selection="avg",
        parameters=Parameters(population=12, generations=2, terminals=("n", "X", "t")),
    )
    with workers(1) as parallel:
        one, two = (learn(some, choices, parallel) for some in (history_, other))
    assert [fold.text for fold in one.folds] == [fold.text for fold in two.folds]
    for ours, theirs in zip(one.folds, two.folds, strict=True):
        for part in ("training", "validation"):
            assert ours.table[LEARNED][part] == theirs.table[LEARNED][part]
        assert ours.table[LEARNED]["test"] != theirs.table[LEARNED]["test"]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """The record is the same after a trip through its file, and so is the file."""
    written = json.dumps(results().to_json())
    (tmp_path / "results.json").write_text(written)
    read = read_results(tmp_path)
    assert read == results()
    assert json.dumps(read.to_json()) == written


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "gp4c-experiment/2"}, "its format is"),
        ({"choices": {}}, "parameters"),
        ({"learned": 1}, "int"),
    ],
)
def test_what_cannot_be_read_is_told(change: dict[str, object], words: str, tmp_path: Path) -> None:
    """Another format, and what is missing or of another kind, are one error that names the file."""
    (tmp_path / "results.json").write_text(json.dumps(results().to_json() | change))
    with pytest.raises(HistoryError, match=rf"results\.json has no results .*{words}"):
        read_results(tmp_path)


def test_choices_are_read_as_they_are_recorded() -> None:
    """Results keep them nested, score files flat, with depths as names or as a list."""
    choices = Choices(budget=30, forget=0.1, parameters=Parameters(population=20, terminals=("n", "t")))
    flat = identity(generate("poisson", 50, 12, 1), choices)
    assert recorded_choices(json.loads(json.dumps(flat)) | {"selection": "best"}) == choices
    nested = json.loads(json.dumps(results().to_json()))["choices"]
    assert recorded_choices(nested | nested["parameters"]) == results().choices


def test_the_keys_of_the_file_stay() -> None:
    """Others read it: keys and their order are the format."""
    content = results().to_json()
    assert list(content) == [
        "format", "created", "preset", "versions", "history", "choices", "first_cycle", "test_pages",
        "changed_pages", "learned", "series", "smaller_budgets", "total_s",
    ]  # fmt: skip
    assert list(content["learned"][0]) == [
        "fitness", "selection", "folds", "replays", "replay_s", "wall_s", "resumed", "terminals",
    ]  # fmt: skip
    assert ExperimentResults.from_json(content) == results()


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

    def failing(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(HistoryError, match="No space"):
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
