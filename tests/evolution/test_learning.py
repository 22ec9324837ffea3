"""Learning from a history, fold by fold in step: what comes out, and what it does not depend on."""

import dataclasses
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import cache
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from deap import gp

from scrapy_gp4c.page_state.claims import DATED_CLAIM
from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.scoring import functions, terminals
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.named import BASELINES, NAMED, Named
from tests.evolution.test_evolve import SMALL as LONGER
from tests.evolution.test_evolve import evaluate
from tests.evolution.test_workers import REQUESTS, TEXTS, TRUTHS, check
from tests.evolution.test_workers import functions as expressions
from tests.support.evolution import evolve
from training.evolution import learning, selection
from training.evolution.checkpoint import Checkpoint
from training.evolution.choices import DRAWS, Choices, identity, prepare_splits
from training.evolution.evolve import (
    Evolution,
    EvolutionState,
    Individual,
    Outcome,
    Parameters,
    drawing_from,
    expression_of,
    primitive_set,
)
from training.evolution.learning import Learned, compiled_beside, evolve_all, learn, learn_by_rules
from training.evolution.score_file import ScoreFile
from training.evolution.selection import RULES, SELECTIONS, SelectionGoal
from training.evolution.workers import (
    EvaluationRequest,
    EvaluationTask,
    Evaluator,
    TextFitness,
    evaluate_task,
    load_fitness,
    values_of_all,
    workers,
)
from training.histories.history import ChangeHistory
from training.histories.models import generate
from training.replaying.metrics import METRICS
from training.replaying.prepared import PreparedHistory, prepare
from training.replaying.replay import run

SEEDS = 2


class Answers:
    """Evaluator that answers at once."""

    is_compiling = False

    def __init__(self, most: int) -> None:
        """``most``: requests that are answered before somebody presses Ctrl-C."""
        self.known: list[dict[str, Outcome]] = [{}, {}]
        self._answers_left = most

    def evaluate(self, requests: Iterable[EvaluationRequest], advance: Callable[[int, int], None]) -> None:
        for number, asked in requests:
            self.known[number] |= evaluate(asked)
            advance(number, len(asked))
            self._answers_left -= 1
            if not self._answers_left:
                raise KeyboardInterrupt


class Watch:
    """A watch that notes what it is told, and presses Ctrl-C in a generation; 0: in none."""

    def __init__(self, stop: int = 0) -> None:
        self.messages: list[Any] = []
        self.number, self.asked, self.stop = 0, 0, stop
        self.texts: Counter[int] = Counter()

    def generation(self, number: int, asked: int) -> None:
        self.number, self.asked = number, asked
        self.messages.append(number)

    def advance(self, texts: int) -> None:
        self.texts[self.number] += texts
        if self.number == self.stop:
            raise KeyboardInterrupt

    def first_fitness(self, fitness: float) -> None:
        self.messages.append(fitness)

    def best(self, fitness: Sequence[float]) -> None:
        self.messages.append(fitness)


class Listener(Watch):
    states = None

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[list[EvolutionState]] = []

    def save(self, states: list[EvolutionState]) -> None:
        self.saved.append(states)


def search(most: int = -1) -> tuple[list[Evolution], Listener]:
    runs = [Evolution(LONGER, 1, (fold, number)) for fold in range(2) for number in range(SEEDS)]
    evaluator: Any = Answers(most)
    listener: Any = Listener()
    evolve_all(runs, SEEDS, evaluator, listener, listener)
    assert listener.asked == 2 * SEEDS * LONGER.population
    return runs, listener


def test_runs_of_several_folds_end_as_if_alone():
    """States, best values and progress of every generation are those of each run by itself."""
    runs, listener = search()
    alone, asked = [], Counter[int]()

    for fold in range(2):
        for number in range(SEEDS):
            one = Evolution(LONGER, 1, (fold, number))
            while not one.finished:
                functions = one.ask()
                asked[one.generation + 1] += len(functions)
                one.tell(evaluate(functions))
            alone.append(one)
    assert [one.state() for one in runs] == listener.saved[-1] == [one.state() for one in alone]
    assert listener.texts == asked
    generations = LONGER.generations
    assert [{state.generation for state in states} for states in listener.saved] == [
        {number} for number in range(1, generations + 1)
    ]
    assert [max(best) for best in listener.messages if isinstance(best, list)] == [
        max(max(one.best[: number + 1]) for one in alone) for number in range(generations)
    ]


