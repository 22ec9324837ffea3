"""Replay: both engines against a plain restatement of Algorithm 2, and what must hold of any replay."""

import dataclasses
import math
import pickle
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from deap import gp
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import ExpressionError, HistoryError, ScoreError
from scrapy_gp4c.page_state.related import BY_DIRECTORY
from scrapy_gp4c.policies import table
from scrapy_gp4c.scoring import discovery, hints, terminals
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.scoring.ranking import draws
from training.evolution.evolve import drawing_from, expression_of, primitive_set
from training.histories.history import ChangeHistory
from training.replaying import grouped
from training.replaying import prepared as prepared_module
from training.replaying.dense import replay_dense
from training.replaying.grouped import replay_grouped
from training.replaying.metrics import METRICS, WEIGHTED
from training.replaying.prepared import prepare
from training.replaying.replay import ReplayResult, replay, run, run_all

FIELDS = ("visited", "changed", "pending", *METRICS)
SCORES = (
    "age",
    "cg",
    "nad",
    "sad",
    "aad",
    "gad",
    "t * X",
    "t * (X + 0.1)",
    "0 * t",
    "1 / (t - 2) + log(X - 1)",
    "exp(800 * X) - exp(700 * n)",
    "pow(X - 1, 0.5 - t) * t",
    "gad_rate + aad_rate * t - sad",
)


def history_of(rows, weight=None):
    changed = np.array(rows, dtype=bool)
    return ChangeHistory(
        changed, np.zeros(changed.shape[1], np.int32), None if weight is None else np.array(weight, float)
    )


