"""Score expressions in parts that many pages share, or that stand still in a cycle, and what is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.policies.top_k import LEAST_NODES, MOST_STATES, StateScores
from scrapy_gp4c.scoring import functions, terminals
from scrapy_gp4c.scoring.expression import PRIMITIVES, Expression
from scrapy_gp4c.scoring.functions import ScoreFunction, load
from scrapy_gp4c.scoring.terminals import STATE, new_state
from training.replaying.evidence import Level, divided

MOVING = sorted({*terminals.ROUND} - {"draw", "site_rate", "cluster_recent"})
"""Columns that change from round to round."""
NAMES = ("n", "X", "t", "sad", "near", "site_now", "spent", "random", "rate_site", "cluster_recent")
LEAVES = st.one_of(st.sampled_from(NAMES), st.sampled_from([0.0, 0.5, -3.0, 1e300]))


def _trees(inner):
    def of(name):
        return st.tuples(*[inner] * PRIMITIVES[name].arity).map(
            lambda parts: (name, *(token for part in parts for token in part))
        )

    return st.sampled_from(sorted(PRIMITIVES)).flatmap(of)


TREES = st.recursive(LEAVES.map(lambda leaf: (leaf,)), _trees, max_leaves=12)


def _state(rng, rows):
    state = {name: rng.integers(0, 5, rows).astype(dtype) for name, dtype in terminals.STATE.items()}
    return state | {name: rng.random(rows) for name in terminals.ROUND} | {"draw": rng.integers(0, 9, rows)}


@given(tokens=TREES, seed=st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_the_parts_put_together_score_as_the_whole(tokens, seed):
    """Bit for bit, also in later rounds, when parts of directories and rounds are computed anew."""
    function = functions.of_expression(Expression(tokens))
    found = divided(function)
    rng = np.random.default_rng(seed)
    state = _state(rng, 7)
    kept = {}
    for number in range(2):
        for level, parts in found.parts.items():
            moves = [name for name in parts if level is Level.OWN and not found.stands_still(name)]
            due = parts if not number or level is Level.DIRECTORY else moves
            kept |= {name: found.value(name, level, state, 9) for name in due}
        out = np.empty(7)
        found.finish(kept, state, 9, out)
        assert out.tobytes() == function.scores(state, 9).tobytes()
        state |= {name: rng.random(7) for name in MOVING}


def _texts(found):
    return [
        {name: part.text for name, part in found.parts[level].items()}
        for level in Level
        if level in found.parts
    ]


def test_the_largest_parts_are_told_once():
    """Equal ones share a name; numbers alone stay where they are."""
    found = divided(functions.load("t * (X + 0.5) * near + t * (X + 0.5) / max(site_now, 2 * 3)"))
    own, of_directories, still = _texts(found)
    assert own == {"own_0": "t * (X + 0.5)"}
    assert of_directories == {"directory_0": "max(site_now, 2.0 * 3.0)", "directory_1": "near"}
    assert still == {}
    assert found.remainder.text == "own_0 * directory_1 + own_0 / directory_0"
    assert found.reads == ()
    alone = divided(functions.load("t * X"))
    assert (alone.remainder.text, alone.reads) == ("own_0", ())


def test_a_callable_has_no_parts():
    """Nobody can look into it."""
    assert divided(functions.load("tests.scoring.test_functions.half_of_x")) is None


def test_values_that_stand_still_in_a_cycle_are_known():
    """A number of the round is anew in every round; a page's own state stays."""
    for text, stands_still in (
        ("t * (X + 0.5) * near", True),
        ("(t + spent) * near", False),
        ("w * t", True),
    ):
        parts = divided(functions.load(text))
        for name in parts.parts[Level.OWN]:
            assert parts.stands_still(name) is stands_still, text


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
        """In all."""
        return sum(self.asked)

    def scores(self, state: Mapping[str, Any], cycle: int) -> Any:
        """As the function, and noted."""
        self.asked.append(len(state["n"]))
        return super().scores(state, cycle)


def counted(text: str) -> Counted:
    """A score function that was not asked yet."""
    return Counted(**vars(load(text)))


@pytest.mark.filterwarnings("error")
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(FUNCTIONS),
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 6)), max_size=9),
    st.integers(0, 2**32),
)
def test_scores_are_the_same_to_the_last_bit(text: str, blocks: list[tuple[int, int]], seed: int) -> None:
    """In blocks of any size, empty ones too, that have states which none before had."""
    rng, function = np.random.default_rng(seed), load(text)
    told = StateScores(function, CYCLE)
    for rows, spread in blocks:
        state = pages(rng, rows, spread)
        with np.errstate(all="ignore"):
            expected = function.scores(state, CYCLE)
            assert told(state).tobytes() == expected.tobytes()


@pytest.mark.parametrize("text", FUNCTIONS[:2])
def test_states_are_scored_once(text: str) -> None:
    """After as many pages as there are states no page is scored by itself any more; new states widen it."""
    rng, function = np.random.default_rng(1), counted(text)
    told = StateScores(function, CYCLE)
    for _ in range(100):
        with np.errstate(all="ignore"):
            told(pages(rng, 1_000))
    assert function.rows <= 2 * (2 * 5**4) + 2_000
    with np.errstate(all="ignore"):
        for _ in range(100):
            told(pages(rng, 1_000, 7))
    assert function.rows <= 2 * (2 * 5**4 + 2 * 7**4) + 4_000


def test_a_table_has_states_with_a_change_in_each_visit() -> None:
    """They are rare, and a table that lacks them would soon be made anew."""
    rng, function = np.random.default_rng(1), counted(LONG)
    told = StateScores(function, CYCLE)
    for most_changes in (2, 5):
        state = pages(rng, 1_000)
        state["X"][:] = np.minimum(state["X"], most_changes)
        with np.errstate(all="ignore"):
            told(state)
    assert function.rows == 5**3


def test_what_has_no_states_is_scored_page_by_page() -> None:
    """Columns with fractions, short expressions, and numbers that are far from each other."""
    assert np.dtype(STATE["A"]).kind == "f"
    state = pages(np.random.default_rng(1), 1_000)
    for text in (f"{LONG} + aad", "t * X", f"{LONG} + random"):
        function = counted(text)
        told = StateScores(function, CYCLE)
        drawn = state | {"draw": np.arange(1_000, dtype=np.uint64)}
        for _ in range(5):
            with np.errstate(all="ignore"):
                assert (told(drawn) == load(text).scores(drawn, CYCLE)).all()
        assert function.rows == 5_000
    expression = load("t * X").expression
    assert expression is not None
    assert len(expression.tokens) < LEAST_NODES
    far = counted(LONG)
    told = StateScores(far, CYCLE)
    state["n"][0] = MOST_STATES + 1
    with np.errstate(all="ignore"):
        for _ in range(MOST_STATES // 1_000 + 10):
            told(state)
    assert far.rows == 1_000 * (MOST_STATES // 1_000 + 10)
