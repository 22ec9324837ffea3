"""Reports: read in a real browser, and checked as text where there is none."""

import re
from pathlib import Path
from typing import Any

import pytest

from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.terminals import TERMINALS
from tests.support.browser import NEEDS_BROWSER, browser, open_page, requested
from tests.support.example_results import FORMULA, results
from tests.support.pages import experiment
from training import report
from training.reporting.page import DEFINITIONS, ReportPage, Section, render, table, term_of


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (0.05, "significantly more than"),
        pytest.param(-0.2, "significantly fewer than", marks=pytest.mark.slow),
        (0.0, "but not significantly so"),
    ],
)
def test_the_headline_is_honest(tmp_path: Path, gain: float, words: str) -> None:
    """It says which of the two is better only when the difference is significant."""
    page = report.page_of(experiment(tmp_path / "experiment", gain))
    assert words in page.headline
    verdict = {"more": "better", "fewer": "worse"}.get(words.split()[1], "open")
    assert next(card for card in page.cards if card.term == "change_rate").verdict == verdict


def test_what_others_wrote_is_escaped() -> None:
    """A title, a cell or a name with markup in it stays text."""
    evil = "<script>alert(1)</script>&"
    section = Section("Part", evil, [table(["a", evil], [[evil, evil]], evil)])
    facts: list[tuple[str, Any]] = [(evil, evil)]
    text = render(ReportPage(evil, evil, evil, evil, [], [section], facts, "now"))
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


def test_every_terminal_is_explained_under_a_term_of_its_own() -> None:
    """The terminal p and the p value of a test are two things."""
    terms = {name: term_of(name) for name in TERMINALS["visits"]}
    assert len(set(terms.values())) == len(terms)
    assert {DEFINITIONS[term][1] for term in terms.values()} == {
        f"{terminal.meaning}." for terminal in TERMINALS["visits"].values()
    }
    assert DEFINITIONS["p"][0] == "p value"
    assert DEFINITIONS[terms["p"]][0] == "p"


def test_terminals_are_written_as_formulas_have_them() -> None:
    """The papers' estimators in capitals, as ever; the others as one writes them."""
    names = [DEFINITIONS[term_of(name)][0] for name in ("t", "cg", "gad", "near", "rate_site")]
    assert names == ["t", "CG", "GAD", "near", "rate_site"]
