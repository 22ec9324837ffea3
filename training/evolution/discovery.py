"""Learning of the functions that rank hubs, first visits and known pages, from replays of a growing site.

A hub is a page that is visited because it links to new pages.
The fitness of a function is the mean, over the training cycles and `REPLAYS` replays, of the weighted share
of the existing pages of which the crawl holds the current copy. A page that was not discovered yet counts as
missing. The other functions of the crawl stay as they are; `learn_jointly` learns several in turn.

The history is cut into training, validation and test cycles, in this order of time. Evolution replays the
training cycles, with the pages that were born in them. Of its best individuals and the crawl's default
function, the best one in training and validation is selected. Test cycles are only reported.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.functions import ScoreFunction, of_expression
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.choices import SPLITS
from training.evolution.evolve import Evolution, Outcome, Parameters, canonical
from training.evolution.score_file import ScoreFile
from training.evolution.workers import Workers
from training.histories.growth import GrowthHistory
from training.replaying.growth import GrowthCrawl, replay_growth

FITNESS: Final = "current"
"""Field of `training.replaying.growth.GrowthResult` whose mean is the fitness."""
REPLAYS: Final = 3
"""Number of replays of every function, with successive seeds."""
SHARES: Final = (0.5, 0.75)
"""Shares of the cycles after the warm-up at which training ends, and validation."""
LEAST_CYCLES: Final = 4
"""Smallest number of cycles after the warm-up that is cut into training, validation and test."""
WAITED: Final = "waited"
"""Default function that ranks first visits: pages that have waited longest come first."""
Target = Literal["hub_function", "new_page_function", "score_function"]
SETTINGS: Final[dict[Target, str]] = {
    "hub_function": "GP4C_DISCOVERY_FUNCTION",
    "new_page_function": "GP4C_NEW_PAGE_FUNCTION",
    "score_function": "GP4C_SCORE_FUNCTION",
}
"""Field of `GrowthCrawl` with a function that may be learned -> setting of Scrapy that takes the result."""
TURNS: Final = 3
"""Largest number of times that `learn_jointly` learns every function."""


@dataclass(frozen=True)
class DiscoveryChoices:
    """Choices for learning one function (``target``) of a growing crawl."""

    crawl: GrowthCrawl
    """Crawl to replay, with the candidate in place of its function ``target``."""
    clock: Clock
    parameters: Parameters
    seeds: int
    """Number of independent evolution runs."""
    seed: int
    target: Target = "hub_function"
    """Field of the crawl whose function is learned."""

    @property
    def default(self) -> str:
        """Canonical text of the crawl's function ``target`` before learning.

        Raises LearningError for a function that is not an expression.
        """
        function: ScoreFunction | None = getattr(self.crawl, self.target)
        if function is None:
            return WAITED
        if function.expression is None:
            raise LearningError(f"{function.text}: expected an expression to learn beside; found a program")
        return canonical(function.expression).text

    def crawl_by(self, text: str) -> GrowthCrawl:
        """The crawl with the expression `text` as its function ``target``."""
        function = of_expression(parse(text)).on_clock(self.clock)
        functions: dict[str, Any] = {self.target: function}
        return replace(self.crawl, **functions)


class DiscoveryReplay(NamedTuple):
    """Fitness and discovery of new pages by one function, over its `REPLAYS` replays."""

    current: Floats
    """Fitness in each cycle after the warm-up, mean over the replays: ``[cycles]``."""
    coverage: float
    """Mean over the replays of `training.replaying.growth.GrowthResult.coverage`."""
    delay: npt.NDArray[np.int64]
    """Delays of all replays: see `training.replaying.growth.GrowthResult`."""


class DiscoveryCandidate(NamedTuple):
    """Function of a growing crawl and its mean fitness in training, validation and test cycles."""

    text: str
    training: float
    validation: float
    test: float
    replayed: DiscoveryReplay

    @property
    def selected(self) -> float:
        """Value by which functions are selected, the highest first: `training` + `validation`."""
        return self.training + self.validation


class LearnedDiscovery(NamedTuple):
    """Result of learning one function of a growing crawl."""

    best: DiscoveryCandidate
    default: DiscoveryCandidate
    """Function of the crawl before learning."""
    replays: int
    """Number of functions that evolution has replayed."""
    ends: tuple[int, int]
    """Last cycles of training and of validation."""


def learn_discovery(
    grown: GrowthHistory,
    choices: DiscoveryChoices,
    parallel: Workers,
    generation: Callable[[int, float], object] = lambda number, best: None,
) -> LearnedDiscovery:
    """Learn one function of a crawl from `grown`, a history in which pages are born and linked.

    ``generation(number, best)`` is called after every generation, from 1, with the best fitness so far.
    Raises LearningError for a history in which no page is born, or with too few cycles.
    """
    ends = _ends(grown, choices.crawl.warmup)
    growth_part = grown.until(ends[0])
    if not (growth_part.born > 0).any() and not choices.crawl.from_start:
        raise LearningError(
            f"no page of {grown.history.source} is born in its first {ends[0]} cycles, from which discovery "
            "would be learned: take a longer history"
        )
    runs = [Evolution(choices.parameters, choices.seed, (number,)) for number in range(choices.seeds)]
    known: dict[str, Outcome] = {}
    while not runs[0].finished:
        texts_of_runs = [evolution.ask() for evolution in runs]
        new = [
            text
            for text in dict.fromkeys(text for texts in texts_of_runs for text in texts)
            if text not in known
        ]
        for answers in parallel.results(
            partial(_outcomes, growth_part, choices, texts) for texts in _chunks(new, parallel)
        ):
            known.update(answers)
        for evolution in runs:
            evolution.tell(known)
        generation(runs[0].generation, max(evolution.best_so_far for evolution in runs))
    texts_to_judge = dict.fromkeys(
        [choices.default, *(one.text for evolution in runs for one in evolution.best_individuals)]
    )
    candidates = [
        _candidate(choices, ends, text, replayed)
        for answers in parallel.results(
            partial(_results, grown, choices, texts) for texts in _chunks([*texts_to_judge], parallel)
        )
        for text, replayed in answers
    ]
    default = next(one for one in candidates if one.text == choices.default)
    best = min(
        candidates,
        key=lambda one: (-one.selected, one.text != choices.default, len(parse(one.text).tokens), one.text),
    )
    return LearnedDiscovery(best, default, len(known), ends)


def learn_jointly(
    grown: GrowthHistory,
    choices: Sequence[DiscoveryChoices],
    parallel: Workers,
    generation: Callable[[int, float], object] = lambda number, best: None,
) -> list[tuple[DiscoveryChoices, LearnedDiscovery]]:
    """Learn several functions of one crawl in turn, each in a crawl with the latest versions of the others.

    ``choices``: one for each function; all are learned again until none changes, at most `TURNS` times. A
    function is replaced only by one of higher fitness in training and validation. ``parallel``: workers;
    ``generation``: called with the number and best fitness of each generation. Returns the last choices and
    result of every function; their `LearnedDiscovery.default` is the function before the first turn. Raises
    LearningError as `learn_discovery` does.
    """
    learned: dict[Target, tuple[DiscoveryChoices, LearnedDiscovery]] = {}
    crawl = choices[0].crawl
    for turn in range(TURNS):
        texts = [replace(one, crawl=crawl).default for one in choices]
        for one in choices:
            now = replace(one, crawl=crawl, seed=one.seed + turn)
            result = learn_discovery(grown, now, parallel, generation)
            crawl = now.crawl_by(result.best.text)
            if one.target in learned:
                result = result._replace(default=learned[one.target][1].default)
            learned[one.target] = now, result
        if texts == [replace(one, crawl=crawl).default for one in choices]:
            break
    return list(learned.values())


def _ends(grown: GrowthHistory, warmup: int) -> tuple[int, int]:
    """Last cycles of training and of validation."""
    scored = grown.history.cycles - warmup
    if scored < LEAST_CYCLES:
        raise LearningError(
            f"{grown.history.source} has {grown.history.cycles} cycles, {max(0, scored)} of them after a "
            f"warm-up of {warmup}; learning discovery takes at least {LEAST_CYCLES}: record more cycles"
        )
    first, second = (warmup + int(share * scored) for share in SHARES)
    return first, second


def _chunks(texts: Sequence[str], parallel: Workers) -> list[Sequence[str]]:
    return [texts[start :: parallel.n_jobs] for start in range(min(parallel.n_jobs, len(texts)))]


def replayed_by(grown: GrowthHistory, choices: DiscoveryChoices, text: str) -> DiscoveryReplay:
    """Replay the function `text` in place of `choices.target`, with `REPLAYS` seeds."""
    crawl, seed = choices.crawl_by(text), choices.crawl.seed
    results = [replay_growth(grown, replace(crawl, seed=one)) for one in range(seed, seed + REPLAYS)]
    return DiscoveryReplay(
        np.mean([result.current for result in results], axis=0),
        float(np.mean([result.coverage for result in results])),
        np.concatenate([result.delay for result in results]),
    )


def _results(
    grown: GrowthHistory, choices: DiscoveryChoices, texts: Sequence[str]
) -> list[tuple[str, DiscoveryReplay]]:
    return [(text, replayed_by(grown, choices, text)) for text in texts]


def _outcomes(
    growth_part: GrowthHistory, choices: DiscoveryChoices, texts: Sequence[str]
) -> list[tuple[str, Outcome]]:
    outcomes = []
    for text, replayed in _results(growth_part, choices, texts):
        behaviour = hashlib.sha256(replayed.current.tobytes() + replayed.delay.tobytes()).hexdigest()
        outcomes.append((text, Outcome(float(replayed.current.mean()), behaviour)))
    return outcomes


def _candidate(
    choices: DiscoveryChoices, ends: tuple[int, int], text: str, replayed: DiscoveryReplay
) -> DiscoveryCandidate:
    first, second = (end - choices.crawl.warmup for end in ends)
    current = replayed.current
    training, validation, test = current[:first], current[first:second], current[second:]
    return DiscoveryCandidate(
        text, float(training.mean()), float(validation.mean()), float(test.mean()), replayed
    )


def write_discovery(
    path: Path, learned: LearnedDiscovery, choices: DiscoveryChoices, grown: GrowthHistory
) -> None:
    """Write the score file of `learned.best`; raises LearningError if it cannot be written."""
    best, crawl = learned.best, choices.crawl
    process = asdict(choices.parameters) | {"depths": choices.parameters.depths._asdict()}
    details = {
        "new_pages": crawl.new_pages,
        "target": choices.target,
        "discovery": crawl.discovery,
        "hub_function": crawl.hub_function.formula,
        "new_page_function": crawl.new_page_function and crawl.new_page_function.formula,
        "score_function": crawl.score_function.formula,
        "growth": True,
    }
    ScoreFile(
        parse(best.text),
        choices.clock,
        FITNESS,
        {split_name: {FITNESS: getattr(best, split_name)} for split_name in SPLITS},
        "training + validation",
        choices.seed,
        grown.history,
        {**process, **details, "budget": crawl.budget, "warmup": crawl.warmup, "seeds": choices.seeds},
        crawl.policy.text,
    ).write(path)