@pytest.mark.parametrize("most", [4 * SEEDS + 1, 6 * SEEDS])
def test_stopped_in_a_generation_it_is_back_where_all_were(most):
    """Ctrl-C: the last generation that all completed is saved again, and what the runs are."""
    runs, listener = search(most)
    assert {one.generation for one in runs} == {2}
    assert listener.saved[-1] == listener.saved[-2] == [one.state() for one in runs]


SMALL = Parameters(population=20, generations=5, best_count=8)
CHOICES = Choices(parameters=SMALL, seeds=2, budget=0.1)
FRONT = dataclasses.replace(
    CHOICES,
    front=True,
    selection="guarded",
    forget=0.05,
    parameters=dataclasses.replace(SMALL, start="named"),
)
HISTORY = generate("poisson", 400, 30, 3)


def learned(choices: Choices = CHOICES, jobs: int = 1, **options: object) -> Learned:
    with workers(jobs) as pool:
        return learn(HISTORY, choices, pool, **options)  # type: ignore[arg-type]


@cache
def learned_once(choices: Choices = CHOICES) -> Learned:
    """The same for all who only look at it."""
    return learned(choices)


def evolve_on(truth: PreparedHistory) -> Evolution:
    judge = TextFitness(truth, load_fitness("ndcg"), "visits")
    return evolve(judge.outcomes, SMALL, 1, (0, 0))


def same(one: Learned, other: Learned) -> bool:
    """Whether all that was learned is the same to the last bit."""
    return one.folds == other.folds and one.best == other.best and one.generations == other.generations


@pytest.mark.slow
@pytest.mark.parametrize(
    "choices", [CHOICES, dataclasses.replace(CHOICES, protocol="thesis", selection="sum"), FRONT]
)
def test_same_seed_same_result_whatever_the_jobs(choices):
    """One process or two: the same functions and the same values."""
    assert same(learned(choices, 1), learned(choices, 2))


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_several_rules_choose_of_one_evolution_what_each_chooses_alone(jobs):
    """Function, value and table of each rule are those of a search of its own."""
    choices = [dataclasses.replace(CHOICES, protocol="journal", budget=0.2, selection=rule) for rule in RULES]
    with workers(jobs) as pool:
        together = learn_by_rules(HISTORY, choices, pool)
    assert all(same(one, learned(choice)) for one, choice in zip(together, choices, strict=True))
    assert len({tuple(fold.text for fold in one.folds) for one in together}) > 1


@pytest.mark.slow
def test_different_seeds_differ():
    """Another seed divides the pages otherwise and evolves other functions."""
    assert not same(learned(), learned(dataclasses.replace(CHOICES, seed=2)))


@pytest.mark.parametrize("choices", [CHOICES, FRONT])
def test_continued_run_ends_in_the_same_result(tmp_path, choices):
    """From the states after every single generation."""
    run = identity(HISTORY, choices)
    saved: list[Checkpoint] = []

    class Recording(Checkpoint):
        def save(self, states: list[EvolutionState]) -> None:
            super().save(states)
            copy = Checkpoint(tmp_path / str(len(saved)), run)
            copy.open(resume=False)
            copy.save(states)
            saved.append(Checkpoint(tmp_path / str(len(saved)), run))

    uninterrupted = learned(choices, checkpoint=Recording(tmp_path, run))
    assert len(saved) == SMALL.generations
    for generation, checkpoint in enumerate(saved, start=1):
        states = checkpoint.open(resume=True)
        assert states is not None
        assert states[0].generation == generation
        assert same(learned(choices, checkpoint=checkpoint), uninterrupted)


def test_stopped_by_ctrl_c_it_keeps_what_it_has():
    """A KeyboardInterrupt in generation 4: the result of the 3 completed ones; in the first: passed on."""
    for choices in (*(dataclasses.replace(CHOICES, selection=rule) for rule in RULES), FRONT):
        stopped = learned(choices, watch=Watch(stop=4))
        assert not stopped.complete
        assert stopped.generations == 3
        three = dataclasses.replace(choices.parameters, generations=3)
        assert stopped.best == learned(dataclasses.replace(choices, parameters=three)).best
    with pytest.raises(KeyboardInterrupt):
        learned(watch=Watch(stop=1))


