"""What learning shows: numbers with their intervals."""

import csv
from io import StringIO

import pytest
from rich.console import Console

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring.functions import NAMED
from training.evolution.choices import Choices
from training.evolution.learning import Fold, FrontMember, Learned
from training.reporting.terminal import bars, draw_front, rows_of, show_front


def test_the_first_run_has_a_line_of_its_own() -> None:
    """Where there is no terminal, what is known first is told at once, and then what all runs found."""
    console = Console(file=StringIO(), width=80)
    with bars(console, Choices(seeds=5), 1, 0) as watch:
        watch.generation(1, 1500)
        watch.first_fitness(0.25)
        watch.best([0.25, 0.5])
    assert console.file.getvalue().splitlines() == [
        "generation 1/50, first of 5 seeds: best ndcg 0.2500",
        "generation 1/50: best ndcg 0.5000 (worst run 0.2500)",
    ]


CHOICES = Choices(front=True, prefer="freshness")


def values(ndcg: float, freshness: float) -> dict[str, dict[str, float]]:
    return {part: {"ndcg": ndcg, "freshness": freshness} for part in ("training", "validation", "test")}


def a_front() -> Learned:
    """Three functions, and the named ones on a line below."""
    members = (
        FrontMember("t * X", 0, False, values(0.7, 0.8)),
        FrontMember("t * (X + 0.3333333333)", 1, False, values(0.6, 0.85)),
        FrontMember("t", -1, True, values(0.3, 0.9)),
    )
    table = {name: values(0.1 + 0.05 * position, 0.7) for position, name in enumerate((*NAMED, "oracle"))}
    best = Fold("t", -1, 0.9, {"learned": members[2].values} | table, members)
    return Learned([best], best, 3, True, 10, 0.1)


def test_rows_are_the_front_by_number_and_the_named_functions_by_name():
    """Neither the learned function twice nor the oracle, which no function is."""
    rows = rows_of(a_front())
    assert [row.name for row in rows] == ["1", "2", "3", *NAMED]
    assert [row.taken for row in rows] == [False, False, True, *[False] * len(NAMED)]


def test_the_figure_names_every_function_and_stands_each_at_its_test_values():
    """The front is a line; the one that is taken is said to be."""
    rows = rows_of(a_front())
    (axes,) = draw_front(rows, "ndcg").axes
    names = [text.get_text() for text in axes.texts]
    assert names == ["1", "2", "3 (taken)", *NAMED]
    assert [tuple(text.xy) for text in axes.texts] == [
        (row.values["test"]["ndcg"], row.values["test"]["freshness"]) for row in rows
    ]
    line = axes.get_lines()[0]
    assert sorted(zip(line.get_xdata(), line.get_ydata(), strict=True)) == [
        (0.3, 0.9),
        (0.6, 0.85),
        (0.7, 0.8),
    ]
    assert axes.get_xlabel().startswith("NDCG")


def test_table_and_figure_lie_beside_the_score_files(tmp_path):
    """CSV with all values and the full expressions; the terminal rounds them; equal figures, equal files."""
    said = Console(file=StringIO(), width=200)
    show_front(a_front(), CHOICES, tmp_path, said)
    assert {path.name for path in tmp_path.iterdir()} == {"front.csv", "front.png", "front.svg"}
    with open(tmp_path / "front.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["function"] for row in rows] == ["1", "2", "3", *NAMED]
    assert rows[1]["expression"] == "t * (X + 0.3333333333)"
    assert [row["taken"] for row in rows[:3]] == ["0", "0", "1"]
    assert float(rows[2]["test freshness"]) == 0.9
    shown = said.file.getvalue()
    assert "the front of ndcg and freshness; taken: freshness" in shown
    assert "t * (X + 0.3333)" in shown
    before = (tmp_path / "front.svg").read_bytes()
    show_front(a_front(), CHOICES, tmp_path, said)
    assert (tmp_path / "front.svg").read_bytes() == before


def test_a_fitness_of_ones_own_is_the_other_axis():
    """Its name stands where a metric has a heading."""
    rows = rows_of(a_front())
    for row in rows:
        for one in row.values.values():
            one["my.fitness"] = one["ndcg"]
    (axes,) = draw_front(rows, "my.fitness").axes
    assert axes.get_xlabel().startswith("my.fitness")


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    """One error."""
    with pytest.raises(LearningError, match=r"cannot write to .*missing"):
        show_front(a_front(), CHOICES, tmp_path / "missing", Console(file=StringIO()))
