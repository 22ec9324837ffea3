"""The budget command: equal to the evaluation at each budget, its answers, a panel's figures."""

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scrapy.settings import Settings as ScrapySettings

from benchmarks.simulated_crawl import crawl_store, texts_of
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.settings import Settings
from training import budget, evaluate
from training.budget import (
    DRAWN,
    SHOWN,
    BudgetPoint,
    BudgetResults,
    Curve,
    Value,
    answers,
    read_budgets,
    study,
)
from training.comparing.statistics import t_quantile
from training.histories.formats import write_text
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.replaying.prepared import CrawlChoices


def a_history(pages: int = 120, cycles: int = 8) -> ChangeHistory:
    """Pages that change with rates of their own, without names."""
    rng = np.random.default_rng(5)
    return ChangeHistory(rng.random((cycles, pages)) < rng.random(pages) * 0.7, np.arange(pages) % 3)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "h.txt"
    write_text(path, a_history())
    return path


def test_every_point_is_the_evaluation_at_its_budget(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shares and counts, bit for bit; table, answers and figure are there."""
    out, figure = tmp_path / "budget.json", tmp_path / "budget.svg"
    scores = ["t * X", "-n", "random"]
    command = ["--score", *scores, "--budgets", "10%,0.05,30", "--json", str(out), "--figure", str(figure)]
    assert budget.main([str(path), *command, "--cycles-a-day", "2"]) == 0
    printed = capsys.readouterr().out
    document = json.loads(out.read_text())
    for number, share in enumerate(("0.05", "0.1", "30")):
        one = tmp_path / "one.json"
        assert evaluate.main([str(path), "--score", *scores, "--budget", share, "--json", str(one)]) == 0
        expected = json.loads(one.read_text())
        assert document["evaluations"][number] == expected
        for curve, result in zip(document["curves"], expected["results"], strict=True):
            point = curve["points"][number]
            assert (curve["score"], point["visits"]) == (result["score"], expected["settings"]["k"])
            assert point["freshness"]["mean"] == result["freshness"]["mean"]
            assert point["change_rate"]["ci95"] == result["change_rate"]["ci95"]
            assert point["changes_a_day"]["mean"] == pytest.approx(2 * np.mean(result["changed"]))
    assert "<svg" in figure.read_text()
    assert all(line in printed for line in document["answers"])
    assert all(text in printed for text in ("age (cycles)", "10.0%", "Figure: "))


def test_answers_lie_on_the_curve() -> None:
    """Freshness between two budgets by a straight line; what no budget reaches is said to be out of reach."""
    points = [point(0.05, 0.85, 100.0), point(0.1, 0.95, 600.0), point(0.2, 0.97, 700.0)]
    assert answered(points) == [
        "a budget of 5.0% keeps 85.0% of the copies current already",
        "90% freshness needs a budget of 7.5%",
        "95% freshness needs a budget of 10.0%",
        "99% freshness needs more than the largest budget: 20.0% keep 97.0% of the copies current",
        "from 5.0% to 10.0%: +1% budget finds 100.0 more changes a day",
        "from 10.0% to 20.0%: +1% budget finds 10.0 more changes a day",
    ]


def test_a_panel_speaks_for_all_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A store of which a panel was visited in every cycle: its pages are a sample, and it is said so."""
    rng = np.random.default_rng(8)
    pages, cycles = 400, 9
    texts = texts_of(rng.random((cycles, pages)) < 0.3, rng)
    keys = rng.integers(1, 2**63, pages, dtype=np.uint64) * np.uint64(2)
    settings = Settings.load(
        ScrapySettings({"GP4C_PANEL": 0.3, "GP4C_BUDGET": 0.35, "GP4C_WARMUP_VISITS": 1})
    )
    crawl_store(tmp_path / "store", texts, settings, keys)
    out = tmp_path / "out.json"
    figure = tmp_path / "f.svg"
    command = ["--score", "age", "--budgets", "10%,40", "--json", str(out), "--figure", str(figure)]
    assert budget.main([str(tmp_path / "store"), *command]) == 0
    document = json.loads(out.read_text())
    assert "a random sample of 400 pages" in capsys.readouterr().out
    history = read_history(tmp_path / "store")
    assert (document["panel"], document["pages"]) == (True, pages)
    assert history.pages < pages / 2
    (point,) = document["curves"][0]["points"]  # 40 of 400 pages are 10%
    assert (point["visits"], point["budget"]) == (40, 0.1)
    changes = np.mean(document["evaluations"][0]["results"][0]["changed"])
    assert point["changes_a_day"]["mean"] == pytest.approx(changes * pages / history.pages)
    for name in SHOWN:
        assert point[name]["ci95"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--budgets", "1%,many"], "'many'"),
        (["--budgets", "150%"], "a budget is a share"),
        (["--figure", "budget.pdf"], "budget.pdf"),
        (["--score", "t * Y"], "Y"),
    ],
)
def test_bad_input_is_one_error(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """Exit code 2 and one message."""
    assert budget.main([str(path), "--score", "t", "--budgets", "10%", *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


@pytest.fixture(scope="module")
def document() -> BudgetResults:
    rng = np.random.default_rng(2)
    history = ChangeHistory(
        rng.random((8, 40)) < rng.random(40) * 0.6, np.arange(40) % 3, source="/far/away/h.npz"
    )
    return study(history, ["t * X", "random"], [0.1, 0.25, 0.5])


def shown(document: BudgetResults) -> str:
    """What is printed, in a wide terminal without colours."""
    console = Console(file=io.StringIO(), width=200, color_system=None)
    budget.show(document, console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def cells(document: BudgetResults) -> list[list[str]]:
    columns = [[str(cell) for cell in column.cells] for column in budget.table(document).columns]
    return [list(row) for row in zip(*columns, strict=True)]


def with_value(document: BudgetResults, name: str, value: Value) -> BudgetResults:
    """The first point alone, with another figure."""
    curve = document.curves[0]
    point = curve.points[0]._replace(figures={**curve.points[0].figures, name: value})
    return BudgetResults(document.evaluations, [curve._replace(points=[point])], 40, False, 1.0)


def test_the_table_has_a_row_for_every_point(document: BudgetResults) -> None:
    """The score function is named once; every figure has its name for people."""
    rows = cells(document)
    assert [row[0] for row in rows] == ["t * X", "", "", "random", "", ""]
    assert [row[1:3] for row in rows] == [["10.0%", "4"], ["25.0%", "10"], ["50.0%", "20"]] * 2
    headers = [str(column.header) for column in budget.table(document).columns]
    assert headers == ["score function", "budget", "visits", *SHOWN.values()]
    for number, row in enumerate(rows):
        figures = document.curves[number // 3].points[number % 3].figures
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
def test_figures_in_words(document: BudgetResults, name: str, value: Value, text: str) -> None:
    """Shares as per cent, numbers with a digit; an interval only where there is one, a dash for no number."""
    (row,) = cells(with_value(document, name, value))
    assert row[3 + [*SHOWN].index(name)] == text


def test_what_is_printed_says_what_was_replayed(document: BudgetResults) -> None:
    """History, intervals, the table, and the answers of the first score function, each on a line."""
    printed = shown(document).splitlines()
    assert printed[0] == (
        "/far/away/h.npz: 40 pages, 8 cycles; mean ± half-width of the 95% interval, over cycles"
    )
    texts = answers(document)
    assert texts
    assert printed[-len(texts) :] == [f"t * X: {line}" for line in texts]


def test_markup_in_a_score_stays_as_it_is(document: BudgetResults) -> None:
    """A name in brackets is no colour."""
    curves = [document.curves[0]._replace(score="[bold]t[/bold]")]
    printed = shown(BudgetResults(document.evaluations, curves, 40, False, 1.0))
    assert printed.count("[bold]t[/bold]") == 1 + len(answers(document))


def test_a_panel_is_said_to_be_one(document: BudgetResults) -> None:
    """In words and above the figure; the pages that it speaks for are told, not its own."""
    panel = BudgetResults(document.evaluations, document.curves, 12_000, True, 1.0)
    assert "a random sample of 12,000 pages" in shown(panel)
    assert "over samples" in shown(panel)
    assert budget.draw(panel).get_suptitle() == "h.npz: 12,000 pages, estimated from its panel"
    figure = budget.draw(document)
    assert figure.get_suptitle() == "h.npz: 40 pages"
    assert [panel.get_title(loc="left") for panel in figure.axes] == [SHOWN[name] for name in DRAWN]
    for line, curve in zip(figure.axes[0].lines, document.curves, strict=True):
        assert line.get_xdata().tolist() == [point.budget for point in curve.points]
        assert line.get_ydata().tolist() == [point.figures[DRAWN[0]].mean for point in curve.points]


def point(share: float, fresh: float = 0.0, changes: float = 0.0) -> BudgetPoint:
    figures = {name: Value(0.0, None) for name in SHOWN}
    figures |= {"freshness": Value(fresh, None), "changes_a_day": Value(changes, None)}
    return BudgetPoint(share, 1, figures)


def answered(points: list[BudgetPoint]) -> list[str]:
    return answers(BudgetResults([], [Curve("t", points)], 100, False, 1.0))


@given(st.lists(st.one_of(st.integers(1, 10**6), st.floats(1e-6, 1.0)), min_size=1, max_size=5))
def test_budgets_come_back_as_they_were_written(shares: list[int | float]) -> None:
    """A count stays a whole number, a share a float; per cent are hundredths; spaces do not count."""
    document = read_budgets(" , ".join(map(repr, shares)))
    assert document == shares
    assert list(map(type, document)) == list(map(type, shares))
    assert read_budgets(",".join(f"{value!r}%" for value in shares)) == [value / 100 for value in shares]


@pytest.mark.parametrize("text", ["", "1%,", "%", "1%%", "ten", "1;2", "5 %x", "0.1,,0.2"])
def test_other_text_is_one_error(text: str) -> None:
    """The error names the wrong part and what would be right."""
    with pytest.raises(HistoryError, match=r"--budgets: expected shares or counts such as .*; found"):
        read_budgets(text)


@pytest.mark.parametrize(
    ("shares", "visits"),
    [([0.1, 4], [4]), ([4, 0.1, 0.11], [4]), ([1, 1.0], [1, 40]), ([1.0, 40, 99], [40]), ([0.01, 1], [1])],
)
def test_budgets_of_as_many_visits_are_one(shares: list[float], visits: list[int]) -> None:
    """A share and a count that come to the same are one point, a page and 100% are two; answers follow."""
    document = study(a_history(40), ["t"], shares)
    assert [one.visits for one in document.curves[0].points] == visits
    assert len(document.evaluations) == len(visits)
    assert document.evaluations[0].settings.budget == shares[0], "the first of equal ones"
    assert sum("more changes a day" in line for line in answers(document)) == len(visits) - 1


@settings(max_examples=8)
@given(budget=st.sampled_from([1, 5, 0.3, 1.0]), a_day=st.sampled_from([0.5, 1.0, 24.0]))
def test_figures_follow_from_the_counts_of_the_replay(budget: float, a_day: float) -> None:
    """Little's law for the delay, and changes a day with the interval of the cycles."""
    history = a_history(20)
    document = study(history, ["t * X"], [budget], cycles_a_day=a_day)
    figures = document.curves[0].points[0].figures
    result = document.evaluations[0].results[0]
    changed = np.array(result.counts["changed"])
    stale = [round((1 - fresh) * 20) for fresh in result.metrics["freshness"].per_cycle]
    assert figures["delay_cycles"].mean == pytest.approx(sum(stale) / changed.sum())
    assert figures["changes_a_day"].mean == pytest.approx(changed.mean() * a_day)
    spread = changed.std(ddof=1) / math.sqrt(len(changed)) * t_quantile(len(changed) - 1)
    assert figures["changes_a_day"].ci95 == pytest.approx(spread * a_day)
    for name in ("change_rate", "freshness", "age"):
        assert figures[name] == tuple(result.metrics[name][:2])
    if isinstance(budget, float) and budget == 1.0:
        assert figures["freshness"].mean == 1.0
        assert figures["delay_cycles"].mean == 0.0


def test_a_panel_speaks_for_its_pages_and_says_how_surely() -> None:
    """Counts are of all pages, changes are scaled up, and each tenth is left out once for the interval."""
    history, crawl = a_history(20), CrawlChoices(warmup=1)
    document = study(history, ["X"], [50, 0.5], crawl, known_pages=100, cycles_a_day=2.0)
    assert (document.pages, document.is_sample) == (100, True)
    (one,) = {(one.budget, one.visits) for one in document.curves[0].points}
    assert one == (0.5, 50)
    figures = document.curves[0].points[0].figures
    changed = document.evaluations[0].results[0].counts["changed"]
    assert figures["changes_a_day"].mean == pytest.approx(np.mean(changed) * 5 * 2)
    deviations = []
    for part in range(10):
        others = history.take(np.flatnonzero(np.arange(20) % 10 != part))
        (curve,) = study(others, ["X"], [0.5], crawl).curves
        deviations.append(curve.points[0].figures["freshness"].mean)
    square = sum((value - sum(deviations) / 10) ** 2 for value in deviations) * 9 / 10
    assert figures["freshness"].ci95 == pytest.approx(math.sqrt(square) * t_quantile(9))


def test_a_small_panel_has_the_interval_of_its_cycles() -> None:
    """Below twenty pages no part is left out."""
    study_ = study(a_history(19), ["X"], [0.5])
    panel = study(a_history(19), ["X"], [0.5], known_pages=19)
    assert panel.curves == study_.curves


def test_the_document_has_null_for_what_is_no_number() -> None:
    """Pages that never change have no delay; the document is JSON that every reader takes."""
    quiet = ChangeHistory(np.zeros((6, 8), bool), np.zeros(8, int))
    document = study(quiet, ["t"], [0.25, 0.5])
    document_ = json.loads(json.dumps(document.to_json(), allow_nan=False))
    first, last = document_["curves"][0]["points"]
    assert first["delay_cycles"] == {"mean": None, "ci95": None}
    assert first["freshness"]["mean"] == 1.0
    assert (first["visits"], last["visits"]) == (2, 4)
    assert set(first) == {"budget", "visits", *SHOWN}
    assert document_["answers"] == answers(document)
    assert len(document_["evaluations"]) == 2
