"""How a worker's run is opened: what it cannot have is refused, what the cycle's opener decided holds."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Spider
from scrapy.settings import Settings as ScrapySettings
from scrapy.utils.test import get_crawler

from scrapy_gp4c.distributed.cycles import Decided
from scrapy_gp4c.distributed.opening import CAPS, as_decided, check_alone
from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.settings import Settings

LEDGER = {"GP4C_LEDGER": "postgresql://crawl@db.example/crawl"}


def loaded(**given: Any) -> Settings:
    """Settings of a worker."""
    return Settings.load(ScrapySettings({**LEDGER, **given}))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"JOBDIR": "jobs"}, "expected no JOBDIR with GP4C_LEDGER, .*; found it set"),
        ({"GP4C_ARCHIVE": True}, "expected no GP4C_ARCHIVE with"),
        (
            {"GP4C_QUERY_LOG": "log.tsv", "JOBDIR": "jobs"},
            "expected no JOBDIR and no GP4C_QUERY_LOG with .* found them set",
        ),
    ],
)
def test_what_needs_all_pages_is_refused(given: dict[str, Any], expected: str) -> None:
    """With all of its names in one error."""
    crawler = get_crawler(Spider, {**LEDGER, **given})
    with pytest.raises(SettingsError, match=expected):
        check_alone(crawler, loaded(**given))


def test_other_settings_are_fine() -> None:
    """Those of an ordinary crawl."""
    check_alone(get_crawler(Spider, LEDGER), loaded(GP4C_PANEL=0.1))


VALUES = {
    "new_pages": st.none() | st.integers(0, 10**6),
    "new_pages_per_site": st.none() | st.integers(0, 10**6),
    "max_pages": st.none() | st.integers(0, 10**6),
    "max_pages_per_site": st.none() | st.integers(0, 10**6),
    "warmup_visits": st.integers(0, 50),
    "panel": st.floats(0, 1),
    "distance_bits": st.integers(1, 64),
    "gone_after": st.integers(1, 255),
}


def test_all_caps_have_values_here() -> None:
    """They are settings, and none is forgotten below."""
    assert set(CAPS) == VALUES.keys() <= {field.name for field in dataclasses.fields(Settings)}


@given(st.fixed_dictionaries({}, optional=VALUES), st.integers(1, 10**6))
def test_the_openers_caps_hold(caps: dict[str, Any], budget: int) -> None:
    """As they come back from the ledger; what it did not decide, and all else, stays the worker's own."""
    own = loaded(GP4C_BUDGET=budget, GP4C_WORKER="w7")
    decided = Decided(*json.loads(json.dumps(Decided({"budget": 1}, {**caps, "of a later version": 3}))))
    found = as_decided(own, decided)
    for field in dataclasses.fields(Settings):
        assert getattr(found, field.name) == caps.get(field.name, getattr(own, field.name))
