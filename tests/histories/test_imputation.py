"""Outcomes that nobody observed: the thesis rule for errors, and draws between irregular visits."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from training.histories import models
from training.histories.history import ChangeHistory
from training.histories.imputation import change_rates, draw_between_visits, fill_lost_cycles, unchanged_gaps
from training.replaying.replay import replay


def columns(*pages: str) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes and what was observed, ``[D, P]``, from one text per page: 0, 1, or ? for a lost cycle."""
    text = np.array([list(page) for page in pages]).T
    return text == "1", text != "?"


def texts(bits: np.ndarray) -> list[str]:
    return ["".join("01"[bit] for bit in page) for page in bits.T.astype(int)]


@pytest.mark.parametrize(
    ("page", "filled", "guessed"),
    [
        # changes in cycles 2, 4, 7 and 9: gaps 2, 3 and 2; 9 + 2 = 11
        ("0101001010?1", "010100101011", 1),
        # the same page, lost one cycle earlier: 9 + 2 is not 10
        ("010100101?11", "010100101011", 1),
        # the visit after the lost cycle found no change since the copy of before it
        ("0101001010?0", "010100101000", 0),
        # changes in 1, 3 and 6: gaps 2 and 3 are equally frequent, the shorter counts: 6 + 2 = 8
        ("1010010?1", "101001011", 1),
        ("101001001?", "1010010010", 1),
        # one change is no gap
        ("0010?1", "001001", 1),
        # no change at all; lost at the very beginning
        ("?100", "0100", 1),
        # two lost cycles in a row: the change filled in counts for the second
        ("0110110??1", "0110110001", 2),
        ("0111??1", "0111111", 2),
        # lost at the end, with nothing after it
        ("01010?", "010101", 1),
    ],
)
def test_worked_examples(page: str, filled: str, guessed: int) -> None:
    """The thesis rule, cycle by cycle as docs/lab/closing-the-loop.md works it."""
    out, guesses = fill_lost_cycles(*columns(page))
    assert texts(out) == [filled]
    assert guesses.sum() == guessed


def model(page: str) -> str:
    """Return the same page filled in, in plain Python."""
    out: list[int] = []
    for cycle, outcome in enumerate(page):
        if outcome != "?":
            out.append(int(outcome))
            continue
        following = page[cycle:].lstrip("?")[:1]
        changes = [i for i, bit in enumerate(out) if bit]
        gaps = Counter(b - a for a, b in pairwise(changes))
        gap = min(gaps, key=lambda g: (-gaps[g], g)) if gaps else None
        out.append(int(following != "0" and gap is not None and changes[-1] + gap == cycle))
    return "".join(map(str, out))


PAGES = st.integers(1, 14).flatmap(
    lambda cycles: st.lists(st.text("01?", min_size=cycles, max_size=cycles), min_size=1, max_size=8)
)


@given(PAGES)
def test_filling_equals_the_model(pages: list[str]) -> None:
    """Whatever is lost, page by page; observed outcomes stay."""
    changed, observed = columns(*pages)
    filled, guessed = fill_lost_cycles(changed, observed)
    assert texts(filled) == [model(page) for page in pages]
    assert np.array_equal(filled[observed], changed[observed])
    assert np.array_equal(guessed | unchanged_gaps(changed, observed), ~observed)


def with_errors(
    history: ChangeHistory, share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """What a crawl that visits every page in every cycle finds if this share of its visits fails."""
    observed = rng.random(history.changed.shape) >= share
    seen = np.zeros_like(observed)
    pending = np.zeros(history.pages, bool)
    for cycle, now in enumerate(history.changed):
        pending |= now
        seen[cycle] = pending & observed[cycle]
        pending &= ~observed[cycle]
    return seen, observed


@pytest.mark.parametrize("model_name", ["brdc12-like", "poisson", "bursty", "weekly"])
def test_three_percent_errors_cost_at_most_a_hundredth_of_ndcg(model_name: str) -> None:
    """Every baseline, replayed on the filled history, is within 0.01 NDCG of itself on the clean one."""
    clean = models.generate(model_name, 6000, 30, seed=3)
    seen, observed = with_errors(clean, 0.03, np.random.default_rng(4))
    is_complete = (~observed).sum(axis=0) <= 2
    filled, guessed = fill_lost_cycles(seen[:, is_complete], observed[:, is_complete])
    assert guessed.any()
    clean = clean.take(is_complete)
    dirty = ChangeHistory(filled, clean.site)
    for name in ("t*X", "nad", "cg", "age"):
        values = [replay(history, name, budget=0.05, metrics=["ndcg"]).ndcg for history in (clean, dirty)]
        assert abs(values[0].mean() - values[1].mean()) <= 0.01, name


@given(PAGES, st.integers(0, 5))
def test_draws_agree_with_every_visit(pages: list[str], seed: int) -> None:
    """Seen through the same visits, what was drawn looks exactly like what was found."""
    changed, observed = columns(*pages)
    drawn = draw_between_visits(changed, observed, np.random.default_rng(seed))
    assert drawn.shape == changed.shape
    pending = np.zeros(len(pages), bool)
    for cycle, now in enumerate(drawn):
        pending |= now
        assert np.array_equal(pending[observed[cycle]], changed[cycle][observed[cycle]])
        pending &= ~observed[cycle]


def test_draws_keep_the_rate_of_pages_visited_now_and_then() -> None:
    """Pages with one rate, visited at random intervals: the share of cycles drawn as changed is right."""
    rng = np.random.default_rng(5)
    for rate in (0.05, 0.3, 0.7):
        truth = rng.random((200, 300)) < rate
        observed = rng.random(truth.shape) < 0.2
        observed[-1] = True
        seen, pending = np.zeros_like(truth), np.zeros(300, bool)
        for cycle, now in enumerate(truth):
            pending |= now
            seen[cycle] = pending & observed[cycle]
            pending &= ~observed[cycle]
        drawn = draw_between_visits(seen, observed, rng)
        assert drawn.mean() == pytest.approx(truth.mean(), rel=0.1)


@given(
    arrays(np.int64, 12, elements=st.integers(1, 30)),
    arrays(np.bool_, 12),
    arrays(np.int64, 12, elements=st.integers(0, 3)),
)
def test_rates_solve_the_likelihood_equation(
    length: np.ndarray, changed: np.ndarray, page: np.ndarray
) -> None:
    """The root of the documented equation, and 0 for a page that never changed."""
    rates = change_rates(length, changed, page, 5)
    for number, rate in enumerate(rates):
        mine = page == number
        if not changed[mine].any():
            assert rate == 0.0
            continue
        quiet = length[mine & ~changed].sum() + 0.5 * length[mine].mean()
        assert (length[mine & changed] / np.expm1(rate * length[mine & changed])).sum() == pytest.approx(
            quiet
        )


def test_regular_visits_give_the_textbook_rate() -> None:
    """Visits in every cycle: -ln(1 - X / (n + 0.5)), Cho & Garcia-Molina's estimator but for the prior."""
    rate = change_rates(np.ones(10, np.int64), np.arange(10) < 4, np.zeros(10, np.int64), 1)
    assert rate[0] == pytest.approx(-np.log(1 - 4 / 10.5))