def terminal_values(visits, first, cycle, clock):
    """Terminals of one page from all its judged visits [(cycle, outcome)], as printed (thesis 4.1)."""
    n, last = len(visits), visits[-1][0] if visits else first
    x = sum(outcome for _, outcome in visits)
    if clock == "visits":
        outcomes = [outcome for _, outcome in visits]
    else:
        result = {c for c, outcome in visits if outcome}
        outcomes = [int(c in result) for c in range(first + 1, cycle)]
    m = len(outcomes)
    rates = dict.fromkeys(("nad", "sad", "aad", "gad"), 0.0)
    if m:
        rates["nad"] = sum(outcomes) / m
        rates["sad"] = float(outcomes[-1])
        rates["aad"] = float(Fraction(sum(i * o for i, o in enumerate(outcomes, 1)), m * (m + 1) // 2))
        rates["gad"] = float(Fraction(sum(2 ** (i - 1) * o for i, o in enumerate(outcomes, 1)), 2**m - 1))
    t = cycle - last
    values = {"n": n, "X": x, "t": t, "cg": -math.log((n - x + 0.5) / (n + 0.5))}
    for name, rate in rates.items():
        values[f"{name}_rate"] = rate
        values[name] = -math.expm1(-rate * t)
    expected, before = 0.0, first
    for c, outcome in visits:
        x = (expected + 0.1) / (before - first + 1) * (c - before)
        expected += outcome * x / (1 - math.exp(-x))
        before = c
    values["rate"] = (expected + 0.1) / (last - first + 1)
    values["p"] = -math.expm1(-values["rate"] * t)
    values["found_t"] = cycle - max([c for c, outcome in visits if outcome], default=first)
    return values


def naive(history, text, k, warmup, ties, clock, seed):
    """Algorithm 2 page by page and bit by bit, with every metric from its definition."""
    cycles, pages = history.changed.shape
    weight = [1.0] * pages if history.weight is None else history.weight.tolist()
    bits = [[int(b) for b in history.changed[:, p]] for p in range(pages)]
    function = load(text)
    visits = [[(c, bits[p][c - 1]) for c in range(1, warmup + 1)] for p in range(pages)]
    rows = []

    def missed(page, cycle):
        last = visits[page][-1][0] if visits[page] else 0
        return [c for c in range(last + 1, cycle + 1) if bits[page][c - 1]]

    for cycle in range(warmup + 1, cycles + 1):
        # Terminals are summed up by the product's own O(1) update (held to the printed sums in
        # test_terminals): scores that tie must tie here too.
        scores = score_of(function, visits, cycle, clock)
        draw = draws(np.arange(pages, dtype=np.uint64), seed, cycle).tolist()
        order = sorted(range(pages), key=lambda p: (-scores[p], draw[p] if ties == "random" else p, p))
        chosen = order[:k]
        pending = sum(bool(missed(p, cycle)) for p in range(pages))
        dcg = ideal = 0.0
        changed, changed_weight, new, idle = 0, 0.0, 0, 0
        outcomes = []
        for rank, page in enumerate(chosen, 1):
            gain = 1.0 if rank == 1 else 1.0 / math.log(rank + 1)
            result = bool(missed(page, cycle))
            outcomes.append(int(result))
            changed += result
            changed_weight += weight[page] * result
            dcg += gain * result
            ideal += gain * (rank <= pending)
            new += len(visits[page]) == warmup
            idle += (visits[page][-1][0] if visits[page] else 0) != cycle - 1
        for page, outcome in zip(chosen, outcomes, strict=True):
            visits[page].append((cycle, outcome))
        gone = [missed(p, cycle) for p in range(pages)]
        total = math.fsum(weight)
        rows.append(
            {
                "visited": k,
                "changed": changed,
                "pending": pending,
                "change_rate": changed / k,
                "ndcg": dcg / ideal if pending else 0.0,
                "weighted_change_rate": changed_weight / k,
                "freshness": math.fsum(w for w, g in zip(weight, gone, strict=True) if not g) / total,
                "age": math.fsum(w * (cycle - g[0] + 1) for w, g in zip(weight, gone, strict=True) if g)
                / total,
                "harmonic_staleness": math.fsum(
                    w * sum(1 / i for i in range(1, len(g) + 1)) for w, g in zip(weight, gone, strict=True)
                )
                / total,
                "new_pages": new / k,
                "idle_pages": idle / k,
            }
        )
    return {name: np.array([row[name] for row in rows]) for name in FIELDS}


def score_of(function, visits, cycle, clock):
    """Scores of pages given as lists of visits, through one-page states updated visit by visit."""

    out = []
    for page in visits:
        state = terminals.new_state(1)
        for c, outcome in page:
            terminals.observe(state, np.array([bool(outcome)]), c)
        values = terminals.compute(function.terminals, state, cycle, clock)
        out.append(float(function.expression(values, 1)[0]))
    return out


@st.composite
def cases(draw):
    pages = draw(st.integers(1, 25))
    cycles = draw(st.integers(1, 12) | st.integers(60, 70))
    warmup = draw(st.integers(0, min(5, cycles - 1)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    rate = generator.choice([0.0, 0.05, 0.3, 0.8, 1.0], pages)
    changed = generator.random((cycles, pages)) < rate
    weight = None
    if draw(st.booleans()):
        weight = generator.choice([0.0, 0.25, 1.0, 1e-3, 17.3], pages)
        weight[0] = 1.0
    return history_of(changed, weight), draw(st.integers(1, pages)), warmup, draw(st.integers(0, 2**64))


def assert_same(one, other, fields=FIELDS):
    for name in fields:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    case=cases(),
    text=st.sampled_from(SCORES),
    ties=st.sampled_from(("random", "order")),
    clock=st.sampled_from(("visits", "cycles")),
)
def test_grouped_equals_dense_equals_naive(case, text, ties, clock):
    """Both engines give the same bits, and what Algorithm 2 spelled out page by page gives."""
    history, k, warmup, seed = case
    choices = {"budget": k, "warmup": warmup, "ties": ties, "clock": clock, "seed": seed}
    grouped = replay(history, text, engine="grouped", **choices)
    assert_same(grouped, replay(history, text, engine="dense", **choices))
    expected = naive(history, text, k, warmup, ties, clock, seed)
    for name in FIELDS:
        np.testing.assert_allclose(
            getattr(grouped, name), expected[name], rtol=1e-10, atol=1e-12, err_msg=name
        )
    for name in ("visited", "changed", "pending"):
        np.testing.assert_array_equal(getattr(grouped, name), expected[name])


@pytest.mark.slow
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    text=st.sampled_from(SCORES),
    ties=st.sampled_from(("random", "order")),
    clock=st.sampled_from(("visits", "cycles")),
    share=st.floats(0.002, 1.0),
)
def test_engines_agree_on_larger_histories(seed, text, ties, clock, share):
    """Enough pages that cuts by walking, by gathering and by page lists, and compaction all happen."""
    generator = np.random.default_rng(seed)
    pages, cycles = int(generator.integers(500, 3000)), int(generator.integers(8, 30))
    history = history_of(generator.random((cycles, pages)) < generator.beta(0.3, 3, pages))
    choices = {"budget": share, "warmup": 2, "ties": ties, "clock": clock, "seed": seed}
    assert_same(
        replay(history, text, engine="grouped", **choices), replay(history, text, engine="dense", **choices)
    )


@pytest.mark.slow
@settings(max_examples=15)
@given(
    st.integers(0, 2**32),
    st.sampled_from([(9, 0), (12, 2), (80, 2)]),
    st.sampled_from(["random", "order"]),
    st.sampled_from(terminals.CLOCKS),
    st.sampled_from([0, 40, 2048]),
    st.sampled_from([1, 2, 5, 16]),
)
def test_functions_replayed_together_do_what_each_does_alone(
    seed, sizes, ties, clock, rows_per_cycle, batched
):
    """Functions that choose alike for some cycles, for all or for none: the same bits as one by one."""
    cycles, warmup = sizes
    generator = np.random.default_rng(seed)
    history = history_of(generator.random((cycles, 150)) < generator.beta(0.3, 2, 150))
    known_names = [
        name for name in terminals.ALWAYS_KNOWN if name not in {*discovery.TERMINALS, *hints.TERMINALS}
    ]
    names = [name for name in known_names if name != "random" and name not in BY_DIRECTORY]
    primitives = primitive_set(names)
    with drawing_from(random.Random(seed)):
        grown = [expression_of(gp.genGrow(primitives, 0, 2)) for _ in range(12)]
    # Alike in every cycle; alike until n passes 5; scored page by page; all pages equal.
    functions = ["t * X", "2 * t * X", "t * X + max(n, 5)", "gad * t", "gad * t + 1", "gad * t + max(n, 5)"]
    functions += [
        *(expression.text for expression in grown if expression.terminals),
        "random",
        "oracle",
        "0 * t",
    ]
    with (
        mock.patch.object(prepared_module, "ROWS_PER_CYCLE", rows_per_cycle),
        mock.patch.object(grouped, "MOST_BATCHED", batched),
    ):
        truth = prepare(history, budget=12, warmup=warmup, ties=ties)
        together = run_all(truth, functions, clock=clock)
        for text, result in zip(functions, together, strict=True):
            alone = run(truth, text, clock=clock, engine="dense")
            assert_same(result, alone)
            assert result.score == alone.score


def test_functions_that_choose_alike_are_replayed_once_and_have_results_of_their_own():
    """What two functions do alike is computed once; what one caller does to its result stays there."""
    truth = prepare(history_of(np.random.default_rng(2).random((12, 300)) < 0.2), budget=20)
    texts = ["t * X", "2 * t * X", "t", "gad", "gad * 3"]
    tallies = replay_grouped(truth, [load(text) for text in texts], {"dcg"})
    assert tallies[0] is tallies[1]
    assert tallies[3] is tallies[4]
    assert len({id(one) for one in tallies}) == 3
    one, other, *_ = run_all(truth, texts)
    for name in FIELDS:
        assert not np.shares_memory(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("rows_per_cycle", [0, 3, 40])
def test_it_does_not_matter_how_many_cycles_states_are_listed_for(rows_per_cycle, monkeypatch):
    """Listed for no cycle, for a few and for more, scores of states and of groups give the same bits."""
    monkeypatch.setattr(prepared_module, "ROWS_PER_CYCLE", rows_per_cycle)
    generator = np.random.default_rng(3)
    history = history_of(generator.random((12, 300)) < generator.beta(0.3, 3, 300))
    for text in ("gad_rate + aad_rate * t - sad", "gad_rate - n"):
        expected = replay(history, text, budget=20, engine="dense")
        assert_same(replay(history, text, budget=20, engine="grouped"), expected)
        columns = prepared_module.state_columns(load(text))
        listed = prepared_module.states_of(prepare(history, budget=20), *columns)
        assert (listed is None) == (rows_per_cycle < 4)  # as many as warm-up patterns
        assert listed is None or 0 < listed.cycles < 10


def tables_of_worked_example():
    """The numbers of both tables of "Worked example" in docs/lab/replay.md, without the cycles."""
    text = (Path(__file__).parents[2] / "docs" / "lab" / "replay.md").read_text()
    section = text.partition("## Worked example")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \d [^\n]*", section, re.MULTILINE)
    numbers = [[float(bucket) for bucket in row.strip("| ").split("|")][1:] for row in rows]
    return numbers[:6], numbers[6:]


def test_worked_example():
    """The replay of t * X worked by hand in docs/lab/replay.md, number for number."""
    bits, expected = tables_of_worked_example()
    result = replay(history_of(bits), "t * X", budget=2, warmup=2, ties="order")
    assert result.scored_cycles.tolist() == [3, 4, 5, 6]
    assert result.visited.tolist() == [2, 2, 2, 2]
    fields = (
        "changed",
        "pending",
        "change_rate",
        "ndcg",
        "freshness",
        "age",
        "harmonic_staleness",
        "new_pages",
    )
    for name, column in zip(fields, zip(*expected, strict=True), strict=True):
        assert getattr(result, name).tolist() == pytest.approx(column, abs=5e-5), name
    best = 1 + 1 / math.log(3)
    assert result.ndcg == pytest.approx([1 / best, 1 / best, 1 / math.log(3) / best, 1 / best], rel=1e-12)


EXAMPLE = [
    [1, 0, 0, 0, 1],
    [1, 0, 1, 0, 0],
    [1, 0, 0, 1, 0],
    [1, 1, 0, 0, 0],
    [0, 0, 1, 0, 0],
    [1, 0, 0, 0, 1],
]


@given(case=cases(), text=st.sampled_from(SCORES))
def test_full_budget_finds_every_change(case, text):
    """With a budget of 100% the change rate is the share of pages with a change, and all copies are fresh."""
    history, _, warmup, seed = case
    result = replay(history, text, budget=1.0, warmup=warmup, seed=seed)
    np.testing.assert_array_equal(result.change_rate, history.changed[warmup:].mean(axis=1))
    assert (result.freshness == 1.0).all()
    assert (result.age == 0.0).all()
    assert (result.harmonic_staleness == 0.0).all()


@given(case=cases(), text=st.sampled_from((*SCORES, "random", "oracle")))
def test_nothing_beats_the_truth(case, text):
    """In no cycle can a ranking find more than min(k, pending); the oracle finds just that, in front."""
    history, k, warmup, seed = case
    result = replay(history, text, budget=k, warmup=warmup, seed=seed)
    most = np.minimum(k, result.pending)
    assert (result.changed <= most).all()
    assert ((result.ndcg >= 0.0) & (result.ndcg <= 1.0)).all()
    if text == "oracle":
        np.testing.assert_array_equal(result.changed, most)
        np.testing.assert_array_equal(result.ndcg, (result.pending > 0).astype(float))


def test_nad_on_the_cycle_clock_ranks_like_t_times_x():
    """1 - exp(-t X / (c - 1)) grows with t X: the same pages, but where rounding merges or parts scores."""
    generator = np.random.default_rng(7)
    history = history_of(generator.random((19, 4000)) < generator.beta(0.4, 2, 4000))
    choices = {"budget": 0.05, "clock": "cycles", "ties": "order"}
    one, other = replay(history, "nad", **choices), replay(history, "t * X", **choices)
    assert abs(one.change_rate - other.change_rate).max() <= 0.05
    assert abs(one.change_rate.mean() - other.change_rate.mean()) <= 0.005


def test_random_ties_are_drawn_anew_in_every_cycle():
    """A constant score visits different pages in every cycle, and nearly all pages in the end."""
    history = history_of(np.ones((42, 100)))
    result = replay(history, "0 * t", budget=0.2, warmup=2, seed=3)
    # Of the pages not seen before, a fresh draw of 20% finds 20% in the mean: 0.8 ** i of the visits.
    assert result.new_pages[0] == 1.0
    assert result.new_pages[-1] < 0.1
    # 40 draws of one page in five leave 100 * 0.8 ** 40 = 0.013 pages unseen.
    assert result.new_pages.sum() * 20 >= 99
    fixed = replay(history, "0 * t", budget=0.2, warmup=2, ties="order")
    assert fixed.new_pages[1:].sum() == 0


def test_what_the_seed_decides():
    """The same seed repeats a replay, another one breaks ties differently, and page order needs none."""
    generator = np.random.default_rng(5)
    history = history_of(generator.random((12, 500)) < 0.2)
    first = replay(history, "sad", budget=0.1, seed=1)
    assert_same(first, replay(history, "sad", budget=0.1, seed=1))
    assert (first.changed != replay(history, "sad", budget=0.1, seed=2).changed).any()
    in_order = [replay(history, "sad", budget=0.1, seed=seed, ties="order") for seed in (1, 2)]
    assert_same(*in_order)


def test_score_functions_can_be_given_in_every_form(tmp_path):
    """A name, an expression, a parsed one, a loaded one, a score file and a callable give one result."""
    generator = np.random.default_rng(5)
    history = history_of(generator.random((12, 300)) < 0.2)
    path = tmp_path / "score.json"
    path.write_text('{"format": "gp4c-score/1", "expression": "t * X", "clock": "cycles"}')
    expected = replay(history, "t*X", budget=0.1)
    for form in ("t * X", parse("t * X"), load("t * X"), str(path), "tests.replaying.test_replay.t_times_x"):
        result = replay(history, form, budget=0.1)
        assert_same(expected, result)
        assert result.engine == ("dense" if form == "tests.replaying.test_replay.t_times_x" else "grouped")
    assert replay(history, str(path), budget=0.1).score == str(path)


def t_times_x(values):
    """A score function as a user would write one in Python."""
    return values["t"] * values["X"]


def test_clock_of_a_score_file_counts_unless_overruled(tmp_path):
    """A function learned on the cycle clock is replayed on it; a clock given to the call goes first."""
    generator = np.random.default_rng(6)
    history = history_of(generator.random((15, 400)) < generator.beta(0.4, 2, 400))
    path = tmp_path / "score.json"
    path.write_text('{"format": "gp4c-score/1", "expression": "aad_rate", "clock": "cycles"}')
    by_cycles = replay(history, "aad_rate", budget=0.1, clock="cycles")
    by_visits = replay(history, "aad_rate", budget=0.1, clock="visits")
    assert (by_cycles.changed != by_visits.changed).any()
    assert_same(by_cycles, replay(history, str(path), budget=0.1))
    assert_same(by_visits, replay(history, str(path), budget=0.1, clock="visits"))


def test_only_the_metrics_asked_for():
    """A metric that was not asked for is None, and asking for less changes nothing in the rest."""
    history = history_of(EXAMPLE)
    complete = replay(history, "t * X", budget=2)
    for metric in METRICS:
        for engine in ("grouped", "dense"):
            part = replay(history, "t * X", budget=2, metrics=(metric,), engine=engine)
            assert_same(part, complete, ("visited", "changed", "pending", "change_rate", metric))
            for other in set(METRICS) - {metric, "change_rate"}:
                assert getattr(part, other) is None


def test_what_is_prepared_is_shared_and_travels():
    """One preparation serves all replays of a history, and a pickled copy gives the same bits."""
    history = history_of(np.random.default_rng(8).random((20, 200)) < 0.1)
    truth = prepare(history, budget=0.1, seed=4)
    assert prepare(history, budget=0.1, seed=4) is truth
    assert prepare(history, budget=0.1, seed=5) is not truth
    unused = pickle.dumps(truth)
    expected = replay(history, "gad", budget=0.1, seed=4)
    assert_same(expected, run(pickle.loads(pickle.dumps(truth)), "gad"))
    assert truth.states
    assert pickle.dumps(truth) == unused, "what replays leave behind stays at home"


@pytest.mark.parametrize("budget", [0.0, -0.1, 1.5, 0, -3, True, float("nan"), "5%"])
def test_bad_budget(budget):
    """A budget that is no share and no count is refused with the remedy."""
    with pytest.raises(HistoryError, match="budget"):
        replay(history_of(EXAMPLE), "t", budget=budget)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"warmup": 6}, "at least one cycle to score"),
        ({"warmup": -1}, "warm-up"),
        ({"ties": "coin"}, "random, order"),
        ({"clock": "wall"}, "visits, cycles"),
        ({"engine": "steam"}, "auto, grouped, dense"),
        ({"metrics": ["recall"]}, "change_rate"),
    ],
)
def test_bad_choices(choices, said):
    """Every choice that does not exist is refused with those that do."""
    with pytest.raises(HistoryError, match=said):
        replay(history_of(EXAMPLE), "t", budget=1, **choices)