@pytest.mark.parametrize("compiling", [True, False])
def test_the_first_run_is_told_of_while_others_wait(compiling, monkeypatch, tmp_path):
    """Its first generation, once, while code is compiled beside; what is learned stays the same."""
    expected = learned_once()
    compiled = tmp_path / "done" if compiling else None
    monkeypatch.setattr(learning, "compiled_beside", lambda *arguments: nullcontext(compiled))
    watch = Watch()
    assert same(learned(watch=watch), expected)
    messages = watch.messages
    first = [one for one in messages if isinstance(one, float)]
    assert len(first) == compiling
    if compiling:
        assert messages[:4] == [1, first[0], messages[2], 2], "before the others have theirs"
        assert first[0] == messages[2][0]


def test_means_are_remembered_by_function_and_clock():
    """On the other clock a function has other means; nobody writes to what is remembered."""
    (known,), (fresh,) = prepare_splits(HISTORY, CHOICES), prepare_splits(HISTORY, CHOICES)
    means = learning.compare(known, {"aad": "aad"}, CHOICES)
    by_cycles = dataclasses.replace(CHOICES, clock="cycles")
    expected = learning.compare(fresh, {"aad": "aad"}, by_cycles)
    assert learning.compare(known, {"aad": "aad"}, by_cycles) == expected != means
    expected["aad"]["test"]["ndcg"] = -1.0
    assert learning.compare(fresh, {"aad": "aad"}, by_cycles)["aad"]["test"]["ndcg"] >= 0.0


@pytest.mark.parametrize("tells", [1, 2, 3])
def test_what_is_saved_on_ctrl_c_is_what_is_written(tells, monkeypatch):
    """Pressed between two runs' tells, or while saving: checkpoint and result are of one generation."""
    saved: list[int] = []
    told = 0
    tell = Evolution.tell

    def interrupted(evolution: Evolution, outcomes: Any) -> None:
        nonlocal told
        told += 1
        tell(evolution, outcomes)
        if told == 2 * CHOICES.seeds + tells:  # two generations are complete
            raise KeyboardInterrupt

    class Memory:
        """A checkpoint that presses Ctrl-C while the third generation is saved."""

        states = None

        def save(self, states: list[EvolutionState]) -> None:
            saved.append(states[0].generation)
            if saved == [1, 2, 3]:
                raise KeyboardInterrupt

    monkeypatch.setattr(Evolution, "tell", interrupted)
    stopped = learned(checkpoint=Memory())
    assert not stopped.complete
    assert stopped.generations == saved[-1] >= 2


@pytest.mark.parametrize("selection", sorted(SELECTIONS))
def test_result_is_what_the_rule_selects(selection):
    """Of all kept individuals of all runs the one with the highest value under the rule is taken."""
    choices = dataclasses.replace(CHOICES, selection=selection)
    result = learned_once(choices)
    (truths,) = prepare_splits(HISTORY, choices)
    judge = TextFitness(truths[0], load_fitness("ndcg"), "visits")

    texts = [k.text for run in range(2) for k in evolve(judge.outcomes, SMALL, 1, (0, run)).best_individuals]
    rule = SELECTIONS[selection]
    values = {
        text: rule(*(values_of_all(t, [text], load_fitness("ndcg"), "visits")[0] for t in truths[:2]))
        for text in texts
    }
    assert result.best.selected == max(values.values())
    shown = (values_of_all(t, [result.best.text], load_fitness("ndcg"), "visits")[0] for t in truths[:2])
    assert rule(*shown) == result.best.selected, "simplifying changed nothing"
    assert len(parse(result.best.text).tokens) <= min(
        len(parse(text).tokens) for text, value in values.items() if value == result.best.selected
    )


def test_guarded_ends_with_a_named_function_or_one_that_surely_beats_it():
    """In training and validation together; its value is that in training."""
    choices = dataclasses.replace(CHOICES, selection="guarded")
    result = learned_once(choices)
    (truths,) = prepare_splits(HISTORY, choices)
    fitness = load_fitness("ndcg")

    def both(text):
        return sum(values_of_all(part, [text], fitness, "visits")[0].mean() for part in truths[:2])

    assert both(result.best.text) >= max(map(both, choices.goal_on(truths.training).named))
    assert result.best.selected == result.best.table["learned"]["training"]["ndcg"]


