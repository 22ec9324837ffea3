"""Promises about a history's pages (largest ages, smallest intervals), by promise rules of a crawl."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.rules import PageRule, Span, read_rules, rule_of
from scrapy_gp4c.policies.promises import PROMISE, needed_visits, promised_visits
from training.histories.history import ChangeHistory

DAY_S: Final = 86_400.0


class RulesFile(NamedTuple):
    """Promise rules of a crawl, and the cycles a day that turn their times into cycles."""

    rules: tuple[PageRule, ...]
    cycles_a_day: float = 1.0

    def cycles(self, span: Span) -> int:
        """Whole cycles in the time span `span`, at least 1."""
        return span.cycles or max(1, int(span.seconds * self.cycles_a_day / DAY_S + 1e-9))


def read_rules_file(path: Path, cycles_a_day: float = 1.0) -> RulesFile:
    """Read promise rules from a JSON file with a list, as ``GP4C_RULES`` has them. Raises HistoryError."""
    try:
        rules = read_rules(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise HistoryError(f"--rules {path}: {error}") from None
    return RulesFile(rules, cycles_a_day)


class HistoryPromises(NamedTuple):
    """What promise rules say of P pages, in cycles."""

    max_age: npt.NDArray[np.int64]
    """``[P]``: cycles within which a page must be visited again; 0: nothing is promised."""
    min_interval: npt.NDArray[np.int64]
    """``[P]``: least cycles between two visits of a page, at least 1."""
    never: npt.NDArray[np.bool_]
    """``[P]``: whether a page is never to be visited."""
    pages_of: Counter[int]
    """Number of the promise rule -> number of pages that it applies to."""

    @classmethod
    def of(cls, history: ChangeHistory, file: RulesFile) -> Self:
        """Match the promise rules of `file` with the pages' names.

        Raises HistoryError where pages have no names.
        """
        if history.page_names is None:
            raise HistoryError(
                f"{history.source} does not tell the names of its pages, which --rules needs: give a history "
                "with names, such as a store"
            )
        sites = history.site_labels
        rules = [
            rule_of(file.rules, page if "://" in page else f"https://{sites[site]}/{page.lstrip('/')}", {})
            for site, page in zip(history.site.tolist(), history.page_names, strict=True)
        ]
        cycles = {
            span: file.cycles(span) for rule in rules for span in (rule.max_age, rule.min_interval) if span
        }
        max_age = [cycles[rule.max_age] if rule.max_age and not rule.never else 0 for rule in rules]
        least = [cycles[rule.min_interval] if rule.min_interval else 1 for rule in rules]
        return cls(
            np.array(max_age, np.int64),
            np.array(least, np.int64),
            np.array([rule.never for rule in rules], np.bool_),
            Counter(rule.number for rule in rules),
        )

    def of_cycle(
        self, cycle: int, last: npt.NDArray[np.int64], budget: int
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Pages that `cycle` must visit by promises, at most ``budget``, and pages that it must not visit.

        ``last``: cycle of each page's last visit, ``[P]``.
        """
        allowed = ~self.never & (cycle - last >= self.min_interval)
        pages = np.flatnonzero(self.max_age)
        promised = np.empty(len(pages), PROMISE)
        promised["max_age"], promised["is_open"] = self.max_age[pages], allowed[pages]
        promised["cycles_left"] = last[pages] + promised["max_age"] - cycle
        promised["min_interval"] = np.minimum(self.min_interval[pages], promised["max_age"])
        chosen = pages[promised_visits(promised, budget)] if len(pages) else pages
        return chosen.astype(np.uint32), np.flatnonzero(~allowed).astype(np.uint32)


def describe_rules(file: RulesFile, history: ChangeHistory, budgets: Sequence[int]) -> list[str]:
    """Lines for people about promise rules: the visits that promises need, and rules that match no page."""
    promises = HistoryPromises.of(history, file)
    pages = np.flatnonzero(promises.max_age)
    needed = needed_visits(promises.max_age[pages])
    shown = ", ".join(f"{budget:,}" for budget in budgets)
    subject = f"promises about {counted(len(pages), 'page')}"
    lines = [f"{subject} need {counted(needed, 'visit')} a cycle, the budget is {shown}"]
    if needed > min(budgets, default=needed):
        lines[0] += ": some pages are late"
    unmatched = [rule.name for rule in file.rules if not promises.pages_of[rule.number]]
    if unmatched:
        lines.append(f"no page of the history matches {', '.join(unmatched)} (a history has no tags)")
    return lines
