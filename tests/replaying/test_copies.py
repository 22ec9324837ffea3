"""Counters of a replay: sums kept up to date equal recounting, and contents lose what their versions lose."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.search.queries import parse_query_log
from tests.support.contents import contents_of, random_pages
from training.histories.history import ChangeHistory
from training.replaying.copies import ContentCopies, Copies
from training.replaying.metrics import CONTENT_BITS
from training.replaying.prepared import prepare
from training.replaying.refresh_value import QualityMeasure, with_refresh_values

PAGES = 5
CYCLES = 8
PAGE_SETS = st.lists(st.sets(st.integers(0, PAGES - 1)), min_size=CYCLES, max_size=CYCLES)
WEIGHTS = st.none() | st.lists(
    st.integers(0, 8).map(lambda eighths: eighths / 8), min_size=PAGES, max_size=PAGES
).filter(any)


def array(pages: set[int]) -> np.ndarray:
    return np.array(sorted(pages), np.int64)


@given(PAGE_SETS, PAGE_SETS, WEIGHTS, st.booleans())
def test_sums_kept_up_to_date_are_those_of_recounting(
    changes: list[set[int]], visits: list[set[int]], weight: list[float] | None, everything: bool
) -> None:
    """Weight, age and penalty of all copies, after every change and visit; with weights and without."""
    history = ChangeHistory(np.zeros((CYCLES, PAGES), bool), np.zeros(PAGES, int), weight)
    prepared = prepare(history, budget=1, warmup=0)
    copies = Copies(prepared, ("stale_weight", "age_weight", "penalty") if everything else ("age_weight",))
    missed = [0] * PAGES
    first = [0] * PAGES
    each = [1.0] * PAGES if weight is None else weight
    unit = 2.0**prepared.weights.bits
    for cycle, (changed, visited) in enumerate(zip(changes, visits, strict=True), start=1):
        for page in changed:
            first[page] = first[page] if missed[page] else cycle
            missed[page] += 1
        copies.change(cycle, array(changed))
        assert copies.outdated == sum(map(bool, missed))
        renewed = {page for page in visited if missed[page]}
        copies.visit(array(renewed))
        for page in renewed:
            missed[page] = 0
        stale = [page for page in range(PAGES) if missed[page]]
        cycle_tallies = copies.tallies(cycle)
        assert copies.missed.tolist() == missed
        assert copies.outdated == len(stale)
        assert cycle_tallies["stale_weight"] == sum(each[page] for page in stale) * unit
        assert (
            cycle_tallies["age_weight"]
            == sum(each[page] * (cycle - first[page] + 1) for page in stale) * unit
        )
        penalty = sum(
            Fraction(each[page]) * sum(Fraction(1, i) for i in range(1, missed[page] + 1)) for page in stale
        )
        result = math.ldexp(cycle_tallies["penalty"], -prepared.weights.penalty_bits)
        assert result == pytest.approx(float(penalty) if everything else 0.0, abs=1e-12)
    copies.visit(array({page for page in range(PAGES) if missed[page]}))
    assert not any(copies.tallies(CYCLES).values())


LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d\t1"], "log")


def test_copies_of_contents_lose_what_their_versions_lose(tmp_path: Path) -> None:
    """Impact by its definition from the versions held; quality of a search of just these."""
    history = with_refresh_values(contents_of(tmp_path, random_pages(7)), QualityMeasure(LOG))
    impact = history.impact
    assert impact is not None
    prepared = prepare(history, budget=2, warmup=2)
    rng = np.random.default_rng(1)
    copies = ContentCopies(prepared)
    held = impact.version[2].copy()
    rows = []
    for cycle in range(3, history.cycles + 1):
        pages = rng.permutation(history.pages)[:2]
        copies.visit(cycle, pages, history.changed[cycle - 1, pages])
        held[pages] = impact.version[cycle, pages]
        assert copies.held.tolist() == held.tolist()
        rows.append(held.copy())
    never = [impact.between(impact.version[2], live).sum() for live in impact.version[3:]]
    lost = [impact.between(row, live).sum() for row, live in zip(rows, impact.version[3:], strict=True)]
    cycle_tallies = {
        name: np.ldexp(row.astype(float), -CONTENT_BITS) for name, row in copies.tallies().items()
    }
    assert cycle_tallies["impact"] == pytest.approx(1 - np.array(lost) / np.mean(never), abs=1e-9)
    assert impact.quality is not None
    assert cycle_tallies["quality"] == pytest.approx(impact.quality(np.array(rows)), abs=1e-9)
    assert cycle_tallies["quality"].min() < 1.0


def test_where_nothing_is_to_be_gained_nothing_is_lost(tmp_path: Path) -> None:
    """Contents whose changes no query sees: every copy is as good as the page."""
    log = parse_query_log(["z\t1"], "log")
    history = with_refresh_values(
        contents_of(tmp_path, [{0: "a", 1: "b", 2: "c"}, {0: "z"}]), QualityMeasure(log)
    )
    copies = ContentCopies(prepare(history, budget=1, warmup=1))
    copies.visit(2, np.array([1]), np.array([False]))
    cycle_tallies = copies.tallies()
    assert cycle_tallies["impact"].tolist() == cycle_tallies["quality"].tolist() == [2**CONTENT_BITS]


def test_contents_are_needed() -> None:
    """The error names the metrics and the option."""
    prepared = prepare(ChangeHistory(np.ones((3, 2), bool), np.zeros(2, int)), budget=1)
    with pytest.raises(HistoryError, match=r"impact and quality need contents.*--query-log"):
        ContentCopies(prepared)
