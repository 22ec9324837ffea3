"""Stores that f82bcb1 wrote go on: closed, killed in a cycle or in a fold, interrupted with a JOBDIR."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import normal
import pytest
import scenarios

GOLDEN = normal.load("stores")
JOBDIR = normal.load("jobdir")


@pytest.mark.parametrize("name", scenarios.STORES)
def test_a_recorded_store_shows_what_it_showed(stores: Any, name: str) -> None:
    """Before anything writes to it, its status and export are as recorded."""
    normal.check(stores[name][:2], GOLDEN[name][:2])


@pytest.mark.parametrize("name", scenarios.STORES)
def test_a_recorded_store_goes_on(stores: Any, name: str) -> None:
    """The next runs visit what the recorded ones visited, and leave the recorded history."""
    normal.check(stores[name][2:], GOLDEN[name][2:])


@pytest.mark.parametrize(("name", "begun"), [("closed", True), ("killed", False), ("folding", True)])
def test_the_cycle_that_goes_on(stores: Any, name: str, begun: bool) -> None:
    """It begins, or is resumed without its committed visits; an interrupted fold is completed before."""
    first = stores[name][2]
    cycle = scenarios.STORES[name] + (name == "folding")
    assert first["stats"]["gp4c/cycle"] == cycle
    assert first["log"][0].startswith(f"INFO Cycle {cycle} {'begun' if begun else 'resumed'}: ")
    record = stores[name][3]["out"][0]["cycles"][cycle - 1]
    assert record["cycle"] == cycle
    if begun:
        assert record["visited"] == len(first["requests"])
    else:  # the 100 visits of the recording's last commit are not repeated
        assert record["visited"] == len(first["requests"]) + 100


@pytest.mark.skipif(
    importlib.metadata.version("scrapy") != JOBDIR["scrapy"],
    reason="the queue in a JOBDIR is in the format of Scrapy's version",
)
def test_a_recorded_jobdir_goes_on(jobdir: Any) -> None:
    """Pickles that name a module that has moved are left out: every planned page is visited all the same."""
    assert any("in the JOBDIR cannot be read" in line for line in jobdir["steps"][0]["log"])
    for ours, golden in zip(jobdir["steps"], JOBDIR["steps"], strict=True):
        assert sorted(ours.get("requests", [])) == sorted(golden.get("requests", []))
    assert jobdir["steps"][0]["log"][0].startswith("INFO Cycle 3 resumed: ")
    assert jobdir["steps"][0]["reason"] == "finished"
