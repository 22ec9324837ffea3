"""The prefix cache changes no bit of a replay."""

import random
from unittest import mock

import numpy as np
import pytest
from deap import gp
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.functions import load
from training.evolution.evolve import drawing_from, expression_of, primitive_set
from training.evolution.workers import TextFitness, load_fitness, values_of_all
from training.histories.history import ChangeHistory
from training.histories.models import generate
from training.replaying import grouped
from training.replaying.grouped import PrefixCaches, replay_grouped
from training.replaying.metrics import METRICS
from training.replaying.prepared import prepare
from training.replaying.replay import run, run_all

TRUTH = prepare(generate("brdc12-like", 2000, 19, 1), budget=0.05)


@pytest.mark.slow
@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.sampled_from([(6, 0), (14, 2), (70, 2)]),
    ties=st.sampled_from(["random", "order"]),
    width=st.sampled_from([4, 20, 510]),
    most=st.sampled_from([1, 3, 1000]),
    room=st.sampled_from([500, 2**16]),
)
def test_what_is_known_from_trails_is_what_a_replay_finds(seed, sizes, ties, width, most, room):
    """Generation after generation, the same bits as page by page; also where trails are too wide or many."""
    cycles, warmup = sizes
    generator = np.random.default_rng(seed)
    changed = generator.random((cycles, 150)) < generator.beta(0.3, 2, 150)
    truth = prepare(
        ChangeHistory(changed, np.zeros(150, np.int32), None), budget=12, warmup=warmup, ties=ties
    )
    primitives = primitive_set(("n", "X", "t"))
    with drawing_from(random.Random(seed)):
        grown = [expression_of(gp.genGrow(primitives, 0, 3)) for _ in range(40)]
    texts = [expression.text for expression in grown if expression.terminals]
    texts += ["t * X", "t * X + max(n, 5)", "X - 0 * t", "t - t", "2 * t * X", "gad * t", "t * X"]
    prefix_caches: PrefixCaches = {}
    with (
        mock.patch.object(grouped, "WIDTH", width),
        mock.patch.object(grouped, "MOST_TRAILS", most),
        mock.patch.object(grouped, "TRAIL_ROWS", room),
    ):
        for begin in range(0, len(texts), 6):
            some = texts[begin : begin + 6]
            for text, result in zip(some, run_all(truth, some, prefix_caches=prefix_caches), strict=True):
                alone = run(truth, text, engine="dense")
                for metric in METRICS:
                    np.testing.assert_array_equal(getattr(result, metric), getattr(alone, metric), metric)


def test_who_chooses_as_another_did_is_not_replayed():
    """Another order of states that no page is in, or of groups that are not chosen, changes nothing."""
    prefix_caches: PrefixCaches = {}

    def replays(*texts):
        return replay_grouped(TRUTH, [load(text) for text in texts], {"dcg"}, prefix_caches)

    product, age, _ = replays("t * X", "t", "n * X")
    with (
        mock.patch.object(grouped, "replay_states", side_effect=AssertionError("replayed")),
        mock.patch.object(grouped, "path_after_warmup", side_effect=AssertionError("begun")),
    ):
        assert replays("t * X + max(X, 30)", "t * X * 2", "t + 1") == [product, product, age]
        with pytest.raises(AssertionError, match="begun"):
            replays("t * X * X")


def test_trails_are_of_the_tallies_that_were_counted():
    """A replay for the change rate alone is repeated for NDCG."""
    prefix_caches: PrefixCaches = {}
    rate = run_all(TRUTH, ["t * X"], metrics=("change_rate",), prefix_caches=prefix_caches)[0]
    both = run_all(TRUTH, ["t * X"], metrics=("change_rate", "ndcg"), prefix_caches=prefix_caches)[0]
    assert rate.ndcg is None
    np.testing.assert_array_equal(both.ndcg, run(TRUTH, "t * X").ndcg)
    assert len(prefix_caches) == 2


def test_no_trail_is_left_where_states_are_too_many_to_list():
    """With terminals that remember every outcome, functions are replayed as ever."""
    prefix_caches: PrefixCaches = {}
    run_all(TRUTH, ["gad * t", "aad * gad"], prefix_caches=prefix_caches)
    assert not prefix_caches


def test_a_search_takes_no_heed_of_where_a_trail_was_left():
    """Outcomes of a training set after others and before them are the same."""
    texts = ["t * X", "t * X + max(X, 30)", "t", "X / n", "t * (X + 0.5)", "t * (X + 0.5) / n", "X / n * t"]
    fitness = TextFitness(TRUTH, load_fitness("ndcg"), "visits")
    functions = {text: parse(text) for text in texts}
    first = {text: fitness.outcomes({text: function})[text] for text, function in functions.items()}
    other = TextFitness(TRUTH, load_fitness("ndcg"), "visits")
    assert first == other.outcomes({text: functions[text] for text in reversed(texts)})
    for text, outcome in first.items():
        assert outcome.value == values_of_all(TRUTH, [text], load_fitness("ndcg"), "visits")[0].mean()
