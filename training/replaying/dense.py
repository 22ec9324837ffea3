"""The dense replay engine: every page has its own row, in plain numpy.

For score functions whose terminals differ from page to page (``random``, callables) and for `metrics.ORACLE`,
and as the plain statement of what `training.replaying.grouped` computes faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.draws import salted_draws
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import top_k
from scrapy_gp4c.scoring.terminals import Array
from training.replaying.arranged import ArrangedHistory, penalties
from training.replaying.metrics import Ints, Tallies

Watch = Callable[[int, npt.NDArray[np.int64], npt.NDArray[np.bool_]], None]


def replay_dense(
    truth: ArrangedHistory,
    function: ScoreFunction | None,
    tallies: Collection[str],
    watch: Watch | None = None,
) -> Tallies:
    """Replay `function` (None: the oracle) page by page (thesis Algorithm 2).

    ``tallies``: names of the optional `Tallies` to count. ``watch(cycle, pages, found)`` is told of every
    cycle's visits: page numbers by rank, int64 ``[k]``, and whether each had changed, bool ``[k]``.
    """
    names = ("t",) if function is None else (*function.terminals, "t")
    columns = terminals.columns_of(names, "visits" if function is None else function.clock)
    kept = tuple(dict.fromkeys((*(name for name in columns if name != "draw"), "last_cycle")))
    state = {name: values[truth.pattern] for name, values in truth.first_state(kept).items()}
    numbers = np.arange(truth.pages, dtype=np.uint64)
    missed = np.zeros(truth.pages, np.int64)
    diverged = np.zeros(truth.pages, np.int64)
    rows = []
    for cycle, salt in zip(truth.scored_cycles.tolist(), truth.salts, strict=True):
        now = truth.changed[cycle - 1]
        diverged[now & (missed == 0)] = cycle
        missed += now
        draws = salted_draws(numbers, salt)
        if function is None:
            scores = (missed > 0).astype(np.float64)
        else:
            scores = function.scores({**state, "draw": draws}, cycle)
        visited = top_k(scores, draws if truth.ties == "random" else numbers, truth.k)
        found = missed[visited] > 0
        row = {
            "visited": len(visited),
            "changed": np.count_nonzero(found),
            "pending": np.count_nonzero(missed),
            "dcg": np.diff(truth.gain_sums)[found].sum(),
            "new": np.count_nonzero(state["last_cycle"][visited] == truth.warmup),
            "idle": np.count_nonzero(state["last_cycle"][visited] != cycle - 1),
            "changed_weight": _weight(truth, visited[found]),
        }
        if watch is not None:
            watch(cycle, visited, found)
        seen = {name: values[visited] for name, values in state.items()}
        terminals.observe(seen, found, cycle)
        for name, values in seen.items():
            state[name][visited] = values
        missed[visited] = 0
        row |= _staleness(truth, missed, diverged, cycle, tallies)
        rows.append(row)
    wanted = {"visited", "changed", "pending", *tallies}
    return Tallies(**{name: np.array([row[name] for row in rows], np.int64) for name in wanted})


def _weight(truth: ArrangedHistory, pages: Array) -> int:
    return int(truth.weights.fixed[pages].sum()) if len(truth.weights.fixed) else len(pages)


def _staleness(
    truth: ArrangedHistory, missed: Ints, diverged: Ints, cycle: int, tallies: Collection[str]
) -> dict[str, int]:
    out: dict[str, int] = {}
    if not {"stale_weight", "age_weight", "penalty"} & set(tallies):
        return out
    stale = np.flatnonzero(missed)
    out["stale_weight"] = _weight(truth, stale)
    if "age_weight" in tallies:
        age = cycle + 1 - diverged[stale]
        out["age_weight"] = int((age * truth.weights.fixed[stale] if len(truth.weights.fixed) else age).sum())
    if "penalty" in tallies:
        out["penalty"] = int(penalties(truth.weights, stale, missed[stale]).sum())
    return out
