"""Differences of two score functions: the kinds of pages that each visits, and their change rates.

Both are replayed on the same history. A visit has the page's observed state at that moment (n judged visits,
X changes, t cycles since the last visit) and its outcome.
"""

import itertools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Ints
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring import functions
from training.histories.history import ChangeHistory
from training.replaying.dense import replay_dense
from training.replaying.prepared import CrawlChoices, prepare_for
from training.replaying.replay import policy_of

Bits = npt.NDArray[np.bool_]

CLASSES: Final[dict[str, tuple[int, ...]]] = {
    "n": (0, 3, 5, 9, 17, 33),
    "X": (0, 1, 2, 3, 5, 9),
    "t": (1, 2, 3, 5, 9, 17),
}
"""Terminal of a page's state -> lowest value of each class of values; the last class has no upper end."""
MOST_SITES: Final = 8


class ReplayVisits(NamedTuple):
    """All V visits of a replay in the order of time, with the page's state at each; arrays are ``[V]``."""

    cycle: Ints
    page: Ints
    n: Ints
    X: Ints
    t: Ints
    changed: Bits


class VisitGroup(NamedTuple):
    """Visits of two score functions to one class of pages, such as n from 3 to 4, or one site."""

    name: str
    share: float
    """Share of the first function's visits that go to this class."""
    other_share: float
    rate: float
    """Changes per visit of the first function in this class; nan without visits."""
    other_rate: float


class Difference(NamedTuple):
    """Comparison of the visits of two score functions, on one or several test sets."""

    common: float
    """Share of a cycle's visits that both make, mean over cycles and test sets."""
    alone_rate: float
    """Change rate of visits that the first function makes and the second does not in the same cycle."""
    other_alone_rate: float
    by: dict[str, list[VisitGroup]]
    """Terminal of a page's state (``n``, ``X``, ``t``) -> visits in each of its classes."""
    by_site: list[VisitGroup]
    """The sites that differ most in their share of the visits."""
    X_t: npt.NDArray[np.float64]
    """``[X classes, t classes]``: share of the first function's visits less that of the other's."""


def visits_of(history: ChangeHistory, text: str, crawl: CrawlChoices) -> ReplayVisits:
    """Replay an expression or a named function, and return all its visits.

    Raises HistoryError as `replay`, ExpressionError for another text, ScoreError for a dotted path.
    """
    prepared = prepare_for(history, crawl)
    function = functions.recorded(text).on_clock(crawl.clock)  # of a result file, which is data
    n = np.full(prepared.pages, prepared.warmup)
    X = prepared.changed[: prepared.warmup].sum(axis=0)
    last = np.full(prepared.pages, prepared.warmup)
    rows: list[tuple[npt.NDArray[Any], ...]] = []

    def watch(cycle: int, pages: Ints, changed: Bits) -> None:
        rows.append((np.full(len(pages), cycle), pages, n[pages], X[pages], cycle - last[pages], changed))
        n[pages] += 1
        X[pages] += changed
        last[pages] = cycle

    replay_dense(prepared, function, (), watch, load_policy(crawl.policy or policy_of(function)))
    return ReplayVisits(*(np.concatenate(column) for column in zip(*rows, strict=True)))


def differ(
    histories: Sequence[ChangeHistory],
    texts: Sequence[str],
    others: Sequence[str],
    crawl: CrawlChoices,
) -> Difference:
    """Compare on each of `histories` its function of ``texts`` with its function of ``others``."""
    common, ones, twos, one_alone, other_alone = [], [], [], [], []
    site_counts: dict[str, list[int]] = {}
    for history, text, other in zip(histories, texts, others, strict=True):
        one, two = (visits_of(history, function, crawl) for function in (text, other))
        keys = [visits.cycle * history.pages + visits.page for visits in (one, two)]
        shared, in_first = np.isin(keys[0], keys[1]), np.isin(keys[1], keys[0])
        common.append(float(shared.mean()))
        one_alone.append(one.changed[~shared])
        other_alone.append(two.changed[~in_first])
        ones.append(one)
        twos.append(two)
        for side, visits in enumerate((one, two)):
            visited_sites, inverse = np.unique(history.site[visits.page], return_inverse=True)
            counts = np.bincount(inverse), np.bincount(inverse, weights=visits.changed)
            for number, visited, changed in zip(visited_sites.tolist(), *counts, strict=True):
                name = f"site {number}" if history.site_names is None else history.site_names[number]
                entry = site_counts.setdefault(name, [0, 0, 0, 0])
                entry[side] += int(visited)
                entry[2 + side] += int(changed)
    one = ReplayVisits(*(np.concatenate(column) for column in zip(*ones, strict=True)))
    two = ReplayVisits(*(np.concatenate(column) for column in zip(*twos, strict=True)))
    return Difference(
        float(np.mean(common)),
        _rate(np.concatenate(one_alone)),
        _rate(np.concatenate(other_alone)),
        {name: _groups(name, one, two) for name in CLASSES},
        _sites(site_counts, len(one.page), len(two.page)),
        _table(one) - _table(two),
    )


def class_names(name: str) -> list[str]:
    """Names of a terminal's classes of values in `CLASSES`: ``0``, ``1``, ``2``, ``3–4``, ``5–8``, ``9+``."""
    bounds = CLASSES[name]
    texts = [f"{low}" if high - low == 1 else f"{low}–{high - 1}" for low, high in itertools.pairwise(bounds)]
    return [*texts, f"{bounds[-1]}+"]


def _classes(name: str, values: Ints) -> Ints:
    return np.searchsorted(CLASSES[name], values, side="right") - 1


def _groups(name: str, one: ReplayVisits, two: ReplayVisits) -> list[VisitGroup]:
    groups = []
    of_one, of_two = (_classes(name, getattr(visits, name)) for visits in (one, two))
    for index, text in enumerate(class_names(name)):
        in_one, in_two = of_one == index, of_two == index
        if in_one.any() or in_two.any():
            rates = _rate(one.changed[in_one]), _rate(two.changed[in_two])
            groups.append(VisitGroup(text, float(in_one.mean()), float(in_two.mean()), *rates))
    return groups


def _sites(counts: dict[str, list[int]], visits: int, other_visits: int) -> list[VisitGroup]:
    groups = [
        VisitGroup(
            name,
            v / visits,
            w / other_visits,
            changed / v if v else float("nan"),
            other / w if w else float("nan"),
        )
        for name, (v, w, changed, other) in counts.items()
    ]
    return sorted(groups, key=lambda group: -abs(group.share - group.other_share))[:MOST_SITES]


def _table(visits: ReplayVisits) -> npt.NDArray[np.float64]:
    table = np.zeros((len(CLASSES["X"]), len(CLASSES["t"])))
    np.add.at(table, (_classes("X", visits.X), _classes("t", visits.t)), 1.0 / len(visits.page))
    return table


def _rate(changed: Bits) -> float:
    return float(changed.mean()) if len(changed) else float("nan")
