"""Rounds of equal parts: how many pages each takes, and what it reads for that."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.policies.base import Block, PolicySettings, Round
from scrapy_gp4c.policies.top_k import LEAST_NODES, MOST_STATES, CycleScorer, Rounds
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.functions import ScoreFunction, load
from scrapy_gp4c.scoring.terminals import STATE, new_state
from tests.support.policies import Memory


def scorer_of(function: ScoreFunction) -> Callable[[Mapping[str, Any]], np.ndarray]:
    """Function from columns of pages to their scores in the cycle."""
    scores_of = CycleScorer(function, CYCLE)
    return lambda state: scores_of(Block(np.empty(0, np.uint32), state, lambda rows: rows))


class Counting(Memory):
    """Thirty pages in three blocks, which count how often they are read."""

    def __init__(self) -> None:
        state = {"last_cycle": np.arange(30, dtype=np.int32)}
        super().__init__(state, np.zeros(30, np.bool_), np.arange(30, dtype=np.uint64), 10)
        self.blocks_read = 0

    def candidates(self) -> Iterator[Block]:
        for block in super().candidates():
            self.blocks_read += 1
            yield block


@pytest.mark.parametrize(
    ("remaining", "taken", "blocks_read"),
    [(20, 5, 3), (29, 7, 3), (30, 30, 6), (99, 30, 6), (3, 0, 3)],
)
def test_a_round_takes_its_share_or_all_that_the_budget_covers(
    remaining: int, taken: int, blocks_read: int
) -> None:
    """Candidates are read twice only where there are so few that all are taken."""
    pages = Counting()
    chosen = Rounds(PolicySettings(functions.load("t"), 1)).plan(Round(40, 0, remaining), pages)
    assert chosen.pages.tolist() == list(range(taken))
    assert pages.blocks_read == blocks_read


CYCLE = 40
LONG = "t * X / (n + 1.0) + cg * t - exp(nad * t) + sqrt(log(n))"
FUNCTIONS = (
    LONG,
    "sad * t + nad_rate / (X - n) + pow(cg, t - X) - found_t",
    "sad_rate * 1e300 * exp(t * t) * exp(X * n) - log(X - n) / (n - 3.0)",
)


def pages(rng: np.random.Generator, rows: int, spread: int = 5) -> dict[str, Any]:
    """Columns of pages with few numbers, among them states that no page can have."""
    state = new_state(rows)
    for name in ("n", "X"):
        state[name][:] = rng.integers(0, spread, rows)
    for name in ("last_cycle", "first_cycle", "found_cycle"):
        state[name][:] = rng.integers(CYCLE - spread, CYCLE, rows)
    state["last"][:] = rng.integers(0, 2, rows)
    return state


@dataclass(frozen=True)
class Counted(ScoreFunction):
    """A score function that notes how many rows it is asked for."""

    asked: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(self.asked)

    def scores(self, state: Mapping[str, Any], cycle: int) -> Any:
        """As the function, and noted."""
        self.asked.append(len(state["n"]))
        return super().scores(state, cycle)


def counted(text: str) -> Counted:
    """A score function that was not asked yet."""
    return Counted(**vars(load(text)))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@given(
    st.sampled_from(FUNCTIONS),
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 6)), max_size=9),
    st.integers(0, 2**32),
)
def test_scores_are_the_same_to_the_last_bit(text: str, blocks: list[tuple[int, int]], seed: int) -> None:
    """In blocks of any size, empty ones too, that have states which none before had."""
    rng, function = np.random.default_rng(seed), load(text)
    scores_of = scorer_of(function)
    for rows, spread in blocks:
        state = pages(rng, rows, spread)
        with np.errstate(all="ignore"):
            expected = function.scores(state, CYCLE)
            assert scores_of(state).tobytes() == expected.tobytes()


@pytest.mark.parametrize("text", FUNCTIONS[:2])
def test_states_are_scored_once(text: str) -> None:
    """After as many pages as there are states no page is scored by itself any more; new states widen it."""
    rng, function = np.random.default_rng(1), counted(text)
    scores_of = scorer_of(function)
    for _ in range(100):
        with np.errstate(all="ignore"):
            scores_of(pages(rng, 1_000))
    assert function.rows <= 2 * (2 * 5**4) + 2_000
    with np.errstate(all="ignore"):
        for _ in range(100):
            scores_of(pages(rng, 1_000, 7))
    assert function.rows <= 2 * (2 * 5**4 + 2 * 7**4) + 4_000


def test_a_table_has_states_with_a_change_in_each_visit() -> None:
    """They are rare, and a table that lacks them would soon be made anew."""
    rng, function = np.random.default_rng(1), counted(LONG)
    scores_of = scorer_of(function)
    for most_changes in (2, 5):
        state = pages(rng, 1_000)
        state["X"][:] = np.minimum(state["X"], most_changes)
        with np.errstate(all="ignore"):
            scores_of(state)
    assert function.rows == 5**3


def test_what_has_no_states_is_scored_page_by_page() -> None:
    """Columns with fractions, short expressions, and numbers that are far from each other."""
    assert np.dtype(STATE["A"]).kind == "f"
    state = pages(np.random.default_rng(1), 1_000)
    for text in (f"{LONG} + aad", "t * X", f"{LONG} + random"):
        function = counted(text)
        scores_of = scorer_of(function)
        drawn = state | {"draw": np.arange(1_000, dtype=np.uint64)}
        for _ in range(5):
            with np.errstate(all="ignore"):
                assert (scores_of(drawn) == load(text).scores(drawn, CYCLE)).all()
        assert function.rows == 5_000
    expression = load("t * X").expression
    assert expression is not None
    assert len(expression.tokens) < LEAST_NODES
    far = counted(LONG)
    scores_of = scorer_of(far)
    state["n"][0] = MOST_STATES + 1
    with np.errstate(all="ignore"):
        for _ in range(MOST_STATES // 1_000 + 10):
            scores_of(state)
    assert far.rows == 1_000 * (MOST_STATES // 1_000 + 10)
