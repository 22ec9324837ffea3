"""Score expressions in parts that many pages share, or that stand still in a cycle, and what is left."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring import functions, terminals
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.primitives import PRIMITIVES
from scrapy_gp4c.scoring.standing import Level, divided

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
    """Bit for bit, also in later rounds, when only what is told of directories is told anew."""
    function = functions.of_expression(Expression(tokens))
    found = divided(function)
    rng = np.random.default_rng(seed)
    state = _state(rng, 7)
    kept = {}
    for number in range(2):
        for level, parts in found.parts.items():
            if not number or level is Level.DIRECTORY:
                kept |= {name: found.told(name, level, state, 9) for name in parts}
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
    assert found.rest.text == "own_0 * directory_1 + own_0 / directory_0"
    assert found.reads == ()
    alone = divided(functions.load("t * X"))
    assert (alone.rest.text, alone.reads) == ("own_0", ())


def test_a_callable_has_no_parts():
    """Nobody can look into it."""
    assert divided(functions.load("tests.scoring.test_functions.half_of_x")) is None


def test_what_own_states_and_directories_alone_tell_apart_is_known():
    """A number of the round is the same for all; a draw, or what a last visit dates, is a page's own."""
    for text, is_shared, stands_still in (
        ("t * (X + 0.5) * near", True, True),
        ("(t + spent) * near", True, False),
        ("near - spent / rate", True, False),
        ("t * near * random", False, True),
        ("t * surprise_dir", False, True),
        ("w * t", False, True),
    ):
        found = divided(functions.load(text))
        assert found.is_shared is is_shared, text
        for name in found.parts[Level.OWN]:
            assert found.stands_still(name) is stands_still, text
