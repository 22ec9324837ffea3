"""The driver: every breach of the contract is one error that names policy and breach; and budgets."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import PolicyError, ScoreError
from scrapy_gp4c.policies.base import (
    NOTHING_CHOSEN,
    Evidence,
    PolicySettings,
    Round,
    Selection,
    budget_pages,
    choose,
    read_budget,
)
from scrapy_gp4c.scoring import functions
from tests.support.policies import Broken, Memory, too_many

SETTINGS = PolicySettings(functions.load("t"), 0)


def evidence(pages: int = 6, visited: tuple[int, ...] = ()) -> Memory:
    """Pages that were all visited in cycle 1."""
    state = {"last_cycle": np.ones(pages, np.int32)}
    memory = Memory(state, np.zeros(pages, np.bool_), np.arange(pages, dtype=np.uint64), 4)
    memory.visited = np.array(visited, np.uint32)
    return memory


def chosen(*pages: int) -> Broken:
    """A policy that always chooses these pages."""
    plan = Selection(np.array(pages, np.uint32), np.zeros(len(pages)), None)
    return Broken(lambda _chosen, _round: plan, SETTINGS)


@pytest.mark.parametrize(
    ("policy", "breach"),
    [
        (too_many(SETTINGS), "at most 3 pages, which the budget has left; found 4"),
        (chosen(1, 1), "page 1 twice"),
        (chosen(7), "candidates only; found page 7"),
        (chosen(0), "candidates only; found page 0"),  # visited in this cycle
        (chosen(4_000_000_000), "candidates only; found page 4000000000"),
        (
            Broken(lambda plan, _: plan._replace(scores=np.zeros(1)), SETTINGS),
            "one score for each of 3 pages",
        ),
    ],
)
def test_a_breach_is_named(policy: Broken, breach: str) -> None:
    """With the policy, the round, and the remedy."""
    with pytest.raises(PolicyError, match=breach) as error:
        choose(policy, Round(5, 2, 3), evidence(visited=(0,)))
    assert "'broken'" in str(error.value)
    assert "round 2 of cycle 5" in str(error.value)
    assert "GP4C_POLICY" in str(error.value)


def test_what_a_policy_raises_is_told_as_its_failure() -> None:
    """A policy of the user's own may fail in any way; errors of bad input pass as they are."""

    class Failing:
        name, rounds = "failing", 1

        def __init__(self, error: Exception) -> None:
            self.error = error

        def plan(self, round: Round, evidence: Evidence) -> Selection:
            raise self.error

    with pytest.raises(PolicyError, match=r"'failing' failed in round 0 of cycle 5: KeyError\('host'\)"):
        choose(Failing(KeyError("host")), Round(5, 0, 3), evidence())
    with pytest.raises(ScoreError, match="as it is"):
        choose(Failing(ScoreError("as it is")), Round(5, 0, 3), evidence())


def test_nothing_may_be_chosen_of_nothing() -> None:
    """A store without pages, a budget that is spent."""
    assert choose(chosen(), Round(5, 0, 3), evidence(0)) is not NOTHING_CHOSEN
    with pytest.raises(PolicyError, match="candidates only; found page 0"):
        choose(chosen(0), Round(5, 0, 3), evidence(0))


@given(st.integers(0, 1000), st.integers(0, 10**6))
def test_a_decimal_share_gives_the_floor_of_the_fraction_that_is_written(
    thousandths: int, pages: int
) -> None:
    """Binary rounding neither costs a page nor gives one; a share above 0 of some pages is one at least."""
    floor = Fraction(thousandths, 1000) * pages // 1
    assert budget_pages(thousandths / 1000, pages) == max(floor, int(thousandths > 0 < pages))


@given(st.integers(1, 10**9), st.integers(0, 10**8))
def test_a_count_is_capped_by_the_pages_there_are(count: int, pages: int) -> None:
    """Nobody visits more pages than there are."""
    assert budget_pages(count, pages) == min(count, pages)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("5", 5),
        (" 5 ", 5),
        ("1", 1),
        ("1.0", 1.0),
        ("0.05", 0.05),
        ("5e-2", 0.05),
        ("5%", 0.05),
        ("100 %", 1.0),
    ],
)
def test_a_decimal_point_makes_a_share(text: str, budget: float) -> None:
    """``1`` is one page, ``1.0`` are all."""
    result = read_budget(text)
    assert result == budget
    assert type(result) is type(budget)


@pytest.mark.parametrize("text", ["", "%", "many", "1.0.0"])
def test_what_is_no_number_is_no_budget(text: str) -> None:
    """The caller makes its own message of it."""
    with pytest.raises(ValueError, match="could not convert"):
        read_budget(text)