def test_the_guard_has_the_say_among_what_is_allowed(monkeypatch):
    """`pick` takes what `named_or_better` says, which sees all candidates that are allowed."""
    seen = []

    def last(candidates: Any, texts: Any, goal: Any, split: Any) -> int:
        seen.append(len(candidates))
        assert len(texts) == len(candidates)
        return len(candidates) - 1

    (truths,) = prepare_splits(HISTORY, CHOICES)
    best = [evolve_on(truths[0]).best_individuals]
    monkeypatch.setattr(selection, "named_or_better", last)
    goal = SelectionGoal("ndcg", "visits", "guarded")

    def values(texts: list[str]) -> Any:
        return list(zip(*(goal.values(part, texts) for part in truths[:2]), strict=True))

    chosen = selection.pick(best, truths, goal, values)
    lowest = min(best[0], key=lambda one: one.value)
    assert seen == [len(best[0])]
    assert chosen.selected == pytest.approx(lowest.value)
    for allowed, count in (({best[0][0].text, best[0][1].text}, 2), (set(), len(best[0]))):
        selection.pick(best, truths, goal, values, lambda texts, of=allowed: of)
        assert seen[-1] == count, "where nothing is allowed, everything is"


def test_the_guard_judges_by_the_mean_over_several_draws_of_what_is_forgotten(monkeypatch):
    """Training values are the mean over the draw that was learned from and the others; they all differ."""
    seen = []

    def first(candidates: Any, texts: Any, goal: Any, split: Any) -> int:
        seen.extend(candidates)
        return 0

    choices = dataclasses.replace(CHOICES, selection="guarded", forget=0.1)
    (parts,) = prepare_splits(HISTORY, choices)
    training = (parts.training, *parts.draws)
    assert len(training) == DRAWS
    assert len({truth.changed.tobytes() for truth in training}) == DRAWS
    assert prepare_splits(HISTORY, dataclasses.replace(choices, selection="best"))[0].draws == ()
    assert prepare_splits(HISTORY, dataclasses.replace(choices, forget=0.0))[0].draws == ()
    monkeypatch.setattr(selection, "named_or_better", first)
    result = learned(choices)
    assert len(seen) > 10
    ndcg = load_fitness("ndcg")
    means = [candidate[0] for candidate in seen]
    expected = np.mean(
        [values_of_all(truth, [result.best.text], ndcg, "visits")[0] for truth in training], axis=0
    )
    assert np.array_equal(means[0], expected)
    assert result.best.selected == values_of_all(parts.training, [result.best.text], ndcg, "visits")[0].mean()


def test_table_has_every_baseline_and_the_oracle():
    """The learned function, all named ones and the oracle, on all parts, with every metric."""
    result = learned_once()
    table = result.best.table
    assert set(table) == {"learned", *BASELINES, "oracle"}
    for row in table.values():
        assert set(row) == {"training", "validation", "test"}
        for values in row.values():
            assert set(values) == set(METRICS)
    for part in ("training", "validation", "test"):
        assert table["oracle"][part]["change_rate"] >= table["t*X"][part]["change_rate"]
    assert table["learned"]["training"]["ndcg"] == pytest.approx(result.best.selected)


def test_journal_protocol_gives_five_folds():
    """One function per fold; the one with the highest value under the rule ships."""
    tiny = dataclasses.replace(SMALL, generations=2)
    result = learned(dataclasses.replace(CHOICES, protocol="journal", parameters=tiny))
    assert len(result.folds) == 5
    assert result.best in result.folds
    assert result.best.selected == max(fold.selected for fold in result.folds)
    assert {fold.run for fold in result.folds} <= {0, 1}


def one_set(changed: np.ndarray, budget: float, warmup: int) -> PreparedHistory:
    history = ChangeHistory(changed=changed, site=np.zeros(changed.shape[1], np.int32))
    return prepare(history, budget=budget, warmup=warmup)


def period_of_seven() -> tuple[PreparedHistory, str]:
    """A quarter of the pages change every seventh cycle, each on its own day; the others never."""
    rng = np.random.default_rng(1)
    pages, cycles = 560, 40
    day = np.where(rng.random(pages) < 0.25, rng.integers(0, 7, pages), -1)
    changed = np.arange(cycles)[:, None] % 7 == day
    # One seventh of them can be visited per cycle: each just when it has changed again.
    return one_set(changed, float(changed.mean()), 7), "t * X"


def waiting_counts() -> tuple[PreparedHistory, str]:
    """All pages alike, one change in 25 cycles: the longer not visited, the likelier a change."""
    rng = np.random.default_rng(2)
    return one_set(rng.random((40, 400)) < 0.04, 0.05, 2), "t"


