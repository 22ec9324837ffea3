"""What a policy is, and the one driver that asks it, in a crawl and in a replay.

A policy decides which pages a cycle visits, in one or several rounds: before each, it sees the candidates and
what the cycle has found so far. Its plan is a pure function of its settings, the round and that evidence, so
that a killed crawl and a replay come to the same. docs/architecture.md, "The policy contract", has the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import Gp4cError, PolicyError
from scrapy_gp4c.page_state.groupings import Grouping, Name
from scrapy_gp4c.page_state.outcomes import CHANGED, RANKED
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import TiesOf

Pages = npt.NDArray[np.uint32]


class PolicySettings(NamedTuple):
    """What a policy is made from."""

    score_function: ScoreFunction
    seed: int
    """All random choices follow from it, the cycle and the page."""


class Round(NamedTuple):
    """What is to be planned."""

    cycle: int
    number: int
    """From 0."""
    remaining: int
    """Visits that the cycle's budget has left."""


class Block(NamedTuple):
    """Some of the pages that a round may choose, in ascending order of their ids."""

    pages: Pages
    """``[rows]``."""
    state: Mapping[str, npt.NDArray[Any]]
    """Columns by name, each ``[rows]``, made when asked for: those of `scrapy_gp4c.scoring.terminals.STATE`,
    and what the round adds, `scrapy_gp4c.scoring.terminals.ROUND`."""
    ties_of: TiesOf
    """Of pages of equal score, the one with the smaller number comes first."""


class Found(NamedTuple):
    """Visits of this cycle that are over, in order of time."""

    pages: Pages
    """``[visits]``."""
    outcomes: npt.NDArray[np.uint8]
    """``[visits]``: positions in `scrapy_gp4c.page_state.outcomes.OUTCOMES`."""
    kinds: npt.NDArray[np.uint8]
    """``[visits]``: why each was made, positions in `scrapy_gp4c.page_state.outcomes.KINDS`."""

    @classmethod
    def of(cls, visits: npt.NDArray[Any]) -> Found:
        """Those of a log, dtype `scrapy_gp4c.page_state.outcomes.VISIT`."""
        page, outcome, kind = (np.ascontiguousarray(visits[name]) for name in ("page", "outcome", "kind"))
        return cls(page, outcome, kind)

    def first(self, visits: int) -> Found:
        """The first so many."""
        return Found(self.pages[:visits], self.outcomes[:visits], self.kinds[:visits])

    @property
    def changed(self) -> Pages:
        """Pages that were found changed."""
        return np.asarray(self.pages[self.outcomes == CHANGED])


class Planned(NamedTuple):
    """What the rounds before have chosen, the first first."""

    pages: Pages
    """``[rows]``."""
    kinds: npt.NDArray[np.uint8]
    """``[rows]``: positions in `scrapy_gp4c.page_state.outcomes.KINDS`."""

    @classmethod
    def of(cls, rows: npt.NDArray[Any]) -> Planned:
        """Those of a plan or log, of any dtype with ``page`` and ``kind``."""
        return cls(*(np.ascontiguousarray(rows[name]) for name in ("page", "kind")))


class Evidence(Protocol):
    """What a policy may look at."""

    def candidates(self) -> Iterator[Block]:
        """Yield the pages that may be chosen: none that was planned or visited in this cycle."""

    def may_visit(self, pages: Pages) -> npt.NDArray[np.bool_]:
        """Tell which of some pages are candidates: ``[rows]``."""

    def rows(self, pages: Pages) -> Block:
        """Return the columns of some known pages, candidates or not, in the order given."""

    def visits(self) -> Found:
        """Return what the cycle has found so far."""

    def planned(self) -> Planned:
        """Return what the policy's rounds before have chosen in this cycle."""

    def grouping(self, name: Name) -> Grouping:
        """Return how all pages fall into groups. Raises PolicyError where nobody knows."""

    def popularity(self) -> npt.NDArray[np.uint8]:
        """Return how popular each page is, from 0 to 10, ``[P]``. Raises PolicyError where nobody knows."""


Scorer = Callable[[Block], npt.NDArray[np.float64]]
"""Scores of the pages of a block, finite, ``[rows]``."""


class Cut(NamedTuple):
    """Where a ranking was cut off: score and tie of the last page chosen."""

    score: float
    tie: int


