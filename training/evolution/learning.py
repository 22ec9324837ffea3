"""Learning of a score function from a recorded history.

GP4C as a whole (Santos et al. 2014, Listing 1): several evolution runs on each fold of the cross-validation,
all sharing workers; then the selection rule picks one function per fold. The result depends on the history
and on `Choices` alone: neither on the number or kind of workers nor on interruptions.
"""

import gc
import hashlib
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.named import BASELINES, PURPOSES
from training.evolution.checkpoint import Checkpoint
from training.evolution.choices import SPLITS, Choices, prepare_splits
from training.evolution.evolve import Evolution, EvolutionState, named_functions, uses_related_pages
from training.evolution.front import FrontCandidate, FrontEvolution, choose_of_front
from training.evolution.selection import Allow, FoldPick, FoldValues, pick
from training.evolution.workers import (
    Evaluator,
    Fitness,
    FitnessPair,
    PreparedSplit,
    Workers,
    load_fitness,
    load_measure,
)
from training.histories.history import ChangeHistory
from training.replaying import metrics
from training.replaying.prepared import PreparedHistory
from training.replaying.replay import QUICK, can_replay, load, run, run_all

if TYPE_CHECKING:
    from training.replaying.grouped import PrefixCaches


TEXTS: Final = ("t*X", "t*X/n", "t*(X+0.5)", "X")
"""Score functions to warm numba up with: replaying them compiles every loop of the grouped engine."""


_COMPILED: Final[set[bytes]] = set()
"""Digests of the histories and metrics whose code was compiled since this process began."""


@contextmanager
def compiled_beside(
    prepared: PreparedHistory, measure: Fitness | FitnessPair, policy: str, parallel: Any
) -> Iterator[Path | None]:
    """Compile the replay's numba code in another process, and yield the path of a file that marks the end.

    The file appears when that process ends, whatever its result: workers compile what is lacking. Yields None
    when no process is started: there is one job only, the policy has no compiled loops, the history is so
    large that replays without compiled code take longer than compiling, or the code was compiled before.
    """
    if parallel.n_jobs == 1 or policy != TOP_K.text or prepared.pages * prepared.cycles > QUICK:
        yield None
        return
    command = [sys.executable, "-m", __spec__.name]
    request = pickle.dumps((prepared, measure.metrics))
    digest = hashlib.sha256(request).digest()
    if digest in _COMPILED:
        yield None
        return
    with (
        tempfile.TemporaryDirectory(prefix="gp4c-compiling-") as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=DEVNULL, stderr=DEVNULL) as compiling,
    ):
        done = Path(folder, "done")

        def attend() -> None:
            compiling.communicate(request)
            if compiling.returncode == 0:
                _COMPILED.add(digest)
            done.touch()

        attending = threading.Thread(target=attend)
        attending.start()
        try:
            yield done
        finally:
            compiling.kill()
            attending.join()


def main() -> int:
    """Replay the request of `compiled_beside`, a history and names of metrics, from standard input."""
    prepared, names = pickle.load(sys.stdin.buffer)
    prefix_caches: PrefixCaches = {}
    for _ in range(2):  # the second pass reads the prefix caches, whose loops are to be compiled too
        run_all(prepared, TEXTS, metrics=names, prefix_caches=prefix_caches)
    return 0


if __name__ == "__main__":
    sys.exit(main())


class ProgressListener(Protocol):
    """Receiver of the progress of learning, such as a progress bar."""

    def generation(self, number: int, individuals: int) -> None:
        """Generation `number` (from 1) begins, with `individuals` individuals that may need an evaluation."""

    def advance(self, individuals: int) -> None:
        """Note that `individuals` more of the generation are evaluated."""

    def first_fitness(self, fitness: float) -> None:
        """Best fitness of the first run's first generation, reported before the other runs have theirs."""

    def best(self, fitness: Sequence[float]) -> None:
        """Best fitness so far of every evolution run, after each generation."""


def evolve_all(
    evolutions: Sequence[Evolution],
    seeds: int,
    evaluator: Evaluator,
    checkpoint: Checkpoint | None,
    watch: ProgressListener | None,
) -> None:
    """Run the remaining generations of all evolutions, one generation of each after the other.

    ``seeds``: number of evolutions per fold. They go on from the states in ``checkpoint``, which is saved
    after every generation. Ctrl-C takes them back to the last complete generation; before that it is raised.
    """
    states = None if checkpoint is None else checkpoint.states
    _restore(evolutions, states)
    try:
        while not evolutions[0].finished:
            gc.freeze()  # trees and outcomes stay: to look for garbage among them takes a tenth of the time
            _close_generation(evolutions, seeds, evaluator, watch)
            states = [one.state() for one in evolutions]
            if watch is not None:
                watch.best([one.best_so_far for one in evolutions if one.best_individuals])
            if checkpoint is not None:
                checkpoint.save(states)
    except KeyboardInterrupt:
        if states is None:
            raise
        # The evolutions may be in the middle of a generation, or the checkpoint half saved.
        _restore(evolutions, states)
        if checkpoint is not None:
            checkpoint.save(states)
    finally:
        gc.unfreeze()