def test_bad_score_functions():
    """Unknown terminals are named, and what scores every page by itself cannot be grouped."""
    history = history_of(EXAMPLE)
    with pytest.raises(ExpressionError, match="pagerank"):
        replay(history, "t * pagerank", budget=1)
    with pytest.raises(ExpressionError, match="pagerank"):
        replay(history, parse("t * pagerank"), budget=1)
    with pytest.raises(ScoreError, match="reads cost_s, distance_mean, which visits measure"):
        replay(history, "t * distance_mean / cost_s", budget=1)
    with pytest.raises(HistoryError, match="need the download times"):
        replay(history, "t", budget=1, metrics=("changes_per_s",))
    timed = dataclasses.replace(history, latency_ms=np.arange(1, history.pages + 1))
    result = replay(timed, "0 - cost_s", budget=2, ties="order", metrics=("changes_per_s",))
    assert result.changes_per_s.tolist() == (result.changed / 0.003).tolist()
    for text in ("random", "oracle", "tests.replaying.test_replay.t_times_x"):
        with pytest.raises(ScoreError, match="dense"):
            replay(history, text, budget=1, engine="grouped")


def test_every_visit_can_be_watched():
    """The dense engine tells of each cycle's pages by rank and what was found there."""
    calls = []
    truth = prepare(history_of(EXAMPLE), budget=2, ties="order")
    replay_dense(
        truth,
        load("t * X"),
        (),
        lambda *visits: calls.append([v if isinstance(v, int) else v.tolist() for v in visits]),
    )
    assert calls == [
        [3, [0, 2], [True, False]],
        [4, [0, 4], [True, False]],
        [5, [0, 2], [False, True]],
        [6, [0, 2], [True, False]],
    ]


