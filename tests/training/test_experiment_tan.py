"""`training.experiment --protocol tan`, from the command line to its files."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from tests.support.linked import write_linked
from training import experiment
from training.histories.formats import write_npz
from training.histories.models import generate

FIGURES = ("figure-4", "figure-5", "figure-6", "figure-7", "figure-8", "figure-9")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a quick experiment."""
    directory = tmp_path_factory.mktemp("experiment")
    contents = write_linked(directory / "contents.jsonl")
    assert run(contents, directory / "out") == 0
    return directory / "out"


def run(history: Path, output: Path, *more: str) -> int:
    """Run the command at its quick size."""
    return experiment.main([str(history), "-o", str(output), "--protocol", "tan", "--quick", *more])


def test_all_artefacts_are_there(done: Path) -> None:
    """JSON, CSV, tables, and every figure as PNG and SVG; PNGs are pictures, SVGs have their text."""
    expected = {"results.json", "cycles.csv", "tables.md"}
    expected |= {f"{name}{ending}" for name in FIGURES for ending in (".png", ".svg")}
    assert {path.name for path in done.iterdir()} == expected
    for name in FIGURES:
        assert (done / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    said = {name: "".join(ElementTree.parse(done / f"{name}.svg").getroot().itertext()) for name in FIGURES}
    assert "slashes" in said["figure-4"]
    assert all(text in said["figure-5"] for text in ("LB", "DB", "CB"))
    assert all(text in said["figure-6"] for text in ("RNS", "RR", "GSB", "LB(d=3)", "DB(d=1)", "CB(d=0)"))
    assert "cycles of 4 weeks" in said["figure-7"]
    assert all(text in said["figure-8"] for text in ("PRA", "DB"))
    assert all(text in said["figure-9"] for text in ("RNS", "HA", "WHA"))


def test_tables_say_what_the_results_say(done: Path) -> None:
    """CSV and JSON have the same values; Table 1 counts all pages; rows are means of cycles."""
    document = json.loads((done / "results.json").read_text())
    with (done / "cycles.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    rates = [rate for trial in document["trials"] for rate in trial["change_rate"]]
    assert [float(row["change_rate"]) for row in rows] == rates
    assert [int(row["cycle"]) for row in rows[:8]] == [*range(1, 9)]
    tables = (done / "tables.md").read_text()
    assert "| org | 30 (50.0%) | 1 | 30.0 |" in tables
    assert "| sum | 60 | 2 | 30.0 |" in tables
    first = document["trials"][0]
    assert (first["policy"], first["weeks"], first["budget"]) == ("rns", 2, 0.088)
    assert f"| 2 | 8.8% | `rns` | {np.mean(first['change_rate']):.3f} ± " in tables
    assert "| DB finds more in longer cycles | " in tables


def test_the_same_command_gives_the_same_files(done: Path, tmp_path: Path) -> None:
    """Byte for byte; another seed gives other results."""
    contents = done.parent / "contents.jsonl"
    assert run(contents, tmp_path / "again") == 0
    assert run(contents, tmp_path / "other", "--seed", "7") == 0
    for path in done.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name
    assert (done / "cycles.csv").read_bytes() != (tmp_path / "other" / "cycles.csv").read_bytes()


def test_options_of_learning_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They would mean nothing: one error that names the option."""
    with pytest.raises(SystemExit):
        run(tmp_path / "contents.jsonl", tmp_path / "out", "--budget", "0.2")
    assert "leave out --budget" in capsys.readouterr().err


def test_bad_input_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file, too few weeks, and pages without names: a message each, and exit code 2."""
    assert run(tmp_path / "gone", tmp_path / "out") == 2
    short = write_linked(tmp_path / "short.jsonl", weeks=9)
    assert run(short, tmp_path / "out") == 2
    assert "at least 16" in capsys.readouterr().err.replace("\n", " ")
    nameless = tmp_path / "nameless.npz"
    write_npz(nameless, generate("poisson", 50, 20, 1))
    assert run(nameless, tmp_path / "out") == 2
    assert "names of its pages" in capsys.readouterr().err.replace("\n", " ")
