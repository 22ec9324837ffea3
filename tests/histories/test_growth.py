"""Histories that grow: what fits together, what could be observed, files."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.store.export import lines
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import StoredGroups
from tests.replaying.test_growth import Rumours, claims_in
from tests.support.growing import crawl as planned_crawl
from tests.support.growing import random_web
from tests.support.loopback import Follower, Site, crawl, html, path_of
from training import evaluate
from training.histories.formats import write_npz
from training.histories.growth import NO_FINDER, GrowthHistory, read_growth, write_growth
from training.histories.history import ChangeHistory
from training.histories.reading import read_history

HISTORY = ChangeHistory(np.zeros((4, 3), bool), np.zeros(3, int), page_names=["a", "b", "c"])
BORN = np.array([0, 2, 4], np.int32)
FINDER = np.array([NO_FINDER, 0, 1], np.int32)


def test_a_page_is_observed_after_its_birth() -> None:
    """A page of the start in every cycle, one of the last cycle in none."""
    result = GrowthHistory(HISTORY, BORN, FINDER).observed
    assert result.dtype == np.bool_
    assert result.T.tolist() == [[True] * 4, [False, False, True, True], [False] * 4]


@pytest.mark.parametrize(
    ("born", "finder", "named"),
    [
        ([0, 2, 5], FINDER, r"'born'.* from 0 to 4, one for each of 3 pages"),
        ([0, -1, 4], FINDER, r"'born'"),
        ([0, 2], FINDER, r"'born'.* of shape \[2\]"),
        ([[0, 2, 4]], FINDER, r"'born'.* of shape \[1, 3\]"),
        ([0.0, 2.0, 4.0], FINDER, r"'born'.* found float64"),
        (BORN, [-2, 0, 1], r"'finder'.* from -1 to 2"),
        (BORN, [NO_FINDER, 0, 3], r"'finder'"),
        (BORN, [True, False, True], r"'finder'.* found bool"),
        (BORN, [NO_FINDER, 1, 1], "must not be its own finder"),
    ],
)
def test_arrays_that_do_not_fit_are_named(born: object, finder: object, named: str) -> None:
    """With what was expected and what was found."""
    with pytest.raises(HistoryError, match=named):
        GrowthHistory(HISTORY, np.array(born), np.array(finder))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_file_keeps_everything(tmp_path: Path, seed: int) -> None:
    """Births, finders, changes, names; as a plain history, only what could be observed."""
    grown = random_web(seed, pages=9, cycles=5)
    write_growth(tmp_path / "x.npz", grown)
    back = read_growth(tmp_path / "x.npz")
    assert back.born.tolist() == grown.born.tolist()
    assert back.finder.tolist() == grown.finder.tolist()
    assert back.history.changed.tolist() == grown.history.changed.tolist()
    assert back.history.site.tolist() == grown.history.site.tolist()
    assert list(back.history.page_names or ()) == list(grown.history.page_names or ())
    at_start = grown.born == 0
    plain = read_history(tmp_path / "x.npz")
    assert plain.changed.tolist() == grown.history.changed[:, at_start].tolist()
    assert plain.dropped_pages == np.count_nonzero(~at_start)
    write_npz(tmp_path / "y.npz", grown.history)
    with pytest.raises(HistoryError, match="born and finder"):
        read_growth(tmp_path / "y.npz")


EVERYTHING = {"GP4C_BUDGET": 1.0}
STEADY, CYCLES = 20, 8
LISTS = {"/often": 2, "/now": 1, "/seldom": 3}
"""List page -> new pages in every cycle; a third of them for the last one."""
SCORE, BUDGET, SHARE = "0.0 - X", 0.1, 0.2


def export(store_path: Path, path: Path) -> Path:
    with Store(store_path, readonly=True) as store:
        text = "".join(f"{line}\n" for line in lines(store))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(("seed", "name"), [(3, "history.tsv"), (8, "history.tsv.gz")])
def test_an_export_tells_what_the_store_tells(seed: int, name: str, tmp_path: Path) -> None:
    """Births, finders, changes and claims of all pages; those of the claims are the store's own."""
    store_path = tmp_path / "store"
    planned_crawl(store_path, random_web(seed), EVERYTHING, during=Rumours(seed))
    of_store, text = read_growth(store_path), read_growth(export(store_path, tmp_path / name))
    for field in ("born", "finder", "claims"):
        assert getattr(text, field).tolist() == getattr(of_store, field).tolist(), field
    for field in ("changed", "site"):
        assert getattr(text.history, field).tolist() == getattr(of_store.history, field).tolist(), field
    assert list(text.history.page_names or ()) == list(of_store.history.page_names or ())
    with Store(store_path, readonly=True) as store:
        known = claims_in(store)
    known["page"] = [np.asarray(of_store.history.key).tolist().index(page + 1) for page in known["page"]]
    assert len(known)
    assert sorted(known.tolist()) == sorted(of_store.claims.tolist())
    assert (np.diff(of_store.claims["cycle"]) >= 0).all()


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda text: text[: text.index("\n") + 1], "expected the records of 15 cycles"),
        (lambda text: text.replace("gp4c-history/1", "gp4c-history/9"), "line 1: .*gp4c-history/1"),
        (lambda text: text.rstrip("\n") + "x\n", r"line \d+: "),
        (lambda text: text.replace('"entered": ', '"entered": "'), r"line \d+: "),
    ],
)
def test_damaged_exports(damage: Any, named: str, tmp_path: Path) -> None:
    """One error says which line, and what was expected."""
    planned_crawl(tmp_path / "store", random_web(3), EVERYTHING)
    path = export(tmp_path / "store", tmp_path / "history.tsv")
    path.write_text(damage(path.read_text()))
    with pytest.raises(HistoryError, match=named):
        read_growth(path)


