"""The command that makes reports: of experiments, of score files, of what is neither."""

import json
import re
from pathlib import Path

import pytest

from scrapy_gp4c.scoring import functions
from tests.support.pages import check, experiment
from training import learn, report
from training.histories.formats import write_npz
from training.histories.models import generate


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A score file of a small learning run, and its history."""
    directory = tmp_path_factory.mktemp("learned")
    history, path = directory / "history.npz", directory / "score.json"
    write_npz(history, generate("poisson", 400, 24, 1))
    sizes = ["--population", "12", "--generations", "2", "--seeds", "1", "--jobs", "1", "--budget", "0.1"]
    assert learn.main([str(history), "-o", str(path), *sizes]) == 0
    return path, history


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
