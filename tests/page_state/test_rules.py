"""Rules about pages: their values, and the URLs that they match."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_gp4c.page_state.rules import read_rules, read_span, url_matches


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"max_age": "9" * 400 + "d"}, "expected a time"),  # infinite seconds broke the planning
        ({"max_age": "1 month"}, "units: s, m, h, d, w"),
        ({"never": True, "max_age": "1d"}, "leave one of them out"),
        ({"distance": "share:200%"}, "at most 100%"),  # no page would ever have changed
    ],
)
def test_a_rule_that_cannot_be_kept_is_one_error(rule: dict[str, Any], message: str) -> None:
    """The error says what was expected."""
    with pytest.raises(ValueError, match=message):
        read_rules([{"match": "*", **rule}])


def test_times_have_units() -> None:
    """From seconds to weeks."""
    seconds = [read_span(f"2{unit}").seconds for unit in "smhdw"]
    assert seconds == [2, 120, 7200, 172_800, 1_209_600]


def test_globs_match_decoded_hosts_and_paths() -> None:
    """People write a URL as their browser shows it; a host that is no IDN stays as it is."""
    url = "https://xn--mnchen-3ya.de:8080/stra%C3%9Fe?a=1"
    for glob in ("*münchen.de*", "*münchen.de:8080/straße?a=*", "*xn--mnchen-3ya*", "straße"):
        assert url_matches(url, glob)
    assert url_matches("https://xn--0000000.de/", "*xn--*")
    assert not url_matches(url, "*other.de*")