def smoothing_matters() -> tuple[PreparedHistory, str]:
    """Rates from Beta(0.5, 4): a page with 1 change in 1 visit is not to be trusted like 9 in 9.

    The best guess of a change within t cycles from the posterior Beta(X + 0.5, n - X + 4).
    """
    rng = np.random.default_rng(3)
    changed = rng.random((30, 600)) < rng.beta(0.5, 4.0, 600)
    return one_set(changed, 0.05, 2), "1 - pow((n - X + 4) / (n + 4.5), t)"


@pytest.mark.slow
@pytest.mark.parametrize("case", [period_of_seven, waiting_counts, smoothing_matters])
@pytest.mark.parametrize("fitness", ["change_rate", "ndcg"])
def test_it_learns_a_known_rule(case, fitness):
    """At least 97% of the fitness of the rule that is best by construction, with a small population."""
    truth, rule = case()
    known = values_of_all(truth, [rule], load_fitness(fitness), "visits")[0].mean()
    judge = TextFitness(truth, load_fitness(fitness), "visits")
    parameters = Parameters(population=60, generations=10, best_count=5)
    evolution = evolve(judge.outcomes, parameters, 1)
    assert evolution.best_individuals[0].value >= 0.97 * known
    blind = values_of_all(truth, ["random"], load_fitness(fitness), "visits")[0].mean()
    assert known > 1.2 * blind, "the rule must be worth learning"


def test_deepest_tree_lives_through_text_replay_live_use_and_reload(tmp_path):
    """A full tree of depth 10 with all terminals: one text, and the same bits everywhere."""
    primitives = primitive_set(terminals.PAPERS)
    rng = np.random.default_rng(5)
    pages = 500
    state = terminals.new_state(pages)
    for cycle in range(1, 15):
        seen = rng.random(pages) < 0.4
        part = {name: column[seen] for name, column in state.items()}
        terminals.observe(part, rng.random(int(seen.sum())) < 0.3, cycle)
        for name, column in part.items():
            state[name][seen] = column
    (truths,) = prepare_splits(HISTORY, CHOICES)
    for seed in range(3):
        with drawing_from(random.Random(seed)):
            tree = Individual(gp.genFull(primitives, 9, 9))
        assert tree.depth == 10
        expression = expression_of(tree)
        assert parse(expression.text).text == expression.text
        assert parse(expression.text).tokens == expression.tokens
        path = tmp_path / "score.json"
        values = {"training": {}, "validation": {}, "test": {}}
        ScoreFile(expression, "visits", "ndcg", values, "best", 1, HISTORY, {}).write(path)
        live = functions.load(str(path))
        assert live.expression is not None
        assert live.expression.tokens == expression.tokens
        computed = terminals.compute(expression.terminals, state, 15)
        np.testing.assert_array_equal(
            live.scores(state, 15).view(np.int64), expression(computed, pages).view(np.int64)
        )
        replayed = [
            learning.run(truths[2], source, metrics=("ndcg",)).ndcg
            for source in (expression, live, str(path), expression.text)
        ]
        for values in replayed[1:]:
            np.testing.assert_array_equal(values, replayed[0])


def test_a_front_has_its_values_on_every_part():
    """One of its functions is taken; named functions stand in it where nothing dominates them."""
    result = learned_once(FRONT).best
    assert [one.text for one in result.front if one.taken] == [result.text]
    for one in result.front:
        assert set(one.values) == {"training", "validation", "test"}
        assert set(one.values["test"]) >= set(METRICS)
    taken = next(one for one in result.front if one.taken)
    assert taken.values == result.table["learned"]


def test_evolution_may_begin_with_what_people_know():
    """The named functions of the terminals and t times each terminal come first, then trees as ever."""
    parameters = dataclasses.replace(SMALL, terminals=("n", "X", "t", "cg"), start="named")
    evolution = Evolution(parameters, 1)
    asked = [*evolution.ask()]
    assert asked[:3] == ["t", "cg", "X * t"]
    assert {"n * t", "cg * t"} <= set(asked)
    assert len(asked) == len(set(asked)) == SMALL.population
    at_random = [
        [*Evolution(dataclasses.replace(parameters, start=one), 1).ask()] for one in ("auto", "random")
    ]
    assert at_random[0] == at_random[1] != asked
    few = dataclasses.replace(parameters, population=6)
    assert len(Evolution(few, 1).ask()) == 6


