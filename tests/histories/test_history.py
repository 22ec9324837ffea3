"""Change histories and their addresses."""

import logging
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.claims import DATED_CLAIM
from training.histories.history import ChangeHistory, addresses_of, depth_of, domain_of
from training.histories.reading import read_history
from training.histories.splits import FOLDS, page_folds, protocol_splits, time_parts


def a_history(pages: int = 12, cycles: int = 12, **fields) -> ChangeHistory:
    """Random outcomes; the name of page i is p<i>, its weight i."""
    changed = np.random.default_rng(0).random((cycles, pages)) < 0.4
    site = np.arange(pages, dtype=np.int32) // 5
    names = [f"p{i}" for i in range(pages)]
    weight, size = np.arange(pages, dtype=float), np.arange(pages)
    flipped = np.arange(1, np.count_nonzero(changed) + 1, dtype=np.uint64)
    return ChangeHistory(
        changed, site, weight, page_names=names, size=size, latency_ms=size, flipped=flipped, **fields
    )


def test_arrays_are_brought_into_their_documented_form():
    """Any memory order and integer type is accepted; the fields have the types that replay relies on."""
    history = ChangeHistory(np.asfortranarray(np.eye(3, 4, dtype=bool)), np.array([0, 1, 1, 0], np.uint8))
    assert history.changed.flags.c_contiguous
    assert history.site.dtype == np.int32
    assert (history.cycles, history.pages) == (3, 4)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"changed": np.zeros((2, 3))}, "'changed' .*bool.*float64"),
        ({"changed": np.zeros(3, bool)}, r"'changed' .*shape \[3\]"),
        ({"changed": np.zeros((0, 3), bool)}, "at least one page and one cycle"),
        ({"site": np.zeros(2, int)}, "'site' .*one for each of 3 pages"),
        ({"site": np.array([0, -1, 0])}, "'site' .*from -1 to 0"),
        ({"site": np.zeros(3)}, "'site' .*float64"),
        ({"weight": np.array([1, np.nan, 1])}, "'weight' .*finite"),
        ({"weight": np.array([1.0, -1.0, 1.0])}, "'weight' .*from -1"),
        ({"weight": np.ones(4)}, "'weight' .*3 pages"),
        ({"size": np.array([1.0, 2.0, 0.0])}, "'size' .*integers from 0 to 64.*float64"),
        ({"size": np.array([1, 65, 0])}, "'size' .*integers from 0 to 64.*from 0 to 65"),
        ({"latency_ms": np.array([1, 65_536, 0])}, "'latency_ms' .*ms below 65,536.*from 0 to 65536"),
        ({"flipped": np.ones(7, np.uint64)}, "'flipped' .*one for each of .* changes"),
        ({"observed": np.ones((3, 2), bool)}, r"'observed' .*\[2, 3\]"),
        ({"page_names": ["a", "b"]}, "3 pages has 2 names"),
        ({"site": np.array([0, 1, 2]), "site_names": ["a", "b"]}, "3 sites has 2 names"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(fields, said):
    """Each wrong array is refused with its name, what it must be and what was found."""
    good = {"changed": np.zeros((2, 3), bool), "site": np.zeros(3, np.int32)}
    with pytest.raises(HistoryError, match=said):
        ChangeHistory(**good | fields)


@given(st.data())
def test_a_part_holds_exactly_the_pages_and_cycles_asked_for(data):
    """take() cuts every array and the names alike, for positions in any order, masks and slices."""
    history = a_history(observed=np.ones((12, 12), bool))
    pages = data.draw(st.lists(st.integers(0, 11), min_size=1, unique=True))
    start = data.draw(st.integers(0, 11))
    stop = data.draw(st.integers(start + 1, 12))
    part = history.take(np.array(pages), slice(start, stop))
    assert np.array_equal(part.changed, history.changed[start:stop][:, pages])
    assert part.changed.flags.c_contiguous
    assert part.observed.shape == part.changed.shape
    assert part.site.tolist() == [history.site[i] for i in pages]
    assert part.weight.tolist() == part.sizes.tolist() == part.latencies_ms.tolist() == pages
    flipped = np.zeros((12, 12), np.uint64)
    flipped.T[history.changed.T] = history.flipped
    assert part.flipped.tolist() == flipped[start:stop][:, pages].T[part.changed.T].tolist()
    assert list(part.page_names) == [f"p{i}" for i in pages]
    mask = np.isin(np.arange(12), pages)
    assert list(history.take(mask).page_names) == [f"p{i}" for i in sorted(pages)]


def test_pages_not_observed_throughout_are_left_out_and_counted():
    """observed_pages() keeps the pages observed in every cycle and says how many it left out."""
    observed = np.ones((3, 4), bool)
    observed[1, 2] = False
    history = ChangeHistory(np.eye(3, 4, dtype=bool), np.arange(4), observed=observed)
    full = history.observed_pages()
    assert full.site.tolist() == [0, 1, 3]
    assert (full.observed, full.dropped_pages) == (None, 1)
    with pytest.raises(HistoryError, match="each of its 4 pages"):
        ChangeHistory(history.changed, history.site, observed=~observed).observed_pages()


@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 3))
def test_folds_are_disjoint_complete_and_equal(pages, k, seed):
    """Every page is in exactly one fold; sizes differ by one at most; the seed decides."""
    if k > pages:
        with pytest.raises(HistoryError, match=f"{k} folds"):
            page_folds(pages, k, seed)
        return
    folds = page_folds(pages, k, seed)
    assert len(folds) == k
    assert sorted(np.concatenate(folds).tolist()) == list(range(pages))
    sizes = [len(fold) for fold in folds]
    assert max(sizes) - min(sizes) <= 1
    assert all(np.array_equal(a, b) for a, b in zip(folds, page_folds(pages, k, seed), strict=True))


