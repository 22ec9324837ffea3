"""Verdicts of benchmarks follow from the numbers that they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import common, reproduction
from benchmarks.common import verdict

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


def test_no_benchmark_words_a_verdict_of_its_own() -> None:
    """`verdict` alone says that a target was missed."""
    folder = Path(common.__file__).parent
    others = [
        path.name
        for path in folder.rglob("*.py")
        if path.name != "common.py" and "MISSED" in path.read_text()
    ]
    assert others == []
