"""When a worker looks for the parts of the others, whom it waits for."""

from __future__ import annotations

from typing import Final, NamedTuple

LONGEST_S: Final = 1.2
"""From one look for the others' parts to the next."""
MOST_WAITED: Final = 0.5
"""The same, as a share of what was waited so far."""


class Pace(NamedTuple):
    """How often a worker looks for the others' parts of a step, see `pause_s`."""

    shortest_s: float
    """From one look to the next."""
    least_waited: float
    """The same, as a share of what was waited so far."""
    spread_s: float
    """From the first part to the last one, evenly between: before the last is due, nobody looks for it."""


SOON: Final = Pace(0.005, 0.125, 0.0)
"""While all workers do the same and nothing else, as at the opening."""
HEARD: Final = Pace(0.3, MOST_WAITED, 1.3)
"""While the others crawl, and hear of a round with their next look, which comes once a second."""
BESIDE: Final = Pace(0.2, MOST_WAITED, 0.5)
"""In the steps after that, while they crawl."""


def pause_s(pace: Pace, waited_s: float, arrived: int, missing: int, of: int) -> float:
    """How long to wait before the next look for parts: the sooner, the sooner the last one is to be expected.

    ``waited_s``: so far; ``arrived``: parts that have come meanwhile; ``missing``: others, of so many.
    """
    due_s = pace.spread_s * missing / of - waited_s
    share = MOST_WAITED * min(1.0, missing / arrived if arrived else 1.0)
    return min(LONGEST_S, max(pace.shortest_s, due_s, max(pace.least_waited, share) * waited_s))
