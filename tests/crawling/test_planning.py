"""The plan of a cycle and its hubs, against models that sort everything in plain Python."""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.crawling import neighbourhood
from scrapy_gp4c.crawling.planning import Planner, best_hubs
from scrapy_gp4c.page_state.columns import MAX_WAIT_CYCLES
from scrapy_gp4c.page_state.outcomes import KINDS
from scrapy_gp4c.policies.base import Selection, budget_pages
from scrapy_gp4c.scoring import discovery
from scrapy_gp4c.scoring.ranking import draws
from scrapy_gp4c.scoring.terminals import STATE
from scrapy_gp4c.settings import Settings

CYCLE = 40
Row = dict[str, int]


class Blocks:
    """What planning asks a store: its page columns, in blocks of a given size; keeps the plan."""

    def __init__(self, rows: list[Row], block_rows: int, cycle: int = CYCLE) -> None:
        self.rows = rows
        self.pages = self.merged_pages = len(rows)
        self.block_rows = block_rows
        self.open_cycle = self.last_cycle = cycle
        self.plans: list[npt.NDArray[Any]] = []
        self.counts: dict[str, Any] = {}

    def blocks(self, names: Any = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the columns block by block."""
        for first in range(0, self.pages, self.block_rows):
            rows = self.rows[first : first + self.block_rows]
            yield (
                first,
                {
                    name: np.array([row.get(name, 0) for row in rows], dtype)
                    for name, dtype in {
                        **STATE,
                        **discovery.COLUMNS,
                        "group": "u4",
                        "key": "u8",
                        "has_copy": "u1",
                        "failures": "u1",
                        "gone": "u1",
                        "last_attempt": "i4",
                    }.items()
                },
            )

    def columns_of(self, pages: npt.NDArray[np.uint32], names: object = None) -> dict[str, Any]:
        parts = [columns for _, columns in self.blocks()]
        return {name: np.concatenate([part[name] for part in parts])[pages] for name in parts[0]}

    def site_keys(self) -> npt.NDArray[Any]:
        """All pages are in one directory."""
        return np.zeros(1, np.uint64)


def planned(
    given_settings: dict[str, Any], rows: list[Row], block_rows: int = 3, cycle: int = CYCLE
) -> Blocks:
    """Plan a cycle, by the score of the model unless another is given."""
    store = Blocks(rows, block_rows, cycle)
    loaded = Settings.load(ScrapySettings({"GP4C_SCORE_FUNCTION": "t * (X + 0.5)", **given_settings}))
    first = Planner(store, loaded, cycle).plan_first()  # type: ignore[arg-type]
    store.plans.append(first.plan())
    store.counts = dict(first.counts)
    return store


def plan_of(given_settings: dict[str, Any], rows: list[Row], block_rows: int = 3) -> list[tuple[int, str]]:
    """Plan of cycle `CYCLE` as (page, kind)."""
    store = planned(given_settings, rows, block_rows)
    plan = [(int(row["page"]), KINDS[row["kind"]]) for row in store.plans[0]]
    assert store.counts["known"] == len(rows)
    assert sum(store.counts[kind] for kind in ("new", "warmup", "panel", "recheck", "ranked")) == len(plan)
    return plan


def model(given_settings: dict[str, Any], rows: list[Row]) -> list[tuple[int, str]]:
    """Return the same plan, page by page, without numpy, blocks or selection: the text of the plan."""
    loaded = Settings.load(ScrapySettings(given_settings))
    draw = draws(np.array([row["key"] for row in rows], np.uint64), loaded.seed, CYCLE).tolist()
    plan: dict[str, list[int]] = {"panel": [], "warmup": [], "new": []}
    rest, gone = [], []
    alive = 0
    for page, row in enumerate(rows):
        alive += row["gone"] < loaded.gone_after
        wait = min(2 ** (row["failures"] - 1), MAX_WAIT_CYCLES) if row["failures"] else 0
        in_panel = row["key"] < Fraction(loaded.panel) * 2**64
        if row["gone"] < loaded.gone_after and (in_panel or repr(loaded.budget) == "1.0"):
            wait = 0
        is_due = CYCLE - row["last_attempt"] >= wait and row["last_attempt"] < CYCLE
        if row["gone"] >= loaded.gone_after:
            gone.append((not is_due, row["failures"], row["last_attempt"], page))
            continue
        if not is_due:
            continue
        if not row["n"] and not row["has_copy"]:
            plan["new"].append(page)
        elif row["n"] < loaded.warmup_visits:
            plan["warmup"].append(page)
        elif in_panel:
            plan["panel"].append(page)
        else:
            rest.append(page)
    rest.sort(key=lambda page: ((rows[page]["last_cycle"] - CYCLE) * (rows[page]["X"] + 0.5), draw[page]))
    gone.sort()
    again = sum(not one[0] and rows[one[3]]["failures"] == 0 for one in gone)
    room = max(0, budget_pages(loaded.budget, alive + again) - len(plan["panel"]))
    first = len(gone) > 0 and (not gone[0][0] or alive == 0)  # one of the site, all pages are of one
    inside = math.ceil(max(0.25, again / max(1, alive + again)) * room)
    most = first + inside
    recheck = [one[3] for number, one in enumerate(gone) if number < most and (not one[0] or number < first)]
    room = max(0, room - len(recheck) + first)
    new = plan["new"]
    if loaded.new_pages is not None:  # all are of one site
        new = sorted(new, key=lambda page: (rows[page]["entered"], draw[page]))[: loaded.new_pages]
    kinds = {
        "panel": plan["panel"],
        "recheck": recheck,
        "ranked": rest[:room],
        "warmup": plan["warmup"],
        "new": new,
    }
    return [(page, kind) for kind, pages in {**kinds, "new": new}.items() for page in pages]


ROW = st.fixed_dictionaries(
    {
        "n": st.integers(0, 4),
        "X": st.integers(0, 2),
        "last_cycle": st.integers(36, 39),
        "has_copy": st.integers(0, 1),
        "failures": st.sampled_from([0, 0, 0, 1, 2, 3, 7, 255]),
        "gone": st.sampled_from([0, 0, 0, 1, 2, 3, 255]),
        "last_attempt": st.integers(0, 39),
        "entered": st.integers(0, 3),
        "key": st.integers(0, 2**64 - 1),
    }
)
WEBS = st.fixed_dictionaries(
    {
        "GP4C_BUDGET": st.one_of(st.integers(1, 30), st.floats(0.0, 1.0, exclude_min=True)),
        "GP4C_NEW_PAGES": st.none() | st.integers(0, 5),
        "GP4C_WARMUP_VISITS": st.integers(0, 4),
        "GP4C_PANEL": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        "GP4C_GONE_AFTER": st.integers(1, 3),
        "GP4C_SEED": st.integers(0, 5),
    }
)


@given(WEBS, st.lists(ROW, max_size=40, unique_by=lambda row: row["key"]), st.integers(1, 10))
def test_plan_equals_the_model(given_settings: dict[str, Any], rows: list[Row], block_rows: int) -> None:
    """Kinds, order, ties, budget, caps, back-off and gone pages, whatever the pages' state."""
    assert plan_of(given_settings, rows, block_rows) == model(given_settings, rows)


def page(**values: int) -> Row:
    """Return a settled page: warmed up, quiet, visited in the last cycle."""
    defaults = {"n": 5, "X": 1, "last_cycle": 39, "has_copy": 1, "failures": 0, "gone": 0, "last_attempt": 39}
    return {**defaults, "key": 2**63, **values}


@pytest.mark.parametrize(("failures", "wait_cycles"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 32), (255, 32)])
def test_failing_pages_wait_longer_and_longer(failures: int, wait_cycles: int) -> None:
    """A page that failed f times in a row is tried again after 1, 2, 4, ... at most 32 cycles."""
    budget = {"GP4C_BUDGET": 1}
    early = page(failures=failures, last_attempt=CYCLE - wait_cycles + 1)
    late = page(failures=failures, last_attempt=CYCLE - wait_cycles)
    assert plan_of(budget, [early]) == []
    assert plan_of(budget, [late]) == [(0, "ranked")]


