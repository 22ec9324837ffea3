"""Rules about pages: their values, and the URLs that they match."""

from typing import Any

import pytest

from scrapy_gp4c.page_state.rules import (
    Distance,
    PageRule,
    Span,
    read_distance,
    read_rules,
    read_span,
    rule_of,
    url_matches,
)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"max_age": "9" * 400 + "d"}, "expected a time"),  # infinite seconds broke the planning
        ({"max_age": "1 month"}, "units: s, m, h, d, w"),
        ({"never": True, "max_age": "1d"}, "leave one of them out"),
        ({"distance": "share:200%"}, "at most 100%"),  # no page would ever have changed
        ({"max_age": "1d", "min_interval": 3}, "give both as times, or both in cycles"),
        ({"max_age": "1d", "min_interval": "2d"}, "must not be longer than max_age"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_one_error(rule: dict[str, Any], message: str) -> None:
    """The error says what was expected."""
    with pytest.raises(ValueError, match=message):
        read_rules([{"match": "*", **rule}])


def test_times_and_distances_have_units() -> None:
    """From seconds to weeks; words or a share of them, and nothing of the other."""
    seconds = [read_span(f"2{unit}").seconds for unit in "smhdw"]
    assert seconds == [2, 120, 7200, 172_800, 1_209_600]
    distances = [read_distance(text) for text in ("any", "words:3", "share:1.5%")]
    assert distances == [Distance(0, 0.0), Distance(3, 0.0), Distance(0, 0.015)]


@pytest.mark.parametrize(
    ("rule", "meta", "spans"),
    [
        ({"max_age": "1d"}, {"gp4c_max_age": 2}, (Span(2), None)),
        ({"min_interval": "6h"}, {"gp4c_max_age": "1d"}, (read_span("1d"), read_span("6h"))),
        ({"min_interval": "6h"}, {"gp4c_max_age": "1h"}, (read_span("1h"), None)),  # the rule had won
        ({"min_interval": "6h"}, {"gp4c_max_age": 2}, (Span(2), None)),  # a promise that none could keep
        ({"max_age": 2}, {"gp4c_min_interval": "6h"}, (None, read_span("6h"))),
        ({"max_age": 2}, {"gp4c_max_age": 1, "gp4c_min_interval": 3}, (Span(2), None)),
        ({"never": True}, {"gp4c_max_age": 1}, (None, None)),
    ],
)
def test_of_a_rule_what_contradicts_the_request_is_set_aside(
    rule: dict[str, Any], meta: dict[str, Any], spans: tuple[Span | None, Span | None]
) -> None:
    """The request wins; but where it contradicts itself it says nothing, and ``never`` stays."""
    result: PageRule = rule_of(read_rules([{"match": "*", **rule}]), "http://h/", meta)
    assert (result.max_age, result.min_interval) == spans


def test_globs_match_decoded_hosts_and_paths() -> None:
    """People write a URL as their browser shows it; a host that is no IDN stays as it is."""
    url = "https://xn--mnchen-3ya.de:8080/stra%C3%9Fe?a=1"
    for glob in ("*münchen.de*", "*münchen.de:8080/straße?a=*", "*xn--mnchen-3ya*", "straße"):
        assert url_matches(url, glob)
    assert url_matches("https://xn--0000000.de/", "*xn--*")
    assert not url_matches(url, "*other.de*")