@pytest.mark.parametrize("text", ["t * X", "gad", "random"])
def test_other_policies_replay_page_by_page(text):
    """Rounds choose what the top k does, score by score; only the top k can be told by groups of pages."""
    prepared = prepare(history_of(np.random.default_rng(9).random((12, 200)) < 0.2), budget=20)
    rounds = "rounds(rounds=4)"
    result = run(prepared, text, policy=rounds)
    assert result.engine == "dense"
    assert_same(result, run(prepared, text, engine="dense"))
    with pytest.raises(ScoreError, match="rounds.*page by page" if text != "random" else "rounds"):
        run(prepared, text, policy=rounds, engine="grouped")


WARMUP, BUDGET = 1, 4
WEIGHTED_SCORES = ("t * (X + 0.5)", "w * t", "random", "oracle")


@st.composite
def webs(draw: st.DrawFn) -> ChangeHistory:
    """Up to 12 pages over up to 7 cycles, at least one of them of some weight."""
    pages, cycles = draw(st.integers(1, 12)), draw(st.integers(2, 7))
    bits = draw(st.lists(st.booleans(), min_size=pages * cycles, max_size=pages * cycles))
    weights = st.one_of(st.just(0.0), st.floats(1e-3, 1e6))  # none that fixed point would make 0
    weight = np.array(draw(st.lists(weights, min_size=pages, max_size=pages)))
    if not weight.any():
        weight[0] = 1.0
    return ChangeHistory(np.array(bits).reshape(cycles, pages), np.zeros(pages, int), weight)


