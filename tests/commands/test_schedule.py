"""Times on a command line: formats, by hypothesis, and clocks."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from scrapy_gp4c.commands.schedule import (
    UNITS_S,
    Now,
    Schedule,
    Timer,
    Window,
    duration,
    percentage,
    window,
)

MINUTES = st.integers(0, 24 * 60 - 1)


@contextmanager
def at_minute(minute: int) -> Iterator[None]:
    """Let it be that minute of the day, wherever this is run."""
    local = time.struct_time((2026, 1, 2, minute // 60, minute % 60, 59, 4, 2, 0))
    with patch.object(time, "localtime", lambda wall: local):
        yield


def clock_text(minute: int) -> str:
    """Minutes of a day as people write them."""
    return f"{minute // 60:02}:{minute % 60:02}"


@given(st.integers(1, 10**6), st.sampled_from(["", *UNITS_S]), st.sampled_from(["", " "]))
def test_a_duration_is_a_number_of_its_unit(number: int, unit: str, blank: str) -> None:
    """Seconds without one; a fraction and blanks are welcome."""
    each_s = UNITS_S.get(unit, 1.0)
    assert duration(f"{blank}{number}{blank}{unit}{blank}") == number * each_s
    assert duration(f"{number}.5{unit}") == (number + 0.5) * each_s


@given(st.text(max_size=5))
def test_no_text_is_a_duration_of_nothing(text: str) -> None:
    """What is not above 0 is refused in words, whatever it is."""
    try:
        assert duration(text) > 0.0
    except ArgumentTypeError as error:
        assert repr(text) in str(error)  # noqa: PT017


@pytest.mark.parametrize("text", ["0", "0.0h", "-1h", "1w", "1h30m", "h", "", "1e3", "inf", "nan", ".5h"])
def test_durations_that_are_none(text: str) -> None:
    """Only one number and one unit: the message gives examples and what was found."""
    with pytest.raises(ArgumentTypeError, match=f"1h, 30m or 45s; found {text!r}"):
        duration(text)


@given(st.integers(0, 99))
def test_a_percentage_is_its_share(number: int) -> None:
    """With the sign or as a fraction."""
    assert percentage(f"{number}%") == percentage(str(number / 100)) == number / 100


@pytest.mark.parametrize("text", ["1", "100%", "-0.1", "-1%", "nan", "nan%", "inf", "%", "", "10 percent"])
def test_percentages_that_are_none(text: str) -> None:
    """All of the interval cannot be jitter: cycles would follow at once."""
    with pytest.raises(ArgumentTypeError, match=r"below 100%.*found "):
        percentage(text)


@given(MINUTES, st.integers(0, 24 * 60), MINUTES)
def test_a_window_is_open_from_its_first_to_before_its_last_minute(
    opens: int, closes: int, minute: int
) -> None:
    """Over midnight too; minute by minute."""
    assume(opens != closes)
    found = window(f"{clock_text(opens)}-{clock_text(closes)}")
    assert found == Window(opens, closes)
    last = closes if closes > opens else closes + 24 * 60
    walked = {at % (24 * 60) for at in range(opens, last)}
    with at_minute(minute):
        assert found.is_open(0.0) == (minute in walked)


@example((24 * 60, 0))
@given(st.tuples(MINUTES | st.just(24 * 60), MINUTES | st.just(24 * 60)))
def test_no_window_is_never_open(ends: tuple[int, int]) -> None:
    """One that is read has a minute in which a cycle may begin: its first."""
    try:
        found = window("-".join(map(clock_text, ends)))
    except ArgumentTypeError:
        assert ends[0] in (ends[1], 24 * 60)
        return
    with at_minute(found.opens):
        assert found.is_open(0.0)


@pytest.mark.parametrize(
    "text", ["", "7-22", "7:00-22:00", "07:00", "07:00-22:60", "07:60-22:00", "07:00-24:01", "24:00-00:00"]
)
def test_windows_that_are_none(text: str) -> None:
    """The message has an example and what was found."""
    with pytest.raises(ArgumentTypeError, match=f"07:00-22:00; found {text!r}"):
        window(text)


@given(st.floats(1.0, 1e6), st.floats(0.0, 0.99), st.integers(0, 99), st.integers(0, 9))
def test_intervals_are_drawn_from_the_seed(every_s: float, jitter: float, number: int, seed: int) -> None:
    """Longer or shorter by at most the jitter, never none; the same in every run."""
    one = Schedule(every_s, jitter, seed=seed)
    found = one.interval_s(number)
    assert 0.0 < every_s * (1.0 - jitter) * (1 - 1e-9) <= found <= every_s * (1.0 + jitter) * (1 + 1e-9)
    assert found == Schedule(every_s, jitter, seed=seed).interval_s(number)
    assert Schedule(every_s).interval_s(number) == every_s


def test_intervals_are_as_often_longer_as_shorter() -> None:
    """So that cycles do not drift; other seeds draw others."""
    drawn = [Schedule(100.0, 0.5, seed=3).interval_s(number) for number in range(2_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(100.0, abs=2.0)
    assert min(drawn) < 52.0
    assert max(drawn) > 148.0
    assert drawn != [Schedule(100.0, 0.5, seed=4).interval_s(number) for number in range(2_000)]


@given(st.floats(-10.0, 1e3), st.floats(0.0, 1e3), st.floats(0.0, 1e3))
def test_a_timer_counts_down_by_the_clock_that_is_ahead(wait_s: float, wall: float, steady: float) -> None:
    """It never counts below 0, and what is past is over at once."""
    timer = Timer(Now(0.0, 0.0), wait_s)
    assert timer.remaining_s(Now(wall, steady)) == max(0.0, wait_s - max(wall, steady))
