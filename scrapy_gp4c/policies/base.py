"""Contract of a policy, and the one driver that asks it, in a crawl and in a replay.

A policy decides which pages a cycle visits, in one or several rounds. Before each it sees the candidates
(pages it may choose) and the cycle's visits so far. Its plan is a pure function of its settings, the round
and that evidence, so that a resumed crawl and a replay come to the same plan. See docs/code/policies.md, "The
policy contract".
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Bools, Floats
from scrapy_gp4c.errors import Gp4cError, PolicyError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.groupings import Grouping, Name
from scrapy_gp4c.page_state.outcomes import CHANGED, RANKED
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import TiesOf

Pages = npt.NDArray[np.uint32]


def budget_pages(budget: int | float, pages: int) -> int:
    """Return the visits per cycle: floor(budget * pages + 1e-9) for a share, min(budget, pages) for a count.

    A float is a share, an int a count. A share above 0 is at least one visit, if there is a page: else 5% of
    15 pages would never visit any.
    """
    if isinstance(budget, int):
        return min(budget, pages)
    # 29% of 100 pages are 29, although 0.29 * 100 is 28.999999999999996 in floating point.
    return min(pages, max(math.floor(budget * pages + 1e-9), int(budget > 0.0)))


def read_budget(text: str) -> int | float:
    """Read a budget: ``50`` is a count of pages (int), ``0.05`` or ``5%`` a share (float).

    Raises ValueError for a text that is no number; the caller checks the range.
    """
    if text.rstrip().endswith("%"):
        return float(text.rstrip()[:-1]) / 100
    try:
        return int(text)
    except ValueError:
        return float(text)


class PolicySettings(NamedTuple):
    """Arguments with which a policy is made, besides its parameters."""

    score_function: ScoreFunction
    seed: int
    """All random choices follow from the seed, the cycle and the page."""


class Round(NamedTuple):
    """A round of a cycle that is to be planned."""

    cycle: int
    number: int
    """Number of the round in its cycle, from 0."""
    remaining: int
    """Visits that the cycle's budget has left."""


class Block(NamedTuple):
    """Candidates of a round with their columns, ids ascending; from `Evidence.rows`, the pages asked for."""

    pages: Pages
    """``[rows]``."""
    state: Mapping[str, npt.NDArray[Any]]
    """Columns by name, each ``[rows]``, computed when read: `STATE` of `scrapy_gp4c.scoring.terminals`, and
    its `ROUND`, which follow from the round."""
    ties_of: TiesOf
    """Function from rows to tie-breaking numbers: of pages of equal score, the smaller number comes first."""


class CycleVisits(NamedTuple):
    """Finished visits of the open cycle, in order of time."""

    pages: Pages
    """``[visits]``."""
    outcomes: npt.NDArray[np.uint8]
    """``[visits]``: positions in `scrapy_gp4c.page_state.outcomes.OUTCOMES`."""
    kinds: npt.NDArray[np.uint8]
    """``[visits]``: why each was made, positions in `scrapy_gp4c.page_state.outcomes.KINDS`."""

    @classmethod
    def of(cls, visits: npt.NDArray[Any]) -> "CycleVisits":
        """Make an instance from visits of dtype `scrapy_gp4c.page_state.outcomes.VISIT`."""
        page, outcome, kind = (np.ascontiguousarray(visits[name]) for name in ("page", "outcome", "kind"))
        return cls(page, outcome, kind)

    def first(self, count: int) -> "CycleVisits":
        """Return the first `count` visits."""
        return CycleVisits(self.pages[:count], self.outcomes[:count], self.kinds[:count])

    @property
    def changed(self) -> Pages:
        """Pages that a visit found changed, in order of the visits."""
        return np.asarray(self.pages[self.outcomes == CHANGED])


NO_VISITS_YET = CycleVisits(np.empty(0, np.uint32), np.empty(0, np.uint8), np.empty(0, np.uint8))
"""No visits: those of a cycle before its first one."""


class Planned(NamedTuple):
    """Pages that the earlier rounds of a cycle have planned, in the order of the plan."""

    pages: Pages
    """``[rows]``."""
    kinds: npt.NDArray[np.uint8]
    """``[rows]``: positions in `scrapy_gp4c.page_state.outcomes.KINDS`."""

    @classmethod
    def of(cls, rows: npt.NDArray[Any]) -> "Planned":
        """Make an instance from rows of a plan or log, of any dtype with ``page`` and ``kind``."""
        return cls(*(np.ascontiguousarray(rows[name]) for name in ("page", "kind")))


UNPLANNED = Planned(NO_VISITS_YET.pages, NO_VISITS_YET.kinds)
"""Plan of a cycle before its first round."""


class Evidence(Protocol):
    """What a policy may read when it plans a round: candidates, columns, visits of the cycle, groups."""

    def candidates(self) -> Iterator[Block]:
        """Yield the pages that may be chosen, in blocks, without those planned or visited in this cycle."""

    def may_visit(self, pages: Pages) -> Bools:
        """Whether each page is a candidate: ``[rows]``."""

    def rows(self, pages: Pages) -> Block:
        """Return the columns of some known pages, candidates or not, in the order of `pages`."""

    def visits(self) -> CycleVisits:
        """Return the cycle's finished visits."""

    def planned(self) -> Planned:
        """Return the pages that the policy has chosen in the cycle's earlier rounds."""

    def grouping(self, name: Name) -> Grouping:
        """Return the division of all pages into sites, clusters, ...; raises PolicyError if it is unknown."""

    def popularity(self) -> npt.NDArray[np.uint8]:
        """Return each page's PageRank, scaled to 0..10, ``[P]``; raises PolicyError if links are unknown."""