def test_another_seed_draws_other_folds():
    """Folds are drawn, not cut."""
    assert not np.array_equal(page_folds(100, 5, 0)[0], page_folds(100, 5, 1)[0])


@given(st.integers(1, 400), st.integers(1, 10))
def test_time_parts_are_consecutive_and_the_last_takes_the_remainder(cycles, parts):
    """Parts follow each other without a gap, all equally long but the last."""
    if parts > cycles:
        with pytest.raises(HistoryError, match=f"{parts} parts"):
            time_parts(cycles, parts)
        return
    slices = time_parts(cycles, parts)
    assert [i for part in slices for i in range(part.start, part.stop)] == list(range(cycles))
    lengths = [part.stop - part.start for part in slices]
    assert set(lengths[:-1]) <= {cycles // parts}
    assert lengths[-1] == cycles - (parts - 1) * (cycles // parts)


def test_the_journal_protocol_uses_later_days_of_other_pages():
    """57 days: training days 1-19 of three folds, validation 20-38 of one, test 39-57 of another."""
    history = a_history(pages=23, cycles=57)
    splits = protocol_splits(history, "journal", seed=4)
    tested = []
    for split in splits:
        days = slice(0, 19), slice(19, 38), slice(38, 57)
        pages = [[int(name[1:]) for name in part.page_names] for part in split]
        for part, chosen, cycles in zip(split, pages, days, strict=True):
            assert np.array_equal(part.changed, history.changed[cycles][:, chosen])
        assert len(pages[0]) in range(12, 16)
        assert sorted(chain.from_iterable(pages)) == list(range(23))
        tested += pages[2]
    assert len(splits) == FOLDS
    assert sorted(tested) == list(range(23))
    simple = protocol_splits(history, "simple", seed=4)
    assert len(simple) == 1
    assert all(np.array_equal(a.changed, b.changed) for a, b in zip(simple[0], splits[0], strict=True))


def test_the_thesis_protocol_uses_all_days():
    """Two folds train, two validate, one tests, all over the whole time; each fold is tested on once."""
    history = a_history(pages=20, cycles=4)
    splits = protocol_splits(history, "thesis")
    assert len(splits) == FOLDS
    for split in splits:
        assert [part.pages for part in split] == [8, 8, 4]
        assert {part.cycles for part in split} == {4}
        assert sorted(chain.from_iterable(part.page_names for part in split)) == sorted(history.page_names)
    assert sorted(chain.from_iterable(split.test.page_names for split in splits)) == sorted(
        history.page_names
    )


@pytest.mark.parametrize(
    ("pages", "cycles", "protocol", "said"),
    [
        (4, 57, "journal", "at least 5 pages and 9 cycles.*has 4 pages"),
        (50, 8, "simple", "at least 5 pages and 9 cycles.*8 cycles"),
        (50, 2, "thesis", "at least 5 pages and 3 cycles.*2 cycles"),
        (50, 57, "papers", "no protocol 'papers'; there are: simple, journal, thesis"),
    ],
)
def test_a_history_too_small_for_a_protocol_is_refused(pages, cycles, protocol, said):
    """The error says what the protocol needs and what the history has."""
    with pytest.raises(HistoryError, match=said):
        protocol_splits(a_history(pages, cycles), protocol)


def test_left_out_pages_are_logged(tmp_path, caplog):
    """Reading says how many pages were left out because they were not observed in every cycle."""
    path = tmp_path / "h.tsv"
    path.write_text("s\ta\t010\ns\tb\t0.0\n")
    with caplog.at_level(logging.WARNING):
        assert read_history(path).dropped_pages == 1
    assert "left out 1 page not observed" in caplog.text


def history(names: list[str] | None) -> ChangeHistory:
    return ChangeHistory(
        np.ones((2, 3), np.bool_), np.array([0, 1, 1]), site_names=["www.a.edu", "ota/b"], page_names=names
    )


def test_addresses_have_site_and_path() -> None:
    """Of paths with and without a slash, and of whole URLs, which name their host themselves."""
    result = addresses_of(history(["/x/1", "y", "https://c.gov:80/z?q=1"]))
    assert result == ["www.a.edu/x/1", "ota/b/y", "c.gov:80/z?q=1"]
    assert [domain_of(one) for one in result] == ["edu", "ota", "gov:80"]
    assert [depth_of(one) for one in result] == [2, 2, 1]


def test_pages_without_names_have_none() -> None:
    """One error, that names the history."""
    with pytest.raises(HistoryError, match="memory does not tell the names"):
        addresses_of(history(None))


def test_a_part_keeps_the_claims_about_its_pages() -> None:
    """Renumbered with its pages and cycles; spans stay, and what later cycles read is unknown to it."""
    claims = np.array(
        [(0, 5, 3, -7), (2, 1, 0, 3), (3, 5, 0, 3), (4, 5, 4, 6), (4, 1, 0, 5), (9, 5, 0, 9)], DATED_CLAIM
    )
    part = a_history(claims=claims).take(np.array([5, 2]), slice(1, 5))
    assert part.claims is not None
    assert part.claims.tolist() == [(-1, 0, 3, -8), (2, 0, 0, 2), (3, 0, 4, 6)]
    assert a_history().take(cycles=slice(1, 5)).claims is None