@pytest.mark.parametrize("collecting", [{"GP4C_BUDGET": 1.0}, {"GP4C_BUDGET": 1, "GP4C_PANEL": 1.0}])
def test_a_collection_asks_for_failing_pages_in_every_cycle(collecting: dict[str, float]) -> None:
    """Pages of a collection or control group do not back off: its history would lose them."""
    rows = [page(failures=failures, last_attempt=CYCLE - 1) for failures in (1, 2, 9)]
    assert [number for number, _ in plan_of(collecting, rows)] == [0, 1, 2]


def test_ties_at_the_cut_are_drawn_anew_every_cycle_and_seed() -> None:
    """Equal pages take turns: another cycle or seed picks others, the same pick is repeated exactly."""
    rows = [page(key=i * 2**50) for i in range(200)]
    picks = {
        (seed, cycle): frozenset(planned({"GP4C_SEED": seed}, rows, 64, cycle).plans[0]["page"].tolist())
        for seed in (0, 1)
        for cycle in (50, 51, 50)
    }
    assert len(set(picks.values())) == 4
    assert all(len(pick) == 10 for pick in picks.values())


@pytest.mark.parametrize("step", [1, 64])
def test_a_sample_of_many_pages_changes_no_plan(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is like the other pages nor one that has all of the best, every 64th page."""
    rows = [page(key=i * 2**50, last_cycle=39 - i * 7 % 31 * (i % step == 0)) for i in range(4_096)]
    before = plan_of({}, rows, 1_000)
    monkeypatch.setattr(neighbourhood, "MANY_PAGES", 4_096)
    assert plan_of({}, rows, 1_000) == before


def test_scores_are_in_the_plan() -> None:
    """Ranked pages carry their score, best first; the others have none."""
    rows = [page(X=2, last_cycle=30), page(n=0, X=0), page(X=3)]
    plan = planned({"GP4C_BUDGET": 1.0, "GP4C_SCORE_FUNCTION": "t * X"}, rows, 2).plans[0]
    assert plan["page"].tolist() == [0, 2, 1]
    assert plan["score"][:2].tolist() == [20.0, 3.0]
    assert np.isnan(plan["score"][2])


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "last_cycle": st.integers(30, CYCLE - 1),
            "brought_sum": st.integers(0, 3),
            "brought_cycles": st.integers(0, 9),
            "key": st.integers(0, 2**64 - 1),
            "hub": st.booleans(),
        }
    ),
    min_size=1,
    max_size=25,
)


def hubs_of(rows: list[Row], budget: int, **given_settings: Any) -> Selection:
    """The hubs that a cycle visits."""
    loaded = Settings.load(ScrapySettings({f"GP4C_{name}": value for name, value in given_settings.items()}))
    is_hub = np.array([row["hub"] for row in rows], np.bool_)
    return best_hubs(Blocks(rows, 3), loaded, CYCLE, is_hub, budget)  # type: ignore[arg-type]


@given(ROWS, st.integers(0, 40), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(0, 5))
def test_hubs_that_promise_most_are_visited(rows: list[Row], budget: int, share: float, seed: int) -> None:
    """New pages per cycle times cycles waited; ties by draw; at least one if the share is above 0."""
    draw = draws(np.array([row["key"] for row in rows], np.uint64), seed, CYCLE).tolist()

    def promise(page: int) -> float:
        row = rows[page]
        rate = (row["brought_sum"] + 0.5) / (row["brought_cycles"] + 1.0)
        return rate * (CYCLE - row["last_cycle"])

    order = sorted(range(len(rows)), key=lambda page: (-promise(page), draw[page], page))
    most = min(budget, max(1, int(share * budget + 1e-9))) if share else 0
    chosen = hubs_of(rows, budget, DISCOVERY=share, SEED=seed)
    assert chosen.pages.tolist() == [page for page in order if rows[page]["hub"]][:most]
    assert chosen.scores.tolist() == pytest.approx([promise(page) for page in chosen.pages.tolist()])


def test_another_score_function_ranks_hubs() -> None:
    """That of discovery, not that of the crawl."""
    rows = [
        {"last_cycle": 30 + page, "brought_sum": page, "brought_cycles": 1, "key": page, "hub": True}
        for page in range(6)
    ]
    given_settings = {"DISCOVERY": 0.5, "SCORE_FUNCTION": "-t"}
    assert hubs_of(rows, 6, **given_settings, DISCOVERY_FUNCTION="t").pages.tolist() == [0, 1, 2]
    assert hubs_of(rows, 6, **given_settings, DISCOVERY_FUNCTION="brought").pages.tolist() == [5, 4, 3]