Scorer = Callable[[Block], Floats]
"""Function from a block to the scores of its pages, finite, ``[rows]``."""


class Cut(NamedTuple):
    """Score and tie-breaking number of the last page that a ranking chose, the threshold to be chosen."""

    score: float
    tie: int


class Selection(NamedTuple):
    """Pages that a policy chooses in a round."""

    pages: Pages
    """``[rows]``, best first."""
    scores: Floats
    """``[rows]``; NaN where a page was not chosen by a score."""
    cut: Cut | None
    """None: no score divides the selection from the other candidates; then the control group estimates
    nothing about these."""
    kinds: npt.NDArray[np.uint8] | None = None
    """``[rows]``: why each is visited, positions in `scrapy_gp4c.page_state.outcomes.KINDS`; None: all are
    of kind ``ranked``."""
    site_cuts: Mapping[int, Cut] = {}
    """Number of a site -> cut of its own, for sites that were limited to a share of the budget."""

    def kinds_of_pages(self) -> npt.NDArray[np.uint8]:
        """Kind of visit of each page, ``[rows]``; ``ranked`` where `kinds` is None."""
        return np.full(len(self.pages), RANKED, np.uint8) if self.kinds is None else self.kinds


NOTHING_CHOSEN = Selection(np.empty(0, np.uint32), np.empty(0), None)


def unscored(pages: Pages, kinds: npt.NDArray[np.uint8] | None = None) -> Selection:
    """Make a selection of pages that were not chosen by a score: all scores NaN, no cut."""
    return Selection(pages, np.full(len(pages), np.nan), None, kinds)


class Ranking(Protocol):
    """Optional methods of `Evidence` that has all pages in memory, and ranks them faster than by blocks."""

    @property
    def candidate_count(self) -> int:
        """Number of candidates."""

    def best(self, scores_of: Scorer, k: int) -> Selection:
        """Return the k candidates with the highest scores; ties by `Block.ties_of`, then by page."""

    def trusts(self, selection: Selection) -> bool:
        """Whether `selection` is the object that `best` returned last, which `choose` need not check."""


@runtime_checkable
class Sampled(Protocol):
    """Evidence of many pages that can give a sample of its candidates, to tell what scores are high."""

    def sample(self) -> tuple[Block, float] | None:
        """Return some candidates from all over, and their share of all; None: reading all is as fast."""


def ranking_of(evidence: Evidence) -> Ranking | None:
    """Return the evidence if it has the methods of `Ranking`, else None."""
    # Not isinstance, which looks at all methods of the protocol in every round.
    return cast(Ranking, evidence) if hasattr(evidence, "best") else None


class Policy(Protocol):
    """Protocol of a policy, which decides what pages a cycle visits within its budget.

    New pages, pages in warm-up and the control group are planned without it.
    """

    @property
    def name(self) -> str:
        """Name in messages."""

    @property
    def rounds(self) -> int | None:
        """Rounds of a cycle, at least 1; None: until the budget is spent, or no page is chosen or awaited."""

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Choose at most ``round.remaining`` of the candidates."""


def choose(policy: Policy, round: Round, evidence: Evidence) -> Selection:
    """Ask a policy for the plan of one round, and check it against the contract.

    Raises PolicyError, which names policy and breach, for more pages than the budget has left, a page that is
    no candidate, a page twice, or scores that do not belong to the pages.
    """
    try:
        selection = policy.plan(round, evidence)
    except Gp4cError:
        raise
    except Exception as error:
        raise PolicyError(
            f"the policy {policy.name!r} failed in round {round.number} of cycle {round.cycle}: {error!r}"
        ) from error
    breach = _breach(selection, round, evidence)
    if breach is not None:
        raise PolicyError(
            f"the policy {policy.name!r} broke its contract in round {round.number} of cycle {round.cycle}: "
            f"{breach}. Correct the policy, or set GP4C_POLICY to another"
        )
    return selection


def rounds_of(policy: Policy) -> Iterable[int]:
    """Return the numbers 0, 1, ... of the rounds of a cycle, without end where ``policy.rounds`` is None."""
    return count() if policy.rounds is None else range(policy.rounds)


def _breach(selection: Selection, round: Round, evidence: Evidence) -> str | None:
    pages = selection.pages
    ranking = ranking_of(evidence)
    if ranking is not None and len(pages) <= round.remaining and ranking.trusts(selection):
        return None
    for column, what in ((selection.scores, "score"), (selection.kinds, "kind")):
        if column is not None and len(column) != len(pages):
            return f"expected one {what} for each of {counted(len(pages), 'page')}; found {len(column):,}"
    if len(pages) > round.remaining:
        remaining = counted(round.remaining, "page")
        return f"expected at most {remaining}, which the budget has left; found {len(pages):,}"
    strangers = pages[~evidence.may_visit(pages)]
    if len(strangers):
        return f"expected candidates only; found page {strangers[0]}, which is none"
    ordered = np.sort(pages)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        return f"expected every page once; found page {twice[0]} twice"
    return None
