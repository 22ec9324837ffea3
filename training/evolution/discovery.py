"""Learning of discovery functions, which rank hubs: genetic programming over replays of growth.

The fitness of a discovery function is the mean, over the training cycles, of the weighted share of the
existing pages whose current copy is held, where a page that was not discovered yet counts as missing:
coverage and freshness in one, as the journal's outlook asks. It is a mean over `REPLAYS` replays too, with
draws of their own: which hub is discovered first is an accident that moves all that follows. The ranking of
the other pages stays as it is, and so does the share of the budget for hubs.

Time is cut in three. Evolution replays the first span alone, with the pages that were born in it; of the kept
individuals and the crawl's default, the one is taken that does best in the first two spans together; the last
span has no say and is reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.functions import of_expression
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.evolve import Evolution, Outcome, Parameters
from training.evolution.score_file import ScoreFile
from training.evolution.simplification import canonical
from training.evolution.workers import Workers
from training.histories.growth import GrowthHistory
from training.replaying.growth import HUBS, GrowthCrawl, replay_growth

Floats = npt.NDArray[np.float64]

FITNESS: Final = "current"
"""The field of `training.replaying.growth.GrowthResult` whose mean is the fitness."""
REPLAYS: Final = 3
"""Of every function; their seeds follow each other."""
SHARES: Final = (0.5, 0.75)
"""Of the cycles: where the first part ends, and the second."""
LEAST_CYCLES: Final = 4
"""After the warm-up: fewer cannot be cut in three parts that tell anything."""
DEFAULT: Final = canonical(parse(HUBS)).text
"""What a crawl ranks hubs by unless it is told otherwise."""


@dataclass(frozen=True)
class DiscoveryChoices:
    """What to learn from, and how."""

    crawl: GrowthCrawl
    """The crawl that is replayed, but for what ranks its hubs."""
    clock: Clock
    parameters: Parameters
    seeds: int
    """Independent runs."""
    seed: int


class DiscoveryReplay(NamedTuple):
    """What replays of one function came to."""

    current: Floats
    """The fitness by cycle after the warm-up, mean over the replays: ``[cycles]``."""
    coverage: float
    delay: npt.NDArray[np.int64]
    """Of all replays, one after the other: see `training.replaying.growth.GrowthResult`."""


class DiscoveryCandidate(NamedTuple):
    """A discovery function and what it did on all cycles."""

    text: str
    training: float
    """Mean fitness in the first part, as in the next two."""
    validation: float
    test: float
    replayed: DiscoveryReplay
    """All cycles."""

    @property
    def selected(self) -> float:
        """By what the function is chosen."""
        return self.training + self.validation


class LearnedDiscovery(NamedTuple):
    """What was learned."""

    best: DiscoveryCandidate
    default: DiscoveryCandidate
    """What a crawl does otherwise."""
    replays: int
    """Functions that evolution has replayed."""
    ends: tuple[int, int]
    """Cycles in which the first part ends, and the second."""


def learn_discovery(
    grown: GrowthHistory,
    choices: DiscoveryChoices,
    parallel: Workers,
    generation: Callable[[int, float], object] = lambda number, best: None,
) -> LearnedDiscovery:
    """Learn what ranks hubs from a history of growth.

    ``parallel``: where to evaluate, see `training.evolution.workers.workers`. ``generation(number, best)`` is
    told of every generation, from 1, and the best fitness so far. Raises LearningError for a history that
    tells nothing of discovery, or too little.
    """
    ends = _ends(grown, choices.crawl.warmup)
    part = grown.until(ends[0])
    if not (part.born > 0).any():
        raise LearningError(
            f"no page of {grown.history.source} is born in its first {ends[0]} cycles, from which discovery "
            "would be learned: take a longer history"
        )
    runs = [Evolution(choices.parameters, choices.seed, (number,)) for number in range(choices.seeds)]
    known: dict[str, Outcome] = {}
    while not runs[0].finished:
        asked = [evolution.ask() for evolution in runs]
        new = [text for text in dict.fromkeys(text for texts in asked for text in texts) if text not in known]
        for answers in parallel.results(
            partial(_outcomes, part, choices, texts) for texts in _chunks(new, parallel)
        ):
            known.update(answers)
        for evolution in runs:
            evolution.tell(known)
        generation(runs[0].generation, max(evolution.best_so_far for evolution in runs))
    kept = dict.fromkeys([DEFAULT, *(one.text for evolution in runs for one in evolution.kept)])
    found = [
        _candidate(choices, ends, text, replayed)
        for answers in parallel.results(
            partial(_results, grown, choices, texts) for texts in _chunks([*kept], parallel)
        )
        for text, replayed in answers
    ]
    default = next(one for one in found if one.text == DEFAULT)
    return LearnedDiscovery(min(found, key=_order), default, len(known), ends)


def _order(candidate: DiscoveryCandidate) -> tuple[float, bool, int, str]:
    """The best first; of equals the default, then the shortest."""
    text = candidate.text
    return -candidate.selected, text != DEFAULT, len(parse(text).tokens), text


def _ends(grown: GrowthHistory, warmup: int) -> tuple[int, int]:
    """Cycles in which the first part ends, and the second."""
    scored = grown.history.cycles - warmup
    if scored < LEAST_CYCLES:
        raise LearningError(
            f"{grown.history.source} has {grown.history.cycles} cycles, {max(0, scored)} of them after a "
            f"warm-up of {warmup}; learning discovery takes at least {LEAST_CYCLES}: record more cycles"
        )
    first, second = (warmup + int(share * scored) for share in SHARES)
    return first, second


def _chunks(texts: Sequence[str], parallel: Workers) -> list[Sequence[str]]:
    """About as many texts for every worker."""
    return [texts[start :: parallel.n_jobs] for start in range(min(parallel.n_jobs, len(texts)))]


def replayed_by(grown: GrowthHistory, choices: DiscoveryChoices, text: str) -> DiscoveryReplay:
    """Replay a discovery function, with every seed."""
    function, seed = of_expression(parse(text)).on_clock(choices.clock), choices.crawl.seed
    results = [
        replay_growth(grown, replace(choices.crawl, hub_function=function, seed=one))
        for one in range(seed, seed + REPLAYS)
    ]
    return DiscoveryReplay(
        np.mean([result.current for result in results], axis=0),
        float(np.mean([result.coverage for result in results])),
        np.concatenate([result.delay for result in results]),
    )


def _results(
    grown: GrowthHistory, choices: DiscoveryChoices, texts: Sequence[str]
) -> list[tuple[str, DiscoveryReplay]]:
    """Replay discovery functions."""
    return [(text, replayed_by(grown, choices, text)) for text in texts]


def _outcomes(
    part: GrowthHistory, choices: DiscoveryChoices, texts: Sequence[str]
) -> list[tuple[str, Outcome]]:
    """What evolution is told of discovery functions."""
    outcomes = []
    for text, replayed in _results(part, choices, texts):
        behaviour = hashlib.sha256(replayed.current.tobytes() + replayed.delay.tobytes()).hexdigest()
        outcomes.append((text, Outcome(float(replayed.current.mean()), behaviour)))
    return outcomes


def _candidate(
    choices: DiscoveryChoices, ends: tuple[int, int], text: str, replayed: DiscoveryReplay
) -> DiscoveryCandidate:
    """Cut what a function did into the three parts; the first cycle that counts follows the warm-up."""
    first, second = (end - choices.crawl.warmup for end in ends)
    current = replayed.current
    training, validation, test = current[:first], current[first:second], current[second:]
    return DiscoveryCandidate(
        text, float(training.mean()), float(validation.mean()), float(test.mean()), replayed
    )


def write_discovery(
    path: Path, learned: LearnedDiscovery, choices: DiscoveryChoices, grown: GrowthHistory
) -> None:
    """Write what was learned; raises LearningError when the file cannot be written."""
    best, crawl = learned.best, choices.crawl
    process = asdict(choices.parameters) | {"depths": choices.parameters.depths._asdict()}
    about = {"discovery": crawl.discovery, "score_function": crawl.score_function.formula, "growth": True}
    ScoreFile(
        parse(best.text),
        choices.clock,
        FITNESS,
        {part: {FITNESS: getattr(best, part)} for part in ("training", "validation", "test")},
        "training + validation",
        choices.seed,
        grown.history,
        {**process, **about, "budget": crawl.budget, "warmup": crawl.warmup, "seeds": choices.seeds},
        crawl.policy.text,
    ).write(path)