def replayed(history: ChangeHistory, score: str, **how: Any) -> ReplayResult:
    """All metrics of a replay, those by weights too."""
    return replay(history, score, budget=BUDGET, warmup=WARMUP, metrics=(*METRICS, *WEIGHTED), **how)


def gain(rank: int) -> float:
    """Gain of a change found at a rank, from 1 (journal 4.2.2, as in the authors' program)."""
    return 1.0 if rank == 1 else 1.0 / math.log(rank + 1)


def visits(history: ChangeHistory, score: str) -> list[tuple[list[int], list[int], list[int]]]:
    """Visits of every scored cycle: pages visited in order, those of them that had changed, all that had."""
    rows: list[tuple[list[int], list[int], list[int]]] = []
    outdated = np.zeros(history.pages, bool)

    def watch(cycle: int, pages: npt.NDArray[np.int64], changed_pages: npt.NDArray[np.bool_]) -> None:
        outdated[history.changed[cycle - 1]] = True
        rows.append((pages.tolist(), pages[changed_pages].tolist(), np.flatnonzero(outdated).tolist()))
        outdated[pages] = False

    function = None if score == "oracle" else load(score)
    replay_dense(prepare(history, budget=BUDGET, warmup=WARMUP), function, (), watch)
    return rows


@given(webs(), st.sampled_from(WEIGHTED_SCORES))
def test_weighted_metrics_are_what_they_are_defined_as(history: ChangeHistory, score: str) -> None:
    """Gains times weights over those of the heaviest pending pages first; weight found per visit."""
    result, weight = replayed(history, score), history.weights
    assert result.weighted_ndcg is not None
    assert result.weighted_change_rate is not None
    k = min(BUDGET, history.pages)
    for row, (pages, changed, pending) in enumerate(visits(history, score)):
        dcg = math.fsum(gain(rank) * weight[page] for rank, page in enumerate(pages, 1) if page in changed)
        heaviest = sorted((weight[page] for page in pending), reverse=True)[:k]
        best = math.fsum(gain(rank) * one for rank, one in enumerate(heaviest, 1))
        assert result.weighted_ndcg[row] == pytest.approx(dcg / best if best else 0.0, rel=1e-9)
        assert 0.0 <= result.weighted_ndcg[row] <= 1.0 + 1e-12
        rate = math.fsum(weight[page] for page in changed) / len(pages)
        assert result.weighted_change_rate[row] == pytest.approx(rate, rel=1e-9, abs=1e-9)


