"""Benchmarks: ``make bench`` runs every script, and verdicts follow from the numbers that they print."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import common, first_visits, hostile_parsers, reproduction
from benchmarks.common import printed, verdict
from tests.support.sources import ROOT
from training.replaying.growth import GrowthCrawl

SCRIPTS = sorted(
    path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text(encoding="utf-8")
)
NEED_DATA = {"claimed", "first_visits", "page_pairs", "second_halves", "sized"}
"""Scripts about files that the repository does not have."""


def test_make_bench_runs_every_script() -> None:
    """The Makefile's list is the folder's scripts, and quick sizes belong to scripts."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (listed,) = re.findall(r"^BENCHMARKS := (.*)$", makefile, re.MULTILINE)
    assert sorted(listed.split()) == [name for name in SCRIPTS if name not in NEED_DATA]
    assert set(re.findall(r"^QUICK_(\w+) := ", makefile, re.MULTILINE)) <= set(SCRIPTS)


def test_the_docs_name_every_script_and_their_number() -> None:
    """docs/lab/performance.md sends to the figures of each."""
    text = (ROOT / "docs" / "lab" / "performance.md").read_text(encoding="utf-8")
    assert f"runs {len(SCRIPTS) - len(NEED_DATA)} of them at a size" in text
    assert [name for name in SCRIPTS if not re.search(rf"benchmarks[./]{name}\b", text)] == []


@pytest.mark.parametrize("name", ["store_history"])
def test_code_in_strings_still_runs(name: str) -> None:
    """What a script hands to another interpreter imports what there is."""
    source = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
    imports = re.findall(
        r"^(?:from|import) [^\n]*$", source.partition('"""\nimport')[2].partition('"""')[0], re.MULTILINE
    )
    assert imports
    subprocess.run([sys.executable, "-c", "\n".join(imports)], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_find_what_they_import(name: str) -> None:
    """A room that is rebuilt takes its benchmarks along."""
    assert callable(import_module(f"benchmarks.{name}").main)


numbers = st.floats(1e-6, 1e6) | st.sampled_from([0.0, 0.0111, 0.00996, 0.01, 0.010004])


@given(numbers, numbers, st.booleans())
def test_a_verdict_is_that_of_the_printed_numbers(value: float, target: float, at_least: bool) -> None:
    """Whoever reads the line and compares its two numbers comes to the same verdict."""
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr(common, "print", lines.append, raising=False)
        holds = verdict("figure", value, target, at_least=at_least)
    (line,) = lines
    shown, wanted = (float(text) for text in re.findall(r"[-+.\de]+(?= \(|\): )", line))
    assert holds == (shown >= wanted if at_least else shown <= wanted)
    assert line.endswith("holds" if holds else "MISSED")


def test_a_difference_above_its_target_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    """0.0111 against 0.01: both were printed as 0.01."""
    assert not verdict("largest difference", 0.0111, 0.01, at_least=False)
    assert "0.0111 (target: at most 0.01): MISSED" in capsys.readouterr().out


@pytest.mark.parametrize(("ndcg", "code"), [(0.70, 1), (0.69, 0)])
def test_every_published_figure_counts(
    ndcg: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --journal the row of NDCG as well as that of the change rate."""
    rows = {"change_rate": dict.fromkeys((*reproduction.PUBLISHED, "t*X"), [0.668] * 5)}
    rows["ndcg"] = dict.fromkeys(rows["change_rate"], [ndcg] * 5)
    monkeypatch.setattr(reproduction, "values", lambda *arguments: rows)
    monkeypatch.setattr("sys.argv", ["reproduction", "--journal", "--seeds", "2", "--pages", "10"])
    assert reproduction.main() == code
    said = capsys.readouterr().out
    largest = max(abs(float(text)) for text in re.findall(r"\| ([-+]0\.\d{4}) \|", said))
    assert f"largest difference: {largest:.4g} (" in said


def test_a_verdict_follows_from_the_rows_above_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Differences that no row shows decide nothing: 0.1394 and 0.1386 are .139 in both rows."""
    grown = SimpleNamespace(history=SimpleNamespace(pages=100), links=[])
    monkeypatch.setattr(first_visits, "growth_of_contents", lambda contents, log: grown)
    monkeypatch.setattr(first_visits, "read_contents", str)
    monkeypatch.setattr(first_visits, "has_contents", bool)
    result = SimpleNamespace(weighted_coverage=[0.1386] * 20)

    def replayed(grown: object, crawl: GrowthCrawl) -> SimpleNamespace:
        assert crawl.new_page_function is not None
        is_random = crawl.new_page_function.text == "random"
        return SimpleNamespace(weighted_coverage=[0.1394] * 20) if is_random else result

    monkeypatch.setattr(first_visits, "replay_growth", replayed)
    assert first_visits.main(["contents.jsonl"]) == 0
    assert "best order less random: 0 (target: at least 0): holds" in capsys.readouterr().out
    result.weighted_coverage = [0.1384] * 20
    assert first_visits.main(["contents.jsonl"]) == 1
    assert "best order less random: -0.001 (" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("turn_s", "peak_mb", "code"), [(1.254, 150.4, 0), (1.256, 150.0, 1), (1.2, 151.6, 1)]
)
def test_the_worst_body_decides(
    turn_s: float,
    peak_mb: float,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By what its row shows beside stock Scrapy: 0.25 s and 100 MB more."""
    stock = hostile_parsers.Cost(1.0, 50.0, "")
    measured = {
        "large": hostile_parsers.Row(stock, hostile_parsers.Cost(turn_s, peak_mb, ""), ["first"]),
        "small": hostile_parsers.Row(stock, stock, ["first"]),
    }
    monkeypatch.setattr(hostile_parsers, "BODIES", dict.fromkeys(measured))
    monkeypatch.setattr(hostile_parsers, "row", lambda name, size: measured[name])
    monkeypatch.setattr("sys.argv", ["hostile_parsers"])
    assert hostile_parsers.main() == code
    said = capsys.readouterr().out
    assert said.count("large: ") == 2
    assert said.count("MISSED") == code


@pytest.mark.parametrize(("value", "form", "shown"), [(0.9449, ".0%", 0.94), (1234.565, ",.2f", 1234.57)])
def test_numbers_as_rows_show_them(value: float, form: str, shown: float) -> None:
    """Shares and thousands too."""
    assert printed(value, form) == shown


def test_whoever_has_a_target_prints_its_verdict() -> None:
    """Scripts that name a target call `verdict`; it alone says that a target was missed."""
    folder = Path(common.__file__).parent
    texts = {path.name: path.read_text() for path in folder.glob("*.py") if path.name != "common.py"}
    assert [name for name, text in texts.items() if "MISSED" in text] == []
    named = [
        name for name, text in texts.items() if re.search(r"\btargets?\b(?! *[=:.(\[]| in )", text, re.I)
    ]
    assert len(named) > 20
    assert [name for name in named if "verdict(" not in texts[name]] == []