class Chosen(NamedTuple):
    """A round's plan."""

    pages: Pages
    """``[rows]``, best first."""
    scores: npt.NDArray[np.float64]
    """``[rows]``; NaN where a page was not chosen by a score."""
    cut: Cut | None
    """None: no score divides the chosen from the others, so that the panel cannot speak for the others."""
    kinds: npt.NDArray[np.uint8] | None = None
    """``[rows]``: why each is visited, positions in `scrapy_gp4c.page_state.outcomes.KINDS`; None: all are
    ranked."""

    def first(self, rows: int) -> Chosen:
        """The first so many, with the same cut."""
        kinds = None if self.kinds is None else self.kinds[:rows]
        return Chosen(self.pages[:rows], self.scores[:rows], self.cut, kinds)

    def kinds_of_pages(self) -> npt.NDArray[np.uint8]:
        """``[rows]``, whatever `kinds` is."""
        return np.full(len(self.pages), RANKED, np.uint8) if self.kinds is None else self.kinds


class Ranking(Protocol):
    """Evidence that has all pages at hand, and ranks them faster than a pass over its blocks would."""

    def best(self, scores_of: Scorer, k: int) -> Chosen:
        """The k candidates with the highest scores, best first; ties by `Block.ties_of`, then by page."""

    def vouches_for(self, chosen: Chosen) -> bool:
        """Whether this is what `best` has just told, its pages as they were: candidates, each once."""


def ranking_of(evidence: Evidence) -> Ranking | None:
    """The evidence, if it is a `Ranking`; asked in every round, so without a look at all methods."""
    return cast(Ranking, evidence) if hasattr(evidence, "best") else None


class Policy(Protocol):
    """What decides which pages a cycle visits within its budget.

    New pages, those in warm-up and the panel are no policy's affair.
    """

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def rounds(self) -> int | None:
        """Rounds of a cycle, at least 1; None: until the budget is spent, or all is known and none chosen."""

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        """Choose at most ``round.remaining`` of the candidates."""


NOBODY = Chosen(np.empty(0, np.uint32), np.empty(0), None)
"""A plan without pages."""


def choose(policy: Policy, round: Round, evidence: Evidence) -> Chosen:
    """Ask a policy for the plan of one round, and hold it to the contract.

    Raises PolicyError, which names policy and breach, for more pages than the budget has left, a page that is
    no candidate, a page twice, or scores that do not belong to the pages.
    """
    try:
        chosen = policy.plan(round, evidence)
    except Gp4cError:
        raise
    except Exception as error:
        raise PolicyError(
            f"the policy {policy.name!r} failed in round {round.number} of cycle {round.cycle}: {error!r}"
        ) from error
    _refuse(policy, round, _breach(chosen, round, evidence))
    return chosen


def rounds_of(policy: Policy) -> Iterable[int]:
    """Numbers of the rounds that a policy may have in a cycle."""
    return count() if policy.rounds is None else range(policy.rounds)


def _breach(chosen: Chosen, round: Round, evidence: Evidence) -> str | None:
    pages = chosen.pages
    ranking = ranking_of(evidence)
    if ranking is not None and len(pages) <= round.remaining and ranking.vouches_for(chosen):
        return None
    for column, what in ((chosen.scores, "score"), (chosen.kinds, "kind")):
        if column is not None and len(column) != len(pages):
            return f"expected one {what} for each of {len(pages):,} pages; found {len(column):,}"
    if len(pages) > round.remaining:
        return f"expected at most {round.remaining:,} pages, which the budget has left; found {len(pages):,}"
    if not len(pages):
        return None
    strangers = pages[~evidence.may_visit(pages)]
    if len(strangers):
        return f"expected candidates only; found page {strangers[0]}, which is none"
    chosen_pages = np.zeros(int(pages.max()) + 1, np.bool_)  # sorting takes four times as long
    chosen_pages[pages] = True
    if np.count_nonzero(chosen_pages) < len(pages):
        page = np.argmax(np.bincount(pages) > 1)
        return f"expected every page once; found page {page} twice"
    return None


def _refuse(policy: Policy, round: Round, breach: str | None) -> None:
    if breach is not None:
        raise PolicyError(
            f"the policy {policy.name!r} broke its contract in round {round.number} of cycle {round.cycle}: "
            f"{breach}. Correct the policy, or set GP4C_POLICY to another"
        )
