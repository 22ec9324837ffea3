"""The plan of a cycle by page: where each one is in it, and why it is visited."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.crawling.planned_pages import PlannedPages
from scrapy_gp4c.page_state.outcomes import KINDS, PLAN

PAGES = st.lists(st.integers(0, 2**32 - 1), unique=True, max_size=40)


@given(PAGES, st.lists(st.integers(0, 2**32 - 1), max_size=5), st.integers(0, 40))
def test_every_page_is_found_where_it_is(pages: list[int], others: list[int], cut: int) -> None:
    """In the order of the plan, whatever the order of numbers, and in how many rounds; others nowhere."""
    plan = np.zeros(len(pages), PLAN)
    plan["page"], plan["kind"] = pages, np.arange(len(pages)) % len(KINDS)
    plan["score"] = np.arange(len(pages)) / 2
    planned = PlannedPages([plan[:cut], plan[cut:]])
    assert planned.pages.tolist() == pages
    for place, page in enumerate(pages):
        assert planned.position(page) == place
        assert planned.kind_and_score(place) == (KINDS[place % len(KINDS)], place / 2)
    assert all(planned.position(page) is None for page in set(others) - set(pages))
