"""The driver: every breach of the contract is one error that names policy and breach."""

from __future__ import annotations

import numpy as np
import pytest

from scrapy_gp4c.errors import PolicyError, ScoreError
from scrapy_gp4c.policies.policy import (
    NOBODY,
    Chosen,
    Evidence,
    PolicySettings,
    Round,
    check_order,
    choose,
    quota_of,
)
from scrapy_gp4c.policies.rounds import Rounds
from scrapy_gp4c.policies.top_k import TopK
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
    plan = Chosen(np.array(pages, np.uint32), np.zeros(len(pages)), None)
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

        def plan(self, round: Round, evidence: Evidence) -> Chosen:
            raise self.error

    with pytest.raises(PolicyError, match=r"'failing' failed in round 0 of cycle 5: KeyError\('host'\)"):
        choose(Failing(KeyError("host")), Round(5, 0, 3), evidence())
    with pytest.raises(ScoreError, match="as it is"):
        choose(Failing(ScoreError("as it is")), Round(5, 0, 3), evidence())


def test_nothing_may_be_chosen_of_nothing() -> None:
    """A store without pages, a budget that is spent."""
    assert choose(chosen(), Round(5, 0, 3), evidence(0)) is not NOBODY
    with pytest.raises(PolicyError, match="candidates only; found page 0"):
        choose(chosen(0), Round(5, 0, 3), evidence(0))


def ranked(scores: list[float], ties: list[int] | None) -> Chosen:
    """A plan by score."""
    numbers = None if ties is None else np.array(ties, np.uint64)
    return Chosen(np.arange(len(scores), dtype=np.uint32), np.array(scores), None, ties=numbers)


@pytest.mark.parametrize(
    ("plan", "breach"),
    [
        (ranked([2.0, 1.0], None), "expected the ties of the pages, as it has a quota; found None"),
        (ranked([np.nan], [1]), "expected a finite score for every page"),
        (ranked([np.inf, 1.0], [1, 2]), "expected a finite score for every page"),
        (
            ranked([2.0, 1.0, 1.5], [1, 2, 3]),
            "expected the best pages first.* found a better one behind 2 pages",
        ),
        (ranked([2.0, 2.0], [5, 4]), "expected the best pages first.* found a better one behind 1 pages"),
    ],
)
def test_shards_bring_together_what_is_in_order(plan: Chosen, breach: str) -> None:
    """A policy with a quota chooses by score, and of equal scores by tie."""
    with pytest.raises(PolicyError, match=breach):
        check_order(chosen(), Round(5, 2, 3), plan)
    check_order(chosen(), Round(5, 2, 3), ranked([2.0, 1.0, 1.0], [9, 3, 3]))
    check_order(chosen(), Round(5, 2, 3), NOBODY)


def test_quotas_are_what_rounds_choose() -> None:
    """All that is left, or a round's part of it; a policy that samples has none, nor has one without."""
    rounds = Rounds(SETTINGS, 4)
    assert [quota_of(rounds, Round(5, number, 10)) for number in range(4)] == [2, 3, 5, 10]
    assert quota_of(TopK(SETTINGS), Round(5, 0, 10)) == 10
    assert quota_of(Rounds(SETTINGS, 4, sample=0.1), Round(5, 0, 10)) is None
    assert quota_of(chosen(), Round(5, 0, 10)) is None
