"""Terminals: the named page features that a score function may use, each from O(1) state per page.

A page's observed history is the sequence of its judged visits (those that showed whether it had changed)
i = 1..n at cycles c_1 < ... < c_n with outcomes I_i in {0, 1}. `STATE` lists the columns that summarise it;
`observe` adds one visit to them; `TERMINALS` computes every terminal from them at planning cycle c. A store
keeps these columns per page, a replay per page or per group of pages in equal state.

Two clocks weigh the outcomes. ``visits`` (the papers: Santos 2013, thesis 4.1; Tan & Mitra 2010) numbers
them by visit. ``cycles`` (the authors' published program) sums over all cycles since the page's first
fetch, those without a visit counting as unchanged.
"""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Final, Literal, get_args

import numpy as np

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.scoring import discovery, first_visits, hints, measured, rates, refresh_value, sizes, weights
from scrapy_gp4c.scoring.expression import Formula, Terminal, of_column, of_columns

Clock = Literal["visits", "cycles"]
CLOCKS: Final[tuple[Clock, ...]] = get_args(Clock)

STATE: Final[dict[str, str]] = {
    "n": "<i4",  # judged visits
    "X": "<i4",  # changes found
    "last": "u1",  # outcome of the last judged visit, 0 or 1
    "first_cycle": "<i4",  # cycle of the first fetch: judged cycles are numbered from the next on
    "last_cycle": "<i4",  # cycle of the last visit that brought a copy (c_n)
    "A": "<f8",  # sum of i * I_i over visits
    "G": "<f8",  # sum of 2**(i - n) * I_i over visits
    "A_cycles": "<f8",  # sum of (c_i - first_cycle) * I_i
    "G_cycles": "<f8",  # sum of 2**(c_i - c_n) * I_i
    "E": "<f8",  # changes that the visits stand for, see `scrapy_gp4c.scoring.rates`
    "T": "<i4",  # cycles that the judged visits looked back on
    "found_cycle": "<i4",  # cycle of the last visit that found a change; of the first fetch if none did
}
"""Column name -> little-endian dtype. A page without a judged visit has zeros but for its cycles."""
ROUND: Final = (
    "draw",
    "spent",
    "near",
    "near_site",
    "near_dir",
    "site_rate",
    "surprise_site",
    "surprise_dir",
    "site_now",
    "directory_now",
    "cluster_now",
    "cluster_recent",
    "hint_listed",
    "hint_span",
    "age_trust",
    "size_lift",
)
"""Columns that are computed whenever a round of a cycle is planned: a draw per page and cycle, the share of
the budget that is used, shares of changes on related pages (`scrapy_gp4c.page_state.related`) and of pages of
a size, and what claims of sites add."""


def observe(state: MutableMapping[str, Array], changed: Array, cycle: int) -> None:
    """Add one judged visit at `cycle` to every row, in place; the rows are of the visited pages only.

    ``state``: the columns of `STATE` (or those of them that the caller needs), each ``[P]``; ``changed``:
    whether the visit found a change, bool ``[P]``. Formulas: docs/code/terminals.md, "Page state and
    terminals". G is halved before the outcome is added, so that the weights 2**(i - 1) of GAD never overflow.
    """
    if "n" in state:
        state["n"] += 1
    if "X" in state:
        state["X"] += changed
    if "last" in state:
        state["last"][:] = changed
    if "A" in state:
        state["A"] += state["n"] * changed
    if "G" in state:
        state["G"] *= 0.5
        state["G"] += changed
    if "A_cycles" in state:
        state["A_cycles"] += (cycle - state["first_cycle"]) * changed
    if "G_cycles" in state:
        state["G_cycles"] *= np.exp2((state["last_cycle"] - cycle).astype(np.float64))
        state["G_cycles"] += changed
    if "E" in state:
        gap_cycles = cycle - state["last_cycle"]
        # Only changed pages: it costs an exponential each.
        rows = np.flatnonzero(changed)
        known = rates.rate(state["E"][rows], state["T"][rows])
        state["E"][rows] += rates.censored(known, gap_cycles[rows])
        state["T"] += gap_cycles
    if "found_cycle" in state:
        np.copyto(state["found_cycle"], cycle, where=np.asarray(changed, np.bool_))
    if "last_cycle" in state:
        state["last_cycle"][:] = cycle


