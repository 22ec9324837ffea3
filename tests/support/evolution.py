"""One run of genetic programming, driven to its end."""

from collections.abc import Callable, Mapping, Sequence

from scrapy_gp4c.scoring.expression import Expression
from training.evolution.evolve import Evolution, Outcome, Parameters


def evolve(
    evaluate: Callable[[dict[str, Expression]], Mapping[str, Outcome]],
    parameters: Parameters,
    seed: int,
    run: Sequence[int] = (0,),
) -> Evolution:
    """Evolve all generations of a run; ``evaluate``: expressions by text -> outcomes by text."""
    evolution = Evolution(parameters, seed, run)
    while not evolution.finished:
        evolution.tell(evaluate(evolution.ask()))
    return evolution
