"""Reports: read in a real browser, and checked as text where there is none."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.expression import parse
from tests.support.browser import NEEDS_BROWSER, browser, open_page, requested
from tests.support.example_results import FORMULA, results
from training import learn, report
from training.histories.formats import write_npz
from training.histories.models import generate
from training.reporting.glossary import DEFINITIONS
from training.reporting.page import Page, Section, render, table


def experiment(directory: Path, gain: float = 0.05) -> Path:
    """A directory with the results of an experiment whose history is gone."""
    directory.mkdir()
    (directory / "results.json").write_text(json.dumps(results(gain).to_json()))
    return directory


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A score file of a small learning run, and its history."""
    directory = tmp_path_factory.mktemp("learned")
    history, path = directory / "history.npz", directory / "score.json"
    write_npz(history, generate("poisson", 400, 24, 1))
    sizes = ["--population", "12", "--generations", "2", "--seeds", "1", "--jobs", "1", "--budget", "0.1"]
    assert learn.main([str(history), "-o", str(path), *sizes]) == 0
    return path, history


class Page_(HTMLParser):  # noqa: N801 (a reader of pages, not a page)
    """What a page refers to, and whether its elements are closed in order."""

    EMPTY = frozenset(("meta", "link", "br", "path", "circle", "rect"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name == "href" and tag == "a":
                self.links.append(str(value))
            if name in ("src", "srcset", "data", "action") or (name == "href" and tag == "link"):
                self.loads.append(str(value))
        if tag not in self.EMPTY:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that it closes the last one opened."""
        if tag not in self.EMPTY:
            assert self.stack.pop() == tag


def check(text: str) -> Page_:
    """A report is well formed, self-contained, and explains every term it uses."""
    page = Page_(text)
    assert not page.stack
    assert page.loads == ["data:,"]  # the icon that browsers ask for otherwise
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert len(page.ids) == len(set(page.ids))
    anchors = {link[1:] for link in page.links if link.startswith("#")}
    assert anchors <= set(page.ids)
    assert not re.search(r"\bnan\b|None|undefined", re.sub(r"<style>.*?</style>", "", text, flags=re.S))
    return page


@NEEDS_BROWSER
def test_in_a_browser(tmp_path: Path) -> None:
    """Chromium opens the report without console error or request, and shows the headline number."""
    source = experiment(tmp_path / "experiment")
    output = tmp_path / "report.html"
    assert report.main([str(source), "-o", str(output)]) == 0
    values = results().trials.series["GP4C best all change_rate"]["change_rate"]
    expected = sum(map(sum, values)) / sum(map(len, values))
    with browser() as driver:
        for width, scheme, background in ((1280, "light", "255, 255, 255"), (390, "dark", "20, 23, 27")):
            open_page(driver, output, width, scheme)
            assert driver.find_element("id", "headline").text == f"{expected:.1%}"
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
            body = driver.find_element("tag name", "body")
            assert background in body.value_of_css_property("background-color")
            assert driver.find_element("tag name", "math").size["width"] > 100
            shown = [
                chart for chart in driver.find_elements("css selector", "svg.chart") if chart.is_displayed()
            ]
            assert len(shown) * 2 == len(driver.find_elements("css selector", "svg.chart"))
            assert requested(driver) == [output.as_uri()]
            errors = [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
            assert errors == []


def test_the_report_of_an_experiment(tmp_path: Path) -> None:
    """It is one well-formed file that says what is better, and why a section is missing."""
    source, output = experiment(tmp_path / "experiment"), tmp_path / "report.html"
    assert report.main([str(source), "-o", str(output)]) == 0
    text = output.read_text()
    check(text)
    assert "significantly more than the best baseline, t*X" in text
    assert "gone.tsv is not there" in text
    for section in (
        "What a switch would bring",
        "Ranking of the score functions",
        "If the budget is smaller",
    ):
        assert f"<h2>{section}</h2>" in text


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (0.05, "significantly more than"),
        (-0.2, "significantly fewer than"),
        (0.0, "but not significantly so"),
    ],
)
def test_the_headline_is_honest(tmp_path: Path, gain: float, words: str) -> None:
    """It says which of the two is better only when the difference is significant."""
    page = report.page_of(experiment(tmp_path / "experiment", gain))
    assert words in page.headline
    verdict = {"more": "better", "fewer": "worse"}.get(words.split()[1], "open")
    assert next(card for card in page.cards if card.term == "change_rate").verdict == verdict


def test_the_report_of_a_score_file(learned: tuple[Path, Path], tmp_path: Path) -> None:
    """It replays the test set that the file was chosen without, and says where the visits differ."""
    path, history = learned
    output = tmp_path / "report.html"
    assert report.main([str(path), "-o", str(output)]) == 0
    text = output.read_text()
    check(text)
    recorded = json.loads(path.read_text())["test"]["change_rate"]
    number = re.search(r'id="headline"[^>]*>([^<]*)<', text)
    assert number is not None
    assert number[1] == f"{recorded:.1%}"
    assert "Where it differs from" in text
    assert "of each cycle's visits are the same" in text.replace("&#39;", "'")
    moved = tmp_path / "elsewhere.npz"
    moved.write_bytes(history.read_bytes())
    assert report.main([str(path), "-o", str(output), "--history", str(moved)]) == 0


def test_a_score_file_whose_history_is_gone(learned: tuple[Path, Path], tmp_path: Path) -> None:
    """The report shows what the file records, and how to get the rest."""
    content = json.loads(learned[0].read_text())
    content["history"]["source"] = "gone.npz"
    path, output = tmp_path / "score.json", tmp_path / "report.html"
    path.write_text(json.dumps(content))
    assert report.main([str(path), "-o", str(output)]) == 0
    text = output.read_text()
    check(text)
    assert "--history FILE" in text


def bad_sources(learned: tuple[Path, Path], tmp_path: Path) -> dict[str, tuple[list[str], str]]:
    """What -> arguments, and a part of the message."""
    (tmp_path / "empty").mkdir()
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps({"format": functions.FORMAT, "expression": "t", "terminals": ["t"]}))
    other = tmp_path / "other.npz"
    write_npz(other, generate("poisson", 300, 24, 2))
    edited = tmp_path / "edited.json"
    content = json.loads(learned[0].read_text())
    content["test"]["change_rate"] = 0.123456
    edited.write_text(json.dumps(content))
    return {
        "nothing": ([str(tmp_path / "gone")], "there is no"),
        "empty": ([str(tmp_path / "empty")], "no results of"),
        "plain": ([str(plain)], "does not record how it was learned"),
        "other": ([str(learned[0]), "--history", str(other)], "is not the history of these results"),
        "edited": ([str(edited)], "which no test set"),
        "output": ([str(learned[0]), "-o", str(tmp_path / "no" / "report.html")], "cannot write"),
    }


@pytest.mark.parametrize("what", ["nothing", "empty", "plain", "other", "edited", "output"])
def test_bad_input_is_one_clear_error(
    what: str, learned: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line that names the thing; no half-written file."""
    arguments, words = bad_sources(learned, tmp_path)[what]
    if "-o" not in arguments:
        arguments += ["-o", str(tmp_path / "report.html")]
    assert report.main(arguments) == 2
    errors = capsys.readouterr().err
    assert "error: " in errors
    assert words in errors
    assert not list(tmp_path.glob("*report.html*"))


def test_what_others_wrote_is_escaped() -> None:
    """A title, a cell or a name with markup in it stays text."""
    evil = "<script>alert(1)</script>&"
    section = Section("Part", evil, [table(["a", evil], [[evil, evil]], evil)])
    facts: list[tuple[str, Any]] = [(evil, evil)]
    text = render(Page(evil, evil, evil, evil, [], [section], facts, "now"))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 9


def test_every_definition_is_a_sentence() -> None:
    """Names and meanings are there and end as sentences do."""
    for name, meaning in DEFINITIONS.values():
        assert name
        assert meaning.endswith(".")


def test_the_formula_is_typeset(tmp_path: Path) -> None:
    """The formula stands there as MathML, as text and as a tree with a node for each token."""
    text = render(report.page_of(experiment(tmp_path / "experiment")))
    assert "<mfrac>" in text
    assert f"<code>{FORMULA}</code>" in text
    tree = re.search(r'<svg class="tree".*?</svg>', text, re.S)
    assert tree is not None
    assert tree[0].count('<g class="node') == len(parse(FORMULA).tokens)