def _t(s: Mapping[str, Array], cycle: int) -> Array:
    return cycle - s["last_cycle"]


def _cg(s: Mapping[str, Array], cycle: int) -> Array:
    return np.asarray(-np.log((s["n"] - s["X"] + 0.5) / (s["n"] + 0.5)))


def _elapsed(s: Mapping[str, Array], cycle: int) -> Array:
    return np.asarray(cycle - 1 - s["first_cycle"], dtype=np.float64)


def _ratio(numerator: Array, denominator: Array) -> Array:
    out = np.zeros(len(numerator))  # no visit or no cycle yet
    return np.asarray(np.divide(numerator, denominator, out=out, where=denominator > 0))


def _nad_rate(s: Mapping[str, Array], cycle: int) -> Array:
    return _ratio(s["X"], s["n"])


def _sad_rate(s: Mapping[str, Array], cycle: int) -> Array:
    return s["last"].astype(np.float64)


def _aad_rate(s: Mapping[str, Array], cycle: int) -> Array:
    n = s["n"].astype(np.float64)
    return _ratio(s["A"], n * (n + 1.0) * 0.5)


def _gad_rate(s: Mapping[str, Array], cycle: int) -> Array:
    return _ratio(0.5 * s["G"], 1.0 - np.exp2(-s["n"].astype(np.float64)))


def _nad_rate_cycles(s: Mapping[str, Array], cycle: int) -> Array:
    return _ratio(s["X"], _elapsed(s, cycle))


def _sad_rate_cycles(s: Mapping[str, Array], cycle: int) -> Array:
    return np.asarray(s["last"] * (s["last_cycle"] == cycle - 1), dtype=np.float64)


def _aad_rate_cycles(s: Mapping[str, Array], cycle: int) -> Array:
    m = _elapsed(s, cycle)
    return _ratio(s["A_cycles"], m * (m + 1.0) * 0.5)


def _gad_rate_cycles(s: Mapping[str, Array], cycle: int) -> Array:
    weight = np.exp2((s["last_cycle"] - cycle).astype(np.float64))
    return _ratio(weight * s["G_cycles"], 1.0 - np.exp2(-_elapsed(s, cycle)))


def _probability(rate: Formula) -> Formula:
    """Turn a formula of a Poisson rate into one of the probability of a change since the last visit."""
    return lambda s, cycle: rates.probability(rate(s, cycle), _t(s, cycle))


def _rate(s: Mapping[str, Array], cycle: int) -> Array:
    return rates.rate(s["E"], s["T"])


def _rate_site(s: Mapping[str, Array], cycle: int) -> Array:
    return rates.rate_with_site(s["E"], s["T"], s["site_rate"])


change_probability: Final = _probability(_rate)
"""Function of (state, cycle): probability of a change since the last visit, by E, T, last_cycle: ``[P]``."""


def _random(s: Mapping[str, Array], cycle: int) -> Array:
    return np.asarray(s["draw"] * 2.0**-64)


