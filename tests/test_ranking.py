"""Keys of rankings: equal keys mean equal replays, whatever the history."""

from __future__ import annotations

import collections
import random

import numpy as np
import pytest
from deap import gp
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c import terminals
from scrapy_gp4c.expression import parse
from training.fitness import load_fitness, values_of
from training.history import ChangeHistory
from training.ranking import Rankings
from training.truth import prepare
from training.variation import drawing_from, expression_of, primitive_set

LISTED = ("n", "X", "t", "cg", "nad", "nad_rate", "sad", "sad_rate")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("t * X", "10 * t * X"),
        ("t * X", "exp(0.5 * t * X)"),
        ("t", "t * t + 5"),
        ("t", "log(t)"),
    ],
)
def test_increasing_transforms_share_a_key(one, other):
    """What is put in the same order has the same key."""
    rankings = Rankings(19, 2, "visits")
    assert rankings.key(parse(one)) == rankings.key(parse(other))


@pytest.mark.parametrize(("one", "other"), [("t", "X"), ("t", "0 - t"), ("t * X", "t * X + n / 1e6")])
def test_different_orders_have_different_keys(one, other):
    """Ties that one function breaks and the other does not are a different order too."""
    rankings = Rankings(19, 2, "visits")
    assert rankings.key(parse(one)) != rankings.key(parse(other))


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(0, 3),
    st.sampled_from(["random", "order"]),
    st.sampled_from(["visits", "cycles"]),
)
def test_equal_keys_mean_equal_replays(seed, warmup, ties, clock):
    """Over random histories: functions of one key do exactly the same in every cycle."""
    rng = np.random.default_rng(seed)
    pages, cycles = 30, 9
    changed = rng.random((cycles, pages)) < rng.beta(0.5, 1.5, pages)
    truth = prepare(
        ChangeHistory(changed=changed, site=np.zeros(pages, np.int32)), budget=0.2, warmup=warmup, ties=ties
    )
    rankings = Rankings(cycles, warmup, clock)
    primitives = primitive_set(LISTED)
    with drawing_from(random.Random(seed)):
        expressions = [expression_of(gp.genGrow(primitives, 1, 3)) for _ in range(40)]
    groups = collections.defaultdict(list)
    for expression in expressions:
        key = rankings.key(expression) if expression.terminals else None
        if key is not None:
            groups[key].append(expression.text)
    ndcg = load_fitness("ndcg")
    for texts in groups.values():
        values = [values_of(truth, text, ndcg, clock) for text in texts[:4]]
        for other in values[1:]:
            np.testing.assert_array_equal(other, values[0])


def test_no_key_where_states_cannot_be_listed():
    """Terminals of larger state, and histories whose states are too many, have none."""
    short, long = Rankings(19, 2, "visits"), Rankings(120, 2, "visits")
    for name in ("aad", "gad", "aad_rate", "random"):
        assert short.key(parse(f"{name} * t")) is None
    assert short.key(parse("nad * sad")) is not None
    assert long.key(parse("t * X")) is None
    assert Rankings(19, 2, "cycles").key(parse("nad")) is None, "on this clock it depends on the cycle"
    assert set(terminals.PAPERS) >= {"aad", "gad"}
