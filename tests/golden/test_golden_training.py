"""The commands of training give what they gave at f82bcb1: evaluations, score files, verdicts, reports."""

from __future__ import annotations

import json
from typing import Any

import normal
import pytest
import scenarios

GOLDEN = normal.load("training")
SINCE = "evaluate git", "evaluate-git.json"
"""A job, and its file: at f82bcb1 a budget of less than one page was refused, now it is one page."""
PRINTED = [name for name in GOLDEN["printed"] if not name.startswith("help ") and name not in SINCE]


def test_every_job_and_file_is_checked(training: Any) -> None:
    """The jobs are those that were recorded, and they wrote the files that were recorded."""
    assert list(training["printed"]) == list(GOLDEN["printed"]) == list(scenarios.training_jobs())
    assert [name for name in training["files"] if name not in SINCE] == list(GOLDEN["files"])
    assert [training["printed"][SINCE[0]]["exit"], SINCE[1] in training["files"]] == [0, True]
    assert training["reports_missing"] is GOLDEN["reports_missing"] is False


@pytest.mark.parametrize("name", PRINTED)
def test_what_a_command_prints(training: Any, name: str) -> None:
    """Exit code, output and error output of every command are as recorded."""
    normal.check(training["printed"][name], GOLDEN["printed"][name])


@pytest.mark.parametrize("name", GOLDEN["files"])
def test_what_a_command_writes(training: Any, name: str) -> None:
    """Histories, evaluations as JSON and CSV, and score files are as recorded."""
    normal.check(training["files"][name], GOLDEN["files"][name])


@pytest.mark.parametrize("name", GOLDEN["reports"])
def test_reports(training: Any, name: str) -> None:
    """The reports of a score file and of a recorded store are as recorded."""
    normal.check(training["reports"][name], GOLDEN["reports"][name])


def test_a_recorded_checkpoint_is_resumed(training: Any) -> None:
    """From the checkpoint of a killed run of f82bcb1, learning ends with the file of a whole run."""
    checkpoint_of = [training["printed"][name]["exit"] for name in ("learn not resumed", "learn resumed")]
    assert checkpoint_of == [2, 0]
    assert training["files"]["resumed.json"] == training["files"]["whole.json"]
    assert not training["checkpoint_left"]


def test_promotion_has_both_ends(training: Any) -> None:
    """The champion of the recording is replaced, and what replaced it is kept: exit codes 0 and 3."""
    exits = [training["printed"][name]["exit"] for name in ("promote promoted", "promote kept")]
    assert exits == [0, 3]
    in_use = training["files"]["champion.json"]["expression"]
    assert in_use != json.loads(scenarios.CHAMPION.read_text())["expression"]