_UNWEIGHED: Final = {
    "n": Terminal(
        ("n",), of_column("n"), "visits of the page so far whose outcome (changed or not) is known"
    ),
    "X": Terminal(("X",), of_column("X"), "changes that these visits found"),
    "t": Terminal(("last_cycle",), _t, "cycles since the last visit"),
    "cg": Terminal(("n", "X"), _cg, "change rate of Cho and Garcia-Molina: −ln((n − X + 0.5) / (n + 0.5))"),
}
PREDICTED: Final = ("E", "T", "last_cycle")
"""Columns from which the probability of a change follows, and so how far a change is a surprise."""
_BEYOND: Final = {
    "rate": Terminal(
        ("E", "T"), _rate, "changes per cycle by the page's own visits, λ = (E + 0.1) / (T + 1)"
    ),
    "rate_site": Terminal(
        ("E", "T", "site_rate"),
        _rate_site,
        "the same, beginning with the rate of its site: (E + 3g) / (T + 3)",
    ),
    "p": Terminal(
        PREDICTED,
        change_probability,
        "1 − exp(−λt): probability of a change since the last visit, by its rate",
    ),
    **of_columns(
        {
            "near": "share of the recent visits to its directory that found changes, shrunk to site and "
            "crawl",
            "near_site": "share of the recent visits to its site that found changes",
            "near_dir": "share of the recent visits to its directory that found changes",
        }
    ),
    "surprise_site": Terminal(
        ("surprise_site", *PREDICTED),
        of_column("surprise_site"),
        "changes found on its site since its last visit, by those expected",
    ),
    "surprise_dir": Terminal(
        ("surprise_dir", *PREDICTED),
        of_column("surprise_dir"),
        "changes found in its directory since its last visit, by those expected",
    ),
    "found_t": Terminal(
        ("found_cycle",),
        lambda s, cycle: cycle - s["found_cycle"],
        "cycles since a visit last found a change",
    ),
    "spent": Terminal(("spent",), of_column("spent"), "share of the cycle's budget used before this round"),
}
"""Terminals that no paper has, the same with both clocks."""
CLUSTERED: Final = ("cluster_now", "cluster_recent")
"""Terminals that need clusters of the pages (``scrapy gp4c cluster``)."""
_SAMPLED: Final = of_columns(
    {
        "site_now": "share of this cycle's visits to its site that found changes, begun with the recent "
        "share",
        "directory_now": "share of this cycle's visits to its directory that found changes, begun likewise",
        "cluster_now": "share of this cycle's visits to its cluster that found changes, begun likewise",
        "cluster_recent": "share of the visits to its cluster in the last cycles that found changes",
    }
)
"""Terminals of the visits to groups in the cycle that is planned, for policies of several rounds."""
_MEASURED: Final = refresh_value.TERMINALS | measured.TERMINALS
_GROWN: Final = discovery.TERMINALS | hints.TERMINALS | sizes.TERMINALS
UNREPLAYED: Final = (*discovery.TERMINALS, *measured.LINKED, *first_visits.TERMINALS)
"""Terminals that need a crawl, or a history that records how pages were found, not changes alone."""
CLAIMED: Final = tuple(hints.TERMINALS)
"""Terminals that read claims of sites; without claims `hints.UNCLAIMED` replaces them."""


_PROBABILITIES: Final = {
    "nad": "1 − exp(−λt) with λ = X / n (Tan and Mitra, nonadaptive)",
    "sad": "1 − exp(−λt) with λ = outcome of the last visit (shortsighted adaptive)",
    "aad": "1 − exp(−λt), recent outcomes weighing more, arithmetically (Tan and Mitra)",
    "gad": "1 − exp(−λt), recent outcomes weighing more, geometrically (Tan and Mitra)",
}
"""Terminal -> meaning, with clock ``visits``; the rate λ of ``nad`` is terminal ``nad_rate``, and so on."""
_RATES: Final[dict[Clock, dict[str, Terminal]]] = {
    "visits": {
        "nad": Terminal(("n", "X"), _nad_rate, "share of visits that found a change"),
        "sad": Terminal(("last",), _sad_rate, "1 if the last visit found a change"),
        "aad": Terminal(("n", "A"), _aad_rate, "changes, weights growing arithmetically"),
        "gad": Terminal(("n", "G"), _gad_rate, "changes, weights growing geometrically"),
    },
    "cycles": {
        "nad": Terminal(("X", "first_cycle"), _nad_rate_cycles, "changes found per cycle"),
        "sad": Terminal(("last", "last_cycle"), _sad_rate_cycles, "1 if a change was found last cycle"),
        "aad": Terminal(("A_cycles", "first_cycle"), _aad_rate_cycles, "arithmetic weights by cycle"),
        "gad": Terminal(
            ("G_cycles", "last_cycle", "first_cycle"), _gad_rate_cycles, "geometric weights by cycle"
        ),
    },
}
"""Clock -> terminal of `_PROBABILITIES` -> its rate λ."""