@given(webs(), st.sampled_from(WEIGHTED_SCORES), st.sampled_from([1.0, 0.25, 8.0]))
def test_equal_weights_are_none(history: ChangeHistory, score: str, weight: float) -> None:
    """Bit for bit: with 1 the weighted metrics are those without weights, and so is freshness with any."""
    bare = replayed(ChangeHistory(history.changed, history.site), score)
    equal = replayed(ChangeHistory(history.changed, history.site, np.full(history.pages, weight)), score)
    assert bare.weighted_ndcg is not None
    assert bare.ndcg is not None
    assert bare.weighted_change_rate is not None
    assert bare.weighted_ndcg.tobytes() == bare.ndcg.tobytes()
    assert bare.weighted_change_rate.tobytes() == bare.change_rate.tobytes()
    for name in (*METRICS, *WEIGHTED):
        ours, other = getattr(equal, name), getattr(bare, name)
        factor = weight if name == "weighted_change_rate" else 1.0
        assert (other * factor).tobytes() == ours.tobytes(), name


@given(webs(), st.sampled_from(["top_k", "rounds(rounds=2)", "rns"]))
def test_heavier_pages_count_more(history: ChangeHistory, policy: str) -> None:
    """Under any policy: what the weights add up to over all changes found is what the visits say."""
    prepared = prepare(history, budget=BUDGET, warmup=WARMUP)
    result = run(prepared, "t", policy=policy, metrics=("weighted_change_rate", "weighted_ndcg"))
    assert result.weighted_ndcg is not None
    assert result.weighted_change_rate is not None
    assert ((result.weighted_ndcg > 0) == (result.weighted_change_rate > 0)).all()
    assert table.load(policy).text == policy


