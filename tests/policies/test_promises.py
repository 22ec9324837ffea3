"""Promises: visits by earliest deadline, against a plain simulation, and what must never happen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.policies.promises import HORIZON, PROMISE, needed_visits, promised_visits

CYCLES = 40
Page = tuple[int, int, int]
"""max_age, min_interval, cycles since the last visit; all in cycles."""


@st.composite
def a_page(draw: st.DrawFn) -> Page:
    """A page that is not late yet."""
    max_age = draw(st.integers(1, 12))
    return max_age, draw(st.integers(1, max_age)), draw(st.integers(1, max_age))


def chosen(pages: list[Page], age: list[int], budget: int, all_of_it: bool = False) -> list[int]:
    """Pages that a cycle visits by their promises; ``all_of_it``: by earliest deadline, as many as fit."""
    slack = [most - now for (most, _, _), now in zip(pages, age, strict=True)]
    is_open = [now >= least for (_, least, _), now in zip(pages, age, strict=True)]
    if all_of_it:
        order = sorted(range(len(pages)), key=lambda page: (slack[page], *pages[page][:2], page))
        return [page for page in order if is_open[page]][:budget]
    rows = [(left, *page[:2], one) for left, page, one in zip(slack, pages, is_open, strict=True)]
    promised = np.array(rows, PROMISE)
    return promised_visits(promised, budget).tolist()


def latest(pages: list[Page], budget: int, all_of_it: bool, cycles: int = CYCLES) -> tuple[int, int]:
    """Cycles by which the latest visit comes later than promised, and visits in all."""
    age, late, visits = [now for _, _, now in pages], 0, 0
    for _ in range(cycles):
        now = chosen(pages, age, budget, all_of_it)
        assert len(now) == len(set(now)) <= budget
        assert all(age[page] >= pages[page][1] for page in now)
        late = max([late, *(age[page] - pages[page][0] for page in range(len(pages)))])
        visits += len(now)
        age = [1 if page in now else one + 1 for page, one in enumerate(age)]
    return late, visits


@pytest.mark.slow
@given(st.lists(a_page(), min_size=1, max_size=14), st.integers(1, 6))
def test_no_page_is_late_if_earliest_deadline_first_could_keep_it(pages: list[Page], budget: int) -> None:
    """And the budget holds, no interval is broken, and no more visits are made than by that rule."""
    late, visits = latest(pages, budget, all_of_it=False)
    assert visits <= latest(pages, budget, all_of_it=True)[1]
    if late:
        assert latest(pages, budget, True, cycles=CYCLES + HORIZON)[0] > 0


@given(st.lists(a_page(), min_size=1, max_size=14), st.integers(1, 6))
def test_a_page_is_visited_when_it_is_due_and_rarely_before(pages: list[Page], budget: int) -> None:
    """Pages that are due come first, by deadline; with room for all pages, no other is visited."""
    age = [now for _, _, now in pages]
    now = chosen(pages, age, budget)
    due = [page for page, (most, least, one) in enumerate(pages) if one >= most and one >= least]
    slack = [pages[page][0] - age[page] for page in now]
    assert slack == sorted(slack)
    assert set(now) >= set(due) or (len(now) == budget and set(now) <= set(due))
    if budget >= len(pages):
        assert set(now) == set(due)


def test_the_latest_are_least_late_where_the_budget_is_too_small() -> None:
    """30 pages a cycle need 30 visits; with 10 each is visited in every third cycle, none starves."""
    late, _ = latest([(1, 1, 1)] * 30, 10, all_of_it=False)
    assert late == 2


def test_pages_with_one_deadline_are_begun_early_enough_and_no_earlier() -> None:
    """100 pages due in cycle 9 and a budget of 30: the last 4 cycles visit 10, 30, 30 and 30."""
    pages: list[Page] = [(50, 1, 41)] * 100
    age, counts = [41] * 100, []
    for _ in range(10):
        now = chosen(pages, age, 30)
        counts.append(len(now))
        age = [1 if page in now else one + 1 for page, one in enumerate(age)]
    assert counts == [0] * 6 + [10, 30, 30, 30]


def test_needed_visits_are_the_sum_of_the_rates() -> None:
    """3 pages in every cycle, 10 in every fifth."""
    assert needed_visits(np.array([1] * 3 + [5] * 10)) == 5