def test_seeds_bring_operators_and_constants_of_their_own(monkeypatch):
    """A named function may hold what trees are not made of; its parts are in the state."""
    monkeypatch.setitem(NAMED, "own", Named("t * sqrt(X + 0.37)", "tests", "for this test"))
    parameters = dataclasses.replace(SMALL, start="named")
    judge = TextFitness(prepare(HISTORY, budget=0.1), load_fitness("ndcg"), "visits")

    evolution = Evolution(parameters, 1)
    asked = evolution.ask()
    assert any("0.37" in text for text in asked)
    evolution.tell(judge.outcomes(asked))
    other = Evolution(parameters, 1)
    other.restore(evolution.state())
    assert other.ask() == evolution.ask()


def test_terminals_of_siblings_begin_with_named_functions_and_divide_sites():
    """Without being told so; and the other way round where it is told."""
    around = Parameters(terminals=terminals.SETS["related"])
    assert around.named_start
    assert Choices(parameters=around).units(HISTORY) == ("sites", "pages")
    assert Choices(parameters=around, division="pages").units(HISTORY) == ("pages",)
    assert not dataclasses.replace(around, start="random").named_start
    parameters = Parameters(terminals=terminals.PAPERS)
    assert not parameters.named_start
    assert Choices(parameters=parameters).units(HISTORY) == ("pages",)


def named_history(sites: int, directories: int) -> ChangeHistory:
    """400 pages on so many sites, each with so many directories, that change now and then."""
    model = generate("poisson", 400, 30, 3)
    pages = np.arange(400)
    return ChangeHistory(
        model.changed,
        (pages % sites).astype(np.int32),
        page_names=[f"d{page // sites % directories}/{page}" for page in pages.tolist()],
    )


@pytest.mark.parametrize(
    ("sites", "directories", "unit"), [(20, 3, "sites"), (2, 10, "directories"), (2, 1, "pages")]
)
def test_terminals_of_related_pages_divide_by_what_there_is(sites, directories, unit):
    """By sites, else by directories, else by pages, and no history is refused for want of sites."""
    history = named_history(sites, directories)
    choices = Choices(parameters=Parameters(terminals=terminals.RELATED), budget=0.1)
    assert choices.divided_by(history) == unit
    split = choices.split(history)[0]
    assert all(part.changed.any() for part in split)
    if unit == "directories":
        results = [
            {(s, n.split("/")[0]) for s, n in zip(p.site.tolist(), p.page_names, strict=True)} for p in split
        ]
        assert not results[0] & results[1] | results[1] & results[2] | results[0] & results[2]


def test_all_terminals_are_those_that_the_history_can_replay():
    """Related pages, claims and sizes are in the set; what a history does not have is left out."""
    assert {"near", "near_site", "spent"} < {*terminals.SETS["all"]}
    choices = Choices(parameters=Parameters(terminals=terminals.SETS["all"]))
    history = named_history(20, 3)
    assert choices.fitting(history).parameters.terminals == terminals.RELATED
    no_claims = np.empty(0, DATED_CLAIM)
    known = dataclasses.replace(
        history,
        claims=no_claims,
        size=np.ones(history.pages, np.uint8),
        latency_ms=np.ones(history.pages, np.uint16),
        flipped=np.ones(np.count_nonzero(history.changed), np.uint64),
    )
    assert choices.fitting(known) == choices
    fitting = choices.fitting(HISTORY).parameters.terminals
    assert "near" not in fitting
    assert {"near_site", "t", "X"} < {*fitting}


@pytest.mark.slow
@pytest.mark.parametrize("front", [False, True])
def test_everything_is_replayed_under_the_policy(front):
    """Fitness, selection and tables: a policy that looks at what it found gives other values than top_k."""
    policy = "tests.support.policies.siblings"
    choices = dataclasses.replace(FRONT, front=front, policy=policy, forget=0.0)
    result = learned(choices).best
    (parts,) = prepare_splits(HISTORY, choices)
    for part, truth in zip(("training", "validation", "test"), parts[:3], strict=True):
        for name, text in (("learned", result.text), ("age", "t")):
            expected = run(truth, text, clock="visits", policy=policy)
            assert result.table[name][part]["ndcg"] == expected.ndcg.mean()
    assert result.selected == run(parts.training, result.text, clock="visits", policy=policy).ndcg.mean()
    under, top_k = (run(parts.training, "t", policy=one).ndcg.tolist() for one in (policy, "top_k"))
    assert under != top_k


