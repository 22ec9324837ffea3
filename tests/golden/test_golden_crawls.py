"""Crawls do what they did at f82bcb1: requests, outcomes, statistics, log lines, stores and commands."""

from __future__ import annotations

from typing import Any

import normal
import pytest
import scenarios

GOLDEN = normal.load("crawls")
CRAWLS = [name for name in GOLDEN if name != "help"]


def runs(steps: list[Any]) -> list[Any]:
    """The steps that are crawls."""
    return [step for step in steps if "requests" in step]


def commands(steps: list[Any]) -> list[Any]:
    """The steps that are commands."""
    return [step for step in steps if "exit" in step]


def parts(steps: list[Any], *names: str) -> list[Any]:
    """Some parts of each crawl."""
    return [{name: step[name] for name in names} for step in runs(steps)]


def test_every_scenario_is_checked(crawls: Any) -> None:
    """The scenarios and their steps are those that were recorded."""
    assert {name: len(steps) for name, steps in crawls.items()} == {
        name: len(steps) for name, steps in GOLDEN.items()
    }
    assert set(scenarios.STEPS) <= set(CRAWLS)


@pytest.mark.parametrize("name", CRAWLS)
def test_requests_and_outcomes(crawls: Any, name: str) -> None:
    """Every run makes the recorded requests in their order; callbacks are told the recorded outcomes."""
    wanted = "requests", "items", "reason", "failure"
    normal.check(parts(crawls[name], *wanted), parts(GOLDEN[name], *wanted))


@pytest.mark.parametrize("name", CRAWLS)
def test_statistics_and_log_lines(crawls: Any, name: str) -> None:
    """Every run leaves the recorded ``gp4c/`` statistics and says the recorded lines, by level and text."""
    normal.check(parts(crawls[name], "stats", "log"), parts(GOLDEN[name], "stats", "log"))


@pytest.mark.parametrize("name", CRAWLS)
def test_export_status_and_pages(crawls: Any, name: str) -> None:
    """The commands show the recorded histories, cycle records, counts and pages, with their exit codes."""
    normal.check(commands(crawls[name]), commands(GOLDEN[name]))


@pytest.mark.parametrize("name", scenarios.RESTORED)
def test_a_restored_history_exports_the_same(crawls: Any, name: str) -> None:
    """An export that is imported into a new store and exported again is the same one."""
    exported = next(step for step in commands(crawls[name]) if isinstance(step["out"], list))
    assert commands(crawls[f"{name}_restored"])[1]["out"] == exported["out"]