def test_the_heaviest_first_is_best() -> None:
    """By hand: all three pages change in every cycle, one visit each: the page of weight 6 is 6/6 of it."""
    history = ChangeHistory(np.ones((3, 3), bool), np.zeros(3, int), np.array([6.0, 3.0, 0.0]))
    how: dict[str, Any] = {"budget": 1, "warmup": 1, "ties": "order", "metrics": tuple(WEIGHTED)}
    by_score = {score: replay(history, score, **how).weighted_ndcg for score in ("w", "1 / (w + 1)", "t")}
    assert {score: None if one is None else one.tolist() for score, one in by_score.items()} == {
        "w": [1.0, 1.0],
        "1 / (w + 1)": [0.0, 0.0],
        "t": [1.0, 0.5],
    }


def test_pages_of_equal_weight_are_told_apart_by_it_alone() -> None:
    """`w` is 1 where a history tells none, and no replay groups pages by what it does not list."""
    changed = np.ones((4, 3), bool)
    bare = ChangeHistory(changed, np.zeros(3, int))
    assert replayed(bare, "w * t").engine == "dense"
    with pytest.raises(ScoreError, match="scores every page by itself"):
        replay(bare, "w * t", budget=1, engine="grouped")
    light = ChangeHistory(changed, np.zeros(3, int), np.array([1.0, 2.0, 3.0]))
    assert [pages for pages, _, _ in visits(light, "w")] == [[2, 1, 0]] * 3