NDCG = load_fitness("ndcg")
TWO = SimpleNamespace(n_jobs=2)


new_process = pytest.mark.usefixtures("as_in_a_new_process")


@pytest.fixture
def as_in_a_new_process(monkeypatch):
    monkeypatch.setattr(learning, "_COMPILED", set())


def wait(done):
    """Wait for the process beside, as the workers never do."""
    while not done.exists():
        sleep(0.01)


@pytest.mark.slow
@new_process
def test_the_file_comes_when_the_code_is_compiled(tmp_path, monkeypatch):
    """The process fills numba's cache, and the file that tells of it goes with the block."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with compiled_beside(TRUTHS[0], NDCG, TOP_K.text, TWO) as done:
        wait(done)
        assert list(tmp_path.glob("*/cycles.replay_states*.nbc"))
    assert not done.exists()


@new_process
def test_the_same_is_compiled_once():
    """The next search of a process need not wait for it, one for something else does."""
    with compiled_beside(TRUTHS[0], NDCG, TOP_K.text, TWO) as done:
        wait(done)
    with compiled_beside(TRUTHS[0], NDCG, TOP_K.text, TWO) as done:
        assert done is None
    with compiled_beside(TRUTHS[1], NDCG, TOP_K.text, TWO) as done:
        assert done is not None


@pytest.mark.slow
@new_process
def test_code_that_was_compiled_beside_is_used_by_workers(tmp_path, monkeypatch):
    """A process that unpickles the history finds the code, and so does one that arranges it itself."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with compiled_beside(TRUTHS[0], NDCG, TOP_K.text, TWO) as done:
        wait(done)
    code = sorted(tmp_path.glob("*/*.nbc"))
    script = """if True:
        import pickle
        from tests.evolution.test_workers import TRUTHS
        from training.replaying.replay import run_all
        for truth in (TRUTHS[0], pickle.loads(pickle.dumps(TRUTHS[0]))):
            run_all(truth, ["t*X", "t*X/n"], metrics=("ndcg",))
        """
    subprocess.run([sys.executable, "-c", script], check=True, env=dict(os.environ))
    assert sorted(tmp_path.glob("*/*.nbc")) == code


@pytest.mark.parametrize("program", ["false", "cat"])
@new_process
def test_a_process_that_fails_keeps_nobody_waiting(monkeypatch, program):
    """Where there is no Python as it should be, the file comes all the same."""
    monkeypatch.setattr(sys, "executable", program)
    for _ in range(2):  # what failed is tried again
        with compiled_beside(TRUTHS[0], NDCG, TOP_K.text, TWO) as done:
            wait(done)


@pytest.mark.parametrize(
    ("jobs", "policy", "most"),
    [(1, TOP_K.text, 10**7), (2, "rounds(rounds=4)", 10**7), (2, TOP_K.text, 1999)],
)
@new_process
def test_nothing_is_compiled_beside_in_vain(monkeypatch, jobs, policy, most):
    """No workers, a policy without such code, a history too large to go without: no process."""
    monkeypatch.setattr(learning, "QUICK", most)
    with compiled_beside(TRUTHS[0], NDCG, policy, SimpleNamespace(n_jobs=jobs)) as done:
        assert done is None


def test_workers_go_without_until_the_file_is_there(tmp_path):
    """The same outcomes before and after, by the one engine and by the other."""
    file = tmp_path / "done"
    fitness = TextFitness(TRUTHS[0], NDCG, "visits")
    before = fitness.values(expressions(TEXTS[:3]), file)
    file.touch()
    after = fitness.values(expressions(TEXTS[:3]), file)
    assert {text: values.tolist() for text, values in after.items()} == {
        text: values.tolist() for text, values in before.items()
    }


def test_an_evaluator_asks_no_longer_once_it_has_seen_the_file(tmp_path):
    """Workers on other machines do not see it: a task that comes later does not name it."""
    file, named = tmp_path / "done", []

    def watched(task: EvaluationTask):
        named.append(task.compiled)
        return evaluate_task(task)

    with workers(1) as here, pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.evolution.workers.evaluate_task", watched)
        evaluator = Evaluator(TRUTHS, "ndcg", "visits", here, compiled=file)
        evaluator.evaluate(REQUESTS[:1])
        assert set(named) == {file}
        named.clear()
        file.touch()
        check(evaluator)
        assert set(named) == {None}
