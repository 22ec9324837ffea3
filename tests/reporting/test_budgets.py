"""What the budget command shows: table, words, and a figure whose lines are the curves."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from scrapy_gp4c.errors import HistoryError
from training.comparing.budgets import FIGURES, Budgets, Value, answers, study
from training.histories.history import ChangeHistory
from training.reporting import budgets
from training.reporting.budgets import DRAWN, SHARES, SHOWN


@pytest.fixture(scope="module")
def found() -> Budgets:
    """Two score functions at three budgets."""
    rng = np.random.default_rng(2)
    history = ChangeHistory(
        rng.random((8, 40)) < rng.random(40) * 0.6, np.arange(40) % 3, source="/far/away/h.npz"
    )
    return study(history, ["t * X", "random"], [0.1, 0.25, 0.5])


def shown(found: Budgets) -> str:
    """What is printed, in a wide terminal without colours."""
    console = Console(file=io.StringIO(), width=200, color_system=None)
    budgets.show(found, console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def cells(found: Budgets) -> list[list[str]]:
    """The table, row by row."""
    columns = [[str(cell) for cell in column.cells] for column in budgets.table(found).columns]
    return [list(row) for row in zip(*columns, strict=True)]


def with_value(found: Budgets, name: str, value: Value) -> Budgets:
    """The first point alone, with another figure."""
    curve = found.curves[0]
    point = curve.points[0]._replace(figures={**curve.points[0].figures, name: value})
    return Budgets(found.evaluations, [curve._replace(points=[point])], 40, False, 1.0)


def test_the_table_has_a_row_for_every_point(found: Budgets) -> None:
    """The score function is named once; every figure has its name for people."""
    rows = cells(found)
    assert [row[0] for row in rows] == ["t * X", "", "", "random", "", ""]
    assert [row[1:3] for row in rows] == [["10.0%", "4"], ["25.0%", "10"], ["50.0%", "20"]] * 2
    headers = [str(column.header) for column in budgets.table(found).columns]
    assert headers == ["score function", "budget", "visits", *(SHOWN[name] for name in FIGURES)]
    for number, row in enumerate(rows):
        figures = found.curves[number // 3].points[number % 3].figures
        assert row[3].startswith(f"{figures['change_rate'].mean:.1%} ± ")
        assert row[6].startswith(f"{figures['age'].mean:,.1f} ± ")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("freshness", Value(0.5, 0.0625), "50.0% ± 6.2%"),
        ("freshness", Value(1.0, None), "100.0%"),
        ("freshness", Value(0.5, math.nan), "50.0%"),
        ("changes_a_day", Value(12345.67, 1000.04), "12,345.7 ± 1,000.0"),
        ("delay_cycles", Value(math.nan, None), "-"),
        ("delay_cycles", Value(math.nan, 1.0), "-"),
        ("age", Value(0.0, 0.0), "0.0 ± 0.0"),
    ],
)
def test_figures_in_words(found: Budgets, name: str, value: Value, text: str) -> None:
    """Shares as per cent, numbers with a digit; an interval only where there is one, a dash for no number."""
    (row,) = cells(with_value(found, name, value))
    assert row[3 + FIGURES.index(name)] == text


def test_what_is_printed_says_what_was_replayed(found: Budgets) -> None:
    """History, intervals, the table, and the answers of the first score function, each on a line."""
    printed = shown(found).splitlines()
    assert printed[0] == (
        "/far/away/h.npz: 40 pages, 8 cycles; mean ± half-width of the 95% interval, over cycles"
    )
    told = answers(found)
    assert told
    assert printed[-len(told) :] == [f"t * X: {line}" for line in told]


def test_markup_in_a_score_stays_as_it_is(found: Budgets) -> None:
    """A name in brackets is no colour."""
    curves = [found.curves[0]._replace(score="[bold]t[/bold]")]
    printed = shown(Budgets(found.evaluations, curves, 40, False, 1.0))
    assert printed.count("[bold]t[/bold]") == 1 + len(answers(found))


def test_a_panel_is_said_to_be_one(found: Budgets) -> None:
    """In words and above the figure; the pages that it speaks for are told, not its own."""
    panel = Budgets(found.evaluations, found.curves, 12_000, True, 1.0)
    assert "a random sample of 12,000 pages" in shown(panel)
    assert "over samples" in shown(panel)
    assert budgets.draw(panel).get_suptitle() == "h.npz: 12,000 pages, told by its panel"
    assert budgets.draw(found).get_suptitle() == "h.npz: 40 pages"


def test_the_lines_of_the_figure_are_the_curves(found: Budgets) -> None:
    """Each figure in its own panel, a line per score function, with a band where there are intervals."""
    axes: list[Any] = budgets.draw(found).axes
    assert [panel.get_title(loc="left") for panel in axes] == [SHOWN[name] for name in DRAWN]
    for name, panel in zip(DRAWN, axes, strict=True):
        assert [line.get_label() for line in panel.lines] == ["t * X", "random"]
        for line, curve in zip(panel.lines, found.curves, strict=True):
            assert line.get_xdata().tolist() == [point.budget for point in curve.points]
            assert line.get_ydata().tolist() == [point.figures[name].mean for point in curve.points]
        has_interval = found.curves[0].points[0].figures[name].ci95 is not None
        assert len(panel.collections) == (2 if has_interval else 0)
        low, high = panel.get_ylim()
        assert high == 1.0 if name == "freshness" else low == 0.0
        assert panel.get_xlim()[0] == 0.0
        panel.figure.canvas.draw()
        is_share = any(label.get_text().endswith("%") for label in panel.get_yticklabels())
        assert is_share == (name in SHARES)
    assert len({line.get_color() for line in axes[0].lines}) == 2


def test_a_figure_is_written_by_its_suffix(found: Budgets, tmp_path: Path) -> None:
    """PNG or SVG; another suffix or a place that is none is one error, and nothing is left there."""
    budgets.write(found, tmp_path / "b.png")
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    budgets.write(found, tmp_path / "b.svg")
    assert "changes found a day" in (tmp_path / "b.svg").read_text()
    with pytest.raises(HistoryError, match=r"a figure is named \*.png, \*.svg; found .*b.pdf"):
        budgets.write(found, tmp_path / "b.pdf")
    with pytest.raises(HistoryError, match=r"cannot write .*No such file or directory"):
        budgets.write(found, tmp_path / "none" / "b.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.png", "b.svg"]
