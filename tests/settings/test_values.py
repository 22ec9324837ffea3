"""Readers of values: what each makes of a project's value and of the same value as text."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.settings import values
from scrapy_gp4c.settings.table import TABLE
from scrapy_gp4c.settings.values import (
    LOADING,
    budget,
    count,
    flag,
    loaded_callable,
    names,
    optional,
    path,
    share,
)

HANDLED = (ValueError, TypeError, LookupError, OverflowError, Gp4cError, *LOADING)
"""What settings turn into their one error."""

ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.binary(max_size=3)
    | st.lists(st.integers() | st.text(max_size=3), max_size=3)
    | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)
)


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-20, 20))
def test_a_count_is_what_lies_between_its_limits(number: int, low: int, high: int) -> None:
    """As a number and as text alike; a float is a share, such as 1.0 for all pages."""
    for value in (number, str(number), float(number)):
        if low <= number <= high and not isinstance(value, float):
            result = count(value, low, high)
            assert (result, type(result)) == (number, int)
        else:
            with pytest.raises(ValueError):  # noqa: PT011
                count(value, low, high)


@given(st.floats(), st.floats(0.0, 1.0))
def test_a_share_ends_at_one(number: float, low: float) -> None:
    """From its lower limit on, text or not; never NaN."""
    for value in (number, repr(number)):
        if low <= number <= 1.0:
            assert share(value, low) == number
        else:
            with pytest.raises(ValueError):  # noqa: PT011
                share(value, low)


@given(st.integers(1, 10**9), st.floats(0.0, 1.0, exclude_min=True))
def test_a_budget_is_a_count_or_a_share_by_its_point(pages: int, part: float) -> None:
    """``1`` is one page, ``1.0`` are all, as numbers and on the command line."""
    for value in (pages, str(pages)):
        result = budget(value)
        assert (result, type(result)) == (pages, int)
    for share_ in (part, repr(part)):
        result = budget(share_)
        assert (result, type(result)) == (part, float)


def test_flags_are_read_as_people_write_them() -> None:
    """Python's values, digits and words in any case, blanks around; no other word means no."""
    assert [flag(value) for value in (True, 1, "1", "True", " TRUE ", "true")] == [True] * 6
    assert [flag(value) for value in (False, 0, "0", "False", "false\n")] == [False] * 5
    for value in ("yes", "no", "", None, 2, 1.0):
        with pytest.raises(LookupError):
            flag(value)


def test_a_path_is_text_or_nothing() -> None:
    """Empty text is no path: it would be the working directory."""
    assert path(Path("a") / "b") == str(Path("a", "b"))
    assert path("store") == "store"
    assert path("") is path(None) is None
    for value in (0, False, b"store", ["store"]):
        with pytest.raises(TypeError):
            path(value)


@given(
    st.lists(st.text("abcXYZ_0", min_size=1), max_size=5),
    st.lists(st.text(", \t\n", min_size=1), min_size=6, max_size=6),
)
def test_names_stand_between_blanks_and_commas(wanted: list[str], between: list[str]) -> None:
    """However many of them, before the first and after the last too; a list is taken as it is."""
    text = between[0] + "".join(name + gap for name, gap in zip(wanted, between[1:], strict=False))
    assert names(text) == names(wanted) == names(tuple(wanted)) == tuple(wanted)


def test_a_dotted_path_is_loaded_if_it_leads_to_something_to_call() -> None:
    """A callable itself is as good; a path to nowhere raises what `LOADING` names."""
    assert loaded_callable("math.sqrt") is math.sqrt
    assert loaded_callable(math.sqrt) is math.sqrt
    assert loaded_callable(None) is loaded_callable("") is None
    with pytest.raises(TypeError):
        loaded_callable("math.pi")
    for nowhere in ("math.no_such_name", "no_such_module.name"):
        with pytest.raises(LOADING):
            loaded_callable(nowhere)


READERS: dict[str, Callable[[Any], Any]] = {
    "count": lambda value: count(value, 0, 5),
    "optional": optional(lambda value: count(value, 0)),
    **{name: getattr(values, name) for name in ("share", "budget", "flag", "path", "names")},
}


@given(st.sampled_from(sorted(READERS)), ANYTHING)
def test_no_value_breaks_a_reader(name: str, value: Any) -> None:
    """It is read, or refused with an error that settings turn into theirs; what was read reads as itself."""
    try:
        result = READERS[name](value)
    except HANDLED:
        return
    again = READERS[name](result)
    assert (again, type(again)) == (result, type(result))


@pytest.mark.parametrize("name", TABLE)
def test_every_default_is_a_valid_value(name: str) -> None:
    """It would be refused at the start of every crawl otherwise."""
    row = TABLE[name]
    row.read(row.default)
    assert row.expected