def test_a_crawl_that_visits_now_and_then_is_no_history_of_growth(tmp_path: Path) -> None:
    """The error says what to set."""
    planned_crawl(tmp_path / "store", random_web(3), {"GP4C_BUDGET": 0.05})
    with pytest.raises(HistoryError, match=r"GP4C_BUDGET or GP4C_PANEL to 1\.0"):
        read_growth(export(tmp_path / "store", tmp_path / "history.tsv"))


def grow(site: Site, cycle: int) -> None:
    """Three lists that grow at paces of their own, and pages that stay."""
    steady = [f"/steady/{number}" for number in range(STEADY)]
    site.pages = {path: html(f"the story of {path} and no other") for path in steady}
    for path, pace in LISTS.items():
        count = cycle // pace if path == "/seldom" else cycle * pace
        items = [f"{path}/{number}" for number in range(count)]
        site.pages |= {item: html(f"the item {item} of a list") for item in items}
        site.pages[path] = html(f"{count} items", items[::-1])
    site.pages["/"] = html("all lists", [*LISTS, *steady])


@pytest.mark.slow
async def test_the_replayed_delay_is_that_of_a_crawl(site: Site, tmp_path: Path) -> None:
    """Of a web of lists: a crawl of everything is exported, its replay finds pages as late as a crawl."""
    urls = [site.url()]
    ours = {"GP4C_SCORE_FUNCTION": SCORE, "GP4C_POLICY": "top_k", "GP4C_BUDGET": BUDGET}
    for cycle in range(1, CYCLES + 1):
        grow(site, cycle)
        await crawl(Follower, tmp_path / "all", EVERYTHING, urls=urls)
        await crawl(Follower, tmp_path / "some", {**ours, "GP4C_DISCOVERY": SHARE}, urls=urls)
    entered, first = (dates(tmp_path / name, column) for name, column in (("all", 0), ("some", 1)))
    delays = [first.get(path, CYCLES + 1) - born for path, born in entered.items() if born > 1]
    assert np.mean(delays) > 0.2
    of_store, result = export(tmp_path / "all", tmp_path / "history.tsv"), tmp_path / "growth.json"
    words = [
        of_store,
        "--growth",
        "--score",
        SCORE,
        "--discovery",
        SHARE,
        "--budget",
        BUDGET,
        "--json",
        result,
    ]
    assert evaluate.main([str(word) for word in words]) == 0
    (row,) = json.loads(result.read_text())
    assert row["delay_cycles"] == pytest.approx(np.mean(delays), rel=0.1)


def dates(path: Path, column: int) -> dict[str, int]:
    """Path of a page -> the cycle in which it became known (0), or of its first copy (1)."""
    with Store(path, readonly=True) as store:
        (block,) = [block for _, block in store.blocks()]
        urls = [path_of(stored["url"]) for stored in store.requests(range(store.pages))]
    return dict(zip(urls, block[("entered", "first_cycle")[column]].tolist(), strict=True))


def test_links_of_a_store_with_clusters(tmp_path: Path) -> None:
    """Links join pages of the history, by their positions in it."""
    planned_crawl(tmp_path / "store", random_web(3), EVERYTHING)
    assert not len(read_growth(tmp_path / "store").links)
    with Store(tmp_path / "store") as store:
        pages = store.pages
        source, target = np.array([0, 4, pages - 1]), np.array([2, 0, 1])
        groups = PageGroups(
            np.zeros(pages, np.int32), np.zeros((1, 1), np.int32), Links(source, target, pages), ""
        )
        store.put_clusters(StoredGroups(groups, np.zeros(pages, np.uint8)))
        urls = [store.request(page)["url"] for page in range(pages)]
    grown = read_growth(tmp_path / "store")
    names = list(grown.history.page_names or ())
    assert [(names[one], names[other]) for one, other, _ in grown.links.tolist()] == [
        (urls[one], urls[other]) for one, other in zip(source.tolist(), target.tolist(), strict=True)
    ]
