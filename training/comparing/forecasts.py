"""Whether what refreshes gained tells what they will gain: Figure 3 of Pandey & Olston 2005, section 6.2."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from scrapy_gp4c.scoring import refresh_value
from training.comparing.refreshing_trial import Trial, Updates, updates_of
from training.replaying.foreseen import mean_by_page

Floats = npt.NDArray[np.float64]
LAST: Final = 4


class Forecast(NamedTuple):
    """How well one way to look back forecasts the second half."""

    name: str
    spearman: float
    """Rank correlation over the pages that gained anything in either half."""
    pages: int


class Halves(NamedTuple):
    """Gain per cycle of every page in both halves: ``[P]`` each."""

    earlier: Floats
    later: Floats
    forecasts: list[Forecast]


def halves(trial: Trial) -> Halves:
    """Mean gain per cycle over the updates of each half, and forecasts of the later one from the earlier."""
    middle = trial.history.cycles // 2
    parts = updates_of(trial, 1, middle), updates_of(trial, middle + 1, trial.history.cycles)
    earlier, later = (mean_by_page(part.page, part.gained / part.gap, trial.pages) for part in parts)
    looks = {"all visits": earlier, **_looks_back(parts[0], trial.pages)}
    rows = []
    for name, forecast in looks.items():
        some = (forecast > 0.0) | (later > 0.0)
        value = spearmanr(forecast[some], later[some]).statistic if np.count_nonzero(some) > 2 else np.nan
        rows.append(Forecast(name, float(value), int(np.count_nonzero(some))))
    return Halves(earlier, later, rows)


def _looks_back(updates: Updates, pages: int) -> dict[str, Floats]:
    """The last visits, decayed ones and the last one alone, by the terminals' own state."""
    state = {name: np.zeros(pages, dtype) for name, dtype in refresh_value.COLUMNS.items()}
    count = np.bincount(updates.page, minlength=pages)
    nth = np.arange(len(updates.page)) - np.repeat(np.cumsum(count) - count, count)
    for turn in range(int(count.max(initial=0))):
        rows = np.flatnonzero(nth == turn)
        seen = {name: values[updates.page[rows]] for name, values in state.items()}
        refresh_value.observe(seen, updates.gained[rows], updates.gap[rows])
        for name, values in seen.items():
            state[name][updates.page[rows]] = values
    recent = nth >= count[updates.page] - LAST
    per_cycle = updates.gained / updates.gap
    told = {name: refresh_value.FORMULAS[name][1](state, 0) for name in ("dq_decay", "dq_last")}
    return {
        f"last {LAST}": mean_by_page(updates.page[recent], per_cycle[recent], pages),
        "decayed": told["dq_decay"],
        "last": told["dq_last"],
    }
