"""Events of pages, against a plain loop over single visits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.arrays import Ints
from scrapy_gp4c.page_state.events import EVENTS, last_events, recorded_events
from scrapy_gp4c.page_state.outcomes import FAILED, OUTCOMES, VISIT

GONE_AFTER = 2


def new_state(pages: int) -> dict[str, Ints]:
    """Columns of pages before their first visit."""
    return dict.fromkeys(("outcome", "gone", "X"), np.zeros(pages, np.int64))


def plain_events(outcomes: list[list[str | None]]) -> list[tuple[int, int, str]]:
    """Events as (cycle, page, kind), by the definitions in words."""
    events = []
    for page, row in enumerate(zip(*outcomes, strict=True)):
        failures = gone = 0
        for cycle, outcome in enumerate(row, 1):
            if outcome is None:
                continue
            if outcome == "first":
                events.append((cycle, page, "new"))
            if outcome == "changed":
                events.append((cycle, page, "changed"))
            if OUTCOMES.index(outcome) in FAILED:
                if failures == 0 and outcome != "excluded":
                    events.append((cycle, page, "doubtful" if outcome == "doubtful" else "failing"))
                failures += 1
                gone += outcome == "gone"
                if outcome == "gone" and gone == GONE_AFTER:
                    events.append((cycle, page, "gone"))
            else:
                if gone >= GONE_AFTER:
                    events.append((cycle, page, "back"))
                failures = gone = 0
    return sorted(events)


@given(
    st.integers(1, 4).flatmap(
        lambda pages: st.lists(
            st.lists(st.sampled_from([None, *OUTCOMES]), min_size=pages, max_size=pages),
            min_size=1,
            max_size=8,
        )
    )
)
def test_events_are_those_of_a_loop_over_visits(outcomes: list[list[str | None]]) -> None:
    """Of every page and cycle; with the time of the visit before and the changes so far."""
    cycles = []
    for cycle, row in enumerate(outcomes, 1):
        visits = np.zeros(sum(outcome is not None for outcome in row), VISIT)
        visits["page"] = [page for page, outcome in enumerate(row) if outcome is not None]
        visits["outcome"] = [OUTCOMES.index(outcome) for outcome in row if outcome is not None]
        visits["time"] = cycle
        cycles.append((cycle, visits))
    result = []
    for events in recorded_events(cycles, new_state(len(outcomes[0])), GONE_AFTER):
        for visit, kind, previous_s, changes in zip(
            events.visits, events.kinds, events.previous_s, events.changes, strict=True
        ):
            page = int(visit["page"])
            result.append((events.cycle, page, EVENTS[kind]))
            past = [row[page] for row in outcomes[: events.cycle]]
            assert changes == past.count("changed")
            earlier = [number for number, outcome in enumerate(past[:-1], 1) if outcome is not None]
            assert (previous_s == earlier[-1]) if earlier else np.isnan(previous_s)
    assert sorted(result) == plain_events(outcomes)


def test_the_last_events_of_some_kinds_keep_their_order() -> None:
    """Of three changes and a failure the last two changes stay, each with its visit."""
    visits = np.zeros(4, VISIT)
    visits["page"] = range(4)
    visits["outcome"] = [OUTCOMES.index(name) for name in ("changed", "error", "changed", "changed")]
    (events,) = recorded_events([(1, visits)], new_state(4), GONE_AFTER)
    assert last_events(events, ("changed", "gone"), 2).visits["page"].tolist() == [2, 3]
    assert last_events(events, ("failing",), 2).visits["page"].tolist() == [1]
    assert last_events(events, ("new",), 2).visits["page"].tolist() == []
