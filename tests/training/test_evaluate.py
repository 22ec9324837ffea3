"""The evaluation command: its table, its files, its refusals."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from training.comparing.evaluation import DEFAULT_SCORES
from training.evaluate import main
from training.histories.formats import write_text
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.replaying.metrics import METRICS
from training.replaying.replay import replay


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A history of 60 pages and 12 cycles as a file."""
    rng = np.random.default_rng(7)
    changed = rng.random((12, 60)) < rng.random(60) * 0.6
    path = tmp_path_factory.mktemp("history") / "h.txt.gz"
    write_text(path, ChangeHistory(changed, np.zeros(60, int)))
    return path


def test_the_json_file_holds_what_replay_found(path, tmp_path, capsys):
    """Every score exactly as given, every metric per cycle as the replay gives it, settings and digest."""
    scores = ["age", " t *  X", "oracle", "random"]
    out = tmp_path / "out.json"
    arguments = [path, "--score", *scores[:2], "--score", *scores[2:], "--budget", "0.1", "--warmup", "3"]
    arguments += ["--ties", "order", "--clock", "cycles", "--seed", "5", "--json", out]
    assert main([str(argument) for argument in arguments]) == 0
    document = json.loads(out.read_text())
    history = read_history(path)
    assert document["history"]["sha256"] == history.sha256
    assert document["history"]["scored_cycles"] == list(range(4, 13))
    settings = {"budget": 0.1, "k": 6, "warmup": 3, "ties": "order", "clock": "cycles", "seed": 5}
    settings["policy"] = "top_k"
    assert document["settings"] == settings
    assert [result["score"] for result in document["results"]] == scores
    assert [result["formula"] for result in document["results"]] == ["t", "t * X", "oracle", "random"]
    assert [result["clock"] for result in document["results"]] == ["cycles", "cycles", None, "cycles"]
    for result in document["results"]:
        expected = replay(
            history, result["score"], budget=0.1, warmup=3, ties="order", clock="cycles", seed=5
        )
        for name in METRICS:
            assert result[name]["per_cycle"] == getattr(expected, name).tolist()
            assert result[name]["mean"] == pytest.approx(getattr(expected, name).mean())
        assert result["pending"] == expected.pending.tolist()
    assert "seed 5" in capsys.readouterr().out


def test_the_csv_file_has_a_row_per_score_and_cycle(path, tmp_path):
    """Rows carry the cycle's number in the whole history, also when only a part is evaluated."""
    out, all_ = tmp_path / "out.csv", tmp_path / "out.json"
    arguments = [path, "--score", "age", "cg", "--cycles", "5:9", "--csv", out, "--json", all_]
    assert main([str(argument) for argument in arguments]) == 0
    with open(out, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["score"], row["cycle"]) for row in rows] == [
        (score, str(cycle)) for score in ("age", "cg") for cycle in (7, 8, 9)
    ]
    document = json.loads(all_.read_text())
    assert document["history"]["first_cycle"] == 5
    for row, freshness in zip(rows[3:], document["results"][1]["freshness"]["per_cycle"], strict=True):
        assert float(row["freshness"]) == freshness


def test_the_table_lists_all_baselines_by_default(path, capsys):
    """Without --score: every named score function and the oracle, one row each, with intervals."""
    assert main([str(path)]) == 0
    captured = capsys.readouterr()
    for name in DEFAULT_SCORES:
        assert re.search(rf"│ {re.escape(name)} +│ +\d\.\d{{4}} ± \d\.\d{{4}} │", captured.out)
    for heading in ("change rate", "NDCG", "freshness", "harmonic staleness"):
        assert heading in captured.out
    assert captured.err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--score", "t * Y"], "Y"),
        (["--score", "age", "missing.json"], "missing.json"),
        (["--budget", "1.5"], "1.5"),
        (["--budget", "0.001"], "less than one visit"),
        (["--warmup", "12"], "warm-up"),
        (["--cycles", "4:99"], "--cycles"),
        (["--json", "/nowhere/at/all.json", "--score", "age"], "cannot write /nowhere/at/all.json"),
    ],
)
def test_bad_input_is_told_without_a_traceback(path, capsys, arguments, said):
    """Exit code 2 and the error alone on stderr; nothing that looks like a result on stdout."""
    assert main([str(path), *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_the_module_is_a_command(tmp_path):
    """`python -m training.evaluate` on a missing file: one line on stderr and exit code 2."""
    missing = tmp_path / "missing.tsv"
    command = [sys.executable, "-m", "training.evaluate", str(missing)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(missing) in done.stderr


@pytest.mark.parametrize("rounds", [1, 2, 4, 7])
def test_rounds_find_what_top_k_finds(rounds: int, path: Path, tmp_path: Path) -> None:
    """For every named function, number for number: their scores do not change within a cycle."""
    documents = []
    for policy in ("top_k", f"rounds(rounds={rounds})"):
        out = tmp_path / f"{len(documents)}.json"
        assert main([str(path), "--policy", policy, "--json", str(out)]) == 0
        documents.append(json.loads(out.read_text()))
    one, other = documents
    assert one["results"] == other["results"]
    assert [one["settings"].pop("policy"), other["settings"].pop("policy")] == ["top_k", policy]
    assert one["settings"] == other["settings"]


def test_a_policy_of_ones_own_is_replayed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its dotted path; the table's heading names it."""
    own = "tests.support.policies.changed_hosts"
    assert main([str(path), "--score", "nad", "--policy", own]) == 0
    assert f"policy {own};" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "message"),
    [("best", "found 'best'"), ("tests.support.policies.too_many", "the policy 'broken' broke its contract")],
)
def test_a_policy_that_cannot_be_used_is_one_error(
    text: str, message: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether its text cannot be read or its plan breaks the contract."""
    assert main([str(path), "--score", "nad", "--policy", text]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
