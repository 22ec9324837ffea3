"""Options of several commands: what their texts mean."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scrapy.settings import Settings as ScrapySettings

import training
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.settings import Settings
from tests.support.contents import random_pages, write_contents
from training import evaluate, learn
from training.comparing.evaluation import cycles_of
from training.replaying.metrics import parse_budget


def test_cycles_are_counted_from_1_and_both_ends_belong_to_the_part() -> None:
    """39:57 are the journal's test days; an end left out is the history's own."""
    assert cycles_of("39:57", 57) == slice(38, 57)
    assert cycles_of("3:", 9) == slice(2, 9)
    assert cycles_of(":3", 9) == slice(0, 3)
    assert cycles_of(":", 9) == slice(0, 9)
    for text in ("0:4", "5:4", "1:10", "4", "a:b", "-1:3", "1:2:3"):
        with pytest.raises(HistoryError, match=r"--cycles: expected A:B.*1 <= A <= B <= 9"):
            cycles_of(text, 9)


def test_a_budget_is_a_share_or_a_count() -> None:
    """The point decides: 1.0 is everything, 1 is one page."""
    assert (parse_budget("1"), parse_budget("1.0"), parse_budget("0.05")) == (1, 1.0, 0.05)
    assert isinstance(parse_budget("1"), int)
    assert parse_budget("5%") == 0.05
    with pytest.raises(HistoryError, match="--budget: expected a share such as"):
        parse_budget("5 pages")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Contents and a log of queries, as the commands take them."""
    log = tmp_path / "queries.tsv"
    log.write_text("a\t5\nb\t3\na b\t2\nc d\t1\n")
    return [str(write_contents(tmp_path / "contents", random_pages(3, 20, 12))), "--query-log", str(log)]


def test_quality_stands_beside_the_other_metrics(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the table, the JSON document and CSV, under every scoring."""
    out, rows = tmp_path / "out.json", tmp_path / "out.csv"
    for scoring in ("tfidf", "inlinks"):
        arguments = [*files, "--score", "user-centric", "t", "--scoring", scoring, "--budget", "4"]
        assert evaluate.main([*arguments, "--json", str(out), "--csv", str(rows)]) == 0
        assert "search quality" in capsys.readouterr().out
        result = json.loads(out.read_text())["results"]
        assert [one["score"] for one in result] == ["user-centric", "t"]
        assert all(0.0 < one["quality"]["mean"] <= 1.0 for one in result)
        assert {"impact", "quality", "change_rate"} <= set(rows.read_text().splitlines()[0].split(","))


def test_what_is_missing_is_named(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A log, contents, a terminal's evidence."""
    source = files[0]
    assert evaluate.main([source, "--site", "docs"]) == 2
    assert "go with --query-log" in capsys.readouterr().err
    assert evaluate.main([source, "--score", "user-centric"]) == 2
    assert "need contents and a log of queries" in capsys.readouterr().err
    assert evaluate.main([files[2], "--query-log", files[2]]) == 2
    assert "expected a line of JSON per page" in capsys.readouterr().err
    assert evaluate.main([source, "--query-log", source]) == 2
    assert "no tab" in capsys.readouterr().err


def test_functions_are_learned_for_impact(files: list[str], tmp_path: Path) -> None:
    """What is written has the terminals asked for; a replay of the contents reads it."""
    out = tmp_path / "score.json"
    arguments = [
        *files,
        "--fitness",
        "impact",
        "--terminals",
        "n,X,t,dq_rate",
        "--budget",
        "3",
        "-o",
        str(out),
    ]
    arguments += ["--population", "8", "--generations", "1", "--seeds", "1", "--jobs", "1", "--warmup", "1"]
    assert learn.main([*arguments, "--protocol", "simple"]) == 0
    learned = load(str(out))  # the default stays unless another is surely better
    assert set(learned.terminals) <= {"n", "X", "t", "dq_rate"} or learned.formula == load("default").formula
    assert json.loads(out.read_text())["fitness"] == "impact"
    assert evaluate.main([*files, "--score", str(out), "--budget", "4"]) == 0
    live = Settings.load(ScrapySettings({"GP4C_SCORE_FUNCTION": str(out), "GP4C_QUERY_LOG": files[2]}))
    assert live.score_function.formula == load(str(out)).formula


def test_policies_that_know_all_updates_stand_beside_the_others(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone, and with score functions, which choose as ever."""
    out = tmp_path / "out.json"
    rows = {}
    for more in (["--policy", "sbr(tau=.3)"], ["--policy", "sbr(tau=.3)", "ebr(tau=.5)", "--score", "t"]):
        assert evaluate.main([*files, *more, "--budget", "4", "--json", str(out)]) == 0
        rows = {one["score"]: one["quality"]["mean"] for one in json.loads(out.read_text())["results"]}
    assert rows.keys() == {"t", "sbr(tau=.3)", "ebr(tau=.5)"}
    assert all(0.0 < quality <= 1.0 for quality in rows.values())
    assert evaluate.main([*files, "--policy", "sbr(tau=.3)", "--budget", "4", "--seeds", "2"]) == 0
    assert "Pandey & Olston 2005" in capsys.readouterr().out
    assert evaluate.main([*files, "--policy", "sbr(tau=2)"]) == 2
    assert "takes for tau" in capsys.readouterr().err


FOLDER = Path(training.__file__).parent
COMMANDS = sorted(
    path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text() and path.stem != "__init__"
)


@pytest.mark.slow
def test_every_command_names_the_extra(tmp_path: Path) -> None:
    """Or it needs none, and shows its help."""
    blocked = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in training.EXTRAS)
    (tmp_path / "sitecustomize.py").write_text(blocked)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(FOLDER.parent)))}
    sinners = {}
    named = []
    for command in COMMANDS:
        run = subprocess.run(
            [sys.executable, "-m", f"training.{command}", "--help"],
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
        lines = run.stderr.splitlines()
        if run.returncode and len(lines) == 1 and "pip install 'scrapy-gp4c[train]'" in lines[0]:
            named.append(command)
        elif run.returncode:
            sinners[command] = run.stderr
    assert sinners == {}
    assert {"learn", "evaluate", "experiment"} <= {*named}
