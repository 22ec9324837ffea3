"""What is sealed is written by itself, whatever happened since; both are read as if they were written."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit, StoredRequest

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["page", "visit", "request", "sum", "weight", "seal", "write"]), st.integers(0, 7)
    ),
    max_size=40,
)


def url(number: int) -> StoredRequest:
    """A request of its own for every number."""
    return {"url": f"http://a.example/{number}"}


def do(store: Store, step: tuple[str, int], number: int) -> None:
    """One step of a crawl; ``number``: of the step."""
    what, choice = step
    page = choice % max(1, store.pages)
    if what == "page":
        store.add_page(1_000 + number, url(number))
    elif not store.pages:
        return
    elif what == "visit" and not store.visited(page):
        store.record(NewVisit(page, "first", float(number), fingerprint=number))
    elif what == "request":
        store.set_request(page, url(number))
    elif what == "sum":
        store.set_body_sum(page, number)
    elif what == "weight":
        store.note(page, "weight", float(number))


def seen(store: Store) -> list[Any]:
    """All that a crawl reads of it."""
    pages = range(store.pages)
    return [
        store.requests(pages),
        [store.request(page) for page in pages],
        [store.body_sum(page) for page in pages],
        [store.weights.of(page) for page in pages],
        [store.visited(page) for page in pages],
        [store.find(store.page(page).key) for page in pages],
        list(store.new_pages()),
        store.open_visits().tolist(),
        store.notes().tolist(),
    ]


@given(steps=STEPS)
def test_a_store_that_seals_is_read_like_one_that_does_not(
    steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What is sealed and what came since are one; a kill leaves what was written."""
    folder = tmp_path_factory.mktemp("stores")
    with Store(folder / "plain") as plain, Store(folder / "sealing") as sealing:
        for store in (plain, sealing):
            store.begin_cycle({})
        written, waiting = seen(plain), list[Any]()
        for number, step in enumerate(steps):
            if step[0] == "seal":
                if sealing._open.seal():
                    waiting.append(seen(sealing))
            elif step[0] == "write" and waiting:
                sealing._open.write(1)
                written = waiting.pop(0)
            else:
                do(plain, step, number)
                do(sealing, step, number)
            assert seen(plain) == seen(sealing)
        shutil.copytree(folder / "sealing", folder / "killed")
        sealing.commit()
        assert sealing.verify() == []
    with Store(folder / "killed", readonly=True) as killed:
        assert seen(killed) == written
    with Store(folder / "sealing", readonly=True) as sealing, Store(folder / "plain", readonly=True) as plain:
        assert seen(sealing) == seen(plain)