def _restore(evolutions: Sequence[Evolution], states: Sequence[EvolutionState] | None) -> None:
    if states is not None:
        for evolution, state in zip(evolutions, states, strict=True):
            evolution.restore(state)


def _close_generation(
    evolutions: Sequence[Evolution], seeds: int, evaluator: Evaluator, watch: ProgressListener | None
) -> None:
    """Breed and evaluate the next generation of every evolution.

    Later folds are bred while workers evaluate earlier ones. While numba code is still being compiled, the
    first evolution is evaluated alone, so that a first fitness can be shown early.
    """
    first = evolutions[0]
    generation = first.generation + 1
    if watch is not None:
        watch.generation(generation, len(evolutions) * first.parameters.population)

    def advance(number: int, texts: int) -> None:
        if watch is not None:
            watch.advance(texts)

    requests = ((number // seeds, one.ask()) for number, one in enumerate(evolutions))
    if len(evolutions) > 1 and generation == 1 and evaluator.is_compiling:
        evaluator.evaluate([next(requests)], advance)
        first.tell(evaluator.known[0])
        if watch is not None and first.best_individuals:
            watch.first_fitness(first.best_so_far)
    evaluator.evaluate(requests, advance)
    for number, evolution in enumerate(evolutions):
        if evolution.generation < generation:
            evolution.tell(evaluator.known[number // seeds])


LEARNED: Final = "learned"


Table = dict[str, dict[str, dict[str, float]]]
"""Score function -> split (one of `SPLITS`) -> metric -> mean over the scored cycles."""


class FrontMember(NamedTuple):
    """Function of a Pareto front of two objectives, with its metrics."""

    text: str
    run: int
    """Number of its evolution run in the fold; `NAMED_RUN` for a named function."""
    taken: bool
    """Whether it is the function that was selected."""
    values: dict[str, dict[str, float]]
    """Split (one of `SPLITS`) -> metric -> mean over the scored cycles."""


class Fold(NamedTuple):
    """Function learned on one fold of the cross-validation, and its comparison with other functions."""

    text: str
    run: int
    """Number of its evolution run in the fold; `NAMED_RUN` for a named function."""
    selected: float
    """Value of the function under the selection rule."""
    table: Table
    """Metrics of the learned function (key `LEARNED`) and of those that `others` lists."""
    front: tuple[FrontMember, ...] = ()
    """All functions of the Pareto front, the learned one included; empty for one objective."""
    leads: tuple[float, ...] = ()
    """Fitness minus the fitness of `Choices.in_use`, in each scored cycle of the test split.

    Empty if the test split cannot replay the function in use.
    """


@dataclass(frozen=True)
class Learned:
    """Result of learning: the function of each fold, the best of these, and what learning cost."""

    folds: list[Fold]
    best: Fold
    """Fold with the highest `Fold.selected`; its function goes into the score file."""
    generations: int
    """Generations that every evolution run completed."""
    complete: bool
    """False: stopped by the user before the last generation."""
    replays: int
    """Individuals replayed, in evolution and in the selection."""
    replay_s: float
    """Processor time of scoring and replaying in all workers, in seconds."""


def learn(
    history: ChangeHistory,
    choices: Choices,
    parallel: Workers,
    *,
    folds: Sequence[PreparedSplit] | None = None,
    checkpoint: Checkpoint | None = None,
    watch: ProgressListener | None = None,
    allow: Allow | None = None,
) -> Learned:
    """Learn a score function on each fold of `history`, by evolution and selection.

    ``folds``: result of `prepare_splits`, if it was called before. ``checkpoint``: saved after every
    generation; learning goes on from the states in it. ``allow``: see `training.evolution.selection.pick`.

    After a KeyboardInterrupt the function is selected from the completed generations; without any the
    KeyboardInterrupt is raised. Raises HistoryError or LearningError as `prepare_splits` does.
    """
    (learned,) = learn_by_rules(
        history, [choices], parallel, folds=folds, checkpoint=checkpoint, watch=watch, allow=allow
    )
    return learned


def learn_by_rules(
    history: ChangeHistory,
    choices: Sequence[Choices],
    parallel: Workers,
    *,
    folds: Sequence[PreparedSplit] | None = None,
    checkpoint: Checkpoint | None = None,
    watch: ProgressListener | None = None,
    allow: Allow | None = None,
) -> list[Learned]:
    """Evolve once, then select by several rules: as `learn`, with one result for each of `choices`.

    ``choices``: at least one, alike in all but the selection rule and `Choices.prefer`.
    """
    first = choices[0]
    folds = prepare_splits(history, first) if folds is None else folds
    sets = [split.training for split in folds] + [split.validation for split in folds]
    with compiled_beside(sets[0], load_measure(first.measure), first.policy, parallel) as compiled:
        evaluator = Evaluator(sets, first.measure, first.clock, parallel, first.policy, compiled)
        kind = FrontEvolution if first.front else Evolution
        evolutions = [
            kind(first.parameters, first.seed, (fold, number))
            for fold in range(len(folds))
            for number in range(first.seeds)
        ]
        evolve_all(evolutions, first.seeds, evaluator, checkpoint, watch)
        return _selected(folds, choices, evaluator, evolutions, allow)


def _selected(
    folds: Sequence[PreparedSplit],
    choices: Sequence[Choices],
    evaluator: Evaluator,
    evolutions: Sequence[Evolution],
    allow: Allow | None,
) -> list[Learned]:
    first, seeds = evolutions[0], len(evolutions) // len(folds)
    best_of_folds = [
        [evolution.best_individuals for evolution in evolutions[fold * seeds : (fold + 1) * seeds]]
        for fold in range(len(folds))
    ]
    if not first.finished:
        evaluator = evaluator.in_this_process()
    selecting = FoldValues(evaluator, len(folds))
    picks: list[FoldPick] = []
    fronts: list[Sequence[FrontCandidate]] = []
    costs = []
    for rule_choices in choices:
        for fold, split in enumerate(folds):
            goal = rule_choices.goal_on(split.training)
            values = partial(selecting.pairs, fold, goal)
            members: Sequence[FrontCandidate] = ()
            if rule_choices.front:
                picked, members = choose_of_front(
                    best_of_folds[fold], split, goal, rule_choices.prefer, values, allow
                )
            else:
                picked = pick(best_of_folds[fold], split, goal, values, allow)
            picks.append(FoldPick(fold, picked, goal))
            fronts.append(members)
        costs.append((evaluator.replays, evaluator.replay_s))
    chosen = selecting.chosen(picks)
    learned = []
    for rule, rule_choices in enumerate(choices):
        results = []
        rows = range(rule * len(folds), (rule + 1) * len(folds))
        for split, row in zip(folds, rows, strict=True):
            one, taken = chosen[row], picks[row].picked.text
            members = [
                member._replace(text=one.text) if member.text == taken else member for member in fronts[row]
            ]
            table = compare(split, {LEARNED: one.text} | others(rule_choices, split.test), rule_choices)
            leads = _leads(split.test, one.text, rule_choices)
            front = _front(split, members, one.text, rule_choices)
            results.append(Fold(one.text, one.run, one.selected, table, front, leads))
        best = max(results, key=lambda fold: fold.selected)
        learned.append(Learned(results, best, first.generation, first.finished, *costs[rule]))
    return learned


def _front(
    split: PreparedSplit, members: Sequence[FrontCandidate], taken: str, choices: Choices
) -> tuple[FrontMember, ...]:
    table = compare(split, {one.text: one.text for one in members}, choices)
    return tuple(FrontMember(one.text, one.run, one.text == taken, table[one.text]) for one in members)


def others(choices: Choices, prepared: PreparedHistory) -> dict[str, str]:
    """Functions to compare a learned one with, `Choices.in_use` first: name -> score argument (its name).

    Functions that the history `prepared` cannot replay are left out.
    """
    names = choices.parameters.terminals
    of_related = named_functions(names) if uses_related_pages(names) else ()
    texts = dict.fromkeys((choices.in_use, *PURPOSES, *BASELINES, *of_related, metrics.ORACLE))
    return {text: text for text in texts if can_replay(prepared, load(text))}


def compare(split: PreparedSplit, functions: Mapping[str, str], choices: Choices) -> Table:
    """Replay `functions` on the three splits of a fold, and return the mean of every metric.

    ``functions``: name -> score argument, see `training.replaying.replay.load`; for the policy see
    `policy_under`. Means are cached in `PreparedHistory.means`: experiments compare a function repeatedly.
    """
    fitness = load_fitness(choices.fitness)
    names = tuple(dict.fromkeys((*metrics.METRICS, *fitness.metrics)))
    custom = fitness.name if fitness.custom is not None else None
    table: Table = {}
    for name, function in functions.items():
        table[name] = {}
        for split_name, prepared in zip(SPLITS, split[:3], strict=True):
            policy = policy_under(function, choices)
            key = (function, choices.clock, policy, names, custom)
            if key not in prepared.means:
                result = run(prepared, function, clock=choices.clock, metrics=names, policy=policy)
                row = {metric: float(np.mean(getattr(result, metric))) for metric in names}
                if custom is not None:
                    row[custom] = float(np.mean(fitness.values(result)))
                prepared.means[key] = row
            table[name][split_name] = dict(prepared.means[key])
    return table


def policy_under(text: str, choices: Choices) -> str:
    """Policy under which the score argument `text` is replayed.

    That of the named function, where it has one and `Choices.named_policies` is set, else `Choices.policy`.
    """
    loaded = None if text == metrics.ORACLE else load(text, choices.clock)
    own_policy = loaded.policy if isinstance(loaded, ScoreFunction) and choices.named_policies else None
    return own_policy or choices.policy


def _leads(test: PreparedHistory, text: str, choices: Choices) -> tuple[float, ...]:
    if not can_replay(test, load(choices.in_use)):
        return ()
    fitness = load_fitness(choices.fitness)
    learned, in_use = (
        fitness.values(
            run(test, one, clock=choices.clock, metrics=fitness.metrics, policy=policy_under(one, choices))
        )
        for one in (text, choices.in_use)
    )
    return tuple((learned - in_use).tolist())
