"""The help of every command still has the options and texts that it had at f82bcb1, in their order."""

from __future__ import annotations

from typing import Any

import normal
import pytest
import scenarios

COMMANDS = [step["command"] for step in scenarios.CRAWL_HELPS]
GLOBAL = "Global Options"
"""The head of the options that are Scrapy's own."""


def has_kept(found: Any, recorded: Any) -> None:
    """Assert that no entry of a recorded help text is gone."""
    assert found["exit"] == recorded["exit"] == 0
    texts = (text["out"].partition(GLOBAL)[0] for text in (recorded, found))
    wanted, ours = map(normal.help_entries, texts)
    assert len(wanted) > 3
    assert normal.in_order(wanted, ours) == []


@pytest.mark.parametrize("name", scenarios.HELPS)
def test_help_of_training(training: Any, name: str) -> None:
    """A command of training explains every option that it had as it did; new ones may be there."""
    recorded = normal.load("training")["printed"][f"help {name}"]
    has_kept(training["printed"][f"help {name}"], recorded)


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[" ".join(words) for words in COMMANDS])
def test_help_of_scrapy_gp4c(crawls: Any, number: int) -> None:
    """``scrapy gp4c`` and its actions explain every option that they had as they did."""
    has_kept(crawls["help"][number], normal.load("crawls")["help"][number])
