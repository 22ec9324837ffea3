"""The quick experiment writes the files that it wrote at f82bcb1."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import normal
import pytest

GOLDEN = normal.load("experiment")
PICTURES = [name for name in GOLDEN["files"] if name.endswith((".png", ".svg"))]
OTHERS = [name for name in GOLDEN["files"] if name not in PICTURES]


def test_the_same_files_are_written(experiment: Any) -> None:
    """The directory has the recorded files; the command printed what it had printed."""
    assert list(experiment["files"]) == list(GOLDEN["files"])
    normal.check(experiment["printed"], GOLDEN["printed"])


@pytest.mark.parametrize("name", OTHERS)
def test_results_tables_and_report(experiment: Any, name: str) -> None:
    """Results, tables and report are as recorded, but for times and versions."""
    normal.check(experiment["files"][name], GOLDEN["files"][name])


def test_the_report_can_be_made_again(experiment: Any) -> None:
    """From the directory of results, the report is the recorded one."""
    normal.check(experiment["again"], GOLDEN["again"])


@pytest.mark.parametrize("name", PICTURES)
def test_figures(experiment: Any, name: str) -> None:
    """Figures have the recorded size; with the recorded matplotlib, they are the same figures."""
    ours, recorded = experiment["files"][name], GOLDEN["files"][name]
    if name.endswith(".png"):
        assert ours["size"] == recorded["size"]
    if importlib.metadata.version("matplotlib") != GOLDEN["matplotlib"]:
        pytest.skip(f"drawn with matplotlib {GOLDEN['matplotlib']}")
    normal.check(ours, recorded)
