"""The experiment, end to end on a small history: its files, and that it resumes."""

import csv
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrapy_gp4c.scoring.terminals import PAPER_SETS
from tests.support.linked import write_linked
from training import experiment
from training.comparing.trials import BASELINES
from training.evolution.choices import SPLITS
from training.evolution.selection import SELECTIONS
from training.histories import splits
from training.histories.formats import write_npz
from training.histories.models import generate
from training.histories.reading import read_history
from training.papers import journal as module
from training.papers.journal import FITNESSES, TABLES, label, paper_charts, read_results
from training.replaying.metrics import ORACLE
from training.replaying.replay import replay

VOLATILE = {"created", "total_s", "wall_s", "replay_s", "resumed", "replays"}
"""What two runs of the same experiment may differ in."""


def run(history: Path, output: Path, *more: str) -> int:
    """Run the command at its quick size, in this process."""
    arguments = [str(history), "-o", str(output), "--quick", "--budget", "0.1", "--jobs", "1", *more]
    return experiment.main(arguments)


def stable(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: stable(value) for key, value in content.items() if key not in VOLATILE}
    return [stable(value) for value in content] if isinstance(content, list) else content


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "history.npz"
    write_npz(path, generate("poisson", 300, 18, 1))
    return path


@pytest.fixture(scope="module")
def done(history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished quick experiment."""
    output = tmp_path_factory.mktemp("experiment") / "out"
    assert run(history, output) == 0
    return output


@pytest.mark.slow
def test_all_artefacts_are_there(done: Path) -> None:
    """Results, tables, figures and report; nothing is left of the checkpoints."""
    expected = {"results.json", "report.html", "tables.md", *(f"{name}.csv" for name in TABLES)}
    expected |= {
        f"{chart.key}{suffix}" for chart in paper_charts(read_results(done)) for suffix in (".png", ".svg")
    }
    expected |= {f"learned-{fitness}-{terminals}.json" for fitness in FITNESSES for terminals in PAPER_SETS}
    assert {path.name for path in done.iterdir()} == expected


@pytest.mark.slow
def test_results_are_those_of_replays(done: Path, history: Path) -> None:
    """Every series is what a replay of the function on that fold's test set gives; the oracle is best."""
    content = json.loads((done / "results.json").read_text())
    names = {label(s, t, f) for s in SELECTIONS for t in PAPER_SETS for f in FITNESSES}
    assert set(content["series"]) == {*BASELINES, ORACLE, *names}
    parts = splits.protocol_splits(read_history(history), "journal", seed=1, warmup=2)
    for entry in content["learned"]:
        name = label(entry["selection"], entry["terminals"], entry["fitness"])
        for fold, (part, one) in enumerate(zip(parts, entry["folds"], strict=True)):
            result = replay(part.test, one["text"], budget=0.1, seed=1)
            assert content["series"][name]["ndcg"][fold] == result.ndcg.tolist()
            assert one["values"]["test"]["ndcg"] == pytest.approx(float(result.ndcg.mean()))
            assert set(SPLITS) <= set(one["values"])
    oracle = np.array(content["series"][ORACLE]["change_rate"])
    for name in BASELINES:  # in the first cycle; later the oracle has left less to find
        replayed = np.array(content["series"][name]["change_rate"])
        assert (replayed[:, 0] <= oracle[:, 0]).all()
    assert set(content["smaller_budgets"]) == {"0.02", "0.04", "0.06", "0.08"}


@pytest.mark.slow
def test_an_interrupted_experiment_goes_on(
    done: Path, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the second learning run, then the same command: results equal the uninterrupted ones."""
    real = module.learn_by_rules
    calls = 0

    def interrupted(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            watch = named["watch"]
            step = watch.generation

            def generation(number: int, asked: int) -> None:
                if number == 2:
                    raise KeyboardInterrupt
                step(number, asked)

            watch.generation = generation
        return real(*arguments, **named)

    output = tmp_path / "out"
    monkeypatch.setattr(module, "learn_by_rules", interrupted)
    assert run(history, output) == 130
    assert (output / "checkpoint-ndcg-all").is_dir()
    assert not (output / "results.json").exists()
    monkeypatch.undo()
    assert run(history, output) == 0
    ours, expected = (json.loads((path / "results.json").read_text()) for path in (output, done))
    assert stable(ours) == stable(expected)


@pytest.mark.slow
def test_another_experiment_is_refused(done: Path, history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other choices in the same directory are an error that names the file, not a mixture."""
    before = (done / "results.json").read_bytes()
    assert run(history, done, "--seed", "2") == 2
    assert "belongs to another experiment" in capsys.readouterr().err.replace("\n", " ")
    assert (done / "results.json").read_bytes() == before


def test_bad_input_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A history that is missing or too short is one message and exit code 2."""
    assert run(tmp_path / "gone.npz", tmp_path / "out") == 2
    short = tmp_path / "short.npz"
    write_npz(short, generate("poisson", 50, 5, 1))
    assert run(short, tmp_path / "out") == 2
    assert "needs at least" in capsys.readouterr().err.replace("\n", " ")


FIGURES = ("figure-4", "figure-5", "figure-6", "figure-7", "figure-8", "figure-9")


@pytest.fixture(scope="module")
def tan_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("experiment")
    contents = write_linked(directory / "contents.jsonl")
    assert run_tan(contents, directory / "out") == 0
    return directory / "out"


def run_tan(history: Path, output: Path, *more: str) -> int:
    return experiment.main([str(history), "-o", str(output), "--protocol", "tan", "--quick", *more])


@pytest.mark.slow
def test_all_artefacts_of_tan_are_there(tan_done: Path) -> None:
    """JSON, CSV, tables, and every figure as PNG and SVG; PNGs are pictures, SVGs have their text."""
    expected = {"results.json", "cycles.csv", "tables.md"}
    expected |= {f"{name}{ending}" for name in FIGURES for ending in (".png", ".svg")}
    assert {path.name for path in tan_done.iterdir()} == expected
    for name in FIGURES:
        assert (tan_done / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    said = {
        name: "".join(ElementTree.parse(tan_done / f"{name}.svg").getroot().itertext()) for name in FIGURES
    }
    assert "slashes" in said["figure-4"]
    assert all(text in said["figure-5"] for text in ("LB", "DB", "CB"))
    assert all(text in said["figure-6"] for text in ("RNS", "RR", "GSB", "LB(d=3)", "DB(d=1)", "CB(d=0)"))
    assert "cycles of 4 weeks" in said["figure-7"]
    assert all(text in said["figure-8"] for text in ("PRA", "DB"))
    assert all(text in said["figure-9"] for text in ("RNS", "HA", "WHA"))


@pytest.mark.slow
def test_tables_say_what_the_results_say(tan_done: Path) -> None:
    """CSV and JSON have the same values; Table 1 counts all pages; rows are means of cycles."""
    document = json.loads((tan_done / "results.json").read_text())
    with (tan_done / "cycles.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    rates = [rate for trial in document["trials"] for rate in trial["change_rate"]]
    assert [float(row["change_rate"]) for row in rows] == rates
    assert [int(row["cycle"]) for row in rows[:8]] == [*range(1, 9)]
    tables = (tan_done / "tables.md").read_text()
    assert "| org | 30 (50.0%) | 1 | 30.0 |" in tables
    assert "| sum | 60 | 2 | 30.0 |" in tables
    first = document["trials"][0]
    assert (first["policy"], first["weeks"], first["budget"]) == ("rns", 2, 0.088)
    assert f"| 2 | 8.8% | `rns` | {np.mean(first['change_rate']):.3f} ± " in tables
    assert "| DB finds more in longer cycles | " in tables


@pytest.mark.slow
def test_the_same_command_gives_the_same_files(tan_done: Path, tmp_path: Path) -> None:
    """Byte for byte; another seed gives other results."""
    contents = tan_done.parent / "contents.jsonl"
    assert run_tan(contents, tmp_path / "again") == 0
    assert run_tan(contents, tmp_path / "other", "--seed", "7") == 0
    for path in tan_done.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name
    assert (tan_done / "cycles.csv").read_bytes() != (tmp_path / "other" / "cycles.csv").read_bytes()


def test_options_of_learning_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They would mean nothing: one error that names the option."""
    with pytest.raises(SystemExit):
        run_tan(tmp_path / "contents.jsonl", tmp_path / "out", "--budget", "0.2")
    assert "leave out --budget" in capsys.readouterr().err


def test_bad_input_of_tan_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file, too few weeks, and pages without names: a message each, and exit code 2."""
    assert run_tan(tmp_path / "gone", tmp_path / "out") == 2
    short = write_linked(tmp_path / "short.jsonl", weeks=9)
    assert run_tan(short, tmp_path / "out") == 2
    assert "at least 16" in capsys.readouterr().err.replace("\n", " ")
    nameless = tmp_path / "nameless.npz"
    write_npz(nameless, generate("poisson", 50, 20, 1))
    assert run_tan(nameless, tmp_path / "out") == 2
    assert "names of its pages" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "learned"),
    [
        ("thesis", {"GP4C best basic change_rate"}),
        ("journal", {f"GP4C best {t} {f}" for t in ("basic", "all") for f in ("ndcg", "change_rate")}),
    ],
)
def test_a_preset_is_one_paper(
    preset: str, learned: set[str], history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Operators, division, depths, splits, clock and terminals are the paper's, and the results say so."""
    assert (
        experiment.main([str(history), "-o", str(tmp_path), "--preset", preset, "--quick", "--jobs", "1"])
        == 0
    )
    content = json.loads((tmp_path / "results.json").read_text())
    choices, parameters = content["choices"], content["choices"]["parameters"]
    assert content["preset"] == choices["protocol"] == parameters["operators"] == preset
    assert parameters["protected_division"] == {"thesis": "large", "journal": "zero"}[preset]
    assert (choices["clock"], choices["warmup"], choices["budget"]) == ("cycles", 2, 0.05)
    assert choices["fitness"] == content["learned"][0]["fitness"]
    assert parameters["depths"] == [2, 6, 9, 10]
    assert {name for name in content["series"] if name.startswith("GP4C best")} == learned
    texts = [fold["text"] for one in content["learned"] for fold in one["folds"]]
    assert not any(("/" if preset == "thesis" else "div(") in text for text in texts)
    assert read_results(tmp_path).preset == preset
    assert (tmp_path / "report.html").exists()
    assert "| GP4C basic |" in capsys.readouterr().out


def test_options_overrule_a_preset() -> None:
    """What is written out counts."""
    arguments = experiment.parser().parse_args(["h", "-o", "d", "--operators", "thesis"])
    assert (arguments.operators, arguments.preset) == ("thesis", None)