def _table(clock: Clock) -> dict[str, Terminal]:
    table = dict(_UNWEIGHED)
    for name, (columns, formula, meaning) in _RATES[clock].items():
        table[f"{name}_rate"] = Terminal(columns, formula, f"{name.upper()} rate: {meaning}")
        known = tuple(dict.fromkeys((*columns, "last_cycle")))
        table[name] = Terminal(known, _probability(formula), _PROBABILITIES[name])
    table["random"] = Terminal(("draw",), _random, "uniform in [0, 1), anew for every page and cycle")
    table |= _BEYOND | _SAMPLED | _MEASURED | measured.LINKED | _GROWN
    return table | first_visits.TERMINALS | weights.TERMINALS


TERMINALS: Final[dict[Clock, dict[str, Terminal]]] = {clock: _table(clock) for clock in CLOCKS}
"""Clock -> terminal name -> terminal. Both clocks have the same names."""
NAMES: Final = tuple(TERMINALS["visits"])
ALWAYS_KNOWN: Final = tuple(
    name for name in NAMES if name not in (*_MEASURED, *measured.LINKED, *CLUSTERED, *first_visits.TERMINALS)
)
"""Terminals that every crawl and history has; others need measurements, a query log, links or clusters."""
BASIC: Final = ("n", "X", "t")
"""The terminals of Santos et al. 2013."""
PAPERS: Final = (*BASIC, "cg", "nad", "sad", "aad", "gad")
"""The terminals of Santos et al. 2014, section 4.2.1."""
RELATED: Final = (*PAPERS, *_BEYOND)
"""Terminals of the papers, and those of related pages and of the cycle's budget spent so far."""
PAPER_SETS: Final[dict[str, tuple[str, ...]]] = {"basic": BASIC, "all": PAPERS}
"""Name -> set of terminals that the papers learn with."""
EVERY: Final = (*RELATED, *sizes.TERMINALS, *measured.TERMINALS, *CLAIMED)
"""`RELATED` and the terminals of page sizes, download times, fingerprint distances, ages and claims."""
SETS: Final = {"basic": BASIC, "papers": PAPERS, "related": RELATED, "all": EVERY}
"""Name -> set of terminals to learn with."""


def compute(
    names: Iterable[str], state: Mapping[str, Array], cycle: int, clock: Clock = "visits"
) -> dict[str, Array]:
    """Compute the named terminals, each ``[P]``, for planning cycle `cycle`.

    ``state``: all columns that they read (`columns_of`), those of `ROUND` included, such as ``draw``, uint64
    ``[P]`` (see `scrapy_gp4c.scoring.ranking.draws`).
    """
    table = TERMINALS[clock]
    return {name: table[name].formula(state, cycle) for name in names}


def columns_of(names: Iterable[str], clock: Clock = "visits") -> tuple[str, ...]:
    """Return the names of the columns that the named terminals read, without repetition."""
    table = TERMINALS[clock]
    return tuple(dict.fromkeys(column for name in names for column in table[name].columns))


def new_state(pages: int) -> dict[str, Array]:
    """Return all columns of `STATE` for `pages` pages that were first fetched in cycle 0 and not since."""
    return {name: np.zeros(pages, dtype) for name, dtype in STATE.items()}
